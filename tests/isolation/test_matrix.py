"""Tenants with hostile ids use every public call in one store, and none learns or loses anything of another."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leafward import LeafwardError, Session, SessionManager, open_store
from leafward.core.ids import Owner, Scope, new_id
from leafward.stores import StateStore, Store
from leafward.stores.leases import Leases
from leafward.stores.leases.lease import Lease
from tests.isolation.ids import TENANTS, square
from tests.isolation.matrix import live_together
from tests.isolation.tenants import Tenant, leaks
from tests.stores.redis_store import forget
from tests.stores.server_store import emptied

SERVERS = {"postgresql": "postgres_url", "mysql": "mysql_url", "redis": "redis_url"}
BACKENDS = ["memory", "sqlite", "file", *(pytest.param(name, marks=pytest.mark.server) for name in SERVERS)]
SMALLEST = 120
"""Calls of each tenant whose outcome was looked through, at least."""


@asynccontextmanager
async def opened(backend: str, path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Store]:
    if backend in SERVERS:
        url, prefix = request.getfixturevalue(SERVERS[backend]), f"{new_id()}:"
        async with open_store(url, key_prefix=prefix) if backend == "redis" else emptied(url) as store:
            yield store
        if backend == "redis":
            forget(url, prefix)
    else:
        where = {"memory": "memory://", "sqlite": f"sqlite:///{path}/x.db", "file": f"file:///{path}/x"}
        async with open_store(where[backend], durability="process") as store:
            yield store


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", TENANTS)
async def test_tenants_whose_ids_look_alike_share_nothing(
    backend: str,
    family: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    caplog.set_level(logging.DEBUG, logger="leafward")
    async with opened(backend, tmp_path, request) as store:
        tenants = await live_together(store, TENANTS[family])

    assert "zqown" not in caplog.text
    assert "zqshared" not in caplog.text
    calls = [len(tenant.witness.told) for tenant in tenants]
    assert min(calls) >= SMALLEST
    record_property("isolation", f"{sum(calls)} outcomes of {len(tenants)} tenants, 0 leaks")


def public(kind: type) -> set[str]:
    return {f"{kind.__name__}.{name}" for name in dir(kind) if not name.startswith("_")}


async def test_the_repertoire_has_every_public_call_and_tool(
    record_property: Callable[[str, object], None],
) -> None:
    async with open_store("memory://") as store:
        tenants = await live_together(store, square("a", "b"))
        tools = {*await Tenant(store, ("a", "a", "a"), 9).manager.tools(), *await all_tools(store)}
    made = {call for tenant in tenants for call in tenant.witness.calls()}

    # The states of a store are opened and closed with it, and have its leases.
    of_the_store = ("open", "close", "leases", "distributed", "store")
    states = public(StateStore) - {f"StateStore.{name}" for name in of_the_store}
    wanted = public(Session) | public(SessionManager) | public(Leases) | public(Lease) | states
    assert wanted - made == set()
    assert {f"tool {name}" for name in tools} - made == set()
    combinations = (len(wanted) + len(tools)) * len(TENANTS) * len(BACKENDS)
    record_property("isolation", f"{combinations} combinations of a call, a family of ids and a backend")
    assert combinations > 10_000


async def all_tools(store: Store) -> list[str]:
    """Return the tools of a session that has a block of every kind, and a summary."""
    tenant = Tenant(store, ("c", "c", "c"), 0)
    await tenant.session.append_messages(
        [{"role": "user", "parts": "one", "id": "1"}, {"role": "user", "parts": "two"}]
    )
    await tenant.session.add_compaction("both", "1", "1")
    return list(await tenant.session.tools())


class Confused:
    """A contract of a store that takes an id for another, wherever it is given."""

    def __init__(self, target: Any, ids: dict[Any, Any]) -> None:
        self._target = target
        self._ids = ids

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, Owner):
            return Owner(self._mapped(value.agent_id), self._mapped(value.user_id))
        if isinstance(value, Scope):
            return Scope(self._mapped(value.owner), self._mapped(value.session_id))
        return self._ids.get(value, value) if isinstance(value, str) else value

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)

        def call(*args: Any, **options: Any) -> Any:
            return value(*map(self._mapped, args), **{key: self._mapped(one) for key, one in options.items()})

        return call


PLACES = {"user": 1, "agent": 2, "session": 3}
PARTS = [(part, place) for part in ("messages", "entries", "registry", "leases") for place in PLACES]
# A lease is of a user and a session, whatever the agent.
PARTS.remove(("leases", "agent"))


@pytest.mark.parametrize(("part", "place"), PARTS)
async def test_a_store_that_takes_one_id_for_another_is_caught(part: str, place: str) -> None:
    family = square("alice", "Alice")
    async with open_store("memory://") as store:
        setattr(store, part, Confused(getattr(store, part), {"Alice": "alice"}))

        with pytest.raises((AssertionError, LeafwardError)):
            await live_together(store, [family[0], family[PLACES[place]]])


async def test_a_store_that_takes_each_id_for_itself_is_not() -> None:
    async with open_store("memory://") as store:
        for part, _ in PARTS:
            setattr(store, part, Confused(getattr(store, part), {}))

        await live_together(store, square("alice", "Alice"))


async def test_a_word_of_another_tenant_is_found_wherever_it_was_told() -> None:
    async with open_store("memory://") as store:
        one, sibling, stranger = (
            Tenant(store, ids, n) for n, ids in enumerate([*square("a", "b")[::3], ("c", "c", "c")])
        )
        for value in ([{"deep": (stranger.own,)}], ValueError(stranger.own.upper()), sibling.own):
            one.witness.told.clear()
            one.witness.note("Session.get_history", value)
            assert len(leaks([one, sibling, stranger])) == 1
        one.witness.told.clear()
        one.witness.note("SessionManager.search", [one.own, sibling.own])
        one.witness.note("Session.get_context_block", [one.shared, sibling.shared])

        assert leaks([one, sibling, stranger]) == []
