"""Hooks: when they are called, in which order, what they change, and what becomes of their errors and waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from leafward import AgentShuttingDown, ConfigurationError, Message, RuntimeContext, SessionKey, open_store, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine import (
    ActingChunkEvent,
    AgentEvent,
    ErrorEvent,
    Hook,
    HookEvent,
    ModelError,
    ModelRequest,
    Outcome,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
    PreSummaryEvent,
    ReActAgent,
    ReasoningChunkEvent,
    SummaryChunkEvent,
)
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = call("add", {"a": 1, "b": 2}, id="c1")


class On(Hook):
    """A hook that does one thing at one kind of event, and notes all that it is called for."""

    def __init__(
        self, kind: type[HookEvent] | None = None, do: Callable[[Any], Any] | None = None, priority: int = 100
    ):
        self.kind = kind
        self.do = do
        self.priority = priority
        self.seen: list[HookEvent] = []

    async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> HookEvent | None:
        self.seen.append(event)
        if self.do is not None and type(event) is self.kind:
            found = self.do(event)
            return await found if asyncio.iscoroutine(found) else found
        return None

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.seen]


def agent(store: Any, script: Any, *hooks: Hook, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, hooks=hooks, **{"tools": [add], **options})


def requests(of: ReActAgent) -> list[ModelRequest]:
    assert isinstance(of._answers.setup.model, ScriptedModel)
    return of._answers.setup.model.requests


def reason(reply: Message) -> str | None:
    return (reply.metadata or {}).get("agentscope_generate_reason")


async def texts(of: ReActAgent) -> list[str]:
    return [message.text for message in await of.session("alice", "s1").get_raw_history()]


async def goes_on(store: Store) -> None:
    reply = await ReActAgent("cook", ScriptedModel(["Still here."]), store=store, tools=[add]).call("And?", ALICE)
    assert reply.text == "Still here."


async def saved(store: Store) -> AgentState:
    """Return what the slot of the session holds."""
    state = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert state is not None
    return state


# Order.


async def test_a_call_has_its_events_in_agentscopes_order(store: Store) -> None:
    hook = On()
    cook = agent(store, [["Let me see.", ADD], "Three."], hook)

    await cook.call("Add.", ALICE)

    assert hook.names == [
        "PreCallEvent",
        "PreReasoningEvent",
        "ReasoningChunkEvent",
        "ReasoningChunkEvent",
        "PostReasoningEvent",
        "PreActingEvent",
        "ActingChunkEvent",
        "PostActingEvent",
        "PreReasoningEvent",
        "ReasoningChunkEvent",
        "PostReasoningEvent",
        "PostCallEvent",
    ]
    pre_call, pre_reasoning, chunk, _, post_reasoning, pre_acting, acting, post_acting, *_, post_call = hook.seen
    assert isinstance(pre_call, PreCallEvent)
    assert [message.text for message in pre_call.messages] == ["Add."]
    assert isinstance(pre_reasoning, PreReasoningEvent)
    assert pre_reasoning.request.messages[-1].text == "Add."
    assert isinstance(chunk, ReasoningChunkEvent)
    assert (chunk.event.type, chunk.event.text) == ("TEXT_BLOCK_DELTA", "Let me see.")
    assert isinstance(post_reasoning, PostReasoningEvent)
    assert post_reasoning.message.parts[1]["id"] == "c1"
    assert isinstance(pre_acting, PreActingEvent)
    assert (pre_acting.request.name, dict(pre_acting.request.arguments)) == ("add", {"a": 1, "b": 2})
    assert isinstance(acting, ActingChunkEvent)
    assert acting.text == "3"
    assert isinstance(post_acting, PostActingEvent)
    assert (post_acting.request.call_id, post_acting.outcome.text) == ("c1", "3")
    assert isinstance(post_call, PostCallEvent)
    assert post_call.message.text == "Three."


async def test_the_last_words_of_a_turn_without_steps_have_events_of_their_own(store: Store) -> None:
    hook = On(PostSummaryEvent, lambda event: event.replace(message=replaced(event.message, "That is all.")))
    cook = agent(store, [[ADD], "Not done."], hook, max_iterations=1)

    reply = await cook.call("Add.", ALICE)

    assert reply.text == "That is all."
    assert reason(reply) == "MAX_ITERATIONS"
    kinds = [PreSummaryEvent, SummaryChunkEvent, PostSummaryEvent, PostCallEvent]
    assert hook.names[-4:] == [kind.__name__ for kind in kinds]


async def test_hooks_are_called_in_the_order_of_their_priorities_and_each_gets_what_the_one_before_returned(
    store: Store,
) -> None:
    def adding(word: str) -> Callable[[PreCallEvent], HookEvent]:
        return lambda event: event.replace(messages=[user(f"{event.messages[0].text} {word}")])

    late = On(PreCallEvent, adding("late"), priority=900)
    first, second = On(PreCallEvent, adding("first")), On(PreCallEvent, adding("second"))
    early = On(PreCallEvent, adding("early"), priority=5)
    cook = agent(store, ["Hi."], late, first, second, early)

    await cook.call("Hi", ALICE)

    assert await texts(cook) == ["Hi early first second late", "Hi."]
    assert cook.hooks == [late, first, second, early]


async def test_a_hook_that_is_added_or_removed_counts_from_the_next_call_on(store: Store) -> None:
    hook = On()
    cook = agent(store, ["One.", "Two.", "Three."])
    await cook.call("Hi", ALICE)
    cook.hooks.append(hook)
    await cook.call("Hi again", ALICE)
    seen = len(hook.seen)
    cook.hooks.remove(hook)
    await cook.call("Bye", ALICE)

    assert seen == len(hook.seen) == 5


async def test_a_hook_is_called_for_the_events_that_it_wants(store: Store) -> None:
    hook = On()
    hook.events = (PreActingEvent, PostCallEvent)
    cook = agent(store, [["Let me see.", ADD], "Three."], hook)

    await cook.call("Add.", ALICE)

    assert hook.names == ["PreActingEvent", "PostCallEvent"]


async def test_a_hook_need_not_be_async(store: Store) -> None:
    class Polite(Hook):
        def on_event(self, event: HookEvent, ctx: RuntimeContext) -> HookEvent | None:
            if isinstance(event, PreReasoningEvent):
                return event.replace(request=replace(event.request, system=f"Be polite to {ctx.user_id}."))
            return None

    cook = agent(store, ["Hi."], Polite())
    await cook.call("Hi", ALICE)

    assert requests(cook)[0].system == "Be polite to alice."


# Changes.


def replaced(message: Message, text: str) -> Message:
    fields = message.to_dict()
    return Message.from_dict({**fields, "parts": [{"type": "text", "text": text}]})


async def test_hooks_change_the_reply_and_what_became_of_a_tool_before_they_are_stored(store: Store) -> None:
    outcome = Outcome([{"type": "text", "text": "about three"}])
    reply = On(
        PostReasoningEvent,
        lambda event: event.replace(message=replaced(event.message, "3!")) if event.message.text else None,
    )
    hooks = On(PostActingEvent, lambda event: event.replace(outcome=outcome)), reply
    cook = agent(store, [[ADD], "Three."], *hooks)

    assert (await cook.call("Add.", ALICE)).text == "3!"

    history = await cook.session("alice", "s1").get_raw_history()
    assert history[-1].text == "3!"
    assert history[2].parts[0]["output"][0]["text"] == "about three"


async def test_calls_that_a_hook_adds_get_ids_of_their_own_as_those_of_a_model_do(store: Store) -> None:
    sent = [call("add", {"a": number, "b": 0}, id=id) for number, id in enumerate(["c", "c", "c#2", "d"])]

    def add_all(event: PostReasoningEvent) -> HookEvent | None:
        if not event.message.text.startswith("Add"):
            return None
        return event.replace(message=Message.from_dict({**event.message.to_dict(), "parts": sent}))

    async def answered(session_id: str, script: list[Any], *hooks: Hook) -> dict[str, str]:
        cook = agent(store, script, *hooks)
        await cook.call("Add.", RuntimeContext("alice", session_id))
        history = await cook.session("alice", session_id).get_raw_history()
        results = [part for one in history if one.role == "tool" for part in one.parts]
        return {part["id"]: part["output"][0]["text"] for part in results}

    by_hook = await answered("s1", ["Adding.", "Done."], On(PostReasoningEvent, add_all))
    assert by_hook == {"c": "0", "c#2": "1", "c#2#2": "2", "d": "3"}
    assert await answered("s2", [sent, "Done."]) == by_hook


async def test_a_hook_changes_the_arguments_of_a_tool_and_not_the_tool(store: Store) -> None:
    def more(event: PreActingEvent) -> HookEvent:
        return event.replace(request=replace(event.request, arguments={"a": 1, "b": 40}))

    cook = agent(store, [[ADD], "Done."], On(PreActingEvent, more))
    await cook.call("Add.", ALICE)
    assert requests(cook)[1].messages[-1].parts[0]["output"][0]["text"] == "41"

    def other(event: PreActingEvent) -> HookEvent:
        return event.replace(request=replace(event.request, name="rm"))

    with pytest.raises(ConfigurationError, match="was changed into 'c1' of 'rm'"):
        await agent(store, [[ADD], "Done."], On(PreActingEvent, other)).call("Add.", ALICE)
    await goes_on(store)


@pytest.mark.parametrize(
    ("kind", "found", "why"),
    [
        (PreCallEvent, "a text", "returned 'a text': return None, or a changed event"),
        (PreCallEvent, PostCallEvent(user("x")), "returned PostCallEvent"),
        (ReasoningChunkEvent, ReasoningChunkEvent(AgentEvent("CUSTOM")), "nothing of it can be changed"),
    ],
)
async def test_what_a_hook_may_not_return_is_an_error(store: Store, kind: Any, found: Any, why: str) -> None:
    class Odd(Hook):
        def on_event(self, event: HookEvent, ctx: RuntimeContext) -> Any:
            return found if type(event) is kind else None

    with pytest.raises(ConfigurationError, match=why):
        await agent(store, ["Hi."], Odd()).call("Hi", ALICE)
    await goes_on(store)


@pytest.mark.parametrize("wrong", [Hook(), Hook, None])
def test_hooks_that_are_no_list_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="hooks are given as a list, not as"):
        ReActAgent("cook", ScriptedModel([]), store="memory://", hooks=wrong)


@pytest.mark.parametrize("wrong", [Hook, "hook", None])
async def test_what_is_not_a_hook_is_refused(store: Store, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="hooks are objects of subclasses of Hook"):
        agent(store, [], wrong)
    cook = agent(store, ["Hi."])
    cook.hooks.append(wrong)
    with pytest.raises(ConfigurationError, match="hooks are objects of subclasses of Hook"):
        await cook.call("Hi", ALICE)


# Errors.


def boom(_: HookEvent) -> None:
    raise ValueError("boom")


@pytest.mark.parametrize(
    "kind", [PreCallEvent, PreReasoningEvent, ReasoningChunkEvent, PostReasoningEvent, PreActingEvent, PostActingEvent]
)
async def test_a_hook_that_raises_fails_the_call_and_the_session_goes_on(store: Store, kind: type[HookEvent]) -> None:
    after = On(priority=900)

    with pytest.raises(ValueError, match="boom"):
        await agent(store, [[ADD], "Three."], On(kind, boom), after).call("Add.", ALICE)

    (error,) = [event.error for event in after.seen if isinstance(event, ErrorEvent)]
    assert str(error) == "boom"
    await goes_on(store)


async def test_a_hook_that_raises_at_the_end_masks_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    after = On(priority=900)
    cook = agent(store, ["Hi.", ModelError("no power")], On(PostCallEvent, boom), On(ErrorEvent, boom), after)

    assert (await cook.call("Hi", ALICE)).text == "Hi."
    with pytest.raises(ModelError, match="no power"):
        await cook.call("Hi again", ALICE)

    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "On failed in PostCallEvent",
        "On failed in ErrorEvent",
    ]
    assert after.names.count("PostCallEvent") == after.names.count("ErrorEvent") == 1
    await goes_on(store)


async def test_input_that_is_refused_is_reported_as_an_error(store: Store) -> None:
    hook = On()

    with pytest.raises(ValueError, match="no turn is open"):
        await agent(store, [], hook).call(None, ALICE)

    assert hook.names == ["PreCallEvent", "ErrorEvent"]


# The state that is saved.


class Counts(Hook):
    """Counts calls in the summary of the state, below the hook that stands for the save."""

    priority = 899

    async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> None:
        if isinstance(event, PostCallEvent | ErrorEvent):
            ctx.agent_state.tasks_context.tasks.clear()
            ctx.agent_state.summary = f"{ctx.agent_state.summary}+{type(event).__name__}"


@pytest.mark.parametrize("save", ["step", "call"])
async def test_what_a_hook_changes_at_the_end_is_saved_on_success_and_on_failure(store: Store, save: Any) -> None:
    cook = agent(store, ["Hi.", ModelError("no power"), "Hi again."], Counts(), save=save)

    await cook.call("Hi", ALICE)
    assert (await saved(store)).summary == "+PostCallEvent"
    with pytest.raises(ModelError):
        await cook.call("Fail", ALICE)
    assert (await saved(store)).summary == "+PostCallEvent+ErrorEvent"
    assert (await cook.get_agent_state("alice", "s1")).summary == "+PostCallEvent+ErrorEvent"


async def test_every_end_of_a_call_is_reported_once_before_it_is_saved(store: Store) -> None:
    @tool(external=True)
    async def ask_boss() -> str:
        """Ask the boss."""
        return ""

    @tool(check=lambda arguments, ctx: "ask")
    async def serve() -> str:
        """Serve."""
        return "served"

    hook = On()
    cook = agent(
        store,
        [[call("ask_boss", {}, id="c1")], [call("serve", {}, id="c2")], "Served."],
        hook,
        Counts(),
        tools=[ask_boss, serve],
    )

    assert reason(await cook.call("Go.", ALICE)) == "TOOL_SUSPENDED"
    assert (await saved(store)).summary == "+PostCallEvent"
    assert reason(await cook.call(Message.tool_result("c1", "yes"), ALICE)) == "PERMISSION_ASKING"
    assert (await saved(store)).summary == "+PostCallEvent" * 2
    await cook.answer("alice", "s1", {"c2": True})
    assert (await saved(store)).summary == "+PostCallEvent" * 3
    reasons = [reason(event.message) for event in hook.seen if isinstance(event, PostCallEvent)]
    assert reasons == ["TOOL_SUSPENDED", "PERMISSION_ASKING", None]


@pytest.mark.parametrize("where", ["steer", "interrupt", "interrupted question"])
async def test_a_reply_that_is_returned_after_all_is_reported_too(store: Store, where: str) -> None:
    async def meddle() -> None:
        if len(hook.seen) == 1:
            await (cook.steer("alice", "s1", "More.") if where == "steer" else cook.interrupt("alice", "s1"))

    @tool(check=lambda arguments, ctx: "ask")
    async def serve() -> str:
        """Serve."""
        return "served"

    hook = On(PostCallEvent, lambda _: meddle())
    hook.events = {PostCallEvent}
    script = [[call("serve")] if where == "interrupted question" else "First.", "Second."]
    cook = agent(store, script, hook, Counts(), tools=[serve])

    returned = await cook.call("Go.", ALICE)

    told = [event.message for event in hook.seen if isinstance(event, PostCallEvent)]
    assert len(told) == 2
    assert (told[1].id, told[1].text, reason(told[1])) == (returned.id, returned.text, reason(returned))
    assert (await saved(store)).summary == "+PostCallEvent" * 2


@pytest.mark.parametrize("end", ["interrupt", "shutdown", "cancel"])
async def test_a_call_that_is_stopped_is_reported_before_it_is_saved(store: Store, end: str) -> None:
    asked = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "late"

    hook = On()
    cook = agent(store, [["Half ", think]], hook, Counts())
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await asked.wait()

    if end == "interrupt":
        await cook.interrupt("alice", "s1")
        assert reason(await task) == "INTERRUPTED"
    elif end == "shutdown":
        await cook.shutdown(timeout=1)
        with pytest.raises(AgentShuttingDown):
            await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    last = hook.seen[-1]
    if end == "interrupt":
        assert isinstance(last, PostCallEvent)
        assert (last.message.text, reason(last.message)) == ("Half ", "INTERRUPTED")
    else:
        assert isinstance(last, ErrorEvent)
        assert type(last.error) is (AgentShuttingDown if end == "shutdown" else asyncio.CancelledError)
    assert sum(isinstance(event, PostCallEvent | ErrorEvent) for event in hook.seen) == 1
    assert (await saved(store)).summary == f"+{type(last).__name__}"
    await goes_on(store)


async def test_a_reply_that_is_stored_already_is_reported_too(store: Store) -> None:
    hook = On()
    cook = agent(store, ["Hi."], hook)
    question = user("Hi")
    await cook.call(question, ALICE)
    hook.seen.clear()

    assert (await cook.call(question, ALICE)).text == "Hi."
    assert hook.names == ["PreCallEvent", "PostCallEvent"]


# Hooks that never return.


class Hangs(Hook):
    """Never returns from one kind of event."""

    def __init__(self, kind: type[HookEvent], priority: int = 100) -> None:
        self.waiting = asyncio.Event()
        self.kind = kind
        self.priority = priority

    async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> None:
        if type(event) is self.kind:
            self.waiting.set()
            await asyncio.Event().wait()


HANGING = [
    PreCallEvent,
    PreReasoningEvent,
    ReasoningChunkEvent,
    PostReasoningEvent,
    PreActingEvent,
    PostActingEvent,
    PostCallEvent,
]


@pytest.mark.parametrize("kind", HANGING)
async def test_an_interrupt_ends_the_wait_of_a_hook(store: Store, kind: type[HookEvent]) -> None:
    hangs, after = Hangs(kind), On(priority=900)
    cook = agent(store, [[ADD], "Three."], hangs, after)
    task = asyncio.create_task(cook.call("Add.", ALICE))
    await hangs.waiting.wait()

    assert await cook.interrupt("alice", "s1", "stop")
    async with asyncio.timeout(3):
        assert reason(await task) == "INTERRUPTED"
    assert (await texts(cook))[-1] == "stop"
    assert after.names[-1] == "PostCallEvent"
    results = [
        part for one in await cook.session("alice", "s1").get_raw_history() for part in one.parts if "state" in part
    ]
    if kind is PreActingEvent:
        assert results[-1]["output"][0]["text"] == "Interrupted before it ran."
    await goes_on(store)


@pytest.mark.parametrize("kind", HANGING)
async def test_a_shutdown_ends_the_wait_of_a_hook_and_another_agent_goes_on(
    store: Store, kind: type[HookEvent]
) -> None:
    hangs = Hangs(kind)
    cook = agent(store, [[ADD], "Three."], hangs)
    task = asyncio.create_task(cook.call("Add.", ALICE))
    await hangs.waiting.wait()

    async with asyncio.timeout(4):
        assert await cook.shutdown(timeout=0.05)
    if kind is PostCallEvent:
        # The turn has come to its end.
        assert (await task).text == "Three."
        return
    with pytest.raises(AgentShuttingDown):
        await task
    reply = await agent(store, lambda request: "Done." if request.messages[-1].role == "tool" else [ADD]).call(
        "Add.", ALICE
    )
    assert reply.text == "Done."
    assert (await texts(cook)).count("Add.") == 1


@pytest.mark.parametrize("kind", [PostCallEvent, ErrorEvent])
async def test_a_hook_that_never_returns_holds_up_the_end_of_a_call_for_a_limited_time(
    store: Store, kind: type[HookEvent], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("leafward.engine.hook_calls.END_S", 0.05)
    hangs, after = Hangs(kind), On(priority=900)

    async def stop(_: ModelRequest) -> None:
        if kind is ErrorEvent:
            raise ModelError("no power")
        await cook.interrupt("alice", "s1")

    cook = agent(store, [["Half ", stop]], hangs, after)

    async with asyncio.timeout(3):
        if kind is ErrorEvent:
            with pytest.raises(ModelError, match="no power"):
                await cook.call("Hi", ALICE)
        else:
            assert reason(await cook.call("Hi", ALICE)) == "INTERRUPTED"
    assert f"Hangs failed in {kind.__name__}" in caplog.text
    assert after.names[-1] == kind.__name__
    await goes_on(store)
