"""Deliberately broken turns: a judge that does not catch them proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from leafward.core.message import Message
from leafward.engine.agent import ReActAgent
from leafward.engine.recovery import open_calls
from leafward.engine.running_calls import RunningCalls
from leafward.engine.tree_log import TreeLog
from leafward.engine.turn_end import TurnEnd
from leafward.engine.turn_note import TurnNote

_BETWEEN_S = 0.3
"""Longer than most kills wait, so that few of them are needed to meet a half-written turn."""


def _stores_intent_late() -> Any:
    """Store a reply together with the results of its calls."""
    commit = TreeLog.commit

    async def late(self: TreeLog, note: TurnNote, *, at_boundary: bool = False, **options: Any) -> None:
        if at_boundary or not open_calls(self.state.context):
            await commit(self, note, at_boundary=at_boundary, **options)

    return patch.object(TreeLog, "commit", late)


def _has_no_fence() -> Any:
    """Write without the lease, and start tools whether or not it is held."""
    log, made = ReActAgent._log, RunningCalls.__init__

    def unfenced(self: ReActAgent, place: Any, key: Any, held: Any = None) -> Any:
        return log(self, place, key)

    def unchecked(self: RunningCalls, tools: Any, ctx: Any, lease: Any, **options: Any) -> None:
        made(self, tools, ctx, None, **options)

    return _both(patch.object(ReActAgent, "_log", unfenced), patch.object(RunningCalls, "__init__", unchecked))


def _writes_slot_first() -> Any:
    """Write the slot before the tree has the reply."""

    async def finish(self: TurnEnd, message: Message, *_: Any) -> None:
        log = cast(TreeLog, self._record.log)
        stored = log._shown, log.leaf_id
        log._shown, log.leaf_id = list(log.state.context), message.id
        await log.project()
        log._shown, log.leaf_id = stored
        # Long enough for a kill to come between them.
        await asyncio.sleep(_BETWEEN_S)
        await self._once(lambda: self._conclude(message, None))

    return patch.object(TurnEnd, "finish", finish)


@contextmanager
def _both(one: Any, other: Any) -> Iterator[None]:
    with one, other:
        yield


UNFENCED = "writes without the lease"
BROKEN: Mapping[str, Callable[[], Any]] = {
    "stores the intent after the tool ran": _stores_intent_late,
    UNFENCED: _has_no_fence,
    "writes the slot before the tree": _writes_slot_first,
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Have all turns broken in this way for the length of the block; `None` leaves them alone."""
    if name is None:
        yield
        return
    with BROKEN[name]():
        yield
