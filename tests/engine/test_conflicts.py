"""A slot that another writer changes while a call runs, under each `conflict_policy`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    LeaseLost,
    Message,
    RuntimeContext,
    SessionKey,
    SessionManager,
    SessionNotFound,
    StaleState,
    tool,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.slots import written_by_java
from tests.engine.test_turn import ALICE, is_paired
from tests.isolation.test_matrix import BACKENDS, opened

KEY = SessionKey("s1", "alice")
Write = Callable[[Store], Awaitable[None]]


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with opened(request.param, tmp_path, request) as store:
        yield store


def said(messages: list[Message]) -> list[str]:
    return [message.text or str(message.parts[0].get("name")) for message in messages]


async def slot_of(store: Store) -> AgentState:
    found = await store.states.get(KEY, "agent_state", AgentState)
    assert found is not None
    return found


async def save_as_java(store: Store, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the slot as AgentScope does: it writes what it knows, in its own form, and no `leafward`."""
    state = await slot_of(store)
    document = await store.states.get(KEY, "agent_state")
    assert document is not None
    document.pop("leafward", None)
    document["context"] = written_by_java(state.context)
    change(document)
    await store.states.save(KEY, "agent_state", document)


def java_message(id: str, role: str, text: str) -> dict[str, Any]:
    made = written_by_java([Message(role, text, id=id)])[0]
    assert made["id"] == id
    return made


async def add_messages(store: Store) -> None:
    def change(document: dict[str, Any]) -> None:
        document["context"] += [java_message("o1", "user", "theirs"), java_message("o2", "assistant", "for them")]

    await save_as_java(store, change)


async def edit_a_message(store: Store) -> None:
    def change(document: dict[str, Any]) -> None:
        document["context"][0]["content"] = [{"type": "text", "text": "ONE"}]

    await save_as_java(store, change)


async def add_a_rule(store: Store) -> None:
    def change(document: dict[str, Any]) -> None:
        document["permission_context"]["mode"] = "accept_edits"
        document["context"] += [java_message("o1", "user", "theirs"), java_message("o2", "assistant", "for them")]

    await save_as_java(store, change)


async def begin(store: Store) -> None:
    await ReActAgent("cook", ScriptedModel(["1"]), store=store).call(user("one", id="u1"), ALICE)


def disturbed(store: Store, write: Write, **options: Any) -> ReActAgent:
    """Return an agent during whose tool another writer saves the slot."""

    @tool
    async def work() -> str:
        """Work while others write."""
        await write(store)
        return "worked"

    script = [[call("work", {}, id="c1")], "2"]
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[work], **options)


async def next_request(store: Store, **options: Any) -> list[str]:
    """Return what the model sees in the next call of a new agent."""
    model = ScriptedModel(["3"])
    await ReActAgent("cook", model, store=store, **options).call("three", ALICE)
    assert is_paired(list(model.requests[0].messages))
    return said(list(model.requests[0].messages))


async def loaded(store: Store, **options: Any) -> AgentState:
    return await ReActAgent("cook", ScriptedModel([]), store=store, **options).get_agent_state("alice", "s1")


async def branches(store: Store) -> list[list[str]]:
    """Return what each branch says."""
    session = ReActAgent("cook", ScriptedModel([]), store=store).session("alice", "s1")
    leaves = await session.get_leaves()
    return sorted([said(await session.get_raw_history(leaf_id=leaf.id)) for leaf in leaves])


OWN = ["two", "work", "work", "2"]
"""What the disturbed call adds: the input, a call and its result, the reply."""
THEIRS = ["theirs", "for them"]


# Fail.


async def test_fail_raises_and_leaves_the_slot_and_the_tree_as_they_are(store: Store) -> None:
    await begin(store)
    with pytest.raises(StaleState) as caught:
        await disturbed(store, add_messages).call("two", ALICE)

    assert not hasattr(caught.value, "__notes__")
    slot = await slot_of(store)
    assert said(slot.context) == ["one", "1", *THEIRS]
    assert "leafward" not in slot.extra
    assert await branches(store) == [["one", "1", *OWN]]


async def test_after_a_failure_the_next_call_goes_on_with_the_slot_and_the_call_is_a_branch(store: Store) -> None:
    await begin(store)
    with pytest.raises(StaleState):
        await disturbed(store, add_messages).call("two", ALICE)

    assert await next_request(store) == ["one", "1", *THEIRS, "three"]

    assert await branches(store) == [["one", "1", *THEIRS, "three", "3"], ["one", "1", *OWN]]
    assert said((await slot_of(store)).context) == ["one", "1", *THEIRS, "three", "3"]
    assert said((await loaded(store, slot="off")).context) == ["one", "1", *THEIRS, "three", "3"]


