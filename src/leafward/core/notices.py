"""Notices that a history shows in place of tool results; what is stored stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from leafward.core.calls import answered_id
from leafward.core.message import Message, message_sharing
from leafward.core.parts import Part, output_key, parts_of, tool_output
from leafward.core.tokens import TokenCounter, count_tokens
from leafward.core.transcript import readable

_RULE = re.compile(r"\[shortened to ([0-9]{1,9}) characters\]")
_LEFT_OUT = re.compile(r"… \[shortened: [0-9,]{1,12} of ([0-9,]{1,12}) characters are left out\]\Z")
_LONGEST_NOTE = 80


class Reclaimed(NamedTuple):
    """A tool's result that a history shows as a notice from now on, and the tokens that saves.

    A later notice for the same result takes the place of an earlier one.
    """

    message_id: str
    call_id: str
    notice: str
    tokens: int


def shortening(shown: int) -> str:
    """Return the notice that shows the first `shown` characters of a result.

    It holds a number and not the characters, so that a history never shows what the stored message no longer says.
    """
    return f"[shortened to {shown} characters]"


def with_notices(message: Message, notices: Mapping[str, str]) -> Message:
    """Return a message with a notice in place of its results for these calls."""
    parts = [_with_notice(part, notices) for part in parts_of(message.body)]
    body = {key: value for key, value in message.body.items() if key not in ("tool_calls", "tool_call_id")}
    return message_sharing(message.id, message.role, message.at, {**body, "parts": parts})


def shown_tokens(message: Message, notices: Mapping[str, str], tokens: int) -> int:
    """Return what a message of so many tokens takes when its results for these calls are replaced by a notice.

    Where `tokens` is not our estimate, as with a session's own counter, it shrinks as much as the estimate does.
    """
    whole = count_tokens(message)
    shown = min(whole, count_tokens(with_notices(message, notices)))
    return tokens * shown // whole


def saved_tokens(message: Message, notices: Mapping[str, str], count: TokenCounter = count_tokens) -> int:
    """Return how many tokens fewer a message takes when its results for these calls are replaced by a notice."""
    return max(0, count(message) - count(with_notices(message, notices)))


def result_length(part: Part) -> int:
    """Return how many characters of a result a part shows."""
    return len(_start_of_result(part)[0])


def _start_of_result(part: Part) -> tuple[str, int]:
    """Return the text of a result without the note that says it is shortened, and the length it had before."""
    text = readable(tool_output(part))
    found = _LEFT_OUT.search(text, max(0, len(text) - _LONGEST_NOTE))
    return (text, len(text)) if found is None else (text[: found.start()], int(found[1].replace(",", "")))


def _with_notice(part: Part, notices: Mapping[str, str]) -> Part:
    notice = notices.get(answered_id(part) or "")
    if notice is None:
        return part
    if found := _RULE.fullmatch(notice):
        (text, total), length = _start_of_result(part), int(found[1])
        if len(text) <= length:
            return part
        notice = f"{text[:length]}… [shortened: {total - length:,} of {total:,} characters are left out]"
    shown = [{"type": "text", "text": notice}] if part["type"] == "tool_result" else notice
    return {**part, output_key(part): shown}
