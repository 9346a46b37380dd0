"""How a command is carried out: tried on the replica, and committed if the journals are still what it was tried on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Generic, TypeVar

from leafward.core.errors import LeaseLost, OutcomeUnknown, SessionExists, StoreError
from leafward.core.ids import Scope
from leafward.core.info import SessionInfo
from leafward.core.json import encode
from leafward.core.parent import LATEST_LEAF
from leafward.core.times import from_micros, now_micros, to_micros
from leafward.stores.contracts import Appended, Weight
from leafward.stores.finishing import in_a_thread, to_its_end
from leafward.stores.journal import lines, records
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.replaying import read_header
from leafward.stores.leases import Fence
from leafward.stores.replicated.journals import (
    NOTHING,
    FinishesCommits,
    Journal,
    Listing,
    Mark,
    Outcome,
    Server,
    Write,
)
from leafward.stores.replicated.replica import SMALL, Replica, Tip
from leafward.stores.replicated.snapshots import take_down, take_down_shared
from leafward.stores.sql import copying, reads, registry
from leafward.stores.sql import statements as sql
from leafward.stores.sql.commands import Append, Clear, Command, EditEntry, End, Fork, Restore, Split
from leafward.stores.sql.operations import Operation, single
from leafward.stores.sql.scanning import NO_INDEX

T = TypeVar("T")

SHORTEST_S, LONGEST_S, GROWTH = 0.001, 0.005, 1.2
"""How long one waits whose turn it is not, at first and in the end. Growing faster, it would leave them behind."""

_log = logging.getLogger(__name__)


class _Pauses:
    """Waits for another to take its turn: a little, and longer each time."""

    def __init__(self) -> None:
        self._next = SHORTEST_S

    async def wait(self) -> None:
        await asyncio.sleep(self._next)
        self._next = min(GROWTH * self._next, LONGEST_S)


class Attempt(Generic[T]):
    """What a command did to a replica, inside a transaction that is still open, and the writes that tell it.

    One with a `tip` is an append below the leaf that the tables have yet to be told of.
    """

    def __init__(
        self, writes: list[Write], result: T | None = None, error: Exception | None = None, tip: Tip | None = None
    ) -> None:
        self.writes = writes
        self.tip = tip
        self._result = result
        self._error = error

    @property
    def answer(self) -> T:
        """What the command gives, or raises, if all was up to date."""
        if self._error is not None:
            raise self._error
        return self._result  # pyright: ignore[reportReturnType]  (set unless there is an error)


async def write(server: Server, replica: Replica, command: Command[T], fence: Fence | None) -> T:
    """Carry out a command on a replica that the caller holds.

    It is tried on what is known here, for nobody else may have written since, and the commit finds out.
    """
    if not replica.loaded and not (replica.is_shrunk and _tip(replica, command) is not None):
        await replica.catch_up(server)
    pauses = _Pauses()
    while True:
        try:
            attempt = await _attempt(server, replica, command)
        except BaseException:
            replica.undo()
            raise
        outcome = await _commit(server, replica, attempt, fence)
        if outcome is Outcome.DONE:
            for journal in list(replica.marks):
                if await replica.is_outgrown(journal):
                    await to_its_end(_write_anew(server, replica, journal))
            return attempt.answer
        if outcome is Outcome.NOT_YET:
            # Not brought up to date: when the other has written, this one is too late and has the turn after it.
            await pauses.wait()
        else:
            await replica.catch_up(server)


async def remove(server: Server, replica: Replica) -> bool:
    """Remove a session's journal; False when there is none."""
    pauses = _Pauses()
    while True:
        mark = (await server.marks([replica.own]))[0]
        replica.reset()
        if mark == NOTHING:
            return False
        gone = Write(replica.own, mark, NOTHING, listing=Listing(0, replica.scope.session_id, b""))
        outcome = await _decide(server, [gone], None)
        if outcome is Outcome.DONE:
            return True
        if outcome is Outcome.IN_DOUBT and (await server.marks([replica.own]))[0].session != mark.session:
            return True
        if outcome is Outcome.NOT_YET:
            await pauses.wait()


