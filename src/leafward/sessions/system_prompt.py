"""The frozen system prompt: rendered once, then the same to the byte until a new one is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.prompt import ContextBlock, render_prompt
from leafward.core.tokens import estimate_tokens
from leafward.sessions.context import Blocks
from leafward.sessions.providers import Place, Source, is_kept_in
from leafward.sessions.setup import Setup
from leafward.sessions.shown import Shown
from leafward.sessions.user_functions import TIMEOUT_S
from leafward.sessions.waiting_reply import find_waiting_reply
from leafward.stores.contracts import MessageStore, Store
from leafward.stores.entries import NAMES, EntryIndex, Prompt, Shelf

_FINGERPRINT = "fingerprint"
"""Where a session remembers what a prompt at a user's provider was rendered from."""
_GUESSES = 16
"""How often an unfrozen prompt is weighed without being rendered."""


class _TokenEstimate(NamedTuple):
    """What an unfrozen prompt costs, after how many changes of the blocks, and how often that was asked."""

    tokens: int
    writes: int
    asked: int


class FrozenPrompt:
    """Renders the blocks of a session and keeps the result: in the handle, in the store, or at a user's provider."""

    def __init__(
        self, setup: Setup, blocks: Blocks, shown: Shown, scope: Scope, store: Store | None, messages: MessageStore
    ) -> None:
        self._scope = scope
        self._messages = messages
        self._blocks = blocks
        self._shown = shown
        self._keeper = _keeper(setup, scope, store)
        self._estimate: _TokenEstimate | None = None

    async def freeze(self) -> str:
        """Return the frozen prompt; render it first if there is none."""
        found = await self._keeper.get()
        return (found or await self._render_and_keep(replace=False)).text

    async def refresh(self) -> str:
        """Render the blocks as they are now and freeze that."""
        return (await self._render_and_keep(replace=True)).text

    async def is_stale(self, *, content: bool) -> bool:
        """Tell whether the blocks are configured differently from when the prompt was frozen, or hold other text."""
        found = await self._keeper.get()
        if found is None:
            return False
        # A prompt that a user's provider had from elsewhere has no fingerprint, and any configuration fits it.
        if found.fingerprint not in ("", self._fingerprint()):
            return True
        return content and (await self._render()).text != found.text

    async def renew(self) -> None:
        """Have the prompt rendered again after a compaction or a clear, which took the stored one away already."""
        self._estimate = None
        if await self._keeper.drop():
            await self.refresh()

    async def tokens(self, stored: int | None, *, exact: bool = False) -> int:
        """Return what the prompt costs; `stored` is what the stored one does.

        As long as nothing is frozen that is what freezing would give, rendered now and then: after each change
        through this handle and, because other processes write too, every so many times it is asked.
        """
        known = self._keeper.tokens(stored)
        if known is not None:
            return known
        estimate = self._estimate
        if exact or estimate is None or estimate.writes != self._blocks.writes or estimate.asked >= _GUESSES:
            writes = self._blocks.writes
            estimate = _TokenEstimate((await self._keeper.get() or await self._render()).tokens, writes, 0)
        self._estimate = estimate._replace(asked=estimate.asked + 1)
        return estimate.tokens

    async def _render(self) -> Prompt:
        return self._prompt_of(await self._blocks.read_all())

    def _prompt_of(self, blocks: Sequence[ContextBlock]) -> Prompt:
        text = render_prompt(blocks)
        return Prompt(text, estimate_tokens(text), self._fingerprint())

    async def _render_and_keep(self, *, replace: bool) -> Prompt:
        self._estimate = None
        blocks = await self._blocks.read_all()
        prompt = self._prompt_of(blocks)
        kept = await self._keeper.put(prompt, replace=replace)
        # Of two processes that freeze at once, both show what the first one rendered.
        if kept.text == prompt.text:
            texts = {block.label: block.content for block in blocks if _can_be_lost(block)}
            await self._shown.add_prompt(texts, partial(find_waiting_reply, self._read_newest))
        return kept

    async def _read_newest(self, limit: int) -> list[Message]:
        return await self._messages.raw_page(self._scope, None, before=None, limit=limit)

    def _fingerprint(self) -> str:
        """Return a digest of how the blocks are set up, with fixed texts, without what providers hold."""
        settings = [
            [
                block.config.label,
                block.config.description,
                block.config.max_tokens,
                block.config.shared,
                block.source.writable,
                block.source.is_skill,
                block.source.is_searchable,
                block.config.static_text,
            ]
            for block in self._blocks.all()
        ]
        return hashlib.sha256(encode_text(settings).encode()).hexdigest()


