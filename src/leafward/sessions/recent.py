"""The newest end of a conversation that fits into a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leafward.core.ids import Scope
from leafward.core.message import Message, wire_size
from leafward.core.parts import answered_ids, called_ids
from leafward.stores.contracts import MessageStore, PathPage

_FIRST_PAGE = 64
_LARGEST_PAGE = 1024


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The newest messages of a path, oldest of them first, and whether there are older ones."""

    messages: list[Message]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """How much history is wanted; `None` is no limit."""

    max_messages: int | None
    max_tokens: int | None
    max_bytes: int | None

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_tokens", "max_bytes"):
            limit: int | None = getattr(self, name)
            if limit is not None and limit < 0:
                raise ValueError(f"{name} is at least 0, not {limit}")

    def hold(self, messages: int, tokens: int, size: int) -> bool:
        return (
            (self.max_messages is None or messages <= self.max_messages)
            and (self.max_tokens is None or tokens <= self.max_tokens)
            and (self.max_bytes is None or size <= self.max_bytes)
        )


class Window:
    """Takes messages newest first while they fit, and beyond that until each tool result has its call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: list[Message] = []
        self._tokens = 0
        self._bytes = 0
        self._unpaired: set[str] = set()
        self._fitting: int | None = None
        """How many were taken when the limit was reached."""

    def offer(self, message: Message, tokens: int, size: int) -> bool:
        """Take the next older message, or refuse it because the window is complete."""
        self._tokens += tokens
        self._bytes += wire_size(message.id, message.role, size)
        fits = not self._taken or self._limits.hold(len(self._taken) + 1, self._tokens, self._bytes)
        if not fits and self._fitting is None:
            self._fitting = len(self._taken)
        if self._fitting is not None and not self._unpaired:
            return False
        self._taken.append(message)
        self._unpaired |= answered_ids(message.parts)
        self._unpaired -= called_ids(message.parts)
        return True

    def result(self, *, reached_root: bool) -> RecentHistory:
        kept = self._taken
        if reached_root and self._unpaired and self._fitting is not None:
            # The call is nowhere on the path: there was no pair to keep together.
            kept = kept[: self._fitting]
        return RecentHistory(kept[::-1], truncated=not reached_root or len(kept) < len(self._taken))


async def read_recent(messages: MessageStore, scope: Scope, limits: Limits) -> RecentHistory:
    """Read the newest end of the current path, a page at a time."""
    window = Window(limits)
    size = _FIRST_PAGE if limits.max_messages is None else min(limits.max_messages, _LARGEST_PAGE) + 1
    page = await messages.path_page(scope, newest_first=True, limit=size)
    while True:
        for message, tokens, stored_bytes in _rows(page):
            if not window.offer(message, tokens, stored_bytes):
                return window.result(reached_root=False)
        if page.next is None:
            return window.result(reached_root=True)
        size = min(2 * size, _LARGEST_PAGE)
        page = await messages.path_page(scope, cursor=page.next, newest_first=True, limit=size)


def _rows(page: PathPage) -> Iterator[tuple[Message, int, int]]:
    return zip(page.messages, page.tokens, page.sizes, strict=True)
