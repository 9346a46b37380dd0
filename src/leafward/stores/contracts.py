"""What every store offers, as small contracts.

A backend of your own implements `Store` with its `MessageStore`, `EntryIndex` and `SessionRegistry`, passes the
classes of `leafward.testing`, and is found by `open_store` through the entry point group `leafward.stores`: a scheme
and a callable to await, which takes the URL and, by name, those keywords of `open_store` that mean something to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from leafward.core.attached_state import AttachedState
from leafward.core.errors import ConfigurationError
from leafward.core.ids import Owner, Scope, check_id
from leafward.core.message import Message
from leafward.core.parent import ParentId

if TYPE_CHECKING:
    from leafward.core.notices import Reclaimed
    from leafward.core.overlays import Compaction
    from leafward.core.query import Query
    from leafward.core.ranking import SearchResult
    from leafward.core.tree import Outline
    from leafward.stores.drafts import Draft
    from leafward.stores.entries import EntryIndex
    from leafward.stores.leases import Leases
    from leafward.stores.leases.lease import Lease
    from leafward.stores.registry import SessionRegistry
    from leafward.stores.states.store import StateStore

DEFAULT_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
DEFAULT_TTL = 30.0
"""Seconds after which a holder of a lease that died is followed."""

Durability = Literal["none", "process", "power"]
"""What a finished write survives: nothing, the end of the process, or a power cut."""


def check_options(durability: str, max_message_bytes: int) -> None:
    """Raise unless these can be asked for."""
    if durability not in ("power", "process"):
        raise ConfigurationError(f"durability is 'power' or 'process', not {durability!r}")
    if not isinstance(max_message_bytes, int) or max_message_bytes < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"max_message_bytes is a number of bytes, not {max_message_bytes!r}")


ChangeKind = Literal["append", "update", "delete", "clear", "checkout", "label", "compaction", "context", "state"]


class Weight(NamedTuple):
    """The tokens of what the model sees: the history that ends at the leaf, and the stored prompt if there is one."""

    window: int
    prompt: int | None


class Appended(NamedTuple):
    """What is stored now, how many of it are new, and what the session weighs if that was asked for and has changed."""

    messages: list[Message]
    inserted: int
    weight: Weight | None
    changed: bool = True
    """False for an upsert that found the very same message."""
    version: int = 0
    """The number of the session's last change, this one included."""
    states: Sequence[AttachedState] = ()
    """The states that were written; those that were in force already are not among them."""
    attached_to: str | None = None
    """The message that these states were attached to; `None` for the root."""
    counted: bool = False
    """Whether the usage was added."""


class Usage(NamedTuple):
    """What a call of a model used."""

    input_tokens: int
    output_tokens: int
    cost: float = 0.0
    model: str | None = None
    usage_id: str | None = None
    """A name by which it is counted once, however often it is sent."""


def check_usage(usage: Usage) -> Usage:
    """Return usage that every store can add up.

    Raises:
        InvalidId: `usage_id` is refused.
        ValueError: tokens are not a whole number, or a number is negative or too large; NaN is not a number.
    """
    for tokens in usage[:2]:
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens < 2**53:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"tokens are a whole number of at least 0, not {tokens!r}")
    cost = usage.cost
    if not isinstance(cost, (int, float)) or isinstance(cost, bool) or not 0 <= cost < 2**53:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"a cost is a number of at least 0, not {cost!r}")
    if usage.usage_id is not None:
        check_id("usage id", usage.usage_id)
    return usage if type(cost) is float else usage._replace(cost=float(cost))


class Head(NamedTuple):
    """Where a session stands, as of one moment."""

    version: int
    leaf_id: str | None
    states: dict[str, dict[str, Any]]
    """Those of the wanted states that are in force at the leaf, by name."""
    known: dict[str, bool]
    """Which of the wanted messages are stored, and whether each is on the path to the leaf."""


NO_HEAD = Head(0, None, {}, {})
"""The head of a session that was never written to."""


class View(NamedTuple):
    """A history as the model sees it, with the tokens of each message, as of one version of the session."""

    messages: list[Message]
    tokens: list[int]
    version: int
    tree: int = 0
    """Tells the session's messages from those it has after it was cleared, or deleted and made again."""
    no_end_at: frozenset[str] = frozenset()
    """Messages that a new summary cannot end at: an earlier one covers them and ends on another branch."""


class NewOverlay(NamedTuple):
    """A summary on its way into a store; its ends are ids of messages or of summaries, meaning what those cover."""

    id: str
    summary: str
    tokens: int
    at: int
    from_id: str
    to_id: str


