"""Where a history may be cut: never between a tool call and its result, never across a call that is still running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from leafward.core.calls import Call, Pairs, Result, pair
from leafward.core.message import Message


@dataclass(frozen=True, slots=True)
class Cuts:
    """The places where a history may be cut; place `n` is just before message `n`."""

    _free: Sequence[bool]
    pending: int
    """Where the messages begin that the next step of the conversation needs; its length when there are none."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Cuts:
        """Find the cuts of a history."""
        return cls.between(pair(messages))

    @classmethod
    def between(cls, pairs: Pairs, joined: Iterable[tuple[int, int]] = ()) -> Cuts:
        """Find the cuts of a history by its pairs; `joined` names more messages that belong together."""
        together = [sorted((call.row, result.row)) for call, result in pairs.belonging()]
        # How many pairs each place would part: one more behind the first of a pair, one less behind its second.
        steps = [0] * (len(pairs.items) + 2)
        for first, last in (*together, *joined):
            steps[first + 1] += 1
            steps[last + 1] -= 1
        return cls([parted == 0 for parted in accumulate(steps[:-1])], _pending(pairs))

    def at_or_before(self, place: int) -> int:
        """Return the last cut that is not behind `place`; a history may always be cut before its first message."""
        return next(cut for cut in range(place, -1, -1) if self._free[cut])

    def at_or_after(self, place: int) -> int:
        """Return the first cut that is not before `place`; a history may always be cut behind its last message."""
        return next(cut for cut in range(place, len(self._free)) if self._free[cut])


def _pending(pairs: Pairs) -> int:
    """Return where the last step begins if it waits for a result, else the number of messages.

    A step is a message that holds more than results. A call that the conversation went on without, as after a crash,
    waits for nothing.
    """
    for row in range(len(pairs.items) - 1, -1, -1):
        items = pairs.items[row]
        if any(not isinstance(item, Result) for item in items):
            waits = any(isinstance(item, Call) and pairs.is_waiting(item) for item in items)
            return row if waits else len(pairs.items)
    return len(pairs.items)
