"""The frozen system prompt: rendered once, then the same to the byte until somebody asks for a new one."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.core.prompt import render_prompt
from leafward.core.tokens import estimate_tokens
from leafward.sessions.calling import TIMEOUT_S
from leafward.sessions.context import Blocks
from leafward.sessions.providers import Place, Source, is_kept_in
from leafward.sessions.setup import Setup
from leafward.stores.contracts import Store
from leafward.stores.entries import NAMES, EntryIndex, Prompt, Shelf

_FINGERPRINT = "fingerprint"
"""Where a session remembers what a prompt that somebody else keeps was rendered from."""
_GUESSES = 16
"""How often an unfrozen prompt is weighed without being rendered."""


class _Guess(NamedTuple):
    """What an unfrozen prompt costs, after how many changes of the blocks, and how often that was asked."""

    tokens: int
    writes: int
    asked: int


class FrozenPrompt:
    """Renders the blocks of a session and keeps the result: in the handle, in the store, or with a user's provider."""

    def __init__(self, setup: Setup, blocks: Blocks, scope: Scope, store: Store | None) -> None:
        self._blocks = blocks
        self._scope = scope
        self._entries: EntryIndex | None = None if store is None else store.entries
        self._provider = _bound_provider(setup, scope, store)
        self._stored = setup.cached_prompt and self._provider is None and self._entries is not None
        self._frozen: Prompt | None = None
        self._guess: _Guess | None = None
        if setup.cached_prompt and setup.prompt_provider is None and store is None:
            raise ConfigurationError(
                "a storage of your own keeps no prompt: give with_cached_prompt() a provider with get() and set(text)"
            )

    async def freeze(self) -> str:
        """Return the frozen prompt; render it first if there is none."""
        found = await self._find()
        if found is not None:
            return found.text
        return (await self._keep(await self._render(), replace=False)).text

    async def refresh(self) -> str:
        """Render the blocks as they are now and freeze that."""
        return (await self._keep(await self._render(), replace=True)).text

    async def is_stale(self) -> bool:
        """Tell whether the blocks are configured differently from when the prompt was frozen."""
        found = await self._find()
        return found is not None and found.fingerprint != self._fingerprint()

    async def renew(self) -> None:
        """Have the prompt rendered anew after a compaction or a clear, which took the stored one away already."""
        self._frozen = self._guess = None
        if self._provider is not None and await self._provider.get_or_none() is not None:
            await self.refresh()

    async def tokens(self, stored: int | None, *, exact: bool = False) -> int:
        """Return what the prompt costs; `stored` is what the stored one does.

        As long as nothing is frozen that is what freezing would give, rendered now and then: after each change
        through this handle and, for the sake of others who write, every so many times it is asked.
        """
        if self._frozen is not None:
            return self._frozen.tokens
        if self._stored and stored is not None:
            return stored
        guess = self._guess
        if exact or guess is None or guess.writes != self._blocks.writes or guess.asked >= _GUESSES:
            writes = self._blocks.writes
            guess = _Guess((await self._find() or await self._render()).tokens, writes, 0)
        self._guess = guess._replace(asked=guess.asked + 1)
        return guess.tokens

    async def _find(self) -> Prompt | None:
        if self._stored and self._entries is not None:
            return await self._entries.prompt(self._scope)
        if self._provider is None:
            return self._frozen
        text = await self._provider.get_or_none()
        return None if text is None else Prompt(text, estimate_tokens(text), await self._known_fingerprint())

    async def _render(self) -> Prompt:
        text = render_prompt(await self._blocks.read_all())
        return Prompt(text, estimate_tokens(text), self._fingerprint())

    async def _keep(self, prompt: Prompt, *, replace: bool) -> Prompt:
        self._guess = None
        if self._stored and self._entries is not None:
            # Two processes that freeze at once get the text of the one that was first.
            return await self._entries.keep_prompt(self._scope, prompt, replace=replace)
        if self._provider is not None:
            await self._provider.set(prompt.text)
            await self._remember_fingerprint(prompt.fingerprint)
        else:
            self._frozen = prompt
        return prompt

    async def _known_fingerprint(self) -> str:
        if self._entries is None:
            return self._fingerprint()
        entry = await self._entries.get(Shelf(self._scope, NAMES), _FINGERPRINT)
        return self._fingerprint() if entry is None else entry.content

    async def _remember_fingerprint(self, fingerprint: str) -> None:
        if self._entries is not None:
            await self._entries.edit(Shelf(self._scope, NAMES), _FINGERPRINT, lambda _: fingerprint)

    def _fingerprint(self) -> str:
        """Return a digest of how the blocks are set up, fixed texts included, what providers hold not."""
        told = [
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
        return hashlib.sha256(encode_text(told).encode()).hexdigest()


def _bound_provider(setup: Setup, scope: Scope, store: Store | None) -> Source | None:
    provider = setup.prompt_provider
    # The store has a place for prompts; in that of a block one could overwrite a block, and a fork would copy it.
    if provider is None or is_kept_in(store, provider):
        return None
    return Source("the cached prompt", provider, TIMEOUT_S).bind(Place(scope, store, NAMES, shared=False))
