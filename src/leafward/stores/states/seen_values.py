"""Versions of values that other programs replace too, also without counting.

AgentScope for Java up to 2.0.2 replaces a value and leaves its version unchanged. Later versions of it add one to the
version. None of them changes our note: the version that we saved, and the checksum of its text.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import NamedTuple, Self

from leafward.stores.leases import Slot
from leafward.stores.states.table import LONG

MOST = 10_000
"""How many values are remembered."""

Name = tuple[Slot, str]


class Row(NamedTuple):
    """A value as it is stored."""

    text: str | bytes
    version: int
    """The version beside it, which other programs may have left unchanged."""
    note: str | None
    """What we noted at our last save; `None` where we never saved the value, or could not note it."""


class Seen(NamedTuple):
    """What a value was when this process last met it."""

    stored: int
    """The version beside it."""
    checksum: str
    version: int
    """The version that this process gave it."""


def checksum_of(text: str | bytes) -> str:
    return sha256(text.encode() if isinstance(text, str) else text).hexdigest()


class Summed:
    """A text with its checksum, which is computed once."""

    __slots__ = ("_checksum", "text")

    def __init__(self, text: str | bytes) -> None:
        self.text = text
        self._checksum: str | None = None

    @property
    def checksum(self) -> str:
        if self._checksum is None:
            self._checksum = checksum_of(self.text)
        return self._checksum

    async def summed(self) -> Self:
        """Return it with its checksum; of a long text, it is computed where no one waits for it."""
        if self._checksum is None:
            is_long = len(self.text) > LONG
            self._checksum = await asyncio.to_thread(checksum_of, self.text) if is_long else checksum_of(self.text)
        return self


def stored_version(row: Row) -> int:
    """Return the version beside a value: at least 1, because 0 means that there is no value.

    A 0 is beside a value that only Java up to 2.0.2 has saved.
    """
    return max(row.version, 1)


def note_of(version: int, value: Summed | str) -> str:
    """Return what is noted beside a value when it is saved."""
    return f"{version} {checksum_of(value) if isinstance(value, str) else value.checksum}"


class SeenValues:
    """Gives each value a version that no other text of the same name has had in this process.

    A text that differs from the one noted for its version is one version further. This finds one save that was not
    counted, but not the next one, nor a value that was deleted and saved again, whose note is gone. So the process also
    remembers the values that it read or saved: any other text in place of one is at least one version further.
    """

    def __init__(self) -> None:
        self._seen: dict[Name, Seen] = {}

    def get(self, name: Name) -> Seen | None:
        """Return what is remembered of a value."""
        return self._seen.get(name)

    def version(self, name: Name, row: Row, checksum: str | None = None) -> int:
        """Return the version of a value that was read, and remember it; its checksum may be known already."""
        checksum = checksum or checksum_of(row.text)
        noted_version, _, noted_checksum = (row.note or "").partition(" ")
        is_noted = noted_version == str(row.version)
        is_ours = is_noted and noted_checksum == checksum
        version = stored_version(row) + (is_noted and not is_ours)
        last = self._seen.pop(name, None)
        if last is not None:
            is_same = (last.stored, last.checksum) == (row.version, checksum)
            version = last.version if is_same else max(version, last.version + 1)
        self._remember(name, Seen(row.version, checksum, version))
        return version

    def saved(self, name: Name, seen: Seen | None) -> None:
        """Remember a value that this process saved; `None` if it may be read back as another text."""
        self._seen.pop(name, None)
        if seen is not None:
            self._remember(name, seen)

    def _remember(self, name: Name, seen: Seen) -> None:
        self._seen[name] = seen
        if len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]
