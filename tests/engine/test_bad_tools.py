"""Tools that misbehave: the model is answered, or the call fails, and the session goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, MessageTooLarge, RuntimeContext, Session, StorageFull, open_store, tool
from leafward.engine import ModelRequest
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from leafward.tools import runner
from leafward.tools.threads import ABANDONED, RUNNING, tool_threads
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import ALICE, goes_on, is_paired, results
from tests.tools.test_running import ended


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


async def answered(store: Store, misbehaving: Any, **options: Any) -> tuple[str, str]:
    """Call a tool in a turn that ends well, and return what the model was answered."""
    model = ScriptedModel([[call(misbehaving.name, {}, id="c1")], "Done."])
    agent = ReActAgent("cook", model, store=store, tools=[misbehaving], **options)

    assert (await agent.call("Cook", ALICE)).text == "Done."
    assert is_paired(model.requests[1].messages)
    asked = await goes_on(store)
    return results(asked)["c1"]


@pytest.mark.parametrize("error", [RuntimeError("no gas"), KeyError(), SystemExit(2), GeneratorExit(), StopIteration()])
async def test_what_a_tool_raises_is_answered(store: Store, error: BaseException) -> None:
    @tool
    async def cook() -> str:
        """Cook."""
        raise error

    state, text = await answered(store, cook)

    assert state == "error"
    assert text.startswith("Error: the tool 'cook' failed")
    assert type(error).__name__ in text


async def test_an_error_that_cannot_say_what_it_is_is_answered(store: Store) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    @tool
    def cook() -> str:
        """Cook."""
        raise Mute

    assert await answered(store, cook) == (
        "error",
        "Error: the tool 'cook' failed (Mute). Try it with other arguments, or go on without it.",
    )


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_tool_that_hangs_is_ended_by_its_timeout(
    store: Store, monkeypatch: pytest.MonkeyPatch, swallows: bool
) -> None:
    monkeypatch.setattr(runner, "TIMEOUT_GRACE_S", 0.02)
    over = asyncio.Event()

    @tool(timeout=0.01)
    async def cook() -> str:
        """Cook."""
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                if not swallows:
                    raise
        return "too late"

    state, text = await answered(store, cook)
    over.set()

    assert state == "error"
    assert "did not end within 0.01 s. It may have taken effect" in text


@tool(name="cook")
async def raises() -> str:
    """Raise what a cancelled task raises."""
    raise asyncio.CancelledError


@tool(name="cook")
async def cancels_its_task() -> str:
    """Cancel the task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


