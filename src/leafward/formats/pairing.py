"""Which result answers which call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from leafward.core.message import Message
from leafward.formats.calls import Call, Item, Result, items_of


@dataclass(frozen=True, slots=True)
class Pairs:
    """The items of each message, and for each call the result that answers it."""

    items: list[list[Item]]
    answers: dict[Call, Result]
    places: dict[Call | Result, int]
    """Where a call or result stands, counted over all messages."""
    orphans: set[Result]
    """Results whose call is missing; one that only repeats an answer is not among them."""


def pair(messages: Sequence[Message]) -> Pairs:
    """Match calls and results by id, also where ids repeat or a result stands before its call.

    A result answers a call of the nearest earlier message that still waits for one with its id, else the nearest
    later one. A result that is not final answers only what nothing else does.
    """
    items = [list(items_of(message)) for message in messages]
    both = [item for row in items for item in row if isinstance(item, (Call, Result))]
    places: dict[Call | Result, int] = {item: place for place, item in enumerate(both)}
    results = [item for item in both if isinstance(item, Result)]
    waiting: dict[str, list[Call]] = {}
    for item in both:
        if isinstance(item, Call):
            waiting.setdefault(item.id, []).append(item)
    answers: dict[Call, Result] = {}
    # What stands in one part belongs together; of the rest, final results choose first.
    for result in sorted(results, key=lambda each: (each.call is None, each.state == "running", places[each])):
        call = result.call or _nearest(waiting.get(result.call_id, []), places, places[result])
        if call is not None:
            answers[call] = result
            waiting[call.id].remove(call)
    return Pairs(items, answers, places, _orphans(results, answers))


def _nearest(calls: list[Call], places: dict[Call | Result, int], place: int) -> Call | None:
    later = bisect_left(calls, place, key=lambda call: places[call])
    if later == 0:
        return calls[0] if calls else None
    nearest = later - 1
    # Two calls of one message that share an id are answered in their order.
    while nearest > 0 and calls[nearest - 1].message is calls[nearest].message:
        nearest -= 1
    return calls[nearest]


def _orphans(results: list[Result], answers: dict[Call, Result]) -> set[Result]:
    used = set(answers.values())
    said: dict[str, list[object]] = {}
    for result in used:
        said.setdefault(result.call_id, []).append(result.output)
    return {result for result in results if result not in used and result.output not in said.get(result.call_id, [])}
