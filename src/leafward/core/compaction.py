"""What of a history is summarised: the middle, between a protected head and the newest messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from leafward.core.cutting import Cuts
from leafward.core.message import Message
from leafward.core.overlays import is_summary_id
from leafward.core.tokens import TokenCounter

SMALLEST_BUDGET = 100
_TURNS_PER_BUDGET = 5


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A summary and the first and last message it stands for; either may be an earlier summary in the history."""

    summary: str
    from_message_id: str
    to_message_id: str


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """What a session tells a compaction function beside the messages."""

    count: TokenCounter
    """Gives the tokens of a message in the history as the session counts them for its threshold."""
    session_id: str


def safe_range(messages: Sequence[Message], start: int, end: int) -> tuple[int, int]:
    """Return the largest part of `[start, end)` that parts no tool call from its result and holds no pending call.

    It never grows, because a summary of the given range says nothing of what is outside. When nothing is left, both
    ends are the same.
    """
    cuts = Cuts.of(messages)
    low = cuts.at_or_after(start)
    high = cuts.at_or_before(min(end, cuts.pending))
    return low, max(low, high)


def choose(
    messages: Sequence[Message],
    *,
    protect_head: int,
    tail_token_budget: int,
    min_tail_messages: int,
    count: TokenCounter,
) -> tuple[int, int] | None:
    """Return the `[start, end)` of a history that is to be summarised, or `None` when there is nothing worth it.

    The first `protect_head` messages stay, as do the newest that fit into `tail_token_budget`, at least
    `min_tail_messages` and always the last one. A call stays with its result, a pending call with all that follows. An
    earlier summary is taken in again rather than protected, so that nothing between it and the tail is passed over.
    """
    if len(messages) <= protect_head + min_tail_messages:
        return None
    summaries = [is_summary_id(message.id) for message in messages]
    # Neighbouring summaries may share messages (overlays that cross): neither can be replaced without the other.
    joined = [(index, index + 1) for index, both in enumerate(pairwise(summaries)) if all(both)]
    cuts = Cuts.of(messages, joined)
    start = _start(cuts, protect_head, summaries)
    tail = _tail(messages, start, tail_token_budget, count)
    end = cuts.at_or_before(min(tail, len(messages) - min_tail_messages, cuts.pending))
    if end <= start or all(summaries[start:end]):
        return None
    return start, end


def summary_budget(turns: int, previous: int) -> int:
    """Return how many tokens a summary may take, given those of the turns and of the summaries it replaces."""
    return max(SMALLEST_BUDGET, turns // _TURNS_PER_BUDGET, previous)


def _start(cuts: Cuts, protect_head: int, summaries: Sequence[bool]) -> int:
    first_summary = summaries.index(True) if True in summaries else len(summaries)
    wanted = min(protect_head, first_summary)
    start = cuts.at_or_after(wanted)
    # Rather give up some of the head than step over a summary.
    return start if start <= first_summary else cuts.at_or_before(wanted)


def _tail(messages: Sequence[Message], start: int, budget: int, count: TokenCounter) -> int:
    tail = len(messages)
    left = budget
    while tail > start:
        left -= count(messages[tail - 1])
        if left < 0 and tail < len(messages):
            break
        tail -= 1
    return tail