async def test_after_a_failure_no_turn_is_open_on_the_branch_of_the_other_writer(store: Store) -> None:
    await begin(store)
    with pytest.raises(StaleState):
        await disturbed(store, add_messages).call("two", ALICE)

    with pytest.raises(ValueError, match="no turn is open"):
        await ReActAgent("cook", ScriptedModel([]), store=store).call(None, ALICE)


async def test_after_a_failure_the_call_can_be_checked_out_and_is_complete(store: Store) -> None:
    await begin(store)
    one = disturbed(store, add_messages)
    with pytest.raises(StaleState):
        await one.call(user("two", id="u2"), ALICE)
    await next_request(store)
    session = one.session("alice", "s1")
    reply = next(message for message in await session.get_leaves() if message.text == "2")
    await session.checkout(reply.id)

    again = await ReActAgent("cook", ScriptedModel([]), store=store).call(user("two", id="u2"), ALICE)

    assert again.text == "2", "the stored reply; no model was asked"


async def test_after_a_failure_an_edit_is_an_update_and_a_new_rule_is_in_force(store: Store) -> None:
    async def write(store: Store) -> None:
        await edit_a_message(store)
        await add_a_rule(store)

    await begin(store)
    with pytest.raises(StaleState):
        await disturbed(store, write).call("two", ALICE)

    assert await next_request(store) == ["ONE", "1", *THEIRS, "three"]
    for options in ({}, {"slot": "off"}):
        assert (await loaded(store, **options)).permission_context.mode == "accept_edits"


async def test_a_failing_turn_reports_the_changed_slot_beside_its_error(store: Store) -> None:
    async def fail(request: Any) -> Any:
        await add_messages(store)
        raise RuntimeError("no such model")

    await begin(store)
    with pytest.raises(RuntimeError, match="no such model") as caught:
        await ReActAgent("cook", ScriptedModel(fail), store=store, retries=0).call("two", ALICE)

    assert "StaleState" in caught.value.__notes__[0]
    assert await next_request(store) == ["one", "1", *THEIRS, "three"]


# Overwrite.


async def test_overwrite_shows_this_call_and_keeps_the_other_messages_as_a_branch(store: Store) -> None:
    await begin(store)
    await disturbed(store, add_a_rule, conflict_policy="overwrite").call("two", ALICE)

    slot = await slot_of(store)
    assert said(slot.context) == ["one", "1", *OWN]
    assert slot.permission_context.mode == "default"
    assert await branches(store) == [["one", "1", *THEIRS], ["one", "1", *OWN]]
    assert await next_request(store) == ["one", "1", *OWN, "three"]
    assert said((await loaded(store, slot="off")).context) == ["one", "1", *OWN, "three", "3"]


async def test_overwrite_keeps_the_small_state_of_the_other_writer_on_its_branch(store: Store) -> None:
    await begin(store)
    one = disturbed(store, add_a_rule, conflict_policy="overwrite")
    await one.call("two", ALICE)

    await one.session("alice", "s1").checkout("o2")

    assert (await loaded(store)).permission_context.mode == "accept_edits"
    assert await next_request(store) == ["one", "1", *THEIRS, "three"]


async def test_overwrite_keeps_an_edited_message_as_a_branch(store: Store) -> None:
    await begin(store)
    await disturbed(store, edit_a_message, conflict_policy="overwrite").call("two", ALICE)

    assert said((await slot_of(store)).context) == ["one", "1", *OWN]
    assert ["one", "1", "ONE"] in [one[:3] for one in await branches(store)]
    assert await next_request(store) == ["one", "1", *OWN, "three"]


async def test_overwrite_of_a_first_call_keeps_the_other_messages_beside_it(store: Store) -> None:
    await disturbed(store, add_messages, conflict_policy="overwrite").call("two", ALICE)

    assert said((await slot_of(store)).context) == OWN
    assert await branches(store) == [THEIRS, OWN]
    assert await next_request(store) == [*OWN, "three"]


# Append and merge.


async def test_append_merge_shows_the_other_messages_then_this_calls(store: Store) -> None:
    await begin(store)
    await disturbed(store, add_messages, conflict_policy="append_merge").call("two", ALICE)

    assert said((await slot_of(store)).context) == ["one", "1", *THEIRS, *OWN]
    assert said((await loaded(store, slot="off")).context) == ["one", "1", *THEIRS, *OWN]
    assert await next_request(store) == ["one", "1", *THEIRS, *OWN, "three"]
    assert said((await loaded(store, slot="off")).context) == ["one", "1", *THEIRS, *OWN, "three", "3"]
    assert ["one", "1", *THEIRS] in await branches(store)


async def test_append_merge_takes_over_edits_and_small_state_that_the_call_did_not_change(store: Store) -> None:
    async def write(store: Store) -> None:
        await edit_a_message(store)
        await add_a_rule(store)

    await begin(store)
    await disturbed(store, write, conflict_policy="append_merge").call("two", ALICE)

    assert await next_request(store) == ["ONE", "1", *THEIRS, *OWN, "three"]
    for options in ({}, {"slot": "off"}):
        assert (await loaded(store, **options)).permission_context.mode == "accept_edits"


