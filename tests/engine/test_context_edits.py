"""A tool that changes `ctx.agent_state.context`: what the model sees next, what is stored, what the next call loads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from leafward import Message, RuntimeContext, Session, SessionKey, open_store, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine import ModelError, ModelEvent, ModelRequest, TextDelta
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates
from tests.engine.test_turn import ALICE, is_paired, store

__all__ = ["store"]

Edit = Callable[[list[Message]], None]
BEFORE = ["one", "1", "two", "2"]
"""What two turns have said before a third one edits it."""
NEW = ["three", "edit", "done"]
"""The third turn: the input, the call and its result."""


def said(messages: list[Message]) -> list[str]:
    """Return what messages say: their texts, the name of a tool, or what a tool returned."""
    found: list[str] = []
    for message in messages:
        part = message.parts[0]
        text = part["output"][0]["text"] if part["type"] == "tool_result" else message.text or part["name"]
        # A result whose call was removed is sent to the model as a text that says so first.
        found.append(text.splitlines()[-1])
    return found


def asked(shown: list[str]) -> list[str]:
    """Return what a model is asked where a context shows this: a result stands directly below its call."""
    found = list(shown)
    for row, text in enumerate(found):
        if found[row - 1 : row] == ["edit"] and text != "done":
            found[row : row + 2] = reversed(found[row : row + 2])
    return found


async def talk(store: Any) -> None:
    one = ReActAgent("cook", ScriptedModel(["1", "2"]), store=store)
    await one.call(user("one", id="u1"), ALICE)
    await one.call(user("two", id="u2"), ALICE)


def editing(store: Any, *edits: Edit, **options: Any) -> tuple[ReActAgent, ScriptedModel]:
    """Return an agent whose tool makes an edit each time it is called."""
    left = list(edits)

    @tool
    async def edit(ctx: RuntimeContext) -> str:
        """Edit the context."""
        left.pop(0)(ctx.agent_state.context)
        return "done"

    model = ScriptedModel([*([call("edit", {}, id=f"c{n}")] for n in range(len(edits))), "3"])
    return ReActAgent("cook", model, store=store, tools=[edit], **options), model


async def loaded(store: Any, **options: Any) -> list[str]:
    """Return what a new agent finds."""
    return said(
        (await ReActAgent("cook", ScriptedModel([]), store=store, **options).get_agent_state("alice", "s1")).context
    )


async def in_tree(store: Store) -> list[str]:
    return said(await ReActAgent("cook", ScriptedModel([]), store=store).session("alice", "s1").get_raw_history())


def append(context: list[Message]) -> None:
    context.append(user("and more"))


def replace(context: list[Message]) -> None:
    context[0] = user("ONE", id=context[0].id)


def change(context: list[Message]) -> None:
    context[0].parts[0]["text"] = "ONE"


def remove(context: list[Message]) -> None:
    del context[1]


def cut(context: list[Message]) -> None:
    del context[:2]


def reorder(context: list[Message]) -> None:
    context[0], context[2] = context[2], context[0]


def insert(context: list[Message]) -> None:
    context.insert(0, user("first of all"))


CASES: dict[str, tuple[Edit, list[str], list[str]]] = {
    # The edit, what the context shows when the tool has ended, what the tree holds.
    "append": (append, [*BEFORE, "three", "edit", "and more", "done"], [*BEFORE, "three", "edit", "and more", "done"]),
    "replace": (replace, ["ONE", *BEFORE[1:], *NEW], ["ONE", *BEFORE[1:], *NEW]),
    "change": (change, ["ONE", *BEFORE[1:], *NEW], ["ONE", *BEFORE[1:], *NEW]),
    "remove": (remove, ["one", "two", "2", *NEW], [*BEFORE, *NEW]),
    "cut": (cut, ["two", "2", *NEW], [*BEFORE, *NEW]),
    "reorder": (reorder, ["two", "1", "one", "2", *NEW], [*BEFORE, *NEW]),
    "insert": (insert, ["first of all", *BEFORE, *NEW], [*BEFORE, *NEW]),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_edit_is_seen_by_the_model_by_the_slot_and_by_the_next_call(store: Store, case: str) -> None:
    edit, shown, stored = CASES[case]
    await talk(store)
    one, model = editing(store, edit)

    assert (await one.call("three", ALICE)).text == "3"

    assert said(list(model.requests[1].messages)) == asked(shown)
    assert await in_tree(store) == [*stored, "3"]
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert said(slot.context) == [*shown, "3"]
    assert await loaded(store) == [*shown, "3"]
    assert await loaded(store, slot="off") == [*shown, "3"], "the tree alone says the same"

    model = ScriptedModel(["4"])
    await ReActAgent("cook", model, store=store).call("four", ALICE)

    assert said(list(model.requests[0].messages)) == asked([*shown, "3", "four"])
    assert await loaded(store, slot="off") == [*shown, "3", "four", "4"]
    assert await in_tree(store) == [*stored, "3", "four", "4"]


@pytest.mark.parametrize("first", CASES)
@pytest.mark.parametrize("second", CASES)
async def test_two_edits_of_one_turn_and_one_of_the_next_add_up(first: str, second: str) -> None:
    async with open_store("memory://") as store:
        await talk(store)
        one, model = editing(store, CASES[first][0], CASES[second][0])
        await one.call("three", ALICE)
        await _is_stored(store, said(list(model.requests[2].messages)))

        again, model = editing(store, CASES[first][0])
        await again.call("four", ALICE)
        await _is_stored(store, said(list(model.requests[1].messages)))


async def _is_stored(store: Store, request: list[str]) -> None:
    assert asked(await loaded(store)) == [*request, "3"]
    assert await loaded(store, slot="off") == await loaded(store)


@pytest.mark.parametrize("case", CASES)
async def test_an_edit_is_kept_in_a_custom_store(case: str) -> None:
    edit, shown, _ = CASES[case]
    states = PlainStates()
    await talk(states)
    one, model = editing(states, edit)

    await one.call("three", ALICE)

    assert said(list(model.requests[1].messages)) == asked(shown)
    assert await loaded(states) == [*shown, "3"]


@pytest.mark.parametrize("case", CASES)
async def test_an_edit_is_kept_when_only_whole_turns_are_stored(store: Store, case: str) -> None:
    edit, shown, stored = CASES[case]
    await talk(store)
    one, model = editing(store, edit, save="call")

    await one.call("three", ALICE)

    assert said(list(model.requests[1].messages)) == asked(shown)
    assert await loaded(store, slot="off") == [*shown, "3"]
    assert await in_tree(store) == [*stored, "3"]


def spoil(context: list[Message]) -> None:
    context[0].parts[0]["text"] = object()


def swell(context: list[Message]) -> None:
    context[0].parts[0]["text"] = "x" * 9_000_000


def tie(context: list[Message]) -> None:
    part = context[0].parts[0]
    part["itself"] = part


REFUSED: dict[str, tuple[Edit, str]] = {
    "changed": (spoil, "changed to what cannot be stored"),
    "endless": (tie, "changed to what cannot be stored: a message nests values deeper than"),
    "system": (lambda context: context.append(Message("system", "Obey.")), "role 'system'"),
    "system in front": (lambda context: context.insert(0, Message("system", "Obey.")), "role 'system'"),
    "same id": (lambda context: context.append(user("another", id="u1")), "two messages with the id 'u1'"),
    "no message": (lambda context: context.append(cast(Any, {"role": "user"})), "not a message"),
}


@pytest.mark.parametrize("kind", ["step", "call"])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_a_context_may_not_hold_fails_the_call_and_is_left_out(store: Store, case: str, kind: Any) -> None:
    edit, reason = REFUSED[case]
    await talk(store)
    one, _ = editing(store, edit, save=kind)

    with pytest.raises(ValueError, match=reason) as caught:
        await one.call("three", ALICE)

    assert not hasattr(caught.value, "__notes__"), "the turn was stored"
    assert await in_tree(store) == [*BEFORE, *NEW], "what the tool returned is stored"
    assert await loaded(store) == [*BEFORE, *NEW]
    model = ScriptedModel(["3"])
    assert (await ReActAgent("cook", model, store=store).call("three", ALICE)).text == "3"
    assert said(list(model.requests[0].messages)) == [*BEFORE, *NEW]
    assert await in_tree(store) == [*BEFORE, *NEW, "3"]


@pytest.mark.parametrize("case", REFUSED)
async def test_a_custom_store_refuses_the_same(case: str) -> None:
    edit, reason = REFUSED[case]
    states = PlainStates()
    await talk(states)
    one, _ = editing(states, edit)

    with pytest.raises(ValueError, match=reason):
        await one.call("three", ALICE)

    assert await loaded(states) == [*BEFORE, *NEW]


async def test_what_a_tool_appends_while_another_result_is_being_stored_is_not_lost(store: Store) -> None:
    written = asyncio.Event()

    class Slow:
        """Lets a tool go on in the middle of a commit."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def fenced(self, lease: Any) -> Any:
            return Slow(self._inner.fenced(lease))

        @property
        def messages(self) -> Any:
            return Slow(self._inner.messages)

        async def append(self, scope: Any, drafts: Any, *rest: Any, **options: Any) -> Any:
            if any(draft.message.role == "tool" for draft in drafts):
                written.set()
                await asyncio.sleep(0.05)
            return await self._inner.append(scope, drafts, *rest, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    @tool
    async def fast() -> str:
        """End at once."""
        return "fast"

    @tool
    async def slow(ctx: RuntimeContext) -> str:
        """Append something while the other result is stored."""
        await written.wait()
        ctx.agent_state.context.append(user("meanwhile"))
        await asyncio.sleep(0.1)
        return "slow"

    model = ScriptedModel([[call("slow", {}, id="c1"), call("fast", {}, id="c2")], "3"])
    slowed: Any = Slow(store)
    await ReActAgent("cook", model, store=slowed, tools=[fast, slow]).call("three", ALICE)

    assert sorted(await in_tree(store)) == sorted(["three", "slow", "fast", "meanwhile", "slow", "3"])
    assert await loaded(store, slot="off") == await loaded(store)
    assert is_paired(list(model.requests[1].messages))


async def test_small_state_that_a_tool_changed_is_stored_with_its_result(store: Store) -> None:
    @tool
    async def note(ctx: RuntimeContext) -> str:
        """Note something, and drop the first message."""
        ctx.agent_state.summary = "noted"
        del ctx.agent_state.context[0]
        return "done"

    await talk(store)
    model = ScriptedModel([[call("note", {})], RuntimeError("gone")])
    with pytest.raises(RuntimeError):
        await ReActAgent("cook", model, store=store, tools=[note], retries=0).call("three", ALICE)

    state = await ReActAgent("cook", ScriptedModel([]), store=store, slot="off").get_agent_state("alice", "s1")
    assert state.summary == "noted"
    assert said(state.context)[0] == "1"


async def test_a_change_that_is_too_large_is_taken_back(store: Store) -> None:
    await talk(store)
    one, _ = editing(store, swell)

    with pytest.raises(ValueError, match="taken back") as caught:
        await one.call("three", ALICE)

    assert not hasattr(caught.value, "__notes__"), "the turn was stored"
    assert await in_tree(store) == [*BEFORE, *NEW]
    assert await loaded(store) == [*BEFORE, *NEW]


class Careless:
    """Changes all that it is asked, fails once, and answers then."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        messages = cast(list[Message], request.messages)
        self.asked.append(said(messages))
        for message in messages:
            message.parts[0]["text"] = "REDACTED"
            message.body["more"] = "REDACTED"
            if message.metadata is not None:
                message.metadata["more"] = "REDACTED"
        messages.clear()
        if len(self.asked) == 1:
            raise ModelError("busy", temporary=True, retry_after=0)
        yield TextDelta("3")


async def test_what_a_model_does_to_its_request_changes_nothing(store: Store) -> None:
    await talk(store)
    model = Careless()
    one = ReActAgent("cook", model, store=store)

    assert (await one.call(user("three", metadata={"from": "a form"}), ALICE)).text == "3"
    await one.call("four", ALICE)

    assert model.asked == [[*BEFORE, "three"], [*BEFORE, "three"], [*BEFORE, "three", "3", "four"]]
    state = await one.get_agent_state("alice", "s1")
    history = await one.session("alice", "s1").get_raw_history()
    assert [message.body for message in state.context] == [message.body for message in history]
    assert "REDACTED" not in str([message.body for message in history])


async def test_what_a_reader_of_the_stream_does_to_a_result_changes_nothing(store: Store) -> None:
    one, model = editing(store, lambda _: None)

    async for event in one.stream("one", ALICE):
        if event.message is not None and event.type == "TOOL_RESULT_END":
            event.message.parts[0]["output"] = []

    assert said(list(model.requests[1].messages)) == ["one", "edit", "done"]
    assert await in_tree(store) == ["one", "edit", "done", "3"]


@pytest.mark.parametrize("is_read", [False, True])
async def test_what_a_tool_appends_from_a_store_and_changes_later_is_stored(store: Store, is_read: bool) -> None:
    other = Session(store, "other")
    await other.append_message(user("Read elsewhere.", id="there"))

    @tool
    async def take(ctx: RuntimeContext) -> str:
        """Take over a message."""
        (message,) = await other.get_history()
        assert not is_read or message.parts
        ctx.agent_state.context.append(message)
        return "taken"

    @tool
    def change(ctx: RuntimeContext) -> str:
        """Change it."""
        (message,) = [message for message in ctx.agent_state.context if message.id == "there"]
        message.parts[0]["text"] = "Changed."
        return "changed"

    script = [[call("take", {}, id="c1")], [call("change", {}, id="c2")], "Done."]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[take, change])
    await agent.call("Take it", ALICE)

    history = await agent.session("alice", "s1").get_raw_history()
    assert [message.text for message in history if message.id == "there"] == ["Changed."]


async def test_what_a_tool_appends_while_another_result_turns_out_too_large_is_not_lost() -> None:
    async with open_store("memory://", max_message_bytes=2_000) as store:
        written = asyncio.Event()
        contexts: list[Any] = []
        update = type(store.messages).update

        async def updated(self: Any, *args: Any, **options: Any) -> Any:
            # The edit is stored before the result, which is refused then.
            contexts[0].append(user("meanwhile"))
            written.set()
            return await update(self, *args, **options)

        @tool
        async def large() -> str:
            """End at once."""
            await asyncio.sleep(0)
            return "x" * 3_000

        @tool
        async def slow(ctx: RuntimeContext) -> str:
            """Edit the first message, and lend the context."""
            contexts.append(ctx.agent_state.context)
            contexts[0][0].parts[0]["text"] = "edited"
            await written.wait()
            return "slow"

        model = ScriptedModel([[call("slow", {}, id="c1"), call("large", {}, id="c2")], "3"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(store.messages), "update", updated)
            await ReActAgent("cook", model, store=store, tools=[large, slow]).call("three", ALICE)

        told = await in_tree(store)
        assert (told[0], told.count("meanwhile")) == ("edited", 1)


async def test_what_a_tool_edits_while_another_process_changes_the_session_is_not_lost() -> None:
    async with open_store("memory://") as store:
        written = asyncio.Event()
        states: list[Any] = []
        append = type(store.messages).append

        async def appended(self: Any, scope: Any, drafts: Any, *rest: Any, **options: Any) -> Any:
            is_first = any(draft.message.role == "tool" for draft in drafts) and not written.is_set()
            if is_first:
                written.set()
                session = Session(store, "s1", user_id="alice", agent_id="cook")
                (first, *_) = await session.get_raw_history()
                await session.add_compaction("In short.", first.id, first.id)
            done = await append(self, scope, drafts, *rest, **options)
            if is_first:
                states[0].context[1].parts.append({"type": "text", "text": "edited"})
            return done

        @tool
        async def fast() -> str:
            """End at once."""
            await asyncio.sleep(0)
            return "fast"

        @tool
        async def slow(ctx: RuntimeContext) -> str:
            """Lend the state."""
            states.append(ctx.agent_state)
            await written.wait()
            await asyncio.sleep(0.05)
            return "slow"

        model = ScriptedModel([[call("slow", {}, id="c1"), call("fast", {}, id="c2")], "3"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(store.messages), "append", appended)
            await ReActAgent("cook", model, store=store, tools=[fast, slow]).call("three", ALICE)

        assert written.is_set()
        history = await Session(store, "s1", user_id="alice", agent_id="cook").get_raw_history()
        assert history[1].parts[-1] == {"type": "text", "text": "edited"}
