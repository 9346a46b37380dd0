"""What docs/concepts/events.md says of the events, compared with those of real turns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from leafward import ReActAgent, RuntimeContext, tool
from leafward.engine import AgentEvent, ModelError
from leafward.testing import ScriptedModel, call

PAGE = Path(__file__).parent.parent.parent / "docs" / "concepts" / "events.md"
SPAN = re.compile(r"`([^`]+)`")
FIELDS = AgentEvent.__struct_fields__[1:]
ALICE = RuntimeContext("alice", "s1")
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}


@tool
async def cook() -> str:
    """Cook."""
    return "done"


@tool(external=True)
def approve() -> str:
    """Ask the manager."""
    return ""


def table(heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a section's table."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    yield from (
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if line.startswith("| `") and "`type`" not in line
    )


def rows() -> set[tuple[str, frozenset[str]]]:
    """Return each type of the page with the fields that it says are set."""
    return {(type, frozenset(SPAN.findall(cells[-1]))) for cells in table("Types") for type in SPAN.findall(cells[0])}


def shape(event: AgentEvent) -> tuple[str, frozenset[str]]:
    return event.type, frozenset(field for field in FIELDS if getattr(event, field))


async def _streamed() -> list[AgentEvent]:
    """Return the events of three turns in which every type occurs."""
    broken = ["Let me", ModelError("away", temporary=True, retry_after=0)]
    reply = [{"type": "thinking", "thinking": "Dinner."}, "Let me cook.", call("cook", {})]
    model = ScriptedModel([broken, reply, [IMAGE], [call("approve", {})], [call("cook", {})], "Half is done."])
    async with (
        ReActAgent("cook", model, tools=[cook, approve], store="memory://") as agent,
        ReActAgent("cook", model, tools=[cook], store="memory://", max_iterations=1) as brief,
    ):
        return [
            event
            for one, text in ((agent, "Cook."), (agent, "May I?"), (brief, "Again."))
            async for event in one.stream(text, ALICE)
        ]


async def test_a_stream_yields_the_events_that_the_page_names() -> None:
    events = await _streamed()

    assert {shape(event) for event in events} == rows()


async def test_attach_yields_the_events_that_the_page_names() -> None:
    attached, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait until another task follows."""
        attached.set()
        await go_on.wait()
        return "done"

    async def follow(agent: ReActAgent, text: str) -> list[AgentEvent]:
        attached.clear()
        go_on.clear()
        turn = asyncio.create_task(agent.call(text, ALICE))
        await attached.wait()
        found: list[AgentEvent] = []
        async for event in agent.attach("alice", "s1"):
            found.append(event)
            go_on.set()
        await turn
        return found

    model = ScriptedModel([[call("wait", {})], "Done.", [call("wait", {}), call("approve", {})]])
    async with ReActAgent("cook", model, tools=[wait, approve], store="memory://") as agent:
        events = [*await follow(agent, "Cook."), *await follow(agent, "May I?")]

    always = frozenset({"message", "committed"})
    named = {
        (type, always | frozenset(field for field in SPAN.findall(others) if field in FIELDS))
        for (cell, _, others) in table("What `attach` yields")
        for type in SPAN.findall(cell)
    }
    ends = {(type, frozenset({"name"})) for type in ("AGENT_START", "AGENT_END")}
    assert {shape(event) for event in events} == named | ends


async def test_an_event_has_the_keys_that_the_page_names() -> None:
    cells = [(SPAN.findall(fields), SPAN.findall(keys)) for fields, keys in table("Keys in JSON")]
    key_of = {field: keys[0] if keys else field for fields, keys in cells for field in fields}
    (of_tools, of_agents) = next(keys for fields, keys in cells if fields == ["name"])

    for event in await _streamed():
        key_of["name"] = of_tools if event.type.startswith("TOOL_") else of_agents
        assert set(event.to_dict()) == {"type", *(key_of[field] for field in shape(event)[1])}
