"""Why a turn ended, as its reply says it."""

from __future__ import annotations

from typing import Any

from leafward.core.message import Message, message_copy, message_sharing

REASON = "agentscope_generate_reason"
"""The key of a reply's metadata that says why the turn ended, in AgentScope's words."""


def with_reason(message: Message, reason: str) -> Message:
    """Return a reply that says why the turn ended; it shares nothing with the message that is in the conversation."""
    body = message_copy(message).body
    metadata: dict[str, Any] = {**(body.get("metadata") or {}), REASON: reason}
    return message_sharing(message.id, message.role, message.at, {**body, "metadata": metadata})


def interrupted_reply(name: str) -> Message:
    """Return the reply of a turn that was interrupted before the model had said anything."""
    return Message("assistant", [], name=name, metadata={REASON: "INTERRUPTED"})
