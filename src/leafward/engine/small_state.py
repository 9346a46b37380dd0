"""What an agent's state holds beside the conversation, as the document that is attached to a message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leafward.core.agent_records import read_record, write_record
from leafward.core.agent_state import AgentState
from leafward.core.message import Message

MARK = "leafward"
"""The key by which a slot says which point of the tree it shows. AgentScope drops it when it saves."""
_OF_THE_SESSION = ("session_id", "user_id", "context", "shutdown_interrupted", MARK)
"""What a copy of the session has otherwise, or what the tree says in another way."""


def state_name_in_tree(state_name: str) -> str:
    """Return the name of the attached state that holds the small state."""
    return f"leafward.state:{state_name}"


def view_name_in_tree(state_name: str) -> str:
    """Return the name of the attached state that holds the view."""
    return f"leafward.view:{state_name}"


def write_small_state(state: AgentState) -> dict[str, Any]:
    """Return everything of a state but its messages, as plain values."""
    document = write_record(replace(state, context=[]))
    return {key: value for key, value in document.items() if key not in _OF_THE_SESSION}


def read_small_state(
    document: dict[str, Any], *, user_id: str | None, session_id: str, context: list[Message]
) -> AgentState:
    """Return the state that a document and the messages of a path make up.

    Raises:
        StateDecodeError: the document is not such a state.
    """
    state = read_record(AgentState, {**document, "session_id": session_id, "user_id": user_id})
    state.context = context
    return state
