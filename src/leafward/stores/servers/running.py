"""Runs commands and operations on a server, whatever becomes of connections and of whoever waits."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from leafward.core.errors import CorruptStore, LeafwardError, LeaseLost, OutcomeUnknown
from leafward.core.ids import Owner, Scope, new_id
from leafward.core.json import DecodeError
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.times import now_micros
from leafward.stores.contracts import Appended, Revision, SearchFilter
from leafward.stores.gate import Gate
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence
from leafward.stores.registry import ErasureReport
from leafward.stores.servers import searching
from leafward.stores.servers.appending import Appender, Unanswered
from leafward.stores.servers.heads import can_be_asked
from leafward.stores.servers.indexing import Indexer, Words, unindexed_sessions
from leafward.stores.servers.leases import ServerLeases
from leafward.stores.servers.purge import Purge, erase
from leafward.stores.servers.quick_leases import QuickLeases
from leafward.stores.servers.repeated_append import attached_before, repeated
from leafward.stores.servers.server import Failure, Server
from leafward.stores.signals import Signals
from leafward.stores.sql import leases, reads, registry
from leafward.stores.sql.commands import Append, Clear, Command, Remove
from leafward.stores.sql.operations import Many, Operation, Statement, single

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a server that is gone is waited for."""
MOST_RACES = 50
LONGEST_RACE_S = 60
POLL_S = 0.1
"""How often is looked for what others wrote, while somebody waits for it."""

TIDY_AFTER_S = 5.0
TIDY_EVERY = 1000
"""After so many writes that were given names, old names are forgotten."""
_log = logging.getLogger(__name__)

WORDS = Words()
MARK_DONE = "INSERT INTO {p}done (op, at) VALUES (?, ?)"


