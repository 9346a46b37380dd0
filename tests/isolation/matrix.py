"""Many tenants in one store: each uses everything at the same time as the others, then they end one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from itertools import pairwise

from leafward import ConfigurationError
from leafward.stores import Store
from tests.isolation import repertoire
from tests.isolation.ids import Triple
from tests.isolation.tenants import Tenant, leaks
from tests.isolation.witness import Watched


async def live_together(store: Store, family: Sequence[Triple]) -> list[Tenant]:
    """Put tenants into a store; raise if one learns anything of another, or does anything to it.

    Returns them, with what they were told.
    """
    tenants = [Tenant(store, ids, number) for number, ids in enumerate(family)]
    for step in repertoire.STEPS:
        await _all(step(tenant) for tenant in tenants)
    first, *others = tenants
    await repertoire.intrude(first, others[0])
    for other in others:
        await repertoire.intrude(other, first)
    await _lease(tenants)
    await _end(tenants)
    assert leaks(tenants) == []
    return tenants


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _lease(tenants: list[Tenant]) -> None:
    holders: dict[tuple[str | None, str], Tenant] = {}
    held: list[tuple[Tenant, Watched]] = []
    for tenant in tenants:
        lease = await repertoire.lease(tenant, holders)
        if lease is not None:
            held.append((tenant, lease))
    for (tenant, lease), (other, _) in pairwise(held):
        try:
            other.session.with_lease(lease.target)
        except ConfigurationError:
            continue
        raise AssertionError(f"{other.slot} writes behind the lease of {tenant.slot}")
    for tenant, lease in held:
        await repertoire.give_back(tenant, lease)


async def _end(tenants: list[Tenant]) -> None:
    """Clear and delete the first, then erase the rest one by one; what is left stays as it is to the byte."""
    owners = Counter(tenant.owner for tenant in tenants)
    first, *left = tenants
    before = {one: await _dump(one, owners) for one in left}
    await first.session.clear_messages()
    assert await first.manager.delete(first.session_id)
    await _stay(left, before, owners)
    while left:
        gone = left.pop()
        assert (await gone.manager.erase(gone.session_id)).erased
        await _stay(left, before, owners)


async def _dump(tenant: Tenant, owners: Counter[tuple[str | None, str]]) -> str:
    return await repertoire.dump(tenant, alone=owners[tenant.owner] == 1)


async def _stay(left: list[Tenant], before: dict[Tenant, str], owners: Counter[tuple[str | None, str]]) -> None:
    for one in left:
        assert await _dump(one, owners) == before[one]
