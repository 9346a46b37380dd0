"""Where bytes live: small contracts and the backends that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.core.attached_state import AttachedState as AttachedState
    from leafward.core.session_key import SimpleSessionKey as SimpleSessionKey
    from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES as DEFAULT_MAX_MESSAGE_BYTES
    from leafward.stores.contracts import NOT_THERE as NOT_THERE
    from leafward.stores.contracts import Appended as Appended
    from leafward.stores.contracts import ChangeKind as ChangeKind
    from leafward.stores.contracts import ChangeRecord as ChangeRecord
    from leafward.stores.contracts import Changes as Changes
    from leafward.stores.contracts import Cursor as Cursor
    from leafward.stores.contracts import Durability as Durability
    from leafward.stores.contracts import Head as Head
    from leafward.stores.contracts import MessageStore as MessageStore
    from leafward.stores.contracts import NewOverlay as NewOverlay
    from leafward.stores.contracts import PathPage as PathPage
    from leafward.stores.contracts import Revision as Revision
    from leafward.stores.contracts import SearchFilter as SearchFilter
    from leafward.stores.contracts import Store as Store
    from leafward.stores.contracts import SupportsBackup as SupportsBackup
    from leafward.stores.contracts import Unchanged as Unchanged
    from leafward.stores.contracts import Usage as Usage
    from leafward.stores.contracts import View as View
    from leafward.stores.contracts import Weight as Weight
    from leafward.stores.drafts import Draft as Draft
    from leafward.stores.entries import Edit as Edit
    from leafward.stores.entries import Entry as Entry
    from leafward.stores.entries import EntryIndex as EntryIndex
    from leafward.stores.entries import Prompt as Prompt
    from leafward.stores.entries import Shelf as Shelf
    from leafward.stores.files.own_states import JsonFileAgentStateStore as JsonFileAgentStateStore
    from leafward.stores.files.own_states import JsonSession as JsonSession
    from leafward.stores.files.own_states import WorkspaceSession as WorkspaceSession
    from leafward.stores.leases import Fence as Fence
    from leafward.stores.leases import Holder as Holder
    from leafward.stores.leases import Leases as Leases
    from leafward.stores.leases import LeaseTable as LeaseTable
    from leafward.stores.leases import Renewed as Renewed
    from leafward.stores.leases import SentText as SentText
    from leafward.stores.leases import Slot as Slot
    from leafward.stores.leases.lease import Lease as Lease
    from leafward.stores.leases.table_leases import TableLeases as TableLeases
    from leafward.stores.memory_states import InMemoryAgentStateStore as InMemoryAgentStateStore
    from leafward.stores.memory_states import InMemorySession as InMemorySession
    from leafward.stores.opening import Opening as Opening
    from leafward.stores.opening import open_store as open_store
    from leafward.stores.redis.own_states import RedisAgentStateStore as RedisAgentStateStore
    from leafward.stores.redis.own_states import RedisSession as RedisSession
    from leafward.stores.registry import ErasureReport as ErasureReport
    from leafward.stores.registry import Origin as Origin
    from leafward.stores.registry import Page as Page
    from leafward.stores.registry import SessionRegistry as SessionRegistry
    from leafward.stores.servers.own_states import MysqlAgentStateStore as MysqlAgentStateStore
    from leafward.stores.servers.own_states import MysqlSession as MysqlSession
    from leafward.stores.servers.own_states import PostgresAgentStateStore as PostgresAgentStateStore
    from leafward.stores.sqlite.own_states import SqliteAgentStateStore as SqliteAgentStateStore
    from leafward.stores.states.contracts import AgentStateStore as AgentStateStore
    from leafward.stores.states.contracts import Versioned as Versioned
    from leafward.stores.states.contracts import VersionedStateStore as VersionedStateStore
    from leafward.stores.states.store import StateStore as StateStore

_HOMES = {
    "leafward.core.attached_state": ("AttachedState",),
    "leafward.core.session_key": ("SimpleSessionKey",),
    "leafward.stores.contracts": (
        "DEFAULT_MAX_MESSAGE_BYTES",
        "NOT_THERE",
        "Appended",
        "ChangeKind",
        "ChangeRecord",
        "Changes",
        "Cursor",
        "Durability",
        "Head",
        "MessageStore",
        "NewOverlay",
        "PathPage",
        "Revision",
        "SearchFilter",
        "Store",
        "SupportsBackup",
        "Unchanged",
        "Usage",
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
    "leafward.stores.files.own_states": (
        "JsonFileAgentStateStore",
        "JsonSession",
        "WorkspaceSession",
    ),
    "leafward.stores.leases": (
        "Fence",
        "Holder",
        "LeaseTable",
        "Leases",
        "Renewed",
        "SentText",
        "Slot",
    ),
    "leafward.stores.leases.lease": ("Lease",),
    "leafward.stores.leases.table_leases": ("TableLeases",),
    "leafward.stores.memory_states": (
        "InMemoryAgentStateStore",
        "InMemorySession",
    ),
    "leafward.stores.opening": (
        "Opening",
        "open_store",
    ),
    "leafward.stores.redis.own_states": (
        "RedisAgentStateStore",
        "RedisSession",
    ),
    "leafward.stores.registry": (
        "ErasureReport",
        "Origin",
        "Page",
        "SessionRegistry",
    ),
    "leafward.stores.servers.own_states": (
        "MysqlAgentStateStore",
        "MysqlSession",
        "PostgresAgentStateStore",
    ),
    "leafward.stores.sqlite.own_states": ("SqliteAgentStateStore",),
    "leafward.stores.states.contracts": (
        "AgentStateStore",
        "Versioned",
        "VersionedStateStore",
    ),
    "leafward.stores.states.store": ("StateStore",),
}

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "NOT_THERE",
    "AgentStateStore",
    "Appended",
    "AttachedState",
    "ChangeKind",
    "ChangeRecord",
    "Changes",
    "Cursor",
    "Draft",
    "Durability",
    "Edit",
    "Entry",
    "EntryIndex",
    "ErasureReport",
    "Fence",
    "Head",
    "Holder",
    "InMemoryAgentStateStore",
    "InMemorySession",
    "JsonFileAgentStateStore",
    "JsonSession",
    "Lease",
    "LeaseTable",
    "Leases",
    "MessageStore",
    "MysqlAgentStateStore",
    "MysqlSession",
    "NewOverlay",
    "Opening",
    "Origin",
    "Page",
    "PathPage",
    "PostgresAgentStateStore",
    "Prompt",
    "RedisAgentStateStore",
    "RedisSession",
    "Renewed",
    "Revision",
    "SearchFilter",
    "SentText",
    "SessionRegistry",
    "Shelf",
    "SimpleSessionKey",
    "Slot",
    "SqliteAgentStateStore",
    "StateStore",
    "Store",
    "SupportsBackup",
    "TableLeases",
    "Unchanged",
    "Usage",
    "Versioned",
    "VersionedStateStore",
    "View",
    "Weight",
    "WorkspaceSession",
    "open_store",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
