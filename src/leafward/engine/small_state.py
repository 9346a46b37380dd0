"""What an agent's state holds beside the conversation, as the document that is attached to a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from leafward.core.agent_contexts import PermissionContext
from leafward.core.agent_records import read_record, write_record
from leafward.core.agent_state import AgentState
from leafward.core.attached_state import TURN
from leafward.core.message import Message

MARK = "leafward"
"""The key by which a slot says which point of the tree it shows. AgentScope drops it when it saves."""
_RUNNING = "running"
ACCEPTED = "leafward_accepted"
"""The key of a rule that came with an answer to a question."""
PLAN = "leafward.plan"
"""The key of the text of a plan, which stays in the tree: a slot does not have it."""
CHANGES = "leafward.changes"
"""The key of the ids of changes that were made and still wait in the store, which stays in the tree as well."""
_IN_TREE = (PLAN, CHANGES)
_OF_THE_SESSION = ("session_id", "user_id", "context", "shutdown_interrupted", MARK)
"""What a copy of the session has otherwise, or what the tree says in another way."""


def without_marks(state: AgentState) -> AgentState:
    """Return a state without what only this library says in it: the point of the tree, and the note of a turn.

    Which calls may have begun is still said: whoever goes on with the state has to know.
    """
    extra = {name: value for name, value in state.extra.items() if name not in (MARK, TURN)}
    mark = mark_in_doubt(reply_in_doubt(state.extra.get(MARK)))
    return replace(state, extra={**extra, MARK: mark} if mark else extra)


def mark_in_doubt(reply_id: str | None) -> dict[str, Any]:
    """Return the mark that says that calls without results, those of a reply, may have begun; empty without one."""
    return {} if reply_id is None else {_RUNNING: reply_id}


def reply_in_doubt(mark: object) -> str | None:
    """Return the reply of whose calls a mark says that they may have begun."""
    found = cast(dict[str, Any], mark).get(_RUNNING) if isinstance(mark, dict) else None
    return found if isinstance(found, str) else None


def plan_text(state: AgentState) -> str | None:
    """Return the plan of a session, `None` without one."""
    found = state.extra.get(PLAN)
    return found if isinstance(found, str) else None


def without_own(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a slot has of the `extra` of a state: not what stays in the tree."""
    return {key: value for key, value in extra.items() if key not in _IN_TREE}


def keep_own(theirs: dict[str, Any], ours: Mapping[str, Any]) -> None:
    """Give what another writer saved the plan and the changes that are ours, unless it says itself which there are."""
    for key in _IN_TREE:
        found = theirs.pop(key, ours.get(key))
        if found is not None:
            theirs[key] = found


def take_mark(state: AgentState) -> dict[str, Any]:
    """Take out of a slot's state what it says of the tree; empty if that is nothing that we write."""
    mark = state.extra.pop(MARK, None)
    return cast(dict[str, Any], mark) if isinstance(mark, dict) else {}


def keep_accepted(theirs: PermissionContext, ours: PermissionContext) -> None:
    """Give rules that another writer saved the mark of an accepted rule, which it does not know."""
    for rules, known in (
        (theirs.allow_rules, ours.allow_rules),
        (theirs.deny_rules, ours.deny_rules),
        (theirs.ask_rules, ours.ask_rules),
    ):
        for tool_name, listed in rules.items():
            accepted = [replace(one, extra={}) for one in known.get(tool_name, ()) if one.extra.get(ACCEPTED)]
            for rule in listed:
                if replace(rule, extra={}) in accepted:
                    rule.extra.setdefault(ACCEPTED, True)


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


def put_back(state: AgentState, document: dict[str, Any] | None) -> None:
    """Have everything of a state but its messages as a document says; without one, nothing changes."""
    if document is None:
        return
    stored = read_small_state(document, user_id=state.user_id, session_id=state.session_id, context=state.context)
    for one in fields(AgentState):
        if one.compare:
            setattr(state, one.name, getattr(stored, one.name))


def check_small_state(state: AgentState) -> None:
    """Refuse a state that could not be read again.

    Raises:
        ValueError: a field of it has another type than it should, or holds what JSON cannot.
    """
    replace(state, context=[]).to_json()
