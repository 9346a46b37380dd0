"""Compaction as values: what a compaction function is given, what it returns, and the rules for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from leafward.core.calls import Pairs, pair
from leafward.core.cuts import Cuts
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import is_summary_id
from leafward.core.tokens import TokenCounter

CompactFunction = Callable[..., Any]
"""`fn(messages)` or `fn(messages, context)`, plain or async: `None`, or what to summarise and its summary."""

Shorten = Callable[[Sequence[Reclaimed]], Awaitable[None]]
"""Has a history show notices in place of tool results."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A summary and the first and last message it stands for; either may be an earlier summary in the history."""

    summary: str
    from_message_id: str
    to_message_id: str
    error: Exception | None = None
    """What kept a function from summarising more than this; it is raised or reported once the summary is stored."""
    covers_being_written: bool = False
    """Whether it may cover messages that are still being written. The model then misses what is added to them."""


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """What a session gives a compaction function beside the messages."""

    count: TokenCounter
    """Gives the tokens of a message in the history as the session counts them for its threshold."""
    session_id: str
    threshold: int | None = None
    """The tokens that prompt and history may take together, if there is a limit."""
    prompt_tokens: int = 0
    """What the system prompt takes of them."""
    no_end_at: frozenset[str] = frozenset()
    """Messages that a summary cannot end at: an earlier one covers them and ends on another branch."""
    shorten: Shorten | None = None
    """Shows notices in place of tool results; `None` where the storage cannot."""
    estimates: bool = False
    """Whether `estimate_tokens` counts a text as `count` would: the session has no token counter."""
    pair: Callable[[Sequence[Message]], Pairs] = pair
    """Finds which result answers which call; the pairs of the session's history are found once."""
    being_written: frozenset[str] = frozenset()
    """Messages that may still be written. A summary covers none of them unless its result says that it may."""

    def can_end_with(self, message: Message) -> bool:
        """Tell whether a summary may end with a message."""
        return message.id not in self.no_end_at and message.id not in self.being_written


def check_summary(summary: object) -> str:
    """Return a summary that says something.

    Raises:
        ValueError: it is not a text, or a blank one.
    """
    if not isinstance(summary, str) or _is_blank(summary):
        raise ValueError("a summary is a text that is not blank")
    return summary


def _is_blank(summary: str) -> bool:
    return not summary.strip()


def refuse_summary(summary: str, tokens: int, *, messages: int, replaced: int) -> str | None:
    """Say why a summary of so many tokens cannot take the place of some messages; `None` when it can."""
    if _is_blank(summary):
        return "the summary is blank"
    if tokens > replaced:
        those = "the message it replaces takes" if messages == 1 else f"the {messages} messages it replaces take"
        return f"the summary takes {tokens:,} tokens, {those} {replaced:,}"
    return None


def read_result(given: object) -> CompactionResult | None:
    """Read what a compaction function returned.

    Raises:
        ConfigurationError: it is neither `None` nor a summary with its two ends.
    """
    if given is None or isinstance(given, CompactionResult):
        return given
    names = ("summary", "from_message_id", "to_message_id", "error", "covers_being_written")
    if isinstance(given, Mapping):
        fields = cast(Mapping[str, object], given)
        found = [fields.get(name) for name in names]
    else:
        found = [getattr(given, name, None) for name in names]
    summary, from_id, to_id, error, covers_being_written = found
    if not isinstance(summary, str) or not isinstance(from_id, str) or not isinstance(to_id, str):
        raise ConfigurationError(
            "a compaction function returns None, or summary, from_message_id and to_message_id, all texts; "
            f"this one returned {type(cast(object, given)).__name__}"
        )
    cause = error if isinstance(error, Exception) else None
    return CompactionResult(summary, from_id, to_id, cause, covers_being_written is True)


def covered_range(messages: Sequence[Message], result: CompactionResult, context: CompactionContext) -> tuple[int, int]:
    """Return the `[start, end)` of a history that a result stands for, shrunk to what a summary may cover.

    Raises:
        ValueError: it names messages that are not in the history in this order.
    """
    places = {message.id: index for index, message in enumerate(messages)}
    for end in (result.from_message_id, result.to_message_id):
        if end not in places:
            raise ValueError(f"the compaction function named {end!r}, which is not in the history it was given")
    start, end = places[result.from_message_id], places[result.to_message_id] + 1
    if start >= end:
        raise ValueError(f"{result.from_message_id!r} does not come before {result.to_message_id!r}")
    return safe_range(messages, start, end, context, covers_being_written=result.covers_being_written)


def safe_range(
    messages: Sequence[Message],
    start: int,
    end: int,
    context: CompactionContext,
    *,
    covers_being_written: bool = False,
) -> tuple[int, int]:
    """Return the largest part of `[start, end)` that a summary may cover.

    That parts no tool call from its result, holds no pending call, does not cross an earlier summary, and ends before
    the first message that is still being written; with `covers_being_written`, it only does not end with one. It never
    grows, because a summary of the given range says nothing of what is outside. When nothing is left, both ends are
    the same.
    """
    cuts = Cuts.between(context.pair(messages))
    low = cuts.at_or_after(start)
    if not covers_being_written:
        end = first_being_written(messages, low, end, context)
    high = cuts.at_or_before(min(end, cuts.pending))
    while high > low and not context.can_end_with(messages[high - 1]):
        high = cuts.at_or_before(high - 1)
    return low, max(low, high)


def first_being_written(messages: Sequence[Message], start: int, end: int, context: CompactionContext) -> int:
    """Return the place of the first message in `[start, end)` that is still being written; `end` if there is none."""
    return next((place for place in range(start, end) if messages[place].id in context.being_written), end)


def explain_weight(
    messages: Sequence[Message], tokens: Sequence[int], context: CompactionContext, *, growing: str | None = None
) -> str:
    """Say what keeps a history above its threshold: what cannot be summarised, else what it consists of.

    `growing` is the message that no summary may cover, because it is still being written.
    """
    threshold = context.threshold or 0
    free = max(0, threshold - context.prompt_tokens)
    found: list[str] = []
    if context.prompt_tokens > threshold // 2:
        found.append(f"the system prompt alone takes {context.prompt_tokens:,} of {threshold:,} tokens")
    for message, cost in zip(messages, tokens, strict=True):
        if message.id == growing:
            found.append(f"message {growing!r} is still being written and takes {cost:,} tokens")
    cuts = Cuts.between(context.pair(messages))
    # A result that stands before its call belongs to what waits, too.
    first = cuts.at_or_before(cuts.pending) if cuts.pending < len(messages) else len(messages)
    waiting = sum(tokens[first:])
    if waiting > free // 2:
        those = f"the messages from {messages[first].id!r} on"
        found.append(f"{those} wait for the result of a tool call and take {waiting:,} tokens")
    closed = [message.id for message in messages if message.id in context.no_end_at]
    if closed:
        found.append(
            f"an earlier summary covers the messages up to {closed[-1]!r} and ends on another branch, so that no "
            "summary can end at one of them"
        )
    summaries = sum(cost for message, cost in zip(messages, tokens, strict=True) if is_summary_id(message.id))
    if summaries > free // 2:
        found.append(f"the summaries in the history take {summaries:,} tokens")
    if not found:
        others = sum(tokens) - summaries
        prompt = f"the system prompt takes {context.prompt_tokens:,}"
        found.append(f"{prompt}, summaries {summaries:,}, other messages {others:,} tokens")
    return "; ".join(found)
