"""A turn in its session's tree: each step is one fenced commit, and the slot is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Literal

from leafward.core.agent_state import AgentState
from leafward.core.attached_state import TURN, AttachedState, attach
from leafward.core.errors import MessageNotFound, SessionNotFound, StaleState
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.core.session_key import SessionKey
from leafward.engine.adoption import Adoption, adopt
from leafward.engine.context_view import NO_VIEW, View, difference, render
from leafward.engine.small_state import (
    MARK,
    read_small_state,
    state_name_in_tree,
    view_name_in_tree,
    write_small_state,
)
from leafward.engine.turn_note import TurnNote
from leafward.sessions.session import Session, draft_of
from leafward.stores.contracts import NOT_THERE, Head, Store, Usage
from leafward.stores.states.contracts import Versioned
from leafward.stores.states.store import StateStore

ConflictPolicy = Literal["fail", "overwrite", "append_merge"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How an agent's turns are written."""

    agent_id: str
    state_name: str = "agent_state"
    saves_steps: bool = True
    """Whether every step is stored, or only whole turns."""
    writes_slot: bool = True
    conflict_policy: ConflictPolicy = "fail"


class TreeLog:
    """The durable side of one turn in a store of ours.

    The turn changes `state` and calls `commit`, which stores what is new. With a store behind the turn's lease every
    write is fenced.
    """

    def __init__(self, store: Store, states: StateStore, key: SessionKey, options: LogOptions) -> None:
        self.key = key
        self.state = AgentState(session_id=key.session_id, user_id=key.user_id)
        self.note: TurnNote | None = None
        """The note of the turn that the last message belongs to."""
        self.leaf_id: str | None = None
        """The last message that is stored of this conversation."""
        self.known: dict[str, bool] = {}
        """Which messages of the input are stored, and whether each is on the path."""
        self.slot_version = 0
        self._options = options
        self._scope = Scope.of(key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._names = (TURN, state_name_in_tree(options.state_name), view_name_in_tree(options.state_name))
        self._store = store
        self._messages = store.messages
        self._states = states
        self._session = Session(store, key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._version = 0
        self._view = NO_VIEW
        self._shown: list[Message] = []
        """The context as it is stored."""
        self._in_force: dict[str, dict[str, Any] | None] = {}
        self._usage: Usage | None = None
        """What was used and is not stored yet."""

    @property
    def writes_slot(self) -> bool:
        return self._options.writes_slot

    # Loading: who is right when slot and tree differ.

    async def load(self, defaults: AgentState, input_ids: Sequence[str] = (), *, adopts: bool = True) -> None:
        """Find out where the conversation stands; with `adopts`, take over what others wrote to the slot.

        Raises:
            StateDecodeError: the slot, or what is attached in the tree, cannot be read.
        """
        slot, head = await asyncio.gather(
            self._read_slot(), self._messages.head(self._scope, self._names, ids=list(input_ids))
        )
        self._stand_at(head)
        self.slot_version = slot.version
        if slot.value is None:
            await self._without_slot(defaults, adopts=adopts)
            return
        mark: dict[str, Any] = slot.value.extra.pop(MARK, None) or {}
        # The mark says which version the slot got with it: if it has that, no other writer has saved it since. The note
        # in the tree cannot say so: after a checkout it is that of an earlier turn.
        is_ours = (mark.get("agent"), mark.get("slot")) == (self._options.agent_id, slot.version)
        if is_ours and (mark.get("version"), mark.get("leaf")) == (head.version, head.leaf_id):
            self._show(slot.value)
        elif is_ours:
            await self._show_tree(defaults)
        else:
            await self._show_tree(defaults)
            await self._adopt(slot.value, mark.get("leaf"), stores=adopts)

    async def _read_slot(self) -> Versioned[AgentState]:
        if not self._options.writes_slot:
            return Versioned(None, 0)
        return await self._states.get_versioned(self.key, self._options.state_name, AgentState)

    def _stand_at(self, head: Head) -> None:
        self.leaf_id, self._version, self.known = head.leaf_id, head.version, head.known
        self._in_force = {name: head.states.get(name) for name in self._names}
        note, view = self._in_force[TURN], self._in_force[self._names[2]]
        self.note = None if note is None else TurnNote.read(note)
        self._view = View.read(view)

    async def _without_slot(self, defaults: AgentState, *, adopts: bool) -> None:
        if self.note is not None and self.note.slot and self._options.writes_slot:
            # It was there: the session was deleted, and starts before its first message.
            self._show(defaults)
            if adopts:
                await self._messages.checkout(self._scope, None)
                self._stand_at(await self._messages.head(self._scope, self._names))
        else:
            await self._show_tree(defaults)
        if adopts and self._options.writes_slot:
            await self._save(0, empty=True)

    def _show(self, state: AgentState) -> None:
        """Take over a state whose messages are stored."""
        self.state = state
        self._shown = list(state.context)

    async def _show_tree(self, defaults: AgentState) -> None:
        """Take over what the tree says: the messages of the path, and the small state in force there."""
        context = render(await self._read_path(), self._view)
        small = self._in_force[self._names[1]]
        if small is None:
            self._show(replace(defaults, context=context))
        else:
            user_id, session_id = self.key.user_id, self.key.session_id
            self._show(read_small_state(small, user_id=user_id, session_id=session_id, context=context))

    async def _read_path(self, *, raw: bool = False) -> list[Message]:
        return [] if self.leaf_id is None else await self._messages.path(self._scope, self.leaf_id, raw=raw)

    async def path_with(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the conversation; with what summaries cover, if one of these messages is among it."""
        shown = {message.id for message in self.state.context}
        covered = any(self.known.get(one) and one not in shown for one in message_ids)
        return await self._read_path(raw=True) if covered else list(self.state.context)

    async def is_inside(self) -> bool:
        """Tell whether the conversation stands at a message that has others below it, as after a checkout."""
        return self.leaf_id is not None and bool(await self._messages.children(self._scope, self.leaf_id))

    # Writing.

    async def commit(self, note: TurnNote, *, usage: Usage | None = None, at_boundary: bool = False) -> None:
        """Store what was added to the state since the last commit, in one step, with the note and the usage.

        Where only whole turns are stored, nothing is written before a boundary.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
            SessionNotFound: the session was deleted meanwhile; nothing was written.
        """
        self.note = note
        self._usage = _sum(self._usage, usage)
        if not self._options.saves_steps and not at_boundary:
            return
        appended, updated, view = await self._difference()
        for message in updated:
            await self._messages.update(self._scope, draft_of(self._session, message))
        await self._append(appended, view)
        self._shown = list(self.state.context)

    async def _difference(self) -> tuple[Sequence[Message], Sequence[Message], View]:
        shown, context = self._shown, self.state.context
        if len(context) >= len(shown) and all(map(is_, shown, context)):
            return context[len(shown) :], (), self._view
        found = difference(await self._read_path(), self._view, context)
        return found.appended, found.updated, found.view

    async def _append(self, messages: Sequence[Message], view: View) -> None:
        self._view = view
        drafts = [draft_of(self._session, message) for message in messages]
        states = self._changed_states()
        if not drafts and not states and self._usage is None:
            return
        try:
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=self._usage)
        except MessageNotFound:
            await self._find_parent()
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=self._usage)
        self._usage = None
        self._version = done.version
        if drafts:
            self.leaf_id = drafts[-1].message.id

    def _changed_states(self) -> list[AttachedState]:
        """Return the states that are not in force as they should be."""
        note = None if self.note is None else self.note.write()
        wanted = dict(zip(self._names, (note, write_small_state(self.state), self._view.write()), strict=True))
        largest = self._store.max_message_bytes
        changed = [
            attach(name, value, largest=largest) for name, value in wanted.items() if value != self._in_force[name]
        ]
        self._in_force = wanted
        return changed

    async def _find_parent(self) -> None:
        """Go on below the leaf when the message above was deleted.

        Raises:
            SessionNotFound: the whole session was.
        """
        if await self._messages.revision(self._scope) == NOT_THERE:
            raise SessionNotFound(self.key.session_id)
        self.leaf_id = (await self._messages.head(self._scope, ())).leaf_id

    def in_call_order(self) -> None:
        """Show the results of the last reply in the order of its calls, as the tree does; they are stored."""
        self.state.context[:] = render(self.state.context)
        self._shown = list(self.state.context)

    # The slot.

    async def project(self) -> None:
        """Write the state to its slot, where AgentScope reads it.

        Raises:
            StaleState: another writer changed the slot during this call, and the policy is to fail.
        """
        if not self._options.writes_slot:
            return
        try:
            await self._save(self.slot_version)
        except StaleState:
            if self._options.conflict_policy == "fail":
                raise
            other = await self._read_slot()
            if other.value is not None:
                await self._keep_beside(other.value)
            await self._save(other.version)

    async def _save(self, expected: int, *, empty: bool = False) -> None:
        at = (None, 0) if empty else (self.leaf_id, self._version)
        mark = {"agent": self._options.agent_id, "leaf": at[0], "version": at[1], "slot": expected + 1}
        state = replace(self.state, context=[] if empty else self.state.context, extra={**self.state.extra, MARK: mark})
        self.slot_version = await self._states.save_if_version(self.key, self._options.state_name, state, expected)

    # What others wrote.

    async def _adopt(self, slot: AgentState, leaf_id: str | None, *, stores: bool) -> None:
        """Take over a slot that another writer saved."""
        path = await self._read_path()
        found = adopt(path, self._view, self.leaf_id, slot.context, leaf_id)
        self.state = replace(slot, session_id=self.key.session_id, user_id=self.key.user_id)
        if not stores:
            return
        if found.is_needed:
            await self._store_adoption(found)
        self.state.context = render(await self._read_path(), self._view)
        self._shown = list(self.state.context)

    async def _store_adoption(self, found: Adoption) -> None:
        for message in found.updated:
            await self._messages.update(self._scope, draft_of(self._session, message))
        if found.overlay is not None:
            await self._session.add_compaction(*found.overlay)
        if found.checkout:
            await self._messages.checkout(self._scope, found.parent)
        self.leaf_id = found.parent
        if self.note is not None:
            self.note = replace(self.note, slot=self.slot_version)
        await self._append(found.appended, found.view)

    async def _keep_beside(self, other: AgentState) -> None:
        """Store what another writer saved during this call as a branch, and show it before this call's if asked to."""
        own_leaf, own_view = self.leaf_id, self._view
        found = adopt(await self._read_path(), self._view, self.leaf_id, other.context, None)
        if not found.appended:
            return
        drafts = [draft_of(self._session, message) for message in found.appended]
        await self._messages.append(self._scope, drafts, found.parent)
        await self._messages.checkout(self._scope, own_leaf)
        self.leaf_id, self._view = own_leaf, own_view
        if self._options.conflict_policy == "append_merge":
            first = self._first_of_this_call()
            self.state.context[first:first] = found.appended
            merged = difference(await self._read_path(), self._view, self.state.context)
            await self._append((), merged.view)
            self._shown = list(self.state.context)

    def _first_of_this_call(self) -> int:
        began = set(() if self.note is None else self.note.input)
        rows = (row for row, message in enumerate(self.state.context) if message.id in began)
        return next(rows, len(self.state.context))


def _sum(before: Usage | None, more: Usage | None) -> Usage | None:
    if before is None or more is None:
        return before or more
    return before._replace(
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cost=before.cost + more.cost,
    )
