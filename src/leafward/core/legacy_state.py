"""Sessions as AgentScope kept them before 1.0.5, one document for all components, in the states of today."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType, field

from leafward.core.agent_messages import ROLES, Role, read_messages
from leafward.core.agent_records import read_as, read_object, refuse
from leafward.core.coercion import coerced
from leafward.core.untrusted import place

MESSAGES = "memory_messages"
GROUPS = "toolkit_activeGroups"
PLAN = "planNotebook_state"
META = "agent_meta"

_PLANS = ("planNotebook", "plan_notebook")
_KNOWN = ("memory", "toolkit", *_PLANS)
"""Components that stand by themselves, or in that of their agent."""


class _Memory(Struct):
    messages: list[Any] | UnsetType | None = UNSET


class _Toolkit(Struct):
    active_groups: list[str] | UnsetType | None = field(default=UNSET, name="activeGroups")


class _Components(Struct):
    memory: _Memory | None = None
    toolkit: _Toolkit | None = None
    plan: dict[str, Any] | UnsetType | None = field(default=UNSET, name=_PLANS[0])
    older_plan: dict[str, Any] | UnsetType | None = field(default=UNSET, name=_PLANS[1])


class _Document(_Components):
    agent: _Components | None = None


def read_legacy(blob: object) -> dict[str, dict[str, Any] | list[dict[str, Any]]]:
    """Return the states, values and lists by name, that a session's one document amounts to.

    Messages become `Msg` objects as AgentScope writes them today. A custom component keeps its name and content.

    Raises:
        StateDecodeError: it is not such a document; the reason names the place.
    """
    given = read_object(blob, "")
    whole = read_as(_Document, given, "")
    agent = whole.agent or _Components()
    states: dict[str, dict[str, Any] | list[dict[str, Any]]] = {}
    meta = _others(given.get("agent") or {}, *_KNOWN)
    if meta:
        states[META] = meta
    memories = [(whole.memory or _Memory(), "memory.messages"), (agent.memory or _Memory(), "agent.memory.messages")]
    if any(memory.messages is not UNSET for memory, _ in memories):
        found, where = next(((memory, where) for memory, where in memories if memory.messages), memories[0])
        states[MESSAGES] = read_legacy_messages(found.messages or (), where)
    for above in (agent, whole):
        groups = UNSET if above.toolkit is None else above.toolkit.active_groups
        if groups is not UNSET:
            states[GROUPS] = {"activeGroups": groups or []}
        for plan in (above.plan, above.older_plan):
            if plan is not UNSET:
                states[PLAN] = plan if plan and "currentPlan" in plan else {"currentPlan": plan or None}
    for name, component in _others(given, "agent", *_KNOWN).items():
        states[name] = _component(component)
    return states


def _others(given: dict[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in known}


def _component(value: object) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in cast(list[object], value)):
        return cast(list[dict[str, Any]], value)
    return {"value": value}


class _OldMsg(Struct):
    role: str | None = None
    id: str | None = None
    name: str | None = None
    timestamp: str | None = None
    content: str | dict[str, Any] | list[Any] | None = None
    metadata: dict[str, Any] | None = None


def read_legacy_messages(items: Iterable[object], where: str) -> list[dict[str, Any]]:
    """Return messages as `Msg` objects; a role may be in any case, a content a text, and most of the rest missing.

    Null is left out.

    Raises:
        StateDecodeError: one of them is not a message.
    """
    places = [(item, f"{where}[{index}]") for index, item in enumerate(items)]
    found = [(_message(item, there), there) for item, there in places if item is not None]
    read_messages([*found], roles=False)
    return [message for message, _ in found]


def _message(item: object, where: str) -> dict[str, Any]:
    given = read_object(item, where)
    words = {key: given[key] for key in ("id", "name", "timestamp") if key in given}
    role = coerced(given.get("role"), Role, ordinals=True)
    old = read_as(_OldMsg, given | coerced(words, _OldMsg) | {"role": role}, where)
    if old.role is not None and old.role.lower() not in ROLES:
        refuse(place(where, "role"), f"is {old.role!r}, not one of {', '.join(ROLES)}")
    return {
        "id": old.id,
        "name": old.name,
        "role": None if old.role is None else ROLES[old.role.lower()],
        "content": _content(old.content),
        "metadata": old.metadata or {},
        "timestamp": old.timestamp,
        "usage": given.get("usage"),
        **_others(given, "id", "name", "role", "content", "metadata", "timestamp", "usage"),
    }


def _content(content: str | dict[str, Any] | list[Any] | None) -> list[Any]:
    blocks: list[Any] = content if isinstance(content, list) else [content]
    return [_block(item) for item in blocks if item is not None]


def _block(item: object) -> object:
    return {"type": "text", "text": item} if isinstance(item, str) else item
