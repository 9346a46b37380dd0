"""How far tool results are shortened so that the messages they are in fit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leafward.core.calls import answered_id
from leafward.core.message import Message
from leafward.core.notices import Reclaimed, result_length, shortening, with_notices
from leafward.core.parts import parts_of
from leafward.core.tokens import TokenCounter


class _Shown(NamedTuple):
    message: Message
    tokens: int


def shorten_results(
    messages: Sequence[Message], most: int, count: TokenCounter
) -> tuple[list[Message], list[Reclaimed]]:
    """Return messages with their tool results shortened until they take at most `most` tokens, and these results.

    All results keep the same number of characters, so that short ones stay whole. Where not even empty results would
    make the messages fit, they are as short as that.
    """
    lengths = [_result_lengths(message) for message in messages]
    whole = [_Shown(message, count(message)) for message in messages]
    longest = max((length for one in lengths for length in one.values()), default=0)

    def shown(size: int) -> list[_Shown]:
        return [_shorten(one, known, size, count) for one, known in zip(whole, lengths, strict=True)]

    def tokens(size: int) -> int:
        return sum(one.tokens for one in shown(size))

    if not longest:
        return list(messages), []
    size = max(0, bisect_right(range(longest), most, key=tokens) - 1)
    shortened = shown(size)
    found: list[Reclaimed] = []
    for before, known, after in zip(whole, lengths, shortened, strict=True):
        if after is not before:
            calls = [call_id for call_id, length in known.items() if length > size]
            # What the message saves is counted once, with its first result.
            saved = [before.tokens - after.tokens, *[0] * (len(calls) - 1)]
            for call_id, tokens_saved in zip(calls, saved, strict=True):
                found.append(Reclaimed(after.message.id, call_id, shortening(size), tokens_saved))
    return [one.message for one in shortened], found


def _shorten(whole: _Shown, lengths: Mapping[str, int], size: int, count: TokenCounter) -> _Shown:
    notices = {call_id: shortening(size) for call_id, length in lengths.items() if length > size}
    if not notices:
        return whole
    message = with_notices(whole.message, notices)
    # A short result may take less than the words that say how much of it is left out.
    return min(whole, _Shown(message, count(message)), key=lambda one: one.tokens)


def _result_lengths(message: Message) -> dict[str, int]:
    """Return how many characters the results in a message show, by the id of their call."""
    found: dict[str, int] = {}
    for part in parts_of(message.body):
        call_id = answered_id(part)
        if call_id is not None:
            found[call_id] = max(found.get(call_id, 0), result_length(part))
    return found
