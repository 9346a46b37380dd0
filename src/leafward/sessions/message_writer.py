"""Writes messages into a session, and does what follows from them: hide unloaded skills, compact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leafward.core.attached_state import AttachedState
from leafward.core.errors import InvalidId, MessageNotFound
from leafward.core.ids import RESERVED_PREFIX, Scope, refusal
from leafward.core.message import Dumpable, Message, as_message, check_size
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.sessions.setup import Setup
from leafward.sessions.token_counts import SessionCounter
from leafward.sessions.unloaded_skills import reclaim_unloaded
from leafward.stores.contracts import Appended, MessageStore
from leafward.stores.drafts import Draft

if TYPE_CHECKING:
    from leafward.sessions.compactor import Compactor

MessageLike = Message | Mapping[str, Any] | Dumpable
"""A message, a dict that `Message.from_dict` reads, or an object with `model_dump()`."""


class MessageWriter:
    """Appends and replaces messages of one session."""

    def __init__(
        self,
        setup: Setup,
        messages: MessageStore,
        scope: Scope,
        count: SessionCounter,
        *,
        largest: int,
        keeps_notices: bool,
        compactor: Callable[[], Compactor],
    ) -> None:
        self._setup = setup
        self._messages = messages
        self._scope = scope
        self._count = count
        self._largest = largest
        self._keeps_notices = keeps_notices
        self._compactor = compactor

    def draft(self, given: MessageLike) -> Draft:
        """Return a message as a store takes it, counted as the session counts.

        Raises:
            MessageTooLarge, InvalidId, ValueError: it is refused.
        """
        message, body = as_message(given).sealed()
        if message.id.startswith(RESERVED_PREFIX):
            raise InvalidId("message id", message.id, f"ids that start with {RESERVED_PREFIX!r} belong to summaries")
        check_size(message, body, self._largest)
        return Draft(message, body, self._count(message))

    async def append(
        self, given: Sequence[MessageLike], parent_id: ParentId, state: Sequence[AttachedState] = ()
    ) -> list[Message]:
        """Store messages as a chain, all or none, with states for the last one."""
        drafts = [self.draft(message) for message in given]
        if len(drafts) > 1:
            _refuse_twins(drafts)
        try:
            appended = await self._messages.append(
                self._scope, drafts, _parent(parent_id), weigh=self._weighs, state=state
            )
        except MessageNotFound:
            raise MessageNotFound(parent_id) from None
        # For known ids, too: when the first try stored the messages and then failed, this is the second.
        await self._hide_unloaded(appended.messages)
        if appended.inserted:
            await self._compact(appended)
        return appended.messages

    async def update(self, given: MessageLike) -> Message:
        """Replace the message of that id."""
        if isinstance(given, Mapping) and "id" not in given:
            raise ValueError('the message has no id, by which to find the one it replaces: give the dict an "id"')
        updated = await self._messages.update(self._scope, self.draft(given))
        await self._hide_unloaded([updated])
        return updated

    async def upsert(self, given: MessageLike, parent_id: ParentId) -> Message:
        """Replace the message of that id, or append it."""
        try:
            appended = await self._messages.upsert(
                self._scope, self.draft(given), _parent(parent_id), weigh=self._weighs
            )
        except MessageNotFound:
            raise MessageNotFound(parent_id) from None
        await self._hide_unloaded(appended.messages)
        await self._compact(appended, streamed=appended.messages[0].id if appended.changed else None)
        return appended.messages[0]

    @property
    def _weighs(self) -> bool:
        return self._setup.compact_after is not None

    async def _compact(self, appended: Appended, streamed: str | None = None) -> None:
        if self._setup.on_compaction is not None or self._setup.token_counter is not None:
            await self._compactor().after_write(appended.weight, streamed=streamed, is_new=appended.inserted > 0)

    async def _hide_unloaded(self, messages: Sequence[Message]) -> None:
        if self._keeps_notices:
            await reclaim_unloaded(self._messages, self._scope, messages, self._count)


def _refuse_twins(drafts: Sequence[Draft]) -> None:
    for message_id, times in Counter(draft.message.id for draft in drafts).items():
        if times > 1:
            raise ValueError(f"the id {message_id!r} occurs twice in one batch: nothing was written")


def _parent(parent_id: ParentId) -> ParentId:
    if parent_id is not None and parent_id is not LATEST_LEAF and refusal(parent_id) is not None:
        # Not found, but only if the parent is needed: for a known id it is not. No id starts with a NUL.
        return "\0" + ascii(parent_id)
    return parent_id
