"""From a command that changed something to the lines that tell it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from msgspec import Raw

from leafward.core import lanes
from leafward.core.ids import Owner, Scope, new_id
from leafward.core.json import encode
from leafward.core.lanes import on_path
from leafward.core.message import Message
from leafward.core.overlays import Compaction
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.stores.contracts import Appended, NewOverlay, Usage
from leafward.stores.drafts import Draft
from leafward.stores.journal import entry as kinds
from leafward.stores.journal.archives import archive_lines
from leafward.stores.journal.entry import Entry, Payload, timestamp
from leafward.stores.journal.telling import Line, batch, fact, message_lines, summary_lines
from leafward.stores.journal.transcript import first_id, last_id
from leafward.stores.sql import commands, reads
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import Operation, find_session, walk


def header(scope: Scope, at: int) -> list[Entry]:
    """Return the first line of a session's journal."""
    return _header(kinds.Header, scope.owner, scope.session_id, at)


def shared_header(owner: Owner, at: int) -> list[Entry]:
    """Return the first line of the journal that all sessions of an owner share."""
    return _header(kinds.SharedHeader, owner, owner.agent_id, at)


def _header(kind: type[kinds.Header], owner: Owner, id: str, at: int) -> list[Entry]:
    payload = kind(at=at, format=kinds.FORMAT, agent=owner.agent_id, user=owner.user_id, incarnation=new_id())
    return [Entry(type=kind.kind, id=id, timestamp=timestamp(at), leafward=Raw(encode(payload)))]


def neighbour(command: commands.Command[Any]) -> Operation[str | None]:
    """Return the id of the line that those of a command refer to, as an operation to run before the command's own.

    An append names what it goes below, a summary what comes first after it.
    """
    match command:
        case commands.Append(scope, _, parent) | commands.Upsert(scope, _, parent):
            if parent is None:
                return None
            above = yield from (reads.leaf(scope) if parent is LATEST_LEAF else reads.get(scope, parent))
            return None if above is None else last_id(above)
        case commands.AddOverlay(scope, overlay):
            after = yield from _after(scope, overlay)
            return None if after is None else first_id(after)
        case _:
            return None


def _after(scope: Scope, overlay: NewOverlay) -> Operation[Message | None]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_PLACE, (session.tree_no, overlay.to_id))
    if session is None or session.leaf is None or not rows:
        return None
    path = yield from walk(session, lanes.ranges(session.leaf))
    if not on_path(path, rows[0][0]):
        return None
    place = yield from walk(session, lanes.following(rows[0][0] + 1, session.leaf))
    ids = [] if place is None else (yield sql.GET_ID, (place,))
    return (yield from reads.get(scope, ids[0][0])) if ids else None


def record(
    command: commands.Command[Any],
    result: Any,
    at: int,
    neighbour: str | None = None,
    *,
    ends: str | None = None,
) -> list[Entry]:
    """Return one batch of lines for the journal of the session that a command changed.

    `result` is what the command returned, `at` the time it ran at, `neighbour` what the operation of that name found
    before. A fork or a split is run, dumped, undone and recorded as the `Restore` of what was dumped; a removed
    session has no journal. `ends` is the session that a restored one continues.
    """
    if isinstance(command, commands.Restore):
        return batch(at, archive_lines(command.archive, at, ends))
    return batch(at, _lines(command, result, at, neighbour))


def record_shared(command: commands.Command[Any], result: Any, at: int, version: int) -> list[Entry]:
    """Return the lines for the journal that an owner's sessions share; `version` is what the session came to."""
    if not isinstance(command, commands.EditEntry) or not command.shelf.shared:
        return []
    text = kinds.SharedWritten(
        session=command.scope.session_id,
        version=version,
        label=command.shelf.label,
        key=command.key,
        content=result,
        description=command.description,
        searchable=command.searchable,
    )
    return batch(at, [fact(text, at)])


@singledispatch
def _payload(command: object, result: Any) -> Payload:
    raise TypeError(f"a {type(command).__name__} is not recorded in a journal")


def _lines(command: commands.Command[Any], result: Any, at: int, neighbour: str | None) -> list[Line]:
    match command:
        case commands.Append(_, drafts, parent, usage=usage):
            found = [
                *_append(drafts, parent, result, neighbour),
                *(fact(kinds.StateAttached.of(result.attached_to, *one), at) for one in result.states),
            ]
            if usage is not None and result.counted:
                found.append(fact(_used(usage, beside=bool(found)), at))
            return found or [fact(kinds.Created(), at)]
        case commands.Upsert(_, draft, parent) if result.inserted:
            return _append([draft], parent, result, neighbour)
        case commands.AddOverlay(_, overlay):
            return _overlay(overlay, result, neighbour)
        case _:
            return [fact(_payload(command, result), at)]


