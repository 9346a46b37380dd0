"""Streams of an agent as pages read them, with the packages of AI SDK and AG-UI themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from leafward.core.message import Message
from leafward.core.parts import CALLS, is_thinking, thinking_text
from leafward.engine import AgentEvent, AgUiEvents, UIMessageChunks
from tests.engine.random_turns import RandomTurns, random_turns

COUNT = 25
Read = Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]
Shown = tuple[str, str]
ANSWERS = ("USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT")
STATES = {"success": "output-available", "error": "output-error", "interrupted": "output-error"}


@pytest.fixture(scope="module")
def turns() -> list[RandomTurns]:
    return asyncio.run(random_turns(COUNT))


def is_answer(stream: Sequence[AgentEvent]) -> bool:
    return any(event.type in ANSWERS for event in stream)


def kept(stream: Sequence[AgentEvent]) -> list[str]:
    """Return the ids of the replies that a stream shows, in pieces or whole, in their order."""
    ids = [
        event.reply_id
        for event in stream
        if (event.type == "MODEL_CALL_END" and not event.discarded)
        or event.type.startswith("REQUIRE_")
        or event.type == "AGENT_RESULT"
    ]
    return list(dict.fromkeys(ids))


def as_stored(one: RandomTurns, replies: Sequence[str], rows: range, version: int) -> list[Shown]:
    """Return what a page should show of replies after some streams: the kind and the content of each part."""
    stored = {message.id: message for message in one.stored}
    events = [event for row in rows for event in one.streams[row]]
    results = {(event.reply_id, event.call_id): event.state for event in events if event.type == "TOOL_RESULT_END"}
    asked = next((event for event in one.streams[rows[-1]] if event.type == "REQUIRE_USER_CONFIRM"), None)
    waiting = [part["id"] for part in asked.data] if asked is not None and version > 5 else []
    declined = {
        answer["toolCall"]["id"]
        for event in events
        if event.type == "USER_CONFIRM_RESULT"
        for answer in event.data
        if not answer["confirmed"]
    }

    def state(message: Message, id: str) -> str:
        ended = results.get((message.id, id))
        if ended == "denied":
            return "output-denied" if id in declined and version > 5 else "output-error"
        return STATES[ended] if ended else "approval-requested" if id in waiting else "input-available"

    found: list[Shown] = []
    for message in (stored[id] for id in replies if id in stored):
        for part in message.parts:
            if part["type"] in CALLS:
                found.append((f"{part['name']} {part['id']}", state(message, part["id"])))
            elif is_thinking(part):
                found.append(("reasoning", thinking_text(part)))
            elif part["type"] == "text":
                found.append(("text", part["text"]))
            else:
                found.append(("file" if part["type"] == "image" else "data-leafward", ""))
    return found


def on_page(message: dict[str, Any]) -> list[Shown]:
    """Return what a page shows of a message, without what was taken back or cut off."""
    shown: list[dict[str, Any]] = []
    for part in message["parts"]:
        if part["type"] == "data-leafward-discarded":
            last = max(row for row, one in enumerate(shown) if one["type"] == "step-start")
            del shown[last + 1 :]
        else:
            shown.append(part)
    found: list[Shown] = []
    for part in shown:
        if part["type"] == "dynamic-tool":
            if not part.get("errorText", "").startswith("Stopped before"):
                found.append((f"{part['toolName']} {part['toolCallId']}", part["state"]))
        elif part["type"] not in ("step-start", "data-leafward-input", "data-leafward-question", "steering-message"):
            found.append((part["type"], part.get("text", "")))
    return found


class Page:
    """A page of one version of AI SDK that follows a conversation."""

    def __init__(self, one: RandomTurns, version: Any) -> None:
        self.one = one
        self.version = version
        self.message: dict[str, Any] | None = None
        self.replies: list[str] = []
        """The replies that the message shows."""
        self.first = 0
        """The stream with which the message began."""

    def begin(self, row: int) -> dict[str, Any]:
        """Return a stream for the package to read; it goes on with the page's message if that was answered."""
        stream = self.one.streams[row]
        if not is_answer(stream) or self.message is None:
            self.message, self.replies, self.first = None, [], row
        self.replies = list(dict.fromkeys([*self.replies, *kept(stream)]))
        before = self.message
        chunks = UIMessageChunks(version=self.version, message_id=before["id"] if before else None)
        made = [chunk for event in stream for chunk in chunks.add(event)]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in made)
        return {"version": self.version, "text": text, **({"message": before} if before else {})}

    def end(self, found: dict[str, Any], row: int) -> None:
        assert not found.get("refused"), found
        assert found["errors"] == []
        self.message = found.get("message")
        shown = on_page(self.message) if self.message else []
        assert shown == as_stored(self.one, self.replies, range(self.first, row + 1), self.version)


def test_a_page_of_ai_sdk_shows_what_is_stored(turns: list[RandomTurns], pages: Read) -> None:
    opened = [Page(one, version) for version in (5, 6, 7) for one in turns]
    for row in range(4):
        read = pages([page.begin(row) for page in opened])
        for page, found in zip(opened, read, strict=True):
            page.end(found, row)


def test_ag_ui_takes_every_event_and_every_order(turns: list[RandomTurns], pages: Read) -> None:
    parser: TypeAdapter[Any] = TypeAdapter(Event)
    messages: list[list[dict[str, Any]]] = [[] for _ in turns]
    for row in range(4):
        sent: list[dict[str, Any]] = []
        for number, one in enumerate(turns):
            run = AgUiEvents("t", f"r{row}", messages=messages[number])
            made = [event for shown in one.streams[row] for event in run.add(shown)]
            if one.streams[row][-1].type != "AGENT_END":
                made += run.fail("It failed.")
            for event in made:
                parser.validate_python(event)
            sent.append({"events": made, "messages": messages[number]})

        read = pages(sent)

        assert [one for one in read if one.get("refused")] == []
        for number, found in enumerate(read):
            messages[number] = found["messages"]
            expected = waiting_calls(turns[number].streams[row])
            assert [one["id"] for one in found["interrupts"]] == expected

    for one, found in zip(turns, messages, strict=True):
        assert said_on_page(found) == said(one)


def waiting_calls(stream: Sequence[AgentEvent]) -> list[str]:
    return [part["id"] for event in stream if event.type == "REQUIRE_USER_CONFIRM" for part in event.data]


def said(one: RandomTurns) -> list[Shown]:
    """Return each text of the assistant, the names of its calls, and the results of the session."""
    replies = [message for message in one.stored if message.role == "assistant"]
    texts = [("text", part["text"]) for message in replies for part in message.parts if part["type"] == "text"]
    calls = [("call", part["name"]) for message in replies for part in message.parts if part["type"] in CALLS]
    tools = [("result", message.id) for message in one.stored if message.role == "tool"]
    return sorted(text for text in (*texts, *calls, *tools) if text[1])


def said_on_page(messages: Sequence[dict[str, Any]]) -> list[Shown]:
    texts = [("text", one.get("content", "")) for one in messages if one["role"] == "assistant"]
    calls = [
        ("call", call["function"]["name"])
        for one in messages
        for call in one.get("toolCalls", [])
        if not call.get("metadata")
    ]
    tools = [("result", one["id"]) for one in messages if one["role"] == "tool"]
    return sorted(text for text in (*texts, *calls, *tools) if text[1])
