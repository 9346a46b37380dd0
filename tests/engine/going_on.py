"""Whether a session goes on: a plain next call is answered, and what the model is asked has a result for every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leafward import Message, RuntimeContext
from leafward.core.calls import Call, pair
from leafward.engine.agent import ReActAgent
from leafward.testing import ScriptedModel

ALICE = RuntimeContext("alice", "s1")


def is_paired(messages: Sequence[Message]) -> bool:
    """Tell whether every call has a final result, and every result a call."""
    found = pair(messages)
    calls = [item for row in found.items for item in row if isinstance(item, Call)]
    return not found.orphans and not any(found.is_waiting(call) for call in calls)


async def goes_on(
    store: Any, *, ctx: RuntimeContext = ALICE, stored_is_paired: bool = True, **options: Any
) -> list[Message]:
    """Make a plain next call, as another process would, and return what its model was asked."""
    model = ScriptedModel(["Going on."])
    agent = ReActAgent("cook", model, store=store, **options)

    reply = await agent.call("And now?", ctx)

    assert reply.text == "Going on."
    (request,) = model.requests
    assert is_paired(request.messages)
    assert request.messages[-1].text == "And now?"
    stored = await agent.session(ctx.user_id, ctx.session_id).get_history()
    assert is_paired(stored) or not stored_is_paired
    assert [message.text for message in stored[-2:]] == ["And now?", "Going on."]
    state = await agent.get_agent_state(ctx.user_id, ctx.session_id)
    assert [message.id for message in state.context][-1] == reply.id
    return list(request.messages)


def results(messages: Sequence[Message]) -> dict[str, tuple[str, str]]:
    """Return the results in a conversation: state and text, by the id of their call."""
    found: dict[str, tuple[str, str]] = {}
    for message in messages:
        for part in message.parts:
            if part["type"] == "tool_result":
                text = "\n".join(block.get("text", "") for block in part["output"])
                found[part["id"]] = part["state"], text
    return found
