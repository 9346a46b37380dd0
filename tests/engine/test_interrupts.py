"""Interrupts and steering from every place, and what is returned for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from leafward import Message, RuntimeContext, open_store, tool, user
from leafward.engine.agent import ReActAgent
from leafward.engine.models.model import ModelRequest
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def reason(reply: Message) -> str | None:
    return (reply.metadata or {}).get("agentscope_generate_reason")


async def texts(agent: ReActAgent) -> list[str]:
    return [message.text for message in await agent.session("alice", "s1").get_raw_history()]


async def test_an_interrupt_from_inside_the_model_gives_the_interrupted_reply(store: Store) -> None:
    async def think(_: ModelRequest) -> str:
        assert await agent.interrupt("alice", "s1", "stop!")
        return "half a thought"

    agent = ReActAgent("cook", ScriptedModel(think), store=store)

    reply = await agent.call("Cook", ALICE)

    assert reason(reply) == "INTERRUPTED"
    assert (await texts(agent))[-1] == "stop!"
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()
    # Nothing is left that would cancel a later wait.
    await asyncio.sleep(0)


async def test_an_interrupt_from_inside_the_model_ends_its_wait(store: Store) -> None:
    async def think(_: ModelRequest) -> str:
        assert await agent.interrupt("alice", "s1")
        await asyncio.sleep(60)
        return "too late"

    agent = ReActAgent("cook", ScriptedModel(think), store=store)

    async with asyncio.timeout(5):
        assert reason(await agent.call("Cook", ALICE)) == "INTERRUPTED"


