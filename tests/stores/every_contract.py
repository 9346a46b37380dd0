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


class EveryContract(
    MessageContract,
    TreeContract,
    SearchContract,
    ChangeContract,
    CompactionContract,
    ContextContract,
    ScopeContract,
    RegistryContract,
    StoreContract,
    LeaseContract,
    DurableContextContract,
    DurableContract,
):
    """Every promise; a subclass gives the fixtures `store` and `reopen`."""
