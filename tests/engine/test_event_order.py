"""The order of events that docs/concepts/events.md promises, compared with random turns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import get_args

import pytest

from leafward.core.message import Message
from leafward.core.parts import CALLS, is_thinking, thinking_text
from leafward.engine import AgentEvent, EventType
from tests.engine.random_turns import RandomTurns, random_turns
from tests.engine.test_events_page import PAGE

COUNT = 60
BLOCK = re.compile(r"(TEXT_BLOCK|THINKING_BLOCK|DATA_BLOCK|TOOL_CALL)_(START|DELTA|END)")


@pytest.fixture(scope="module")
def turns() -> list[RandomTurns]:
    return asyncio.run(random_turns(COUNT))


def grammar() -> re.Pattern[str]:
    """Return the grammar of the page as a pattern of types, each followed by a space."""
    block = PAGE.read_text(encoding="utf-8").partition("```text\nstream")[2].partition("```")[0]
    rules = dict(line.split(" = ") for line in f"stream{block}".replace("  ", " ").splitlines() if " = " in line)
    rules = {name.strip(): words.split() for name, words in rules.items()}

    def pattern(word: str) -> str:
        name = word.rstrip("*?+")
        if name in rules:
            inner = f"(?:{''.join(map(pattern, rules[name]))})"
        else:
            inner = name if name in "(|)" else f"(?:{name} )"
        return inner + word[len(name) :]

    return re.compile(pattern("stream"))


def is_block(event: AgentEvent) -> bool:
    return BLOCK.fullmatch(event.type) is not None


def line(events: Sequence[AgentEvent]) -> str:
    return "".join("BLOCK_EVENT " if is_block(event) else f"{event.type} " for event in events)


def test_every_stream_follows_the_grammar_of_the_page(turns: list[RandomTurns]) -> None:
    pattern = grammar()
    streams = [stream for one in turns for stream in one.streams]

    whole = [stream for stream in streams if stream[-1].type == "AGENT_END"]
    failed = [stream for stream in streams if stream[-1].type != "AGENT_END"]

    assert len(whole) > COUNT
    assert failed
    assert [line(stream) for stream in whole if not pattern.fullmatch(line(stream))] == []
    # One that raises ends with the attempt that failed; what it might have gone on with would fit.
    assert all(stream[-1].discarded for stream in failed)
    endings = [f"{line(stream)}AGENT_RESULT AGENT_END " for stream in failed]
    assert [ending for ending in endings if not pattern.fullmatch(ending)] == []


def test_all_events_occur_that_no_middleware_sends(turns: list[RandomTurns]) -> None:
    types = {event.type for one in turns for stream in one.streams for event in stream}

    # A sub-agent is called in test_events_page.py.
    assert set(get_args(EventType)) - types == {"SUBAGENT_EXPOSED"}


def test_a_block_begins_brings_its_pieces_and_ends_before_its_reply(turns: list[RandomTurns]) -> None:
    for stream in (stream for one in turns for stream in one.streams):
        open: dict[str, str] = {}
        begun: dict[str, list[str]] = {}
        for event in stream:
            found = BLOCK.fullmatch(event.type)
            if found is None:
                assert not open, event.type
                continue
            kind, phase = found.groups()
            blocks = begun.setdefault(event.reply_id, [])
            if phase == "START":
                assert event.block_id == str(len(blocks))
                blocks.append(event.block_id)
                open[event.block_id] = f"{kind} {event.call_id}"
            assert open[event.block_id] == f"{kind} {event.call_id}"
            if phase == "END":
                del open[event.block_id]


def pieces(stream: Sequence[AgentEvent], reply_id: str) -> list[tuple[str, str]]:
    """Return the text and the call id of each block of a reply, but for calls that were discarded."""
    blocks: dict[str, tuple[str, str]] = {}
    for event in stream:
        if event.reply_id == reply_id and is_block(event):
            text, _ = blocks.get(event.block_id, ("", ""))
            blocks[event.block_id] = (text + event.text, event.call_id)
            if event.type == "TOOL_CALL_END" and event.discarded:
                del blocks[event.block_id]
    return [(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), id) for text, id in blocks.values()]


def parts(message: Message) -> list[tuple[str, str]]:
    return [
        (thinking_text(part), "")
        if is_thinking(part)
        else (str(part.get("content", "")), part["id"])
        if part["type"] in CALLS
        else (str(part.get("text", "")), "")
        for part in message.parts
    ]


def test_what_is_not_discarded_is_stored_under_its_ids_and_nothing_else_is(turns: list[RandomTurns]) -> None:
    for one in turns:
        stored = {message.id: message for message in one.stored}
        ends = [(s, event) for s in one.streams for event in s if event.type == "MODEL_CALL_END"]
        kept = [(s, event.reply_id) for s, event in ends if not event.discarded]

        for stream, reply_id in kept:
            assert pieces(stream, reply_id) == (parts(stored[reply_id]) if reply_id in stored else [])
        assert {event.reply_id for _, event in ends if event.discarded}.isdisjoint(stored)
        assert {message.id for message in one.stored if message.role == "assistant" and message.parts} == {
            reply_id for _, reply_id in kept if reply_id in stored
        }


def test_each_result_is_shown_once_as_it_is_stored(turns: list[RandomTurns]) -> None:
    for one in turns:
        ends = [event for stream in one.streams for event in stream if event.type == "TOOL_RESULT_END"]
        shown = [event.message for event in ends if event.message is not None]
        results = [message for message in one.stored if message.role == "tool"]

        assert sorted((message.id, message.text) for message in shown) == sorted(
            (message.id, message.text) for message in results
        )


def test_an_event_comes_back_from_its_json(turns: list[RandomTurns]) -> None:
    events = [event for one in turns[:20] for stream in one.streams for event in stream]

    for event in events:
        again = AgentEvent.from_dict(event.to_dict())
        assert again.to_dict() == event.to_dict()
        assert (again.type, again.reply_id, again.call_id, again.name, again.usage) == (
            event.type,
            event.reply_id,
            event.call_id,
            event.name,
            event.usage,
        )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": "NOTHING"},
        {"type": "AGENT_END", "name": 1},
        {"type": "AGENT_RESULT", "message": "m"},
        {"type": "MODEL_CALL_END", "usage": 3},
    ],
)
def test_what_is_not_an_event_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not an event of an agent"):
        AgentEvent.from_dict(value)
