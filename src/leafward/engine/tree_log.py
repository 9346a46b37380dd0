"""A turn in its session's tree: each step is one fenced commit, and the slot is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import is_
from typing import Any

from leafward.core.agent_state import AgentState
from leafward.core.calls import Call
from leafward.core.errors import ConfigurationError, MessageNotFound, MessageTooLarge, SessionNotFound, StaleState
from leafward.core.message import Message, changed_in_place, ids_of, watch_for_changes
from leafward.core.session_key import SessionKey
from leafward.engine.adoption import Adoption, adopt
from leafward.engine.agent_compaction import ToCompact
from leafward.engine.agent_slot import AgentSlot
from leafward.engine.budget import Spent, add
from leafward.engine.call_results import results_among
from leafward.engine.context_edits import Step, take_back_edits, take_step
from leafward.engine.context_view import NO_VIEW, Difference, View, compare, difference, render
from leafward.engine.recovery import mark_calls, note_of_others, open_calls
from leafward.engine.slot_conflict import (
    OtherSlot,
    as_another,
    compare_slots,
    merge_contexts,
    merge_small_states,
)
from leafward.engine.small_state import (
    check_small_state,
    keep_accepted,
    keep_own,
    put_back,
    read_small_state,
    reply_in_doubt,
    take_mark,
    without_marks,
    write_small_state,
)
from leafward.engine.state_cache import StateCache
from leafward.engine.step_log import LogOptions
from leafward.engine.summary_messages import shown_text
from leafward.engine.tree_end import TreeEnd
from leafward.engine.turn_note import TurnNote
from leafward.sessions.path_compaction import Compacted
from leafward.stores.contracts import Head, Store, Usage
from leafward.stores.states.contracts import Versioned
from leafward.stores.states.store import StateStore

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
        self.known: dict[str, bool] = {}
        """Which messages of the input are stored, and whether each is on the path."""
        self.is_saved = True
        """Whether the last commit was written."""
        self.is_projected = False
        self.is_new = False
        self._options = options
        self._tree = TreeEnd(store, key, options)
        self._slot = AgentSlot(states, key, options, cache)
        self._shown: list[Message] = []
        """The context as it is stored."""
        self._loaded: list[Message] = []
        """The context that the call began with."""
        self._loaded_small: dict[str, Any] = {}
        self._usage: Usage | None = None
        """What was used and is not stored yet."""

    @property
    def leaf_id(self) -> str | None:
        """The last message that is stored of this conversation."""
        return self._tree.leaf_id

    @leaf_id.setter
    def leaf_id(self, message_id: str | None) -> None:
        self._tree.leaf_id = message_id

    # Loading: who is right when slot and tree differ.

    async def load(self, defaults: AgentState, input_ids: Sequence[str] = (), *, adopts: bool = True) -> None:
        """Find out where the conversation stands; with `adopts`, take over what others wrote to the slot.

        Raises:
            StateDecodeError: the slot, or what is attached in the tree, cannot be read.
        """
        await self._load(defaults, input_ids, adopts=adopts)
        mark_calls(self.state, self.note)
        self._loaded = self._shown
        # Where each step is stored, the first is stored at once.
        self._tree.is_begun = not self._options.saves_steps
        if self._tree.is_begun:
            await self._tree.note_incarnation()
        self._loaded_small = write_small_state(self.state)

    async def _load(self, defaults: AgentState, input_ids: Sequence[str], *, adopts: bool) -> None:
        slot, head = await asyncio.gather(self._slot.read(), self._tree.read(input_ids))
        self._stand_at(head)
        if self.note is None and head.leaf_id is None and head.version:
            # Before the first message, where no note is in force, the first turn says whose conversation it is.
            self._check_state_name(await self._tree.first_note())
        self._slot.version = slot.version
        if slot.value is None:
            await self._without_slot(defaults, input_ids, adopts=adopts)
            return
        mark = take_mark(slot.value)
        is_ours = self._slot.is_ours(slot.value, mark, head.version)
        if not is_ours and not self._slot.is_taken_over(self.note):
            await self._show_tree(defaults)
            await self._adopt(slot.value, mark, stores=adopts)
            # What was on the path may be on another branch now.
            self.known = await self._tree.known(input_ids)
        elif is_ours and (mark["version"], mark.get("leaf")) == (head.version, head.leaf_id):
            keep_own(slot.value.extra, self._tree.small_state or {})
            self._show(slot.value)
            self.is_projected = True
        else:
            await self._show_tree(defaults)

    def _stand_at(self, head: Head) -> None:
        self.known = head.known
        self._tree.stand_at(head)
        note = self._tree.note
        self.note = None if note is None else TurnNote.read(note)
        self._check_state_name(note)

    def _check_state_name(self, note: dict[str, Any] | None) -> None:
        name = self._options.state_name if note is None else TurnNote.read(note).state_name
        if name != self._options.state_name:
            raise ConfigurationError(
                f"the conversation of session {self.key.session_id!r} is that of an agent with the agent_id "
                f"{self._options.agent_id!r} and the state_name {name!r}: give this agent, whose "
                f"state_name is {self._options.state_name!r}, another agent_id"
            )

    async def _without_slot(self, defaults: AgentState, input_ids: Sequence[str], *, adopts: bool) -> None:
        if self.note is not None and self.note.slot and self._options.writes_slot:
            # It was there: the session was deleted, and starts before its first message.
            self._show(defaults)
            if adopts:
                await self._tree.checkout(None)
                self._stand_at(await self._tree.read(input_ids))
        else:
            await self._show_tree(defaults)
            if self.leaf_id is None and self.note is None:
                left = await self._slot.read_of_1x()
                self.is_new = left is None
                if left is not None:
                    # As AgentScope 2.x does.
                    await self._adopt(left, {}, stores=adopts)
        if adopts and self._options.writes_slot:
            await self._slot.make(self.state)

    def _show(self, state: AgentState) -> None:
        """Take over a state whose messages are stored."""
        self.state = state
        self._take_shown()

    def _take_shown(self) -> None:
        """Have the context as what is stored; a change of one of its messages is noticed from now on."""
        self._shown = list(self.state.context)
        watch_for_changes(self._shown)

    async def _show_tree(self, defaults: AgentState) -> None:
        """Take over what the tree says: the messages of the path, and the small state in force there."""
        context = render(await self._tree.path(), self._tree.view)
        small = self._tree.small_state
        if small is None:
            self._show(replace(defaults, context=context))
        else:
            user_id, session_id = self.key.user_id, self.key.session_id
            self._show(read_small_state(small, user_id=user_id, session_id=session_id, context=context))
        self.state.summary = shown_text(context) or self.state.summary

    async def path_with(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the conversation; with all that is hidden of it, if one of these messages is stored there."""
        context = self.state.context
        shown = set(ids_of(context))
        known = [one for one in message_ids if self.known.get(one)]
        hides = self._tree.view != NO_VIEW or shown_text(context) is not None
        is_raw = bool(known) and (hides or not shown.issuperset(known))
        return await self._tree.path(raw=True) if is_raw else list(context)

    async def note_at(self, message_id: str) -> TurnNote | None:
        """Return the note of the turn that a message belongs to, as of that message; `None` if none is kept there."""
        with suppress(MessageNotFound):
            note = await self._tree.note_at(message_id)
            return None if note is None else TurnNote.read(note)
        return None

    async def unknown(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of some messages that are not stored."""
        known = await self._tree.known(ids_of(messages))
        return [message for message in messages if message.id not in known]

    async def stored_results(self, calls: Sequence[Call]) -> dict[str, Message | None]:
        """Return the results that are stored of calls without one; `None` for those that only other branches have."""
        if not calls:
            return {}
        below = results_among(calls, await self._tree.below(calls[0].message.id))
        on_path = await self._tree.known([message.id for _, message in below]) if below else {}
        found = dict[str, Message | None].fromkeys(call_id for call_id, _ in below)
        return found | {call_id: message for call_id, message in below if on_path.get(message.id)}

    async def is_inside(self) -> bool:
        """Tell whether the conversation stands at a message that has others below it, as after a checkout."""
        return await self._tree.is_inside()

    # Writing.

    async def commit(self, note: TurnNote, *, usage: Usage | None = None, at_boundary: bool = False) -> None:
        """Store what was added to the state since the last commit, in one step, with the note and the usage.

        Where only whole turns are stored, nothing is written before a boundary.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
            SessionNotFound: the session was deleted meanwhile; nothing was written.
            ValueError: the context holds what it may not, or was changed in a way that is too large to be stored; that
                was taken back, and nothing was written.
        """
        # At a boundary the slot is written next, and has one more version then; a turn that may be running notes the
        # version that it has read.
        written = at_boundary and note.open != "running"
        self.note = replace(note, slot=self._slot.version + written if self._options.writes_slot else 0)
        self._usage = _sum(self._usage, usage)
        step = take_step(self.state.context, self._shown, self._tree.view)
        mark_calls(self.state, self.note)
        self.is_saved = self._options.saves_steps or at_boundary
        if not self.is_saved:
            # What the store will not take is refused now, while the turn can do without it.
            self._tree.check(step.added)
            return
        if step.only_adds:
            await self._append(step.added, self._tree.view)
        else:
            try:
                await self._store_edits(step)
            except MessageNotFound:
                await self._tree.present(ids_of(self._shown))
                raise
        # What a tool changed while this was written comes with the next step.
        self._shown = step.shown
        if self._tree.is_behind:
            await self._catch_up()

    def puts_off(self, asked: ToCompact) -> bool:
        """Tell whether a compaction is to be tried later, because earlier attempts failed."""
        return self._tree.puts_off(asked)

    async def compact(self, asked: ToCompact) -> Compacted:
        """Have a summary take the place of a part of the context, all of which is stored.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
        """
        done = await self._tree.compact(asked)
        if done.is_shorter:
            self._tree.is_behind = True
            await self._catch_up()
        return done

    async def _catch_up(self) -> None:
        """Show what others did to the session meanwhile, say a summary: a slot of this version has to show it."""
        path = await self._tree.path()
        context = self.state.context
        # A tool may have put something else in its place, which the next step refuses.
        is_list = isinstance(context, list)  # pyright: ignore[reportUnnecessaryIsInstance]
        is_same = is_list and len(context) == len(self._shown) and all(map(is_, context, self._shown))
        if is_same and not changed_in_place(self._shown):
            before = shown_text(context)
            context[:] = render(path, self._tree.view)
            self._take_shown()
            self._tree.is_behind = False
            if shown_text(context) != before:
                self.state.summary = shown_text(context) or self.state.summary

    async def _store_edits(self, step: Step) -> None:
        self._tree.view = self._tree.view.as_before()
        found = difference(await self._tree.path(), self._tree.view, step.shown, arrived=ids_of(step.added))
        try:
            self._tree.check(found.updated, found.view)
        except MessageTooLarge as error:
            take_back_edits(self.state.context, self._shown)
            raise ValueError(f"a change of the context cannot be stored, and was taken back: {error}") from error
        unchanged = set(map(id, self._shown))
        for message in found.updated:
            # Another process may have updated what this turn has not touched.
            if id(message) not in unchanged:
                await self._tree.update(message)
                self._tree.version += 1
        await self._append(found.appended, found.view)

    async def _append(self, messages: Sequence[Message], view: View) -> bool:
        """Store messages below the last one; return whether they were all new."""
        small = write_small_state(self.state)
        if small != self._tree.small_state:
            check_small_state(self.state)
        wanted = self._tree.documents(None if self.note is None else self.note.write(), small, view)
        if not messages and self._usage is None and not self._tree.changed(wanted):
            return True
        if self.leaf_id is None and self._tree.is_begun:
            await self._check_root()
        were_new = await self._tree.append(messages, wanted, view, self._usage, ids_of(self._shown))
        self._usage = None
        return were_new

    async def spent(self) -> Spent:
        """Return what all turns of the session have used, this one included."""
        stored, more = await self._tree.spent(), self._usage
        return stored if more is None else add(stored, more)

    async def _check_root(self) -> None:
        """Look whether the session is still there, which an append below no message does not tell.

        Raises:
            SessionNotFound: it was deleted meanwhile.
        """
        # A session that has no tree yet has its slot, which was written first.
        if not await (self._tree.is_there() if self._tree.version else self._slot.is_there()):
            raise SessionNotFound(self.key.session_id)

    def take_back(self) -> None:
        """Have the small state as it is stored, or as the call began with it."""
        put_back(self.state, self._tree.small_state or self._loaded_small)

    async def clear(self) -> None:
        """Start before the first message, with all that is in force now but the summary."""
        await self._tree.checkout(None)
        self._stand_at(await self._tree.read())
        self.state.context, self.state.summary, self.state.shutdown_interrupted = [], "", False
        self._shown, self._tree.view = [], NO_VIEW
        await self.commit(self._options.ended_turn(), at_boundary=True)
        await self.project()

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
                await self._project()
            except StaleState:
                await self._tree.present(ids_of(self._shown))
                if self._options.conflict_policy == "fail":
                    raise
                await self._take_in(await self._slot.read())
            else:
                return
        await self._project()

    async def _project(self) -> None:
        await self._slot.write(self.state, self._shown, self.leaf_id, self._tree.version)

    # What others wrote.

    async def _adopt(self, slot: AgentState, mark: dict[str, Any], *, stores: bool) -> None:
        """Take over a slot that another writer saved."""
        keep_accepted(slot.permission_context, self.state.permission_context)
        keep_own(slot.extra, self.state.extra)
        self.state = replace(slot, session_id=self.key.session_id, user_id=self.key.user_id)
        in_doubt = await self._is_in_doubt(slot, mark)
        # What another writer said has ended our turn, or is a turn of its own.
        note = note_of_others(self.state, state_name=self._options.state_name, in_doubt=in_doubt)
        if not stores:
            self.note = note
            return
        path = await self._tree.path()
        for _ in range(_ADOPTED_IN):
            found = adopt(path, self._tree.view, self.leaf_id, slot.context, mark.get("leaf"))
            if not found.is_needed:
                break
            await self._store_adoption(found, note)
            path = await self._tree.path()
        self.state.context = render(path, self._tree.view)
        self._take_shown()

    async def _is_in_doubt(self, slot: AgentState, mark: dict[str, Any]) -> bool:
        """Tell whether calls without results, which a slot shows, may have begun."""
        calls = open_calls(slot.context)
        if not calls:
            return False
        reply_id = calls[0].message.id
        if reply_in_doubt(mark) == reply_id:
            return True
        try:
            note = await self._tree.note_at(reply_id)
        except MessageNotFound:
            # Another writer's, which saves the slot when it runs nothing.
            return False
        # A copy of a session has no note: its calls may have begun in the original.
        return note is None or TurnNote.read(note).open not in ("asking", "paused")

    async def _store_adoption(self, found: Adoption, note: TurnNote) -> None:
        for message in found.updated:
            await self._tree.update(message)
        if found.overlay is not None:
            await self._tree.cover(*found.overlay)
        if found.checkout:
            await self._tree.checkout(found.parent)
        self._tree.go_to(found.parent)
        if found.appended or found.checkout:
            self.note = note
        if self.note is not None:
            # Without a slot, as of 1.x, no slot that is missing later was deleted.
            version = self._slot.version
            self.note = replace(self.note, slot=version and version + (self.note.open != "running"))
        if not await self._append(found.appended, found.view):
            # Where other branches have some of it, the leaf has not moved to its end.
            await self._tree.return_here()

    async def _take_in(self, slot: Versioned[AgentState]) -> None:
        """Keep what another writer saved during this call: as a branch, and if asked to, in what is shown."""
        other = compare_slots(self._loaded, [] if slot.value is None else slot.value.context)
        small = self._loaded_small if slot.value is None else write_small_state(without_marks(slot.value))
        keep_own(small, self._loaded_small)
        beside = [*(as_another(message, slot.version) for message in other.edited), *other.added]
        if self._options.conflict_policy == "append_merge":
            merged = merge_contexts(self._loaded, self._shown, other)
            found = compare(await self._tree.path(), self._tree.view, merged, strict=False)
            shown = set(ids_of(found.appended))
            beside = [message for message in other.added if message.id not in shown]
            await self._keep_beside(beside, other, small)
            await self._store_merged(
                found, merge_small_states(self._loaded_small, write_small_state(self.state), small)
            )
        else:
            await self._keep_beside(beside, other, small)
        if beside:
            await self._tree.return_here()
        self._slot.version = slot.version
        self._loaded, self._loaded_small = other.context, small

    async def _keep_beside(self, messages: Sequence[Message], other: OtherSlot, small: dict[str, Any]) -> None:
        """Store messages of another writer as a branch, with the small state that it saved."""
        if messages:
            parent = adopt(await self._tree.path(), self._tree.view, self.leaf_id, other.context).parent
            await self._tree.append_beside(messages, parent, small)

    async def _store_merged(self, found: Difference, small: dict[str, Any]) -> None:
        """Show another writer's messages and this call's together."""
        for message in found.updated:
            await self._tree.update(message)
        put_back(self.state, small)
        await self._append(found.appended, found.view)
        self.state.context[:] = render(await self._tree.path(), self._tree.view)
        self._take_shown()
        self._tree.is_behind = False


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
