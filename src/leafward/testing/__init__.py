"""Contract classes: what every store promises, as tests that any backend inherits.

A backend's test file names the contracts and gives them a store:

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

import pytest

# Contracts live in an installed package, where pytest would leave `assert` unexplained.
pytest.register_assert_rewrite(
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

from leafward.testing.attached_state import AttachedStateContract  # noqa: E402
from leafward.testing.batches import BatchContract  # noqa: E402
from leafward.testing.changes import ChangeContract  # noqa: E402
from leafward.testing.compaction import CompactionContract  # noqa: E402
from leafward.testing.context import ContextContract  # noqa: E402
from leafward.testing.durable import DurableContract  # noqa: E402
from leafward.testing.durable_context import DurableContextContract  # noqa: E402
from leafward.testing.lease_messages import LeaseMessageContract  # noqa: E402
from leafward.testing.leases import LeaseContract  # noqa: E402
from leafward.testing.messages import MessageContract  # noqa: E402
from leafward.testing.registry import RegistryContract  # noqa: E402
from leafward.testing.scope import ScopeContract  # noqa: E402
from leafward.testing.search import SearchContract  # noqa: E402
from leafward.testing.states import StateContract  # noqa: E402
from leafward.testing.store import StoreContract  # noqa: E402
from leafward.testing.tree import TreeContract  # noqa: E402
from leafward.testing.versioned_states import VersionedStateContract  # noqa: E402

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
    "SearchContract",
    "StateContract",
    "StoreContract",
    "TreeContract",
    "VersionedStateContract",
]
