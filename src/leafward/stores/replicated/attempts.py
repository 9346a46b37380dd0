"""What a command did to a replica, and the writes that tell it."""

from __future__ import annotations

from typing import Generic, TypeVar

from leafward.core.info import SessionInfo
from leafward.core.json import encode
from leafward.core.times import to_micros
from leafward.stores.journal import lines
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.replaying import read_header
from leafward.stores.replicated.heads import HeadChange
from leafward.stores.replicated.journals import Journal, Listing, Mark, Write
from leafward.stores.replicated.replica import Ending, Replica

T = TypeVar("T")


class Attempt(Generic[T]):
    """What a command did to a replica, inside a transaction that is still open, and the writes that tell it.

    One that `skips_tables` is an append below the leaf, which the tables get when they are used.
    """

    def __init__(
        self,
        writes: list[Write],
        result: T | None = None,
        error: Exception | None = None,
        ending: Ending | None = None,
        *,
        skips_tables: bool = False,
    ) -> None:
        self.writes = writes
        self.ending = ending
        """What the session then ends with, if that is known."""
        self.skips_tables = skips_tables
        self._result = result
        self._error = error

    @property
    def answer(self) -> T:
        """What the command gives, or raises, if all was up to date."""
        if self._error is not None:
            raise self._error
        return self._result  # pyright: ignore[reportReturnType]  (set unless there is an error)


def unchanged(replica: Replica, journal: Journal) -> Write:
    """Return a write that only checks where a journal stands."""
    mark = replica.marks[journal]
    return Write(journal, mark, mark)


def following(
    replica: Replica,
    journal: Journal,
    header: list[Entry],
    told: list[Entry],
    listed: Listing | None = None,
    change: HeadChange | None = None,
) -> Write:
    """Return a write of what comes next in a journal."""
    mark = replica.marks[journal]
    batch, crc = lines.encode([*header, *told], mark.crc)
    incarnation = read_header(header[0]).incarnation if header else mark.incarnation
    return Write(journal, mark, Mark(incarnation, mark.length + 1, crc), batch[:-1], listed, head=change)


def listing(info: SessionInfo) -> Listing:
    """Return what the list of sessions keeps of one."""
    return Listing(to_micros(info.updated_at), info.id, encode(info))
