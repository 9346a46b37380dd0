"""The bytes of a list of states: a line for each item, and a mark beside them, which says what may be relied on.

Java keeps a hash in place of the mark. Ours is not such a hash, so Java writes the whole list again. Our mark has the
length and the checksum of the lines, so that a list which Java is writing is recognised. While lines are appended, the
mark has the place where they begin and their checksums: if not all of them are there, none counts.

The mark after a change is not flushed. So after a power cut an earlier one may stand beside the lines, from the last
that was flushed on: that of an append of several lines, which could hide what was saved since. As long as this is
possible the mark says so, and one is flushed before the list is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from leafward.core.json import decode_leniently
from leafward.stores.states.table import EMPTY, FILLED

_CONTENT = re.compile(r"py:content ([0-9]{1,18}) ([0-9a-f]{8})(?: after append)?")
_SETTLED = re.compile(r"py:content [0-9]{1,18} [0-9a-f]{8}")
_APPENDING = re.compile(r"py:append ([0-9]{1,18}) ([0-9a-f]{8}(?:,[0-9a-f]{8})*)")
ANOTHERS = f"{FILLED} 0 ffffffff after append"
"""The mark of lines that another program has begun to write since we changed the mark: it fits none."""


class Lines(NamedTuple):
    """What a file of lines holds."""

    items: list[bytes]
    whole: bool
    """Whether lines can be added behind the last byte."""


def to_lines(texts: Iterable[str]) -> bytes:
    return "".join([f"{text}\n" for text in texts]).encode()


def mark_of(data: bytes, more: bytes = b"", *, settled: bool = True) -> str:
    """Return the mark of a list whose lines are these bytes, and those that follow them.

    Unless it is `settled`, the disk may still have the mark of an append.
    """
    size = len(data) + len(more)
    if not size:
        return EMPTY
    mark = f"{FILLED} {size} {crc32(more, crc32(data)):08x}"
    return mark if settled else f"{mark} after append"


def is_settled(mark: str) -> bool:
    """Tell whether the disk can have neither the mark of an append nor a hash of Java's where this mark is read."""
    return _SETTLED.fullmatch(mark) is not None


def mark_before(texts: Sequence[str]) -> str:
    """Return the mark of a list that is about to be replaced: nothing may be relied on."""
    return FILLED if texts else EMPTY


def appending(start: int, texts: Sequence[str]) -> str:
    """Return the mark of a list while lines are written from a place on."""
    return f"py:append {start} {','.join(_sum(text.encode()) for text in texts)}"


def is_ours(mark: bytes) -> bool:
    """Tell whether we wrote what stands beside a list; where the list is empty, nothing tells."""
    return mark.startswith(b"py:")


def has_lines(mark: str) -> bool:
    """Tell whether there are lines beside a mark of ours, unless another program removed them."""
    return _CONTENT.fullmatch(mark) is not None


def has_length(data: bytes, mark: str) -> bool:
    """Tell whether lines are as long as a mark of ours says; one that does not say it fits any."""
    content, planned = _CONTENT.fullmatch(mark), _APPENDING.fullmatch(mark)
    if content is not None:
        return len(data) == int(content[1])
    return planned is None or len(data) >= int(planned[1])


def is_as_marked(data: bytes, mark: str) -> bool:
    """Tell whether lines are those that we wrote with a mark; one that says nothing about them fits any."""
    content, planned = _CONTENT.fullmatch(mark), _APPENDING.fullmatch(mark)
    if content is not None:
        return len(data) == int(content[1]) and _sum(data) == content[2]
    if planned is None:
        return True
    start, sums = int(planned[1]), planned[2].split(",")
    if start > len(data):
        return False
    return _is_torn(data, start, sums) or [_sum(line) for line in data[start:].removesuffix(b"\n").split(b"\n")] == sums


def begins_as_marked(data: bytes, mark: str) -> bool:
    """Tell whether lines begin with all those that we wrote with a mark."""
    content = _CONTENT.fullmatch(mark)
    return content is None or is_as_marked(data[: int(content[1])], mark)


def is_appending(mark: str) -> bool:
    return _APPENDING.fullmatch(mark) is not None


def read_lines(data: bytes, mark: str) -> Lines:
    """Return the items in a file of lines, without what a killed writer left of its last ones."""
    end = _end(data, mark)
    found = [line.strip() for line in data[:end].split(b"\n")]
    return Lines([line for line in found if line], end == len(data) and data[-1:] in (b"", b"\n"))


def _end(data: bytes, mark: str) -> int:
    """Return the place behind the last line that counts."""
    planned = _APPENDING.fullmatch(mark)
    if planned is not None:
        start = int(planned[1])
        if _is_torn(data, start, planned[2].split(",")):
            return start
    *lines, rest = data.split(b"\n")
    if rest.strip() and not _is_json(rest):
        return len(data) - len(rest)
    if not rest and lines and b"\0" in lines[-1]:
        # The system made room for a line and lost power before it was written.
        return len(data) - len(lines[-1]) - 1
    return len(data)


def _is_torn(data: bytes, start: int, sums: list[str]) -> bool:
    """Tell whether what follows a place is some, but not all, of the lines that were to be written there."""
    if start > len(data) or (start and data[start - 1 : start] != b"\n"):
        return False
    *lines, rest = data[start:].split(b"\n")
    if len(lines) < len(sums) and _sum(rest) == sums[len(lines)]:
        # Nothing but the end of its line is missing.
        lines, rest = [*lines, rest], b""
    if [_sum(line) for line in lines[: len(sums)]] == sums or len(lines) > len(sums):
        return False
    # Where the system lost power it may have made room for bytes that it did not write, ends of lines among them.
    whole = [_sum(line) for line in lines if b"\0" not in line]
    expected = iter(sums)
    ours = all(one in expected for one in whole) if len(whole) < len(lines) else whole == sums[: len(whole)]
    return ours and (not rest or not _is_json(rest))


def _sum(line: bytes) -> str:
    return f"{crc32(line):08x}"


def _is_json(line: bytes) -> bool:
    try:
        decode_leniently(line)
    except ValueError:
        return False
    return True
