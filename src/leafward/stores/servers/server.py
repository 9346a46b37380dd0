"""What a driver has to do for the operations to run on its server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from leafward.core.errors import LeafwardError
from leafward.stores.contracts import Appended, Durability, Weight
from leafward.stores.leases import Fence
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Dialect
from leafward.stores.sql.operations import CLOCK, Many, Operation

T = TypeVar("T")


class Failure(Enum):
    """What an error of the driver means for a transaction."""

    GONE = "the connection is lost, or cannot be made"
    RACE = "another transaction was first; this one is undone and can be run again"
    FINAL = "running it again would not help"


class Position(NamedTuple):
    """Where an append stands when nothing was written to its session since: below the last one, in the same lane."""

    session_no: int
    tree_no: int
    version: int


class Placed(NamedTuple):
    """What was appended, and where the next one stands."""

    appended: Appended
    next: Position


def placed(command: Append, position: Position, weight: Weight) -> Placed:
    """Return what an append gives that went through."""
    messages = [draft.message for draft in command.drafts]
    return Placed(Appended(messages, len(messages), weight if command.weigh else None), position)


class Server(ABC):
    """A pool of connections to one server."""

    dialect: Dialect
    where: str
    """The server, as it may be named in errors."""
    durability: Durability
    errors: tuple[type[Exception], ...]
    """What the driver raises; anything else comes from the operation, and goes to whoever asked for it."""

    @abstractmethod
    def connection(self) -> AbstractAsyncContextManager[Any]:
        """Lend a connection; one that is broken, or in a transaction still, is not lent again."""

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
    async def append_at(
        self, connection: Any, position: Position, command: Append, fence: Fence | None, at: int
    ) -> Placed | None:
        """Append where this process appended last, in one round trip and one transaction.

        `None`, with nothing written, when the session was changed since, or the fence does not hold.
        """

    @abstractmethod
    async def append_quickly(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        """Append below the leaf in one round trip and one transaction.

        `None`, with nothing written, unless the session is there, all ids are new, the leaf is the last of its lane, no
        other writer came between, and the fence holds: then the operation has to be run.
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