async def _commit(server: Server, replica: Replica, attempt: Attempt[Any], fence: Fence | None) -> Outcome:
    try:
        outcome = await _decide(server, attempt.writes, fence)
        if outcome is Outcome.IN_DOUBT:
            outcome = Outcome.DONE if await _was_done(server, attempt.writes) else Outcome.REFUSED
    except (LeaseLost, asyncio.CancelledError):
        # One who was cancelled need not know what became of it: the next one looks.
        replica.undo()
        raise
    except BaseException:
        # Whatever is known here may be wrong now.
        replica.reset()
        raise
    if outcome is not Outcome.DONE:
        replica.undo()
    elif attempt.tip is not None:
        (written,) = attempt.writes
        replica.note_append(written.mark, written.batch, [one.id for one in attempt.answer.messages], attempt.tip)
    else:
        replica.tables.keep()
        for written in attempt.writes:
            if written.journal in replica.marks:
                replica.note(written.journal, written.mark, len(written.batch))
    return outcome


async def _decide(server: Server, writes: list[Write], fence: Fence | None) -> Outcome:
    """Commit; one who is cancelled meanwhile hears of that when it is decided."""
    if isinstance(server, FinishesCommits):
        return await server.commit(writes, fence)
    return await to_its_end(server.commit(writes, fence))


async def _write_anew(server: Server, replica: Replica, journal: Journal) -> None:
    """Have a journal tell what there is instead of how it came to be; if that fails, it goes on as it was."""
    known = replica.marks[journal]
    at = now_micros()
    told = take_down(known, at) if journal == replica.own else take_down_shared(replica.scope, at)
    mark, batch = await replica.work(lambda: replica.run(told), replica.lengths[journal])
    try:
        outcome = await server.commit([Write(journal, known, mark, batch, anew=True)], None)
    except StoreError as error:
        _log.warning("a journal of session %r was not written anew: %s", replica.scope.session_id, error)
        outcome = Outcome.IN_DOUBT
    if outcome is Outcome.DONE:
        replica.note(journal, mark, len(batch) - replica.lengths[journal])
    elif outcome is Outcome.IN_DOUBT:
        replica.reset()


async def _was_done(server: Server, writes: list[Write]) -> bool:
    """Look for a commit among those that followed it.

    Raises:
        OutcomeUnknown: the journal it would be in is gone.
    """
    for written in writes:
        if written.batch:
            unknown = OutcomeUnknown(f"session {written.journal.session_id!r}", unanswered=True)
            try:
                tail = (await server.fetch([(written.journal, written.expected)]))[0]
            except StoreError as error:
                raise unknown from error
            if tail.foreign or tail.mark == NOTHING:
                raise unknown
            return bool(tail.batches) and tail.batches[0] == written.batch
    return False


async def _attempt(server: Server, replica: Replica, command: Command[Any]) -> Attempt[Any]:
    held = replica.lengths[replica.own]
    tip = _tip(replica, command)
    if isinstance(command, Append) and tip is not None:
        if command.size <= SMALL:
            return _append(replica, command, tip)
        return await in_a_thread(lambda: _append(replica, command, tip))
    if not isinstance(command, (Fork, Split)):
        return await replica.work(lambda: _try(replica, command), held if isinstance(command, Clear) else command.size)
    target = Journal(command.scope.owner, command.scope.session_id)
    taken = await server.marks([target]) != [NOTHING]
    return await replica.work(lambda: _copy(replica, command, taken=taken), held)


def _tip(replica: Replica, command: Command[Any]) -> Tip | None:
    """Return what the session ends with, if the command is an append and that is all that it has to know."""
    if not isinstance(command, Append):
        return None
    if not command.is_plain or replica.marks[replica.own] == NOTHING:
        return None
    ids = [draft.message.id for draft in command.drafts]
    if len(set(ids)) < len(ids) or replica.knows(ids):
        return None
    if replica.tip is None:
        replica.tip = replica.run(_find_tip(replica.scope))
    return None if command.weigh and replica.tip.window is None else replica.tip


def _find_tip(scope: Scope) -> Operation[Tip]:
    session = yield from registry.need_session(scope)
    line_id = yield from records.neighbour(Append(scope, [], LATEST_LEAF))
    listed = listing((yield from registry.read_info(session.session_no)))
    prompt = single((yield sql.GET_PROMPT_TOKENS, (session.session_no,)))
    return Tip(line_id, listed, session.window, prompt, session.version)


