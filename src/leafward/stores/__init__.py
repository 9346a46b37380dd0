"""Where bytes live: small contracts and the backends that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES as DEFAULT_MAX_MESSAGE_BYTES
    from leafward.stores.contracts import Appended as Appended
    from leafward.stores.contracts import ChangeKind as ChangeKind
    from leafward.stores.contracts import ChangeRecord as ChangeRecord
    from leafward.stores.contracts import Cursor as Cursor
    from leafward.stores.contracts import Durability as Durability
    from leafward.stores.contracts import MessageStore as MessageStore
    from leafward.stores.contracts import NewOverlay as NewOverlay
    from leafward.stores.contracts import PathPage as PathPage
    from leafward.stores.contracts import SearchFilter as SearchFilter
    from leafward.stores.contracts import Store as Store
    from leafward.stores.contracts import SupportsBackup as SupportsBackup
    from leafward.stores.contracts import Unchanged as Unchanged
    from leafward.stores.contracts import View as View
    from leafward.stores.contracts import Weight as Weight
    from leafward.stores.drafts import Draft as Draft
    from leafward.stores.entries import Edit as Edit
    from leafward.stores.entries import Entry as Entry
    from leafward.stores.entries import EntryIndex as EntryIndex
    from leafward.stores.entries import Prompt as Prompt
    from leafward.stores.entries import Shelf as Shelf
    from leafward.stores.leases import Fence as Fence
    from leafward.stores.leases import Lease as Lease
    from leafward.stores.leases import Leases as Leases
    from leafward.stores.leases import LeaseTable as LeaseTable
    from leafward.stores.leases import Slot as Slot
    from leafward.stores.leases import TableLeases as TableLeases
    from leafward.stores.opening import Opening as Opening
    from leafward.stores.opening import open_store as open_store
    from leafward.stores.registry import ErasureReport as ErasureReport
    from leafward.stores.registry import Origin as Origin
    from leafward.stores.registry import Page as Page
    from leafward.stores.registry import SessionRegistry as SessionRegistry

_HOMES = {
    "leafward.stores.contracts": (
        "DEFAULT_MAX_MESSAGE_BYTES",
        "Appended",
        "ChangeKind",
        "ChangeRecord",
        "Cursor",
        "Durability",
        "MessageStore",
        "NewOverlay",
        "PathPage",
        "SearchFilter",
        "Store",
        "SupportsBackup",
        "Unchanged",
        "View",
        "Weight",
    ),
    "leafward.stores.drafts": ("Draft",),
    "leafward.stores.entries": (
        "Edit",
        "Entry",
        "EntryIndex",
        "Prompt",
        "Shelf",
    ),
    "leafward.stores.leases": (
        "Fence",
        "Lease",
        "LeaseTable",
        "Leases",
        "Slot",
        "TableLeases",
    ),
    "leafward.stores.opening": (
        "Opening",
        "open_store",
    ),
    "leafward.stores.registry": (
        "ErasureReport",
        "Origin",
        "Page",
        "SessionRegistry",
    ),
}

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "Appended",
    "ChangeKind",
    "ChangeRecord",
    "Cursor",
    "Draft",
    "Durability",
    "Edit",
    "Entry",
    "EntryIndex",
    "ErasureReport",
    "Fence",
    "Lease",
    "LeaseTable",
    "Leases",
    "MessageStore",
    "NewOverlay",
    "Opening",
    "Origin",
    "Page",
    "PathPage",
    "Prompt",
    "SearchFilter",
    "SessionRegistry",
    "Shelf",
    "Slot",
    "Store",
    "SupportsBackup",
    "TableLeases",
    "Unchanged",
    "View",
    "Weight",
    "open_store",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
