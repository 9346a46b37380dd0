"""From the lines of a journal to the commands they tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

from msgspec import UnsetType

from leafward.core.attached_state import AttachedState
from leafward.core.errors import StoreError
from leafward.core.ids import Owner, Scope
from leafward.core.json import decode_body
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.stores.contracts import NewOverlay, Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Edit, Prompt, Shelf
from leafward.stores.journal import entry as kinds
from leafward.stores.journal.archives import read_archive
from leafward.stores.journal.entry import Entry, Payload, payload_of, read_timestamp
from leafward.stores.journal.telling import plain_body
from leafward.stores.registry import Origin
from leafward.stores.sql import commands as c


class Happened(NamedTuple):
    """A command and the time it ran at."""

    command: c.Command[Any]
    at: int


class SharedText(NamedTuple):
    """A text that was written to a shared shelf, when, and what that made of the session that wrote it."""

    command: c.PutShared
    at: int
    session_id: str
    version: int


Told = tuple[Entry, Payload]


def read_header(entry: Entry) -> kinds.Header:
    """Return whose journal this is the first line of.

    Raises:
        StoreError: it is no such line, or a newer leafward wrote it.
    """
    payload = payload_of(entry)
    if not isinstance(payload, kinds.Header):
        raise StoreError(f"the journal does not begin with whose it is, but with a line of type {entry.type!r}")
    return payload


def commands(entries: Iterable[Entry], scope: Scope) -> list[Happened]:
    """Return what whole batches of a session's journal tell, in order, as commands on the session `scope`.

    Raises:
        StoreError: a newer leafward wrote them.
    """
    found: list[Happened] = []
    for told in _batches(entries):
        entry, first = told[0]
        if isinstance(first, kinds.Header):
            continue
        at = read_timestamp(entry.timestamp) if first.at is None else first.at
        found.append(Happened(_command(first, scope, told), at))
    return found


def continued(entries: Iterable[Entry]) -> tuple[str, int] | None:
    """Return the session that ended when the one of this journal began, and when that was; `None` for most."""
    for entry in entries:
        payload = payload_of(entry) if entry.type == kinds.Restored.kind else None
        if isinstance(payload, kinds.Restored) and payload.ends is not None:
            return payload.ends, payload.at or 0
    return None


def shared_commands(entries: Iterable[Entry], owner: Owner) -> list[SharedText]:
    """Return what the journal that an owner's sessions share tells, in order."""
    found: list[SharedText] = []
    for (_, payload), *_ in _batches(entries):
        if isinstance(payload, kinds.SharedWritten):
            scope = Scope(owner, payload.session)
            command = c.PutShared(
                Shelf(scope, payload.label, True),
                payload.key,
                payload.content,
                payload.description,
                payload.searchable,
            )
            found.append(SharedText(command, payload.at or 0, payload.session, payload.version))
        elif not isinstance(payload, kinds.Header):
            raise StoreError(f"a shared journal holds a line of type {payload.kind!r}: it belongs to a session")
    return found


def _batches(entries: Iterable[Entry]) -> Iterator[list[Told]]:
    told: list[Told] = []
    for entry in entries:
        payload = payload_of(entry)
        told.append((entry, payload))
        if not payload.more:
            yield told
            told = []


@singledispatch
def _command(first: Payload, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    raise StoreError(f"the journal holds a line of type {first.kind!r} where none can stand")


@_command.register
def _(first: kinds.Told, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    drafts: list[Draft] = []
    for entry, payload in told:
        if isinstance(payload, kinds.Told):
            if payload.below is not None:
                drafts.append(stored(payload.below))
            drafts.append(_draft(entry, payload))
        elif isinstance(payload, kinds.StateAttached) and payload.message not in (None, drafts[-1].message.id):
            # The last message of the batch was stored before.
            drafts.append(stored(payload.message))
    parent: ParentId = LATEST_LEAF if isinstance(first.parent, UnsetType) else first.parent
    return c.Append(scope, drafts, parent, state=_states(told), usage=_usage(told))


@_command.register
def _(first: kinds.StateAttached, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Append(scope, [], first.message, state=_states(told), usage=_usage(told))


def _states(told: Sequence[Told]) -> list[AttachedState]:
    return [AttachedState(one.name, one.text) for _, one in told if isinstance(one, kinds.StateAttached)]


def _usage(told: Sequence[Told]) -> Usage | None:
    return next((_used(one) for _, one in told if isinstance(one, kinds.Used)), None)


def _used(one: kinds.Used) -> Usage:
    return Usage(one.input, one.output, one.cost, one.model, one.id)


def stored(message_id: str) -> Draft:
    """Return a draft that stands for a message which is stored already."""
    return Draft(Message.stored(message_id, "", 0, {"parts": []}), b"", 0)


def _draft(entry: Entry, told: kinds.Told) -> Draft:
    body = bytes(told.body) or plain_body(entry)
    role = told.role or (entry.role or "").lower()
    message = Message.stored(told.message or entry.id, role, read_timestamp(entry.timestamp), decode_body(body))
    return Draft(message, body, told.tokens)


@_command.register
def _(first: kinds.Updated, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    body = bytes(first.body)
    # An update keeps the time that is stored.
    message = Message.stored(first.message, first.role, 0, decode_body(body))
    return c.Update(scope, Draft(message, body, first.tokens))


@_command.register
def _(first: kinds.Restored, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    lines = ((entry, one, _draft(entry, one) if isinstance(one, kinds.Told) else None) for entry, one in told[1:])
    return c.Restore(scope, read_archive(first, scope.session_id, lines))


@_command.register
def _(first: kinds.Summarised, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    entry = told[0][0]
    at = read_timestamp(entry.timestamp)
    return c.AddOverlay(scope, NewOverlay(entry.id, entry.summary or "", first.tokens, at, first.start, first.end))


@_command.register
def _(first: kinds.Deleted, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Delete(scope, first.messages)


@_command.register
def _(first: kinds.Cleared, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Clear(scope)


@_command.register
def _(first: kinds.CheckedOut, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Checkout(scope, first.message)


@_command.register
def _(first: kinds.Labelled, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Label(scope, first.message, first.name)


@_command.register
def _(first: kinds.ReclaimedResults, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Reclaim(scope, first.results)


@_command.register
def _(first: kinds.ContextWritten, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    change = _becomes(first.content)
    return c.EditEntry(Shelf(scope, first.label), first.key, change, first.description, first.searchable)


def _becomes(content: str | None) -> Edit:
    return lambda _: content


@_command.register
def _(first: kinds.Noted, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Note(scope, first.label)


@_command.register
def _(first: kinds.SkillLoaded, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.LoadSkill(scope, first.label, first.key)


@_command.register
def _(first: kinds.SkillUnloaded, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.UnloadSkill(scope, first.label, first.key, first.results)


@_command.register
def _(first: kinds.Prompted, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.KeepPrompt(scope, Prompt(first.text, first.tokens, first.fingerprint), replace=True)


@_command.register
def _(first: kinds.Created, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    if first.name is None:
        return c.Append(scope, [], LATEST_LEAF)
    return c.Create(scope, Origin(first.name, first.parent, first.model, first.source))


@_command.register
def _(first: kinds.Renamed, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.Rename(scope, first.name)


@_command.register
def _(first: kinds.Used, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    # It may be the first that happened to its session.
    return c.Append(scope, [], LATEST_LEAF, usage=_used(first))


@_command.register
def _(first: kinds.Ended, scope: Scope, told: Sequence[Told]) -> c.Command[Any]:
    return c.End(scope, first.reason)
