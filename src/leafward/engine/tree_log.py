"""A turn in its session's tree: each step is one fenced commit, and the slot is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Any

from leafward.core.agent_state import AgentState
from leafward.core.attached_state import TURN, AttachedState, attach
from leafward.core.errors import ConfigurationError, MessageNotFound, SessionNotFound, StaleState
from leafward.core.ids import Scope, new_id
from leafward.core.message import Message, ids_of
from leafward.core.session_key import SessionKey
from leafward.engine.adoption import Adoption, adopt
from leafward.engine.context_edits import Step, take_step
from leafward.engine.context_view import NO_VIEW, Difference, View, compare, difference, render
from leafward.engine.recovery import note_of_others
from leafward.engine.slot_conflict import (
    OtherSlot,
    as_another,
    compare_slots,
    merge_contexts,
    merge_small_states,
)
from leafward.engine.small_state import (
    MARK,
    check_small_state,
    keep_accepted,
    put_back,
    read_small_state,
    state_name_in_tree,
    take_mark,
    view_name_in_tree,
    without_marks,
    write_small_state,
)
from leafward.engine.state_cache import StateCache
from leafward.engine.state_of_1x import NAMES as NAMES_OF_1X
from leafward.engine.state_of_1x import read_state_of_1x
from leafward.engine.step_log import LogOptions
from leafward.engine.summary_messages import shown_id
from leafward.engine.turn_note import TurnNote
from leafward.sessions.session import Session, draft_of
from leafward.stores.contracts import Head, Store, Usage
from leafward.stores.states.contracts import Versioned
from leafward.stores.states.store import Known, StateStore, get_unless_known

_MOST_TRIES = 5
"""How often a slot that others write all the time is written again."""
_ADOPTED_IN = 3
"""How often a slot is compared with the tree at most: what another branch has may move the place to go on from."""


class TreeLog:
    """The durable side of one turn in a store of ours.

    The turn changes `state` and calls `commit`, which stores what is new. With a store behind the turn's lease every
    write is fenced.
    """

    def __init__(
        self,
        store: Store,
        states: StateStore,
        key: SessionKey,
        options: LogOptions,
        cache: StateCache | None = None,
    ) -> None:
        self.key = key
        self.state = AgentState(session_id=key.session_id, user_id=key.user_id)
        self.note: TurnNote | None = None
        """The note of the turn that the last message belongs to."""
        self.leaf_id: str | None = None
        """The last message that is stored of this conversation."""
        self.known: dict[str, bool] = {}
        """Which messages of the input are stored, and whether each is on the path."""
        self.slot_version = 0
        self._may_be_of_1x = False
        """Whether AgentScope 1.x may have left something of the session."""
        self._options = options
        self._scope = Scope.of(key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._names = (TURN, state_name_in_tree(options.state_name), view_name_in_tree(options.state_name))
        self._store = store
        self._messages = store.messages
        self._states = states
        self._cache = StateCache(0) if cache is None else cache
        self._session = Session(store, key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._version = 0
        self._incarnation: str | None = None
        """Which of the sessions that had this id it is, if messages cannot tell."""
        self._is_begun = False
        """Whether the session may have been deleted since it was read or written."""
        self._view = NO_VIEW
        self._shown: list[Message] = []
        """The context as it is stored."""
        self._loaded: list[Message] = []
        """The context that the call began with."""
        self._loaded_small: dict[str, Any] = {}
        self._in_force: dict[str, dict[str, Any] | None] = {}
        self.is_saved = True
        """Whether the last commit was written."""
        self.is_projected = False
        self._is_behind = False
        """Whether others have changed the session since it was read."""
        self._usage: Usage | None = None
        """What was used and is not stored yet."""

    # Loading: who is right when slot and tree differ.

    async def load(self, defaults: AgentState, input_ids: Sequence[str] = (), *, adopts: bool = True) -> None:
        """Find out where the conversation stands; with `adopts`, take over what others wrote to the slot.

        Raises:
            StateDecodeError: the slot, or what is attached in the tree, cannot be read.
        """
        await self._load(defaults, input_ids, adopts=adopts)
        self._loaded = self._shown
        # Where each step is stored, the first is stored at once.
        self._is_begun = not self._options.saves_steps
        if self._is_begun and self.leaf_id is None and self._version:
            self._incarnation = (await self._messages.revision(self._scope)).incarnation
        if self._options.conflict_policy != "fail":
            self._loaded_small = write_small_state(self.state)

    async def _load(self, defaults: AgentState, input_ids: Sequence[str], *, adopts: bool) -> None:
        slot, head = await asyncio.gather(
            self._read_slot(), self._messages.head(self._scope, self._names, ids=list(input_ids))
        )
        self._stand_at(head)
        self.slot_version = slot.version
        if slot.value is None:
            await self._without_slot(defaults, input_ids, adopts=adopts)
            return
        mark = take_mark(slot.value)
        is_ours = self._is_ours(slot.value, mark)
        if not is_ours and not self._is_taken_over(slot.version):
            await self._show_tree(defaults)
            await self._adopt(slot.value, mark.get("leaf"), stores=adopts)
            # What was on the path may be on another branch now.
            self.known = (await self._messages.head(self._scope, (), ids=list(input_ids))).known
        elif is_ours and (mark["version"], mark.get("leaf")) == (head.version, head.leaf_id):
            self._show(slot.value)
            self.is_projected = True
        else:
            await self._show_tree(defaults)

    def _is_ours(self, slot: AgentState, mark: dict[str, Any]) -> bool:
        """Tell whether a slot shows a point of this tree, and no other writer has saved it since.

        The mark says which version the slot got with it. The note in the tree cannot say so: after a checkout it is
        that of an earlier turn. A tree that is behind the mark was lost, and is not the one that it names.
        """
        version = mark.get("version")
        return (
            (mark.get("agent"), mark.get("slot")) == (self._options.agent_id, self.slot_version)
            and (slot.session_id, slot.user_id) == (self.key.session_id, self.key.user_id)
            and isinstance(version, int)
            and version <= self._version
        )

    def _is_taken_over(self, slot_version: int) -> bool:
        """Tell whether a turn has taken over the slot that another writer saved, and was cut off before it wrote it."""
        if self.note is None:
            return False
        # A turn that runs notes the version that it has read, another one the version that it writes.
        return slot_version <= self.note.slot - (self.note.open != "running")

    async def _read_slot(self) -> Versioned[AgentState]:
        if not self._options.writes_slot:
            return Versioned(None, 0)
        name, known = self._options.state_name, self._cache.known(self.key)
        older = NAMES_OF_1X if name == "agent_state" else ()
        found, self._may_be_of_1x = await get_unless_known(self._states, self.key, name, AgentState, known, older)
        if found.value is None and found.version:
            kept = self._cache.take(self.key)
            return await self._read_slot() if kept is None else Versioned(kept, found.version)
        return found

    def _stand_at(self, head: Head) -> None:
        self.leaf_id, self._version, self.known = head.leaf_id, head.version, head.known
        self._in_force = {name: head.states.get(name) for name in self._names}
        note, view = self._in_force[TURN], self._in_force[self._names[2]]
        self.note = None if note is None else TurnNote.read(note)
        if self.note is not None and self.note.state_name != self._options.state_name:
            raise ConfigurationError(
                f"the conversation of session {self.key.session_id!r} is that of an agent with the agent_id "
                f"{self._options.agent_id!r} and the state_name {self.note.state_name!r}: give this agent, whose "
                f"state_name is {self._options.state_name!r}, another agent_id"
            )
        self._view = View.read(view)

    async def _without_slot(self, defaults: AgentState, input_ids: Sequence[str], *, adopts: bool) -> None:
        if self.note is not None and self.note.slot and self._options.writes_slot:
            # It was there: the session was deleted, and starts before its first message.
            self._show(defaults)
            if adopts:
                await self._messages.checkout(self._scope, None)
                self._stand_at(await self._messages.head(self._scope, self._names, ids=list(input_ids)))
        else:
            await self._show_tree(defaults)
            if self.leaf_id is None and self.note is None and self._may_be_of_1x:
                await self._take_over_1x(adopts=adopts)
        if adopts and self._options.writes_slot:
            await self._save(0, empty=True)

    async def _take_over_1x(self, *, adopts: bool) -> None:
        """Begin with what AgentScope 1.x left of the session, as AgentScope 2.x does."""
        found = await read_state_of_1x(self._states, self.key)
        if found is not None:
            await self._adopt(found, None, stores=adopts)

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

    async def unknown(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of some messages that are not stored."""
        head = await self._messages.head(self._scope, (), ids=[message.id for message in messages])
        return [message for message in messages if message.id not in head.known]

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
            ValueError: the context holds what it may not; that was taken out of it, and nothing was written.
        """
        # At a boundary the slot is written next, and has one more version then.
        self.note = replace(note, slot=self.slot_version + at_boundary if self._options.writes_slot else 0)
        self._usage = _sum(self._usage, usage)
        step = take_step(self.state.context, self._shown, self._view)
        self.is_saved = self._options.saves_steps or at_boundary
        if not self.is_saved:
            # What the store will not take is refused now, while the turn can do without it.
            for message in step.added:
                draft_of(self._session, message)
            return
        if step.only_adds:
            await self._append(step.added, self._view)
        else:
            try:
                await self._store_edits(step)
            except MessageNotFound:
                await self._present()
                raise
        # What a tool changed while this was written comes with the next step.
        self._shown = step.shown
        if self._is_behind:
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Show what others did to the session meanwhile, say a summary: a slot of this version has to show it."""
        path = await self._read_path()
        context = self.state.context
        if len(context) == len(self._shown) and all(map(is_, context, self._shown)):
            context[:] = render(path, self._view)
            self._shown, self._is_behind = list(context), False

    async def _store_edits(self, step: Step) -> None:
        found = difference(await self._read_path(), self._view, step.shown, arrived=ids_of(step.added))
        unchanged = set(map(id, self._shown))
        for message in found.updated:
            # Another process may have updated what this turn has not touched.
            if id(message) not in unchanged:
                await self._messages.update(self._scope, draft_of(self._session, message))
                self._version += 1
        await self._append(found.appended, found.view)

    async def _append(self, messages: Sequence[Message], view: View) -> None:
        drafts = [draft_of(self._session, message) for message in messages]
        wanted = self._wanted_states(view)
        states = self._attached(wanted)
        if not drafts and not states and self._usage is None:
            return
        if self.leaf_id is None and self._is_begun:
            await self._check_root()
        try:
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=self._usage)
        except MessageNotFound:
            # The message above was deleted: go on below the leaf.
            self._go_to((await self._present()).leaf_id)
            states = self._attached(wanted)
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=self._usage)
        self._usage = None
        self._is_begun = True
        self._in_force, self._view = wanted, view
        self._is_behind |= done.version > self._version + 1
        self._version = done.version
        if drafts:
            self.leaf_id = drafts[-1].message.id

    def _wanted_states(self, view: View) -> dict[str, dict[str, Any] | None]:
        note = None if self.note is None else self.note.write()
        small = write_small_state(self.state)
        if small != self._in_force.get(self._names[1]):
            check_small_state(self.state)
        return dict(zip(self._names, (note, small, view.write()), strict=True))

    def _attached(self, wanted: dict[str, dict[str, Any] | None]) -> list[AttachedState]:
        """Return the states that may not be in force as they should be."""
        largest, in_force = self._store.max_message_bytes, self._in_force
        return [
            attach(name, value, largest=largest)
            for name, value in wanted.items()
            if name not in in_force or value != in_force[name]
        ]

    def take_back(self) -> None:
        """Have the small state as it is stored."""
        put_back(self.state, self._in_force.get(self._names[1]))

    async def _present(self) -> Head:
        """Return where the session stands now.

        Raises:
            SessionNotFound: it was deleted; one that has nothing of what was stored is another of its id.
        """
        ids = ids_of(self._shown)
        head = await self._messages.head(self._scope, (), ids=ids)
        if not head.version or (ids and not head.known and not await self._has_summary(ids)):
            raise SessionNotFound(self.key.session_id)
        return head

    async def _has_summary(self, shown: Sequence[str]) -> bool:
        return any(shown_id(one.summary) in shown for one in await self._messages.overlays(self._scope))

    async def _check_root(self) -> None:
        """Look whether the session is still there, which an append below no message does not tell.

        Raises:
            SessionNotFound: it was deleted meanwhile.
        """
        if self._version:
            now = await self._messages.revision(self._scope)
            is_there = now.version >= self._version and self._incarnation in (None, now.incarnation)
        else:
            # The session has no tree yet: its slot was written first.
            slot = await self._states.get_versioned(self.key, self._options.state_name) if self.slot_version else None
            is_there = slot is None or slot.version >= self.slot_version
        if not is_there:
            raise SessionNotFound(self.key.session_id)

    def _go_to(self, message_id: str | None) -> None:
        """Go on below another message, where other states may be in force."""
        self.leaf_id = message_id
        self._in_force = {}

    async def clear(self) -> None:
        """Start before the first message, with all that is in force now but the summary."""
        await self._messages.checkout(self._scope, None)
        self._stand_at(await self._messages.head(self._scope, self._names))
        self.state.context, self.state.summary, self.state.shutdown_interrupted = [], "", False
        self._shown, self._view = [], NO_VIEW
        await self.commit(TurnNote(new_id(), None, state_name=self._options.state_name), at_boundary=True)
        await self.project()

    # The slot.

    async def project(self) -> None:
        """Write the state to its slot, where AgentScope reads it.

        Raises:
            SessionNotFound: the session was deleted meanwhile; nothing was written.
            StaleState: another writer changed the slot during this call, and the policy is to fail.
        """
        if not self._options.writes_slot:
            return
        for _ in range(_MOST_TRIES):
            try:
                await self._save(self.slot_version)
            except StaleState:
                await self._present()
                if self._options.conflict_policy == "fail":
                    raise
                await self._take_in(await self._read_slot())
            else:
                return
        await self._save(self.slot_version)

    async def _save(self, expected: int, *, empty: bool = False) -> None:
        at = (None, 0) if empty else (self.leaf_id, self._version)
        name = new_id()
        mark = {"agent": self._options.agent_id, "leaf": at[0], "version": at[1], "slot": expected + 1, "id": name}
        state = replace(self.state, context=[] if empty else self._shown, extra={**self.state.extra, MARK: mark})
        self.slot_version = await self._states.save_if_version(self.key, self._options.state_name, state, expected)
        self._cache.put(self.key, state, Known(self.slot_version, name))

    # What others wrote.

    async def _adopt(self, slot: AgentState, leaf_id: str | None, *, stores: bool) -> None:
        """Take over a slot that another writer saved."""
        keep_accepted(slot.permission_context, self.state.permission_context)
        self.state = replace(slot, session_id=self.key.session_id, user_id=self.key.user_id)
        if not stores:
            return
        path = await self._read_path()
        for _ in range(_ADOPTED_IN):
            found = adopt(path, self._view, self.leaf_id, slot.context, leaf_id)
            if not found.is_needed:
                break
            await self._store_adoption(found)
            path = await self._read_path()
        self.state.context = render(path, self._view)
        self._shown = list(self.state.context)

    async def _store_adoption(self, found: Adoption) -> None:
        for message in found.updated:
            await self._messages.update(self._scope, draft_of(self._session, message))
        if found.overlay is not None:
            await self._session.add_compaction(*found.overlay)
        if found.checkout:
            await self._messages.checkout(self._scope, found.parent)
        self._go_to(found.parent)
        if found.appended or found.checkout:
            # What another writer said has ended our turn, or is a turn of its own.
            self.note = note_of_others(self.state, state_name=self._options.state_name)
        if self.note is not None:
            # Without a slot, as of 1.x, no slot that is missing later was deleted.
            slot = self.slot_version and self.slot_version + (self.note.open != "running")
            self.note = replace(self.note, slot=slot)
        await self._append(found.appended, found.view)

    async def _take_in(self, slot: Versioned[AgentState]) -> None:
        """Keep what another writer saved during this call: as a branch, and if asked to, in what is shown."""
        other = compare_slots(self._loaded, [] if slot.value is None else slot.value.context)
        small = self._loaded_small if slot.value is None else write_small_state(without_marks(slot.value))
        beside = [*(as_another(message, slot.version) for message in other.edited), *other.added]
        if self._options.conflict_policy == "append_merge":
            merged = merge_contexts(self._loaded, self._shown, other)
            found = compare(await self._read_path(), self._view, merged, strict=False)
            shown = set(ids_of(found.appended))
            beside = [message for message in other.added if message.id not in shown]
            await self._keep_beside(beside, other, small)
            await self._store_merged(
                found, merge_small_states(self._loaded_small, write_small_state(self.state), small)
            )
        else:
            await self._keep_beside(beside, other, small)
        if beside:
            await self._messages.checkout(self._scope, self.leaf_id)
            self._version = (await self._messages.head(self._scope, ())).version
        self.slot_version = slot.version
        self._loaded, self._loaded_small = other.context, small

    async def _keep_beside(self, messages: Sequence[Message], other: OtherSlot, small: dict[str, Any]) -> None:
        """Store messages of another writer as a branch, with the small state that it saved."""
        if not messages:
            return
        parent = adopt(await self._read_path(), self._view, self.leaf_id, other.context).parent
        drafts = [draft_of(self._session, message) for message in messages]
        states = dict(zip(self._names, (None, small, None), strict=True))
        largest = self._store.max_message_bytes
        attached = [attach(name, value, largest=largest) for name, value in states.items()]
        await self._messages.append(self._scope, drafts, parent, state=attached)

    async def _store_merged(self, found: Difference, small: dict[str, Any]) -> None:
        """Show another writer's messages and this call's together."""
        for message in found.updated:
            await self._messages.update(self._scope, draft_of(self._session, message))
        put_back(self.state, small)
        await self._append(found.appended, found.view)
        self._shown = render(await self._read_path(), self._view)
        self.state.context[:], self._is_behind = self._shown, False


def _sum(before: Usage | None, more: Usage | None) -> Usage | None:
    """Return the usage of several replies under the name of the last, by which a store counts it once."""
    if before is None or more is None:
        return before or more
    if more.usage_id is not None and more.usage_id == before.usage_id:
        return before
    return more._replace(
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cost=before.cost + more.cost,
    )
