"""Tool calls and their results: what they are in every dialect, and which result answers which call.

This is the one place that pairs them. Conversion, compaction, windows, transcripts and skills ask here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from leafward.core.ids import derived_id
from leafward.core.json import encode_text, try_parse
from leafward.core.message import Message, body_to_read
from leafward.core.parts import (
    CALLS,
    FAILED,
    Part,
    is_settled,
    is_suspended,
    is_ui_only,
    is_ui_tool,
    parts_of,
    tool_input,
    tool_name,
    tool_output,
    tool_state,
)
from leafward.core.provider_extras import ORIGIN, raw_of

# Structs of msgspec, because every program loads this module: a frozen dataclass takes much longer to be made.


class Call(Struct, frozen=True, eq=False):
    """A request of the model to run a tool."""

    id: str
    name: str
    input: object
    part: Part
    message: Message
    row: int
    """Which message of the conversation holds it."""

    @property
    def written(self) -> str:
        """The arguments as the model wrote them, where that was kept; they need not be JSON."""
        kept, value = self.part.get("content"), self.input
        if isinstance(kept, str):
            read = try_parse(kept)
            if value == (kept if read is None else read[0]) or (read is None and value in ({}, None)):
                return kept
        if isinstance(value, str):
            return value
        return encode_text({} if value is None else value)

    @property
    def arguments(self) -> str:
        """The arguments as the text of a JSON object, byte for byte as the model wrote them where they are one."""
        written = self.written
        read = try_parse(written)
        return written if read is not None and isinstance(read[0], dict) else encode_text(self.object_input)

    @property
    def object_input(self) -> dict[str, Any]:
        """The arguments as an object; anything else is wrapped in one, under `arguments`."""
        value = self.input
        kept = self.part.get("content")
        if isinstance(kept, str) and kept.strip() and value in ({}, None) and try_parse(kept) is None:
            value = kept
        read = try_parse(value) if isinstance(value, str) else (value,)
        found = value if read is None else read[0]
        if isinstance(found, dict):
            return dict(cast(dict[str, Any], found))
        return {} if found is None or found == "" else {"arguments": found}


class Result(Struct, frozen=True, eq=False):
    """What a tool answered, or why it did not."""

    call_id: str
    name: str | None
    output: object
    state: str
    """AgentScope's word: `success`, `error`, `denied`, `interrupted`, or `running` for what is not final."""
    part: Part
    message: Message
    row: int
    """Which message of the conversation holds it."""
    call: Call | None = None
    """The call, when both stand in one part."""

    @property
    def failed(self) -> bool:
        return self.state in FAILED

    @property
    def final(self) -> bool:
        """Whether this is certainly the tool's last word; results of 1.x have no state, and are read as `running`."""
        return self.state != "running"

    @property
    def blocks(self) -> list[Part]:
        """The output as blocks with a type; a plain value is one block of text."""
        value = self.output
        if value is None:
            return []
        if isinstance(value, list):
            items = [item for item in cast(list[object], value) if item is not None]
            if all(isinstance(item, dict) and isinstance(cast(Part, item).get("type"), str) for item in items):
                return cast(list[Part], items)
        return [{"type": "text", "text": value if isinstance(value, str) else encode_text(cast(object, value))}]


Item = Part | Call | Result


