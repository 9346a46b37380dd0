"""Conversions of a stream of events: errors, streams that are left, streams of `attach`, replies that come whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from leafward import ConfigurationError, ReActAgent, RuntimeContext, tool, user
from leafward.engine import AgentEvent, AgUiEvents, ModelError, UIMessageChunks, to_ag_ui, to_ui_stream
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")
SECRET = ModelError("no access with the key sk-123")


def types(found: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in found]


async def test_an_error_of_the_stream_is_raised() -> None:
    async with ReActAgent("one", ScriptedModel([["So", SECRET]]), store="memory://") as agent:
        with pytest.raises(ModelError):
            [chunk async for chunk in to_ui_stream(agent.stream("Hi", ALICE), version=7)]


async def test_an_error_is_shown_as_the_caller_says_it_and_the_caller_gets_it() -> None:
    errors: list[Exception] = []

    def say(error: Exception) -> str:
        errors.append(error)
        return "Try again."

    async with ReActAgent("one", ScriptedModel([["So", SECRET], SECRET]), store="memory://") as agent:
        chunks = [one async for one in to_ui_stream(agent.stream("Hi", ALICE), version=7, on_error=say)]
        events = [one async for one in to_ag_ui(agent.stream("Hey", ALICE), "t", "r", on_error=say)]

    assert types(chunks)[-2:] == ["reset-step", "error"]
    assert (chunks[-1], events[-1]) == (
        {"type": "error", "errorText": "Try again."},
        {"type": "RUN_ERROR", "message": "Try again."},
    )
    assert "sk-123" not in str([*chunks, *events])
    assert [type(error) for error in errors] == [ModelError, ModelError]


async def test_a_run_that_fails_before_its_first_event_begins_all_the_same() -> None:
    assert types(AgUiEvents("t", "r").fail("No.")) == ["RUN_STARTED", "RUN_ERROR"]


async def test_a_conversion_that_is_left_cancels_the_turn() -> None:
    async with ReActAgent("one", ScriptedModel([["So", " it", " is."]]), store="memory://") as agent:
        async with aclosing(to_ui_stream(agent.stream("Hi", ALICE), version=6)) as chunks:
            async for chunk in chunks:
                if chunk["type"] == "text-delta":
                    break
        history = await agent.session("alice", "s1").get_raw_history()

    assert [message.text for message in history] == ["Hi", "So"]


async def test_an_event_is_converted_before_the_next_one_is_made() -> None:
    made: list[str] = []

    async def events() -> AsyncGenerator[AgentEvent]:
        for type in ("AGENT_START", "MODEL_CALL_START", "TEXT_BLOCK_START"):
            made.append(type)
            yield AgentEvent(type, "" if type == "AGENT_START" else "r1", "0")

    seen = [(one["type"], len(made)) async for one in to_ag_ui(events(), "t", "r")]

    assert seen == [("RUN_STARTED", 1), ("STEP_STARTED", 2), ("TEXT_MESSAGE_START", 3)]


async def test_a_reply_that_was_stored_before_is_shown_whole() -> None:
    async with ReActAgent("one", ScriptedModel(["Hello."]), store="memory://") as agent:
        first = [event async for event in agent.stream(user("Hi", id="m1"), ALICE)]
        again = [event async for event in agent.stream(user("Hi", id="m1"), ALICE)]

    def shown(events: list[AgentEvent], chunks: Any) -> list[dict[str, Any]]:
        found = [one for event in events for one in chunks.add(event)]
        return [one for one in found if one["type"] not in ("finish", "RUN_FINISHED")]

    assert shown(again, UIMessageChunks(version=6)) == shown(first, UIMessageChunks(version=6))
    assert shown(again, AgUiEvents("t", "r")) == shown(first, AgUiEvents("t", "r"))
    assert "Hello." in str(shown(again, UIMessageChunks(version=6)))


async def test_a_turn_that_is_followed_is_converted_too() -> None:
    attached, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait until another task follows."""
        attached.set()
        await go_on.wait()
        return "done"

    model = ScriptedModel([["One moment.", call("wait", {}, id="c1")], "Ready."])
    async with ReActAgent("cook", model, tools=[wait], store="memory://") as agent:
        turn = asyncio.create_task(agent.call("Cook.", ALICE))
        await attached.wait()
        events: list[AgentEvent] = []
        async for event in agent.attach("alice", "s1"):
            events.append(event)
            go_on.set()
        await turn

    chunks = UIMessageChunks(version=6)
    ui = [one for event in events for one in chunks.add(event)]
    assert [one["delta"] for one in ui if one["type"] == "text-delta"] == ["One moment.", "Ready."]
    assert [one["output"] for one in ui if one["type"] == "tool-output-available"] == ["done"]
    run = AgUiEvents("t", "r")
    shown = [one for event in events for one in run.add(event)]
    assert [one["content"] for one in shown if one["type"] == "TOOL_CALL_RESULT"] == ["done"]
    assert types(shown)[-1] == "RUN_FINISHED"


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="version is 5, 6 or 7"):
        UIMessageChunks(version=4)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["compaction", "compaction_failed"])
def test_a_page_sees_that_a_conversation_was_compacted_and_nothing_of_what_was_said(name: str) -> None:
    event = AgentEvent("CUSTOM", name=name, data={"summary": "Alice owes 5.", "reason": "401: key sk-1 expired"})
    start = AgentEvent("AGENT_START", name="cook")

    for version in (5, 6, 7):
        chunks = UIMessageChunks(version=version)
        shown = [*chunks.add(start), *chunks.add(event)]
        assert shown[-1] == {"type": f"data-{name}", "data": {}}
    events = AgUiEvents("t1", "r1")
    assert [*events.add(start), *events.add(event)][-1] == {"type": "CUSTOM", "name": name, "value": {}}
