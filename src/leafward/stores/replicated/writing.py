"""How a command is carried out: tried on the replica, and committed if the journals are still what it was tried on."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, TypeVar, cast

from leafward.core.errors import LeaseLost, OutcomeUnknown, SessionExists, StoreError
from leafward.core.info import SessionInfo
from leafward.core.parent import LATEST_LEAF
from leafward.core.times import now_micros
from leafward.stores.contracts import Appended
from leafward.stores.finishing import in_a_thread, to_its_end
from leafward.stores.journal import lines, records
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.replaying import read_header
from leafward.stores.leases import Fence
from leafward.stores.replicated.appending import append_below_leaf, ending_for
from leafward.stores.replicated.attempts import Attempt, following, listing, unchanged
from leafward.stores.replicated.head_queries import find_change
from leafward.stores.replicated.heads import HeadChange
from leafward.stores.replicated.journals import (
    NOTHING,
    FinishesCommits,
    Journal,
    KeepsHeads,
    Listing,
    Mark,
    Outcome,
    Server,
    Write,
)
from leafward.stores.replicated.replica import SMALL, Ending, Replica
from leafward.stores.replicated.snapshots import take_down, take_down_shared
from leafward.stores.replicated.steps import Stepped, can_be_step, is_below, make_step, result_of
from leafward.stores.sql import copying, reads, registry
from leafward.stores.sql.commands import Append, Clear, Command, EditEntry, End, Fork, Restore, Split
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


async def write(server: Server, replica: Replica, command: Command[T], fence: Fence | None) -> T:
    """Carry out a command on a replica that the caller holds.

    It is tried on what is known here, for nobody else may have written since, and the commit finds out.
    """
    pauses = _Pauses()
    while True:
        done = await _prepare(server, replica, command, fence, pauses)
        if done is not None:
            return cast(T, done)
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
        elif replica.is_shrunk and isinstance(server, KeepsHeads):
            replica.reset()
        else:
            await replica.catch_up(server)


async def _prepare(
    server: Server, replica: Replica, command: Command[Any], fence: Fence | None, pauses: _Pauses
) -> Appended | None:
    """Have all in the replica that a command has to know; or return its result, when the server did it."""
    if replica.loaded:
        if not replica.knows_shared and not isinstance(command, Append):
            await replica.catch_up(server)
        return None
    if _suffices(replica, command):
        return None
    if isinstance(command, Append) and command.parent is None and replica.is_blank:
        # As a rule it begins a session; the commit finds out.
        replica.start()
        return None
    if isinstance(command, Append) and isinstance(server, KeepsHeads) and can_be_step(command):
        done = await _step(server, replica, command, fence, pauses)
        if done is not None:
            return done
    if not replica.loaded:
        await replica.catch_up(server)
    return None


def _suffices(replica: Replica, command: Command[Any]) -> bool:
    """Whether what is left of a replica is all that the command has to know."""
    return replica.is_shrunk and isinstance(command, Append) and ending_for(replica, command) is not None


async def _step(
    server: KeepsHeads, replica: Replica, command: Append, fence: Fence | None, pauses: _Pauses
) -> Appended | None:
    """Have the server do an append to a session that is not in memory; `None` when it has to be read."""
    at = now_micros()
    small = command.size <= SMALL
    step = make_step(command, at) if small else await in_a_thread(lambda: make_step(command, at))
    while True:
        done = await server.step(replica.own, step, fence)
        if isinstance(done, Stepped):
            if replica.is_shrunk:
                replica.reset()
            return result_of(command, done)
        if not done.another:
            break
        await pauses.wait()
    if done.is_new:
        replica.start()
    return None


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
    elif attempt.skips_tables:
        (written,) = attempt.writes
        if written.batch and attempt.ending is not None:
            replica.note_append(written, attempt.ending)
    else:
        replica.tables.keep()
        for written in attempt.writes:
            if written.journal in replica.marks and written.batch:
                replica.note(written.journal, written.mark, len(written.batch))
                replica.ending = attempt.ending
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
    is_own = journal == replica.own
    told = take_down(known, at) if is_own else take_down_shared(replica.scope, at)
    mark, batch = await replica.work(lambda: replica.run(told), replica.lengths[journal])
    ending = replica.ending
    change = HeadChange(ending.head, {}) if is_own and ending is not None else None
    try:
        outcome = await server.commit([Write(journal, known, mark, batch, anew=True, head=change)], None)
    except StoreError as error:
        _log.warning("a journal of session %r was not written anew: %s", replica.scope.session_id, error)
        outcome = Outcome.IN_DOUBT
    if outcome is Outcome.DONE:
        replica.note(journal, mark, len(batch) - replica.lengths[journal])
        replica.ending = ending
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
    if isinstance(command, Append):
        ending = ending_for(replica, command)
        if ending is not None:
            if command.size <= SMALL:
                return append_below_leaf(replica, command, ending)
            return await in_a_thread(lambda: append_below_leaf(replica, command, ending))
    keeps = isinstance(server, KeepsHeads)
    if not isinstance(command, (Fork, Split)):
        size = held if isinstance(command, Clear) else command.size
        return await replica.work(lambda: _try(replica, command, keeps=keeps), size)
    target = Journal(command.scope.owner, command.scope.session_id)
    taken = await server.marks([target]) != [NOTHING]
    return await replica.work(lambda: _copy(replica, command, taken=taken, keeps=keeps), held)


def _try(replica: Replica, command: Command[Any], at: int | None = None, *, keeps: bool) -> Attempt[Any]:
    checks = [unchanged(replica, replica.own)]
    if isinstance(command, EditEntry) and command.shelf.shared:
        checks.append(unchanged(replica, replica.shared))
    known = replica.ending
    at = now_micros() if at is None else at
    tables = replica.tables
    tables.begin()
    header = records.header(replica.scope, at) if replica.marks[replica.own] == NOTHING else []
    if header:
        tables.seed(read_header(header[0]).incarnation)
    before = tables.changes
    told_as = command
    try:
        neighbour = tables.run(records.neighbour(command))
        if isinstance(command, Append) and command.parent is not LATEST_LEAF:
            leaf = tables.run(reads.leaf(replica.scope))
            if is_below(command.parent, None if leaf is None else leaf.id):
                # As an append that does not look at the tables tells it.
                told_as = replace(command, parent=LATEST_LEAF)
        result = tables.run(command.operation(NO_INDEX), at)
    except Exception as error:  # noqa: BLE001  (raised once it is known that it was not for want of what others wrote)
        tables.undo()
        return Attempt(checks, error=error)
    if tables.changes == before:
        tables.undo()
        return Attempt(checks, result)
    if isinstance(command, Clear):
        tables.tidy()
    info = tables.run(registry.get(replica.scope))
    assert info is not None
    listed = listing(info)
    change: HeadChange | None = None
    if keeps:
        head = None if known is None else known.head
        change = tables.run(find_change(command, result, head, is_new=bool(header)))
    told = records.record(told_as, result, at, neighbour)
    writes = [following(replica, replica.own, header, told, listed, change)]
    if len(checks) > 1:
        version = tables.run(reads.revision(replica.scope)).version
        writes.append(_shared(replica, records.record_shared(command, result, at, version), at))
    return Attempt(writes, result, ending=None if change is None else Ending(change.head, listed))


def _copy(replica: Replica, command: Fork | Split, *, taken: bool, keeps: bool) -> Attempt[SessionInfo]:
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
        return Attempt([unchanged(replica, replica.own)], error=error)
    tables.undo()
    header = records.header(target, at)
    made, crc = lines.encode([*header, *records.record(Restore(target, archive), result, at)], 0)
    mark = Mark(read_header(header[0]).incarnation, 1, crc)
    writes = [Write(Journal(target.owner, target.session_id), NOTHING, mark, made[:-1], listing(result))]
    if isinstance(command, Split):
        # Just before: the continuation is listed as the newer one.
        ended = _try(replica, End(command.source, copying.SPLIT), at - 1, keeps=keeps)
        return Attempt([*writes, *ended.writes], result, ending=ended.ending)
    return Attempt([*writes, unchanged(replica, replica.own)], result)


def _shared(replica: Replica, told: list[Entry], at: int) -> Write:
    is_new = replica.marks[replica.shared] == NOTHING
    header = records.shared_header(replica.scope.owner, at) if is_new else []
    return following(replica, replica.shared, header, told)