class Pairs(Struct, frozen=True):
    """The calls and results of a conversation, and which belong together."""

    items: list[list[Item]]
    """For each message its parts in order, with calls and results read as such."""
    answers: dict[Call, Result]
    """The one result that answers each call; a call that is not here has none."""
    repeats: dict[Result, Call]
    """Further results of a call that has its answer; those that are not final go to no model."""
    orphans: set[Result]
    """Results that must be shown apart: their call is missing, or they are a final one of another output."""
    repeated_calls: dict[Call, Call]
    """AI SDK parts that repeat an open call, and that call; `items` holds the call once."""
    places: dict[Call | Result, int]
    """The order of calls and results in the conversation."""

    def belonging(self) -> Iterator[tuple[Call, Result]]:
        """Yield every result that has a call in this conversation, with that call."""
        yield from self.answers.items()
        yield from ((call, result) for result, call in self.repeats.items())

    def is_waiting(self, call: Call) -> bool:
        """Tell whether a call has no final result: another one may still come."""
        answer = self.answers.get(call)
        return answer is None or not answer.final

    def is_unanswered(self, call: Call) -> bool:
        """Tell whether the result of a call is certainly still to come; results of 1.x without a state are answers."""
        answer = self.answers.get(call)
        return answer is None or is_suspended(answer.part)


def pair(messages: Sequence[Message]) -> Pairs:
    """Match calls and results by id, also where models use an id again or a result stands before its call.

    A result belongs to the nearest message above it that has a call of its id, and answers the first such call there
    that has no answer. Without a call above it answers the nearest one below, if nothing but results stands between
    them. A result that is not final answers only what nothing else does, and gives way to a later one.
    """
    items, repeated = _without_repeated_calls([list(_items(message, row)) for row, message in enumerate(messages)])
    both = [item for row in items for item in row if isinstance(item, (Call, Result))]
    places: dict[Call | Result, int] = {item: place for place, item in enumerate(both)}
    matcher = _Matcher(places, items)
    left = [result for result in sorted(matcher.results, key=_precedence) if not matcher.match_above(result)]
    left = [result for result in left if result in matcher.repeats or not matcher.match_below(result)]
    return Pairs(items, matcher.answers, matcher.repeats, matcher.orphans(left), repeated, places)


def own_items(message: Message) -> list[Item] | None:
    """Return what `pair` says a message holds; `None` where the messages above it decide that."""
    if any(map(is_ui_tool, parts_of(body_to_read(message)))):
        return None
    return list(_items(message, 0))


