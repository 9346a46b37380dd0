"""What a driver has to do for the operations to run on its server."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, TypeVar

from leafward.core.errors import LeafwardError
from leafward.stores.contracts import Durability, Head
from leafward.stores.leases import Fence
from leafward.stores.servers.paths import Paths
from leafward.stores.servers.positions import Attached, Placed, Planned
from leafward.stores.servers.quick_leases import QuickLeases
from leafward.stores.sql import lease_statements, state_statements
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Dialect
from leafward.stores.sql.operations import CLOCK, Many, Operation
from leafward.stores.sql.points import HeadOf, StatesOf
from leafward.stores.sql.statements import ENOUGH_ALONE

T = TypeVar("T")

_ENOUGH_ALONE = ENOUGH_ALONE | state_statements.ENOUGH_ALONE | lease_statements.ENOUGH_ALONE

LONGEST_IDLE_S = 240.0
"""How long a connection is kept that nobody uses."""


class Failure(Enum):
    """What an error of the driver means for a transaction."""

    GONE = "the connection is lost, or cannot be made"
    RACE = "another transaction was first; this one is undone and can be run again"
    FINAL = "running it again would not help"


class Server(ABC):
    """A pool of connections to one server."""

    dialect: Dialect
    where: str
    """The server, as it may be named in errors."""
    durability: Durability
    leases: QuickLeases
    errors: tuple[type[Exception], ...]
    """What the driver raises; anything else comes from the operation, and goes to whoever asked for it."""

    def __init__(self, most_connections: int, *, keeps: bool) -> None:
        self._free = asyncio.Semaphore(most_connections)
        self._keeps = keeps
        self._paths = Paths(self._look_up)
        self._idle: deque[tuple[float, Any]] = deque()
        """Connections, and since when each is not used; the last one used is lent first."""

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """Lend a connection; one that is broken, or in a transaction still, is not lent again."""
        async with self._free:
            connection = await self._take()
            try:
                yield connection
            except (asyncio.CancelledError, TimeoutError):
                # It may be waiting for an answer that never comes.
                self.abandon(connection)
                raise
            finally:
                # The driver's pool takes a task and turns of the loop to take one back: a third of an append's time.
                if self._keeps and self.is_usable(connection):
                    self._idle.append((time.monotonic(), connection))
                else:
                    await self._give_back(connection)

    async def _look_up(self, connection: Any, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        return await self.execute(connection, statement, parameters, writing=False)

    async def _give_back(self, connection: Any) -> None:
        try:
            await self.release(connection)
        except self.errors:
            # A pool that was given may ask its server for something; what it was lent for is over, its outcome known.
            self.abandon(connection)

    @property
    def is_exhausted(self) -> bool:
        """Whether all connections are lent."""
        return self._free.locked()

    async def _take(self) -> Any:
        # What lies between may have forgotten a connection that was silent for long, and would never tell.
        longest = time.monotonic() - LONGEST_IDLE_S
        while self._idle and self._idle[0][0] < longest:
            self.abandon(self._idle[0][1])
            await self.release(self._idle.popleft()[1])
        while self._idle:
            _, connection = self._idle.pop()
            if self.is_usable(connection):
                return connection
            await self.release(connection)
        return await self.acquire()

    async def release_all(self) -> None:
        """Give back to the pool what was kept."""
        while self._idle:
            await self.release(self._idle.pop()[1])

    @abstractmethod
    async def acquire(self) -> Any:
        """Take a connection from the pool."""

    @abstractmethod
    async def release(self, connection: Any) -> None:
        """Give a connection back to the pool, whatever became of it."""

    @abstractmethod
    def abandon(self, connection: Any) -> None:
        """Cut a connection off."""

    @abstractmethod
    def is_usable(self, connection: Any) -> bool:
        """Whether a connection is open, as far as is known, and in no transaction."""

    @abstractmethod
    async def begin(self, connection: Any, *, writing: bool) -> None:
        """Begin a transaction; one that only reads sees one snapshot."""

    @abstractmethod
    async def commit(self, connection: Any) -> None: ...

    @abstractmethod
    async def rollback(self, connection: Any) -> None: ...

    @abstractmethod
    async def execute(self, connection: Any, statement: str, parameters: tuple[Any, ...], *, writing: bool) -> Any:
        """Run one statement and return its rows."""

    @abstractmethod
    async def execute_many(self, connection: Any, statement: str, parameters: Many) -> None:
        """Run one statement many times, in as few round trips as the driver can."""

    @abstractmethod
    async def append_at(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        """Append to several sessions, all in one round trip and one transaction.

        `None`, with nothing written to it, for a session that was changed since, or whose fence does not hold.
        """

    @abstractmethod
    async def append_quickly(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        """Append below the leaf, with states and usage, in one round trip and one transaction.

        `None`, with nothing written, unless the session is there at the expected version, its leaf is the parent and
        the last of its lane, all ids are new, that of the usage too, no other writer came between, and the fence holds:
        then the operation has to be run. An append below no message begins a session, and is `None` unless there is
        none of its id and the fence holds.
        """

    @abstractmethod
    async def attach_quickly(
        self, connection: Any, command: Append, fence: Fence | None, at: int, name: str
    ) -> Attached | None:
        """Attach states to the leaf in one round trip and one transaction, which puts its name among those done.

        `None`, with nothing written, unless the session is there at the expected version, its leaf is the parent, and
        the fence holds. Without a state that changes nothing is written, and no name.
        """

    @abstractmethod
    async def answer(self, connection: Any, question: HeadOf | StatesOf) -> Head | None:
        """Return the head of a session, or of one of its branches, as of one moment.

        It is one round trip, unless the path is long and new to the process, or its leaf has just changed the lane.

        `None` if the operation has to be run: there is no such session or leaf, or the way to its root is too long.
        """

    @abstractmethod
    def judge(self, error: Exception) -> Failure:
        """Tell what one of these errors means."""

    @abstractmethod
    def is_duplicate(self, error: Exception) -> bool:
        """Tell whether one of these errors says that a row with the same key is there."""

    @abstractmethod
    def explain(self, error: Exception) -> LeafwardError:
        """Say in our words what went wrong, and what to do, without secrets."""

    @abstractmethod
    async def make_tables(self, connection: Any) -> None:
        """Make or check the tables, one process at a time."""

    @abstractmethod
    async def check_messages(self, connection: Any, max_message_bytes: int) -> None:
        """Raise unless the server takes messages of this size, and can index all their words."""

    async def odd_collations(self, connection: Any, collations: set[str]) -> set[str]:
        """Return those collations of a table by which it may take one id for another."""
        return collations

    def keeps_every_id(self, collations: set[str]) -> bool:
        """Tell whether a table with these collations can."""
        return True

    @abstractmethod
    async def close(self) -> None: ...

    async def drive(self, connection: Any, operation: Operation[T], at: int, *, writing: bool) -> T:
        """Run an operation to its end, inside the transaction that was begun."""
        try:
            statement, parameters = next(operation)
            while True:
                if statement is CLOCK:
                    rows: Any = [(at,)]
                elif isinstance(parameters, Many):
                    await self.execute_many(connection, statement, parameters)
                    rows = []
                else:
                    rows = await self.execute(connection, statement, parameters, writing=writing)
                statement, parameters = operation.send(rows)
        except StopIteration as stop:
            return stop.value

    async def drive_alone(self, connection: Any, operation: Operation[T]) -> tuple[T] | None:
        """Return what an operation finds by its first statement, a snapshot by itself; `None` if it needs more."""
        try:
            statement, parameters = next(operation)
            if statement in _ENOUGH_ALONE and not isinstance(parameters, Many):
                operation.send(await self.execute(connection, statement, parameters, writing=False))
        except StopIteration as stop:
            return (stop.value,)
        operation.close()
        return None
