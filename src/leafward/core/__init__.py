"""What a conversation is: plain values and pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.core.agent_contexts import PermissionContext as PermissionContext
    from leafward.core.agent_contexts import PermissionRule as PermissionRule
    from leafward.core.agent_contexts import PlanModeContext as PlanModeContext
    from leafward.core.agent_contexts import SpawnEntry as SpawnEntry
    from leafward.core.agent_contexts import Task as Task
    from leafward.core.agent_contexts import TasksContext as TasksContext
    from leafward.core.agent_contexts import ToolContext as ToolContext
    from leafward.core.agent_contexts import WorkingDirectory as WorkingDirectory
    from leafward.core.agent_state import AgentState as AgentState
    from leafward.core.agent_state import InterruptControl as InterruptControl
    from leafward.core.ids import Owner as Owner
    from leafward.core.ids import Scope as Scope
    from leafward.core.info import SessionInfo as SessionInfo
    from leafward.core.message import Message as Message
    from leafward.core.message import as_message as as_message
    from leafward.core.message import assistant as assistant
    from leafward.core.message import system as system
    from leafward.core.message import tool_result as tool_result
    from leafward.core.message import user as user
    from leafward.core.overlays import Compaction as Compaction
    from leafward.core.parent import LATEST_LEAF as LATEST_LEAF
    from leafward.core.parent import LatestLeaf as LatestLeaf
    from leafward.core.parent import ParentId as ParentId
    from leafward.core.prompt import ContextBlock as ContextBlock
    from leafward.core.ranking import SearchResult as SearchResult
    from leafward.core.session_key import SessionKey as SessionKey
    from leafward.core.tokens import TokenCounter as TokenCounter
    from leafward.core.tokens import count_tokens as count_tokens
    from leafward.core.tokens import estimate_tokens as estimate_tokens
    from leafward.core.tree import TreeNode as TreeNode

_HOMES = {
    "leafward.core.agent_contexts": (
        "PermissionContext",
        "PermissionRule",
        "PlanModeContext",
        "SpawnEntry",
        "Task",
        "TasksContext",
        "ToolContext",
        "WorkingDirectory",
    ),
    "leafward.core.agent_state": (
        "AgentState",
        "InterruptControl",
    ),
    "leafward.core.ids": (
        "Owner",
        "Scope",
    ),
    "leafward.core.info": ("SessionInfo",),
    "leafward.core.message": (
        "Message",
        "as_message",
        "assistant",
        "system",
        "tool_result",
        "user",
    ),
    "leafward.core.overlays": ("Compaction",),
    "leafward.core.parent": (
        "LATEST_LEAF",
        "LatestLeaf",
        "ParentId",
    ),
    "leafward.core.prompt": ("ContextBlock",),
    "leafward.core.ranking": ("SearchResult",),
    "leafward.core.session_key": ("SessionKey",),
    "leafward.core.tokens": (
        "TokenCounter",
        "count_tokens",
        "estimate_tokens",
    ),
    "leafward.core.tree": ("TreeNode",),
}

__all__ = [
    "LATEST_LEAF",
    "AgentState",
    "Compaction",
    "ContextBlock",
    "InterruptControl",
    "LatestLeaf",
    "Message",
    "Owner",
    "ParentId",
    "PermissionContext",
    "PermissionRule",
    "PlanModeContext",
    "Scope",
    "SearchResult",
    "SessionInfo",
    "SessionKey",
    "SpawnEntry",
    "Task",
    "TasksContext",
    "TokenCounter",
    "ToolContext",
    "TreeNode",
    "WorkingDirectory",
    "as_message",
    "assistant",
    "count_tokens",
    "estimate_tokens",
    "system",
    "tool_result",
    "user",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
