"""How a call begins: what its input means where the conversation stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leafward.core.calls import Call, Result, pair
from leafward.core.message import Dumpable, Message, as_message, body_to_read, has_made_id, user

Input = str | Message | Mapping[str, Any] | Dumpable | Sequence[str | Message | Mapping[str, Any] | Dumpable] | None
"""What an agent is called with; `None` goes on with an open turn."""


def read_input(given: Input) -> list[Message]:
    """Return the messages of an input.

    Raises:
        ValueError: one has the role `system`, or two have one id.
    """
    if given is None:
        return []
    items = list(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]
    if not items:
        raise ValueError("the input is an empty list: send a message, or None to go on with an open turn")
    messages = [user(item) if isinstance(item, str) else as_message(item) for item in items]
    for message in messages:
        if message.role == "system":
            raise ValueError("the input has the role 'system': set the agent's system_prompt, or send it as the user's")
    ids = [message.id for message in messages]
    if len(set(ids)) != len(ids):
        raise ValueError("two messages of the input have one id: send each once")
    return messages


def read_sent(message: Any) -> Message:
    """Return the message that is sent to a running turn.

    Raises:
        ValueError: it is not one message of the user's.
    """
    messages = read_input(message)
    if len(messages) != 1 or messages[0].role != "user":
        raise ValueError("one message of the user's is sent to a running turn: send several one after the other")
    return messages[0]


def results_as_stored(given: Sequence[Message], context: Sequence[Message], open: Sequence[Call]) -> list[Message]:
    """Return an input in which results that were sent before, without an id of their own, are the stored ones."""
    waiting = {call.id for call in open}
    return [_stored(message, context, waiting) if has_made_id(message) else message for message in given]


def _stored(message: Message, context: Sequence[Message], waiting: set[str]) -> Message:
    answered = {item.call_id for item in pair([message]).items[0] if isinstance(item, Result)}
    # A model may use the id of an earlier call again: then the same words are another result.
    if not answered or answered & waiting:
        return message
    said = (message.role, body_to_read(message)["parts"])
    same = (one for one in reversed(context) if (one.role, body_to_read(one)["parts"]) == said)
    return next(same, message)


def check_whole(input: Sequence[Message]) -> None:
    """Refuse input that holds calls without results, which nothing here has asked for.

    Raises:
        ValueError: it does.
    """
    pairs = pair(input)
    calls = [item for row in pairs.items for item in row if isinstance(item, Call) and pairs.is_waiting(item)]
    if calls:
        raise ValueError(f"the input holds a call without a result, {calls[0].id!r}: send the result with it")


def results_for(open: Sequence[Call], messages: Sequence[Message]) -> bool:
    """Tell whether the input is the results of calls that wait for them.

    Raises:
        ValueError: it holds a result for a call that does not wait, or two for one call.
    """
    pairs = pair(messages)
    answered = [result.call_id for result in sorted(pairs.orphans, key=pairs.places.__getitem__)]
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
