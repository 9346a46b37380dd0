"""leafward: the durable session layer for LLM agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leafward.core.errors import ConfigurationError as ConfigurationError
    from leafward.core.errors import Conflict as Conflict
    from leafward.core.errors import CorruptStore as CorruptStore
    from leafward.core.errors import InvalidId as InvalidId
    from leafward.core.errors import LeafwardError as LeafwardError
    from leafward.core.errors import MessageNotFound as MessageNotFound
    from leafward.core.errors import MessageTooLarge as MessageTooLarge
    from leafward.core.errors import NotFound as NotFound
    from leafward.core.errors import OutcomeUnknown as OutcomeUnknown
    from leafward.core.errors import SessionNotFound as SessionNotFound
    from leafward.core.errors import StorageFull as StorageFull
    from leafward.core.errors import StoreError as StoreError
    from leafward.core.message import Message as Message
    from leafward.core.message import assistant as assistant
    from leafward.core.message import system as system
    from leafward.core.message import tool_result as tool_result
    from leafward.core.message import user as user
    from leafward.core.parent import LATEST_LEAF as LATEST_LEAF
    from leafward.core.ranking import SearchResult as SearchResult
    from leafward.sessions.session import Session as Session
    from leafward.stores.opening import open_store as open_store

_HOMES = {
    "leafward.core.errors": (
        "ConfigurationError",
        "Conflict",
        "CorruptStore",
        "InvalidId",
        "LeafwardError",
        "MessageNotFound",
        "MessageTooLarge",
        "NotFound",
        "OutcomeUnknown",
        "SessionNotFound",
        "StorageFull",
        "StoreError",
    ),
    "leafward.core.message": ("Message", "assistant", "system", "tool_result", "user"),
    "leafward.core.parent": ("LATEST_LEAF",),
    "leafward.core.ranking": ("SearchResult",),
    "leafward.sessions.session": ("Session",),
    "leafward.stores.opening": ("open_store",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "LATEST_LEAF",
    "ConfigurationError",
    "Conflict",
    "CorruptStore",
    "InvalidId",
    "LeafwardError",
    "Message",
    "MessageNotFound",
    "MessageTooLarge",
    "NotFound",
    "OutcomeUnknown",
    "SearchResult",
    "Session",
    "SessionNotFound",
    "StorageFull",
    "StoreError",
    "assistant",
    "open_store",
    "system",
    "tool_result",
    "user",
]


def __getattr__(name: str) -> object:
    # Loaded at first use: a program pays only for what it touches.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'leafward' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
