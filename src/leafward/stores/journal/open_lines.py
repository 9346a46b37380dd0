"""Lines that are written before it is known what they follow: a server that knows it closes them.

The end of such a line, its parent and its checksum are added by the one who appends it. The checksum of a long text
is not computed there: of each part of a line the checksum by itself is given, and a factor that puts it behind others.
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import NamedTuple

from msgspec import Raw, json

from leafward.core.json import encode
from leafward.stores.journal.entry import NOTHING
from leafward.stores.journal.telling import Line

_ONE = 1 << 31
"""The polynomial 1, as CRC-32 writes it: the highest bit first."""
_TIMESTAMP = b',"timestamp":'
_MESSAGE = b'"leafward":{"message":'
_encode = json.Encoder().encode


class Gap(Enum):
    """What has to be put between the two parts of a line."""

    NOTHING = 0
    PARENT = 1
    """`,"parentId":` and the id of the line it goes below, as JSON; nothing when there is none."""
    MESSAGE = 2
    """The id of the message that the leaf is at, as JSON."""


class Part(NamedTuple):
    """Some bytes of a line, and how a running checksum goes on over them: `crc * factor + own`, as polynomials."""

    text: bytes
    own: int
    factor: int

    @classmethod
    def of(cls, text: bytes) -> Part:
        zeros = bytes(len(text))
        return cls(text, zlib.crc32(text), zlib.crc32(zeros, _ONE) ^ zlib.crc32(zeros))


class OpenLine(NamedTuple):
    """A line up to where it says when its batch happened and how many lines follow."""

    first: Part
    gap: Gap
    last: Part
    has_payload: bool
    """Whether it ends within the object under `leafward`; else that key has yet to be begun."""


def open_line(line: Line, gap: Gap = Gap.NOTHING) -> OpenLine:
    """Return a line without its end, and without what belongs into the gap."""
    entry, payload = line
    payload.at, payload.more = None, 0
    told = encode(payload)
    has_payload = told != b"{}"
    entry.leafward = Raw(told) if has_payload else NOTHING
    text = _encode(entry)
    text = text[:-2] if has_payload else text[:-1]
    if gap is Gap.PARENT:
        # A quote within an id is escaped, so this is the key.
        cut = rest = text.index(_TIMESTAMP)
    elif gap is Gap.MESSAGE:
        cut = text.index(_MESSAGE) + len(_MESSAGE)
        rest = cut + len(b"null")
    else:
        cut = rest = 0
    return OpenLine(Part.of(text[:cut]), gap, Part.of(text[rest:]), has_payload)
