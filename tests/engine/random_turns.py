"""Random turns of an agent: replies of every kind, tools that end in every way, failures, questions and stops."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from leafward import Message, ReActAgent, RuntimeContext, tool, tool_result
from leafward.engine import AgentEvent, CallDelta, ModelError, ModelUsage, TextDelta, ThinkingDelta
from leafward.engine.questions import answering
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
CHART = {"type": "chart", "points": [1, 2]}
FAILED = ModelError("away", temporary=True, retry_after=0)


@tool
async def cook(dish: str = "soup") -> str:
    """Cook a dish."""
    await asyncio.sleep(0)
    return f"{dish} 🍲"


@tool
async def paint() -> list[Any]:
    """Paint a picture."""
    return [{"type": "text", "text": "Here."}, IMAGE]


@tool
async def burn() -> str:
    """Burn it."""
    raise RuntimeError("smoke")


@tool(check=lambda arguments, ctx: "deny")
async def steal() -> str:
    """Steal it."""
    return ""


@tool(check=lambda arguments, ctx: "ask")
async def pay() -> str:
    """Pay for it."""
    return "paid"


@tool(external=True)
def approve() -> str:
    """Ask the manager."""
    return ""


TOOLS = [cook, paint, burn, steal, pay, approve]


class RandomTurns:
    """An agent that does what chance says, and the streams of calls of it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._calls = 0
        self.agent = ReActAgent(
            "cook", ScriptedModel(self._reply), tools=TOOLS, store="memory://", max_iterations=chance.randint(1, 4)
        )
        self.streams: list[list[AgentEvent]] = []
        self.stored: list[Message] = []
        """The messages of the session, at the end."""

    def _reply(self, request: Any) -> Any:
        chance = self._chance
        if chance.random() < 0.1:
            return []
        pieces: list[Any] = []
        for _ in range(chance.randint(1, 4)):
            pieces += self._block()
        if chance.random() < 0.25:
            cut = chance.randint(0, len(pieces))
            pieces = [*pieces[:cut], FAILED]
        elif chance.random() < 0.1:
            pieces.insert(chance.randint(0, len(pieces)), self._interrupt)
        if chance.random() < 0.5:
            pieces.append(ModelUsage(10, 5))
        return pieces

    def _block(self) -> list[Any]:
        chance = self._chance
        kind = chance.choice(["text", "thinking", "whole", "call", "call", "pieces", "mixed"])
        if kind == "text":
            return [TextDelta("Let me \ud83c"), TextDelta("\udf72 see.")]
        if kind == "thinking":
            return [ThinkingDelta("Hm"), ThinkingDelta("m.")]
        if kind == "whole":
            return [chance.choice([IMAGE, CHART, {"type": "text", "text": "Whole."}])]
        if kind == "mixed":
            return [
                TextDelta("a", 7),
                ThinkingDelta("b", 8),
                TextDelta("c", 7),
                TextDelta("d", 9),
                ThinkingDelta("e", 8),
            ]
        name = chance.choice([one.name for one in TOOLS])
        self._calls += 1
        id = "c" if chance.random() < 0.2 else f"c{self._calls}"
        if kind == "call":
            return [call(name, {}, id=id)]
        return [CallDelta("", name, id), CallDelta('{"dish":'), CallDelta(' "rice"}' if chance.random() < 0.8 else "")]

    async def _interrupt(self, request: Any) -> None:
        await self.agent.interrupt("alice", "s1", self._chance.choice([None, "Stop."]))

    async def run(self) -> RandomTurns:
        """Stream a few calls, each of which answers what the one before has left open, or not."""
        async with self.agent as agent:
            input: Any = "Cook."
            for _ in range(4):
                events: list[AgentEvent] = []
                self.streams.append(events)
                with suppress(ModelError):
                    async for event in agent.stream(input, ALICE):
                        events.append(event)
                        if self._chance.random() < 0.01:
                            await agent.steer("alice", "s1", "Hurry.")
                input = self._next_input(events)
            self.stored = await agent.session("alice", "s1").get_raw_history()
        return self

    def _next_input(self, events: list[AgentEvent]) -> Any:
        open = next((one for one in events if one.type.startswith("REQUIRE_")), None)
        if open is None or self._chance.random() < 0.2:
            return "And now?"
        ids = [part["id"] for part in open.data]
        if open.type == "REQUIRE_EXTERNAL_EXECUTION":
            return [tool_result(id, "approved") for id in ids]
        return answering({id: self._chance.random() < 0.5 for id in ids})


async def random_turns(count: int) -> list[RandomTurns]:
    """Return conversations that chance has made, the same ones each time."""
    return [await RandomTurns(random.Random(seed)).run() for seed in range(count)]
