"""What a page of a SQLite file holds without having any use for it.

SQLite overwrites a row that is deleted, when asked to (`secure_delete`). But when it moves rows from a full page to
another, the bytes stay behind in the part of the page that is free from then on, until that part is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""How long the header is on each kind of page that tables and indexes are made of."""


class MalformedPage(Exception):
    """The page contradicts itself."""


def wiped(page: bytes) -> bytes | None:
    """Return the page with zeros wherever nothing is stored; `None` when it is so already, or no page of a table.

    A page that a table's or an index's large value continues on begins with a page number, so its first byte is that of
    no table as long as the file has less than 2**25 pages.

    Raises:
        MalformedPage: the page contradicts itself.
    """
    if page[0] not in _HEADERS:
        return None
    dirty = [(low, high) for low, high in _unused(page) if page[low:high].strip(b"\0")]
    if not dirty:
        return None
    clean = bytearray(page)
    for low, high in dirty:
        clean[low:high] = bytes(high - low)
    return bytes(clean)


def _unused(page: bytes) -> Iterator[tuple[int, int]]:
    kind, block, cells, content = unpack_from(">BHHH", page)
    array_end = _HEADERS[kind] + 2 * cells
    content = content or 65536
    if not array_end <= content <= len(page):
        raise MalformedPage
    yield array_end, content
    least = content
    while block:
        if not least <= block <= len(page) - 4:
            raise MalformedPage
        following, size = unpack_from(">HH", page, block)
        least = block + size
        if size < 4 or least > len(page):
            raise MalformedPage
        # Its first four bytes say where the next one is, and how long this one.
        yield block + 4, least
        block = following
