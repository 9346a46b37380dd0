"""All that a store on disk or on a server promises, in one class."""

from __future__ import annotations

from leafward.testing import (
    ChangeContract,
    CompactionContract,
    ContextContract,
    DurableContextContract,
    DurableContract,
    LeaseContract,
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
):
    """Every promise that holds for as long as a store is open; a subclass gives the fixture `store`."""


class EveryContract(EveryVolatileContract, LeaseContract, DurableContextContract, DurableContract):
    """Every promise; a subclass gives the fixtures `store` and `reopen`."""
