"""Lines as bytes, with a running checksum that tells lost, doubled, swapped and changed ones.

The last key of a line, `crc`, is the CRC-32 of the journal up to here: of this line without that key, begun with the
number that the line before states.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import DecodeError, json

from leafward.stores.journal.entry import Entry, Mark, newer

_encode = json.Encoder().encode
_decode = json.Decoder(Entry).decode
_decode_mark = json.Decoder(Mark).decode
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')
_CRC_LENGTH = len(',"crc":"00000000"}')


def encode(entries: Iterable[Entry], crc: int) -> tuple[bytes, int]:
    """Return entries as lines, and the running checksum after them; `crc` is the one before, 0 in a new journal."""
    found: list[bytes] = []
    for entry in entries:
        line = _encode(entry)
        crc = zlib.crc32(line, crc)
        found.append(b'%s,"crc":"%08x"}\n' % (line[:-1], crc))
    return b"".join(found), crc


class Batch(NamedTuple):
    """Lines that count together: what they tell, where they begin and end, and the checksum after them."""

    entries: list[Entry]
    line: int
    start: int
    end: int
    crc: int


class Damage(NamedTuple):
    """A line that cannot be relied on."""

    line: int
    offset: int
    reason: str


@dataclass(slots=True)
class Reading:
    """What some bytes of a journal hold."""

    batches: list[Batch] = field(default_factory=list[Batch])
    damage: list[Damage] = field(default_factory=list[Damage])
    torn: int | None = None
    """Where the last batch that is not whole begins; all before it is told above."""
    line: int = 1
    """The number of the line after the last whole batch."""
    end: int = 0
    """Where the last whole batch, or the damage after it, ends."""
    crc: int = 0
    """The checksum there."""

    @property
    def entries(self) -> list[Entry]:
        return [entry for batch in self.batches for entry in batch.entries]


def read(data: bytes, crc: int = 0, *, offset: int = 0, line: int = 1) -> Reading:
    """Read a journal's bytes from `offset` on, where the running checksum is `crc` and the lines count from `line`.

    Offsets are those in the journal. Damage that whole batches follow is told, and reading goes on after it; at the end
    it is a torn tail, as are lines whose batch is not whole.

    Raises:
        StoreError: a newer leafward wrote it.
    """
    return _Reader(data, crc, offset, line).read()


class _Bad(NamedTuple):
    """A line that is not sound: why, and whether it begins a batch."""

    reason: str
    begins: bool


class _Reader:
    def __init__(self, data: bytes, crc: int, offset: int, line: int) -> None:
        self._data = data
        self._offset = offset
        self._line = line
        self._found = Reading(line=line, end=offset, crc=crc)
        self._sound = self._stated = crc
        """What the last sound line states, and what the last one with a checksum does."""
        self._seeds = {crc}
        """The checksums that the next line may go on from; few, however many lines before it are bad."""
        self._open: list[Entry] = []
        self._opened = (line, offset)
        self._pending: list[Damage] = []
        """Damage since the last whole batch; it is a torn tail if no other batch follows."""
        self._followed = False

    def read(self) -> Reading:
        start = 0
        while start < len(self._data):
            cut = self._data.find(b"\n", start)
            end = len(self._data) if cut < 0 else cut + 1
            self._take(self._data[start:end], self._offset + start)
            start = end
            self._line += 1
        return self._finish()

    def _take(self, line: bytes, offset: int) -> None:
        sound = self._check(line)
        if isinstance(sound, _Bad):
            self._followed = self._followed or (bool(self._pending) and sound.begins)
            self._drop(offset, sound.reason)
            return
        entry, crc = sound
        self._sound = self._stated = crc
        self._seeds = {crc}
        mark = _mark(entry)
        if mark.at is not None:
            self._followed = self._followed or bool(self._pending)
            if self._open:
                self._drop(offset, "begins a batch before the one above it is whole")
                self._followed = True
            self._opened = (self._line, offset)
        elif not self._open:
            if not self._pending:
                self._drop(offset, "belongs to a batch that does not begin")
            return
        self._open.append(entry)
        if not mark.more:
            self._close(offset + len(line), crc)

    def _check(self, line: bytes) -> tuple[Entry, int] | _Bad:
        """Return a sound line and the checksum after it, or what is wrong with it."""
        text = line.removesuffix(b"\n")
        stated = _CRC.search(text[-_CRC_LENGTH:])
        if stated is None or text == line:
            return _Bad("is cut off or has no checksum", False)
        crc = int(stated[1], 16)
        told = text[:-_CRC_LENGTH] + b"}"
        fits = any(zlib.crc32(told, seed) == crc for seed in self._seeds)
        if not fits:
            self._go_on_from(told, crc)
        try:
            entry = _decode(told)
            begins = _mark(entry).at is not None
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            if fits:
                raise newer(f"line {self._line} is not one of this format: {error}") from error
            return _Bad(f"is not a line of a journal ({error})", False)
        if not fits:
            return _Bad("does not fit its checksum, or a line before it is missing", begins)
        return entry, crc

    def _go_on_from(self, told: bytes, crc: int) -> None:
        """Let the next line go on as if this one were not there, or either its text or its checksum were right."""
        computed = {zlib.crc32(told, seed) for seed in (self._sound, self._stated)}
        self._seeds = {self._sound, crc, *computed}
        self._stated = crc

    def _drop(self, offset: int, reason: str) -> None:
        if self._open:
            self._pending.append(Damage(*self._opened, f"begins a batch that is not whole: line {self._line} {reason}"))
            self._open = []
        else:
            self._pending.append(Damage(self._line, offset, reason))

    def _close(self, end: int, crc: int) -> None:
        self._found.damage += self._pending
        self._found.batches.append(Batch(self._open, *self._opened, end, crc))
        self._found.end, self._found.crc, self._found.line = end, crc, self._line + 1
        self._open, self._pending, self._followed = [], [], False

    def _finish(self) -> Reading:
        found = self._found
        if self._pending and self._followed:
            found.damage += self._pending
            if self._open:
                found.torn = self._opened[1]
        elif self._pending or self._open:
            found.torn = found.end
        return found


def _mark(entry: Entry) -> Mark:
    return _decode_mark(bytes(entry.leafward) or b"{}")
