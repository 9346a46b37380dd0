"""The context of a custom store of states, which keeps no tree, as messages that a compactor can summarise."""

from __future__ import annotations

from typing import Any

from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.core.overlays import Compaction, summary_message
from leafward.core.times import from_micros
from leafward.core.tokens import count_tokens
from leafward.engine.summary_messages import shown_summary, summary_text
from leafward.stores.contracts import NewOverlay, Unchanged, View


class ContextMessages:
    """A context for a compactor; a summary replaces the messages that it covers."""

    def __init__(self, context: list[Message], kept: object) -> None:
        self.kept = kept
        """What all that is done to the session's context has in common."""
        self._context = context

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a context has no {name!r}")

    async def view(self, scope: Scope, leaf_id: str | None) -> View:
        """Return the context as a history has it."""
        messages = [_as_in_history(message) for message in self._context]
        return View(messages, [count_tokens(message) for message in messages], 0)

    async def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        """Put a summary in the place of the messages; `None` if they are not all there any more."""
        ids = [_as_in_history(message).id for message in self._context]
        if overlay.from_id not in ids or overlay.to_id not in ids:
            return None
        first, last = ids.index(overlay.from_id), ids.index(overlay.to_id)
        if unchanged is not None and unchanged.message_ids != frozenset(ids[first : last + 1]):
            return None
        summary = summary_message(overlay.id, overlay.summary, overlay.at)
        self._context[first : last + 1] = [shown_summary(summary)]
        return Compaction(overlay.id, overlay.summary, overlay.from_id, overlay.to_id, from_micros(overlay.at))


def _as_in_history(message: Message) -> Message:
    text = summary_text(message)
    return message if text is None else summary_message(message.id, text, message.at)