class KnownPairs:
    """Pairs as `pair` does; one history, of the very messages given first, it pairs only once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self._pairs: Pairs | None = None

    def __call__(self, messages: Sequence[Message]) -> Pairs:
        if len(messages) != len(self._messages) or not all(map(is_, messages, self._messages)):
            return pair(messages)
        if self._pairs is None:
            self._pairs = pair(self._messages)
        return self._pairs


def called_ids(message: Message, parts: int | None = None) -> set[str]:
    """Return the ids of the calls in a message, or in its first parts."""
    return {item.id for item in _items(message, 0, parts) if isinstance(item, Call)}


def open_ends(messages: Sequence[Message]) -> tuple[set[str], bool]:
    """Return the ids of calls that are not above results that answer them, and whether a call has no result."""
    plain = _plain_ends(messages)
    if plain is not None:
        return plain
    pairs = pair(messages)
    alone = {result for result in pairs.orphans if result not in pairs.repeats}
    early = {result for call, result in pairs.answers.items() if pairs.places[call] > pairs.places[result]}
    missing = {result.call_id for result in alone | early if result.call_id}
    return missing, any(item not in pairs.answers for row in pairs.items for item in row if isinstance(item, Call))


def _plain_ends(messages: Sequence[Message]) -> tuple[set[str], bool] | None:
    """Return the same where every result follows the one call of its id or has no call at all, as nearly always."""
    called: set[str] = set()
    waiting: set[str] = set()
    missing: set[str] = set()
    for message in messages:
        for part in parts_of(body_to_read(message)):
            kind = part["type"]
            if kind == "text":
                continue
            if kind in CALLS:
                call_id = part.get("id")
                if not isinstance(call_id, str) or not call_id or call_id in called or call_id in missing:
                    return None
                called.add(call_id)
                waiting.add(call_id)
            elif kind == "tool_result":
                call_id = answered_id(part)
                if call_id in waiting and part.get("state") != "running":
                    waiting.remove(call_id)
                elif call_id and call_id not in called:
                    missing.add(call_id)
                else:
                    return None
            elif is_ui_tool(part):
                return None
            if ORIGIN in part:
                return None
    return missing, bool(waiting)


def in_call_order(reply: Message, below: Sequence[Message]) -> list[Message] | None:
    """Return messages below a reply with its results in the order of its calls; `None` if that is their order.

    Only messages that hold nothing but results of this reply change their places, and only with each other.
    """
    order: dict[str, int] = {}
    for part in parts_of(body_to_read(reply)):
        if part["type"] in CALLS and isinstance(part.get("id"), str):
            order.setdefault(part["id"], len(order))
    if len(order) < 2:
        return None
    ranks = {row: rank for row, message in enumerate(below) if (rank := _rank(message, order)) is not None}
    rows = sorted(ranks, key=ranks.__getitem__)
    if rows == list(ranks):
        return None
    found = list(below)
    for row, moved in zip(ranks, rows, strict=True):
        found[row] = below[moved]
    return found


def _rank(message: Message, order: Mapping[str, int]) -> int | None:
    """Return the place of the first call that a message answers, if it holds results of these calls and no more."""
    ranks: list[int] = []
    for part in parts_of(body_to_read(message)):
        rank = order.get(answered_id(part) or "") if part["type"] == "tool_result" else None
        if rank is None:
            return None
        ranks.append(rank)
    return min(ranks, default=None)


def holds_only_results(message: Message) -> bool:
    """Tell whether nothing but results is in a message, so that a result above it may answer a call below it."""
    return all(isinstance(item, Result) for item in _items(message, 0))


def is_question(message: Message) -> bool:
    """Tell whether a message is what the user says, not what a tool found."""
    return message.role == "user" and all(answered_id(part) is None for part in parts_of(body_to_read(message)))


def answers_below(message: Message, below: Sequence[Message]) -> bool:
    """Tell whether a result in a message answers a call in the messages directly below it."""
    if not any(answered_id(part) for part in parts_of(body_to_read(message))):
        return False
    answers = pair([message, *below]).answers
    return any(result.row == 0 and call.row > 0 for call, result in answers.items())


def _precedence(result: Result) -> tuple[bool, bool]:
    """Order results by who chooses first: those in one part with their call, then those that are final."""
    return result.call is None, not result.final


class _Matcher:
    """Gives each call at most one result."""

    def __init__(self, places: dict[Call | Result, int], items: Sequence[Sequence[Item]]) -> None:
        self._items = items
        self.answers: dict[Call, Result] = {}
        self.repeats: dict[Result, Call] = {}
        self.results = [item for item in places if isinstance(item, Result)]
        self._places = places
        self._calls: dict[str, list[Call]] = {}
        for item in places:
            if isinstance(item, Call):
                self._calls.setdefault(item.id, []).append(item)

    def match_above(self, result: Result) -> bool:
        """Give a result to the nearest message above that has its call; False when it answers nothing there."""
        if result.call is not None:
            self.answers[result.call] = result
            return True
        calls = self._calls.get(result.call_id, [])
        nearest = self._above(calls, result) - 1
        if nearest < 0:
            return False
        self.repeats[result] = calls[nearest]
        row = calls[nearest].row
        # Two calls of one message that share an id are answered in their order.
        while nearest > 0 and calls[nearest - 1].row == row:
            nearest -= 1
        while nearest < len(calls) and calls[nearest].row == row:
            if calls[nearest] not in self.answers:
                self.answers[calls[nearest]] = result
                del self.repeats[result]
                return True
            nearest += 1
        return self._supersede(result)

    def _supersede(self, result: Result) -> bool:
        """Put a result in the place of an earlier one that is not final; False when that is the tool's last word."""
        call = self.repeats[result]
        earlier = self.answers[call]
        if earlier.final:
            return False
        self.answers[call] = result
        self.repeats[earlier] = call
        del self.repeats[result]
        return True

    def match_below(self, result: Result) -> bool:
        """Give a result to the nearest call below that has no answer."""
        calls = self._calls.get(result.call_id, [])
        free = (call for call in calls[self._above(calls, result) :] if call not in self.answers)
        call = next(free, None)
        if call is None or not self._are_neighbours(result, call):
            return False
        self.answers[call] = result
        return True

    def _are_neighbours(self, result: Result, call: Call) -> bool:
        """Tell whether nothing but results stands from a result's message up to that of a call."""
        return all(isinstance(item, Result) for row in self._items[result.row : call.row] for item in row)

    def orphans(self, left: Sequence[Result]) -> set[Result]:
        """Return the results that no call has, and final ones that say something else than the answer of their call."""
        return {
            result
            for result in left
            if result not in self.repeats
            or (result.final and self.answers[self.repeats[result]].output != result.output)
        }

    def _above(self, calls: Sequence[Call], result: Result) -> int:
        return bisect_left(calls, self._places[result], key=lambda call: self._places[call])


