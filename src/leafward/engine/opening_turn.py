"""How a call begins: what its input means where the conversation stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leafward.core.calls import Call, Result, pair
from leafward.core.message import Dumpable, Message, as_message, user

Input = str | Message | Mapping[str, Any] | Dumpable | Sequence[str | Message | Mapping[str, Any] | Dumpable] | None
"""What an agent is called with; `None` goes on with an open turn."""

_FRESH_ID = re.compile("[0-9a-z]{26}")
"""What an id looks like that was made for a message because none was given."""


class Given(NamedTuple):
    """The input of a call."""

    messages: list[Message]
    have_ids: list[bool]
    """Whether the caller gave each its id."""


def read_input(given: Input) -> Given:
    """Return the messages of an input.

    Raises:
        ValueError: one has the role `system`, or two have one id.
    """
    if given is None:
        return Given([], [])
    items = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not items:
        raise ValueError("the input is an empty list: send a message, or None to go on with an open turn")
    messages = [user(item) if isinstance(item, str) else as_message(item) for item in items]
    for message in messages:
        if message.role == "system":
            raise ValueError("the input has the role 'system': set the agent's system_prompt, or send it as the user's")
    ids = [message.id for message in messages]
    if len(set(ids)) != len(ids):
        raise ValueError("two messages of the input have one id: send each once")
    return Given(messages, [_FRESH_ID.fullmatch(id) is None for id in ids])


def results_for(open: Sequence[Call], messages: Sequence[Message]) -> bool:
    """Tell whether the input is the results of calls that wait for them.

    Raises:
        ValueError: it holds a result for a call that does not wait, or two for one call.
    """
    answered = [item.call_id for row in pair(messages).items for item in row if isinstance(item, Result)]
    if not answered:
        return False
    waiting = {call.id for call in open}
    strange = [call_id for call_id in answered if call_id not in waiting]
    if strange:
        known = ", ".join(sorted(waiting)) or "none"
        raise ValueError(f"no call {strange[0]!r} waits for a result; those that wait: {known}")
    if len(set(answered)) != len(answered):
        raise ValueError("the input holds two results for one call: send one")
    return True
