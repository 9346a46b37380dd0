"""The agent: one object that serves every user and session, and keeps nothing of them itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal, Self

from leafward.core.agent_contexts import Mode, PermissionContext, PermissionRule
from leafward.core.agent_records import write_record
from leafward.core.agent_state import AgentState
from leafward.core.errors import AgentShuttingDown, ConfigurationError, SessionNotFound
from leafward.core.ids import check_id, new_id
from leafward.core.message import Message
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.engine.agent_answers import AgentAnswers
from leafward.engine.agent_calls import STORING_S, AgentCalls, PartialReasoning, ShutdownState
from leafward.engine.agent_changes import AgentChanges
from leafward.engine.agent_compaction import Compacting, agent_compaction
from leafward.engine.agent_context import AgentContext, Blocks
from leafward.engine.agent_options import (
    check_choice,
    check_count,
    check_model,
    check_prompt,
    check_ttl,
    checked_timeout,
)
from leafward.engine.agent_store import AgentStore, AgentStoreLike, Place
from leafward.engine.agent_turns import AgentTurns
from leafward.engine.budget import Budget, check_budget
from leafward.engine.call_layers import Layers
from leafward.engine.child_sessions import interrupted_with_parent
from leafward.engine.custom_states import CustomStates, states_of
from leafward.engine.events import AgentEvent
from leafward.engine.hook_calls import check_hooks
from leafward.engine.hooks import Hook
from leafward.engine.memory import InMemoryMemory, MemoryOfAgent
from leafward.engine.middleware import Middleware
from leafward.engine.models.model import ChatModel
from leafward.engine.own_tools import own_requests, with_own_tools
from leafward.engine.per_task import PerTask
from leafward.engine.permissions import checked_mode, checked_rule, read_permissions
from leafward.engine.plan_mode import PlanMode, read_plan_mode
from leafward.engine.questions import Question, answering, open_questions
from leafward.engine.recovery import open_calls
from leafward.engine.reply_reason import interrupted_reply
from leafward.engine.saved_sessions import FailedLoad, SavedSessions, as_saved
from leafward.engine.small_state import plan_text
from leafward.engine.state_cache import StateCache
from leafward.engine.state_changes import StateChange, entering, leaving
from leafward.engine.step_log import ConflictPolicy, LogOptions, StepLog
from leafward.engine.tree_log import TreeLog
from leafward.engine.turn import TurnSetup
from leafward.engine.turn_control import TurnStopped
from leafward.engine.turn_input import Input, read_input
from leafward.engine.turn_queue import Held, turn_of, wait_for_releases
from leafward.engine.whole_state_log import WholeStateLog
from leafward.sessions.session import Session
from leafward.stores.contracts import Store
from leafward.stores.finishing import to_its_end
from leafward.stores.leases import Slot
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.table import check_name
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.tool_set import ToolLike
from leafward.tools.toolkit import Toolkit

_loaded: PerTask[SessionKey | FailedLoad] = PerTask("leafward sessions")
"""The session that a task has loaded into an agent: that of its calls without a context."""


class ReActAgent:
    """An agent that reasons and acts until it has an answer; every step is stored before the next begins.

    `store` is a URL, an open store or a store of states; without one, states are JSON files in AgentScope's directory.
    One agent serves any number of users and sessions at once, and calls to one session run one after the other, here
    and in other processes. Agents that are called with the same user and session in one store share the conversation,
    unless `state_name` or `slot="off"` keeps them apart. The first middleware is the outermost one; the hooks are those
    that `hooks` holds when a call begins. What an agent opened itself is closed by `close()`, or by
    `async with`.

    Raises:
        ConfigurationError: an option is wrong, or two tools have one name.
    """

    name: str
    agent_id: str

    def __init__(
        self,
        name: str,
        model: ChatModel,
        *,
        agent_id: str | None = None,
        system_prompt: str = "",
        tools: Mapping[str, Tool] | Iterable[ToolLike] = (),
        middlewares: Sequence[Middleware] = (),
        hooks: Sequence[Hook] = (),
        store: AgentStoreLike = None,
        state_name: str = "agent_state",
        default_session_id: str | None = None,
        max_iterations: int = 10,
        memory: InMemoryMemory | None = None,
        retries: int = 2,
        budget: Budget | None = None,
        permissions: PermissionContext | Mode | None = None,
        ask_timeout: float | None = None,
        plan_mode: bool | PlanMode = False,
        task_list: bool = False,
        context: Blocks = (),
        cached_prompt: bool = False,
        session_tools: bool = False,
        compaction: Compacting | None = None,
        save: Literal["step", "call"] = "step",
        slot: Literal["call", "off"] = "call",
        conflict_policy: ConflictPolicy = "fail",
        lease_ttl: float = 30,
        state_cache: int = 64,
    ) -> None:
        self.name = check_id("agent name", name)
        self.agent_id = check_id("agent id", name if agent_id is None else agent_id)
        check_model(model)
        check_prompt(system_prompt)
        check_count("max_iterations", max_iterations, "rounds", least=1)
        check_count("retries", retries, "attempts", least=0)
        check_count("state_cache", state_cache, "sessions", least=0)
        check_ttl(lease_ttl)
        check_choice("save", save, ("step", "call"))
        check_choice("slot", slot, ("call", "off"))
        check_choice("conflict_policy", conflict_policy, ("fail", "overwrite", "append_merge"))
        self._store = AgentStore(store, self.agent_id)
        check_budget(budget, model, has_counters=not self._store.is_custom)
        plan = read_plan_mode(plan_mode)
        toolkit = with_own_tools(Toolkit(tools), plan, task_list=task_list)
        compacts = agent_compaction(compaction, model, retries=retries, budget=budget)
        self._context = AgentContext(
            self.agent_id,
            context,
            cached_prompt=cached_prompt,
            session_tools=session_tools,
            compaction=compacts,
            is_custom=self._store.is_custom,
        )
        layers = Layers(middlewares)
        self.hooks: list[Hook] = check_hooks(hooks)
        setup = TurnSetup(
            name,
            model,
            own_requests(system_prompt.strip(), plan, task_list=task_list, prompts=layers.prompt),
            toolkit,
            max_iterations=max_iterations,
            retries=retries,
            budget=budget,
            plan=plan,
            compaction=compacts,
        )
        self._options = LogOptions(
            self.agent_id,
            check_name(state_name),
            save == "step",
            slot == "call",
            conflict_policy,
            toolkit.initial_groups,
            read_permissions(permissions),
        )
        self._ask_timeout = checked_timeout("ask_timeout", ask_timeout)
        self._default_session_id = check_id("session id", name if default_session_id is None else default_session_id)
        self._lease_ttl = lease_ttl
        self._cache = StateCache(state_cache)
        self._memory = MemoryOfAgent(memory)
        self._answers = AgentAnswers(
            setup, self._options, self._context, self._memory, layers, lambda: self.hooks, self._ask_timeout
        )
        self._calls = AgentCalls(name)
        self._turns = AgentTurns(self._store, self._calls, self.agent_id, name)
        self._changes = AgentChanges(
            self._store, self._calls, self._turns, self._options, lease_ttl=lease_ttl, opens_log=self._log
        )
        self._saved = SavedSessions(
            self._store, self._calls, self._options, lease_ttl=lease_ttl, stored=self._stored, opens_log=self._log
        )

    # Calls.

    async def call(self, input: Input, ctx: RuntimeContext | None = None) -> Message:
        """Answer a message, or several, and return the reply once it is stored.

        `None` goes on with an open turn. The same input again, after a crash or a lost connection, goes on with its
        turn; input whose id is stored is never answered twice. Where a reply was cut off, the reply that is returned
        then is its remainder; the first part is the message before it. Other input closes calls that wait for results.

        Raises:
            BudgetExceeded: the turn, or the session, has used up the agent's budget; what was stored stays.
            AgentShuttingDown: the agent is shutting down or closed. A call that waited has stored nothing; one that
                ran is paused: the same input, or `None`, goes on with it, here or in another process.
            ConfigurationError: the call is made inside a turn of the same session, or the conversation is that of an
                agent with this `agent_id` and another `state_name`.
            LeaseLost: another process has taken over the session; what was stored before stays.
            StaleState: another writer changed the slot during the call.
            ValueError: the input cannot be answered here; the text says what to do.
        """
        reply: Message | None = None
        async with aclosing(self.stream(input, ctx)) as events:
            async for event in events:
                if event.type == "AGENT_RESULT":
                    reply = event.message
        assert reply is not None
        return reply

    async def stream(self, input: Input, ctx: RuntimeContext | None = None) -> AsyncGenerator[AgentEvent]:
        """Do what `call` does, and yield what happens meanwhile. Leaving the stream cancels the turn there.

        Input that was answered before brings `AGENT_RESULT` without pieces. A stream that raises has no `AGENT_END`.

        Raises:
            Exception: as `call`.
        """
        given = read_input(input)
        ctx = ctx or RuntimeContext.empty()
        with suppress(TurnStopped), self._calls.begin() as control, interrupted_with_parent(ctx, control):
            place, key = await self._place(ctx)
            slot = Slot(key.user_id, key.session_id)
            async with (
                turn_of(place, slot, control, label=self._turns.label, ttl=self._lease_ttl) as held,
                aclosing(self._answers.events(given, self._log(place, key, held), place, held, ctx)) as events,
            ):
                try:
                    async for event in events:
                        if isinstance(event, AgentEvent):
                            control.hand_out()
                            yield event
                            control.is_with_reader = False
                            if control.leaving is not None:
                                await to_its_end(control.leaving)
                            continue
                        # A piece passes through this loop alone, so it is kept to what is needed.
                        try:
                            more, loop = event.more, asyncio.get_running_loop()
                            async for sent in event.events:
                                shown = more(sent)
                                if shown is None:
                                    event.others.append(sent)
                                    break
                                control.hand_out()
                                yield shown
                                control.is_with_reader = False
                                if control.stop is not None:
                                    raise TurnStopped
                                # Each piece may be read by another task.
                                control.waiting = asyncio.current_task(loop)
                        except BaseException as error:
                            if control.is_with_reader:
                                raise
                            event.error = error
                except GeneratorExit:
                    held.left = True
                    raise
                finally:
                    control.is_with_reader = False
            return
        # An interrupt has ended the wait for the turn: nothing is stored.
        reply = interrupted_reply(self.name)
        yield AgentEvent("AGENT_START", name=self.name)
        yield AgentEvent("AGENT_RESULT", reply.id, message=reply)
        yield AgentEvent("AGENT_END", name=self.name)

    # Reaching a turn.

    async def interrupt(
        self, user_id: str | None = None, session_id: str | None = None, message: str | Message | None = None
    ) -> bool:
        """Stop the running turn of a session at its next safe point, in whatever process; False when none runs.

        What was said so far is kept, every call gets a result, and the message is stored last, unanswered. Without
        arguments it stops the one session that calls of this object are running.

        Raises:
            ConfigurationError: no session is named, and this agent is running several, which the text lists.
            MessageTooLarge: the message is larger than the store accepts. The turn is stopped without it.
            ValueError: the message has more than 64 KiB. The turn is stopped without it; send it with the next call.
        """
        if user_id is None and session_id is None:
            return await self._turns.interrupt_only(message)
        return await self._turns.send(self._slot(user_id, session_id), "interrupt", message)

    async def steer(self, user_id: str | None, session_id: str | None, message: str | Message) -> bool:
        """Have a message join the running turn of a session after its current round of tools; False when none runs.

        Raises:
            MessageTooLarge: the message is larger than the store accepts; nothing was sent.
            ValueError: the message has more than 64 KiB; nothing was sent.
        """
        return await self._turns.send(self._slot(user_id, session_id), "steer", message)

    async def attach(self, user_id: str | None = None, session_id: str | None = None) -> AsyncGenerator[AgentEvent]:
        """Yield what the running turn of a session has stored, then each further step when it is stored.

        It works from any process that shares the store, and yields nothing if no turn of this agent runs. Each event
        brings a stored `message`: `CUSTOM` with the name `input` for the user's, `MODEL_CALL_END` for a reply,
        `TOOL_RESULT_END` for a result. `AGENT_RESULT` brings the final reply; a turn that failed, was paused or lost
        its process ends without one. Leaving the iterator does not touch the turn.

        Raises:
            ConfigurationError: a custom store of states keeps no steps.
            SessionNotFound: the session was deleted meanwhile.
        """
        async with aclosing(self._turns.events(self._slot(user_id, session_id))) as events:
            async for event in events:
                yield event

    # Questions.

    async def questions(self, user_id: str | None = None, session_id: str | None = None) -> list[Question]:
        """Return the calls of a session that wait for the user's answer, whichever process has asked.

        Those whose `ask_timeout` is over are not among them: the next call declines them.
        """
        state = await self.get_agent_state(user_id, session_id)
        return open_questions(open_calls(state.context), self._ask_timeout, self._answers.setup.plan)

    async def answer(
        self,
        user_id: str | None,
        session_id: str | None,
        answers: Mapping[str, bool] | Sequence[Mapping[str, Any]],
    ) -> Message:
        """Answer questions, and return the reply of the turn that goes on; those that are left are asked again.

        `answers` is a dict with True or False for each call's id, or a list of
        `{"confirmed": True, "toolCall": call, "rules": [rule]}`: the call may be edited, and the rules are kept in the
        session. The same answers again change nothing.

        Raises:
            ValueError: an answer is for a call that is not asked about, or does not fit it; nothing was changed.
            Exception: as `call`.
        """
        return await self.call(answering(answers), RuntimeContext(user_id, session_id))

    # Permissions.

    async def get_permissions(self, user_id: str | None = None, session_id: str | None = None) -> PermissionContext:
        """Return the mode and the rules of a session, as stored; a running turn stores changes with its next step."""
        return (await self.get_agent_state(user_id, session_id)).permission_context

    async def set_permission_mode(self, user_id: str | None, session_id: str | None, mode: Mode) -> None:
        """Give a session another mode.

        While a turn runs, the change is kept with the session, also if the process is killed. The turn takes it over
        and stores it with its next step; `get_permissions` shows it from then on.

        Raises:
            ConfigurationError: there is no such mode.
        """
        await self._change(user_id, session_id, StateChange(new_id(), mode=checked_mode(mode)))

    async def add_rule(
        self, user_id: str | None, session_id: str | None, rule: PermissionRule | Mapping[str, Any]
    ) -> None:
        """Add a rule to those of a session; while a turn runs, as with `set_permission_mode`.

        Raises:
            ValueError: it is not a rule that allows, denies or asks.
        """
        await self._change(user_id, session_id, StateChange(new_id(), rule=write_record(checked_rule(rule))))

    # Plan mode.

    async def enter_plan_mode(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """Have a session only look and plan; while a turn runs, from its next step on, as `set_permission_mode` says.

        Raises:
            ConfigurationError: the agent was made without `plan_mode=True`.
        """
        await self._change(user_id, session_id, entering(self._answers.setup.plan))

    async def exit_plan_mode(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """End plan mode without a question; the plan stays. While a turn runs, it ends with its next step.

        Raises:
            ConfigurationError: the agent was made without `plan_mode=True`.
        """
        await self._change(user_id, session_id, leaving(self._answers.setup.plan))

    async def is_plan_mode_active(self, user_id: str | None = None, session_id: str | None = None) -> bool:
        """Tell whether a session only plans, as stored; a running turn stores a change with its next step."""
        return (await self.get_agent_state(user_id, session_id)).plan_mode_context.plan_active

    async def get_plan(self, user_id: str | None = None, session_id: str | None = None) -> str | None:
        """Return the text of a session's plan; `None` without one."""
        return plan_text(await self.get_agent_state(user_id, session_id))

    async def _change(self, user_id: str | None, session_id: str | None, change: StateChange) -> None:
        await self._changes.make(self._key(RuntimeContext(user_id, session_id)), change)

    def _slot(self, user_id: str | None, session_id: str | None) -> Slot:
        key = self._key(RuntimeContext(user_id, session_id))
        return Slot(key.user_id, key.session_id)

    # States.

    async def get_agent_state(
        self, user_id: str | None = None, session_id: str | None = None, *, session: Any = None
    ) -> AgentState:
        """Return what is stored of a session, steps of a running turn included; fresh if it is unknown.

        `session` is the store of calls that named one in their `RuntimeContext`. If the session was checked out while
        a turn runs, it is the state of that point until the turn stores its next step.
        """
        place, key = await self._place(RuntimeContext(user_id, session_id, session=session))
        return (await self._stored(place, key)).state

    async def save_agent_state(self, user_id: str | None, session_id: str | None, state: AgentState) -> None:
        """Write a state to the slot of a session; the next call takes it over, and nothing of the tree is lost."""
        place, key = await self._place(RuntimeContext(user_id, session_id))
        await place.states.save(key, self._options.state_name, as_saved(state, key))

    async def clear_context(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """Let the next call of a session start before its first message; permissions, plan and tasks stay.

        It waits for its turn as a call does. The messages stay in the tree, where `session().checkout()` finds them.

        Raises:
            AgentShuttingDown: the agent is shutting down or closed; nothing was changed.
            ConfigurationError: it is called inside a turn of the same session.
        """
        with self._calls.begin() as control:
            place, key = await self._place(RuntimeContext(user_id, session_id))
            slot = Slot(key.user_id, key.session_id)
            async with turn_of(place, slot, control, label=None, ttl=self._lease_ttl) as held:
                if (await self._stored(place, key)).is_new:
                    return
                log = self._log(place, key, held)
                await log.load(self._options.new_state(key))
                await log.clear()
                await self._context.renew_prompt(place, key, held)

    # As a component that saves and restores itself, as in AgentScope 1.x.

    async def save_to(self, store: Store | AgentStateStore, key: AnyKey) -> None:
        """Save the agent's session `key` under that key in another store; while a turn runs, what is stored of it.

        If the agent has no such session, the one of this task's calls without a context is saved. An agent's own store
        needs none of this: there every step is stored.
        """
        await self._saved.save(states_of(store), key_of(key), lambda: self._key(None))

    async def load_from(self, store: Store | AgentStateStore, key: AnyKey) -> None:
        """Take over what is saved under a key, and have this task's later calls without a context go on with it.

        Raises:
            SessionNotFound: nothing is saved under it; this task's later calls without a context begin the session.
            Exception: as `load_if_exists`.
        """
        if not await self.load_if_exists(store, key):
            raise SessionNotFound(key_of(key).session_id)

    async def load_if_exists(self, store: Store | AgentStateStore, key: AnyKey) -> bool:
        """Do as `load_from` does and return True; return False if nothing is saved under this key.

        What is saved is copied to the agent's session `key`, also what AgentScope 1.x has saved; without anything
        saved that session begins again without messages. Messages that it had stay in its tree. It waits for its turn
        as a call does; with the agent's own store nothing is copied, and it does not wait. Other tasks do not notice:
        they load it themselves, or pass a `RuntimeContext`.

        Raises:
            AgentShuttingDown: the agent is shutting down or closed.
            ConfigurationError: it is called inside a turn of this session, or the agent has `slot="off"`.
            StateDecodeError: what is saved, or what this session has, cannot be read; nothing is changed. After this or
                any other error, calls without a context are refused until a load succeeds: they would go on with
                another session.
        """
        session = key_of(key)
        try:
            state, exists = await self._saved.load(states_of(store), session)
        except BaseException:
            _loaded.set(self, FailedLoad(session))
            raise
        _loaded.set(self, session)
        self._memory.show_loaded(state)
        return exists

    async def _stored(self, place: Place, key: SessionKey) -> StepLog:
        """Return what is stored of a session, and change nothing."""
        log = self._log(place, key)
        await log.load(self._options.new_state(key), adopts=False)
        return log

    def session(self, user_id: str | None = None, session_id: str | None = None) -> Session:
        """Return the conversation of a session, as the tree that it is, set up with the agent's blocks.

        Raises:
            AgentShuttingDown: the agent was closed.
            ConfigurationError: the agent's store is not open yet, or keeps no trees.
        """
        place = self._store.place
        if self._store.is_closed:
            raise AgentShuttingDown(self.name)
        if place is None:
            raise ConfigurationError(
                "the agent's store is not open yet: enter `async with agent`, or give an open store"
            )
        key = self._key(RuntimeContext(user_id, session_id))
        return self._context.session(place.tree_store("a session"), key)

    # The agent's life.

    @property
    def shutdown_state(self) -> ShutdownState:
        """Whether calls are taken (`running`), or refused (`shutting_down`, and `terminated` once all have ended)."""
        return self._calls.state

    async def shutdown(self, *, timeout: float | None = 30, partial_reasoning: PartialReasoning = "save") -> bool:
        """Take no more calls, and pause those that run; any process that shares the store goes on with them.

        Calls that wait get `AgentShuttingDown` at once, those that run get it at their next safe point. Tools that have
        begun are waited for until `timeout`, without end for `None`; then they are cancelled, and their results say
        that the outcome is unknown. A tool can look at `interrupt_control` and end early. The text of a reply that is
        being streamed is stored, or with `partial_reasoning="discard"` asked for again.

        Return whether all calls have ended; one that has not 5 seconds after `timeout` counts as lost. In a tool, the
        turn of that tool is paused after it and not waited for. A cancelled shutdown refuses and pauses all the same.

        Raises:
            ConfigurationError: an option is wrong.
        """
        have_ended = await self._calls.shut_down(timeout, partial_reasoning)
        if self._store.place is not None:
            await wait_for_releases(self._store.place, STORING_S)
        return have_ended

    async def close(self) -> None:
        """Shut down, and close the store if the agent opened it; a second call does nothing.

        Raises:
            ConfigurationError: it is called in a tool of this agent's turn, which could then not be stored.
        """
        if self._calls.has_tool_around:
            raise ConfigurationError(
                f"the agent {self.name!r} is closed inside a tool of its own turn: await shutdown() there, and close it"
                " outside"
            )
        try:
            await self.shutdown()
        finally:
            await self._store.close()

    async def __aenter__(self) -> Self:
        await self._store.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, agent_id={self.agent_id!r})"

    async def _place(self, ctx: RuntimeContext | None) -> tuple[Place, SessionKey]:
        if ctx is None or ctx.session is None:
            return await self._store.open(), self._key(ctx)
        return await self._store.open_for_call(ctx.session), self._key(ctx)

    def _key(self, ctx: RuntimeContext | None) -> SessionKey:
        if ctx is not None and ctx.session_key is not None:
            return key_of(ctx.session_key)
        session_id = None if ctx is None else ctx.session_id
        if session_id is None and (ctx is None or ctx.user_id is None):
            loaded = _loaded.get(self)
            if isinstance(loaded, FailedLoad):
                raise loaded.error()
            if loaded is not None:
                return loaded
        return SessionKey(session_id or self._default_session_id, None if ctx is None else ctx.user_id)

    def _log(self, place: Place, key: SessionKey, held: Held | None = None) -> StepLog:
        states = place.states
        if isinstance(states, CustomStates):
            return WholeStateLog(states, key, self._options)
        store = place.tree_store("a turn")
        if held is None or held.lease is None:
            return TreeLog(store, states, key, self._options)
        cache = self._cache if place is self._store.place else None
        return TreeLog(store.fenced(held.lease), states.with_lease(held.lease), key, self._options, cache)


def keep_in(agent: ReActAgent, store: Store, is_open: Callable[[], bool]) -> None:
    """Have an agent that was made without a store keep its conversations in this one, which it never closes.

    Raises:
        ConfigurationError: it keeps them in another one that is still open.
    """
    agent._store.use(store, is_open)  # pyright: ignore[reportPrivateUsage]
