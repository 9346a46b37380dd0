"""Long work on a session's copy in memory leaves the event loop to others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import ModuleType

import pytest

from leafward import Session, SessionManager, open_store, user
from leafward.core.ids import Scope, new_id
from leafward.stores import Store
from leafward.stores.replicated import replica, running, snapshots
from leafward.stores.replicated.replicas import Replicas
from leafward.stores.sql import copying, reads, scanning
from tests.stores.redis_store import forget

Work = Callable[[Store, Store], Awaitable[object]]
MANY = 300
LONG = 4_000


@pytest.fixture
async def stores(redis_url: str) -> AsyncGenerator[tuple[Store, Store]]:
    """One store that has the session in memory, and one that has yet to read it."""
    prefix = f"{new_id()}:"
    async with open_store(redis_url, key_prefix=prefix) as warm, open_store(redis_url, key_prefix=prefix) as cold:
        await Session(warm, "s").append_messages([user(f"walnut {'x' * LONG}", id=f"{n}") for n in range(MANY)])
        yield warm, cold
    forget(redis_url, prefix)


async def _outgrow(store: Store) -> None:
    for n in range(8):
        await Session(store, "s").update_message(user(f"{n}" * 1_000_000, id="0"))


WORK: dict[str, tuple[ModuleType, str, Work]] = {
    "a search": (scanning, "candidate", lambda warm, _: Session(warm, "s").search("walnut")),
    "a search of all sessions": (running, "rank", lambda warm, _: SessionManager(warm).search("walnut")),
    "a first read": (replica, "read_batches", lambda _, cold: Session(cold, "s").get_version()),
    "a long history": (reads, "decode_body", lambda warm, _: Session(warm, "s").get_history()),
    "a journal written anew": (snapshots, "timestamp", lambda warm, _: _outgrow(warm)),
    "a fork": (
        copying,
        "dump",
        lambda warm, _: warm.registry.fork(Scope.of("s"), f"{MANY - 1}", Scope.of("copy"), "copy"),
    ),
}


@pytest.mark.parametrize("name", WORK)
async def test_others_go_on_during(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, part, work = WORK[name]
    loop, original = asyncio.get_running_loop(), getattr(module, part)
    went_on = threading.Event()

    def after_others(*args: object, **named: object) -> object:
        loop.call_soon_threadsafe(went_on.set)
        assert went_on.wait(10), "the event loop stands still"
        return original(*args, **named)

    monkeypatch.setattr(module, part, after_others)

    await work(*stores)

    assert went_on.is_set()


async def test_little_work_is_done_without_a_thread(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, cold = stores
    await Session(warm, "small").append_message(user("a walnut"))

    def refuse(*_: object) -> None:
        raise AssertionError("a thread was asked for")

    monkeypatch.setattr(replica, "in_a_thread", refuse)

    await Session(warm, "s").append_message(user("one more"))
    assert await Session(cold, "small").get_path_length() == 1
    assert len(await Session(cold, "small").search("walnut")) == 1


async def test_a_search_that_is_cancelled_keeps_the_session_until_its_thread_has_ended(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, _ = stores
    loop, original = asyncio.get_running_loop(), scanning.candidate
    begun, go_on = asyncio.Event(), threading.Event()
    in_use: list[bool] = []
    replicas: Replicas = warm.runner._replicas  # pyright: ignore[reportAttributeAccessIssue]

    def slowly(row: object) -> object:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(10)
        in_use.append(replicas._kept[Scope.of("s")].lock.locked())
        return original(row)

    monkeypatch.setattr(scanning, "candidate", slowly)
    searching = asyncio.ensure_future(Session(warm, "s").search("walnut"))
    await begun.wait()
    searching.cancel()
    appending = asyncio.ensure_future(Session(warm, "s").append_message(user("after", id="after")))
    # An answer of the server to another session takes longer than a lock that is given up.
    await Session(warm, "other").append_message(user("text"))
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await searching
    assert (await appending).id == "after"
    assert len(in_use) == MANY
    assert all(in_use)
