"""The last commit of a turn: what is stored stays so, and what was asked of the turn by then is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from leafward import OutcomeUnknown, ReActAgent, RuntimeContext, SessionKey, SessionManager, open_store, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine import ModelUsage, turn_mail
from leafward.stores import Lease, Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import DyingStore

ALICE = RuntimeContext("alice", "s1")
QUESTION = user("Cook", id="q1")
USED = ModelUsage(10, 5)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}
    async with open_store(urls[request.param]) as opened:
        yield opened


@tool
async def stir() -> str:
    """Stir."""
    return "stirred"


async def cancel() -> None:
    """Have the caller cancelled."""
    (caller,) = (task for task in asyncio.all_tasks() if task.get_name() == "caller")
    caller.cancel()
    await asyncio.sleep(0)


async def cancel_all() -> None:
    """Have the caller cancelled, and the task that stores the end, as `asyncio.run` does when a program ends."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await cancel()


async def lose_the_answer() -> None:
    raise OutcomeUnknown("the answer was lost")


class DisturbedStore(DyingStore):
    """Disturbs one append, once it is stored."""

    def __init__(self, store: Store, append: int, disturb: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._life.do = self._do
        self._left = append
        self._disturb = disturb

    async def _do(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        done = await call()
        self._left -= name == "append"
        if name == "append" and self._left == 0:
            await self._disturb()
        return done


async def lines(agent: ReActAgent) -> list[str]:
    history = await agent.session("alice", "s1").get_raw_history()
    return [f"{message.role}: {message.text}" for message in history]


@pytest.mark.parametrize("disturb", [cancel, cancel_all, lose_the_answer])
async def test_a_reply_that_is_stored_when_its_call_is_cut_off_is_not_asked_for_again(
    store: Store, disturb: Callable[[], Awaitable[None]]
) -> None:
    disturbed: Any = DisturbedStore(store, 2, disturb)
    cut_off = ReActAgent("cook", ScriptedModel([["Cooked.", USED]]), store=disturbed)
    with pytest.raises((asyncio.CancelledError, OutcomeUnknown)):
        await asyncio.create_task(cut_off.call(QUESTION, ALICE), name="caller")

    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert [message.text for message in slot.context] == ["Cook", "Cooked."]
    again = ReActAgent("cook", ScriptedModel([]), store=store)
    assert (await again.call(QUESTION, ALICE)).text == "Cooked."

    assert await lines(again) == ["user: Cook", "assistant: Cooked."]
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens, info.output_tokens) == (10, 5)
    with pytest.raises(ValueError, match="open"):
        await again.call(None, ALICE)


async def test_a_call_that_is_cancelled_while_a_reply_is_stored_keeps_the_reply_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    disturbed: Any = DisturbedStore(store, 2, cancel)
    agent = ReActAgent("cook", ScriptedModel([[call("stir", {}, id="c1")]]), store=disturbed, tools=[stir])
    with suppress(asyncio.CancelledError):
        await asyncio.create_task(agent.call(QUESTION, ALICE), name="caller")

    assert [line.split(":")[0] for line in await lines(agent)] == ["user", "assistant", "tool"]
    assert "two messages" not in caplog.text


@pytest.mark.parametrize("empty", [[], [[ModelUsage(0, 0)]]], ids=["a reply", "a sum"])
async def test_an_interrupt_at_the_end_of_the_last_reply_stops_the_turn(store: Store, empty: list[Any]) -> None:
    model = ScriptedModel([*empty, ["Cooked.", USED]])
    agent = ReActAgent("cook", model, store=store, max_iterations=1)
    reasons: list[Any] = []
    async with aclosing(agent.stream(QUESTION, ALICE)) as events:
        async for event in events:
            if event.type == "MODEL_CALL_END" and len(model.requests) > len(empty):
                assert await agent.interrupt("alice", "s1", "Stop")
            if event.type == "AGENT_RESULT" and event.message is not None:
                reasons.append((event.message.metadata or {})["agentscope_generate_reason"])

    assert reasons == ["INTERRUPTED"]
    assert await lines(agent) == ["user: Cook", "assistant: Cooked.", "user: Stop"]
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens, info.output_tokens) == (10, 5)


@pytest.mark.parametrize("kind", ["interrupt", "steer"])
async def test_a_turn_reads_a_text_of_another_process_before_its_final_commit_if_it_knows_of_one(
    store: Store, kind: Literal["interrupt", "steer"], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that only the renewed lease tells of the text.
    monkeypatch.setattr(turn_mail, "LOOKS_EVERY_S", 3600)
    acquired: list[Lease] = []
    acquire = store.leases.acquire

    async def noted(*args: Any, **options: Any) -> Lease:
        acquired.append(await acquire(*args, **options))
        return acquired[-1]

    monkeypatch.setattr(store.leases, "acquire", noted)
    agent = ReActAgent("cook", ScriptedModel(["Cooked.", "With salt."]), store=store)
    salt = user("Salt")
    is_sent = False
    async with aclosing(agent.stream(QUESTION, ALICE)) as events:
        async for event in events:
            if event.type == "MODEL_CALL_END" and not is_sent:
                is_sent = True
                text = turn_mail.TurnText(kind, acquired[0].token, salt.to_dict()).write()
                assert await store.leases.send("s1", "alice", text, label="agent:cook")
                assert await acquired[0].is_still_held()

    after = ["assistant: With salt."] if kind == "steer" else []
    assert await lines(agent) == ["user: Cook", "assistant: Cooked.", "user: Salt", *after]
