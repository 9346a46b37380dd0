"""Agent states of every shape, for the laws that all of them keep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from hypothesis import strategies as st

from leafward.core.agent_contexts import (
    Mode,
    PermissionContext,
    PermissionRule,
    PlanModeContext,
    SpawnEntry,
    Task,
    TasksContext,
    TaskState,
    ToolContext,
    WorkingDirectory,
)
from leafward.core.agent_state import AgentState
from leafward.core.message import Message

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
EXTRA = st.dictionaries(st.text("xyz", min_size=1, max_size=4).map("x_".__add__), JSON, max_size=2)
RULES = st.dictionaries(
    TEXT,
    st.lists(
        st.builds(
            PermissionRule,
            TEXT,
            st.sampled_from(["allow", "deny", "ask"]),
            TEXT,
            st.none() | TEXT,
            EXTRA,
        ),
        max_size=2,
    ),
    max_size=2,
)
PARTS = st.one_of(
    st.builds(lambda text, extra: {**extra, "type": "text", "text": text}, TEXT, EXTRA),
    st.builds(lambda kind, body: {**body, "type": kind}, st.sampled_from(["text", "tool_use", "tool_result"]), EXTRA),
    st.builds(lambda kind, body: {**body, "type": kind}, TEXT, st.dictionaries(TEXT, JSON, max_size=2)),
)
NAMES = st.text("abc", min_size=1, max_size=4)
TIMES = st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
MESSAGES = st.builds(
    lambda role, parts, extra, **fields: Message(role, parts, **fields, **extra),
    st.sampled_from(["user", "assistant", "system", "tool", "developer", "Tool"]),
    st.lists(PARTS, max_size=3),
    st.fixed_dictionaries({}, optional={"usage": JSON, "timestamp": JSON, "content": JSON, "leafward_provider": JSON}),
    id=NAMES,
    name=st.none() | TEXT,
    created_at=TIMES,
    metadata=st.none() | st.dictionaries(TEXT, JSON, max_size=2),
)
TASKS = st.builds(
    Task,
    TEXT,
    TEXT,
    state=st.sampled_from(get_args(TaskState)),
    owner=st.none() | TEXT,
    blocks=st.lists(TEXT, max_size=2),
    metadata=EXTRA,
    extra=EXTRA,
)
STATES = st.builds(
    AgentState,
    session_id=TEXT,
    user_id=st.none() | TEXT,
    summary=TEXT,
    context=st.lists(MESSAGES, max_size=3),
    cur_iter=st.integers(0, 2**31 - 1),
    shutdown_interrupted=st.booleans(),
    permission_context=st.builds(
        PermissionContext,
        mode=st.sampled_from(get_args(Mode)),
        working_directories=st.dictionaries(TEXT, st.builds(WorkingDirectory, TEXT, TEXT, EXTRA), max_size=1),
        allow_rules=RULES,
        ask_rules=RULES,
        extra=EXTRA,
    ),
    tool_context=st.builds(
        ToolContext,
        max_cache_files=st.integers(2, 2**31 - 1),
        max_cache_bytes=st.floats(10001, 1e12),
        activated_groups=st.lists(TEXT, max_size=2),
        spawn_registry=st.dictionaries(TEXT, st.builds(SpawnEntry, TEXT, TEXT, TEXT, extra=EXTRA), max_size=1),
        extra=EXTRA,
    ),
    tasks_context=st.builds(TasksContext, st.lists(TASKS, max_size=2), EXTRA),
    plan_mode_context=st.builds(PlanModeContext, st.booleans(), st.none() | TEXT, EXTRA),
    extra=EXTRA,
)
