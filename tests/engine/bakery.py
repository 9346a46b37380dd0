"""An agent that bakes, and what tests of its shutdown ask about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leafward import AgentShuttingDown, Message, ReActAgent, RuntimeContext, Session, SessionKey, tool
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, pair
from leafward.engine.tree_log import TreeLog
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")
UNKNOWN = "Outcome unknown: the process ended while this ran. Find out before you call it again."


class Oven:
    """A tool that bakes until it is let go, and counts how often it began."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_done = asyncio.Event()
        self.baked: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        async def bake(dish: str) -> str:
            """Bake a dish."""
            self.baked.append(dish)
            self.began.set()
            await self.is_done.wait()
            return f"{dish} is baked"

        return [bake]


BAKE = [call("bake", {"dish": "bread"}, id="c1")]


def agent(store: Any, script: Any, tools: Any = (), **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=tools, **options)


def is_paired(messages: list[Message]) -> bool:
    found = pair(messages)
    return not any(found.is_waiting(item) for row in found.items for item in row if isinstance(item, Call))


async def history(store: Store) -> list[Message]:
    return await Session(store, "s1", user_id="alice", agent_id="cook").get_raw_history()


async def lines(store: Store) -> list[str]:
    return [f"{message.role}: {shown(message)}" for message in await history(store)]


def shown(message: Message) -> str:
    """Return a message as one line."""
    if message.role != "tool":
        return message.text or str([part.get("id") for part in message.parts])
    part = message.parts[0]
    return f"{part['id']} {part['state']} {part['output'][0]['text']}"


async def is_flagged(store: Store) -> bool:
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    return slot.shutdown_interrupted


async def is_paused(task: asyncio.Task[Any]) -> bool:
    with pytest.raises(AgentShuttingDown, match="'cook' is shutting down"):
        await task
    return True


async def go_on(store: Store, input: Any, script: Any, tools: Any = ()) -> ScriptedModel:
    """Finish the turn in another agent, and check that every request was paired."""
    model = ScriptedModel(script)
    await ReActAgent("cook", model, store=store, tools=tools).call(input, ALICE)
    assert all(is_paired(list(request.messages)) for request in model.requests)
    assert is_paired(await history(store))
    assert not await is_flagged(store)
    return model


def on_commit(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], Any]) -> None:
    """Do something right after the turn's nth commit, before anything else happens."""
    commit, made = TreeLog.commit, 0

    async def watched(self: TreeLog, *args: Any, **options: Any) -> None:
        nonlocal made
        await commit(self, *args, **options)
        made += 1
        if made == number:
            await do()

    monkeypatch.setattr(TreeLog, "commit", watched)


async def begin_shutdown(of: ReActAgent) -> None:
    """Begin a shutdown, and wait for no call."""
    shutting = asyncio.create_task(of.shutdown())
    await asyncio.sleep(0)
    shutting.cancel()
    assert of.shutdown_state == "shutting_down"
