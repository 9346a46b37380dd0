"""Where bytes live: small contracts and the backends that keep them."""

from leafward.stores.contracts import (
    DEFAULT_MAX_MESSAGE_BYTES,
    ChangeKind,
    ChangeRecord,
    Cursor,
    Draft,
    Durability,
    MessageStore,
    PathPage,
    SearchFilter,
    Store,
    SupportsBackup,
)
from leafward.stores.opening import Opening, open_store

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "ChangeKind",
    "ChangeRecord",
    "Cursor",
    "Draft",
    "Durability",
    "MessageStore",
    "Opening",
    "PathPage",
    "SearchFilter",
    "Store",
    "SupportsBackup",
    "open_store",
]
