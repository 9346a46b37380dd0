"""Every write as a value: what is to be done to a session, and the operation that does it.

A runner is handed such a value, so that a backend which keeps a journal can write down what was done, and do it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from leafward.core.archive import Archive
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.core.info import SessionInfo
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import Compaction
from leafward.core.parent import ParentId
from leafward.stores.contracts import Appended, NewOverlay, Unchanged, Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Edit, Prompt, Shelf
from leafward.stores.registry import Origin
from leafward.stores.sql import copying, entries, overlays, registry, writes
from leafward.stores.sql.operations import Indexing, Operation

T_co = TypeVar("T_co", covariant=True)


class Command(Protocol[T_co]):
    """Something to be done to one session, in one transaction."""

    @property
    def scope(self) -> Scope:
        """The session it changes."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes it writes."""
        ...

    def operation(self, indexing: Indexing) -> Operation[T_co]:
        """Return a new operation that does it."""
        ...


class _Small:
    __slots__ = ()

    @property
    def size(self) -> int:
        return 0


# Messages.


@dataclass(frozen=True, slots=True)
class Append:
    scope: Scope
    drafts: Sequence[Draft]
    parent: ParentId
    weigh: bool = False
    state: Sequence[AttachedState] = ()
    usage: Usage | None = None
    expected_version: int | None = None

    @property
    def size(self) -> int:
        return sum(len(draft.body) for draft in self.drafts) + sum(len(one.text or "") for one in self.state)

    @property
    def tokens(self) -> int:
        """What it adds to the window."""
        return sum(draft.tokens for draft in self.drafts)

    @property
    def is_empty(self) -> bool:
        """Whether it does nothing but bring a session into being."""
        return not self.drafts and not self.state and self.usage is None

    @property
    def attached(self) -> Sequence[AttachedState]:
        """Its states with each name once: of two with one name the last counts."""
        return self.state if len(self.state) < 2 else list({one.name: one for one in self.state}.values())

    def operation(self, indexing: Indexing) -> Operation[Appended]:
        return writes.append(
            indexing,
            self.scope,
            self.drafts,
            self.parent,
            weigh=self.weigh,
            state=self.state,
            usage=self.usage,
            expected_version=self.expected_version,
        )


@dataclass(frozen=True, slots=True)
class Update:
    scope: Scope
    draft: Draft

    @property
    def size(self) -> int:
        return len(self.draft.body)

    def operation(self, indexing: Indexing) -> Operation[Message]:
        return writes.update(indexing, self.scope, self.draft)


@dataclass(frozen=True, slots=True)
class Upsert:
    scope: Scope
    draft: Draft
    parent: ParentId
    weigh: bool = False

    @property
    def size(self) -> int:
        return len(self.draft.body)

    def operation(self, indexing: Indexing) -> Operation[Appended]:
        return writes.upsert(indexing, self.scope, self.draft, self.parent, weigh=self.weigh)


@dataclass(frozen=True, slots=True)
class Delete(_Small):
    scope: Scope
    message_ids: Sequence[str]

    def operation(self, indexing: Indexing) -> Operation[int]:
        return writes.delete(indexing, self.scope, self.message_ids)


@dataclass(frozen=True, slots=True)
class Clear(_Small):
    scope: Scope

    def operation(self, indexing: Indexing) -> Operation[None]:
        return writes.clear(self.scope)


@dataclass(frozen=True, slots=True)
class Checkout(_Small):
    scope: Scope
    message_id: str | None
    tip: bool = False

    def operation(self, indexing: Indexing) -> Operation[str | None]:
        return writes.checkout(self.scope, self.message_id, tip=self.tip)


@dataclass(frozen=True, slots=True)
class Label(_Small):
    scope: Scope
    message_id: str
    name: str | None

    def operation(self, indexing: Indexing) -> Operation[None]:
        return writes.label(self.scope, self.message_id, self.name)


@dataclass(frozen=True, slots=True)
class AddOverlay:
    scope: Scope
    overlay: NewOverlay
    unchanged: Unchanged | None = None

    @property
    def size(self) -> int:
        return len(self.overlay.summary)

    def operation(self, indexing: Indexing) -> Operation[Compaction | None]:
        return overlays.add_overlay(self.scope, self.overlay, self.unchanged)


