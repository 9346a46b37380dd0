"""Whatever Java reads as a message is read here, the same at every read, and saved unchanged it is the same to Java."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.agent_state import AgentState
from leafward.core.json import encode_text
from leafward.core.message import Message, user
from leafward.core.odd_messages import restored
from leafward.core.state_values import read_items, read_value, write_items
from tests.core.java_reader import RefusedByJava, resaved

FULL = json.loads((Path(__file__).parent / "fixtures" / "full_state.json").read_text(encoding="utf-8"))
T = TypeVar("T")
NOON = "2026-08-22 12:00:00.000"
WEI = 10**30


def msg(**fields: Any) -> dict[str, Any]:
    usual = {"id": "m", "name": None, "role": "USER", "content": [], "metadata": {}, "timestamp": NOON, "usage": None}
    return {**usual, **fields}


def call(**arguments: Any) -> dict[str, Any]:
    made = {"type": "tool_use", "id": "c", "name": "pay", "input": arguments, "content": None, "metadata": {}}
    return {**made, "state": "pending"}


def read(*items: dict[str, Any] | None) -> list[Message]:
    """Read a list as a store does, and as part of a state: both must say the same."""
    messages = read_items([encode_text(item) for item in items], Message)
    state = {"session_id": "s", "reply_id": "r", "context": items}
    assert AgentState.from_json(encode_text(state)).context == messages
    return messages


def written(messages: list[Message]) -> list[dict[str, Any]]:
    texts = write_items(messages)
    assert read_items(texts, Message) == messages
    return [json.loads(text) for text in texts]


ODD = {
    "a time with slashes": msg(timestamp="2026/08/22 23:15:56"),
    "a time in milliseconds": msg(timestamp="1787411756123"),
    "a time in words": msg(timestamp="now"),
    "an empty time": msg(timestamp=""),
    "a long id": msg(id="x" * 256),
    "an id with a control character": msg(id="a\nb"),
    "no role": msg(role=None),
    "no role, and a call": msg(role=None, content=[call(city="Paris")]),
    "an integer beyond 64 bits in a call": msg(role="ASSISTANT", content=[call(wei=WEI, deep=[{"n": -WEI}])]),
    "one in metadata": msg(metadata={"wei": WEI}),
    "one in an unknown key": msg(x=[WEI]),
    "one in an unknown key that means something else here": msg(parts=[WEI], createdAt=1),
    "a video without source": msg(content=[{"type": "video", "fps": 2.0}]),
    "values nested deeply": msg(metadata={"deep": json.loads("[" * 150 + "1" + "]" * 150)}),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_message_is_read_and_written_as_it_was(odd: dict[str, Any]) -> None:
    messages = read(msg(id="before"), odd, msg(id="after"))

    assert len(messages) == 3
    assert messages == read(msg(id="before"), odd, msg(id="after"))
    assert written(messages) == [msg(id="before"), odd, msg(id="after")]


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        (msg(role=1), msg(role="ASSISTANT")),
        (msg(role="3"), msg(role="TOOL")),
        (msg(id=7, name=True, timestamp=1787411756123), msg(id="7", name="true", timestamp="1787411756123")),
        (msg(content=[{"type": "text", "text": 1.5}]), msg(content=[{"type": "text", "text": "1.5"}])),
        (
            msg(role="ASSISTANT", content=[{**call(), "state": 4}]),
            msg(role="ASSISTANT", content=[{**call(), "state": "finished"}]),
        ),
    ],
)
def test_a_value_of_another_kind_is_read_as_java_reads_it(given: dict[str, Any], usual: dict[str, Any]) -> None:
    assert read(given) == read(usual)


def test_a_time_that_cannot_be_read_is_that_of_the_message_before() -> None:
    first, second, third = read(msg(id="a", timestamp="now"), msg(id="b"), msg(id="c", timestamp="soon"))

    assert first.at == 0
    assert third.at == second.at > 0


def test_a_time_that_cannot_be_read_stays_javas_when_the_messages_before_it_go() -> None:
    _, second = read(msg(id="a"), msg(id="b", timestamp="soon"))

    [alone] = written([second])

    assert alone["timestamp"] == "soon"
    assert read(alone) == [second]


@pytest.mark.parametrize("missing", [None, "", "  "])
def test_a_missing_id_is_made_of_place_role_and_content(missing: str | None) -> None:
    said = {"type": "text", "text": "hi"}
    items = [msg(id=missing, content=[said]), msg(id=missing, content=[said]), msg(id=missing, role="SYSTEM")]

    ids = [message.id for message in read(*items)]

    assert len(set(ids)) == 3
    # What else Java changes when it saves changes no id.
    without = {"role": "USER", "content": [said], "name": "someone"}
    assert read(without)[0].id == ids[0]
    assert [one["id"] for one in written(read(*items))] == ids


def test_two_messages_of_a_list_never_share_an_id() -> None:
    items = [msg(), msg(content=[{"type": "text", "text": "again"}]), msg(), msg(id="a\n"), msg(id="a\n")]

    messages = read(*items)

    assert len({message.id for message in messages}) == 5
    assert messages[0].id == "m"
    assert written(messages) == items


def test_an_id_made_of_another_stays_when_other_messages_go() -> None:
    messages = read(msg(id="a"), msg(id="b\n"))

    assert read(*written(messages[1:])) == messages[1:]


def test_a_null_among_the_messages_is_left_out() -> None:
    assert read(None, msg(), None) == read(msg())


@pytest.mark.parametrize(
    "spoiled",
    [{"leafward_at": "x"}, {"leafward_at": 10**30}]
    + [{"leafward_message": value} for value in ({"role": 1}, {"id": ""}, None, 5, [])],
)
def test_what_stands_beside_a_message_and_cannot_be_read_is_passed_over(spoiled: dict[str, Any]) -> None:
    assert read(msg(**spoiled)) == read(msg())


@pytest.mark.parametrize("odd", [[], {}, [1], None, 5])
def test_what_is_said_to_be_continued_may_be_anything(odd: Any) -> None:
    [message] = read(msg(leafward_continues=odd))

    assert message.extra["leafward_continues"] == odd
    assert written([message])


def test_a_damaged_carrier_hides_no_message() -> None:
    items = [msg(id="a", leafward_message={"id": ""}), msg(id="b", leafward_continues="a")]

    assert [message.id for message in read(*items)] == ["a", "b"]


def test_many_messages_that_share_an_id_take_a_few_digests_each(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = Mock(wraps=hashlib.blake2b)
    monkeypatch.setattr(hashlib, "blake2b", digests)

    messages = read_items([encode_text(msg())] * 500, Message)
    texts = write_items(messages)

    assert len({message.id for message in messages}) == 500
    assert [json.loads(text) for text in texts] == [msg()] * 500
    assert digests.call_count <= 2 * 3 * 500


def test_messages_that_we_wrote_come_back_with_the_ids_they_had() -> None:
    twice = [user("one", id="m"), user("two", id="m")]

    assert read_items(write_items(twice), Message) == twice


def test_an_integer_beyond_64_bits_is_text_to_a_user_and_a_number_to_java() -> None:
    [message] = read(msg(role="ASSISTANT", content=[call(wei=WEI)]))

    assert message.parts[0]["input"] == {"wei": str(WEI)}
    assert Message.from_dict(message.to_dict()) == message
    for edited in ({"wei": "seven"}, {"wei": 7}, {}):
        message.parts[0]["input"] = edited
        assert [one["content"][0]["input"] for one in written([message])] == [edited]


@pytest.mark.parametrize(
    "text",
    ["[redacted]", "{", "[" * 1_500 + "]" * 1_500, "[" * 990 + "]" * 990, "7" * 1_001, "-" + "7" * 5_000, "[1]"],
    ids=lambda text: f"{text[:10]} {len(text)}",
)
def test_a_text_in_the_place_of_an_integer_is_written_as_a_text(text: str) -> None:
    [message] = read(msg(role="ASSISTANT", content=[call(wei=WEI)]))

    message.parts[0]["input"]["wei"] = text

    assert [one["content"][0]["input"] for one in written([message])] == [{"wei": text}]


def test_a_place_of_a_text_may_be_any_value() -> None:
    [message] = read(msg(role="ASSISTANT", content=[call(wei=[WEI, WEI])]))
    origin: dict[str, Any] = message.body["leafward_provider"]
    input = ["content", 0, "input"]
    wrong = [7, [], [None], [[]], [*input, "x"], [*input, "wei", 2], [*input, "wei", -1], [*input, 0], [*input, {}]]

    origin["texts"] += wrong
    assert [one["content"][0]["input"] for one in written([message])] == [{"wei": [str(WEI), str(WEI)]}]
    origin["texts"] = 7
    assert written([message])


def test_the_places_of_texts_are_copied_once() -> None:
    values = _CountedList([str(WEI)] * 500)
    given = {"content": values}

    made = restored(given, [["content", place] for place in range(500)])

    assert made == {"content": [WEI] * 500}
    assert given == {"content": [str(WEI)] * 500}
    assert values.copies == 1


class _CountedList(list[Any]):
    copies = 0

    def copy(self) -> list[Any]:
        self.copies += 1
        return super().copy()


def deeply(levels: int, run: Callable[[], T]) -> T:
    """Run something with more calls above it."""
    return deeply(levels - 1, run) if levels else run()


def test_a_message_that_is_nested_deeply_is_written_from_anywhere_in_a_program() -> None:
    item = msg(metadata={"deep": json.loads("[" * 600 + "1" + "]" * 600)})
    [message] = read(item)

    assert written([message]) == [item]
    texts = deeply(400, lambda: write_items([message]))
    assert read_items(texts, Message) == [message]
    assert deeply(400, lambda: AgentState(context=[message]).to_json())


def test_an_integer_of_any_size_may_stand_in_a_state() -> None:
    state = AgentState.from_json(encode_text({"x": WEI}))

    assert state.extra == {"x": WEI}
    assert json.loads(state.to_json())["x"] == WEI
    assert read_value(encode_text({"x": WEI}), dict) == {"x": WEI}


@given(st.lists(st.sampled_from([*ODD.values(), msg(id=None), msg(id=" "), msg(timestamp=None)]), max_size=6))
def test_any_list_of_odd_messages_is_the_same_to_java_afterwards(items: list[dict[str, Any]]) -> None:
    messages = read(*items)

    assert len({message.id for message in messages}) == len(items)
    missing = [not (item["id"] or "").strip() for item in items]
    wanted = [
        {**item, "id": one.id} if made else item for item, one, made in zip(items, messages, missing, strict=True)
    ]
    assert written(messages) == wanted


# ── Java's own documents, changed at each place ──────────────────────────────

INSTEAD: list[Any] = [None, 7, 1.5, 2**31, WEI, True, "text", "", "1", [], [1], [None], {}, {"a": None}]
REMOVED = object()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    holder = made
    for step in path[:-1]:
        holder = holder[step]
    if value is REMOVED:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return made


def as_java_has_it(document: dict[str, Any]) -> dict[str, Any]:
    """Return what Java has of a document; an id that says nothing, and a null, are not kept."""
    made = resaved(document)
    made["context"] = [message for message in made["context"] if message is not None]
    for message in made["context"]:
        if not (message["id"] or "").strip() or message["id"].startswith("msg_"):
            message["id"] = None
    return made


SCALARS = ("session_id", "user_id", "summary", "reply_id", "cur_iter", "shutdown_interrupted")
PLACES = [path for path in places(FULL) if path[:1] == ("context",) or (path[:1] and path[0] in SCALARS)]


def test_a_document_that_java_reads_is_never_unreadable() -> None:
    read_by_java = 0
    for path in PLACES:
        for value in (*INSTEAD, REMOVED):
            document = changed(FULL, path, value)
            try:
                wanted = as_java_has_it(document)
            except RefusedByJava:
                continue
            read_by_java += 1
            state = AgentState.from_json(encode_text(document))
            text = state.to_json()
            assert AgentState.from_json(text) == state, (path, value)
            if path[0] == "context":
                assert as_java_has_it(json.loads(text))["context"] == wanted["context"], (path, value)
    assert read_by_java > 500