async def test_append_merge_keeps_what_the_call_itself_changed(store: Store) -> None:
    @tool
    async def work(ctx: RuntimeContext) -> str:
        """Change the state while others write."""
        ctx.agent_state.summary = "ours"
        ctx.agent_state.context[1] = Message("assistant", "I", id=ctx.agent_state.context[1].id)

        def change(document: dict[str, Any]) -> None:
            document["summary"] = "theirs"

        await add_a_rule(store)
        await save_as_java(store, change)
        return "worked"

    await begin(store)
    model = ScriptedModel([[call("work", {}, id="c1")], "2"])
    await ReActAgent("cook", model, store=store, tools=[work], conflict_policy="append_merge").call("two", ALICE)

    for options in ({}, {"slot": "off"}):
        state = await loaded(store, **options)
        assert (state.summary, state.permission_context.mode) == ("ours", "accept_edits")
        assert said(state.context) == ["one", "I", *THEIRS, *OWN]


async def test_append_merge_of_a_first_call_shows_both(store: Store) -> None:
    await disturbed(store, add_messages, conflict_policy="append_merge").call("two", ALICE)

    assert said((await slot_of(store)).context) == [*THEIRS, *OWN]
    assert await next_request(store) == [*THEIRS, *OWN, "three"]


async def test_append_merge_leaves_no_open_call_of_the_other_writer(store: Store) -> None:
    async def ask(store: Store) -> None:
        def change(document: dict[str, Any]) -> None:
            asks = Message("assistant", [call("buy", {"what": "salt"}, id="c9")], id="o1")
            document["context"] += written_by_java([asks])

        await save_as_java(store, change)

    await begin(store)
    await disturbed(store, ask, conflict_policy="append_merge").call("two", ALICE)

    assert is_paired((await slot_of(store)).context)
    assert await next_request(store) == ["one", "1", "buy", "buy", *OWN, "three"]


async def test_two_writers_after_each_other_are_both_shown(store: Store) -> None:
    class Busy:
        """Writes the slot once more, right before the agent reads it again."""

        def __init__(self) -> None:
            self.left = 2

        async def __call__(self, store: Store) -> None:
            self.left -= 1
            number = self.left

            def change(document: dict[str, Any]) -> None:
                document["context"].append(java_message(f"o{number}", "user", f"theirs {number}"))

            await save_as_java(store, change)

    busy = Busy()
    await begin(store)
    watched: Any = _Watched(store, lambda: busy(store) if busy.left else None)
    await disturbed(watched, busy, conflict_policy="append_merge").call("two", ALICE)

    assert said((await slot_of(store)).context) == ["one", "1", "theirs 1", "theirs 0", *OWN]


class _Watched:
    """A store that does something before a slot is saved."""

    def __init__(self, inner: Any, before: Callable[[], Any]) -> None:
        self._inner = inner
        self._before = before

    @property
    def states(self) -> Any:
        return _Watched(self._inner.states, self._before)

    def with_lease(self, lease: Any) -> Any:
        return _Watched(self._inner.with_lease(lease), self._before)

    async def save_if_version(self, *args: Any) -> Any:
        is_again = args[-1] > 2
        if is_again and (write := self._before()) is not None:
            await write
        return await self._inner.save_if_version(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# Under each of them.

POLICIES = ["fail", "overwrite", "append_merge"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_lost_lease_is_refused_under_every_policy(store: Store, policy: Any) -> None:
    async def write(store: Store) -> None:
        await add_messages(store)
        holder = await store.leases.holder("s1", "alice")
        assert holder is not None
        await store.leases.release("s1", "alice", token=holder.token)

    await begin(store)
    with pytest.raises(LeaseLost):
        await disturbed(store, write, conflict_policy=policy).call("two", ALICE)

    assert said((await slot_of(store)).context) == ["one", "1", *THEIRS]
    assert await branches(store) == [["one", "1", "two", "work"]]


@pytest.mark.parametrize("policy", ["overwrite", "append_merge"])
async def test_a_session_that_is_deleted_in_the_middle_stays_deleted(store: Store, policy: Any) -> None:
    async def write(store: Store) -> None:
        await SessionManager(store, user_id="alice", agent_id="cook").delete("s1")
        await store.states.delete(KEY)

    await begin(store)
    with pytest.raises(SessionNotFound):
        await disturbed(store, write, conflict_policy=policy).call("two", ALICE)

    assert not await store.states.exists(KEY)


async def test_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="conflict_policy is one of"):
        ReActAgent("cook", ScriptedModel([]), conflict_policy="merge")  # pyright: ignore[reportArgumentType]
