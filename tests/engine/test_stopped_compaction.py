"""A turn that compacts its conversation loses nothing if its store stops for good after any of its commits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from leafward import CompactionConfig, Message, ReActAgent, RuntimeContext, tool, user
from leafward.core.message import ids_of
from leafward.engine import ModelRequest
from leafward.engine.context_view import render
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import is_paired
from tests.engine.dying_store import Died, DyingStore
from tests.engine.talker import is_prompt_for_summary
from tests.engine.two_handles import Handles, on

ROUNDS = 5
DID = re.compile(r"did \d")
CONFIG = CompactionConfig(trigger_messages=6, keep_messages=2)
WORK = user("Work five times.", id="q")


class Worker:
    """An agent whose model goes on by what it sees, whether that is results or a summary of them."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def agent(self, store: Any) -> ReActAgent:
        @tool(retry_safe=True)
        def work(number: int) -> str:
            """Work."""
            return f"did {number}"

        model = ScriptedModel(self.reply)
        return ReActAgent("worker", model, store=store, tools=[work], compaction=CONFIG)

    async def reply(self, request: ModelRequest) -> Any:
        done = sorted(set(DID.findall(str([message.parts for message in request.messages]))))
        if is_prompt_for_summary(request):
            return " ".join(done)
        self.requests.append(request)
        if len(done) == ROUNDS:
            return "All done."
        return [call("work", {"number": len(done) + 1}, id=f"c{len(done) + 1}")]


def told(history: Sequence[Message]) -> list[str]:
    return [f"{one.role}: {one.text or one.parts[0].get('id')}" for one in history]


async def undisturbed(store: Store) -> list[str]:
    agent = Worker().agent(store)
    await agent.call(WORK, RuntimeContext("alice", "undisturbed"))
    session = agent.session("alice", "undisturbed")
    assert len(await session.get_compactions()) >= 2
    return told(await session.get_raw_history())


async def faults(first: Store, second: Store, session_id: str, resumed: Message | None, reference: list[str]) -> str:
    """Go on with a turn that was cut off, and return what is wrong then."""
    worker, ctx = Worker(), RuntimeContext("alice", session_id)
    agent = worker.agent(second)
    reply = await agent.call(resumed, ctx)
    session = agent.session("alice", session_id)
    raw, history = await session.get_raw_history(), await session.get_history()
    state = await Worker().agent(first).get_agent_state("alice", session_id)
    shown = render(await second.messages.path(session._scope, raw[-1].id))  # pyright: ignore[reportPrivateUsage]
    wrong = {
        "the reply": reply.text != "All done.",
        "what is stored": told(raw) != reference,
        "a message twice": len(set(ids_of(raw))) != len(raw),
        "a request": not all(is_paired(list(request.messages)) for request in worker.requests),
        "what other processes see": ids_of(state.context) != ids_of(shown),
        "the summary": state.summary not in history[0].text,
        "the history": len(history) >= 8,
    }
    return ", ".join(what for what, is_wrong in wrong.items() if is_wrong)


@on("memory", "sqlite")
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("resumed", [WORK, None], ids=["same input", "no input"])
async def test_a_turn_that_compacts_goes_on_from_any_commit(
    handles: Handles, at_once: bool, resumed: Message | None
) -> None:
    first, second = handles
    reference = await undisturbed(first)
    found: list[str] = []
    commits = 0
    for commits in count(2):
        session_id = f"{at_once} {commits}"
        dying = DyingStore(first, commits, at_once=at_once)
        task = asyncio.create_task(Worker().agent(dying).call(WORK, RuntimeContext("alice", session_id)))
        with suppress(Died):
            await task
        await dying.bury(session_id, "alice")
        if not dying.is_dead:
            break
        is_answered = resumed is None and await _is_answered(first, session_id)
        wrong = await faults(first, second, session_id, WORK if is_answered else resumed, reference)
        found += [f"after commit {commits}: {wrong}"] if wrong else []
    assert commits > 15
    assert found == []


async def _is_answered(store: Store, session_id: str) -> bool:
    """Tell whether the turn has ended, so that it cannot be resumed without input."""
    state = await Worker().agent(store).get_agent_state("alice", session_id)
    return bool(state.context) and state.context[-1].text == "All done."