@dataclass(frozen=True, slots=True)
class Reclaim(_Small):
    scope: Scope
    results: Sequence[Reclaimed]

    def operation(self, indexing: Indexing) -> Operation[None]:
        return overlays.reclaim(self.scope, self.results)


# Stored context.


@dataclass(frozen=True, slots=True)
class EditEntry(_Small):
    shelf: Shelf
    key: str
    change: Edit
    description: str | None = None
    searchable: bool = False

    @property
    def scope(self) -> Scope:
        return self.shelf.scope

    def operation(self, indexing: Indexing) -> Operation[str | None]:
        return entries.edit(self.shelf, self.key, self.change, self.description, self.searchable)


@dataclass(frozen=True, slots=True)
class PutShared(_Small):
    """The text that an edit of a shared shelf came to; with `Note` it does to the rows what the edit did."""

    shelf: Shelf
    key: str
    content: str | None
    description: str | None = None
    searchable: bool = False

    @property
    def scope(self) -> Scope:
        return self.shelf.scope

    def operation(self, indexing: Indexing) -> Operation[None]:
        return entries.put_shared(self.shelf, self.key, self.content, self.description, self.searchable)


@dataclass(frozen=True, slots=True)
class Note(_Small):
    """The session changed a text of a shared shelf."""

    scope: Scope
    label: str

    def operation(self, indexing: Indexing) -> Operation[None]:
        return entries.note(self.scope)


@dataclass(frozen=True, slots=True)
class LoadSkill(_Small):
    scope: Scope
    label: str
    key: str

    def operation(self, indexing: Indexing) -> Operation[None]:
        return entries.load_skill(self.scope, self.label, self.key)


@dataclass(frozen=True, slots=True)
class UnloadSkill(_Small):
    scope: Scope
    label: str
    key: str
    reclaimed: Sequence[Reclaimed] = ()

    def operation(self, indexing: Indexing) -> Operation[bool]:
        return entries.unload_skill(self.scope, self.label, self.key, self.reclaimed)


@dataclass(frozen=True, slots=True)
class KeepPrompt(_Small):
    scope: Scope
    prompt: Prompt
    replace: bool

    def operation(self, indexing: Indexing) -> Operation[Prompt]:
        return entries.keep_prompt(self.scope, self.prompt, self.replace)


# Sessions.


@dataclass(frozen=True, slots=True)
class Create(_Small):
    scope: Scope
    origin: Origin

    def operation(self, indexing: Indexing) -> Operation[SessionInfo]:
        return registry.create(self.scope, self.origin)


@dataclass(frozen=True, slots=True)
class Rename(_Small):
    scope: Scope
    name: str

    def operation(self, indexing: Indexing) -> Operation[None]:
        return registry.rename(self.scope, self.name)


@dataclass(frozen=True, slots=True)
class AddUsage(_Small):
    scope: Scope
    usage: Usage

    def operation(self, indexing: Indexing) -> Operation[bool]:
        return registry.add_usage(self.scope, self.usage)


@dataclass(frozen=True, slots=True)
class End(_Small):
    scope: Scope
    reason: str

    def operation(self, indexing: Indexing) -> Operation[None]:
        return registry.end(self.scope, self.reason)


@dataclass(frozen=True, slots=True)
class Remove(_Small):
    """Delete the session."""

    scope: Scope

    def operation(self, indexing: Indexing) -> Operation[int | None]:
        return registry.delete(self.scope)


@dataclass(frozen=True, slots=True)
class Fork(_Small):
    scope: Scope
    """The session that is made."""
    source: Scope
    at_message_id: str
    name: str

    def operation(self, indexing: Indexing) -> Operation[SessionInfo]:
        return copying.fork(indexing, self.source, self.at_message_id, self.scope, self.name)


@dataclass(frozen=True, slots=True)
class Split:
    scope: Scope
    """The session that is made."""
    source: Scope
    name: str | None
    first: Draft

    @property
    def size(self) -> int:
        return len(self.first.body)

    def operation(self, indexing: Indexing) -> Operation[SessionInfo]:
        return copying.split(indexing, self.source, self.scope, self.name, self.first)


@dataclass(frozen=True, slots=True)
class Restore:
    scope: Scope
    archive: Archive

    @property
    def size(self) -> int:
        return sum(one.tokens for one in self.archive.messages) * 4

    def operation(self, indexing: Indexing) -> Operation[SessionInfo]:
        return copying.restore(indexing, self.scope, self.archive)
