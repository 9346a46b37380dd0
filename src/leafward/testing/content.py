"""What a stored message keeps: every character and key it came with, or a refusal."""

from __future__ import annotations

import copy
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, Message, MessageTooLarge, Session, assistant, tool_result, user
from leafward.testing.ids import REFUSED_IDS

if TYPE_CHECKING:
    from leafward.stores import Store

EXACT_TEXTS = [
    "",
    " ",
    "  spaces around  ",
    "tab\tand\r\nlines\n\n",
    "nul \x00 inside \x00",
    "\x00",
    "controls \x01\x1b[31m\x7f\x85",
    "caf\u00e9 and cafe\u0301",
    "\ufeffbyte order mark",
    "line\u2028paragraph\u2029separators",
    "noncharacters \uffff \U0010ffff",
    "\u202eright to left\u202c",
    "我在北京吃饭。東京に行く。서울에서",
    "👩\u200d👩\u200d👧 🏳️\u200d🌈",
    "'; DROP TABLE leafward_message; --",
    '{"json": "inside"} \\ \\u0000 \\n',
    "%s %d {} {0} ${x} %",
    "\ufffd",
]

FOREIGN_MESSAGES: list[dict[str, Any]] = [
    {
        "id": "ai-sdk",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm", "state": "done", "providerMetadata": {"x": {"sig": "abc"}}},
            {
                "type": "tool-getWeather",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "東京"},
                "output": {"t": 21.5},
            },
            {
                "type": "dynamic-tool",
                "toolName": "x",
                "toolCallId": "c2",
                "state": "input-streaming",
                "input": None,
            },
            {"type": "source-url", "sourceId": "1", "url": "https://example.com"},
        ],
        "metadata": {"custom": [1, 2, {"deep": None}]},
    },
    {
        "id": "anthropic",
        "role": "user",
        "parts": [
            {
                "type": "tool_use",
                "id": "t1",
                "name": "run",
                "input": {"cmd": ["ls", "-l"]},
                "cache_control": None,
            },
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "text", "text": "ok"}],
                "is_error": False,
            },
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3},
    },
    {
        "id": "unknown",
        "role": "moderator",
        "name": "Zoë",
        "parts": [{"type": "hologram", "frames": [[1, 2], [3.5, -0.25]], "": "empty key", "t y p e": True}],
        "x-trace": {"a": [], "b": {}, "c": None, "d": False},
    },
]

REFUSED_PARTS: list[Any] = [
    ["a bare string"],
    [1],
    [None],
    [["type", "text"]],
    [{}],
    [{"text": "no type"}],
    [{"type": 3}],
    [{"type": None, "text": "x"}],
    [{"type": "data", "value": object()}],
    [{"type": "data", 1: "a key that is not text"}],
    [{"type": "text", "text": "fine"}, {"text": "no type"}],
    {"type": "text", "text": "not in a list"},
    7,
]

REFUSED_NUMBERS = [math.nan, math.inf, -math.inf, 2**64, -(2**63) - 1, 10**400]
KEPT_NUMBERS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, 1e308, 5e-324, -2.5, True, False, None]
MEBIBYTE = 1024 * 1024


def _data(value: object) -> list[Any]:
    return [{"type": "data", "value": value}]


