"""All that a store on disk or on a server promises, in one class."""

from __future__ import annotations

import pytest

from leafward.stores import AgentStateStore, Store
from leafward.testing import (
    AttachedStateContract,
    BatchContract,
    ChangeContract,
    CompactionContract,
    ContextContract,
    DurableContextContract,
    DurableContract,
    LeaseContract,
    LeaseMessageContract,
    MessageContract,
    RegistryContract,
    ScopeContract,
    SearchContract,
    StoreContract,
    TreeContract,
)
from leafward.testing.our_states import OurStateContract


class EveryVolatileContract(
    MessageContract,
    TreeContract,
    SearchContract,
    ChangeContract,
    CompactionContract,
    ContextContract,
    ScopeContract,
    RegistryContract,
    StoreContract,
    AttachedStateContract,
    BatchContract,
    OurStateContract,
):
    """Every promise that holds for as long as a store is open; a subclass gives the fixture `store`."""

    @pytest.fixture
    def states(self, store: Store) -> AgentStateStore:
        return store.states


class EveryContract(
    EveryVolatileContract, LeaseContract, LeaseMessageContract, DurableContextContract, DurableContract
):
    """Every promise; a subclass gives the fixtures `store` and `reopen`."""
