"""For tests: contract classes, and a model that answers from a script.

A contract class holds what every store promises, as tests that any backend inherits. A backend's test file names the
contracts and gives them a store:

    class TestMine(MessageContract, TreeContract, SearchContract, ChangeContract, StoreContract, ...):
        @pytest.fixture
        async def store(self) -> AsyncGenerator[Store]:
            async with open_store("mine://somewhere-fresh") as store:
                yield store

Each test wants a store that holds nothing yet. A backend that keeps its data when it is closed
also inherits `DurableContract` and `DurableContextContract` and gives them `reopen`; one that two can
have open at once inherits `LeaseContract` and `LeaseMessageContract`, which want `reopen` too. The
tests run under pytest-asyncio.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.testing.attached_state import AttachedStateContract as AttachedStateContract
    from leafward.testing.batches import BatchContract as BatchContract
    from leafward.testing.changes import ChangeContract as ChangeContract
    from leafward.testing.compaction import CompactionContract as CompactionContract
    from leafward.testing.context import ContextContract as ContextContract
    from leafward.testing.durable import DurableContract as DurableContract
    from leafward.testing.durable_context import DurableContextContract as DurableContextContract
    from leafward.testing.lease_messages import LeaseMessageContract as LeaseMessageContract
    from leafward.testing.leases import LeaseContract as LeaseContract
    from leafward.testing.messages import MessageContract as MessageContract
    from leafward.testing.registry import RegistryContract as RegistryContract
    from leafward.testing.scope import ScopeContract as ScopeContract
    from leafward.testing.scripted_model import ScriptedModel as ScriptedModel
    from leafward.testing.scripted_model import call as call
    from leafward.testing.search import SearchContract as SearchContract
    from leafward.testing.states import StateContract as StateContract
    from leafward.testing.store import StoreContract as StoreContract
    from leafward.testing.tree import TreeContract as TreeContract
    from leafward.testing.versioned_states import VersionedStateContract as VersionedStateContract

_CONTRACTS = (
    "leafward.testing.attached_copies",
    "leafward.testing.attached_deletion",
    "leafward.testing.attached_state",
    "leafward.testing.attached_values",
    "leafward.testing.automatic",
    "leafward.testing.batches",
    "leafward.testing.branch_compaction",
    "leafward.testing.changes",
    "leafward.testing.compaction",
    "leafward.testing.content",
    "leafward.testing.context",
    "leafward.testing.copying",
    "leafward.testing.deletion",
    "leafward.testing.durable",
    "leafward.testing.durable_context",
    "leafward.testing.failing",
    "leafward.testing.fencing",
    "leafward.testing.filled",
    "leafward.testing.history",
    "leafward.testing.keyed",
    "leafward.testing.lease_messages",
    "leafward.testing.leases",
    "leafward.testing.loading",
    "leafward.testing.messages",
    "leafward.testing.our_states",
    "leafward.testing.overlay_reading",
    "leafward.testing.overlays",
    "leafward.testing.prompts",
    "leafward.testing.registry",
    "leafward.testing.scope",
    "leafward.testing.search",
    "leafward.testing.session_leases",
    "leafward.testing.settling",
    "leafward.testing.shortened_results",
    "leafward.testing.states",
    "leafward.testing.store",
    "leafward.testing.tips",
    "leafward.testing.tree",
    "leafward.testing.versioned_states",
)

if "pytest" in sys.modules:
    # Contracts live in an installed package, where pytest would leave `assert` unexplained.
    sys.modules["pytest"].register_assert_rewrite(*_CONTRACTS)

_HOMES = {
    "leafward.testing.attached_state": ("AttachedStateContract",),
    "leafward.testing.batches": ("BatchContract",),
    "leafward.testing.changes": ("ChangeContract",),
    "leafward.testing.compaction": ("CompactionContract",),
    "leafward.testing.context": ("ContextContract",),
    "leafward.testing.durable": ("DurableContract",),
    "leafward.testing.durable_context": ("DurableContextContract",),
    "leafward.testing.lease_messages": ("LeaseMessageContract",),
    "leafward.testing.leases": ("LeaseContract",),
    "leafward.testing.messages": ("MessageContract",),
    "leafward.testing.registry": ("RegistryContract",),
    "leafward.testing.scope": ("ScopeContract",),
    "leafward.testing.scripted_model": ("ScriptedModel", "call"),
    "leafward.testing.search": ("SearchContract",),
    "leafward.testing.states": ("StateContract",),
    "leafward.testing.store": ("StoreContract",),
    "leafward.testing.tree": ("TreeContract",),
    "leafward.testing.versioned_states": ("VersionedStateContract",),
}

__all__ = [
    "AttachedStateContract",
    "BatchContract",
    "ChangeContract",
    "CompactionContract",
    "ContextContract",
    "DurableContextContract",
    "DurableContract",
    "LeaseContract",
    "LeaseMessageContract",
    "MessageContract",
    "RegistryContract",
    "ScopeContract",
    "ScriptedModel",
    "SearchContract",
    "StateContract",
    "StoreContract",
    "TreeContract",
    "VersionedStateContract",
    "call",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
