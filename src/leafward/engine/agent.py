"""The agent: one object that serves every user and session, and keeps nothing of them itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Literal, Self, cast

from leafward.core.agent_state import AgentState
from leafward.core.errors import AgentShuttingDown, ConfigurationError, LeaseLost
from leafward.core.ids import check_id, new_id
from leafward.core.message import Message
from leafward.core.session_key import SessionKey, key_of
from leafward.engine.agent_store import AgentStore, AgentStoreLike, Place, place_of
from leafward.engine.custom_states import states_of
from leafward.engine.events import AgentEvent
from leafward.engine.models.model import ChatModel
from leafward.engine.opening_turn import Given, Input, read_input, results_for
from leafward.engine.recovery import interrupted_result, match_input, not_answered_result, open_calls
from leafward.engine.small_state import MARK
from leafward.engine.tree_log import ConflictPolicy, LogOptions, TreeLog
from leafward.engine.turn import REASON, Turn, TurnSetup
from leafward.engine.turn_mail import TurnText
from leafward.engine.turn_note import TurnNote
from leafward.engine.turn_queue import Held, queues_of, turn_of
from leafward.sessions.session import Session
from leafward.stores.leases import Slot
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import check_name
from leafward.tools.definition import Tool
from leafward.tools.function_tools import as_tool
from leafward.tools.runtime_context import RuntimeContext, for_call

ToolLike = Tool | Callable[..., Any]


class ReActAgent:
    """An agent that reasons and acts until it has an answer; every step is stored before the next begins.

    `store` is a URL, an open store or a store of states; without one, states are JSON files in AgentScope's directory.
    One agent serves any number of users and sessions at once, and calls to one session run one after the other, here
    and in other processes. What an agent opened itself is closed by `close()`, or by `async with`.

    Raises:
        ConfigurationError: an option is wrong, or two tools have one name.
    """

    def __init__(
        self,
        name: str,
        model: ChatModel,
        *,
        agent_id: str | None = None,
        system_prompt: str = "",
        tools: Iterable[ToolLike] = (),
        store: AgentStoreLike = None,
        state_name: str = "agent_state",
        default_session_id: str | None = None,
        max_iterations: int = 10,
        retries: int = 2,
        save: Literal["step", "call"] = "step",
        slot: Literal["call", "off"] = "call",
        conflict_policy: ConflictPolicy = "fail",
        lease_ttl: float = 30,
    ) -> None:
        self.name = check_id("agent name", name)
        self.agent_id = check_id("agent id", name if agent_id is None else agent_id)
        _check_choice("save", save, ("step", "call"))
        _check_choice("slot", slot, ("call", "off"))
        _check_choice("conflict_policy", conflict_policy, ("fail", "overwrite", "append_merge"))
        self._setup = TurnSetup(
            name, model, system_prompt.strip(), _by_name(tools), max_iterations=max_iterations, retries=retries
        )
        self._options = LogOptions(
            self.agent_id, check_name(state_name), save == "step", slot == "call", conflict_policy
        )
        self._default_session_id = check_id("session id", name if default_session_id is None else default_session_id)
        self._lease_ttl = lease_ttl
        self._label = f"agent:{self.agent_id}"
        self._store = AgentStore(store, self.agent_id)
        self._closed = False

    # Calls.

    async def call(self, input: Input, ctx: RuntimeContext | None = None) -> Message:
        """Answer a message, or several, and return the reply once it is stored.

        `None` goes on with an open turn. The same input again, after a crash or a lost connection, goes on with its
        turn; input whose id is stored is never answered twice.

        Raises:
            AgentShuttingDown: the agent is closed.
            ConfigurationError: the call is made inside a turn of the same session.
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

        Raises:
            Exception: as `call`.
        """
        given = read_input(input)
        place, key = await self._place(ctx)
        slot = Slot(key.user_id, key.session_id)
        async with (
            turn_of(place, slot, label=self._label, ttl=self._lease_ttl, admitted=self._check_open) as held,
            aclosing(self._turn(given, place, key, held, ctx)) as events,
        ):
            async for event in events:
                yield event

    async def _turn(
        self, given: Given, place: Place, key: SessionKey, held: Held, ctx: RuntimeContext | None
    ) -> AsyncGenerator[AgentEvent]:
        log = self._log(place, key, held)
        loading = log.load(self._fresh(key), [message.id for message in given.messages])
        # What an earlier turn did not receive is asked for beside it.
        await (loading if held.mail is None else asyncio.gather(loading, held.mail.read()))
        log.state.context.extend(held.control.earlier)
        yield AgentEvent("AGENT_START", name=self.name)
        begun = await self._begin(log, given)
        if isinstance(begun, Message):
            yield AgentEvent("AGENT_RESULT", begun.id, message=begun, committed=True)
        else:
            held.control.interrupt_control = log.state.interrupt_control
            context = for_call(
                ctx or RuntimeContext.empty(), user_id=key.user_id, session_id=key.session_id, agent_state=log.state
            )
            turn = Turn(self._setup, log, begun, place, held, context)
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        yield AgentEvent("AGENT_END", name=self.name)

    async def _begin(self, log: TreeLog, given: Given) -> TurnNote | Message:
        """Store the input and return the note of the turn to run, or the reply that is stored already."""
        context, note = log.state.context, log.note
        waiting = open_calls(context)
        if note is not None and note.open == "asking" and results_for(waiting, given.messages):
            context.extend(given.messages)
            await log.commit(replace(note, open="asking"))
            return note
        ids = [message.id for message in given.messages]
        inside = note is not None and note.may_go_on and await log.is_inside()
        elsewhere = [one for one, on_path in log.known.items() if not on_path]
        path = await log.path_with(ids)
        found = match_input(given.messages, given.have_ids, path, note, elsewhere=elsewhere, checked_out=inside)
        if found.action == "answer":
            return found.reply or Message("assistant", [], name=self.name, metadata={REASON: "INTERRUPTED"})
        if found.action == "resume" and note is not None and not found.not_answered:
            return note
        closing = not_answered_result if found.not_answered else interrupted_result
        context.extend(closing(log.leaf_id, call.message.id, call) for call in waiting)
        context.extend(found.input)
        log.state.shutdown_interrupted = False
        started = TurnNote(new_id(), "running", tuple(message.id for message in found.input), log.slot_version)
        await log.commit(started)
        return started

    # Reaching a turn.

    async def interrupt(
        self, user_id: str | None = None, session_id: str | None = None, message: str | Message | None = None
    ) -> bool:
        """Stop the running turn of a session at its next safe point, in whatever process; False when none runs.

        What was said so far is kept, every call gets a result, and the message is stored last, unanswered. Without
        arguments it stops the one session that this agent is running in this process.

        Raises:
            ConfigurationError: no session is named, and this agent is running several, which the text lists.
        """
        if user_id is None and session_id is None:
            running = self._running()
            if len(running) > 1:
                listed = ", ".join(repr(slot.session_id) for slot in running)
                raise ConfigurationError(f"several sessions are running, {listed}: name the one to interrupt")
            if not running:
                return False
            user_id, session_id = running[0]
        return await self._send("interrupt", user_id, session_id, message)

    async def steer(self, user_id: str | None, session_id: str | None, message: str | Message) -> bool:
        """Have a message join the running turn of a session after its current round of tools; False when none runs."""
        return await self._send("steer", user_id, session_id, message)

    def _running(self) -> list[Slot]:
        place = self._store.place
        held = {} if place is None else queues_of(place).held
        return [slot for slot, one in held.items() if one.lease is not None and one.lease.label == self._label]

    async def _send(
        self, kind: Literal["interrupt", "steer"], user_id: str | None, session_id: str | None, message: Any
    ) -> bool:
        place, key = await self._place(RuntimeContext(user_id, session_id))
        sent = None if message is None else read_input(message).messages[0]
        if place.store is None:
            raise ConfigurationError("a custom store of states has no leases: give the agent a store of leafward's")
        holder = await place.store.leases.holder(key.session_id, key.user_id)
        if holder is None or holder.label != self._label:
            return False
        text = TurnText(kind, holder.token, None if sent is None else sent.to_dict()).write()
        reached = await place.store.leases.send(key.session_id, key.user_id, text, label=self._label)
        held = queues_of(place).held.get(Slot(key.user_id, key.session_id))
        if reached and held is not None and held.mail is not None:
            # In this process there is no need to wait for the next look.
            with suppress(LeaseLost):
                await held.mail.read()
        return reached

    # States.

    async def get_agent_state(self, user_id: str | None = None, session_id: str | None = None) -> AgentState:
        """Return what is stored of a session, steps of a running turn included; fresh if it is unknown."""
        place, key = await self._place(RuntimeContext(user_id, session_id))
        log = self._log(place, key)
        await log.load(self._fresh(key), adopts=False)
        return log.state

    async def save_agent_state(self, user_id: str | None, session_id: str | None, state: AgentState) -> None:
        """Write a state to the slot of a session; the next call takes it over, and nothing of the tree is lost."""
        place, key = await self._place(RuntimeContext(user_id, session_id))
        extra = {name: value for name, value in state.extra.items() if name != MARK}
        saved = replace(state, session_id=key.session_id, user_id=key.user_id, extra=extra)
        await place.states.save(key, self._options.state_name, saved)

    def session(self, user_id: str | None = None, session_id: str | None = None) -> Session:
        """Return the conversation of a session, as the tree that it is.

        Raises:
            ConfigurationError: the agent's store is not open yet, or keeps no trees.
        """
        place = self._store.place
        if place is None or place.store is None:
            raise ConfigurationError("the agent's store is not open, or keeps no sessions: give it an open store")
        key = self._key(RuntimeContext(user_id, session_id))
        return Session(place.store, key.session_id, user_id=key.user_id, agent_id=self.agent_id)

    # The agent's life.

    async def close(self) -> None:
        """Take no more calls, and close the store if the agent opened it."""
        self._closed = True
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, agent_id={self.agent_id!r})"

    def _check_open(self) -> None:
        if self._closed:
            raise AgentShuttingDown(self.name)

    async def _place(self, ctx: RuntimeContext | None) -> tuple[Place, SessionKey]:
        self._check_open()
        if ctx is None or ctx.session is None:
            return await self._store.open(), self._key(ctx)
        return await place_of(states_of(ctx.session)), self._key(ctx)

    def _key(self, ctx: RuntimeContext | None) -> SessionKey:
        if ctx is not None and ctx.session_key is not None:
            return key_of(ctx.session_key)
        session_id = None if ctx is None else ctx.session_id
        return SessionKey(session_id or self._default_session_id, None if ctx is None else ctx.user_id)

    def _log(self, place: Place, key: SessionKey, held: Held | None = None) -> TreeLog:
        if place.store is None:
            raise ConfigurationError("a custom store of states keeps no tree: give the agent a store of leafward's")
        states = cast(StateStore, place.states)
        if held is None or held.lease is None:
            return TreeLog(place.store, states, key, self._options)
        return TreeLog(place.store.fenced(held.lease), states.with_lease(held.lease), key, self._options)

    def _fresh(self, key: SessionKey) -> AgentState:
        return AgentState(session_id=key.session_id, user_id=key.user_id)


def _by_name(tools: Iterable[ToolLike]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for one in map(as_tool, tools):
        if one.name in found:
            raise ConfigurationError(f"two tools are named {one.name!r}: give one of them another name")
        found[one.name] = one
    return found


def _check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"{option} is one of {', '.join(map(repr, choices))}, not {value!r}")