class Unchanged(NamedTuple):
    """A condition: since this version none of these visible messages was changed, deleted or summarised."""

    version: int
    message_ids: frozenset[str]
    tree: int = 0
    """The `View.tree` they were seen in."""


class Cursor(NamedTuple):
    """Where the next page of a path begins; made and read by the store only."""

    leaf: int
    place: int
    version: int
    """Summaries made after this version are not shown by the pages that follow."""


class PathPage(NamedTuple):
    """Some neighbouring messages of a path, with their stored token counts and body sizes."""

    messages: list[Message]
    tokens: list[int]
    sizes: list[int]
    next: Cursor | None
    """Where to read on; `None` at the end of the path."""


class SearchFilter(NamedTuple):
    """Which messages a search looks at; times are microseconds since 1970, `since` included, `until` not."""

    role: str | None = None
    since: int | None = None
    until: int | None = None


class Revision(NamedTuple):
    """Where a session stands: which one it is, and the number of its last change."""

    incarnation: str
    """Tells a session from one that was deleted and made again under its id; empty while there is no session."""
    version: int


NOT_THERE = Revision("", 0)
"""The revision of a session that was never written to, or was deleted."""


class ChangeRecord(NamedTuple):
    """One committed mutation of a session."""

    version: int
    kind: ChangeKind
    message_ids: list[str]
    messages: Sequence[Message] = ()
    """The messages it concerns as they are now, if they were asked for; those that are gone are left out."""


class Changes(NamedTuple):
    """What happened to a session, and where it stood when that was read."""

    revision: Revision
    records: list[ChangeRecord]


def not_above(before: str, leaf_id: str | None) -> ValueError:
    """Return the error of a page that is to end above a message of another branch."""
    end = "the current leaf" if leaf_id is None else repr(leaf_id)
    return ValueError(f"message {before!r} is not on the path to {end}: name the leaf of its branch with leaf_id")