class _Try(Generic[T]):
    """One write on its way: whether it began, and what it will have given if its commit got through."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        """By which a repeated write finds itself done; what is the same when done twice needs none."""
        self.begun = False
        self.in_flight = False
        """Whether something is sent that writes, and is not answered yet."""
        self.unsure = False
        """Whether such a thing was never answered."""
        self.sent: list[T] = []
        """The result of an attempt whose commit was sent and not answered."""
        self.recover: Callable[[], Operation[T]] | None = None
        """How the result is found of one that was done and had none when it was sent."""
        self.since = now_micros()


class ServerRunner(ServerLeases):
    """Runs each command in one transaction, on a connection that is held no longer than that.

    A connection that is lost before the commit was sent leaves nothing, and the command is run again on another. When
    the answer to the commit is lost, the command is repeated under the name it had: it finds itself done, or does it.
    """

    def __init__(self, server: Server, guard: Guard, *, tidies: bool = True) -> None:
        self._server = server
        self._guard = guard
        self._signals = Signals()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching = 0
        self._watcher: asyncio.Task[None] | None = None
        self._appender = Appender(server, self._keep)
        self._purge = Purge(self.transact)
        self._indexer = Indexer(self)
        self._named = 0
        self._writes = 0
        """How many are under way."""
        self._gate = Gate()
        self._tidying: asyncio.TimerHandle | None = None
        if tidies:
            self.tidy_later()

    def tidy_later(self) -> None:
        """Begin, in a while, to remove what a process that was killed left behind: a short visit does not wait."""
        if self._tidying is None:
            self._tidying = self._guard.loop.call_later(TIDY_AFTER_S, self.tidy)

    async def settle(self) -> None:
        """Index every session, and remove all that is discarded."""
        await self._purge.run()
        for scope in await self.look(unindexed_sessions):
            await self._indexer.settle(scope)

    # Writing.

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        if fence is not None:
            fence.check(command.scope)
        self._guard.check()
        # In the order of the calls, which connections would not keep.
        async with self._gate.turn(command.scope):
            self._guard.check()
            result = await self._write_in_turn(command, fence)
        self._follow_up(command)
        return result

    async def _write_in_turn(self, command: Command[T], fence: Fence | None) -> T:
        attempt = _Try[T](_name_for(command))
        quick = _in_one_trip(command)
        self._writes += 1
        try:
            appended = None if quick is None else await self._append(quick, fence, attempt)
            if appended is not None:
                return cast(T, appended)
            return await self._to_its_end(attempt, lambda: self._write(command, quick, fence, attempt))
        finally:
            self._writes -= 1
            self._signals.notify(command.scope)

    async def _append(self, command: Append, fence: Fence | None, attempt: _Try[Any]) -> Appended | None:
        """Append together with others, if it can be done so."""
        if not command.drafts:
            return None
        try:
            return await self._appender.append(command, fence)
        except Unanswered:
            attempt.unsure = True
            return None

    def _follow_up(self, command: object) -> None:
        if isinstance(command, Append) and command.drafts:
            self._indexer.wrote(command.scope, len(command.drafts))
            return
        self._named += 1
        if isinstance(command, (Clear, Remove)) or self._named % TIDY_EVERY == 0:
            self.tidy()

    def tidy(self) -> None:
        """Remove in the background what was let go of, by this process or one that was killed."""
        self._keep(asyncio.create_task(self._tidy()))

    async def _tidy(self) -> None:
        try:
            await self._purge.run()
        except LeafwardError as error:
            # Nothing anybody waits for; the next one takes it up.
            if self._guard.closed:
                return
            _log.warning("%s could not be tidied: %s", self._server.where, error)

    async def _write(self, command: Command[T], quick: Append | None, fence: Fence | None, attempt: _Try[T]) -> T:
        def operation() -> Operation[T]:
            again = _again(command, quick, attempt)
            return leases.fenced(command, WORDS, fence) if again is None else leases.behind(fence, again)

        async def once(connection: Any) -> T:
            at = now_micros()
            done = None if quick is None else await self._write_quickly(connection, quick, fence, at, attempt)
            return cast(T, done) if done is not None else await self._commit(connection, operation, at, attempt)

        try:
            return await self._persist(once, attempt)
        except LeaseLost as error:
            if attempt.unsure and attempt.name is None:
                # What was sent before may be stored, from when the lease was held; by a name it would have been found.
                raise OutcomeUnknown(self._server.where, unanswered=True) from error
            raise

    async def _write_quickly(
        self, connection: Any, command: Append, fence: Fence | None, at: int, attempt: _Try[Any]
    ) -> Appended | None:
        """Append, or attach states, in one round trip, if it can be done so."""
        if attempt.name is not None and attempt.unsure:
            # Whether it was done is told by its name, in a transaction.
            return None
        attempt.begun = attempt.in_flight = True
        appended: Appended | None = None
        if attempt.name is None:
            placed = await self._server.append_quickly(connection, command, fence, at)
            appended = None if placed is None else self._appender.appended(command, placed)
        else:
            attempt.recover = lambda: attached_before(command)
            attached = await self._server.attach_quickly(connection, command, fence, at, attempt.name)
            appended = None if attached is None else self._appender.attached(command, attached)
        attempt.in_flight = False
        return appended

    async def _commit(self, connection: Any, operation: Callable[[], Operation[T]], at: int, attempt: _Try[T]) -> T:
        server = self._server
        attempt.begun = True
        await server.begin(connection, writing=True)
        try:
            if await self._is_done(connection, at, attempt):
                await server.rollback(connection)
                return await self._result_of(connection, at, attempt)
            result = await server.drive(connection, operation(), at, writing=True)
        except Exception as error:
            await self._undo(connection, error)
            raise
        attempt.sent.append(result)
        attempt.in_flight = True
        await server.commit(connection)
        return result

    async def _result_of(self, connection: Any, at: int, attempt: _Try[T]) -> T:
        """Return what a write gave that was done, and never answered."""
        if attempt.sent:
            return attempt.sent[-1]
        assert attempt.recover is not None
        await self._server.begin(connection, writing=False)
        result = await self._server.drive(connection, attempt.recover(), at, writing=False)
        await self._server.rollback(connection)
        return result

    async def _undo(self, connection: Any, error: Exception) -> None:
        # A connection that is lost is not asked for anything more: it might never answer.
        if not isinstance(error, self._server.errors) or self._server.judge(error) is not Failure.GONE:
            await self._server.rollback(connection)

    async def _is_done(self, connection: Any, at: int, attempt: _Try[Any]) -> bool:
        """Put the name of the write among those done; tell whether it was there, from an attempt that got through."""
        if attempt.name is None:
            return False
        try:
            await self._server.execute(connection, MARK_DONE, (attempt.name, at), writing=True)
        except self._server.errors as error:
            if (attempt.sent or attempt.recover) and self._server.is_duplicate(error):
                return True
            raise
        return False

    async def transact(self, operation: Callable[[], Operation[T]], name: str | None = None) -> T:
        """Run an operation that is no command in a transaction that writes."""
        self._guard.check()
        attempt = _Try[T](name)
        return await self._to_its_end(
            attempt,
            lambda: self._persist(lambda one: self._commit(one, operation, now_micros(), attempt), attempt),
        )

    async def change(
        self, operation: Callable[[bool], Operation[T]], fence: Fence | None, alone: Statement | None = None
    ) -> T:
        """Run an operation that may be repeated if the fence holds; it is told whether it may have been done before."""
        self._guard.check()
        attempt = _Try[T]()

        async def once(connection: Any) -> T:
            again = attempt.unsure
            if alone is not None and not again:
                attempt.begun = attempt.in_flight = True
                statement, parameters = alone
                assert not isinstance(parameters, Many)
                given = single(await self._server.execute(connection, statement, parameters, writing=True))
                attempt.in_flight = False
                if given:
                    return given

            def work() -> Operation[T]:
                return leases.behind(fence, operation(again))

            return await self._commit(connection, work, now_micros(), attempt)

        try:
            return await self._to_its_end(attempt, lambda: self._persist(once, attempt))
        except LeaseLost as error:
            if attempt.unsure:
                # What was sent before may be stored, from when the lease was held.
                raise OutcomeUnknown(self._server.where, unanswered=True) from error
            raise

    @property
    def _quick_leases(self) -> QuickLeases:
        return self._server.leases

    async def quickly(
        self, quick: Callable[[Any], Awaitable[T | None]], operation: Callable[[], Operation[T | None]]
    ) -> T | None:
        self._guard.check()
        attempt = _Try[T | None]()

        async def once(connection: Any) -> T | None:
            attempt.begun = attempt.in_flight = True
            done = await quick(connection)
            attempt.in_flight = False
            return done if done is not None else await self._commit(connection, operation, now_micros(), attempt)

        return await self._to_its_end(attempt, lambda: self._persist(once, attempt))

    # Reading.

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        return await self.look(operation)

    async def look(self, operation: Callable[[], Operation[T]]) -> T:
        self._guard.check()

        async def once(connection: Any) -> T:
            question: object = operation
            if can_be_asked(question):
                head = await self._server.answer(connection, question)
                if head is not None:
                    return cast(T, question.result(head))
            else:
                found = await self._server.drive_alone(connection, operation())
                if found is not None:
                    return found[0]
            await self._server.begin(connection, writing=False)
            try:
                result = await self._server.drive(connection, operation(), now_micros(), writing=False)
            except Exception as error:
                await self._undo(connection, error)
                raise
            await self._server.rollback(connection)
            return result

        try:
            # In a task of its own: a connection whose query was cancelled would have to be thrown away.
            return await asyncio.shield(self._keep(asyncio.create_task(self._persist(once, _Try[T]()))))
        except DecodeError as error:
            raise CorruptStore(self._server.where, f"holds a message that is not JSON ({error})") from error

    async def use(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Do some work on a connection that may be done again, to its end."""
        self._guard.check()
        return await asyncio.shield(self._keep(asyncio.create_task(self._persist(work, _Try[T]()))))

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        found = await self.look(lambda: searching.candidates(where, query, only, limit))
        owner = where.owner if isinstance(where, Scope) else where
        for session_id, messages in found.unindexed.items():
            self._indexer.wrote(Scope(owner, session_id), messages)
        return await asyncio.to_thread(searching.rank_rows, query, found.rows, limit)

    async def wait(self, scope: Scope, revision: Revision) -> None:
        async with self._signals.listening(scope) as changed, self._watched():
            while await self.look(lambda: reads.revision(scope)) == revision:
                await changed.wait()
                changed.clear()

    async def is_shared(self, scope: Scope) -> bool:
        return await self.look(lambda: registry.is_shared(scope))

    async def scrub(self) -> list[str]:
        return []

    async def erase(self, scope: Scope) -> ErasureReport:
        try:
            left = await self.transact(lambda: erase(scope), new_id())
        finally:
            self._signals.notify(scope)
        return ErasureReport(scope.session_id, left is not None, left or [])

    async def close(self) -> None:
        """Wait for what was begun, and wake all who wait."""
        self._signals.notify_all()
        if self._tidying is not None:
            self._tidying.cancel()
        await self._indexer.stop()
        while self._tasks or self._writes:
            # A write without a task is about to have its next one, or to end.
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(0))

    # Connections and tasks.

    async def _persist(self, once: Callable[[Any], Coroutine[Any, Any, T]], attempt: _Try[Any]) -> T:
        """Try until it is done, or will not be."""
        deadline: float | None = None
        pause, races = 0.01, 0
        while True:
            try:
                async with self._server.connection() as connection:
                    return await once(connection)
            except self._server.errors as error:
                failure = self._server.judge(error)
                races += failure is Failure.RACE
                # Counted from the first failure: an answer may have been waited for longer than that.
                deadline = deadline or time.monotonic() + PATIENCE_S
                over = time.monotonic() + pause > deadline
                attempt.unsure |= attempt.in_flight and failure is Failure.GONE
                attempt.in_flight = False
                # A wait for a lock may have lasted long enough by itself.
                raced = races > MOST_RACES or (races and time.monotonic() > deadline + LONGEST_RACE_S)
                if failure is Failure.FINAL or raced or (failure is Failure.GONE and over):
                    raise self._told(error, attempt) from error
                await asyncio.sleep(pause * random.random() if failure is Failure.RACE else pause)  # noqa: S311
                pause = min(2 * pause, 0.5)

    def _told(self, error: Exception, attempt: _Try[Any]) -> LeafwardError:
        if attempt.unsure:
            return OutcomeUnknown(self._server.where, unanswered=True)
        return self._server.explain(error)

    async def _to_its_end(self, attempt: _Try[Any], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a write in a task: cancelled before it began it leaves nothing, later it is finished first."""
        task = self._keep(asyncio.create_task(work()))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not attempt.begun:
                task.cancel()
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    continue
            raise

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Whoever waited has it; that nobody waits any more is no reason to complain.
            task.exception()

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[None]:
        """Look for what other processes write, once for all who wait."""
        self._watching += 1
        if self._watching == 1:
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._watching -= 1
            if self._watching == 0 and self._watcher is not None:
                self._watcher.cancel()
                self._watcher = None

    async def _watch(self) -> None:
        seen: dict[Scope, Revision] = {}
        while True:
            await asyncio.sleep(POLL_S)
            try:
                found = await self.look(lambda: _revisions(self._signals.awaited()))
            except LeafwardError:
                # Those who wait read for themselves, and are told.
                self._signals.notify_all()
                continue
            for scope in found:
                if found[scope] != seen.get(scope):
                    self._signals.notify(scope)
            seen = found


def _name_for(command: object) -> str | None:
    # The message ids of an append say whether it was done.
    return None if isinstance(command, Append) and command.drafts else new_id()


def _again(command: object, tried: Append | None, attempt: _Try[Any]) -> Operation[Any] | None:
    """Return what repeats an append that may have been done."""
    if not isinstance(command, Append) or not command.drafts or not attempt.unsure:
        return None
    sent = attempt.sent[-1] if attempt.sent else None
    return repeated(command, WORDS, tried=tried, sent=sent, since=attempt.since)


def _in_one_trip(command: object) -> Append | None:
    """Return a command that one round trip may do: messages below the leaf, or states for it, or a first append."""
    if not isinstance(command, Append):
        return None
    usage = command.usage
    if command.parent is None and (not command.drafts or command.expected_version not in (None, 0)):
        return None
    if not command.drafts:
        return command if command.state and usage is None else None
    if usage is None or usage.model is None or usage.usage_id is not None:
        return command
    # Its model is kept under a name, which is of this call alone.
    return replace(command, usage=usage._replace(usage_id=new_id()))


def _revisions(scopes: list[Scope]) -> Operation[dict[Scope, Revision]]:
    found: dict[Scope, Revision] = {}
    for scope in scopes:
        found[scope] = yield from reads.revision(scope)
    return found