def answered_id(part: Part) -> str | None:
    """Return the id of the call whose result a part holds."""
    if part["type"] == "tool_result":
        # AgentScope names the call in "id", Anthropic in "tool_use_id".
        found = part.get("tool_use_id") or part.get("id")
    else:
        found = part["toolCallId"] if is_ui_tool(part) and is_settled(part) else None
    return found if isinstance(found, str) else None


def _items(message: Message, row: int, parts: int | None = None) -> Iterator[Item]:
    for index, part in enumerate(parts_of(message.body)[:parts]):
        if part["type"] == "text" or raw_of(part) is not None:
            yield part
        elif part["type"] in CALLS:
            yield _call(part, part.get("id"), message, row, index)
        elif is_ui_tool(part):
            call = _call(part, part["toolCallId"], message, row, index)
            yield call
            if is_settled(part):
                yield _result(part, call.id, message, row, call)
        elif part["type"] == "tool_result":
            yield _result(part, answered_id(part) or "", message, row)
        else:
            yield part


def _without_repeated_calls(items: list[list[Item]]) -> tuple[list[list[Item]], dict[Call, Call]]:
    """Return the items without AI SDK parts that repeat an open call, and those with the call they repeat.

    What such a part holds besides is the result of that call.

    A call that comes again after something else was said is a new one.
    """
    open_calls: dict[str, Call] = {}
    repeated: dict[Call, Call] = {}
    found: list[list[Item]] = []
    for number, row in enumerate(items):
        kept: list[Item] = []
        for item in row:
            if isinstance(item, dict) and not is_ui_only(item):
                open_calls = {call_id: call for call_id, call in open_calls.items() if call.row == number}
            elif isinstance(item, Call):
                before = open_calls.get(item.id)
                if before is not None and _is_repeated(before, item):
                    repeated[item] = before
                    continue
                open_calls[item.id] = item
            elif isinstance(item, Result):
                if item.final:
                    open_calls.pop(item.call_id, None)
                if item.call is not None and item.call in repeated:
                    kept.append(replace(item, call=None))
                    continue
            kept.append(item)
        found.append(kept)
    return found, repeated


def _is_repeated(before: Call, call: Call) -> bool:
    if not is_ui_tool(call.part):
        return False
    return "input" not in call.part or (before.name, before.input) == (call.name, call.input)


def _call(part: Part, call_id: object, message: Message, row: int, index: int) -> Call:
    known = call_id if isinstance(call_id, str) and call_id else derived_id("call", message.id, index)
    return Call(known, tool_name(part), tool_input(part), part, message, row)


def _result(part: Part, call_id: str, message: Message, row: int, call: Call | None = None) -> Result:
    name = tool_name(part) or None
    return Result(call_id, name, tool_output(part), tool_state(part), part, message, row, call)
