"""How running turns of an agent are reached: in this process in any store, in others in the agent's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Literal

from leafward.core.errors import ConfigurationError, LeaseLost, MessageTooLarge
from leafward.core.ids import Scope
from leafward.core.message import Message, check_size
from leafward.engine.agent_calls import AgentCalls
from leafward.engine.agent_store import AgentStore, Place
from leafward.engine.events import AgentEvent
from leafward.engine.running_turn import RunningTurn
from leafward.engine.state_changes import StateChange
from leafward.engine.turn_input import read_sent
from leafward.engine.turn_mail import LocalBox, TurnText
from leafward.engine.turn_queue import Held, queues_of
from leafward.stores.leases import LONGEST_TEXT, Slot


class AgentTurns:
    """Reaches turns by their user and session, whichever store their calls have named."""

    def __init__(self, store: AgentStore, calls: AgentCalls, agent_id: str, name: str) -> None:
        self._store = store
        self._calls = calls
        self._agent_id = agent_id
        self._name = name
        self.label = f"agent:{agent_id}"
        """What the leases of these turns are labelled with."""

    async def interrupt_only(self, message: str | Message | None) -> bool:
        """Stop the one turn of this agent's own calls.

        Raises:
            ConfigurationError: there are several, which the text lists.
        """
        running = [
            (place, held.slot)
            for place in self._store.places()
            for held in queues_of(place).held.values()
            if held.label == self.label and held.control in self._calls and not held.control.is_over
        ]
        if len(running) > 1:
            listed = ", ".join(repr(slot.session_id) for _, slot in running)
            raise ConfigurationError(f"several sessions are running, {listed}: name the one to interrupt")
        return bool(running) and await self._send(*running[0], "interrupt", message)

    async def send(self, slot: Slot, kind: Literal["interrupt", "steer"], message: str | Message | None) -> bool:
        """Have the running turn of a session do something; False when none runs.

        Raises:
            ConfigurationError: it runs in several stores that calls have brought.
            ValueError: the message is too long to be sent; an interrupt has stopped the turn without it.
        """
        return await self._send(await self._place_of(slot), slot, kind, message)

    async def change(self, slot: Slot, change: StateChange) -> bool:
        """Have the running turn of a session store a change of its state; False when none runs."""
        place = await self._place_of(slot)
        held = self._held(place, slot)
        if held is not None and held.control.is_over:
            return False
        if place.store is None:
            if held is None or not isinstance(held.mail, LocalBox):
                return False
            held.mail.take_change(change)
            return True
        if (release := queues_of(place).releases.get(slot)) is not None:
            await asyncio.wait((release,))
        holder = await place.store.leases.holder(slot.session_id, slot.user_id)
        if holder is None or holder.label != self.label:
            return False
        text = TurnText("change", holder.token, change=change).write()
        return await self._sent(place, slot, text)

    async def events(self, slot: Slot) -> AsyncGenerator[AgentEvent]:
        """Yield what the running turn of a session has stored and stores.

        Raises:
            ConfigurationError: its store keeps no steps, or it runs in several that calls have brought.
            SessionNotFound: the session was deleted meanwhile.
        """
        store = (await self._place_of(slot)).tree_store("attach")
        scope = Scope.of(slot.session_id, user_id=slot.user_id, agent_id=self._agent_id)
        turn = RunningTurn(store, scope, label=self.label, name=self._name)
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event

    async def _place_of(self, slot: Slot) -> Place:
        """Return where the turn of a session runs; if not in this process, then in the agent's own store."""
        places = [place for place in self._store.places() if self._held(place, slot) is not None]
        if not places or places[0] is self._store.place:
            return await self._store.open()
        if len(places) > 1:
            raise ConfigurationError(
                f"session {slot.session_id!r} is running in several stores that its calls have named: "
                "which one is meant cannot be said"
            )
        return places[0]

    def _held(self, place: Place, slot: Slot) -> Held | None:
        held = queues_of(place).held.get(slot)
        return None if held is None or held.label != self.label else held

    async def _send(self, place: Place, slot: Slot, kind: Literal["interrupt", "steer"], message: Any) -> bool:
        sent = None if message is None else read_sent(message)
        held = self._held(place, slot)
        if held is not None and held.control.is_over:
            return False
        if place.store is None:
            if held is None or not isinstance(held.mail, LocalBox):
                return False
            held.mail.take(kind, sent)
            return True
        if (release := queues_of(place).releases.get(slot)) is not None:
            await asyncio.wait((release,))
            if self._held(place, slot) is not None:
                # A call that waited: the turn that could be meant has ended.
                return False
        holder = await place.store.leases.holder(slot.session_id, slot.user_id)
        if holder is None or holder.label != self.label:
            return False
        text = TurnText(kind, holder.token, None if sent is None else sent.to_dict()).write()
        refused = None if sent is None else _refusal(sent, text, kind, place.store.max_message_bytes)
        if refused is not None and kind == "steer":
            raise refused
        if refused is not None:
            text = TurnText(kind, holder.token).write()
        reached = await self._sent(place, slot, text)
        if reached and refused is not None:
            raise refused
        return reached

    async def _sent(self, place: Place, slot: Slot, text: str) -> bool:
        """Send a text to the turn of a session; False when none runs."""
        assert place.store is not None
        reached = await place.store.leases.send(slot.session_id, slot.user_id, text, label=self.label)
        held = queues_of(place).held.get(slot)
        if reached and held is not None and held.mail is not None:
            # In this process there is no need to wait for the next look.
            with suppress(LeaseLost):
                await held.mail.read()
        return reached


def _refusal(message: Message, text: str, kind: Literal["interrupt", "steer"], largest: int) -> ValueError | None:
    """Return the error for a message that is too large to be sent, or to be stored; `None` if it is not."""
    try:
        check_size(message, message.sealed()[1], largest)
    except MessageTooLarge as error:
        return error
    size = len(text.encode())
    if size <= LONGEST_TEXT:
        return None
    outcome = "nothing was sent" if kind == "steer" else "the turn is interrupted without it"
    return ValueError(
        f"the message has {size:,} bytes, and a running turn is sent at most {LONGEST_TEXT:,}: {outcome}; "
        "send it as the input of the next call"
    )
