"""What the model of a session was shown of its blocks, so that it overwrites nothing that it has not seen.

Only digests are kept: of a plain block that of the last text, of keyed entries those of the last `MOST`. They are one
entry of the session's own, or are kept in the handle where there is no store. When one is missing, a model is shown the
text again before it may overwrite it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import DecodeError
from msgspec.json import Decoder

from leafward.core.errors import LeaseLost, StoreError
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.parts import parts_of
from leafward.stores.entries import BLOCK, NAMES, SHOWN, EntryIndex, Shelf

_log = logging.getLogger("leafward.sessions")

MOST = 50
"""How many entries of a block count as shown; of more, the ones shown first no longer do."""


WROTE: Final = "wrote"
ANSWERED: Final = "answered"
PROMPTED: Final = "prompted"
Kind = Literal["wrote", "answered", "prompted"]


class Anchor(NamedTuple):
    """Where in the conversation a text was shown; on other branches it was not.

    The model `WROTE` it in a reply. Or a call of its reply was `ANSWERED` with it, which it has seen when it replies
    again and the answer is still in its history. Or it was `PROMPTED` with it while its reply waited for results, which
    it has seen when it replies again.
    """

    kind: Kind
    message_id: str
    """The reply; of one that was not stored yet, the message that was the leaf, or empty before the first message."""
    parts: int | None = None
    """How many parts the reply had; AI SDK goes on in the same message."""
    sibling_id: str | None = None
    """Of a reply that was not stored yet: the newest message that was below the leaf already, or empty.

    The reply will be the next message there.
    """


def at_reply(kind: Kind, reply: Message) -> Anchor:
    """Return the place of a reply as it is now."""
    return Anchor(kind, reply.id, len(parts_of(reply.body)))


class ShownText(NamedTuple):
    """A text that was shown: its digest, and where; without an anchor in the prompt, on all branches."""

    digest: str
    anchor: Anchor | None = None


class _News(NamedTuple):
    """Shown texts to be added to those of a block, and how many of them are kept."""

    texts: list[ShownText]
    most: int


_decode = Decoder(dict[str, list[ShownText]]).decode


class Shown:
    """Remembers which texts the model of one session was shown."""

    def __init__(self, scope: Scope, entries: EntryIndex | None) -> None:
        self._session_id = scope.session_id
        self._shelf = Shelf(scope, NAMES)
        self._entries = entries
        self._in_handle: str | None = None

    async def find(self, label: str, key: str, text: str) -> ShownText | None:
        """Return where a text was shown last; `None` when it was not, or too long ago."""
        return self._find_in(await self._get(), label, text, key)

    def _find_in(self, kept: str | None, label: str, text: str, key: str = BLOCK) -> ShownText | None:
        digest = self._digest(key, text)
        return next((one for one in _read(kept).get(label, ()) if one.digest == digest), None)

    def _digest(self, key: str, text: str) -> str:
        """Return the digest of a text in this session: a fork copies digests, and was shown nothing yet."""
        # Providers of skills do not keep the blank lines around a text.
        salted = f"{self._session_id}\0{key}\0{text.strip()}"
        return hashlib.sha256(salted.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def add_prompt(self, texts: Mapping[str, str], find_reply: Callable[[], Awaitable[Message | None]]) -> None:
        """Count the texts of blocks, given by label, as shown in the prompt; what cannot be stored does not count.

        A reply that waits for results was made before, and was not shown them: only what follows it was.
        """
        news = {label: {BLOCK: text} for label, text in texts.items()}
        try:
            # Most prompts are rendered again and again as they were, and a read is cheaper than an edit.
            old = await self._get()
            if news and _with(old, self._news(news, None)) != old:
                reply = await find_reply()
                if reply is not None:
                    # What was shown before, such as what it wrote itself, stays so. But what one of its calls is being
                    # answered with may be summarised later, and the prompt still shows it.
                    answered = at_reply(ANSWERED, reply)
                    news = {
                        label: new
                        for label, new in news.items()
                        if (found := self._find_in(old, label, new[BLOCK])) is None or found.anchor == answered
                    }
                await self.add(news, None if reply is None else at_reply(PROMPTED, reply))
        except (StoreError, LeaseLost):
            # As in `add`: the next refusal shows the text again, and the store's failure is raised by what needs it.
            return
        except Exception as error:  # noqa: BLE001  (the prompt is rendered and kept; a custom storage may raise anything)
            _log.warning(
                "what the prompt shows of session %r is not recorded as shown", self._session_id, exc_info=error
            )

    async def add(self, texts: Mapping[str, Mapping[str, str]], anchor: Anchor | None) -> bool:
        """Count texts, given by label and key, as shown; False when that could not be stored.

        The read or write that this follows did not fail, so neither does this: the next refusal shows the text again.
        """
        news = self._news(texts, anchor)
        if self._entries is None:
            self._in_handle = _with(self._in_handle, news)
        elif news:
            try:
                await self._entries.edit(self._shelf, SHOWN, lambda old: _with(old, news))
            except (StoreError, LeaseLost):
                return False
        return True

    def _news(self, texts: Mapping[str, Mapping[str, str]], anchor: Anchor | None) -> dict[str, _News]:
        return {
            label: _News(
                [ShownText(self._digest(key, text), anchor) for key, text in shown.items()],
                1 if BLOCK in shown else MOST,
            )
            for label, shown in texts.items()
            if shown
        }

    def clear(self) -> None:
        """Count nothing as shown any more; a store deletes its entry when it clears the messages."""
        self._in_handle = None

    async def _get(self) -> str | None:
        if self._entries is None:
            return self._in_handle
        entry = await self._entries.get(self._shelf, SHOWN)
        return None if entry is None else entry.content


def _with(old: str | None, news: Mapping[str, _News]) -> str:
    kept = _read(old)
    for label, (texts, most) in news.items():
        digests = {one.digest for one in texts}
        former = kept.get(label, [])
        everywhere = {one.digest for one in former if one.anchor is None}
        added = [ShownText(one.digest) if one.digest in everywhere else one for one in texts]
        kept[label] = [*(one for one in former if one.digest not in digests), *added][-most:]
    return encode_text(kept)


def _read(text: str | None) -> dict[str, list[ShownText]]:
    try:
        return {} if text is None else _decode(text)
    except DecodeError:
        # An import may bring anything under this key; what cannot be read counts as nothing shown.
        return {}