def _append(drafts: Sequence[Draft], parent: ParentId, result: Appended, above: str | None) -> list[Line]:
    found: list[Line] = []
    below: str | None = None
    for draft, stored in zip(drafts, result.messages, strict=True):
        if stored is not draft.message:
            # It was there before: only where the next one goes is to be told.
            above, below = last_id(stored), stored.id
            continue
        told = kinds.Told(tokens=draft.tokens)
        if found:
            told.below = below
        elif below is not None:
            told.parent = below
        elif parent is not LATEST_LEAF:
            told.parent = parent
        found += message_lines(draft.message, draft.body, told, above)
        above, below = found[-1][0].id, None
    return found


def append_lines(drafts: Sequence[Draft]) -> list[Line]:
    """Return the lines of new messages below the leaf, before it is known which message that is."""
    return _append(drafts, LATEST_LEAF, Appended([draft.message for draft in drafts], len(drafts), None), None)


def usage_line(usage: Usage, at: int) -> Line:
    """Return the line of usage that is counted beside new messages."""
    return fact(_used(usage, beside=True), at)


def _used(usage: Usage, *, beside: bool = False) -> Payload:
    return kinds.Used(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cost=usage.cost,
        model=usage.model,
        id=usage.usage_id,
        beside=beside,
    )


def _overlay(overlay: NewOverlay, made: Compaction, first_kept: str | None) -> list[Line]:
    payload = kinds.Summarised(start=overlay.from_id, end=overlay.to_id, tokens=overlay.tokens)
    return summary_lines(overlay.id, overlay.summary, overlay.at, payload, made.to_message_id, first_kept)


@_payload.register
def _(command: commands.Update, result: Any) -> Payload:
    return _updated(command.draft)


@_payload.register
def _(command: commands.Upsert, result: Any) -> Payload:
    return _updated(command.draft)


def _updated(draft: Draft) -> Payload:
    message = draft.message
    return kinds.Updated(message=message.id, role=message.role, tokens=draft.tokens, body=Raw(draft.body))


@_payload.register
def _(command: commands.Delete, result: Any) -> Payload:
    return kinds.Deleted(messages=list(dict.fromkeys(command.message_ids)))


@_payload.register
def _(command: commands.Clear, result: Any) -> Payload:
    return kinds.Cleared()


@_payload.register
def _(command: commands.Checkout, result: Any) -> Payload:
    return kinds.CheckedOut(message=result)


@_payload.register
def _(command: commands.Label, result: Any) -> Payload:
    return kinds.Labelled(message=command.message_id, name=command.name)


@_payload.register
def _(command: commands.Reclaim, result: Any) -> Payload:
    return kinds.ReclaimedResults(results=list(command.results))


@_payload.register
def _(command: commands.EditEntry, result: Any) -> Payload:
    shelf = command.shelf
    if shelf.shared:
        return kinds.Noted(label=shelf.label)
    return kinds.ContextWritten(
        label=shelf.label,
        key=command.key,
        content=result,
        description=command.description,
        searchable=command.searchable,
    )


@_payload.register
def _(command: commands.Note, result: Any) -> Payload:
    return kinds.Noted(label=command.label)


@_payload.register
def _(command: commands.LoadSkill, result: Any) -> Payload:
    return kinds.SkillLoaded(label=command.label, key=command.key)


@_payload.register
def _(command: commands.UnloadSkill, result: Any) -> Payload:
    return kinds.SkillUnloaded(label=command.label, key=command.key, results=list(command.reclaimed))


@_payload.register
def _(command: commands.KeepPrompt, result: Any) -> Payload:
    prompt = command.prompt
    return kinds.Prompted(text=prompt.text, tokens=prompt.tokens, fingerprint=prompt.fingerprint)


@_payload.register
def _(command: commands.Create, result: Any) -> Payload:
    name, parent, model, source = command.origin
    return kinds.Created(name=name, parent=parent, model=model, source=source)


@_payload.register
def _(command: commands.Rename, result: Any) -> Payload:
    return kinds.Renamed(name=command.name)


@_payload.register
def _(command: commands.AddUsage, result: Any) -> Payload:
    return _used(command.usage)


@_payload.register
def _(command: commands.End, result: Any) -> Payload:
    return kinds.Ended(reason=command.reason)
