"""The classes that have a sync mirror: one line each, read by the portal and by the generator of its types."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

PREFIX = "Blocking"


class Kind(NamedTuple):
    """Where an async class lives, and the call on a blocking store that makes one of it."""

    home: str
    maker: str | None = None


MIRRORED = {
    "Session": Kind("leafward.sessions", maker="session"),
    "SessionManager": Kind("leafward.sessions", maker="manager"),
    "SessionLease": Kind("leafward.sessions"),
    "ReActAgent": Kind("leafward.engine"),
    "ToolSet": Kind("leafward.tools"),
    "Tool": Kind("leafward.tools"),
    "MessageStore": Kind("leafward.stores"),
    "SessionRegistry": Kind("leafward.stores"),
    "EntryIndex": Kind("leafward.stores"),
    "StateStore": Kind("leafward.stores"),
    "Leases": Kind("leafward.stores"),
    "Lease": Kind("leafward.stores"),
}
"""What `leafward.portal` exports as `Blocking…`; a class with a maker takes the store as its first argument."""


def load(name: str) -> type:
    """Return the async class of this name."""
    found: type = getattr(import_module(MIRRORED[name].home), name)
    return found
