"""The newest end of a conversation that fits into a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Limits:
    """How much history is wanted; `None` is no limit."""

    max_messages: int | None
    max_tokens: int | None
    max_bytes: int | None

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_tokens", "max_bytes"):
            limit: int | None = getattr(self, name)
            if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{name} is a whole number of at least 0, not {limit!r}")

    def hold(self, messages: int, tokens: int, size: int) -> bool:
        return (
            (self.max_messages is None or messages <= self.max_messages)
            and (self.max_tokens is None or tokens <= self.max_tokens)
            and (self.max_bytes is None or size <= self.max_bytes)
        )


class Window:
    """Takes messages newest first while they fit, and beyond that until each call and result in it has the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
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
        # Loaded when a window is first read: most processes that write never do.
        from leafward.core.calls import answers_below, called_ids, holds_only_results

        self._tokens += tokens
        self._bytes += wire_size(message.id, message.role, size)
        if self._open and self._seen:
            self._open = self._limits.hold(len(self._seen) + 1, self._tokens, self._bytes)
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
        from leafward.core.calls import has_unanswered_call, missing_calls

        self._wanted = missing_calls(self._window())
        self._unanswered = has_unanswered_call(self._window())

    def result(self, *, reached_root: bool) -> RecentHistory:
        # What was looked at and not kept was looked at for a call that is nowhere on the path.
        return RecentHistory(self._window(), truncated=not reached_root or self._kept < len(self._seen))

    def _window(self) -> list[Message]:
        return self._seen[: self._kept][::-1]


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
