"""What docs/concepts/events.md says of the events, compared with those of real turns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from leafward import ReActAgent, RuntimeContext, assistant, tool, tool_result
from leafward.engine import AgentEvent, CallNext, Middleware, ModelError, ModelRequest
from leafward.engine.questions import answering
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


@tool
async def paint() -> list[dict[str, object]]:
    """Paint a picture."""
    return [IMAGE]


@tool(check=lambda arguments, ctx: "ask")
async def pay() -> str:
    """Pay for it."""
    return "paid"


@tool(check=lambda arguments, ctx: "deny")
async def steal() -> str:
    """Steal it."""
    return ""


async def _streamed() -> list[AgentEvent]:
    """Return the events of turns in which every type occurs."""
    return [*await _plain(), *await _answered(), *await _reached_from_outside()]


async def _answered() -> list[AgentEvent]:
    """Return the events of turns that ask the user and are answered, and of a tool that calls an agent."""
    helper = ReActAgent("helper", ScriptedModel(["Found."]), store="memory://")

    @tool
    async def ask(ctx: RuntimeContext) -> str:
        """Ask another agent."""
        return (await helper.call("Find it.", ctx.child("finder"))).text

    script = [[call("pay", {}, id="p1"), call("approve", {}, id="a1")], [call("steal", {})], [call("ask", {})], "Yes."]
    async with (
        helper,
        ReActAgent("buyer", ScriptedModel(script), tools=[pay, approve, steal, ask], store="memory://") as agent,
    ):
        inputs = ["Buy.", answering({"p1": True}), tool_result("a1", "approved")]
        return [event for input in inputs async for event in agent.stream(input, ALICE)]


async def _reached_from_outside() -> list[AgentEvent]:
    """Return the events of a turn that another message joins, and that is interrupted then."""
    model = ScriptedModel([[call("paint", {})], ["So"]])
    async with ReActAgent("painter", model, tools=[paint], store="memory://") as agent:
        found: list[AgentEvent] = []
        async for event in agent.stream("Paint.", ALICE):
            found.append(event)
            if event.type == "TOOL_RESULT_END":
                await agent.steer("alice", "s1", "In blue.")
            if event.type == "TEXT_BLOCK_DELTA":
                await agent.interrupt("alice", "s1")
        return found


async def test_a_sub_agent_is_shown_while_its_tool_runs() -> None:
    events = await _answered()

    (row,) = [row for row, event in enumerate(events) if event.type == "SUBAGENT_EXPOSED"]
    exposed, after = events[row], events[row + 1]
    assert (exposed.name, exposed.data["name"]) == ("ask", "finder")
    assert exposed.data["sessionId"].startswith("s1~")
    assert (after.type, after.call_id, after.reply_id) == ("TOOL_RESULT_START", exposed.call_id, exposed.reply_id)


class Remembers(Middleware):
    """Answers in the model's place."""

    async def on_reasoning(
        self, ctx: RuntimeContext, request: ModelRequest, call_next: CallNext[ModelRequest, AgentEvent]
    ) -> AsyncGenerator[AgentEvent]:
        yield AgentEvent("MODEL_CALL_END", message=assistant("It was soup."))


async def _plain() -> list[AgentEvent]:
    """Return the events of turns of all kinds of replies."""
    broken = ["Let me", ModelError("away", temporary=True, retry_after=0)]
    reply = [{"type": "thinking", "thinking": "Dinner."}, "Let me cook.", call("cook", {})]
    model = ScriptedModel([broken, reply, [], [IMAGE], [call("approve", {})], [call("cook", {})], "Half is done."])
    async with (
        ReActAgent("cook", model, tools=[cook, approve], store="memory://") as agent,
        ReActAgent("cook", model, tools=[cook], store="memory://", max_iterations=1) as brief,
        ReActAgent("cook", model, store="memory://", middlewares=[Remembers()]) as third,
    ):
        return [
            event
            for one, text in ((agent, "Cook."), (agent, "May I?"), (brief, "Again."), (third, "What was it?"))
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

    waits = [call("wait", {})]
    model = ScriptedModel([waits, "Done.", [*waits, call("approve", {})], waits, [call("pay", {})]])
    async with ReActAgent("cook", model, tools=[wait, approve, pay], store="memory://") as agent:
        texts = ("Cook.", "May I?", "Pay.")
        events = [event for text in texts for event in await follow(agent, text)]

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
