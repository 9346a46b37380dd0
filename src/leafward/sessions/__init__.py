"""What a conversation does: remember, branch, compact, search, offer tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.core.compaction import CompactionContext as CompactionContext
    from leafward.core.compaction import CompactionResult as CompactionResult
    from leafward.core.prompt import ContextBlock as ContextBlock
    from leafward.core.prompt import ContextEntry as ContextEntry
    from leafward.core.prompt import render_prompt as render_prompt
    from leafward.core.tokens import TokenCounter as TokenCounter
    from leafward.core.tokens import estimate_tokens as estimate_tokens
    from leafward.sessions.changes import Change as Change
    from leafward.sessions.compaction_state import CompactionRecord as CompactionRecord
    from leafward.sessions.custom_storage import SessionProvider as SessionProvider
    from leafward.sessions.default_compaction import create_compact_function as create_compact_function
    from leafward.sessions.manager import SessionManager as SessionManager
    from leafward.sessions.providers import ContextProvider as ContextProvider
    from leafward.sessions.providers import SearchProvider as SearchProvider
    from leafward.sessions.providers import SkillProvider as SkillProvider
    from leafward.sessions.providers import StaticContext as StaticContext
    from leafward.sessions.providers import StoredContextProvider as StoredContextProvider
    from leafward.sessions.providers import StoredSearchProvider as StoredSearchProvider
    from leafward.sessions.providers import WritableContextProvider as WritableContextProvider
    from leafward.sessions.recent import RecentHistory as RecentHistory
    from leafward.sessions.session import Session as Session
    from leafward.sessions.session_lease import SessionLease as SessionLease
    from leafward.sessions.setup import ContextConfig as ContextConfig
    from leafward.sessions.skills import BucketSkillProvider as BucketSkillProvider
    from leafward.sessions.skills import DirectorySkillProvider as DirectorySkillProvider
    from leafward.stores.registry import ErasureReport as ErasureReport
    from leafward.stores.registry import Page as Page
    from leafward.tools.definition import Tool as Tool
    from leafward.tools.tool_set import ToolSet as ToolSet

_HOMES = {
    "leafward.core.compaction": (
        "CompactionContext",
        "CompactionResult",
    ),
    "leafward.core.prompt": (
        "ContextBlock",
        "ContextEntry",
        "render_prompt",
    ),
    "leafward.core.tokens": (
        "TokenCounter",
        "estimate_tokens",
    ),
    "leafward.sessions.changes": ("Change",),
    "leafward.sessions.compaction_state": ("CompactionRecord",),
    "leafward.sessions.default_compaction": ("create_compact_function",),
    "leafward.sessions.custom_storage": ("SessionProvider",),
    "leafward.sessions.manager": ("SessionManager",),
    "leafward.sessions.providers": (
        "ContextProvider",
        "SearchProvider",
        "SkillProvider",
        "StaticContext",
        "StoredContextProvider",
        "StoredSearchProvider",
        "WritableContextProvider",
    ),
    "leafward.sessions.recent": ("RecentHistory",),
    "leafward.sessions.session": ("Session",),
    "leafward.sessions.session_lease": ("SessionLease",),
    "leafward.sessions.setup": ("ContextConfig",),
    "leafward.sessions.skills": (
        "BucketSkillProvider",
        "DirectorySkillProvider",
    ),
    "leafward.stores.registry": (
        "ErasureReport",
        "Page",
    ),
    "leafward.tools.definition": ("Tool",),
    "leafward.tools.tool_set": ("ToolSet",),
}
__all__ = [
    "BucketSkillProvider",
    "Change",
    "CompactionContext",
    "CompactionRecord",
    "CompactionResult",
    "ContextBlock",
    "ContextConfig",
    "ContextEntry",
    "ContextProvider",
    "DirectorySkillProvider",
    "ErasureReport",
    "Page",
    "RecentHistory",
    "SearchProvider",
    "Session",
    "SessionLease",
    "SessionManager",
    "SessionProvider",
    "SkillProvider",
    "StaticContext",
    "StoredContextProvider",
    "StoredSearchProvider",
    "TokenCounter",
    "Tool",
    "ToolSet",
    "WritableContextProvider",
    "create_compact_function",
    "estimate_tokens",
    "render_prompt",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
