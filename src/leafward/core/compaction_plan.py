"""The plan of a compaction: which messages are summarised, which tool results shortened, what a model is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from leafward.core.calls import Pairs, is_question
from leafward.core.compaction import CompactionContext, first_being_written
from leafward.core.cuts import Cuts
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import is_summary_id
from leafward.core.shortened_results import shorten_results
from leafward.core.summary_prompt import SummaryPrompts
from leafward.core.tokens import MESSAGE_OVERHEAD, TokenCounter, checked_count, estimate_tokens

SMALLEST_THRESHOLD = 50
SMALLEST_PROMPT = 1_000
LARGEST_PROMPT = 100_000
"""Tokens of a prompt for the summariser, where neither an option nor a threshold limits them."""
SMALLEST_SUMMARY = 100
_TURNS_PER_SUMMARY = 5
_SHORTEST_ASKED = 20
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """What of a history is kept, and how long a prompt for the summariser may be."""

    protect_head: int = 3
    head_token_budget: int | None = None
    tail_token_budget: int = 20_000
    min_tail_messages: int = 2
    prompt_token_budget: int | None = None

    def __post_init__(self) -> None:
        for name in ("protect_head", "tail_token_budget", "min_tail_messages"):
            _check_number(name, getattr(self, name), 0)
        if self.head_token_budget is not None:
            _check_number("head_token_budget", self.head_token_budget, 0)
        if self.prompt_token_budget is not None:
            _check_number("prompt_token_budget", self.prompt_token_budget, SMALLEST_PROMPT)

    def check_threshold(self, threshold: int) -> None:
        """Raise `ConfigurationError` for a threshold that no history could be brought below."""
        if threshold < SMALLEST_THRESHOLD:
            raise ConfigurationError(
                f"compact_after({threshold}) leaves no room for a summary and the newest messages: "
                f"give at least {SMALLEST_THRESHOLD} tokens, about three quarters of the model's window"
            )

    def prompt_tokens(self, threshold: int | None) -> int:
        """Return how many tokens a prompt for the summariser may take."""
        if self.prompt_token_budget is not None:
            return self.prompt_token_budget
        return LARGEST_PROMPT if threshold is None else max(threshold, SMALLEST_PROMPT)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one compaction is going to do."""

    turns: Sequence[Message]
    """The neighbouring messages that a summary is to replace; none when shortening is enough."""
    shortened: Sequence[Reclaimed]
    """The tool results to show shortened."""
    summary_tokens: int
    """The length to ask for."""
    prompt_tokens: int
    """The most that one prompt may take."""
    pairs: Pairs
    """The calls and results of the whole history."""
    counter: TokenCounter | None
    """Counts the prompts; without one they are estimated."""
    session_id: str | None = None
    """Whose history it is, for errors."""
    covers_being_written: bool = False
    """Whether a message that is still being written is among the turns."""

    def prompts(self) -> SummaryPrompts:
        """Return what a model is asked."""
        envelope, count = self._counting()
        return SummaryPrompts(
            self.turns,
            self.pairs,
            tokens=self.summary_tokens,
            prompt_tokens=self.prompt_tokens - min(envelope, self.prompt_tokens // 10),
            count=count,
            session_id=self.session_id,
        )

    def _counting(self) -> tuple[int, Callable[[str], int]]:
        """Return what a message takes besides its text, and what counts a text."""
        counter = self.counter
        if counter is None:
            return MESSAGE_OVERHEAD, estimate_tokens
        envelope = counter(Message.user(""))

        def count(text: str) -> int:
            # A counter that looks at messages only, not at their length, would never find a prompt too long.
            return max(estimate_tokens(text), counter(Message.user(text)) - envelope)

        return envelope, count


def make_plan(
    messages: Sequence[Message], limits: Limits, context: CompactionContext, token_counter: TokenCounter | None = None
) -> Plan | None:
    """Plan the compaction of a history; `None` when there is nothing worth it.

    The first `protect_head` messages stay, as do the newest that fit into `tail_token_budget`, at least
    `min_tail_messages` and always the last one. A call stays with its result, a pending call with all that follows. An
    earlier summary is taken in again rather than protected, so that nothing between it and the tail is passed over.

    With a threshold, head and tail together get at most half of what it leaves beside the prompt, the head at most half
    of that. A history above its threshold keeps no more than this, the last message before any of the head: the newest
    tool results are shortened to fit, which may be enough, and any other message that is too large is summarised, the
    last one too. A last message by the user may take three quarters of what the prompt leaves.

    A message that is still being written stays, with all that follows it. In a history above its threshold it is
    summarised, together with messages after it, if head and tail would otherwise take more than these three quarters.

    `token_counter` counts for the budgets in place of the session's counter; the threshold is always in the session's
    tokens.
    """
    return _Planner(messages, limits, context, token_counter).plan()


def summary_budget(turns: int, previous: int) -> int:
    """Return how many tokens a summary may take, given those of the turns and of the summaries it replaces."""
    return max(min(SMALLEST_SUMMARY, (turns + previous) // 2), turns // _TURNS_PER_SUMMARY, previous)


class _Planner:
    """Chooses the head, then what to shorten, then the tail; what is between head and tail is summarised."""

    def __init__(
        self, messages: Sequence[Message], limits: Limits, context: CompactionContext, counter: TokenCounter | None
    ) -> None:
        self._messages = list(messages)
        self._limits = limits
        self._context = context
        self._count: TokenCounter = context.count if counter is None else partial(checked_count, counter)
        self._summaries = [is_summary_id(message.id) for message in messages]
        # Neighbouring summaries may share messages (overlays that cross): neither can be replaced without the other.
        joined = [(index, index + 1) for index, both in enumerate(pairwise(self._summaries)) if all(both)]
        self._pairs = context.pair(messages)
        self._cuts = Cuts.between(self._pairs, joined)
        threshold = _UNLIMITED if context.threshold is None else context.threshold
        # Where the prompt takes nearly everything, a short history is still better than a long one.
        self._left = threshold - context.prompt_tokens
        self._free = max(self._left, threshold // 4)
        self._weigh()

    def plan(self) -> Plan | None:
        if not self._messages:
            return None
        shortened = self._shorten() if self._is_over() and self._context.shorten is not None else []
        if shortened and not self._is_over():
            return self._plan(self._start, shortened)
        end = max(self._start, self._choose_end())
        plan = self._plan(end, shortened)
        if self._is_worth_asking(plan):
            return plan
        return self._plan(self._start, shortened) if shortened else None

    def _is_worth_asking(self, plan: Plan) -> bool:
        end = self._start + len(plan.turns)
        cost = sum(self._costs[self._start : end])
        if all(self._summaries[self._start : end]):
            # Summaries alone need another one only where a shorter one is all that is missing.
            return self._is_over() and plan.summary_tokens < min(cost, self._free - self._kept(end))
        return not self._is_over() or cost > _SHORTEST_ASKED

    def _plan(self, end: int, shortened: list[Reclaimed]) -> Plan:
        turns = range(self._start, end)
        previous = sum(self._costs[turn] for turn in turns if self._summaries[turn])
        wanted = summary_budget(sum(self._costs[turn] for turn in turns) - previous, previous)
        # Half of what is left: a model that writes twice as much is still below the threshold.
        wanted = max(_SHORTEST_ASKED, min(wanted, (self._free - self._kept(end)) // 2))
        budget = self._limits.prompt_tokens(self._context.threshold)
        session_id = self._context.session_id or None
        estimates = self._context.estimates and self._count is self._context.count
        counter = None if estimates else self._count
        return Plan(
            self._messages[self._start : end],
            shortened,
            wanted,
            budget,
            self._pairs,
            counter,
            session_id,
            covers_being_written=self._being_written() < end,
        )

    def _weigh(self) -> None:
        self._weights = [self._context.count(message) for message in self._messages]
        same = self._count is self._context.count
        self._costs = self._weights if same else [self._count(message) for message in self._messages]
        self._before = list(accumulate(self._weights, initial=0))
        if self._messages:
            self._kept_at_most = self._choose_kept()
            self._start = self._choose_start()

    def _choose_kept(self) -> int:
        """Return how much head and tail may take: half of what is free, or what the user's last message needs."""
        newest = self._newest()
        asks = self._is_over() and is_question(self._messages[-1]) and newest <= self._left * 3 // 4
        return max(self._free // 2, newest if asks else 0)

    def _newest(self) -> int:
        """Return the tokens of the last step."""
        return self._before[-1] - self._before[self._last_step()]

    def _kept(self, end: int) -> int:
        """Return the tokens of the head and of the messages from `end` on."""
        return self._before[self._start] + self._before[-1] - self._before[end]

    def _is_over(self) -> bool:
        threshold = self._context.threshold
        return threshold is not None and self._context.prompt_tokens + self._before[-1] > threshold

    def _choose_start(self) -> int:
        summaries, cuts = self._summaries, self._cuts
        first_summary = summaries.index(True) if True in summaries else len(summaries)
        wanted = min(self._limits.protect_head, first_summary)
        if self._is_over():
            wanted = min(wanted, self._last_step())
        start = cuts.at_or_after(wanted)
        if start > first_summary:
            # Rather give up some of the head than step over a summary.
            start = cuts.at_or_before(wanted)
        while start > 0 and not self._head_fits(start):
            start = cuts.at_or_before(start - 1)
        return start

    def _head_fits(self, start: int) -> bool:
        budget = self._limits.head_token_budget
        within = budget is None or sum(self._costs[:start]) <= budget
        return within and self._before[start] <= min(self._kept_at_most // 2, self._left_by_newest())

    def _left_by_newest(self) -> int:
        """Return what the last step leaves for the head; if it is too large to stay, it leaves everything."""
        newest = self._newest()
        if not self._is_over() or (newest > self._kept_at_most and not self._waits()):
            return self._kept_at_most
        return max(0, self._kept_at_most - newest)

    def _choose_end(self) -> int:
        """Return where the tail begins; at the start or before it when nothing is to be summarised."""
        cuts, start = self._cuts, self._start
        protected = self._limits.protect_head + self._limits.min_tail_messages
        if self._context.threshold is None and len(self._messages) <= protected:
            return start
        wanted = min(self._tail(), len(self._messages) - self._limits.min_tail_messages, cuts.pending)
        nearest = cuts.at_or_before(max(0, wanted))
        if nearest <= start and self._fits(nearest):
            return start
        last, unfinished = self._last_end(), cuts.at_or_before(self._being_written())
        end = self._find_end(min(nearest, unfinished), min(last, unfinished))
        if not self._is_over() or (end > start and self._kept(end) <= max(self._kept_at_most, self._left * 3 // 4)):
            return end
        return self._find_end(nearest, last)

    def _find_end(self, nearest: int, last: int) -> int:
        """Return the allowed end at `nearest` or before it if its tail fits, else a later one, up to `last`."""
        cuts, start = self._cuts, self._start
        end = nearest
        while end > start and not self._allowed(end):
            end = cuts.at_or_before(end - 1)
        if end > start and self._fits(end):
            return end
        found, later = end, max(nearest, start)
        # The first one behind that leaves a tail which fits; if none does, the one that leaves least.
        while later < last and not (found > start and self._fits(found)):
            later = cuts.at_or_after(later + 1)
            if later <= last and self._allowed(later):
                found = later
        return found

    def _allowed(self, end: int) -> bool:
        return self._context.can_end_with(self._messages[end - 1])

    def _being_written(self) -> int:
        """Return the place of the first message behind the head that is still being written."""
        return first_being_written(self._messages, self._start, len(self._messages), self._context)

    def _fits(self, end: int) -> bool:
        return not self._is_over() or self._kept(end) <= self._kept_at_most

    def _last_step(self) -> int:
        """Return where the newest messages begin that belong together, or that wait for a result."""
        return self._cuts.at_or_before(min(len(self._messages) - 1, self._cuts.pending))

    def _last_end(self) -> int:
        """Return the last place where a tail may begin: behind all messages only if the last ones are too large."""
        last, everything = self._last_step(), len(self._messages)
        return last if self._waits() or self._fits(last) else everything

    def _waits(self) -> bool:
        return self._cuts.pending < len(self._messages)

    def _tail(self) -> int:
        """Return where the tail begins that fits into its budget; the last message always belongs to it."""
        tail = len(self._messages)
        cost = 0
        while tail > self._start:
            cost += self._costs[tail - 1]
            fits = cost <= self._limits.tail_token_budget and self._kept(tail - 1) <= self._kept_at_most
            if not fits and tail < len(self._messages):
                break
            tail -= 1
        return tail

    def _shorten(self) -> list[Reclaimed]:
        """Shorten the newest tool results, if they are too large to be kept as they are."""
        first = self._last_step()
        room = self._kept_at_most - self._before[self._start]
        if self._kept(first) <= self._kept_at_most:
            return []
        # To half of the room: the question that they answer is to fit in beside them.
        shown, results = shorten_results(self._messages[first:], room // 2, self._context.count)
        if not self._waits() and sum(map(self._context.count, shown)) > room:
            return []
        self._messages[first:] = shown
        self._weigh()
        return results


def _check_number(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} is a whole number of at least {least:,}, not {value!r}")