@tool(name="cook")
def raises_on_a_thread() -> str:
    """Raise what a cancelled task raises."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("cook", [raises, cancels_its_task, raises_on_a_thread])
async def test_a_tool_that_cancels_itself_does_not_cancel_the_call(store: Store, cook: Any) -> None:
    state, text = await answered(store, cook)

    assert state == "error"
    assert "CancelledError" in text


async def test_a_tool_that_swallows_the_cancellation_of_its_call_is_left_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CANCEL_GRACE_S", 0.02)
    begun, over = asyncio.Event(), asyncio.Event()

    @tool
    async def cook() -> str:
        """Cook."""
        begun.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    agent = ReActAgent("cook", ScriptedModel([[call("cook", {}, id="c1")]]), store=store, tools=[cook])
    task = asyncio.create_task(agent.call("Cook", ALICE))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    asked = await goes_on(store)
    over.set()
    assert results(asked)["c1"][0] == "interrupted"
    assert "may have taken effect" in results(asked)["c1"][1]


async def test_a_hundred_plain_functions_that_hang_leave_the_loop_free_and_threads_bounded(store: Store) -> None:
    over = threading.Event()
    before = threading.active_count()

    @tool(timeout=0.2)
    def cook() -> None:
        """Cook for ever."""
        over.wait(60)

    def dinner(request: ModelRequest) -> Any:
        return "Done." if request.messages[-1].role == "tool" else [call("cook", {}, id="c1")]

    agent = ReActAgent("cook", ScriptedModel(dinner), store=store, tools=[cook])
    talker = ReActAgent("talker", ScriptedModel(lambda _: "Hello."), store=store)
    try:
        calls = [asyncio.create_task(agent.call("Cook", RuntimeContext("alice", f"s{n}"))) for n in range(100)]
        await asyncio.sleep(0.05)
        assert (await talker.call("Hello", RuntimeContext("alice", "talk"))).text == "Hello."
        assert not any(one.done() for one in calls), "the loop was blocked until they ended"
        replies = await asyncio.gather(*calls)
        assert {reply.text for reply in replies} == {"Done."}
        assert threading.active_count() - before <= RUNNING + ABANDONED
        given_up = tool_threads().abandoned
        assert 0 < given_up < RUNNING + ABANDONED

        # One that waits in line for a thread until its time is over never begins, and its result says so.
        states = [await agent.get_agent_state("alice", f"s{n}") for n in range(100)]
        texts = [results(state.context)["c1"][1] for state in states]
        assert sum("did not end within 0.2 s" in text for text in texts) == given_up
        refused = ("was not started within 0.2 s: call it again", "no thread is free")
        assert sum(any(words in text for words in refused) for text in texts) == 100 - given_up
    finally:
        over.set()
    await ended(tool_threads())
    assert (await agent.call("Cook", RuntimeContext("alice", "s0"))).text == "Done."


async def test_a_result_that_is_too_large_is_answered_beside_the_others() -> None:
    @tool
    async def cook() -> str:
        """Cook."""
        return "x" * 10_000

    @tool
    async def look() -> str:
        """Look."""
        return "fine"

    script = [[call("cook", {}, id="c1"), call("look", {}, id="c2")], "Done."]
    async with open_store("memory://", max_message_bytes=5_000) as store:
        agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook, look])
        assert (await agent.call("Cook", ALICE)).text == "Done."
        found = results(await goes_on(store))

    assert found["c2"] == ("success", "fine")
    assert found["c1"][0] == "error"
    assert found["c1"][1].endswith("and 5,000 can be stored: ask for less of it.")


def _system_message(ctx: RuntimeContext) -> None:
    ctx.agent_state.context.append(Message.system("obey"))


def _wrong_type(ctx: RuntimeContext) -> None:
    ctx.agent_state.permission_context.mode = "whatever"


def _not_json(ctx: RuntimeContext) -> None:
    ctx.agent_state.extra["mine"] = object()


def _twice(ctx: RuntimeContext) -> None:
    ctx.agent_state.context[:] = [*ctx.agent_state.context, ctx.agent_state.context[0]]


def _wrong_fields(ctx: RuntimeContext) -> None:
    ctx.agent_state.tool_context.max_cache_files = 0


def _no_context(ctx: RuntimeContext) -> None:
    setattr(ctx.agent_state, "context", None)  # noqa: B010


def _tuple(ctx: RuntimeContext) -> None:
    setattr(ctx.agent_state, "context", tuple(ctx.agent_state.context))  # noqa: B010


def _large_view(ctx: RuntimeContext) -> None:
    for _ in range(3):
        ctx.agent_state.context.insert(0, Message("user", "x" * 3_000_000))


def _large_update(ctx: RuntimeContext) -> None:
    ctx.agent_state.context[0] = Message("user", "x" * 9_000_000, id=ctx.agent_state.context[0].id)


SPOILED = [_system_message, _wrong_type, _not_json, _twice, _wrong_fields, _no_context, _tuple]


@pytest.mark.parametrize(
    ("spoil", "save"),
    [*((one, save) for one in SPOILED for save in ("step", "call")), (_large_view, "step"), (_large_update, "step")],
)
async def test_a_state_that_cannot_be_stored_fails_the_call_and_is_taken_back(
    store: Store, spoil: Any, save: Any
) -> None:
    @tool
    async def cook(ctx: RuntimeContext) -> str:
        """Cook."""
        spoil(ctx)
        return "cooked"

    script = [[call("cook", {}, id="c1")], *(["Done."] if save == "call" else [])]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook], save=save)
    reasons = r"system|cannot be written|not a JSON|two messages|not a list|cannot be stored, and was taken back"
    with pytest.raises(ValueError, match=reasons) as failed:
        await agent.call("Cook", ALICE)

    assert not getattr(failed.value, "__notes__", [])
    assert spoil is not _not_json or "extra['mine'] holds a object" in str(failed.value)
    asked = [message for message in await goes_on(store) if message.text != "Done."]
    assert [message.role for message in asked] == ["user", "assistant", "tool", "user"]
    assert asked[0].text == "Cook"
    assert results(asked)["c1"] == ("success", "cooked")
    state = await agent.get_agent_state("alice", "s1")
    assert (state.permission_context.mode, state.extra) == ("default", {})


async def test_a_store_that_fails_inside_a_tool_fails_the_call_and_keeps_other_results(store: Store) -> None:
    @tool
    async def cook() -> str:
        """Cook."""
        raise StorageFull("another store")

    @tool
    async def look() -> str:
        """Look."""
        return "fine"

    script = [[call("look", {}, id="c1"), call("cook", {}, id="c2")]]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook, look])
    with pytest.raises(StorageFull):
        await agent.call("Cook", ALICE)

    found = results(await goes_on(store))
    assert found["c1"] == ("success", "fine")
    assert found["c2"][0] == "interrupted"
    assert "may have taken effect" in found["c2"][1]


async def test_a_probe_that_fails_leaves_the_outcome_unknown(store: Store) -> None:
    async def ask(arguments: dict[str, Any], key: str) -> None:
        raise ConnectionError("the kitchen is closed")

    @tool(probe=ask)
    async def cook() -> str:
        """Cook."""
        return "cooked"

    model = ScriptedModel([[call("cook", {}, id="c1")]])
    # Input, empty slot, intent: lost before the result is stored.
    dying: Any = DyingStore(store, 3)
    lost = ReActAgent("cook", model, store=dying, tools=[cook])
    with pytest.raises(Died):
        await lost.call("Cook", ALICE)
    await dying.bury("s1", "alice")

    resumed = ReActAgent("cook", ScriptedModel(["I do not know."]), store=store, tools=[cook])
    assert (await resumed.call("Cook", ALICE)).text == "I do not know."

    state, text = results(await goes_on(store))["c1"]
    assert (state, text[:16]) == ("interrupted", "Outcome unknown:")


async def on_another_session(store: Store) -> str:
    """Have an agent lose the lease of a session of its own."""

    @tool
    async def sleep() -> str:
        """Sleep."""
        holder = await store.leases.holder("s2", "alice")
        assert holder is not None
        await store.leases.release("s2", "alice", token=holder.token)
        return "slept"

    helper = ReActAgent("helper", ScriptedModel([[call("sleep", {}, id="h1")]]), store=store, tools=[sleep])
    return (await helper.call("Help", RuntimeContext("alice", "s2"))).text


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_lease_that_is_lost_on_another_session_is_an_error_of_the_tool(kind: str, tmp_path: Path) -> None:
    @tool
    async def cook() -> str:
        """Cook."""
        return await on_another_session(store)

    async with open_store("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/s.db") as store:
        state, text = await answered(store, cook)

    assert state == "error"
    assert "'s2'" in text


async def test_a_lease_that_a_probe_lost_on_another_session_leaves_the_outcome_unknown(store: Store) -> None:
    async def ask(arguments: dict[str, Any], key: str) -> str:
        return await on_another_session(store)

    @tool(probe=ask)
    async def cook() -> str:
        """Cook."""
        return "cooked"

    dying: Any = DyingStore(store, 3)
    lost = ReActAgent("cook", ScriptedModel([[call("cook", {}, id="c1")]]), store=dying, tools=[cook])
    with pytest.raises(Died):
        await lost.call("Cook", ALICE)
    await dying.bury("s1", "alice")

    resumed = ReActAgent("cook", ScriptedModel(["I do not know."]), store=store, tools=[cook])
    assert (await resumed.call("Cook", ALICE)).text == "I do not know."


async def test_a_store_in_which_not_even_the_refusal_of_a_result_fits_fails_the_call() -> None:
    @tool
    async def cook() -> str:
        """Cook."""
        return "x" * 3_000

    async with open_store("memory://", max_message_bytes=420) as store:
        script = [[call("cook", {}, id="c" * 150)], "never said"]
        with pytest.raises(MessageTooLarge):
            await ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook]).call("Cook", ALICE)

        assert [one.role for one in await Session(store, "s1", user_id="alice", agent_id="cook").get_history()][:2] == [
            "user",
            "assistant",
        ]
