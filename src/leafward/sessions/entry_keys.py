"""Keys for entries a model names by a title: readable, and never the same for two titles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable

from leafward.stores.entries import NAMES, EntryIndex, Shelf

LONGEST = 60
Read = Callable[[str], Awaitable[str | None]]
_NOBODY = "nobody"
"""Has a key under which something was put by hand, or through another user's session."""
_HASHED = 10_000
"""Characters of a text that are hashed one by one, which takes a while for each."""
_RUNS = re.compile("[^a-z0-9]+")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def slug(text: str) -> str:
    """Return the start of a text in small letters, digits and single dashes; nothing when it has none."""
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * LONGEST]
    start = units.decode("utf-16-le", "replace").lower()
    return _RUNS.sub("-", start).strip("-")


def fnv(text: str) -> str:
    """Return the 32-bit FNV-1a hash of a text's UTF-16 units, in base 36; of a long text, that of its digest."""
    if len(text) > _HASHED:
        text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    number = 0x811C9DC5
    units = text.encode("utf-16-le", "surrogatepass")
    for index in range(0, len(units), 2):
        number = ((number ^ int.from_bytes(units[index : index + 2], "little")) * 0x01000193) & 0xFFFFFFFF
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def wanted_key(title: str | None, content: str) -> str:
    """Return the key an entry gets if no other title has it."""
    if title:
        return slug(title) or f"entry-{fnv(title)}"
    return f"{slug(content) or 'entry'}-{fnv(content)}"


class EntryKeys:
    """Remembers which title has which key, in the store of a session or, without one, in the handle."""

    def __init__(self, entries: EntryIndex | None, shelf: Shelf) -> None:
        self._entries = entries
        self._shelf = Shelf(shelf.scope, NAMES, shelf.shared)
        self._label = shelf.label
        self._known: dict[str, str] = {}

    async def key_for(self, title: str | None, content: str, read: Read | None = None) -> str:
        """Return the key of a title: always the same one, and no other title's.

        With `read`, a key under which there is something that no title claimed is no title's to take.
        """
        wanted = wanted_key(title, content)
        named = f"title {title}" if title else f"text {content}"
        digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
        # A title may be made to look like another's second choice, so that one is claimed too.
        choices = wanted, f"{wanted}-{digest[:16]}", f"{wanted}-{digest}"
        for key in choices:
            # The one it has, also when a better one is free again, because another title's entry was deleted.
            if await self._owner_of(key) == digest:
                return key
        if read is not None and await read(wanted) is not None:
            await self._claim(wanted, _NOBODY)
        for key in choices[:-1]:
            if await self._claim(key, digest) == digest:
                return key
        await self._claim(choices[-1], digest)
        return choices[-1]

    async def is_claimed(self, key: str) -> bool:
        """Tell whether a title has this key."""
        return await self._owner_of(key) not in (None, _NOBODY)

    async def release(self, key: str) -> None:
        """Let any title have a key whose entry is gone."""
        self._known.pop(key, None)
        if self._entries is not None:
            await self._entries.edit(self._shelf, self._name_of(key), lambda _: None)

    async def _owner_of(self, key: str) -> str | None:
        if self._entries is None:
            return self._known.get(key)
        entry = await self._entries.get(self._shelf, self._name_of(key))
        return None if entry is None else entry.content

    async def _claim(self, key: str, digest: str) -> str | None:
        """Let the first title have a key; return whose it is."""
        if self._entries is None:
            return self._known.setdefault(key, digest)
        return await self._entries.edit(self._shelf, self._name_of(key), lambda old: old or digest)

    def _name_of(self, key: str) -> str:
        # Only a digest: this outlives the session where the block does, and no word of it may.
        return hashlib.sha256(f"{self._label}/{key}".encode("utf-8", "surrogatepass")).hexdigest()
