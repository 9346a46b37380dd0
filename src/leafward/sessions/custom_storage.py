"""A custom storage in place of a store: one session behind the twelve methods of `SessionProvider`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NoReturn, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec import Struct

from leafward.core.attached_state import AttachedState
from leafward.core.errors import ConfigurationError, MessageNotFound
from leafward.core.ids import RESERVED_PREFIX, Owner, Scope
from leafward.core.message import Message, as_message, message_sharing
from leafward.core.notices import Reclaimed
from leafward.core.overlays import Compaction, Span, is_summary_id, nests, segments, summary_message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.parts import search_text
from leafward.core.ranking import SNIPPET, SearchResult
from leafward.core.times import from_micros, parse_micros, to_micros
from leafward.core.tokens import TokenCounter
from leafward.core.tree import Outline
from leafward.core.untrusted import read
from leafward.sessions.user_functions import Turns, call
from leafward.stores.contracts import (
    Appended,
    Changes,
    Cursor,
    Head,
    NewOverlay,
    PathPage,
    Revision,
    SearchFilter,
    Unchanged,
    Usage,
    View,
    Weight,
    not_above,
)
from leafward.stores.drafts import Draft

T = TypeVar("T", bound=Struct)

METHODS = (
    "get_message",
    "get_history",
    "get_latest_leaf",
    "get_branches",
    "get_path_length",
    "append_message",
    "update_message",
    "delete_messages",
    "clear_messages",
    "add_compaction",
    "get_compactions",
    "search_messages",
)
_REMEMBERED = 8
_FOUND = "search_messages of your storage gives messages, or objects or dicts with id, role and content"


class SessionProvider(Protocol):
    """A storage of one session; its methods may be async, or plain and then run on a thread, one at a time."""

    def get_message(self, message_id: str) -> Any: ...
    def get_history(self, leaf_id: str | None = None) -> Any: ...
    def get_latest_leaf(self) -> Any: ...
    def get_branches(self, message_id: str) -> Any: ...
    def get_path_length(self, leaf_id: str | None = None) -> Any: ...
    def append_message(self, message: Message, parent_id: Any = LATEST_LEAF) -> Any: ...
    def update_message(self, message: Message) -> Any: ...
    def delete_messages(self, message_ids: list[str]) -> Any: ...
    def clear_messages(self) -> Any: ...
    def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> Any: ...
    def get_compactions(self) -> Any: ...
    def search_messages(self, query: str, limit: int) -> Any: ...


def check_session_provider(storage: object) -> SessionProvider:
    """Return a storage that has all twelve methods.

    Raises:
        ConfigurationError: it is not a storage; the text says what it lacks.
    """
    missing = [name for name in METHODS if not callable(getattr(storage, name, None))]
    if len(missing) == len(METHODS):
        raise ConfigurationError(f"a Session needs an open store, not {storage!r}: await open_store(...), or enter it")
    if missing:
        raise ConfigurationError(f"a custom storage needs twelve methods; this one lacks {', '.join(missing)}")
    return cast(SessionProvider, storage)


class _Found(Struct):
    """A message that a search of the storage found."""

    id: str
    role: str
    content: str
    created_at: Any = None


class _Summary(Struct):
    """A summary that the storage keeps."""

    id: str
    summary: str
    from_message_id: str
    to_message_id: str
    created_at: Any = None


def _read(given: object, shape: type[T], rule: str) -> T:
    """Read what a storage gave, a dict or an object, with our names or in camel case.

    Raises:
        ConfigurationError: it has another shape; the text begins with the rule.
    """
    found = {name: _field(given, name, _in_camel_case(name)) for name in shape.__struct_fields__}
    present = {name: value for name, value in found.items() if value is not None}
    return read(present, shape, type(given).__name__, error=lambda problem: ConfigurationError(f"{rule}; {problem}"))


def _field(given: object, *names: str) -> object:
    """Return the first of these that is there."""
    for name in names:
        value = cast(Mapping[str, Any], given).get(name) if isinstance(given, Mapping) else getattr(given, name, None)
        if value is not None:
            return value
    return None


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class _Kept:
    """What all handles on one storage share."""

    def __init__(self) -> None:
        self.turns = Turns()


# Who has this of a storage has the storage too, so while it lives its id is no other's.
_kept: WeakValueDictionary[int, _Kept] = WeakValueDictionary()


class ForeignMessages:
    """Offers what the twelve methods can do as the calls that a session makes."""

    def __init__(self, storage: SessionProvider, count: TokenCounter) -> None:
        self._storage = storage
        self._count = count
        self.kept = _kept.setdefault(id(storage), _Kept())
        self._views: dict[int, dict[str, Message]] = {}
        self._viewed = 0

    async def _call(self, method: str, *arguments: Any) -> Any:
        function = cast(Callable[..., Any], getattr(self._storage, method))
        return await call(function, *arguments, turns=self.kept.turns)

    async def _list(self, method: str, *arguments: Any) -> list[Any]:
        given = await self._call(method, *arguments)
        if not isinstance(given, Iterable):
            raise ConfigurationError(f"{method} of your storage gives a list, not {type(given).__name__}")
        return list(cast(Iterable[Any], given))

    async def _length(self, *arguments: str) -> int:
        given = await self._call("get_path_length", *arguments)
        if not isinstance(given, int):
            raise ConfigurationError(f"get_path_length of your storage gives a number, not {type(given).__name__}")
        return given

    async def append(
        self,
        scope: Scope,
        drafts: Sequence[Draft],
        parent: ParentId,
        *,
        weigh: bool = False,
        state: Sequence[AttachedState] = (),
        usage: Usage | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        if state:
            _refuse("attach states to messages")
        if usage is not None or expected_version is not None:
            _refuse("count usage or check versions with an append")
        stored: list[Message] = []
        inserted = 0
        for draft in drafts:
            known = await self.get(scope, draft.message.id)
            if known is None:
                where: tuple[ParentId, ...] = () if parent is LATEST_LEAF else (parent,)
                if isinstance(parent, str) and not stored and await self.get(scope, parent) is None:
                    raise MessageNotFound(parent)
                given = await self._call("append_message", draft.message, *where)
                known = draft.message if given is None else as_message(given)
                inserted += 1
                parent = LATEST_LEAF
            else:
                parent = known.id
            stored.append(known)
        return Appended(stored, inserted, await self.weigh(scope) if weigh and inserted else None)

    async def update(self, scope: Scope, draft: Draft) -> Message:
        known = await self.get(scope, draft.message.id)
        if known is None:
            raise MessageNotFound(draft.message.id)
        kept = message_sharing(known.id, draft.message.role, known.at, draft.message.body)
        given = await self._call("update_message", kept)
        return kept if given is None else as_message(given)

    async def upsert(self, scope: Scope, draft: Draft, parent: ParentId, *, weigh: bool = False) -> Appended:
        known = await self.get(scope, draft.message.id)
        if known is None:
            return await self.append(scope, [draft], parent, weigh=weigh)
        updated = await self.update(scope, draft)
        return Appended([updated], 0, await self.weigh(scope) if weigh else None, updated != known)

    async def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        there = [one for one in dict.fromkeys(message_ids) if await self.get(scope, one) is not None]
        if there:
            await self._call("delete_messages", there)
        return len(there)

    async def clear(self, scope: Scope) -> None:
        await self._call("clear_messages")

    async def get(self, scope: Scope, message_id: str) -> Message | None:
        found = await self._call("get_message", message_id)
        return None if found is None else as_message(found)

    async def leaf(self, scope: Scope) -> Message | None:
        found = await self._call("get_latest_leaf")
        return None if found is None else as_message(found)

    async def parent(self, scope: Scope, message_id: str) -> Message | None:
        path = await self._raw(scope, message_id)
        return path[-2] if len(path) > 1 else None

    async def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        if message_id is None:
            _refuse("list the roots")
        await self._need(scope, message_id)
        return [as_message(one) for one in await self._list("get_branches", message_id)]

    async def path(self, scope: Scope, leaf_id: str | None, *, raw: bool = False) -> list[Message]:
        messages = await self._raw(scope, leaf_id)
        return messages if raw else await self._with_overlays(messages)

    async def raw_page(
        self, scope: Scope, leaf_id: str | None, *, before: str | None, limit: int | None
    ) -> list[Message]:
        messages = await self._raw(scope, leaf_id)
        if before is not None:
            ids = [message.id for message in messages]
            if before not in ids:
                await self._need(scope, before)
                raise not_above(before, leaf_id)
            messages = messages[: ids.index(before)]
        return messages if limit is None else messages[-limit:]

    async def view(self, scope: Scope, leaf_id: str | None) -> View:
        raw = await self._raw(scope, leaf_id)
        messages = await self._with_overlays(raw)
        # The storage counts no versions: what was looked at is kept for a while, to be compared.
        self._viewed += 1
        self._views[self._viewed] = {message.id: message for message in messages}
        self._views.pop(self._viewed - _REMEMBERED, None)
        closed = await self._no_end_at(scope, [message.id for message in raw], messages)
        return View(messages, [self._count(message) for message in messages], self._viewed, no_end_at=closed)

    async def _no_end_at(self, scope: Scope, path: list[str], messages: list[Message]) -> frozenset[str]:
        """Return the visible messages that an overlay covers which ends on another branch."""
        at = {message_id: index for index, message_id in enumerate(path)}
        existing = await self.overlays(scope)
        others: list[tuple[int, int]] = []
        for one in existing:
            begins = one.from_message_id in at and one.to_message_id not in at
            if begins and await self.get(scope, one.to_message_id) is not None:
                other = [message.id for message in await self._raw(scope, one.to_message_id)]
                shared = takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
                others.append((at[one.from_message_id], len(list(shared)) - 1))
        last = {RESERVED_PREFIX + one.id: one.to_message_id for one in existing}
        places = {message.id: at.get(last.get(message.id, message.id), -1) for message in messages}
        return frozenset(one for one, place in places.items() if any(low <= place <= high for low, high in others))

    async def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        # The storage gives a path in one piece, and so does the only page.
        messages = (await self.path(scope, leaf_id))[:: -1 if newest_first else 1]
        return PathPage(
            messages, [self._count(one) for one in messages], [len(message.sealed()[1]) for message in messages], None
        )

    async def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        if leaf_id is None:
            return await self._length()
        await self._need(scope, leaf_id)
        return await self._length(leaf_id)

    async def weigh(self, scope: Scope) -> Weight:
        return Weight(sum(map(self._count, await self.path(scope, None))), None)

    async def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        existing = await self.overlays(scope)
        from_id = _end(existing, overlay.from_id).from_message_id if is_summary_id(overlay.from_id) else overlay.from_id
        to_id = _end(existing, overlay.to_id).to_message_id if is_summary_id(overlay.to_id) else overlay.to_id
        if unchanged is not None and await self.get(scope, to_id) is None:
            return None
        path = [message.id for message in await self._raw(scope, to_id)]
        # A storage that applies summaries itself shows the earlier one where its first message was.
        first = from_id if from_id in path else overlay.from_id
        if first not in path:
            await self._need(scope, from_id)
            raise ValueError(f"{overlay.from_id!r} does not come before {overlay.to_id!r} on one path")
        if unchanged is not None and await self._has_changed(scope, to_id, unchanged):
            return None
        if await self._crosses(scope, path, path.index(first), existing):
            raise ValueError(f"a summary from {from_id!r} to {to_id!r} would cross an earlier one")
        given = await self._call("add_compaction", overlay.summary, from_id, to_id)
        made = _as_compaction(given) if given is not None else (await self.overlays(scope))[-1]
        return made

    async def _crosses(self, scope: Scope, path: list[str], low: int, existing: list[Compaction]) -> bool:
        """Tell whether a summary from `low` to the end of a path parts what an earlier one covers on any path."""
        high = len(path) - 1
        for one in existing:
            longer = path
            if one.to_message_id not in path and await self.get(scope, one.to_message_id) is not None:
                longer = [message.id for message in await self._raw(scope, one.to_message_id)]
            # Both apply on one path only if the end of one is above the end of the other.
            meets = longer[: high + 1] == path
            if meets and not all(nests(low, high, span) for span, _ in _spans(longer, [one])):
                return True
        return False

    async def _has_changed(self, scope: Scope, leaf_id: str, unchanged: Unchanged) -> bool:
        before = self._views.get(unchanged.version, {})
        now = {message.id: message for message in await self.path(scope, leaf_id)}
        return any(one not in now or now[one] != before.get(one) for one in unchanged.message_ids)

    async def overlays(self, scope: Scope) -> list[Compaction]:
        return [_as_compaction(one) for one in await self._list("get_compactions")]

    async def summaries(self, scope: Scope) -> list[str]:
        return [message.id for message in await self.path(scope, None) if is_summary_id(message.id)]

    async def covered(self, scope: Scope, compaction_id: str, *, offset: int, limit: int) -> list[Message]:
        overlay = _end(await self.overlays(scope), RESERVED_PREFIX + compaction_id)
        path = await self._raw(scope, overlay.to_message_id)
        ids = [message.id for message in path]
        if overlay.from_message_id not in ids:
            raise ConfigurationError(
                "get_history of your storage applies summaries itself: what they cover can be read back only from one "
                "that gives the raw path"
            )
        return path[ids.index(overlay.from_message_id) :][offset : offset + limit]

    async def search(self, where: Scope | Owner, query: Any, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        if only != SearchFilter():
            _refuse("filter a search")
        found = await self._list("search_messages", query.text, limit)
        return [await self._as_result(one, rank) for rank, one in enumerate(found)]

    async def _as_result(self, found: object, rank: int) -> SearchResult:
        if isinstance(found, SearchResult):
            return found
        if isinstance(found, Message) or (isinstance(found, Mapping) and "parts" in found):
            message = as_message(cast(Message, found))
            found = {
                "id": message.id,
                "role": message.role,
                "content": search_text(message.body),
                "created_at": message.created_at,
            }
        one = _read(cast(object, found), _Found, _FOUND)
        at = one.created_at
        if not at:
            known = await self.get(Scope.of("default"), one.id)
            at = from_micros(0) if known is None else known.created_at
        moment, score = from_micros(parse_micros(at)), 1 / (rank + 1)
        return SearchResult("default", one.id, one.role, one.content, one.content[:SNIPPET], [], moment, score)

    async def _raw(self, scope: Scope, leaf_id: str | None) -> list[Message]:
        if leaf_id is not None:
            await self._need(scope, leaf_id)
        given = await self._list("get_history", *(() if leaf_id is None else (leaf_id,)))
        return [as_message(one) for one in given]

    async def _need(self, scope: Scope, message_id: str) -> None:
        if await self.get(scope, message_id) is None:
            raise MessageNotFound(message_id)

    async def _with_overlays(self, messages: list[Message]) -> list[Message]:
        ids = [message.id for message in messages]
        spans = _spans(ids, await self.overlays(Scope.of("default")))
        made = {span.number: overlay for span, overlay in spans}
        shown: list[Message] = []
        for segment in segments([(0, len(ids) - 1)] if ids else [], [span for span, _ in spans]):
            if segment.spans:
                shown += [_summary(made[span.number]) for span in segment.spans]
            else:
                shown += messages[segment.low : segment.high + 1]
        return shown

    async def head(self, scope: Scope, names: Sequence[str], *, ids: Sequence[str] = ()) -> Head:
        _refuse("attach states to messages")

    async def states(
        self, scope: Scope, leaf_id: str | None, names: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        _refuse("attach states to messages")

    async def checkout(self, scope: Scope, message_id: str | None, *, tip: bool = False) -> None:
        _refuse("check out a message")

    async def tip(self, scope: Scope, message_id: str) -> Message:
        _refuse("find the newest leaf below a message")

    async def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        _refuse("label messages")

    async def labels(self, scope: Scope) -> dict[str, str]:
        _refuse("label messages")

    async def leaves(self, scope: Scope) -> list[Message]:
        _refuse("list the leaves")

    async def outline(self, scope: Scope) -> Outline:
        _refuse("show the tree")

    async def revision(self, scope: Scope) -> Revision:
        _refuse("count versions or report changes")

    async def changes(self, scope: Scope, since: int, *, messages: bool = False) -> Changes:
        _refuse("count versions or report changes")

    async def wait(self, scope: Scope, revision: Revision) -> None:
        _refuse("count versions or report changes")

    async def reclaim(self, scope: Scope, results: Sequence[Reclaimed]) -> None:
        _refuse("unload skills")


def _refuse(what: str) -> NoReturn:
    raise ConfigurationError(f"a custom storage cannot {what}: open a store with open_store() for that")


def _spans(ids: list[str], overlays: list[Compaction]) -> list[tuple[Span, Compaction]]:
    """Place overlays on a path by the positions of their ends; those that are not on it are left out."""
    at = {message_id: index for index, message_id in enumerate(ids)}
    return [
        (Span(number, 0, at[one.from_message_id], at[one.to_message_id], 0), one)
        for number, one in enumerate(overlays)
        if one.to_message_id in at and at.get(one.from_message_id, len(ids)) <= at[one.to_message_id]
    ]


def _end(overlays: list[Compaction], end_id: str) -> Compaction:
    for one in overlays:
        if RESERVED_PREFIX + one.id == end_id:
            return one
    raise MessageNotFound(end_id)


def _summary(overlay: Compaction) -> Message:
    return summary_message(overlay.id, overlay.summary, to_micros(overlay.created_at))


def _as_compaction(given: object) -> Compaction:
    """Read what the storage keeps of a summary, under our names or in camel case."""
    if isinstance(given, Compaction):
        return given
    one = _read(given, _Summary, "get_compactions of your storage gives summaries with id, summary and their two ends")
    at = from_micros(parse_micros(one.created_at) if one.created_at else 0)
    return Compaction(one.id, one.summary, one.from_message_id, one.to_message_id, at)
