"""Sessions as AgentScope kept them before 1.0.5, one document for all components, in the states of today."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from leafward.core.agent_messages import ROLES, read_messages
from leafward.core.fields import Fields, kind, refuse
from leafward.core.times import parse_local

MESSAGES = "memory_messages"
GROUPS = "toolkit_activeGroups"
PLAN = "planNotebook_state"
META = "agent_meta"

_PLANS = ("planNotebook", "plan_notebook")
_KNOWN = ("memory", "toolkit", *_PLANS)
"""Components that stand by themselves, or in that of their agent."""


def read_legacy(blob: object) -> dict[str, dict[str, Any] | list[dict[str, Any]]]:
    """Return the states, values and lists by name, that a session's one document amounts to.

    Messages become `Msg` objects as AgentScope writes them today. A component of its own keeps its name and content.

    Raises:
        StateDecodeError: it is not such a document; the reason names the place.
    """
    whole = Fields(blob, "")
    agent = whole.object("agent")
    states: dict[str, dict[str, Any] | list[dict[str, Any]]] = {}
    meta = agent.others(*_KNOWN)
    if meta:
        states[META] = meta
    memories = [above.object("memory") for above in (whole, agent)]
    if any("messages" in memory.values for memory in memories):
        found = next((memory for memory in memories if memory.values.get("messages")), memories[0])
        states[MESSAGES] = read_legacy_messages((item for item, _ in found.items("messages")), found.place("messages"))
    for above in (agent, whole):
        if "activeGroups" in above.object("toolkit").values:
            states[GROUPS] = {"activeGroups": above.object("toolkit").texts("activeGroups")}
        for name in _PLANS:
            if name in above.values:
                plan = above.object(name).values
                states[PLAN] = plan if "currentPlan" in plan else {"currentPlan": plan or None}
    for name, component in whole.others("agent", *_KNOWN).items():
        states[name] = _component(component)
    return states


def _component(value: object) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in cast(list[object], value)):
        return cast(list[dict[str, Any]], value)
    return {"value": value}


def read_legacy_messages(items: Iterable[object], where: str) -> list[dict[str, Any]]:
    """Return messages as `Msg` objects; a role may be in any case, a content a text, and most of the rest missing.

    Raises:
        StateDecodeError: one of them is no message.
    """
    found = [_message(Fields(item, f"{where}[{index}]")) for index, item in enumerate(items)]
    read_messages([(message, f"{where}[{index}]") for index, message in enumerate(found)], roles=False)
    return found


def _message(fields: Fields) -> dict[str, Any]:
    role = fields.required_text("role")
    if role.lower() not in ROLES:
        fields.refuse("role", f"is {role!r}, not one of {', '.join(ROLES)}")
    timestamp, rest = _timestamp(fields.values.get("timestamp"))
    return {
        "id": fields.text("id"),
        "name": fields.text("name"),
        "role": ROLES[role.lower()],
        "content": _content(fields),
        "metadata": fields.object("metadata").values,
        "timestamp": timestamp,
        "usage": fields.values.get("usage"),
        **rest,
        **fields.others("id", "name", "role", "content", "metadata", "timestamp", "usage"),
    }


def _content(fields: Fields) -> list[Any]:
    content = fields.values.get("content")
    if content is None:
        return []
    if isinstance(content, list):
        return [_block(item) for item in cast(list[object], content) if item is not None]
    if isinstance(content, (str, dict)):
        return [_block(cast(object, content))]
    refuse(fields.place("content"), f"is a text or a list of blocks, not {kind(content)}")


def _block(item: object) -> object:
    return {"type": "text", "text": item} if isinstance(item, str) else item


def _timestamp(value: object) -> tuple[str | None, dict[str, Any]]:
    """Return a time that can be read as one; another is kept beside it."""
    if value is None:
        return None, {}
    if isinstance(value, str):
        try:
            parse_local(value)
        except (ValueError, OverflowError):
            return None, {"legacy_timestamp": value}
        return value, {}
    return None, {"legacy_timestamp": value}
