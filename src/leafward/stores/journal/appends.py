"""A journal read for the rows it amounts to.

Most batches only append below the leaf. Those are read as the columns of their messages, each line decoded once; all
others as entries, whose commands `replaying` knows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, json

from leafward.stores.journal.entry import NOTHING, Entry, Mark, newer, read_timestamp


class Row(NamedTuple):
    """What a table keeps of a message."""

    id: str
    role: str
    tokens: int
    at: int
    body: str


class Appended(NamedTuple):
    """Messages that were appended together below the leaf, and when."""

    at: int
    rows: list[Row]


Told = Appended | list[Entry]
"""One batch."""


class Unsound(Exception):
    """Bytes that are no whole batches of a journal, or do not follow what was read before."""


class _Message(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a line of a message says: a first one as `Told`, a further one nothing but where it stands in its batch."""

    at: int | None = None
    more: int = 0
    tokens: int | None = None
    message: str | None = None
    role: str | None = None
    parent: str | UnsetType | None = UNSET
    below: str | None = None
    body: Raw = NOTHING


_NO_TEXT = Raw(b'""')


class _Line(Struct, gc=False):
    type: str
    timestamp: Raw
    id: str = ""
    role: str | None = None
    content: Raw = _NO_TEXT
    leafward: _Message = _Message()


_MESSAGES = frozenset({"message", "tool_use", "tool_result"})
_CRC_LENGTH = len(',"crc":"00000000"}')
_decode_line = json.Decoder(_Line).decode
_decode_entry = json.Decoder(Entry).decode
_decode_mark = json.Decoder(Mark).decode


def read_batches(data: Iterable[bytes], crc: int) -> tuple[list[Told], int]:
    """Return what whole batches tell, and the running checksum after them; `crc` is the one before.

    Raises:
        Unsound: they are not whole, or not what was written.
        StoreError: a newer leafward wrote them.
    """
    found: list[Told] = []
    batch: list[bytes] = []
    rows: list[Row] | None = []
    at = 0
    for line in (line for some in data for line in some.split(b"\n")):
        # As if the key were not there.
        crc = zlib.crc32(b"}", zlib.crc32(memoryview(line)[:-_CRC_LENGTH], crc))
        if line[-_CRC_LENGTH:] != b',"crc":"%08x"}' % crc:
            raise Unsound
        try:
            read = _decode_line(line)
            payload: _Message | Mark = read.leafward
        except (DecodeError, UnicodeDecodeError):
            read, payload = None, _mark(line)
        if (payload.at is None) != bool(batch):
            raise Unsound
        if payload.at is not None:
            at, rows = payload.at, []
        batch.append(line)
        if rows is not None and (read is None or not _take(rows, read)):
            rows = None
        if not payload.more:
            found.append(Appended(at, rows) if rows else [_decode_entry(one) for one in batch])
            batch = []
    if batch:
        raise Unsound
    return found, crc


def _mark(line: bytes) -> Mark:
    try:
        return _decode_mark(bytes(_decode_entry(line).leafward) or b"{}")
    except (DecodeError, UnicodeDecodeError) as error:
        raise newer(f"a line is not one of this format: {error}") from error


def _take(rows: list[Row], line: _Line) -> bool:
    """Add the message that a line begins, if it begins one; False if it tells anything but an append to the leaf."""
    told = line.leafward
    if line.type not in _MESSAGES or told.parent is not UNSET or told.below is not None:
        return False
    if told.tokens is None:
        # A further line of the message before it, which holds all of it.
        return bool(rows) and told == _Message(more=told.more)
    # The text as it is written: it was left out of the body only because it is the same, byte for byte.
    body = str(told.body, "utf-8") or f'{{"parts":[{{"type":"text","text":{str(line.content, "utf-8")}}}]}}'
    role = told.role or (line.role or "").lower()
    rows.append(Row(told.message or line.id, role, told.tokens, read_timestamp(line.timestamp), body))
    return True
