"""A reply is what its pieces say, however the stream is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.json import encode_text
from leafward.core.openai_messages import read_arguments
from leafward.engine import (
    AgentEvent,
    BlockEnd,
    CallDelta,
    ModelError,
    ModelEvent,
    ModelUsage,
    Reply,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)

Part = dict[str, Any]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
BROKEN = TEXTS.filter(lambda text: not text or ("{" not in text and text.strip()))
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3).map(encode_text) | BROKEN
EXTRAS = st.dictionaries(st.sampled_from(["signature", "citations", "metadata"]), VALUES, max_size=2)
TEXT_PARTS = st.builds(lambda text, more: {**more, "type": "text", "text": text}, TEXTS, EXTRAS)
THINKING_PARTS = st.builds(lambda text, more: {**more, "type": "thinking", "thinking": text}, TEXTS, EXTRAS)
CALL_PARTS = st.builds(
    lambda name, id, text, more: {**more, "type": "tool_use", "id": id, "name": name, "content": text},
    TEXTS,
    st.sampled_from(["c1", "c2", "c3"]),
    ARGUMENTS,
    EXTRAS,
)
WHOLE_PARTS = st.just({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}})
PARTS = st.lists(TEXT_PARTS | THINKING_PARTS | CALL_PARTS | WHOLE_PARTS, max_size=5)


def cut(text: str, chance: random.Random) -> list[str]:
    """Cut a text into pieces, some of them empty."""
    places = sorted(chance.randint(0, len(text)) for _ in range(chance.randint(0, 4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def pieces_of(part: Part, index: int, chance: random.Random) -> list[ModelEvent]:
    """Return events that bring a part in pieces."""
    own = {"type", "text", "thinking", "id", "name", "content"}
    fields = {key: value for key, value in part.items() if key not in own}
    if part["type"] == "text":
        return [TextDelta("", index, fields), *(TextDelta(piece, index) for piece in cut(part["text"], chance))]
    if part["type"] == "thinking":
        pieces = cut(part["thinking"], chance)
        return [ThinkingDelta("", index, fields), *(ThinkingDelta(piece, index) for piece in pieces)]
    if part["type"] == "tool_use":
        opening = CallDelta("", part["name"], part["id"], index, fields)
        return [opening, *(CallDelta(piece, index=index) for piece in cut(part["content"], chance))]
    return [WholePart(part)]


def mixed(streams: Sequence[list[ModelEvent]], chance: random.Random) -> list[ModelEvent]:
    """Mix the events of several blocks; each begins after the one before it, as parts are in order."""
    events = [stream[0] for stream in streams]
    later = [stream[1:] for stream in streams]
    found: list[ModelEvent] = []
    begun = 0
    while begun < len(streams) or any(later[:begun]):
        ready = [number for number in range(begun) if later[number]]
        if begun < len(streams) and (not ready or chance.random() < 0.4):
            found.append(events[begun])
            begun += 1
        else:
            found.append(later[chance.choice(ready)].pop(0))
    return found


def collect(events: Sequence[ModelEvent]) -> tuple[Reply, list[AgentEvent]]:
    """Return the reply that events make, and what was shown of it."""
    reply = Reply()
    shown = [reply.begin(), *(one for event in events for one in reply.add(event)), *reply.end()]
    return reply, shown


def numbered(parts: Sequence[Part]) -> list[Part]:
    """Return parts in which each call has an id of its own: the second `c` is `c#2`, in the order of the calls."""
    ids: list[str] = []
    found: list[Part] = []
    for part in parts:
        if part["type"] == "tool_use":
            names = [part["id"], *(f"{part['id']}#{number}" for number in range(2, len(parts) + 2))]
            ids.append(next(name for name in names if name not in ids))
            part = {**part, "id": ids[-1]}
        found.append(part)
    return found


def parts_of(*events: ModelEvent) -> list[Part]:
    return collect(events)[0].message().parts


@given(parts=PARTS, chance=st.randoms(use_true_random=False))
def test_a_reply_is_the_same_however_its_stream_is_cut_and_mixed(parts: list[Part], chance: random.Random) -> None:
    events = mixed([pieces_of(part, index, chance) for index, part in enumerate(parts)], chance)

    found = parts_of(*events)

    assert [{key: value for key, value in part.items() if key != "input"} for part in found] == numbered(parts)
    assert all(part["input"] == read_arguments(part["content"]) for part in found if part["type"] == "tool_use")


@given(parts=PARTS, chance=st.randoms(use_true_random=False))
def test_what_is_shown_adds_up_to_the_reply(parts: list[Part], chance: random.Random) -> None:
    events = mixed([pieces_of(part, index, chance) for index, part in enumerate(parts)], chance)

    reply, shown = collect(events)

    blocks = [event for event in shown if event.block_id]
    for number, part in enumerate(reply.message().parts):
        own = [event for event in blocks if event.block_id == str(number)]
        assert own[0].type.endswith("_START")
        assert own[-1].type.endswith("_END")
        assert all(event.type.endswith("_DELTA") for event in own[1:-1])
        text = part.get("text", part.get("thinking", part.get("content", "")))
        assert "".join(event.text for event in own) == text
        assert {event.call_id for event in own} == {part.get("id", "")}
    assert {event.reply_id for event in shown} == {reply.message().id}
    assert len({event.block_id for event in blocks}) == len(reply.message().parts)


@given(parts=PARTS, chance=st.randoms(use_true_random=False), stop=st.integers(0, 40))
def test_a_partial_reply_is_a_beginning_of_the_whole_one(parts: list[Part], chance: random.Random, stop: int) -> None:
    events = mixed([pieces_of(part, index, chance) for index, part in enumerate(parts)], chance)
    whole = parts_of(*events)
    reply = Reply()
    for event in events[:stop]:
        reply.add(event)

    partial = reply.partial()

    left = iter(whole)
    for part in [] if partial is None else partial.parts:
        found = next(left)
        while is_call(found) and not (is_call(part) and found["content"] == part["content"]):
            found = next(left)
        key = {"text": "text", "thinking": "thinking", "tool_use": "content"}.get(part["type"], "type")
        assert (found["type"], found[key][: len(part[key])]) == (part["type"], part[key])
    if stop >= len(events):
        complete = [
            part for part in whole if not is_call(part) or (isinstance(part["input"], dict) and part["content"])
        ]
        assert ([] if partial is None else partial.parts) == complete


def is_call(part: Part) -> bool:
    return part["type"] == "tool_use"


def test_a_reply_has_its_blocks_in_order() -> None:
    reply, shown = collect(
        [
            ThinkingDelta("Tea"),
            ThinkingDelta("?", fields={"signature": "s1"}),
            TextDelta("Let me "),
            TextDelta("look."),
            CallDelta('{"q":', "search", "c1"),
            CallDelta('"tea"}'),
            ModelUsage(10, 5, cached_tokens=4),
            Stop("tool_calls"),
        ]
    )

    message = reply.message(name="assistant", metadata={"round": 1})

    assert (message.role, message.id, message.name, message.metadata) == (
        "assistant",
        reply.id,
        "assistant",
        {"round": 1},
    )
    assert message.parts == [
        {"type": "thinking", "thinking": "Tea?", "signature": "s1"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "tea"}, "content": '{"q":"tea"}'},
    ]
    assert message.extra["usage"] == {"inputTokens": 10, "outputTokens": 5, "cachedTokens": 4, "totalTokens": 15}
    assert [event.type for event in shown] == [
        "MODEL_CALL_START",
        "THINKING_BLOCK_START",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_END",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "TOOL_CALL_START",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_END",
        "MODEL_CALL_END",
    ]
    assert (shown[-1].usage, shown[-1].stop_reason) == (ModelUsage(10, 5, 4), "tool_calls")
    assert {event.name for event in shown if event.call_id} == {"search"}


def test_text_after_a_call_is_another_block() -> None:
    parts = parts_of(TextDelta("a"), CallDelta("{}", "f", "c1"), TextDelta("b"))

    assert [part.get("text") for part in parts] == ["a", None, "b"]


def test_calls_whose_pieces_are_mixed_are_told_apart_by_their_index() -> None:
    parts = parts_of(
        CallDelta("", "f", "c1", 0),
        CallDelta("", "g", "c2", 1),
        CallDelta('{"n"', index=0),
        CallDelta("{}", index=1),
        CallDelta(":1}", index=0),
    )

    assert [(part["id"], part["name"], part["input"]) for part in parts] == [("c1", "f", {"n": 1}), ("c2", "g", {})]


def test_another_id_under_the_same_index_is_another_call() -> None:
    parts = parts_of(CallDelta("{}", "f", "c1", 0), CallDelta("{}", "g", "c2", 0))

    assert [(part["id"], part["content"]) for part in parts] == [("c1", "{}"), ("c2", "{}")]


def test_a_name_begins_another_call_where_there_is_no_index() -> None:
    parts = parts_of(CallDelta("{}", "f"), CallDelta("{}", "f"))

    assert [part["name"] for part in parts] == ["f", "f"]


def test_a_call_id_used_twice_in_a_reply_is_renamed_in_its_events_too() -> None:
    whole = {"type": "tool_use", "id": "c1", "name": "h", "input": {}}
    reply, shown = collect([CallDelta("{}", "f", "c1"), CallDelta("{}", "g", "c1"), WholePart(whole)])

    parts = reply.message().parts
    assert [(part["id"], part["name"]) for part in parts] == [("c1", "f"), ("c1#2", "g"), ("c1#3", "h")]
    assert list(dict.fromkeys(event.call_id for event in shown if event.call_id)) == ["c1", "c1#2", "c1#3"]
    assert whole["id"] == "c1"


def test_pieces_that_repeat_the_id_of_a_renamed_call_belong_to_it() -> None:
    parts = parts_of(
        CallDelta("", "f", "c1", 0), CallDelta("", "g", "c1", 1), CallDelta("{}", "", "c1", 1), CallDelta("[]", index=0)
    )

    assert [(part["id"], part["content"]) for part in parts] == [("c1", "[]"), ("c1#2", "{}")]


def test_a_reply_that_is_cut_off_ends_what_was_shown_and_discards_calls_that_are_not_whole() -> None:
    reply = Reply()
    for event in [TextDelta("So", 0), CallDelta('{"a":1}', "f", "c1", 1), CallDelta('{"b"', "g", "c2", 2)]:
        reply.add(event)

    assert reply.cut_off() == ()
    reply.begin()
    ends = reply.cut_off()

    assert [(event.type, event.call_id, event.discarded) for event in ends] == [
        ("TEXT_BLOCK_END", "", False),
        ("TOOL_CALL_END", "c1", False),
        ("TOOL_CALL_END", "c2", True),
        ("MODEL_CALL_END", "", False),
    ]
    kept = reply.partial()
    assert kept is not None
    assert [part["type"] for part in kept.parts] == ["text", "tool_use"]
    assert reply.cut_off() == ()


def test_a_call_without_an_id_gets_one_that_its_events_have_too() -> None:
    reply, shown = collect([CallDelta("{}", "f"), CallDelta("{}", "g"), WholePart({"type": "tool_use", "name": "h"})])

    ids = [part["id"] for part in reply.message().parts]

    assert len(set(ids)) == 3
    assert all(ids)
    assert list(dict.fromkeys(event.call_id for event in shown if event.call_id)) == ids


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"q": "tea"', '{"q": "tea"'),
        ("not JSON", "not JSON"),
        ("[1, 2]", [1, 2]),
        ("", {}),
        ('{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}'),
    ],
)
def test_arguments_that_are_not_an_object_are_kept_as_they_came(text: str, read: object) -> None:
    (part,) = parts_of(CallDelta("", "f", "c1"), CallDelta(text))

    assert (part["content"], part["input"]) == (text, read)


def test_an_empty_piece_of_text_begins_no_block() -> None:
    assert parts_of(TextDelta(""), ThinkingDelta(""), CallDelta("{}", "f", "c1"), TextDelta("")) == [
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}, "content": "{}"}
    ]


def test_thinking_that_only_its_provider_can_read_is_kept() -> None:
    hidden = {"type": "redacted_thinking", "data": "b64"}

    reply, shown = collect([WholePart(hidden), ThinkingDelta(fields={"signature": "s1"}), TextDelta("Yes.")])

    assert reply.message().parts == [
        hidden,
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "text", "text": "Yes."},
    ]
    assert [event.type for event in shown[1:4]] == [
        "THINKING_BLOCK_START",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_END",
    ]


def test_fields_cannot_replace_what_the_pieces_say() -> None:
    assert parts_of(TextDelta("a", fields={"type": "image", "text": "b", "citations": []})) == [
        {"type": "text", "text": "a", "citations": []}
    ]


def test_the_fields_of_a_stop_are_keys_of_the_message() -> None:
    reply, _ = collect([TextDelta("a"), Stop("stop", {"response": "r1", "id": "theirs", "usage": 1})])

    message = reply.message()

    assert (message.id, message.extra) == (reply.id, {"response": "r1"})


def test_a_character_that_the_stream_cut_in_two_is_whole_again() -> None:
    reply, shown = collect([TextDelta("tea \ud83c"), TextDelta("\udf75")])

    assert reply.message().text == "tea 🍵"
    assert reply.message().metadata is None
    for event in shown:
        encode_text(event.to_dict())


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([TextDelta("a")], "stop"),
        ([CallDelta("{}", "f")], "tool_calls"),
        ([WholePart({"type": "tool_use", "name": "f"})], "tool_calls"),
        ([TextDelta("a"), Stop("length")], "length"),
        ([], "stop"),
    ],
)
def test_a_reply_knows_why_the_model_stopped(events: list[ModelEvent], reason: str) -> None:
    assert collect(events)[0].stop_reason == reason


@pytest.mark.parametrize(
    ("events", "empty"),
    [
        ([], True),
        ([TextDelta(" \n")], True),
        ([ThinkingDelta("Hm.")], True),
        ([WholePart({"type": "redacted_thinking", "data": "b64"})], True),
        ([TextDelta("a")], False),
        ([CallDelta("", "f")], False),
        ([WholePart({"type": "refusal", "refusal": "No."})], False),
    ],
)
def test_a_reply_is_empty_without_a_call_and_without_anything_to_see(events: list[ModelEvent], empty: bool) -> None:
    assert collect(events)[0].is_empty is empty


def test_the_last_usage_counts() -> None:
    assert collect([ModelUsage(10, 1), TextDelta("a"), ModelUsage(10, 7)])[0].usage == ModelUsage(10, 7)


def test_a_reply_that_is_stopped_keeps_its_text_and_its_complete_calls() -> None:
    reply = Reply()
    for event in (
        TextDelta("Let me "),
        CallDelta('{"q":"tea"}', "search", "c1", 0),
        CallDelta("", "now", "c2", 1),
        BlockEnd(1),
        CallDelta('{"q":"cof', "search", "c3", 2),
        CallDelta("", "later", "c4", 3),
    ):
        reply.add(event)

    partial = reply.partial(metadata={"stopped": True})

    assert partial is not None
    assert [part.get("id", part.get("text")) for part in partial.parts] == ["Let me ", "c1", "c2"]
    assert (partial.id, partial.metadata) == (reply.id, {"stopped": True})


def test_a_reply_of_which_nothing_came_has_no_partial_message() -> None:
    reply = Reply()
    assert reply.partial() is None

    reply.add(CallDelta('{"q":', "search", "c1"))
    assert reply.partial() is None
    reply.end()
    assert reply.partial() is None


def test_the_end_of_a_failed_attempt_says_that_it_is_discarded() -> None:
    reply = Reply()
    reply.add(TextDelta("Hel"))

    shown = reply.end(discarded=True)

    assert [(event.type, event.discarded) for event in shown] == [
        ("TEXT_BLOCK_END", False),
        ("MODEL_CALL_END", True),
    ]
    assert not any(event.committed for event in shown)


def test_a_block_ends_once() -> None:
    _, shown = collect([TextDelta("a", 0), BlockEnd(0), BlockEnd(0), BlockEnd(), TextDelta("b", 0), BlockEnd()])

    assert [event.type for event in shown[1:-1]] == [
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
    ]


def test_a_model_that_yields_something_else_is_an_error() -> None:
    bad: Any = "Hello"
    with pytest.raises(ModelError, match="it yielded a str, not an event such as TextDelta"):
        Reply().add(bad)
    with pytest.raises(ModelError, match="WholePart that is not a JSON object with a type"):
        Reply().add(WholePart({"text": "a"}))


def test_the_id_of_a_call_is_text_whatever_a_model_sends() -> None:
    number: Any = 5
    pieces: list[ModelEvent] = [
        CallDelta(name="look", id=number, index=0),
        CallDelta("{}", id=number, index=0),
        WholePart({"type": "tool_use", "id": 6, "name": "look", "input": {}}),
    ]
    reply = Reply()
    shown = [event for piece in pieces for event in reply.add(piece)]

    assert [part["id"] for part in reply.message().parts] == ["5", "6"]
    assert {event.call_id for event in shown} == {"5", "6"}


def test_neither_the_model_nor_a_reader_of_the_events_changes_a_whole_part() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    given: Part = {**image, "source": dict(image["source"])}
    reply = Reply()

    events = reply.add(WholePart(given))
    assert [event.data for event in events if event.data is not None] == [image]
    given["source"]["url"] = "of the model"
    for event in events:
        if event.data is not None:
            event.data["source"]["url"] = "of a reader"

    assert reply.message().parts == [image]


def test_a_whole_part_that_holds_itself_is_an_error() -> None:
    part: Part = {"type": "image"}
    part["source"] = part

    with pytest.raises(ModelError, match="nested too deeply"):
        Reply().add(WholePart(part))
