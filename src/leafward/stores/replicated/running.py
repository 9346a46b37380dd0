"""Runs commands and operations on replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from heapq import merge
from itertools import islice
from typing import TypeVar, cast

from leafward.core.errors import CorruptStore
from leafward.core.ids import Owner, Scope
from leafward.core.query import Finder, Query
from leafward.core.ranking import RANKED, Candidate, SearchResult, rank
from leafward.core.times import to_micros
from leafward.stores.contracts import Head, Revision, SearchFilter
from leafward.stores.finishing import to_its_end
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, LeaseTable
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.registry import ErasureReport
from leafward.stores.replicated.journals import FinishesCommits, KeepsHeads, Server
from leafward.stores.replicated.listing import parents
from leafward.stores.replicated.replica import Replica
from leafward.stores.replicated.replicas import BUDGET, Replicas
from leafward.stores.replicated.watching import Watcher
from leafward.stores.replicated.writing import remove, write
from leafward.stores.sql import reads, remains, scanning
from leafward.stores.sql.commands import Command, Fork, Remove, Split
from leafward.stores.sql.operations import Operation, find_session, run_steps
from leafward.stores.sql.points import HeadOf, StatesOf

T = TypeVar("T")

AT_ONCE = 16
"""How many of an owner's sessions are searched at the same time."""
READ, SEARCHED = 1 / 16, 4
"""About how many bytes can be replayed in the time that it takes to read or to search one."""

_log = logging.getLogger(__name__)


class ReplicatedRunner(ForwardingLeaseTable):
    """Runs each operation on the session's replica, once that has all that is committed."""

    def __init__(self, server: Server, guard: Guard, budget: int = BUDGET) -> None:
        self._server = server
        self._guard = guard
        self._replicas = Replicas(budget)
        self._watcher = Watcher(server, guard)

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        self._guard.check()
        if fence is not None:
            fence.check(command.scope)
        copied = isinstance(command, (Fork, Split))
        async with self._replicas.using(command.source if copied else command.scope) as replica:
            self._guard.check()
            try:
                if isinstance(command, Remove):
                    return 0 if await remove(self._server, replica) else None  # pyright: ignore[reportReturnType]
                return await write(self._server, replica, command, fence)
            finally:
                self._watcher.notify(command.scope)
                self._watcher.notify(replica.scope)

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        assert isinstance(where, Scope), "what is asked of an owner is asked of the server"
        question: object = operation
        if isinstance(question, (HeadOf, StatesOf)):
            head = await self._head(where, question)
            if head is not None:
                return cast(T, question.result(head))
        return await self._look(where, lambda replica: replica.run(operation()), READ)

    async def _head(self, scope: Scope, question: HeadOf | StatesOf) -> Head | None:
        """Ask a server that keeps heads for the head of a session that is not in memory."""
        server = self._server
        if not isinstance(server, KeepsHeads) or question.leaf_id is not None or question.names is None:
            return None
        self._guard.check()
        async with self._replicas.using(scope) as replica:
            self._guard.check()
            return None if replica.loaded else await server.head(scope, question.names, question.ids)

    async def _look(self, scope: Scope, work: Callable[[Replica], T], effort: float = SEARCHED) -> T:
        """Do something with a replica that has all that is committed now."""
        self._guard.check()
        async with self._replicas.using(scope) as replica:
            self._guard.check()
            await replica.catch_up(self._server)
            return await replica.work(lambda: work(replica), int(replica.lengths[replica.own] * effort))

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        self._guard.check()
        if isinstance(where, Scope):
            return await self._look(where, lambda replica: replica.run(scanning.search(where, query, only, limit)))
        if not query.terms:
            return []
        scopes = [Scope(where, one.session_id) for one in await self._server.sessions(where, None, None)]
        searching = asyncio.Semaphore(AT_ONCE)

        async def matches(scope: Scope) -> list[Candidate]:
            def match(replica: Replica) -> list[Candidate]:
                found = replica.run(scanning.candidates(scope, query, only))
                return _matching(query, found, most=max(RANKED, limit))

            async with searching:
                try:
                    return await self._look(scope, match)
                except CorruptStore as error:
                    # The others are not to be kept from their reader; this one's reader is told the same.
                    _log.error("a session is left out of what was asked for: %s", error)
                    return []

        found = await asyncio.gather(*map(matches, scopes))
        newest_first = merge(*found, key=lambda one: (-to_micros(one.created_at), one.id, one.session_id))
        return await asyncio.to_thread(rank, query, newest_first, limit=limit)

    async def wait(self, scope: Scope, revision: Revision) -> None:
        self._guard.check()
        async with self._watcher.listening(scope) as changed:
            while await self.read(scope, lambda: reads.revision(scope)) == revision:
                await changed.wait()
                changed.clear()

    async def is_shared(self, scope: Scope) -> bool:
        self._guard.check()
        return await self._server.is_shared(scope)

    async def scrub(self) -> list[str]:
        self._guard.check()
        return await self._server.scrub()

    async def erase(self, scope: Scope) -> ErasureReport:
        self._guard.check()
        async with self._replicas.using(scope) as replica:
            self._guard.check()
            await replica.catch_up(self._server)
            session = await replica.work(lambda: replica.run(find_session(scope)), 0)
            if session is None:
                return ErasureReport(scope.session_id, False, [])
            kin = parents(await self._server.sessions(scope.owner, None, None))

            def execute(statement: str, parameters: tuple[object, ...]) -> list[object]:
                # The replica knows of no other session.
                return kin if statement is remains.LIST_PARENTS else replica.tables.execute(statement, parameters)

            left = run_steps(remains.in_the_store(session, scope.session_id), execute)
            erased = await remove(self._server, replica)
            self._watcher.notify(scope)
        return ErasureReport(scope.session_id, erased, [*left, *await self._server.scrub()])

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        self._guard.check()
        # What a cancelled call has sent may arrive after what is sent to undo it.
        called = call(self._server)
        return await (called if isinstance(self._server, FinishesCommits) else to_its_end(called))

    async def close(self) -> None:
        """Finish what was begun, and forget the replicas."""
        await self._watcher.close()
        await self._replicas.close()
        await self._server.close()


def _matching(query: Query, candidates: Iterable[Candidate], *, most: int) -> list[Candidate]:
    finder = Finder(query)
    return list(islice((one for one in candidates if finder.find(one.text) is not None), most))
