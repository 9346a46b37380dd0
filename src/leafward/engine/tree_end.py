"""The end of a conversation in its session's tree: what is in force there, and what is appended to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from leafward.core.attached_state import TURN, AttachedState, attach
from leafward.core.errors import MessageNotFound, SessionNotFound
from leafward.core.ids import Scope
from leafward.core.message import Message, ids_of
from leafward.core.session_key import SessionKey
from leafward.engine.agent_compaction import RAISED, ToCompact
from leafward.engine.budget import Spent
from leafward.engine.context_view import NO_VIEW, View
from leafward.engine.seen_path import SeenMessages
from leafward.engine.small_state import state_name_in_tree, view_name_in_tree
from leafward.engine.step_log import LogOptions
from leafward.engine.summary_messages import shown_id
from leafward.sessions.path_compaction import Compacted, PathCompactor
from leafward.sessions.session import Session, draft_of
from leafward.stores.contracts import Head, MessageStore, Store, Usage, without_lease

Documents = dict[str, dict[str, Any] | None]
"""Attached states by their names."""


class TreeEnd:
    """Where a turn stands in the tree. It goes on below its own last message, whatever others append meanwhile."""

    def __init__(self, store: Store, key: SessionKey, options: LogOptions) -> None:
        self.leaf_id: str | None = None
        """The last message that is stored of this conversation."""
        self.version = 0
        self.view = NO_VIEW
        self.is_begun = False
        """Whether the session may have been deleted since it was read or written."""
        self.is_behind = False
        """Whether others have changed the session since it was read."""
        self._scope = Scope.of(key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._names = (TURN, state_name_in_tree(options.state_name), view_name_in_tree(options.state_name))
        self._in_force: Documents = {}
        self._store = store
        self._messages = store.messages
        self._registry = store.registry
        self._largest = store.max_message_bytes
        self._session = Session(store, key.session_id, user_id=key.user_id, agent_id=options.agent_id)
        self._incarnation: str | None = None
        """Which of the sessions that had this id it is, if messages cannot tell."""

    # Reading.

    async def read(self, input_ids: Sequence[str] = ()) -> Head:
        """Return where the session stands, with what is in force there."""
        return await self._messages.head(self._scope, self._names, ids=list(input_ids))

    def stand_at(self, head: Head) -> None:
        """Go on from where the session stands.

        Raises:
            StateDecodeError: the view in force cannot be read.
        """
        self.leaf_id, self.version = head.leaf_id, head.version
        self._in_force = {name: head.states.get(name) for name in self._names}
        self.view = View.read(self._in_force[self._names[2]])

    @property
    def note(self) -> dict[str, Any] | None:
        """The note in force."""
        return self._in_force.get(self._names[0])

    @property
    def small_state(self) -> dict[str, Any] | None:
        """The small state in force; `None` as well if it is not known."""
        return self._in_force.get(self._names[1])

    async def note_at(self, message_id: str) -> dict[str, Any] | None:
        """Return the note in force at a message.

        Raises:
            MessageNotFound: it is not stored.
        """
        return (await self._messages.states(self._scope, message_id, (TURN,))).get(TURN)

    async def first_note(self) -> dict[str, Any] | None:
        """Return the note in force at the first message, if that says something."""
        with suppress(MessageNotFound):
            for message in (await self._messages.children(self._scope, None))[:1]:
                return await self.note_at(message.id)
        return None

    async def path(self, *, raw: bool = False) -> list[Message]:
        """Return the messages from the root; `raw` those that summaries cover."""
        return [] if self.leaf_id is None else await self._messages.path(self._scope, self.leaf_id, raw=raw)

    async def known(self, message_ids: Sequence[str]) -> dict[str, bool]:
        """Return which of some messages are stored, and whether each is on the path."""
        return (await self._messages.head(self._scope, (), ids=list(message_ids))).known

    async def is_inside(self) -> bool:
        """Tell whether there are messages below."""
        return self.leaf_id is not None and bool(await self._messages.children(self._scope, self.leaf_id))

    async def below(self, reply_id: str) -> list[Message]:
        """Return what stands between a reply and the next one, on every branch; nothing if it is not stored."""
        found: list[Message] = []
        above = [reply_id]
        with suppress(MessageNotFound):
            while above:
                children = await self._messages.children(self._scope, above.pop())
                found += (deeper := [message for message in children if message.role != "assistant"])
                above += ids_of(deeper)
        return found

    async def spent(self) -> Spent:
        """Return what the session has used, as its counters say."""
        info = await self._registry.get(self._scope)
        return Spent() if info is None else Spent(info.input_tokens + info.output_tokens, info.estimated_cost)

    async def present(self, shown: Sequence[str]) -> Head:
        """Return where the session stands now; `shown` are messages that were stored there.

        Raises:
            SessionNotFound: it was deleted; one that has nothing of what was stored is another of its id.
        """
        head = await self._messages.head(self._scope, (), ids=list(shown))
        if not head.version or (shown and not head.known and not await self._has_summary(shown)):
            raise SessionNotFound(self._scope.session_id)
        return head

    async def _has_summary(self, shown: Sequence[str]) -> bool:
        return any(shown_id(one.summary) in shown for one in await self._messages.overlays(self._scope))

    async def note_incarnation(self) -> None:
        """Remember which session it is, if no message tells: another may come to have its id."""
        if self.leaf_id is None and self.version:
            self._incarnation = (await self._messages.revision(self._scope)).incarnation

    async def is_there(self) -> bool:
        """Tell whether a session without messages is still the one that was read."""
        now = await self._messages.revision(self._scope)
        return now.version >= self.version and self._incarnation in (None, now.incarnation)

    # Writing.

    def documents(self, note: dict[str, Any] | None, small: dict[str, Any] | None, view: View) -> Documents:
        """Return what is to be in force."""
        return dict(zip(self._names, (note, small, view.write()), strict=True))

    def changed(self, wanted: Documents) -> list[AttachedState]:
        """Return the states that may not be in force as they should be."""
        in_force = self._in_force
        return self._attached(
            {name: value for name, value in wanted.items() if name not in in_force or value != in_force[name]}
        )

    def check(self, messages: Sequence[Message], view: View = NO_VIEW) -> None:
        """Look whether the store would take messages and a view.

        Raises:
            MessageTooLarge: one of them is larger than it takes.
        """
        for message in messages:
            draft_of(self._session, message)
        if view != self.view:
            self._attached({self._names[2]: view.write()})

    async def append(
        self, messages: Sequence[Message], wanted: Documents, view: View, usage: Usage | None, shown: Sequence[str]
    ) -> bool:
        """Store messages below the last one, with the states that are to be in force and the usage, in one step.

        Return whether they were all new.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
            SessionNotFound: the session was deleted meanwhile; nothing was written.
        """
        drafts = [draft_of(self._session, message) for message in messages]
        states = self.changed(wanted)
        try:
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=usage)
        except MessageNotFound:
            # The message above was deleted: go on below the leaf.
            self.go_to((await self.present(shown)).leaf_id)
            states = self.changed(wanted)
            done = await self._messages.append(self._scope, drafts, self.leaf_id, state=states, usage=usage)
        self.is_begun = True
        self._in_force, self.view = wanted, view
        self.is_behind |= done.version > self.version + 1
        self.version = done.version
        if drafts:
            self.leaf_id = drafts[-1].message.id
        return done.inserted == len(drafts)

    async def append_beside(self, messages: Sequence[Message], parent: str | None, small: dict[str, Any]) -> None:
        """Store messages as a branch, with a small state of their own."""
        drafts = [draft_of(self._session, message) for message in messages]
        states = self._attached(self.documents(None, small, NO_VIEW))
        await self._messages.append(self._scope, drafts, parent, state=states)

    async def update(self, message: Message) -> None:
        """Store another version of a message.

        Raises:
            MessageNotFound: it was deleted.
        """
        await self._messages.update(self._scope, draft_of(self._session, message))

    async def cover(self, summary: str, first_id: str, last_id: str) -> None:
        """Put a summary over messages."""
        await self._session.add_compaction(summary, first_id, last_id)

    def puts_off(self, asked: ToCompact) -> bool:
        """Tell whether a compaction is to be tried later, because earlier attempts failed."""
        return self._compactor(asked, self._seen()).puts_off(asked.size)

    async def compact(self, asked: ToCompact) -> Compacted:
        """Have a summary take the place of a part of what the view shows."""
        seen = self._seen()
        done = await self._compactor(asked, seen).run(self.leaf_id, asked.size, raised=RAISED)
        self.view = seen.present
        return done

    def _seen(self) -> SeenMessages:
        return SeenMessages(self._messages, without_lease(self._store).messages, self.view)

    def _compactor(self, asked: ToCompact, seen: SeenMessages) -> PathCompactor:
        messages = cast(MessageStore, seen)
        return PathCompactor(asked.function, messages, self._scope, self._store, threshold=asked.threshold)

    async def checkout(self, message_id: str | None) -> None:
        """Have the session stand at a message, or before the first one."""
        await self._messages.checkout(self._scope, message_id)

    async def return_here(self) -> None:
        """Have the session stand where this turn does, after others were stored beside it."""
        await self.checkout(self.leaf_id)
        self.version = (await self._messages.head(self._scope, ())).version

    def go_to(self, message_id: str | None) -> None:
        """Go on below another message, where other states may be in force."""
        self.leaf_id = message_id
        self._in_force = {}

    def _attached(self, documents: Mapping[str, dict[str, Any] | None]) -> list[AttachedState]:
        return [attach(name, value, largest=self._largest) for name, value in documents.items()]
