"""leafward: the durable session layer for LLM agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.core.agent_state import AgentState as AgentState
    from leafward.core.errors import AgentShuttingDown as AgentShuttingDown
    from leafward.core.errors import BlockNotFound as BlockNotFound
    from leafward.core.errors import BudgetExceeded as BudgetExceeded
    from leafward.core.errors import CompactionFailed as CompactionFailed
    from leafward.core.errors import ConfigurationError as ConfigurationError
    from leafward.core.errors import Conflict as Conflict
    from leafward.core.errors import ContextError as ContextError
    from leafward.core.errors import CorruptStore as CorruptStore
    from leafward.core.errors import InvalidId as InvalidId
    from leafward.core.errors import LeafwardError as LeafwardError
    from leafward.core.errors import LeaseBusy as LeaseBusy
    from leafward.core.errors import LeaseLost as LeaseLost
    from leafward.core.errors import MessageNotFound as MessageNotFound
    from leafward.core.errors import MessageTooLarge as MessageTooLarge
    from leafward.core.errors import NotFound as NotFound
    from leafward.core.errors import OutcomeUnknown as OutcomeUnknown
    from leafward.core.errors import SessionExists as SessionExists
    from leafward.core.errors import SessionNotFound as SessionNotFound
    from leafward.core.errors import StaleSession as StaleSession
    from leafward.core.errors import StaleState as StaleState
    from leafward.core.errors import StateDecodeError as StateDecodeError
    from leafward.core.errors import StorageFull as StorageFull
    from leafward.core.errors import StoreError as StoreError
    from leafward.core.errors import ToolError as ToolError
    from leafward.core.info import SessionInfo as SessionInfo
    from leafward.core.message import Message as Message
    from leafward.core.message import assistant as assistant
    from leafward.core.message import system as system
    from leafward.core.message import tool_result as tool_result
    from leafward.core.message import user as user
    from leafward.core.parent import LATEST_LEAF as LATEST_LEAF
    from leafward.core.prompt import ContextBlock as ContextBlock
    from leafward.core.ranking import SearchResult as SearchResult
    from leafward.core.session_key import SessionKey as SessionKey
    from leafward.engine.agent import ReActAgent as ReActAgent
    from leafward.engine.compaction_config import CompactionConfig as CompactionConfig
    from leafward.portal import blocking as blocking
    from leafward.sessions.default_compaction import create_compact_function as create_compact_function
    from leafward.sessions.manager import SessionManager as SessionManager
    from leafward.sessions.providers import StaticContext as StaticContext
    from leafward.sessions.providers import StoredContextProvider as StoredContextProvider
    from leafward.sessions.providers import StoredSearchProvider as StoredSearchProvider
    from leafward.sessions.session import Session as Session
    from leafward.sessions.skills import BucketSkillProvider as BucketSkillProvider
    from leafward.sessions.skills import DirectorySkillProvider as DirectorySkillProvider
    from leafward.stores.opening import open_store as open_store
    from leafward.tools.definition import Tool as Tool
    from leafward.tools.function_tools import tool as tool
    from leafward.tools.runtime_context import RuntimeContext as RuntimeContext
    from leafward.tools.tool_set import ToolSet as ToolSet
    from leafward.tools.toolkit import Toolkit as Toolkit

_HOMES = {
    "leafward.core.agent_state": ("AgentState",),
    "leafward.core.errors": (
        "AgentShuttingDown",
        "BlockNotFound",
        "BudgetExceeded",
        "CompactionFailed",
        "ConfigurationError",
        "Conflict",
        "ContextError",
        "CorruptStore",
        "InvalidId",
        "LeafwardError",
        "LeaseBusy",
        "LeaseLost",
        "MessageNotFound",
        "MessageTooLarge",
        "NotFound",
        "OutcomeUnknown",
        "SessionExists",
        "SessionNotFound",
        "StaleSession",
        "StaleState",
        "StateDecodeError",
        "StorageFull",
        "StoreError",
        "ToolError",
    ),
    "leafward.core.info": ("SessionInfo",),
    "leafward.core.message": (
        "Message",
        "assistant",
        "system",
        "tool_result",
        "user",
    ),
    "leafward.core.parent": ("LATEST_LEAF",),
    "leafward.core.prompt": ("ContextBlock",),
    "leafward.core.ranking": ("SearchResult",),
    "leafward.core.session_key": ("SessionKey",),
    "leafward.engine.agent": ("ReActAgent",),
    "leafward.engine.compaction_config": ("CompactionConfig",),
    "leafward.portal": ("blocking",),
    "leafward.sessions.default_compaction": ("create_compact_function",),
    "leafward.sessions.manager": ("SessionManager",),
    "leafward.sessions.providers": (
        "StaticContext",
        "StoredContextProvider",
        "StoredSearchProvider",
    ),
    "leafward.sessions.session": ("Session",),
    "leafward.sessions.skills": (
        "BucketSkillProvider",
        "DirectorySkillProvider",
    ),
    "leafward.stores.opening": ("open_store",),
    "leafward.tools.definition": ("Tool",),
    "leafward.tools.function_tools": ("tool",),
    "leafward.tools.runtime_context": ("RuntimeContext",),
    "leafward.tools.tool_set": ("ToolSet",),
    "leafward.tools.toolkit": ("Toolkit",),
}
__version__ = "0.1.0"
__all__ = [
    "LATEST_LEAF",
    "AgentShuttingDown",
    "AgentState",
    "BlockNotFound",
    "BucketSkillProvider",
    "BudgetExceeded",
    "CompactionConfig",
    "CompactionFailed",
    "ConfigurationError",
    "Conflict",
    "ContextBlock",
    "ContextError",
    "CorruptStore",
    "DirectorySkillProvider",
    "InvalidId",
    "LeafwardError",
    "LeaseBusy",
    "LeaseLost",
    "Message",
    "MessageNotFound",
    "MessageTooLarge",
    "NotFound",
    "OutcomeUnknown",
    "ReActAgent",
    "RuntimeContext",
    "SearchResult",
    "Session",
    "SessionExists",
    "SessionInfo",
    "SessionKey",
    "SessionManager",
    "SessionNotFound",
    "StaleSession",
    "StaleState",
    "StateDecodeError",
    "StaticContext",
    "StorageFull",
    "StoreError",
    "StoredContextProvider",
    "StoredSearchProvider",
    "Tool",
    "ToolError",
    "ToolSet",
    "Toolkit",
    "assistant",
    "blocking",
    "create_compact_function",
    "open_store",
    "system",
    "tool",
    "tool_result",
    "user",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
