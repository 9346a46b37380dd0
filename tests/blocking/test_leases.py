"""A lease is held and carried without `await`, and is the same lease."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leafward import ConfigurationError, LeaseBusy, LeaseLost, open_store, user
from leafward.portal import BlockingLease, BlockingSession, BlockingStore, blocking


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


def test_a_lease_is_held_by_a_with_block(url: str) -> None:
    with blocking(url) as store:
        with store.leases.acquire("s", user_id="alice") as lease:
            leased = store.session("s", user_id="alice").with_lease(lease)
            leased.append_message(user("mine"))
            with pytest.raises(ConfigurationError, match="wait for itself"):
                store.leases.acquire("s", "alice", wait=0)

            assert (lease.session_id, lease.user_id, lease.held) == ("s", "alice", True)
            assert isinstance(lease.token, int)

        assert not lease.held
        with pytest.raises(LeaseLost):
            leased.append_message(user("late"))
        assert [message.text for message in leased.get_history()] == ["mine"]


def test_a_session_leases_itself_for_a_with_block(url: str) -> None:
    with blocking(url) as store:
        session = store.session("s", user_id="alice")
        with session.lease(ttl=5, wait=1) as leased:
            assert isinstance(leased, BlockingSession)
            leased.append_message(user("mine"))
            with pytest.raises(ConfigurationError, match="wait for itself"), session.lease(wait=0):
                pass

        with pytest.raises(LeaseLost):
            leased.append_message(user("late"))
        with session.lease(wait=0) as again:
            assert [message.text for message in again.get_history()] == ["mine"]


def test_a_lease_is_released_by_hand(url: str) -> None:
    with blocking(url) as store:
        first = store.leases.acquire("s")
        assert isinstance(first, BlockingLease)
        first.release()
        first.release()

        second = store.leases.acquire("s", wait=0)

        assert second.token > first.token
        second.release()


def test_texts_reach_the_holder(url: str) -> None:
    with blocking(url) as store, blocking(url) as other:
        assert other.leases.holder("s") is None
        assert not other.leases.send("s", None, "anybody?")
        with store.leases.acquire("s", label="agent:a") as lease:
            holder = other.leases.holder("s")
            assert holder is not None
            assert (holder.token, holder.label) == (lease.token, "agent:a")
            assert other.leases.send("s", None, "stop", label="agent:a")
            assert not other.leases.send("s", None, "stop", label="agent:b")
            assert lease.receive() == ["stop"]
            assert lease.receive() == []
            assert other.leases.release("s", token=holder.token)
            with pytest.raises(LeaseLost):
                lease.receive()


def test_a_lease_is_kept_while_nobody_calls(url: str) -> None:
    with blocking(url) as store, blocking(url) as other, store.leases.acquire("s", ttl=0.6) as lease:
        with pytest.raises(LeaseBusy):
            other.leases.acquire("s", wait=1.5)

        assert lease.held


def test_a_thread_waits_for_the_lease_of_another(url: str) -> None:
    order: list[str] = []
    with blocking(url) as store:

        def follow() -> None:
            with store.leases.acquire("s"):
                order.append("follower")

        with store.leases.acquire("s"):
            following = threading.Thread(target=follow)
            following.start()
            order.append("holder")
        following.join(20)

    assert order == ["holder", "follower"]


def test_errors_are_those_of_the_async_call(url: str) -> None:
    with blocking(url) as store, store.leases.acquire("s") as lease:
        with pytest.raises(ConfigurationError, match="'s'"):
            store.session("t").with_lease(lease)
        with pytest.raises(ValueError, match="refused"):
            store.leases.acquire("..")


async def test_a_store_that_is_closed_leaves_its_leases_to_run_out(url: str) -> None:
    store: BlockingStore = blocking(url)
    lease = store.leases.acquire("s", ttl=0.2)
    store.close()

    async with open_store(url) as again, again.leases.acquire("s", wait=20) as next_lease:
        assert next_lease.token > lease.token
