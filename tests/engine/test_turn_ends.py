"""How a turn ends: once, with a result for every call, whatever ends it and whatever comes at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    Message,
    MessageTooLarge,
    ReActAgent,
    RuntimeContext,
    SessionKey,
    StaleState,
    open_store,
    tool,
    tool_result,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.core.attached_state import TURN
from leafward.core.ids import Scope
from leafward.engine.reply_reason import REASON
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import (
    ALICE,
    BAKE,
    Oven,
    agent,
    begin_shutdown,
    go_on,
    is_flagged,
    lines,
    on_commit,
)
from tests.engine.dying_store import CountingStore, Died, DyingStore
from tests.engine.going_on import goes_on, results

KEY = SessionKey("s1", "alice")
TOO_LARGE = "5,000 can be stored: ask for less of it."


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://", max_message_bytes=5_000) as opened:
        yield opened


async def note_of(store: Store) -> dict[str, Any]:
    head = await store.messages.head(Scope.of("s1", user_id="alice", agent_id="cook"), (TURN,))
    return dict(head.states[TURN])


async def slot_of(store: Store) -> AgentState:
    slot = await store.states.get(KEY, "agent_state", AgentState)
    assert slot is not None
    return slot


def left_tasks(before: set[asyncio.Task[Any]]) -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]


# ── what cannot be stored ────────────────────────────────────────────────────


class Kitchen:
    """Three tools: one ends at once, two end together later, and what one of them gives is too large."""

    def __init__(self) -> None:
        self.is_done = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool
        async def light() -> str:
            """Light the stove."""
            return "lit"

        @tool
        async def cook() -> str:
            """Cook."""
            await self.is_done.wait()
            return "x" * 10_000

        @tool
        async def look(ctx: RuntimeContext) -> str:
            """Look."""
            await self.is_done.wait()
            ctx.agent_state.tasks_context.tasks.clear()
            return "fine"

        return [light, cook, look]


LIGHT_COOK_LOOK = [call("light", {}, id="c0"), call("cook", {}, id="c1"), call("look", {}, id="c2")]


async def pause_between_results(store: Store, kitchen: Kitchen, tools: list[Any], **options: Any) -> None:
    """Shut an agent down whose stream is not read on when the first of three results is stored."""
    cooking = agent(store, [LIGHT_COOK_LOOK], tools, **options)
    async with aclosing(cooking.stream("Cook", ALICE)) as events:
        async for event in events:
            if event.type == "TOOL_RESULT_END":
                break
        shutting = asyncio.create_task(cooking.shutdown(timeout=5))
        await asyncio.sleep(0)
        kitchen.is_done.set()
        assert await shutting
        with pytest.raises(AgentShuttingDown):
            await anext(events)


@pytest.mark.parametrize("save", ["step", "call"])
async def test_a_result_that_is_too_large_when_a_turn_is_paused_costs_that_result_only(store: Store, save: Any) -> None:
    kitchen = Kitchen()
    await pause_between_results(store, kitchen, kitchen.tools(), save=save)

    assert await is_flagged(store)
    found = results((await slot_of(store)).context)
    assert (found["c0"], found["c2"]) == (("success", "lit"), ("success", "fine"))
    assert (found["c1"][0], found["c1"][1][-len(TOO_LARGE) :]) == ("error", TOO_LARGE)
    await go_on(store, "Cook", ["Cooked."])


async def test_a_state_that_cannot_be_written_does_not_keep_a_turn_from_being_paused(store: Store) -> None:
    kitchen = Kitchen()

    @tool
    async def cook(ctx: RuntimeContext) -> str:
        """Cook."""
        await kitchen.is_done.wait()
        ctx.agent_state.extra["mine"] = object()
        return "cooked"

    light, _, look = kitchen.tools()
    await pause_between_results(store, kitchen, [light, cook, look])

    assert await is_flagged(store)
    assert {state for state, _ in results((await slot_of(store)).context).values()} == {"success"}
    await go_on(store, "Cook", ["Cooked."])


@pytest.mark.parametrize("save", ["step", "call"])
async def test_a_result_that_is_too_large_is_answered_and_the_turn_goes_on(store: Store, save: Any) -> None:
    kitchen = Kitchen()
    kitchen.is_done.set()
    model = ScriptedModel([LIGHT_COOK_LOOK, [call("look", {}, id="c3")], "Cooked."])
    cooking = ReActAgent("cook", model, store=store, tools=kitchen.tools(), save=save)

    assert (await cooking.call("Cook", ALICE)).text == "Cooked."

    assert results(model.requests[1].messages)["c1"][1].endswith(TOO_LARGE), "the model can ask for less"
    found = results(await goes_on(store))
    assert {id: state for id, (state, _) in found.items()} == {
        "c0": "success",
        "c1": "error",
        "c2": "success",
        "c3": "success",
    }


@pytest.mark.parametrize("save", ["step", "call"])
async def test_a_reply_that_is_too_large_costs_that_reply_only_and_its_calls_are_not_run(
    store: Store, save: Any
) -> None:
    oven = Oven()
    oven.is_done.set()
    baking = agent(store, [BAKE, ["y" * 6_000, call("bake", {"dish": "cake"}, id="c2")]], oven.tools(), save=save)
    with pytest.raises(MessageTooLarge):
        await baking.call("Bake", ALICE)

    assert oven.baked == ["bread"]
    assert await lines(store) == ["user: Bake", "assistant: ['c1']", "tool: c1 success bread is baked"]
    await goes_on(store)


@pytest.mark.parametrize("save", ["step", "call"])
async def test_input_that_is_too_large_is_refused_before_the_model_is_asked(store: Store, save: Any) -> None:
    with pytest.raises(MessageTooLarge):
        await agent(store, [], save=save).call("x" * 6_000, ALICE)

    assert await lines(store) == []
    await goes_on(store)


# ── a shutdown and a reader who does not come back ───────────────────────────


@pytest.mark.parametrize("stops_at", ["AGENT_START", "TEXT_BLOCK_DELTA", "AGENT_RESULT"])
async def test_another_agent_has_its_turn_once_an_unread_stream_is_paused(store: Store, stops_at: str) -> None:
    streaming, other = agent(store, ["First the dough."]), agent(store, ["Bread."])
    async with aclosing(streaming.stream("Bake", ALICE)) as events:
        async for event in events:
            if event.type == stops_at:
                break
        waiting = asyncio.create_task(other.call("And you?", ALICE))
        await asyncio.sleep(0)
        assert await streaming.shutdown(timeout=5)

        assert (await asyncio.wait_for(waiting, 5)).text == "Bread."

        stored = await lines(store)
        with suppress(AgentShuttingDown):
            async for event in events:
                assert event.type == "AGENT_END"
    assert await lines(store) == stored
    await goes_on(store)


# ── a shutdown and a cancellation ────────────────────────────────────────────


@pytest.mark.parametrize("is_cancelled_first", [False, True])
@pytest.mark.parametrize("during", ["tool", "model"])
async def test_a_call_that_is_cancelled_as_it_is_paused_ends_once(
    store: Store, during: str, is_cancelled_first: bool
) -> None:
    began = asyncio.Event()

    async def hang(_: Any = None) -> None:
        began.set()
        await asyncio.Event().wait()

    @tool
    async def bake(dish: str) -> str:
        """Bake."""
        await hang()
        return dish

    before = asyncio.all_tasks()
    baking = agent(store, [["I bake.", *(BAKE if during == "tool" else [hang])]], [bake])
    task = asyncio.create_task(baking.call("Bake", ALICE))
    await began.wait()
    if is_cancelled_first:
        task.cancel()
    shutting = asyncio.create_task(baking.shutdown(timeout=5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shutting

    assert left_tasks(before) == []
    assert (await note_of(store))["failed"] == "cancelled"
    assert (await slot_of(store)).context == (await baking.get_agent_state("alice", "s1")).context
    await goes_on(store)


@pytest.mark.parametrize("steps", range(8))
async def test_a_stream_that_is_closed_as_it_is_paused_ends_once(
    store: Store, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    disturbed: Any = CountingStore(store)
    kitchen = Kitchen()
    kitchen.is_done.set()
    streaming = agent(disturbed, [LIGHT_COOK_LOOK], kitchen.tools())
    events = streaming.stream("Cook", ALICE)
    async for event in events:
        if event.type == "MODEL_CALL_END":
            break
    shutting = asyncio.create_task(streaming.shutdown(timeout=5))
    for _ in range(steps):
        await asyncio.sleep(0)
    await events.aclose()
    assert await shutting

    assert left_tasks(before) == []
    assert disturbed.ends == 1
    assert not caplog.records
    await goes_on(store)


# ── a cancellation before the model is asked ─────────────────────────────────


class StartingStore(DyingStore):
    """Says when the first append begins, and stores it, before or after which the caller may be cancelled."""

    def __init__(self, store: Store, *, is_stored: bool) -> None:
        super().__init__(store)
        self._life.do = self._do
        self._is_stored = is_stored
        self.begins = asyncio.Event()

    async def _do(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name != "append" or self.begins.is_set():
            return await call()
        done = await call() if self._is_stored else None
        self.begins.set()
        await asyncio.sleep(0.01)
        return done or await call()


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_call_that_is_cancelled_while_its_input_is_stored_ends_as_any_cancelled_call(
    store: Store, is_stored: bool
) -> None:
    starting: Any = StartingStore(store, is_stored=is_stored)
    task = asyncio.create_task(agent(starting, []).call("Bake", ALICE))
    await starting.begins.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    note = await note_of(store)
    assert (note["open"], note["failed"]) == (None, "cancelled")
    assert [message.text for message in (await slot_of(store)).context] == ["Bake"]
    model = await go_on(store, "Bake", ["Bread."])
    assert [message.text for message in model.requests[0].messages] == ["Bake"]
    assert await lines(store) == ["user: Bake", "assistant: Bread."]


async def test_a_call_whose_input_cannot_be_stored_has_stored_nothing(store: Store) -> None:
    # The empty slot is written, the input is not.
    dying: Any = DyingStore(store, 1)
    with pytest.raises(Died) as failed:
        await agent(dying, []).call("Bake", ALICE)

    assert not hasattr(failed.value, "__notes__")
    assert await lines(store) == []


# ── another writer changes the slot of a turn that waits for the user ────────


@tool(external=True)
async def taste(what: str) -> str:
    """Have it tasted."""
    raise AssertionError(what)


async def save_as_another(store: Store, *messages: Any) -> None:
    state = await slot_of(store)
    state.extra.pop("leafward", None)
    state.context.extend(messages)
    await store.states.save(KEY, "agent_state", state)


TASTE = [call("look", {}, id="c1"), call("taste", {"what": "soup"}, id="c2")]


@pytest.mark.parametrize("policy", ["fail", "overwrite", "append_merge"])
async def test_a_turn_that_waits_for_a_result_goes_on_although_another_writer_changed_its_slot(
    store: Store, policy: Any
) -> None:
    @tool
    async def look() -> str:
        """Look, while another writer saves the slot."""
        await save_as_another(store, user("theirs"))
        return "fine"

    asking = agent(store, [TASTE, "Sweet."], [look, taste], conflict_policy=policy)
    with suppress(StaleState):
        await asking.call("Cook", ALICE)
    if policy == "fail":
        # What the call has stored is a branch.
        await goes_on(store)
        leaves = await asking.session("alice", "s1").get_leaves()
        await asking.session("alice", "s1").checkout(next(one.id for one in leaves if one.role == "tool"))

    assert (await asking.call(tool_result("c2", "sweet", "taste"), ALICE)).text == "Sweet."

    found = results((await asking.get_agent_state("alice", "s1")).context)
    assert found == {"c1": ("success", "fine"), "c2": ("success", "sweet")}


async def test_what_another_writer_saved_while_a_turn_was_paused_in_doubt_is_taken_over(store: Store) -> None:
    @tool(retry_safe=True)
    async def look() -> str:
        """Ask an agent that shuts down too, while another writer saves the slot."""
        await save_as_another(store, user("theirs"))
        await begin_shutdown(looking)
        raise AgentShuttingDown("helper")

    looking = agent(store, [TASTE[:1]], [look])
    with pytest.raises(StaleState):
        await looking.call("Cook", ALICE)
    assert (await note_of(store))["open"] == "running"

    state = await agent(store, []).get_agent_state("alice", "s1")

    assert "theirs" in [message.text for message in state.context]


async def test_a_question_stays_open_although_another_writer_changed_the_slot_while_it_was_asked_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**call("bake", {"dish": "bread"}, id="c1"), "state": "asking"}
    state = AgentState(session_id="s1", user_id="alice")
    state.context = [user("Bake", id="q1"), Message("assistant", [asked], id="a1")]
    await store.states.save(KEY, "agent_state", state)
    asking = agent(store, [], Oven().tools())
    on_commit(monkeypatch, 1, lambda: save_as_another(store))
    with pytest.raises(StaleState) as failed:
        await asking.call(None, ALICE)

    assert not hasattr(failed.value, "__notes__")
    assert (await note_of(store))["open"] == "asking"
    assert await lines(store) == ["user: Bake", "assistant: ['c1']"]
    reply = await asking.call(None, ALICE)
    assert ((reply.metadata or {})["agentscope_generate_reason"], reply.id) == ("PERMISSION_ASKING", "a1")


# ── calls without a result ───────────────────────────────────────────────────


async def test_an_external_call_of_a_lost_process_is_not_in_doubt_when_the_turn_is_interrupted(store: Store) -> None:
    # The empty slot, the input, the intent.
    dying: Any = DyingStore(store, 3, at_once=True)
    with suppress(Died):
        await agent(dying, [[TASTE[1]]], [taste]).call("Cook", ALICE)
    await dying.bury("s1", "alice")
    second = agent(store, [], [taste])
    async with aclosing(second.stream(None, ALICE)) as events:
        async for event in events:
            if event.type == "AGENT_START":
                assert await second.interrupt("alice", "s1")

    assert results(await goes_on(store)) == {"c2": ("interrupted", "Interrupted before it ran.")}


async def test_a_call_that_has_not_begun_says_so_although_an_earlier_one_had_its_id(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oven = Oven()
    oven.is_done.set()
    baking = agent(store, [BAKE, BAKE], oven.tools())
    task = asyncio.create_task(baking.call("Bake", ALICE))

    async def cancel() -> None:
        task.cancel()
        await asyncio.sleep(0)

    # The input, the first intent, its result, the second intent.
    on_commit(monkeypatch, 4, cancel)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert oven.baked == ["bread"]
    assert (await lines(store))[-1] == "tool: c1 interrupted Interrupted before it ran."


async def test_what_a_caller_does_to_a_reply_changes_nothing_of_the_conversation(store: Store) -> None:
    @tool(external=True)
    async def ask(what: str) -> str:
        """Have somebody asked."""
        raise AssertionError("an external tool is not run")

    model = ScriptedModel([[call("ask", {"what": "soup"}, id="c1")], "Done."])
    agent = ReActAgent("cook", model, store=store, tools=[ask])
    async with aclosing(agent.stream("Cook", ALICE)) as events:
        async for event in events:
            if event.type == "REQUIRE_EXTERNAL_EXECUTION":
                event.data[0]["name"] = "changed"
                assert event.message is not None
                event.message.parts[0]["name"] = "changed"
            if event.type == "AGENT_RESULT":
                assert event.message is not None
                event.message.parts[0]["name"] = "changed"

    await agent.call(Message.tool_result("c1", "soup", "ask"), ALICE)

    assert model.requests[-1].messages[1].parts[0]["name"] == "ask"


async def test_an_interrupted_turn_gives_its_last_reply_although_a_summary_covers_its_input(store: Store) -> None:
    @tool
    async def tidy(ctx: RuntimeContext) -> str:
        """Sum up what was said, and stop."""
        session = agent.session(ctx.user_id, ctx.session_id)
        history = await session.get_history()
        await session.add_compaction("A question.", history[0].id, history[-2].id)
        await agent.interrupt(ctx.user_id, ctx.session_id)
        return "tidied"

    agent = ReActAgent("cook", ScriptedModel(["One.", "Two.", [call("tidy", id="c1")]]), store=store, tools=[tidy])
    await agent.call("First", ALICE)
    await agent.call("Second", ALICE)

    reply = await agent.call("Third", ALICE)

    assert reply.parts[0]["id"] == "c1"
    assert (reply.metadata or {})[REASON] == "INTERRUPTED"
