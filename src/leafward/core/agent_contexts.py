"""What an agent's state holds beside the conversation: permissions, tools, tasks, plan mode.

Each value keeps in `extra` the fields that it does not know, and writes them after its own, where AgentScope for Java
reads past them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from leafward.core.fields import Fields, kind, refuse

Mode = Literal["default", "accept_edits", "explore", "bypass", "dont_ask"]
Behavior = Literal["allow", "deny", "ask", "passthrough"]
TaskState = Literal["pending", "in_progress", "completed"]

MODES = ("default", "accept_edits", "explore", "bypass", "dont_ask")
BEHAVIORS = ("allow", "deny", "ask", "passthrough")
TASK_STATES = ("pending", "in_progress", "completed")

MIN_CACHE_FILES = 1
MIN_CACHE_BYTES = 10_000
"""AgentScope refuses a state whose limits are not above these."""


def hex_id() -> str:
    """Return a fresh id as AgentScope makes them: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def with_extra(known: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return an object's own fields, then those it does not know.

    Raises:
        ValueError: one of those bears the name of a field.
    """
    clash = known.keys() & extra.keys()
    if clash:
        raise ValueError(f"extra holds {sorted(clash)}, which are fields of their own")
    return {**known, **extra}


# ── permissions ──────────────────────────────────────────────────────────────


@dataclass(slots=True)
class PermissionRule:
    """What is done when a tool is called; without `rule_content` it is meant for every call of the tool."""

    tool_name: str
    behavior: Behavior
    source: str
    rule_content: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, value: object, where: str) -> PermissionRule:
        fields = Fields(value, where)
        return cls(
            tool_name=fields.required_text("tool_name"),
            rule_content=fields.text("rule_content"),
            behavior=cast(Behavior, fields.choice("behavior", BEHAVIORS)),
            source=fields.required_text("source"),
            extra=fields.others("tool_name", "rule_content", "behavior", "source"),
        )

    def write(self) -> dict[str, Any]:
        own = {
            "tool_name": self.tool_name,
            "rule_content": self.rule_content,
            "behavior": self.behavior,
            "source": self.source,
        }
        return with_extra(own, self.extra)


@dataclass(slots=True)
class WorkingDirectory:
    """A directory the agent may work in, and who said so."""

    path: str | None
    source: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, value: object, where: str) -> WorkingDirectory:
        fields = Fields(value, where)
        return cls(fields.text("path"), fields.text("source"), fields.others("path", "source"))

    def write(self) -> dict[str, Any]:
        return with_extra({"path": self.path, "source": self.source}, self.extra)


Rules = dict[str, list[PermissionRule]]


@dataclass(slots=True)
class PermissionContext:
    """Which calls run, which are refused and which are asked about; rules stand under the name of their tool."""

    mode: Mode = "default"
    working_directories: dict[str, WorkingDirectory] = field(default_factory=dict[str, WorkingDirectory])
    allow_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    deny_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    ask_rules: Rules = field(default_factory=dict[str, list[PermissionRule]])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, fields: Fields) -> PermissionContext:
        return cls(
            mode=cast(Mode, fields.choice("mode", MODES, "default")),
            working_directories=fields.mapping("working_directories", WorkingDirectory.read),
            allow_rules=fields.mapping("allow_rules", _read_rules),
            deny_rules=fields.mapping("deny_rules", _read_rules),
            ask_rules=fields.mapping("ask_rules", _read_rules),
            extra=fields.others("mode", "working_directories", "allow_rules", "deny_rules", "ask_rules"),
        )

    def write(self) -> dict[str, Any]:
        own = {
            "mode": self.mode,
            "working_directories": {name: each.write() for name, each in self.working_directories.items()},
            "allow_rules": _write_rules(self.allow_rules),
            "deny_rules": _write_rules(self.deny_rules),
            "ask_rules": _write_rules(self.ask_rules),
        }
        return with_extra(own, self.extra)


def _read_rules(value: object, where: str) -> list[PermissionRule]:
    if not isinstance(value, list):
        refuse(where, f"must be a list, not {kind(value)}")
    rules = enumerate(cast(list[object], value))
    return [PermissionRule.read(rule, f"{where}[{index}]") for index, rule in rules]


def _write_rules(rules: Rules) -> dict[str, Any]:
    return {name: [rule.write() for rule in each] for name, each in rules.items()}


# ── tools ────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class SpawnEntry:
    """A child agent that can be made again when its parent is restored."""

    key: str | None
    agent_id: str | None
    session_id: str | None
    label: str | None = None
    depth: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, value: object, where: str) -> SpawnEntry:
        fields = Fields(value, where)
        return cls(
            key=fields.text("key"),
            agent_id=fields.text("agent_id"),
            session_id=fields.text("session_id"),
            label=fields.text("label"),
            depth=fields.integer("depth", 0),
            extra=fields.others("key", "agent_id", "session_id", "label", "depth"),
        )

    def write(self) -> dict[str, Any]:
        own = {
            "key": self.key,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "label": self.label,
            "depth": self.depth,
        }
        return with_extra(own, self.extra)


@dataclass(slots=True)
class ToolContext:
    """Which tool groups are active, the limits of the file cache, and the child agents."""

    max_cache_files: int = 100
    max_cache_bytes: float = 25_000.0
    activated_groups: list[str] = field(default_factory=list[str])
    spawn_registry: dict[str, SpawnEntry] = field(default_factory=dict[str, SpawnEntry])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, fields: Fields) -> ToolContext:
        files = fields.integer("max_cache_files", 100)
        if files <= MIN_CACHE_FILES:
            fields.refuse("max_cache_files", f"is {files}, and must be above {MIN_CACHE_FILES}")
        size = fields.number("max_cache_bytes", 25_000.0)
        if size <= MIN_CACHE_BYTES:
            fields.refuse("max_cache_bytes", f"is {size}, and must be above {MIN_CACHE_BYTES}")
        return cls(
            max_cache_files=files,
            max_cache_bytes=size,
            activated_groups=fields.texts("activated_groups"),
            spawn_registry=fields.mapping("spawn_registry", SpawnEntry.read),
            extra=fields.others("max_cache_files", "max_cache_bytes", "activated_groups", "spawn_registry"),
        )

    def write(self) -> dict[str, Any]:
        size = self.max_cache_bytes
        own = {
            "max_cache_files": self.max_cache_files,
            # Java writes a double, so a whole number is written with its point.
            "max_cache_bytes": float(size) if isinstance(size, int) else size,
            "activated_groups": self.activated_groups,
            "spawn_registry": {name: each.write() for name, each in self.spawn_registry.items()},
        }
        return with_extra(own, self.extra)


# ── tasks ────────────────────────────────────────────────────────────────────


def _now() -> str:
    return datetime.now(UTC).astimezone().isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Task:
    """One thing to do. `created_at` is ISO text with an offset, kept as it was written."""

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

    @classmethod
    def read(cls, value: object, where: str) -> Task:
        fields = Fields(value, where)
        return cls(
            subject=fields.required_text("subject"),
            description=fields.required_text("description"),
            metadata=fields.object("metadata").values,
            created_at=_or_fresh(fields.text("created_at"), _now()),
            state=cast(TaskState, fields.choice("state", TASK_STATES, "pending")),
            id=_or_fresh(fields.text("id"), hex_id()),
            owner=fields.text("owner"),
            blocks=fields.texts("blocks"),
            blocked_by=fields.texts("blocked_by"),
            extra=fields.others(*_TASK_KEYS),
        )

    def write(self) -> dict[str, Any]:
        return with_extra({key: getattr(self, key) for key in _TASK_KEYS}, self.extra)


_TASK_KEYS = ("subject", "description", "metadata", "created_at", "state", "id", "owner", "blocks", "blocked_by")


def _or_fresh(found: str | None, fresh: str) -> str:
    return fresh if found is None else found


@dataclass(slots=True)
class TasksContext:
    """The agent's list of things to do."""

    tasks: list[Task] = field(default_factory=list[Task])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, fields: Fields) -> TasksContext:
        return cls([Task.read(item, where) for item, where in fields.items("tasks")], fields.others("tasks"))

    def write(self) -> dict[str, Any]:
        return with_extra({"tasks": [task.write() for task in self.tasks]}, self.extra)


# ── plan mode ────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class PlanModeContext:
    """Whether the agent only plans, and the file of its plan, which stays named after planning ends."""

    plan_active: bool = False
    current_plan_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, fields: Fields) -> PlanModeContext:
        return cls(
            plan_active=fields.flag("plan_active"),
            current_plan_file=fields.text("current_plan_file"),
            extra=fields.others("plan_active", "current_plan_file"),
        )

    def write(self) -> dict[str, Any]:
        own = {"plan_active": self.plan_active, "current_plan_file": self.current_plan_file}
        return with_extra(own, self.extra)
