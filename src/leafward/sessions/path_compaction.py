"""Compaction between two steps of a turn, by the one who knows where the turn stands and what its prompt takes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from leafward.core.compaction import CompactFunction
from leafward.core.ids import Scope
from leafward.core.overlays import Compaction
from leafward.sessions.compactor import CANCELLED, Compactor, Size
from leafward.sessions.setup import Setup
from leafward.sessions.token_counts import SessionCounter
from leafward.stores.contracts import MessageStore, Store, largest_message


class Compacted(NamedTuple):
    """What became of an attempt to compact the path of a turn."""

    made: Compaction | None
    shortened: int
    """How many tool results are shown shortened from now on."""
    error: Exception | None
    """Why there is no summary, or why the path still takes more than its threshold."""

    @property
    def is_shorter(self) -> bool:
        """Whether a model is shown less than before."""
        return self.made is not None or self.shortened > 0


class PathCompactor(Compactor):
    """Compacts the path to the last message of a turn, as one of the compactions of its session."""

    def __init__(
        self,
        function: CompactFunction,
        messages: MessageStore,
        scope: Scope,
        store: Store | None,
        *,
        threshold: int | None,
    ) -> None:
        setup = Setup(on_compaction=function, compact_after=threshold)
        super().__init__(
            setup,
            messages,
            scope,
            store,
            count=SessionCounter(setup),
            largest=largest_message(store),
            prompt_tokens=_unknown,
            applied=_nothing,
            without_lease=lambda: self,
        )

    def puts_off(self, size: Size) -> bool:
        """Tell whether to try later, because earlier attempts failed."""
        return self._skips(size.total)

    async def run(self, leaf_id: str | None, size: Size, *, raised: tuple[type[BaseException], ...]) -> Compacted:
        """Summarise, given what context and prompt take; what goes wrong is returned, for the turn to report.

        Raises:
            Exception: one of those that are to be `raised`.
        """
        try:
            async with self._state.alone():
                attempt = await self._run(leaf_id, size.prompt)
            view = await self._messages.view(self._scope, leaf_id)
            left = Size(sum(view.tokens), size.prompt)
            error = attempt.error or await self._too_large(attempt, left, leaf_id)
        except raised:
            raise
        except asyncio.CancelledError:
            self._record(CANCELLED, automatic=True, tokens=size.total)
            raise
        except Exception as failure:  # noqa: BLE001  (the turn goes on, and reports it)
            self._state.back_off(size.total)
            self._record("it failed", automatic=True, tokens=size.total, error=failure)
            return Compacted(None, 0, failure)
        found = Compacted(attempt.made, attempt.shortened, error)
        self._record(attempt.reason, automatic=True, tokens=size.total, compaction=attempt.made, error=error)
        if found.is_shorter and error is None:
            self._state.succeeded()
        else:
            self._state.back_off(left.total)
        return found


async def _unknown(_: int | None, *, exact: bool = False) -> int:
    return 0


async def _nothing() -> None:
    return