def _append(replica: Replica, command: Append, tip: Tip) -> Attempt[Appended]:
    """Append new messages below the leaf, which takes no look at the tables."""
    at = now_micros()
    window = None if tip.window is None else tip.window + sum(draft.tokens for draft in command.drafts)
    weight = Weight(window, tip.prompt) if command.weigh and window is not None else None
    messages = [draft.message for draft in command.drafts]
    version = tip.version + 1
    result = Appended(messages, len(messages), weight, version=version, attached_to=messages[-1].id)
    told = records.record(command, result, at, tip.line_id)
    written = _following(replica, replica.own, [], told, _listed_at(tip.listing, at))
    return Attempt([written], result, tip=tip._replace(line_id=told[-1].id, window=window, version=version))


def _try(replica: Replica, command: Command[Any], at: int | None = None) -> Attempt[Any]:
    checks = [_unchanged(replica, replica.own)]
    if isinstance(command, EditEntry) and command.shelf.shared:
        checks.append(_unchanged(replica, replica.shared))
    at = now_micros() if at is None else at
    tables = replica.tables
    tables.begin()
    header = records.header(replica.scope, at) if replica.marks[replica.own] == NOTHING else []
    if header:
        tables.seed(read_header(header[0]).incarnation)
    before = tables.changes
    try:
        neighbour = tables.run(records.neighbour(command))
        result = tables.run(command.operation(NO_INDEX), at)
    except Exception as error:  # noqa: BLE001  (raised once it is known that it was not for want of what others wrote)
        tables.undo()
        return Attempt(checks, error=error)
    if tables.changes == before:
        tables.undo()
        return Attempt(checks, result)
    if isinstance(command, Clear):
        tables.tidy()
    writes = [_written(replica, header, records.record(command, result, at, neighbour))]
    if len(checks) > 1:
        version = tables.run(reads.revision(replica.scope)).version
        writes.append(_shared(replica, records.record_shared(command, result, at, version), at))
    return Attempt(writes, result)


def _copy(replica: Replica, command: Fork | Split, *, taken: bool) -> Attempt[SessionInfo]:
    """Make the copy beside its source, take it down, and undo it: it is to have a journal of its own."""
    target = command.scope
    at = now_micros()
    tables = replica.tables
    tables.begin()
    try:
        result = tables.run(command.operation(NO_INDEX), at)
        if taken:
            raise SessionExists(target.session_id)
        archive = tables.run(copying.dump(target))
    except Exception as error:  # noqa: BLE001  (as above)
        tables.undo()
        return Attempt([_unchanged(replica, replica.own)], error=error)
    tables.undo()
    header = records.header(target, at)
    made, crc = lines.encode([*header, *records.record(Restore(target, archive), result, at)], 0)
    mark = Mark(read_header(header[0]).incarnation, 1, crc)
    writes = [Write(Journal(target.owner, target.session_id), NOTHING, mark, made[:-1], listing(result))]
    if isinstance(command, Split):
        # Just before: the continuation is listed as the newer one.
        ended = _try(replica, End(command.source, copying.SPLIT), at - 1)
        return Attempt([*writes, *ended.writes], result)
    return Attempt([*writes, _unchanged(replica, replica.own)], result)


def _unchanged(replica: Replica, journal: Journal) -> Write:
    mark = replica.marks[journal]
    return Write(journal, mark, mark)


def _written(replica: Replica, header: list[Entry], told: list[Entry]) -> Write:
    info = replica.run(registry.get(replica.scope))
    assert info is not None
    return _following(replica, replica.own, header, told, listing(info))


def _shared(replica: Replica, told: list[Entry], at: int) -> Write:
    is_new = replica.marks[replica.shared] == NOTHING
    return _following(replica, replica.shared, records.shared_header(replica.scope.owner, at) if is_new else [], told)


def _following(
    replica: Replica, journal: Journal, header: list[Entry], told: list[Entry], listed: Listing | None = None
) -> Write:
    mark = replica.marks[journal]
    batch, crc = lines.encode([*header, *told], mark.crc)
    incarnation = read_header(header[0]).incarnation if header else mark.incarnation
    return Write(journal, mark, Mark(incarnation, mark.length + 1, crc), batch[:-1], listed)


def listing(info: SessionInfo) -> Listing:
    """Return what the list of sessions keeps of one."""
    return Listing(to_micros(info.updated_at), info.id, encode(info))


def _listed_at(listed: Listing, at: int) -> Listing:
    """Return the same with another time of the last change, which is the last that `SessionInfo` tells."""
    info = listed.info
    return Listing(at, listed.session_id, info[: info.rindex(b':"') + 1] + encode(from_micros(at)) + b"}")
