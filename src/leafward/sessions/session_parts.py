"""The collaborators of a session handle."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from leafward.core.ids import Scope
from leafward.sessions.message_writer import MessageWriter
from leafward.sessions.setup import Setup
from leafward.sessions.token_counts import SessionCounter
from leafward.stores.contracts import MessageStore, Store, largest_message, without_lease

if TYPE_CHECKING:
    from leafward.sessions.compactor import Compactor
    from leafward.sessions.context import Blocks
    from leafward.sessions.shown import Shown
    from leafward.sessions.system_prompt import FrozenPrompt


class SessionParts:
    """What a handle consists of once it is in use; what most handles never need is made when it is first asked for.

    Raises:
        ConfigurationError: what was set up does not fit together.
    """

    def __init__(self, setup: Setup, scope: Scope, store: Store | None, messages: MessageStore) -> None:
        setup.check()
        self.messages = messages
        self.count = SessionCounter(setup)
        self.largest = largest_message(store)
        self._setup = setup
        self._scope = scope
        self._store = store
        self.writer = MessageWriter(
            setup,
            messages,
            scope,
            self.count,
            largest=self.largest,
            keeps_notices=store is not None,
            compactor=lambda: self.compactor,
        )

    @cached_property
    def blocks(self) -> Blocks:
        from leafward.sessions.context import Blocks

        return Blocks(self._setup, self._scope, self._store)

    @cached_property
    def shown(self) -> Shown:
        from leafward.sessions.shown import Shown

        return Shown(self._scope, None if self._store is None else self._store.entries)

    @cached_property
    def prompt(self) -> FrozenPrompt:
        from leafward.sessions.system_prompt import FrozenPrompt

        return FrozenPrompt(self._setup, self.blocks, self.shown, self._scope, self._store, self.messages)

    @cached_property
    def compactor(self) -> Compactor:
        from leafward.sessions.compactor import Compactor

        return Compactor(
            self._setup,
            self.messages,
            self._scope,
            self._store,
            count=self.count,
            largest=self.largest,
            prompt_tokens=self.prompt.tokens,
            applied=self.prompt.renew,
            without_lease=self._compactor_without_lease,
        )

    def _compactor_without_lease(self) -> Compactor:
        """Return a compactor that can still write when the lease of this handle has ended."""
        store = self._store
        if store is None or without_lease(store) is store:
            return self.compactor
        store = without_lease(store)
        parts = SessionParts(self._setup, self._scope, store, store.messages)
        parts.count = self.count
        if self._setup.prompt_provider is None:
            # The handle may hold a frozen prompt, which the compaction ends; to renew it writes nothing.
            parts.prompt = self.prompt
        return parts.compactor
