"""What a conversation does: remember, branch, search, tell of its changes."""

from leafward.core.tokens import TokenCounter, estimate_tokens
from leafward.sessions.changes import Change
from leafward.sessions.recent import RecentHistory
from leafward.sessions.session import Session

__all__ = ["Change", "RecentHistory", "Session", "TokenCounter", "estimate_tokens"]
