"""The messages of a conversation: a tree, and what can be asked of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leafward.core.attached_state import OUR_PREFIX, AttachedState, attach, check_public_name
from leafward.core.errors import MessageNotFound
from leafward.core.ids import Scope, refusal
from leafward.core.json import Plain
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.times import to_micros
from leafward.sessions.message_writer import MessageLike
from leafward.sessions.recent import RecentHistory, WindowSize, read_recent
from leafward.sessions.session_parts import SessionParts
from leafward.stores.contracts import MessageStore, SearchFilter

if TYPE_CHECKING:
    from leafward.core.ranking import SearchResult
    from leafward.core.tree import TreeNode
    from leafward.sessions.changes import Change

_PAGE = 256
_MOST = 2**31 - 1
"""More messages than any session has, and what every database takes as a limit."""


class Conversation(ABC):
    """The calls on messages; `Session` adds what surrounds them."""

    _scope: Scope

    @abstractmethod
    def _ready(self) -> SessionParts:
        """Return the collaborators of this handle, which is in use from then on."""

    def _use(self) -> MessageStore:
        return self._ready().messages

    async def append_message(
        self,
        message: MessageLike,
        parent_id: ParentId = LATEST_LEAF,
        *,
        state: Mapping[str, Mapping[str, Any] | None] | None = None,
    ) -> Message:
        """Store a new message and make it the leaf; return it as stored.

        Without `parent_id` it goes under the current leaf; `None` makes it a root. An id that is stored already writes
        nothing, does not move the leaf, and gives back what is stored, so a retry is safe. `state={name: value}` is
        attached to the message in the same step, as `set_state` does, also to one that is stored already.

        Raises:
            MessageNotFound: `parent_id` is not in this session.
            MessageTooLarge, InvalidId, ValueError: the message or a state is refused; nothing was written.
        """
        parts = self._ready()
        return (await parts.writer.append([message], parent_id, self._attached(state)))[0]

    async def append_messages(
        self,
        messages: Iterable[MessageLike],
        parent_id: ParentId = LATEST_LEAF,
        *,
        state: Mapping[str, Mapping[str, Any] | None] | None = None,
    ) -> list[Message]:
        """Store messages as a chain, all or none; return them as stored.

        An id that is stored already is kept as it is and becomes the parent of the next. `state` is attached to the
        last message.

        Raises:
            ValueError: an id occurs twice in the batch, or there is a state and no message to attach it to.
            MessageNotFound, MessageTooLarge, InvalidId: as `append_message`.
        """
        if isinstance(messages, (Message, Mapping, str)):
            raise ValueError("append_messages takes a list of messages; append_message takes one")
        given = list(messages)
        attached = self._attached(state)
        if not given:
            if attached:
                raise ValueError("there is no message to attach the state to: set_state() attaches one to the leaf")
            return []
        return await self._ready().writer.append(given, parent_id, attached)

    async def set_state(self, name: str, value: Mapping[str, Any] | None) -> None:
        """Attach a JSON object to the current leaf, or to the root before the first message; `None` removes it.

        It is in force there and for all messages below that have no nearer one of that name, so checkout, branch and
        fork bring the state of that point. Deleting a message keeps its states in force for the messages below it.

        Raises:
            InvalidId: the name is not an id, or begins with `leafward.`.
            ValueError: the value is not a JSON object, or holds NaN or an infinity.
            MessageTooLarge: it has more bytes of JSON than the store accepts.
            ConfigurationError: the storage is a custom one.
        """
        await self._use().append(self._scope, [], LATEST_LEAF, state=self._attached({name: value}))

    async def get_state(self, name: str, leaf_id: str | None = None) -> dict[str, Any] | None:
        """Return the state of that name in force at a message (default: the current leaf); `None` when there is none.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """
        if refusal(name) is not None:
            return None
        return (await self._use().states(self._scope, optional_id(leaf_id), [name])).get(name)

    async def get_states(self, leaf_id: str | None = None) -> dict[str, dict[str, Any]]:
        """Return all states in force at a message (default: the current leaf), by name; not those of leafward itself.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """
        found = await self._use().states(self._scope, optional_id(leaf_id))
        return {name: value for name, value in found.items() if not name.startswith(OUR_PREFIX)}

    def _attached(self, state: Mapping[str, Mapping[str, Any] | None] | None) -> list[AttachedState]:
        if state is None:
            return []
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"state is a dict of JSON objects by name, not a {type(state).__name__}")
        largest = self._ready().largest
        return [attach(check_public_name(name), value, largest=largest) for name, value in state.items()]

    async def update_message(self, message: MessageLike) -> Message:
        """Replace the message of this id, keeping its parent, its place and its `created_at`.

        Raises:
            MessageNotFound: no message of this session has the id.
        """
        return await self._ready().writer.update(message)

    async def upsert_message(self, message: MessageLike, parent_id: ParentId = LATEST_LEAF) -> Message:
        """Replace the message of this id, or append it when there is none.

        Like an append it compacts a session that exceeds its threshold. This message stays out of the summary while it
        is the newest one: it may be a reply that is still being written.
        """
        return await self._ready().writer.upsert(message, parent_id)

    async def delete_messages(self, message_ids: Iterable[str]) -> int:
        """Remove messages and return how many were there.

        Their children attach to the nearest surviving ancestor; their labels go with them.
        """
        if isinstance(message_ids, str):
            raise ValueError("delete_messages takes a list of ids: a string would be read as one id per character")
        ids = list(message_ids)
        if not all(isinstance(one, str) for one in ids):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("delete_messages takes ids, which are strings")
        return await self._use().delete(self._scope, [one for one in ids if refusal(one) is None])

    async def get_history(self, leaf_id: str | None = None) -> list[Message]:
        """Return the messages from the root to `leaf_id`, root first, as the model sees them.

        Without `leaf_id` the path ends at the current leaf; an empty session has an empty path.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """
        return await self._use().path(self._scope, optional_id(leaf_id))

    async def get_raw_history(
        self, leaf_id: str | None = None, *, limit: int | None = None, before: str | None = None
    ) -> list[Message]:
        """Return the stored messages from the root to `leaf_id`, root first, without summaries.

        With `limit` only the last that many of them, and with `before` only those above that message. To scroll up,
        ask for a page, then for the one before its first message: each costs what it returns.

        Raises:
            MessageNotFound: `leaf_id` or `before` is not in this session.
            ValueError: `before` is on another branch than `leaf_id`, or `limit` is not a number of at least 1.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"limit is a number of at least 1, or None for all, not {limit!r}")
        if limit is None and before is None:
            return await self._use().path(self._scope, optional_id(leaf_id), raw=True)
        leaf_id, before = optional_id(leaf_id), optional_id(before)
        most = None if limit is None else min(limit, _MOST)
        return await self._use().raw_page(self._scope, leaf_id, before=before, limit=most)

    async def iter_history(self, leaf_id: str | None = None, newest_first: bool = False) -> AsyncGenerator[Message]:
        """Yield what `get_history` returns, from either end, holding a page in memory at a time."""
        page = await self._use().path_page(
            self._scope, leaf_id=optional_id(leaf_id), newest_first=newest_first, limit=_PAGE
        )
        while True:
            for message in page.messages:
                yield message
            if page.next is None:
                return
            page = await self._use().path_page(self._scope, cursor=page.next, newest_first=newest_first, limit=_PAGE)

    async def get_recent_history(
        self, *, max_messages: int | None = None, max_tokens: int | None = None, max_bytes: int | None = None
    ) -> RecentHistory:
        """Return the newest messages that fit; the tightest limit wins.

        The newest message is always there, and a tool result always comes with its call, if need be over the limit.
        Tokens are those counted when the message was stored; bytes are those of its JSON.
        """
        return await read_recent(self._use(), self._scope, WindowSize(max_messages, max_tokens, max_bytes))

    async def get_message(self, message_id: str) -> Message | None:
        """Return a message of this session, or `None`."""
        return None if refusal(message_id) else await self._use().get(self._scope, message_id)

    async def get_parent(self, message_id: str) -> Message | None:
        """Return the message above; `None` for a root."""
        return await self._use().parent(self._scope, known_id(message_id))

    async def get_latest_leaf(self) -> Message | None:
        """Return the message the next append goes under, even when it has children already; `None` at the root."""
        return await self._use().leaf(self._scope)

    async def get_branches(self, message_id: str | None) -> list[Message]:
        """Return the messages right below, in the order they were stored; `None` asks for the roots."""
        return await self._use().children(self._scope, optional_id(message_id))

    async def get_path_length(self, leaf_id: str | None = None) -> int:
        """Return how many stored messages the path has."""
        return await self._use().path_length(self._scope, optional_id(leaf_id))

    async def get_tip(self, message_id: str) -> Message:
        """Return the newest leaf below a message: where its branch was last continued, or the message itself.

        The newest is the one committed last, whatever the clocks said.

        Raises:
            MessageNotFound: the message is not in this session.
        """
        return await self._use().tip(self._scope, known_id(message_id))

    async def checkout(self, message_id: str | None, *, tip: bool = False) -> None:
        """Make a message the leaf, so that the next append branches there; `None` is before the first message.

        With `tip` the leaf becomes the newest leaf below the message, as `get_tip` finds it, in one step: this is how a
        chat window goes to answer "2 of 3". `checkout(None, tip=True)` goes to the newest leaf of the session.

        Raises:
            MessageNotFound: the message is not in this session.
        """
        await self._use().checkout(self._scope, optional_id(message_id), tip=tip)

    async def get_leaves(self) -> list[Message]:
        """Return the messages that have no children, in the order they were stored."""
        return await self._use().leaves(self._scope)

    async def get_tree(self) -> list[TreeNode]:
        """Return every message with its neighbours, parents before children."""
        from leafward.core.tree import build_tree

        return build_tree(await self._use().outline(self._scope))

    async def label(self, message_id: str, name: str | None) -> None:
        """Give a message a name, or take it away with `None`; several messages may have the same name."""
        if name is not None and (not isinstance(name, str) or not name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a label is a non-empty string, not {name!r}; None takes it away")
        await self._use().label(self._scope, known_id(message_id), name and Plain().text(name))

    async def get_labels(self) -> dict[str, str]:
        """Return the names of messages by their ids."""
        return await self._use().labels(self._scope)

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[SearchResult]:
        """Find messages on all branches, best match first.

        All words must occur; `"quoted words"` are a phrase. English words are found by their stem, Chinese, Japanese
        and Korean ones inside sentences. Text, tool calls and tool results are searched. `since` is inclusive, `until`
        exclusive. Any string is a query; one without words finds nothing.
        """
        # Loaded at the first search: most processes that write never search.
        from leafward.core.query import parse_query

        if limit < 0:
            raise ValueError(f"limit is at least 0, not {limit}")
        if role is not None and refusal(role) is not None:
            return []
        only = SearchFilter(
            role, None if since is None else to_micros(since), None if until is None else to_micros(until)
        )
        return await self._use().search(self._scope, parse_query(query), only=only, limit=limit)

    async def get_version(self) -> int:
        """Return the number of this session's last change; 0 before the first."""
        return (await self._use().revision(self._scope)).version

    def subscribe(self, since: int | None = None, *, messages: bool = False) -> AsyncGenerator[Change]:
        """Yield each change after version `since`, in commit order, by whichever process.

        Without `since` it begins at its first step. To miss nothing, take `get_version()`, then read, then subscribe.
        With `messages` each change brings the messages it concerns, as stored when they are read.

        A message that was deleted before its append is read is left out of it, and an append of nothing else is not
        reported, so versions may have gaps.

        A session that is deleted is reported as `clear` at version 0, and one made again under its id is followed from
        its beginning, also if it was not looked at in between. A version is only a number: one that was kept from
        before the deletion is taken for a version of the new session once that has as many changes.
        """
        from leafward.sessions.changes import follow

        return follow(self._use(), self._scope, since, messages=messages)


async def shown_anywhere(conversation: Conversation) -> list[Message]:
    """Return what the histories of all branches show, each message once and after those above it."""
    found: dict[str, Message] = {}
    for leaf in await conversation.get_leaves():
        branch: list[Message] = []
        async with aclosing(conversation.iter_history(leaf.id, newest_first=True)) as path:
            async for message in path:
                if message.id in found:
                    break
                branch.append(message)
        found |= {message.id: message for message in reversed(branch)}
    return list(found.values())


def known_id(message_id: str) -> str:
    """Return an id that may be looked up; one that no message can have is not found."""
    if refusal(message_id) is not None:
        raise MessageNotFound(message_id)
    return message_id


def optional_id(message_id: str | None) -> str | None:
    return None if message_id is None else known_id(message_id)