class MessageStore(Protocol):
    """Keeps the tree of messages of every session, in order.

    Each write is one atomic step. Writes to one session take effect one after the other, each with the session's next
    `version`; a write that finds nothing to do (an append of known ids, a delete of unknown ones) leaves it alone. A
    message that is not there raises `MessageNotFound`, unless a method says otherwise. A session that was never written
    to is empty, at version 0.
    """

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
        """Store messages as a chain below `parent` and move the leaf to the last one that is new.

        An id that is already stored is left as it is and becomes the parent of the next. In the same step the states
        are attached to the last message, and the usage is added. Without messages the states go to `parent`. A state
        that is in force there is not written again. Usage is not added again when no message is new, unless it has a
        `usage_id` that was not counted before.

        Raises:
            StaleSession: there is something new to write, and the session is not at `expected_version`.
        """
        ...

    async def head(self, scope: Scope, names: Sequence[str], *, ids: Sequence[str] = ()) -> Head:
        """Return where a session stands, the states of these names in force there, and which messages it knows."""
        ...

    async def states(
        self, scope: Scope, leaf_id: str | None, names: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the states in force at `leaf_id` (default: the leaf), by name: those of `names`, or all."""
        ...

    async def update(self, scope: Scope, draft: Draft) -> Message:
        """Replace the message of that id, keeping its parent, its place and its time."""
        ...

    async def upsert(self, scope: Scope, draft: Draft, parent: ParentId, *, weigh: bool = False) -> Appended:
        """Update the message if its id is stored, else append it."""
        ...

    async def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Remove messages and say how many were there; children and leaf move to the nearest surviving ancestor.

        The end of an overlay moves inward to the nearest survivor; an overlay that covers none goes.
        """
        ...

    async def clear(self, scope: Scope) -> None:
        """Remove all messages, labels, overlays, loaded skills and the prompt; the leaf is before the first message."""
        ...

    async def checkout(self, scope: Scope, message_id: str | None, *, tip: bool = False) -> None:
        """Move the leaf to a message, or with `tip` to the newest leaf at or below it.

        `None` is before the first message, and what is below it is the whole tree.
        """
        ...

    async def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        """Name a message, or take its name away."""
        ...

    async def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        """Lay a summary over a stretch of a path, and drop the prompt; `None` when `unchanged` does not hold.

        Raises:
            ValueError: the ends are not on one path in this order, or the overlay would cross an earlier one.
        """
        ...

    async def overlays(self, scope: Scope) -> list[Compaction]:
        """Return all overlays, oldest first."""
        ...

    async def summaries(self, scope: Scope) -> list[str]:
        """Return the ids of the summaries in the history that ends at the leaf, in order."""
        ...

    async def covered(self, scope: Scope, compaction_id: str, *, offset: int, limit: int) -> list[Message]:
        """Return messages that an overlay covers, in order; an unknown overlay raises `MessageNotFound`."""
        ...

    async def reclaim(self, scope: Scope, results: Sequence[Reclaimed]) -> None:
        """Show a notice in place of these tool results from now on, and of an earlier notice; what is stored stays."""
        ...

    async def weigh(self, scope: Scope) -> Weight:
        """Return how many tokens the model sees."""
        ...

    async def revision(self, scope: Scope) -> Revision:
        """Return which session it is and the number of its last change; `NOT_THERE` when there is none."""
        ...

    async def get(self, scope: Scope, message_id: str) -> Message | None:
        """Return one message, `None` when there is none of that id."""
        ...

    async def leaf(self, scope: Scope) -> Message | None:
        """Return the message the leaf is at."""
        ...

    async def parent(self, scope: Scope, message_id: str) -> Message | None:
        """Return the message above; `None` for a root."""
        ...

    async def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        """Return the messages right below, or the roots, in the order they were stored."""
        ...

    async def leaves(self, scope: Scope) -> list[Message]:
        """Return the messages without children, in the order they were stored."""
        ...

    async def tip(self, scope: Scope, message_id: str) -> Message:
        """Return the newest leaf, by the order of commits, at a message or below it."""
        ...

    async def path(self, scope: Scope, leaf_id: str | None, *, raw: bool = False) -> list[Message]:
        """Return the messages from the root to `leaf_id` (default: the leaf), as of one moment.

        Overlays and notices are applied, unless the `raw` messages are wanted.
        """
        ...

    async def view(self, scope: Scope, leaf_id: str | None) -> View:
        """Return what `path` returns, with tokens and version."""
        ...

    async def raw_page(
        self, scope: Scope, leaf_id: str | None, *, before: str | None, limit: int | None
    ) -> list[Message]:
        """Return the end of what `path` has when `raw`, up to `leaf_id` or above `before`: `limit` messages at most.

        It costs what it returns, not what the path holds.

        Raises:
            ValueError: `before` is not on the path to `leaf_id`.
        """
        ...

    async def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        """Return about `limit` messages as `path` has them, from one end or from where the last page stopped."""
        ...

    async def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        """Return how many stored messages the path has."""
        ...

    async def outline(self, scope: Scope) -> Outline:
        """Return everything the tree consists of, as of one moment."""
        ...

    async def labels(self, scope: Scope) -> dict[str, str]:
        """Return names by message id."""
        ...

    async def search(self, where: Scope | Owner, query: Query, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        """Return the best matches in a session or in all sessions of an owner, by `leafward.core.ranking.rank`.

        Candidates go to `rank` newest `created_at` first, then by id. Everything committed is found, nothing deleted.
        """
        ...

    async def changes(self, scope: Scope, since: int, *, messages: bool = False) -> Changes:
        """Return what happened after version `since`, in order; appended messages that are gone again are left out.

        With `messages` each record brings those it concerns, and there may be only the first of the records: read on
        from the version of the last.
        """
        ...

    async def wait(self, scope: Scope, revision: Revision) -> None:
        """Return once the session is at another revision, whichever process changed it."""
        ...


def largest_message(store: Store | None) -> int:
    """Return how many bytes of JSON a message may have; a custom storage has the usual limit."""
    return DEFAULT_MAX_MESSAGE_BYTES if store is None else store.max_message_bytes


@runtime_checkable
class SupportsBackup(Protocol):
    """A store that can copy itself while it is written to."""

    async def backup(self, path: str | PathLike[str]) -> None:
        """Copy the store as of now to a file."""
        ...


@runtime_checkable
class Store(Protocol):
    """A place where sessions are kept."""

    @property
    def messages(self) -> MessageStore: ...

    @property
    def entries(self) -> EntryIndex: ...

    @property
    def registry(self) -> SessionRegistry: ...

    @property
    def states(self) -> StateStore: ...

    @property
    def leases(self) -> Leases: ...

    def fenced(self, lease: Lease) -> Store:
        """Return this store for writing behind a lease: each write is refused in its transaction once it is lost.

        That holds for messages, context and states. The registry is not fenced: a session is deleted whoever has it.
        """
        ...

    @property
    def max_message_bytes(self) -> int: ...

    @property
    def distributed(self) -> bool:
        """Whether processes on several machines can share it."""
        ...

    def durability(self) -> Durability:
        """Tell what a finished write survives, as found on this store."""
        ...

    async def close(self) -> None:
        """End the store's work; a second call does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


def without_lease(store: Store) -> Store:
    """Return the store that `fenced` made this one from, else the store itself."""
    return getattr(store, "unfenced", store)
