"""What the model of a session was shown of its blocks, so that it overwrites nothing that it has not seen.

Only digests are kept: of a plain block that of the last text, of keyed entries those of the last `MOST`. They are one
entry of the session's own, or are kept in the handle where there is no store. When one is missing, a model is shown the
text again before it may overwrite it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import DecodeError
from msgspec.json import Decoder

from leafward.core.errors import LeaseLost, StoreError
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.stores.entries import BLOCK, NAMES, SHOWN, EntryIndex, Shelf

MOST = 50
"""How many entries of a block count as shown; of more, the ones shown first no longer do."""


class Sighting(NamedTuple):
    """A text that was shown: its digest, and the reply whose call was answered with it.

    A model has seen an answer when it replies the next time; a text in its prompt has no such reply.
    """

    digest: str
    reply_id: str | None = None


class _News(NamedTuple):
    """Sightings to be added to those of a block, and how many of them are kept."""

    sightings: list[Sighting]
    most: int


_decode = Decoder(dict[str, list[Sighting]]).decode


class Shown:
    """Remembers which texts the model of one session was shown."""

    def __init__(self, scope: Scope, entries: EntryIndex | None) -> None:
        self._session_id = scope.session_id
        self._shelf = Shelf(scope, NAMES)
        self._entries = entries
        self._in_handle: str | None = None

    async def sightings(self, label: str) -> list[Sighting]:
        """Return what was shown of a block."""
        return _read(await self._get()).get(label, [])

    def digest(self, text: str, key: str = BLOCK) -> str:
        """Return the digest of a text in this session: a fork copies digests, and was shown nothing yet."""
        # Providers of skills do not keep the blank lines around a text.
        salted = f"{self._session_id}\0{key}\0{text.strip()}"
        return hashlib.sha256(salted.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def add(self, texts: Mapping[str, Mapping[str, str]], reply_id: str | None = None) -> None:
        """Count texts, given by label and key, as shown; writes nothing when they count already.

        With `reply_id` they are answers to that reply of the model.

        What cannot be stored does not count: the read or write that this follows did not fail, and the next
        refusal shows the text again.
        """
        news = {
            label: _News(
                [Sighting(self.digest(text, key), reply_id) for key, text in shown.items()],
                1 if BLOCK in shown else MOST,
            )
            for label, shown in texts.items()
            if shown
        }
        if not news:
            return
        if self._entries is None:
            self._in_handle = _with(self._in_handle, news)
            return
        with suppress(StoreError, LeaseLost):
            known = _read(await self._get())
            if any(not set(one.sightings) <= set(known.get(label, ())) for label, one in news.items()):
                await self._entries.edit(self._shelf, SHOWN, lambda old: _with(old, news))

    async def clear(self) -> None:
        """Count nothing as shown any more."""
        self._in_handle = None
        if self._entries is not None and await self._get() is not None:
            await self._entries.edit(self._shelf, SHOWN, lambda _: None)

    async def _get(self) -> str | None:
        if self._entries is None:
            return self._in_handle
        entry = await self._entries.get(self._shelf, SHOWN)
        return None if entry is None else entry.content


def _with(old: str | None, news: Mapping[str, _News]) -> str:
    kept = _read(old)
    for label, (sightings, most) in news.items():
        digests = {one.digest for one in sightings}
        former = [one for one in kept.get(label, ()) if one.digest not in digests]
        kept[label] = [*former, *sightings][-most:]
    return encode_text({label: [list(filter(None, one)) for one in sightings] for label, sightings in kept.items()})


def _read(text: str | None) -> dict[str, list[Sighting]]:
    try:
        return {} if text is None else _decode(text)
    except DecodeError:
        # An import may bring anything under this key; what cannot be read tells of nothing that was shown.
        return {}
