"""The newest end of a conversation that fits into a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leafward.core.calls import answers_below, called_ids, holds_only_results, open_ends
from leafward.core.ids import Scope
from leafward.core.message import Message, wire_size
from leafward.stores.contracts import MessageStore, PathPage

_FIRST_PAGE = 64
_LARGEST_PAGE = 1024


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The newest messages of a path, oldest of them first, and whether there are older ones."""

    messages: list[Message]
    truncated: bool


class WindowSize:
    """How much history is wanted; `None` is no limit."""

    def __init__(self, max_messages: int | None, max_tokens: int | None, max_bytes: int | None) -> None:
        self.max_messages = _checked("max_messages", max_messages)
        self._max_tokens = _checked("max_tokens", max_tokens)
        self._max_bytes = _checked("max_bytes", max_bytes)

    def holds(self, messages: int, tokens: int, size: int) -> bool:
        return (
            (self.max_messages is None or messages <= self.max_messages)
            and (self._max_tokens is None or tokens <= self._max_tokens)
            and (self._max_bytes is None or size <= self._max_bytes)
        )


def _checked(name: str, limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name} is a whole number of at least 0, not {limit!r}")
    return limit


class Window:
    """Takes messages newest first while they fit, and beyond that until each call and result in it has the other."""

    def __init__(self, size: WindowSize) -> None:
        self._size = size
        self._open = True
        self._seen: list[Message] = []
        self._kept = 0
        self._tokens = 0
        self._bytes = 0
        self._wanted: set[str] = set()
        """The ids of the calls that results in the window answer and that are not in it."""
        self._unanswered = False
        """Whether a call in the window has no result, so that one may still be found among the results above it."""

    def offer(self, message: Message, tokens: int, size: int) -> bool:
        """Look at the next older message; False when no older one can belong to the window."""
        self._tokens += tokens
        self._bytes += wire_size(message.id, message.role, size)
        if self._open and self._seen:
            self._open = self._size.holds(len(self._seen) + 1, self._tokens, self._bytes)
            if not self._open:
                self._look_for_partners()
        belongs = not self._open and (
            bool(self._wanted & called_ids(message)) or (self._unanswered and answers_below(message, self._seen[::-1]))
        )
        self._unanswered = self._unanswered and holds_only_results(message)
        if not (self._open or self._wanted or self._unanswered or belongs):
            return False
        self._seen.append(message)
        if self._open or belongs:
            self._kept = len(self._seen)
        if belongs:
            self._look_for_partners()
        return True

    def _look_for_partners(self) -> None:
        self._wanted, self._unanswered = open_ends(self._window())

    def result(self, *, reached_root: bool) -> RecentHistory:
        # What was looked at and not kept was looked at for a call that is nowhere on the path.
        return RecentHistory(self._window(), truncated=not reached_root or self._kept < len(self._seen))

    def _window(self) -> list[Message]:
        return self._seen[: self._kept][::-1]


async def read_recent(messages: MessageStore, scope: Scope, size: WindowSize) -> RecentHistory:
    """Read the newest end of the current path, a page at a time."""
    window = Window(size)
    limit = _FIRST_PAGE if size.max_messages is None else min(size.max_messages, _LARGEST_PAGE) + 1
    page = await messages.path_page(scope, newest_first=True, limit=limit)
    while True:
        for message, tokens, stored_bytes in _rows(page):
            if not window.offer(message, tokens, stored_bytes):
                return window.result(reached_root=False)
        if page.next is None:
            return window.result(reached_root=True)
        limit = min(2 * limit, _LARGEST_PAGE)
        page = await messages.path_page(scope, cursor=page.next, newest_first=True, limit=limit)


def _rows(page: PathPage) -> Iterator[tuple[Message, int, int]]:
    return zip(page.messages, page.tokens, page.sizes, strict=True)