def _can_be_lost(block: ContextBlock) -> bool:
    """Tell whether there is text that a model could replace; of keyed blocks a prompt shows no entries."""
    return block.writable and not block.is_skill and not block.is_searchable and block.content != ""


class _Keeper(Protocol):
    """Where a frozen prompt is kept."""

    async def get(self) -> Prompt | None: ...

    async def put(self, prompt: Prompt, *, replace: bool) -> Prompt:
        """Keep a prompt, perhaps not in place of one that is kept; return what is kept now."""
        ...

    async def drop(self) -> bool:
        """Keep the prompt no longer; True when it has to be replaced instead."""
        ...

    def tokens(self, stored: int | None) -> int | None:
        """Return the tokens of the kept prompt, if they are known without asking for it."""
        ...


class _InHandle:
    def __init__(self) -> None:
        self._prompt: Prompt | None = None

    async def get(self) -> Prompt | None:
        return self._prompt

    async def put(self, prompt: Prompt, *, replace: bool) -> Prompt:
        if replace or self._prompt is None:
            self._prompt = prompt
        return self._prompt

    async def drop(self) -> bool:
        self._prompt = None
        return False

    def tokens(self, stored: int | None) -> int | None:
        return None if self._prompt is None else self._prompt.tokens


class _InStore:
    """In the session's store, which drops it with a compaction or a clear."""

    def __init__(self, entries: EntryIndex, scope: Scope) -> None:
        self._entries = entries
        self._scope = scope

    async def get(self) -> Prompt | None:
        return await self._entries.prompt(self._scope)

    async def put(self, prompt: Prompt, *, replace: bool) -> Prompt:
        return await self._entries.keep_prompt(self._scope, prompt, replace=replace)

    async def drop(self) -> bool:
        return False

    def tokens(self, stored: int | None) -> int | None:
        return stored


class _AtProvider:
    """At a user's provider; the store, if there is one, has the fingerprint."""

    def __init__(self, source: Source, entries: EntryIndex | None, scope: Scope) -> None:
        self._source = source
        self._entries = entries
        self._shelf = Shelf(scope, NAMES)

    async def get(self) -> Prompt | None:
        text = await self._source.get_or_none()
        if text is None:
            return None
        entry = None if self._entries is None else await self._entries.get(self._shelf, _FINGERPRINT)
        return Prompt(text, estimate_tokens(text), "" if entry is None else entry.content)

    async def put(self, prompt: Prompt, *, replace: bool) -> Prompt:
        async with self._source.changing():
            # A provider has only `get` and `set`: what another process sets between them is overwritten.
            kept = None if replace else await self.get()
            return kept or await self._set(prompt)

    async def _set(self, prompt: Prompt) -> Prompt:
        await self._source.set(prompt.text)
        if self._entries is not None:
            await self._entries.edit(self._shelf, _FINGERPRINT, lambda _: prompt.fingerprint)
        return prompt

    async def drop(self) -> bool:
        return await self._source.get_or_none() is not None

    def tokens(self, stored: int | None) -> int | None:
        return None


def _keeper(setup: Setup, scope: Scope, store: Store | None) -> _Keeper:
    provider, entries = setup.prompt_provider, None if store is None else store.entries
    # The store has a place for prompts; in that of a block one could overwrite a block, and a fork would copy it.
    if provider is not None and not is_kept_in(store, provider):
        place = Place(scope, store, NAMES, shared=False)
        return _AtProvider(Source("the cached prompt", provider, TIMEOUT_S).bind(place), entries, scope)
    if not setup.cached_prompt:
        return _InHandle()
    if entries is None:
        raise ConfigurationError(
            "a custom storage keeps no prompt: give with_cached_prompt() a provider with get() and set(text)"
        )
    return _InStore(entries, scope)
