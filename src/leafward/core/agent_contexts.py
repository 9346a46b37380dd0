"""What an agent's state holds beside the conversation: permissions, tools, tasks, plan mode."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from leafward.core.agent_records import Int32, Record, stored

Mode = Literal["default", "accept_edits", "explore", "bypass", "dont_ask"]
Behavior = Literal["allow", "deny", "ask", "passthrough"]
TaskState = Literal["pending", "in_progress", "completed"]

CacheFiles = Annotated[int, msgspec.Meta(gt=1, le=2**31 - 1)]
CacheBytes = Annotated[float, msgspec.Meta(gt=10_000)]
"""AgentScope refuses a state with lower limits."""


def hex_id() -> str:
    """Return a fresh id as AgentScope makes them: 32 hexadecimal digits."""
    return secrets.token_hex(16)


# ── permissions ──────────────────────────────────────────────────────────────


@dataclass(slots=True)
class PermissionRule(Record):
    """What is done when a tool is called; without `rule_content` it is meant for every call of the tool."""

    tool_name: str
    behavior: Behavior
    source: str
    rule_content: str | None = field(default=None, metadata=stored(after="tool_name"))
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class WorkingDirectory(Record):
    """A directory the agent may work in, and who said so."""

    path: str | None
    source: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


Rules = dict[str, list[PermissionRule]]


@dataclass(slots=True)
class PermissionContext(Record):
    """Which calls run, which are refused and which are asked about; rules stand under the name of their tool."""

    mode: Mode = "default"
    working_directories: dict[str, WorkingDirectory] = field(default_factory=dict[str, WorkingDirectory])
    allow_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    deny_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    ask_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


# ── tools ────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class SpawnEntry(Record):
    """A child agent that can be made again when its parent is restored."""

    key: str | None
    agent_id: str | None
    session_id: str | None
    label: str | None = None
    depth: Int32 = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class ToolContext(Record):
    """Which tool groups are active, the limits of the file cache, and the child agents."""

    max_cache_files: CacheFiles = 100
    max_cache_bytes: CacheBytes = 25_000.0
    activated_groups: list[str] = field(default_factory=list[str])
    spawn_registry: dict[str, SpawnEntry] = field(default_factory=dict[str, SpawnEntry])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


# ── tasks ────────────────────────────────────────────────────────────────────


def _now() -> str:
    return datetime.now(UTC).astimezone().isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Task(Record):
    """One thing to do. `created_at` is ISO text with an offset, kept as written."""

    subject: str
    description: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    created_at: str = field(default_factory=_now)
    state: TaskState = "pending"
    id: str = field(default_factory=hex_id)
    owner: str | None = None
    blocks: list[str] = field(default_factory=list[str])
    blocked_by: list[str] = field(default_factory=list[str])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class TasksContext(Record):
    """The agent's list of things to do."""

    tasks: list[Task] = field(default_factory=list[Task])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


# ── plan mode ────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class PlanModeContext(Record):
    """Whether the agent only plans, and the file of its plan, which stays named after planning ends."""

    plan_active: bool = False
    current_plan_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
