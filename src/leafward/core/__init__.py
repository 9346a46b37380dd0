"""What a conversation is: plain values and pure functions."""

from leafward.core.ids import Owner, Scope
from leafward.core.message import Message, as_message, assistant, system, tool_result, user
from leafward.core.parent import LATEST_LEAF, LatestLeaf, ParentId
from leafward.core.ranking import SearchResult
from leafward.core.tokens import TokenCounter, count_tokens, estimate_tokens
from leafward.core.tree import TreeNode

__all__ = [
    "LATEST_LEAF",
    "LatestLeaf",
    "Message",
    "Owner",
    "ParentId",
    "Scope",
    "SearchResult",
    "TokenCounter",
    "TreeNode",
    "as_message",
    "assistant",
    "count_tokens",
    "estimate_tokens",
    "system",
    "tool_result",
    "user",
]