class ContentContract:
    """Exactly what went in comes out, or nothing went in. Part of `MessageContract`."""

    @pytest.mark.parametrize("text", EXACT_TEXTS)
    async def test_text_comes_back_exactly(self, store: Store, text: str) -> None:
        session = Session(store, "s")
        parts = [{"type": "text", "text": text, text or "k": [text]}]

        stored = await session.append_message(Message("user", parts, id="m", metadata={"note": text}, extra=text))
        await session.label("m", "label")
        found = await session.get_message("m")

        assert found == stored
        assert list(stored.parts) == parts
        assert stored.text == text
        assert stored.metadata == {"note": text}
        assert stored.to_dict()["extra"] == text

    @pytest.mark.parametrize("message", FOREIGN_MESSAGES, ids=lambda m: m["id"])
    async def test_keys_and_parts_nobody_knows_come_back_exactly(self, store: Store, message: dict[str, Any]) -> None:
        session = Session(store, "s")

        await session.append_message(copy.deepcopy(message))
        (read,) = await session.get_history()
        wire = read.to_dict()

        assert {key: wire[key] for key in message} == message
        assert set(wire) - set(message) <= {"createdAt"}
        assert list(wire["parts"][0]) == list(message["parts"][0])
        assert Message.from_dict(wire) == read

    async def test_an_agentscope_message_comes_back_as_it_was_read(self, store: Store) -> None:
        session = Session(store, "s")
        foreign = {
            "id": "as-1",
            "name": "Friday",
            "role": "ASSISTANT",
            "content": [{"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "hm"}],
            "metadata": {"k": 1},
            "timestamp": "2025-03-04 05:06:07.123",
        }

        await session.append_message(foreign)

        assert await session.get_history() == [Message.from_dict(foreign)]

    async def test_a_tool_result_comes_back_exactly(self, store: Store) -> None:
        session = Session(store, "s")

        stored = await session.append_message(tool_result("call-1", "21 degrees", name="weather"))

        assert await session.get_history() == [stored]
        assert stored.role == "tool"
        assert (stored.parts[0]["type"], stored.parts[0]["id"], stored.parts[0]["name"]) == (
            "tool_result",
            "call-1",
            "weather",
        )

    async def test_a_message_without_parts_is_a_message(self, store: Store) -> None:
        session = Session(store, "s")

        stored = await session.append_message(Message("assistant", []))

        assert list((await session.get_history())[0].parts) == []
        assert stored.text == ""

    @pytest.mark.parametrize("number", KEPT_NUMBERS)
    async def test_numbers_come_back_exactly(self, store: Store, number: object) -> None:
        session = Session(store, "s")

        stored = await session.append_message(Message("user", _data(number), metadata={"n": [number]}))
        (read,) = await session.get_history()

        assert read == stored
        assert (read.parts[0]["value"], type(read.parts[0]["value"])) == (number, type(number))

    @pytest.mark.parametrize("number", REFUSED_NUMBERS, ids=["nan", "inf", "-inf", "2^64", "-2^63-1", "10^400"])
    async def test_numbers_that_json_cannot_carry_are_refused(self, store: Store, number: object) -> None:
        session = Session(store, "s")
        fields: list[dict[str, Any]] = [
            {"parts": _data(number)},
            {"parts": _data([{"deep": [number]}])},
            {"parts": [], "metadata": {"n": number}},
            {"parts": [], "extra": number},
        ]

        for field in fields:
            with pytest.raises(ValueError, match=r"."):
                await session.append_message(Message("user", **copy.deepcopy(field)))
            with pytest.raises(ValueError, match=r"."):
                await session.append_message({"role": "user", **field})

        assert await session.get_history() == []

    @pytest.mark.parametrize("parts", REFUSED_PARTS, ids=range(len(REFUSED_PARTS)))
    async def test_parts_that_are_not_objects_with_a_type_are_refused(self, store: Store, parts: Any) -> None:
        session = Session(store, "s")
        before = await session.append_message(user("before", id="m"))

        with pytest.raises(ValueError, match=r"."):
            await session.append_message(Message("user", parts))
        with pytest.raises(ValueError, match=r"."):
            await session.append_message({"role": "user", "parts": parts})
        with pytest.raises(ValueError, match=r"."):
            await session.update_message({"id": "m", "role": "user", "parts": parts})

        assert await session.get_history() == [before]

    async def test_lone_surrogates_become_replacement_characters_and_leave_a_mark(self, store: Store) -> None:
        session = Session(store, "s")
        parts = [{"type": "text", "text": "a\ud800b\udfff", "k": {"deep": ["\udc00"]}}]

        stored = await session.append_message(Message("user", parts, metadata={"mine": 1}))
        (read,) = await session.get_history()

        assert read == stored
        assert read.text == "a\ufffdb\ufffd"
        assert read.parts[0]["k"] == {"deep": ["\ufffd"]}
        assert read.metadata is not None
        assert read.metadata["mine"] == 1
        assert len(read.metadata) == 2

    async def test_what_nests_too_deep_is_refused_and_harms_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]

        with pytest.raises(ValueError, match=r"."):
            await session.append_message(Message("user", _data(nested)))

        after = await session.append_message(user("after"))
        assert await session.get_history() == [after]

    async def test_times_are_kept_to_the_microsecond_and_in_utc(self, store: Store) -> None:
        session = Session(store, "s")
        east = datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=timezone(timedelta(hours=5, minutes=30)))

        for moment in (
            east,
            datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
            datetime(2999, 1, 1, tzinfo=UTC),
        ):
            stored = await session.append_message(user("when", created_at=moment))
            read = await session.get_message(stored.id)
            assert read is not None
            assert read.created_at == moment
            assert read.created_at.utcoffset() == timedelta(0)

    async def test_a_naive_time_is_refused(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(ValueError, match=r"."):
            await session.append_message(user("when", created_at=datetime(2024, 1, 1)))  # noqa: DTZ001

        assert await session.get_history() == []

    async def test_a_message_over_the_limit_is_refused_and_harms_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        before = await session.append_message(user("before", id="m"))
        version = await session.get_version()
        by_length = Message("user", _data("x" * (8 * MEBIBYTE + 1)))
        by_bytes = Message("user", _data("漢" * (3 * MEBIBYTE)))

        for message in (by_length, by_bytes):
            with pytest.raises(MessageTooLarge):
                await session.append_message(message)
            with pytest.raises(MessageTooLarge):
                await session.append_messages([user("small"), message])
            with pytest.raises(MessageTooLarge):
                await session.upsert_message(message)
            with pytest.raises(MessageTooLarge):
                await session.update_message({**message.to_dict(), "id": "m"})

        assert await session.get_leaves() == [before]
        assert await session.get_version() == version

    async def test_a_message_under_the_limit_is_stored_whole(self, store: Store) -> None:
        session = Session(store, "s")
        value = "漢字" * (MEBIBYTE + 200_000)

        stored = await session.append_message(Message("user", _data(value)))

        (read,) = await session.get_history()
        assert read.id == stored.id
        assert read.parts[0]["value"] == value

    @pytest.mark.parametrize("message_id", REFUSED_IDS, ids=ascii)
    async def test_a_refused_message_id_never_reaches_the_store(self, store: Store, message_id: str) -> None:
        session = Session(store, "s")

        with pytest.raises(InvalidId):
            user("text", id=message_id)
        with pytest.raises(InvalidId):
            await session.append_message({"id": message_id, "role": "user", "parts": []})

        assert await session.get_history() == []

    async def test_what_a_caller_does_to_its_message_later_changes_nothing_stored(self, store: Store) -> None:
        session = Session(store, "s")
        part = {"type": "data", "value": ["kept"]}
        message = {"id": "m", "role": "user", "parts": [part], "metadata": {"k": ["kept"]}}
        await session.append_message(message)

        part["value"] = ["changed"]
        message["metadata"] = {}

        (read,) = await session.get_history()
        assert read.parts[0]["value"] == ["kept"]
        assert read.metadata == {"k": ["kept"]}

    async def test_what_a_reader_does_to_a_message_changes_nothing_stored(self, store: Store) -> None:
        session = Session(store, "s")
        returned = await session.append_message(assistant("kept", id="m"))
        read = await session.get_message("m")
        assert read is not None

        returned.parts[0]["text"] = "changed"
        read.parts[0]["text"] = "changed"

        (again,) = await session.get_history()
        assert again.text == "kept"
