"""Stores that are full, away or read-only in the middle of a turn: the error is raised, and the session goes on."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from leafward import OutcomeUnknown, ReActAgent, RuntimeContext, StorageFull, StoreError, open_store, tool
from leafward.core.ids import new_id
from leafward.engine.call_results import TEXTS
from leafward.engine.tree_log import TreeLog
from leafward.engine.turn_mail import MailBox
from leafward.stores import JsonFileAgentStateStore, Store
from leafward.stores.redis import calls as redis_calls
from leafward.stores.servers import running
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, goes_on, results
from tests.servers.redis import Redis
from tests.stores.both_servers import elsewhere
from tests.stores.proxy import Proxy

SCRIPT: list[Any] = [[call("cook", {}, id="c1")], "Done."]


def cooking(store: Any, happens: Callable[[], Any], **options: Any) -> ReActAgent:
    """Return an agent in whose tool something happens to its store."""

    @tool
    async def cook() -> str:
        """Cook."""
        made = happens()
        if asyncio.iscoroutine(made):
            await made
        return "cooked"

    return ReActAgent("cook", ScriptedModel(SCRIPT), store=store, tools=[cook], **options)


# ── full ─────────────────────────────────────────────────────────────────────


@contextmanager
def disk() -> Iterator[Callable[[bool], None]]:
    """Give a call by which the disk becomes full, or has room: no file can grow then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda is_full: resource.setrlimit(resource.RLIMIT_FSIZE, (1 if is_full else soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(params=["sqlite", "file", "json"])
async def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Any]:
    if request.param == "json":
        async with JsonFileAgentStateStore(tmp_path / "home") as states:
            yield states
        return
    url = f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else f"file:///{tmp_path}/files"
    async with open_store(url) as opened:
        yield opened


async def test_a_disk_that_is_full_in_the_middle_of_a_turn_loses_nothing_that_was_stored(embedded: Any) -> None:
    with disk() as make_full:
        agent = cooking(embedded, lambda: make_full(True))
        with pytest.raises(StorageFull) as failed:
            await agent.call("Cook", ALICE)
        assert "could not be stored" in failed.value.__notes__[0]
        # It is read while it is full, and refuses a call without having begun it.
        assert [message.text for message in (await agent.get_agent_state("alice", "s1")).context] == ["Cook", ""]
        with pytest.raises(StorageFull):
            await agent.call("And now?", ALICE)
        make_full(False)

        asked = await asyncio.wait_for(goes_on(embedded), 10)

    assert [message.text for message in asked] == ["Cook", "", "", "And now?"]
    assert results(asked) == {"c1": ("interrupted", TEXTS["unknown"])}


# ── away ─────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["postgres", "mysql", "redis"])
def url(request: pytest.FixtureRequest, server_url: Callable[[str], str]) -> str:
    return server_url(request.param)


@pytest.fixture
async def proxy(url: str) -> AsyncGenerator[Proxy]:
    parts = urlsplit(url)
    async with Proxy(str(parts.hostname), parts.port or 0) as proxy:
        yield proxy


@pytest.fixture
async def far(url: str, proxy: Proxy) -> AsyncGenerator[Store]:
    async with open_store(elsewhere(url, port=proxy.port)) as opened:
        yield opened
        proxy.spare()


async def test_a_server_that_is_back_before_the_next_step_is_not_missed(far: Store, proxy: Proxy) -> None:
    ctx = RuntimeContext("alice", new_id())

    async def go_and_come_back() -> None:
        proxy.unreachable = True
        proxy.cut()
        await asyncio.sleep(0.5)  # long enough for renewals and looks for texts to fail
        proxy.spare()

    agent = cooking(far, go_and_come_back, lease_ttl=5)

    assert (await agent.call("Cook", ctx)).text == "Done."
    assert results(await goes_on(far, ctx=ctx))["c1"] == ("success", "cooked")


async def test_a_step_waits_for_a_server_that_is_away_for_a_moment(far: Store, proxy: Proxy) -> None:
    ctx = RuntimeContext("alice", new_id())

    def go_and_come_back() -> None:
        proxy.unreachable = True
        proxy.cut()
        asyncio.get_running_loop().call_later(1, proxy.spare)

    assert (await cooking(far, go_and_come_back).call("Cook", ctx)).text == "Done."
    assert results(await goes_on(far, ctx=ctx))["c1"] == ("success", "cooked")


async def test_a_server_that_stays_away_fails_the_call_and_the_session_goes_on_when_it_is_back(
    far: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((running, "PATIENCE_S"), (redis_calls, "PATIENCE_S"), (redis_calls, "DOUBT_S")):
        monkeypatch.setattr(module, name, 0.1)
    ctx = RuntimeContext("alice", new_id())

    def go() -> None:
        proxy.unreachable = True
        proxy.cut()

    agent = cooking(far, go)
    with pytest.raises(StoreError) as failed:
        await agent.call("Cook", ctx)
    assert not isinstance(failed.value, OutcomeUnknown)
    with pytest.raises(StoreError):
        await agent.call("And now?", ctx)
    proxy.spare()

    # Not as late as the lease would run out: this process gives back what it could not release.
    asked = await asyncio.wait_for(goes_on(far, ctx=ctx), 10)

    assert [message.text for message in asked] == ["Cook", "", "", "And now?"]
    assert results(asked) == {"c1": ("interrupted", TEXTS["unknown"])}


# ── read-only ────────────────────────────────────────────────────────────────


async def test_a_server_that_became_read_only_fails_the_call_until_it_takes_writes_again(
    private_redis: Callable[..., Redis],
) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store:

            def become_a_replica() -> None:
                with server.client() as client:
                    client.execute_command("REPLICAOF", "127.0.0.1", "1")

            agent = cooking(store, become_a_replica)
            with pytest.raises(StoreError):
                await agent.call("Cook", ALICE)
            with server.client() as client:
                client.execute_command("REPLICAOF", "NO", "ONE")

            asked = await asyncio.wait_for(goes_on(store), 10)

    assert results(asked) == {"c1": ("interrupted", TEXTS["unknown"])}


async def test_a_directory_that_cannot_be_written_fails_the_call_until_it_can(tmp_path: Path) -> None:
    place = tmp_path / "locked"
    place.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=f"sqlite:///{place}/s.db")
    with as_nobody(), pytest.raises(StoreError, match="permissions"):
        await agent.call("hello", ALICE)
    place.chmod(0o755)

    assert (await agent.call("hello", ALICE)).text == "Hello."
    await agent.close()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user without rights: root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_nothing_of_a_call_goes_on_when_its_session_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []

    async def fail(*_: Any, **options: Any) -> None:
        raise StoreError("read")

    async def read(_: MailBox) -> None:
        await asyncio.sleep(0.2)
        ended.append(True)

    async with open_store("memory://") as store:
        agent = ReActAgent("cook", ScriptedModel([]), store=store)
        monkeypatch.setattr(TreeLog, "load", fail)
        monkeypatch.setattr(MailBox, "read", read)

        with pytest.raises(StoreError):
            await agent.call("Hi", ALICE)

        assert ended == [True]
