"""An agent that cooks dinner: what its tools do, what its model asks for, and what its user says.

The model goes on by what it sees, so that a dinner that was cut off anywhere is cooked to its end, and the whole
conversation is known beforehand. Every tool writes down that it ran.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

from leafward import Message, RuntimeContext, open_store, tool, user
from leafward.core.calls import Call, Result, pair
from leafward.engine.agent import ReActAgent
from leafward.engine.context_view import render
from leafward.engine.models.model import ModelRequest
from leafward.testing import ScriptedModel, call

AGENT = "cook"
UNDECLARED = "cook"
"""The tool that may not run again."""
PROBED = "order"
"""The tool that finds out whether it ran."""
TIMED = "simmer"
"""The tool that never ends in time."""
MOST_RUNS = 3
STOPPED = "Stopped."


def steps(dinner: str) -> list[Message]:
    """Return what the user sends for one dinner: a question, the result of the external tool, another question."""
    return [
        user(f"Cook dinner {dinner}", id=f"{dinner}-q"),
        Message.tool_result(f"{dinner}-taste", "tasty", "taste", id=f"{dinner}-r"),
        user(f"Is dinner {dinner} ready?", id=f"{dinner}-q2"),
    ]


def other_input(dinner: str, number: int = 0) -> Message:
    """Return what the user says instead."""
    return user(f"Never mind dinner {dinner}", id=f"{dinner}-n{number}")


def interrupt_id(dinner: str) -> str:
    """Return the id of the message that interrupts a dinner."""
    return f"{dinner}-i"


def _rounds(dinner: str) -> list[list[dict[str, Any]]]:
    def one(name: str, dish: str) -> dict[str, Any]:
        return call(name, {"dish": f"{dinner} {dish}"}, id=f"{dinner}-{name}-{dish}")

    return [
        [one("cook", "soup"), one("look", "soup"), one("season", "soup")],
        [one("tidy", "table"), one("cook", "rice"), one(PROBED, "tea")],
        [call("taste", {"dish": f"{dinner} rice"}, id=f"{dinner}-taste"), one("look", "rice"), one(TIMED, "rice")],
        [one("stop", "stove")],
    ]


async def undisturbed(dinner: str) -> list[Message]:
    """Return the whole conversation of a dinner in which nothing goes wrong, after a greeting."""
    ctx = RuntimeContext("alice", "undisturbed")
    async with open_store("memory://") as store:
        agent = Kitchen(lambda _: None, list).agent(store)
        for message in (user("Hello"), *steps(dinner)):
            await agent.call(message, ctx)
        return render(await agent.session("alice", "undisturbed").get_raw_history())


class Kitchen:
    """The tools of the agent, and its model; `note` is told what happens, as lines of JSON.

    `noted` returns all that was noted, by earlier processes too. `pace` is awaited by the tool that cooks, after its
    effect.
    """

    def __init__(
        self,
        note: Callable[[str], None],
        noted: Callable[[], Iterable[str]],
        *,
        pace: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._note = note
        self._noted = noted
        self._pace = pace
        self._agent: ReActAgent | None = None

    def agent(self, store: Any, **options: Any) -> ReActAgent:
        """Make the agent of this kitchen."""
        self._agent = ReActAgent(AGENT, ScriptedModel(self._reply), store=store, tools=self._tools(), **options)
        return self._agent

    def _ran(self, name: str, dish: str, ctx: RuntimeContext) -> None:
        self._note(json.dumps(["ran", name, dish, ctx.idempotency_key, ctx.fencing_token]))

    def _tools(self) -> list[Any]:
        @tool
        async def cook(dish: str, ctx: RuntimeContext) -> str:
            """Cook a dish."""
            self._ran("cook", dish, ctx)
            if self._pace is not None:
                await self._pace()
            return f"{dish} is ready"

        @tool(read_only=True)
        def look(dish: str, ctx: RuntimeContext) -> str:
            """Look at a dish."""
            self._ran("look", dish, ctx)
            return f"{dish} looks good"

        @tool(retry_safe=True)
        async def season(dish: str, ctx: RuntimeContext) -> str:
            """Season a dish."""
            self._ran("season", dish, ctx)
            return f"{dish} is seasoned"

        @tool(retry_safe=True)
        async def tidy(dish: str, ctx: RuntimeContext) -> str:
            """Sum up what was before this dinner."""
            self._ran("tidy", dish, ctx)
            await self._sum_up(dish.partition(" ")[0], ctx)
            return "tidied up"

        @tool(probe=self._find_order)
        async def order(dish: str, ctx: RuntimeContext) -> str:
            """Order something at a shop."""
            self._ran(PROBED, dish, ctx)
            return _ordered(dish)

        @tool(read_only=True, timeout=0.02)
        def simmer(dish: str, ctx: RuntimeContext) -> None:
            """Keep a dish warm for ever."""
            self._ran(TIMED, dish, ctx)
            time.sleep(1)

        @tool(external=True)
        async def taste(dish: str) -> str:
            """Have somebody taste a dish."""
            raise AssertionError("an external tool is not run")

        @tool(retry_safe=True)
        async def stop(dish: str, ctx: RuntimeContext) -> str:
            """Interrupt the turn."""
            self._ran("stop", dish, ctx)
            message_id = interrupt_id(dish.partition(" ")[0])
            assert self._agent is not None
            if await self._agent.interrupt(ctx.user_id, ctx.session_id, user("That will do.", id=message_id)):
                self._note(json.dumps(["sent", message_id]))
            return "asked to stop"

        return [cook, look, season, tidy, order, simmer, taste, stop]

    def _find_order(self, arguments: dict[str, Any], key: str) -> str | None:
        """Return the result of an order that was made."""
        made = any(entry[0] == "ran" and key in entry for entry in map(json.loads, self._noted()))
        return _ordered(arguments["dish"]) if made else None

    async def _sum_up(self, dinner: str, ctx: RuntimeContext) -> None:
        assert self._agent is not None
        session = self._agent.session(ctx.user_id, ctx.session_id)
        before = list(takewhile(lambda message: message.id != f"{dinner}-q", await session.get_history()))
        if len(before) > 1:
            await session.add_compaction(f"Before dinner {dinner}.", before[0].id, before[-1].id)

    def _reply(self, request: ModelRequest) -> Any:
        fault = unpaired(request.messages)
        if fault is not None:
            self._note(json.dumps(["unpaired", fault]))
        return next_reply(request.messages)


def _ordered(dish: str) -> str:
    return f"{dish} is ordered"


def next_reply(messages: Sequence[Message]) -> Any:
    """Return what the model says to a conversation, by what it sees there."""
    last = next(row for row in range(len(messages) - 1, -1, -1) if messages[row].role == "user")
    said = messages[last].text
    if said.startswith("Cook dinner "):
        dinner = said.rpartition(" ")[2]
        asked = {id for message in messages[last:] for id in _call_ids(message)}
        left = [calls for calls in _rounds(dinner) if calls[0]["id"] not in asked]
        return left[0] if left else f"Dinner {dinner} is cooked."
    if said.startswith("Is dinner "):
        return f"Dinner {said.split()[2]} is ready."
    return STOPPED if said == "That will do." else f"You said: {said}"


def unpaired(messages: Sequence[Message]) -> str | None:
    """Return what is wrong with a request: calls are answered by the messages right below them, and nothing else is."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            for call_id in _result_ids(message):
                if call_id not in waiting:
                    return f"the result of {call_id!r} stands alone"
                waiting.remove(call_id)
        elif waiting:
            return f"calls {waiting} have no results before {message.role} {message.text!r}"
        else:
            waiting = _call_ids(message)
    return f"calls {waiting} have no results" if waiting else None


def _call_ids(message: Message) -> list[str]:
    return [item.id for item in pair([message]).items[0] if isinstance(item, Call)]


def _result_ids(message: Message) -> list[str]:
    return [item.call_id for item in pair([message]).items[0] if isinstance(item, Result)]
