"""All that a store on disk or on a server promises, in one class."""

from __future__ import annotations

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
):
    """Every promise that holds for as long as a store is open; a subclass gives the fixture `store`.

    States have their contract in tests/stores/states.
    """


class EveryContract(
    EveryVolatileContract, LeaseContract, LeaseMessageContract, DurableContextContract, DurableContract
):
    """Every promise; a subclass gives the fixtures `store` and `reopen`."""
