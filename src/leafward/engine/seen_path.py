"""The path of a turn as its view shows it, for a compaction: the messages of a session, seen through the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leafward.core.ids import Scope
from leafward.core.message import Message, ids_of
from leafward.core.overlays import Compaction, summary_id
from leafward.core.tokens import count_tokens
from leafward.engine.context_view import NO_VIEW, View, compare, in_shown_order, render, seen_through
from leafward.stores.contracts import MessageStore, NewOverlay, Unchanged
from leafward.stores.contracts import View as Path


class SeenMessages:
    """Messages of a session for a compactor, which is to see of a path what a model sees.

    What the view hides is not summarised, and what it puts between the messages is.
    """

    def __init__(self, messages: MessageStore, kept: MessageStore, view: View) -> None:
        self.kept = kept
        """What all handles on the session have in common."""
        self.present = view
        """The view to be in force; a summary takes the place of what it said about the covered messages."""
        self._messages = messages
        self._leaf_id: str | None = None
        self._seen: list[Message] = []
        self._path: set[str] = set()
        self._rendered: list[tuple[str, Message]] = []
        """What a context shows, with the id of each message in a history."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    async def view(self, scope: Scope, leaf_id: str | None) -> Path:
        """Return the path as a model sees it."""
        found = await self._messages.view(scope, leaf_id)
        view, self._leaf_id = self.present, leaf_id
        if view == NO_VIEW:
            return found
        shown = in_shown_order(found.messages)
        ids = ids_of(shown)
        self._path = set(ids)
        visible = seen_through(view, ids, shown)
        self._rendered = list(zip(ids_of(visible), render(found.messages, view), strict=True))
        self._seen = _in_path_order(found.messages, visible, view)
        tokens = dict(zip(ids_of(found.messages), found.tokens, strict=True))
        weights = [tokens[one.id] if one.id in self._path else count_tokens(one) for one in self._seen]
        return found._replace(messages=self._seen, tokens=weights)

    async def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        """Lay a summary over what it covers of the path."""
        if self.present == NO_VIEW or unchanged is None:
            return await self._messages.add_overlay(scope, overlay, unchanged=unchanged)
        covered = unchanged.message_ids
        stored = [one.id for one in self._seen if one.id in covered and one.id in self._path]
        if not stored:
            return None
        made = await self._messages.add_overlay(
            scope,
            overlay._replace(from_id=stored[0], to_id=stored[-1]),
            unchanged=unchanged._replace(message_ids=covered & self._path),
        )
        if made is not None and self._leaf_id is not None:
            path = await self._messages.path(scope, self._leaf_id)
            self.present = _view_after(path, self._rendered, covered, summary_id(made.id))
        return made


def _in_path_order(path: Sequence[Message], visible: Sequence[Message], view: View) -> list[Message]:
    """Return what is visible in the order of the path, in which a summary is laid over a range."""
    own = set(ids_of(visible))
    known = set(ids_of(path))
    found = [one.message for one in view.put if one.before not in known]
    for message in path:
        found += [one.message for one in view.put if one.before == message.id]
        if message.id in own:
            found.append(message)
    return found


def _view_after(
    path: Sequence[Message], rendered: Sequence[tuple[str, Message]], covered: frozenset[str], summary: str
) -> View:
    """Return the view through which the path, which has the summary now, is seen as before where it is not covered."""
    shown = dict(zip(ids_of(in_shown_order(path)), render(path), strict=True))
    wanted: list[Message] = []
    is_there = summary not in shown
    for id, message in rendered:
        if id not in covered:
            wanted.append(message)
        elif not is_there:
            wanted.append(shown[summary])
            is_there = True
    return compare(path, NO_VIEW, wanted, strict=False).view
