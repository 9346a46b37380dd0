"""What texts to the holder of a lease promise: each arrives once, in order, at a holder with its label."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, LeaseBusy, LeaseLost, Session, user
from leafward.testing.durable import PATIENCE, Reopen
from leafward.testing.elsewhere import elsewhere
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS

if TYPE_CHECKING:
    from leafward.stores import Lease, LeaseTable, Slot, Store

SHORT = 0.3
"""Seconds that a lease lasts which is to run out."""
MOST = 1_000
LARGEST = 64 * 1024


def table_of(store: Store) -> LeaseTable:
    """Return what the store's backend does for leases."""
    from leafward.stores import TableLeases

    assert isinstance(store.leases, TableLeases), "leases of another kind are tested by their own tests"
    return store.leases._table  # pyright: ignore[reportPrivateUsage]


def slot(session_id: str, user_id: str | None = None) -> Slot:
    from leafward.stores import Slot

    return Slot(user_id, session_id)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Return when something is so that only the passing of time brings about."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.02)


async def died(store: Store, lease: Lease) -> None:
    """Let a lease run out, as that of a holder that was killed does."""
    lease._renewing.cancel()  # pyright: ignore[reportPrivateUsage]

    async def is_over() -> bool:
        return await store.leases.holder(lease.session_id, lease.user_id) is None

    await until(is_over)


class _Holders:
    """Who has a lease, and how one that is gone is ended."""

    async def test_a_holder_is_shown_to_others(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        assert await other.leases.holder("s", "alice") is None

        async with store.leases.acquire("s", "alice", 30, label="agent:support") as lease:
            found = await other.leases.holder("s", "alice")
            assert found is not None
            assert found == await store.leases.holder("s", user_id="alice")
            assert (found.token, found.label, lease.label) == (lease.token, "agent:support", "agent:support")
            assert timedelta(seconds=20) < found.expires - found.since <= timedelta(seconds=31)
            assert found.since.tzinfo is not None
            assert await other.leases.holder("s") is None

        assert await other.leases.holder("s", "alice") is None

    async def test_a_lease_without_a_label_shows_none_also_after_one_with(self, store: Store) -> None:
        async with store.leases.acquire("s", label="one"):
            pass
        async with store.leases.acquire("s") as lease:
            found = await store.leases.holder("s")
            assert found is not None
            assert (found.token, found.label) == (lease.token, None)

    async def test_a_renewal_shows(self, store: Store) -> None:
        async with store.leases.acquire("s", ttl=1) as lease:
            first = await store.leases.holder("s")
            assert first is not None

            async def is_renewed() -> bool:
                found = await store.leases.holder("s")
                assert found is not None
                assert (found.token, found.since) == (lease.token, first.since)
                return found.expires > first.expires

            await until(is_renewed)

    async def test_a_lease_that_ran_out_has_no_holder(self, store: Store) -> None:
        lease = await store.leases.acquire("s", ttl=SHORT)
        assert await store.leases.send("s", None, "in time")
        await died(store, lease)
        assert not await store.leases.send("s", None, "too late")
        assert await lease.receive() == ["in time"], "another holder has not come"

    async def test_a_lease_is_ended_by_its_token(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        lease = await store.leases.acquire("s", ttl=1000)
        leased = Session(store, "s").with_lease(lease)
        await leased.append_message(user("before"))
        waiting = elsewhere(store.leases.acquire("s"))

        assert not await other.leases.release("s", token=lease.token - 1)
        assert not await other.leases.release("s", "alice", token=lease.token)
        assert await store.leases.release("s", token=lease.token)

        async with asyncio.timeout(PATIENCE):
            following = await waiting
        assert following.token > lease.token
        with pytest.raises(LeaseLost):
            await leased.append_message(user("late"))
        assert not await other.leases.release("s", token=lease.token)
        await lease.release()
        assert await other.leases.holder("s") is not None
        await following.release()

    @pytest.mark.parametrize("wrong", [None, "1", 1.5, True])
    async def test_a_token_is_a_number(self, store: Store, wrong: Any) -> None:
        with pytest.raises(ValueError, match="token"):
            await store.leases.release("s", token=wrong)

    async def test_ids_and_labels_are_checked(self, store: Store) -> None:
        leases = store.leases
        of_ids: list[Callable[[str], Awaitable[Any]]] = [
            leases.holder,
            lambda name: leases.send(name, None, "text"),
            lambda name: leases.send("s", name, "text"),
            lambda name: leases.release(name, token=1),
        ]
        of_labels: list[Callable[[str], Awaitable[Any]]] = [
            lambda name: leases.send("s", None, "text", label=name),
            lambda name: leases.acquire("s", label=name),
        ]
        for name in REFUSED_IDS:
            # A label has room for a word and an id.
            for call in [*of_ids, *(of_labels if len(name) <= 255 else [])]:
                with pytest.raises(InvalidId):
                    await call(name)
        for call in of_labels:
            with pytest.raises(InvalidId, match="label"):
                await call("x" * 301)


class _Sending:
    """Send and receive."""

    async def test_a_text_arrives_once(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        async with store.leases.acquire("s", "alice") as lease:
            assert await lease.receive() == []
            assert await other.leases.send("s", "alice", "stop")
            assert await lease.receive() == ["stop"]
            assert await lease.receive() == []
            assert await other.leases.send("s", "alice", "and go on")
            assert await store.leases.send("s", "alice", "please")
            assert await lease.receive() == ["and go on", "please"]
            assert await lease.receive() == []

    async def test_a_text_that_was_only_looked_at_waits_until_it_is_acknowledged(self, store: Store) -> None:
        async with store.leases.acquire("s", "alice", label="agent") as lease:
            for text in ("stop", "and sum up"):
                assert await store.leases.send("s", "alice", text)
            first, second = await lease.peek()
            assert (first.text, second.text) == ("stop", "and sum up")
            assert await lease.peek() == [first, second]
            await lease.acknowledge(first.number)
            assert await lease.peek() == [second]
        async with store.leases.acquire("s", "alice", label="agent") as lease:
            assert await lease.receive() == ["and sum up"]

    async def test_nothing_is_sent_where_no_one_holds_the_lease(self, store: Store) -> None:
        assert not await store.leases.send("s", None, "anybody?")
        async with store.leases.acquire("s") as lease:
            assert not await store.leases.send("s", "alice", "to another user")
            assert not await store.leases.send("t", None, "to another session")
            assert await lease.receive() == []
        assert not await store.leases.send("s", None, "too late")
        async with store.leases.acquire("s") as lease:
            assert await lease.receive() == []

    async def test_a_label_is_who_it_is_for(self, store: Store) -> None:
        async with store.leases.acquire("s", label="a") as lease:
            assert not await store.leases.send("s", None, "for b", label="b")
            assert await store.leases.send("s", None, "for a", label="a")
            assert await store.leases.send("s", None, "for all")
            assert await lease.receive() == ["for a", "for all"]
        async with store.leases.acquire("s") as lease:
            assert not await store.leases.send("s", None, "for a", label="a")
            assert await lease.receive() == []

    async def test_what_was_not_received_waits_for_the_next_one_with_that_label(self, store: Store) -> None:
        async with store.leases.acquire("s", label="a"):
            for number in range(3):
                assert await store.leases.send("s", None, f"for a {number}", label="a")
            assert await store.leases.send("s", None, "for all")
        async with store.leases.acquire("s", label="b") as lease:
            assert await lease.receive() == ["for all"]
        async with store.leases.acquire("s") as lease:
            assert await lease.receive() == []
        async with store.leases.acquire("s", label="a") as lease:
            assert await store.leases.send("s", None, "more", label="a")
            assert await lease.receive() == ["for a 0", "for a 1", "for a 2", "more"]
            assert await lease.receive() == []

    async def test_a_holder_that_died_leaves_its_texts_to_the_next(self, store: Store, reopen: Reopen) -> None:
        lease = await store.leases.acquire("s", ttl=SHORT, label="a")
        assert await store.leases.send("s", None, "received", label="a")
        assert await lease.receive() == ["received"]
        assert await store.leases.send("s", None, "not received", label="a")
        await died(store, lease)

        async with asyncio.timeout(PATIENCE), (await reopen()).leases.acquire("s", label="a") as following:
            assert await following.receive() == ["not received"]
            with pytest.raises(LeaseLost):
                await lease.receive()
            assert await following.receive() == []

    async def test_one_who_lost_the_lease_can_acquire_it_again_at_once(self, store: Store, reopen: Reopen) -> None:
        lost = await store.leases.acquire("s")
        assert await (await reopen()).leases.release("s", token=lost.token)

        async with store.leases.acquire("s", wait=0) as lease:
            assert lease.token > lost.token

    async def test_one_who_lost_the_lease_receives_nothing(self, store: Store) -> None:
        lease = await store.leases.acquire("s")
        assert await store.leases.send("s", None, "text")
        await lease.release()
        with pytest.raises(LeaseLost, match="'s'"):
            await lease.receive()
        async with store.leases.acquire("s") as following:
            assert await following.receive() == ["text"]

    async def test_texts_come_as_they_were_sent(self, store: Store) -> None:
        texts = ["", " ", "a\nb", "nul \0 and \ue0001", "žluť 中文 🙂", "%s ' \" \\ {p} ?", "x" * LARGEST, *HOSTILE_IDS]
        async with store.leases.acquire("s") as lease:
            for text in texts:
                assert await store.leases.send("s", None, text)
            assert await lease.receive() == texts

    async def test_slots_and_labels_may_be_any_ids(self, store: Store) -> None:
        for name in HOSTILE_IDS:
            async with store.leases.acquire(name, name, label=f"agent:{name}") as lease:
                assert await store.leases.send(name, name, name, label=f"agent:{name}")
                assert not await store.leases.send(name, name, name, label=f"agent {name}")
                assert await lease.receive() == [name]

    async def test_a_text_has_an_end(self, store: Store) -> None:
        async with store.leases.acquire("s") as lease:
            for wrong in ("x" * (LARGEST + 1), "中" * (LARGEST // 3 + 1), "\ud800"):
                with pytest.raises(ValueError, match="a text that is sent"):
                    await store.leases.send("s", None, wrong)
            with pytest.raises(TypeError):
                await store.leases.send("s", None, b"bytes")  # pyright: ignore[reportArgumentType]
            assert await lease.receive() == []

    async def test_a_thousand_may_wait_for_each_label(self, store: Store) -> None:
        async with store.leases.acquire("s", label="a"):
            for number in range(MOST):
                assert await store.leases.send("s", None, f"{number}", label="a")
            for _ in range(2):
                with pytest.raises(LeaseBusy, match="1,000"):
                    await store.leases.send("s", None, "one too many", label="a")
        async with store.leases.acquire("s", label="b") as lease:
            assert await store.leases.send("s", None, "for b", label="b")
            assert await lease.receive() == ["for b"]
        async with store.leases.acquire("s", label="a") as lease:
            assert await lease.receive() == [f"{number}" for number in range(MOST)]
            assert await store.leases.send("s", None, "room again", label="a")
            assert await lease.receive() == ["room again"]

    async def test_of_many_senders_each_is_heard_once_and_in_its_order(self, store: Store, reopen: Reopen) -> None:
        stores = [store, await reopen()]
        received: list[str] = []

        async def send(number: int) -> None:
            for n in range(20):
                assert await stores[number % 2].leases.send("s", None, f"{number} {n}")

        async with asyncio.timeout(PATIENCE), store.leases.acquire("s") as lease:
            sending = asyncio.gather(*(send(number) for number in range(6)))
            while len(received) < 120:
                received += await lease.receive()
                # A store in memory answers at once; the senders want their turn.
                await asyncio.sleep(0)
            await sending
            received += await lease.receive()

        assert sorted(received) == sorted(f"{number} {n}" for number in range(6) for n in range(20))
        for number in range(6):
            assert [one for one in received if one.startswith(f"{number} ")] == [f"{number} {n}" for n in range(20)]

    async def test_a_call_that_is_cancelled_at_any_step_loses_no_text(self, store: Store) -> None:
        received: list[str] = []
        async with store.leases.acquire("s") as lease:
            for steps in range(24):
                assert await store.leases.send("s", None, f"{steps}")
                receiving = asyncio.ensure_future(lease.receive())
                for _ in range(steps):
                    await asyncio.sleep(0)
                receiving.cancel()
                with suppress(asyncio.CancelledError):
                    received += await receiving
            received += await lease.receive()
            assert received == [f"{steps}" for steps in range(24)]

    async def test_calls_at_once_share_the_texts(self, store: Store) -> None:
        async with store.leases.acquire("s") as lease:
            for number in range(10):
                await store.leases.send("s", None, f"{number}")
            found = await asyncio.gather(*(lease.receive() for _ in range(3)))
            assert [text for texts in found for text in texts] == [f"{number}" for number in range(10)]


class _Repeating:
    """The backend's own calls, which are repeated when an answer is lost."""

    async def test_texts_are_there_until_they_were_received(self, store: Store) -> None:
        table, here = table_of(store), slot("s")
        assert await table.take(here, "me", 30, "a") is not None
        for text, label in (("first", None), ("second", "a"), ("third", None)):
            assert await table.send(here, text, label)
        found = await table.texts(here, "me")
        assert [one.text for one in found] == ["first", "second", "third"]
        assert [one.number for one in found] == sorted({one.number for one in found})
        assert await table.texts(here, "me") == found

        for _ in range(2):
            await table.received(here, "me", found[1].number)
            assert await table.texts(here, "me") == found[2:]
        assert await table.send(here, "fourth")
        await table.received(here, "me", found[1].number)
        assert [one.text for one in await table.texts(here, "me")] == ["third", "fourth"]
        for holder in ("another", "me"):
            await table.leave(here, holder)

    async def test_numbers_grow_when_nothing_is_left(self, store: Store) -> None:
        table, here = table_of(store), slot("s")
        numbers: list[int] = []
        for holder in ("one", "two", "three"):
            assert await table.take(here, holder, 30) is not None
            assert await table.send(here, f"for {holder}")
            ((number, text),) = await table.texts(here, holder)
            assert text == f"for {holder}"
            numbers.append(number)
            await table.received(here, holder, number)
            await table.leave(here, holder)
            await table.clear(here)
        assert numbers == sorted({*numbers})

    async def test_only_the_holder_has_texts(self, store: Store) -> None:
        table, here = table_of(store), slot("s")
        assert await table.take(here, "me", 30) is not None
        assert await table.send(here, "text")
        (found,) = await table.texts(here, "me")
        await table.take(here, "another", 30)
        for _ in range(2):
            for holder in ("another", "nobody"):
                with pytest.raises(LeaseLost):
                    await table.texts(here, holder)
                with pytest.raises(LeaseLost):
                    await table.received(here, holder, found.number)
            assert await table.texts(here, "me") == [found]
        await table.leave(here, "me")
        for call in (table.texts(here, "me"), table.received(here, "me", found.number)):
            with pytest.raises(LeaseLost):
                await call
        await table.leave(here, "another")

    async def test_what_waits_for_another_label_is_not_received(self, store: Store) -> None:
        table, here = table_of(store), slot("s")
        assert await table.take(here, "one", 30, "a") is not None
        assert await table.send(here, "for a", "a")
        await table.leave(here, "one")
        assert await table.take(here, "two", 30, "b") is not None
        assert await table.send(here, "for all")
        (found,) = await table.texts(here, "two")
        await table.received(here, "two", found.number)
        await table.leave(here, "two")
        assert await table.take(here, "three", 30, "a") is not None
        assert [one.text for one in await table.texts(here, "three")] == ["for a"]
        await table.leave(here, "three")

    async def test_texts_are_cleared(self, store: Store) -> None:
        table, here, there = table_of(store), slot("s", "alice"), slot("s")
        assert not await table.clear(here)
        for one in (here, there):
            assert await table.take(one, "me", 30, "a") is not None
            assert await table.send(one, "text", "a")
        assert await table.clear(here)
        assert not await table.clear(here)
        assert await table.texts(here, "me") == []
        assert len(await table.texts(there, "me")) == 1
        for one in (here, there):
            await table.leave(one, "me")

    async def test_a_renewal_says_whether_texts_wait(self, store: Store) -> None:
        table, here = table_of(store), slot("s")
        assert await table.take(here, "me", 30, "a") is not None
        assert await table.renew(here, "me", 30) == (True, False)
        assert await table.send(here, "text", "a")
        assert await table.renew(here, "me", 30) == (True, True)
        await table.received(here, "me", (await table.texts(here, "me"))[-1].number)
        assert await table.renew(here, "me", 30) == (True, False)
        assert await table.send(here, "text")
        assert await table.renew(here, "me", 30) == (True, True)
        assert await table.renew(here, "another", 30) == (False, False)
        await table.leave(here, "me")
        assert await table.renew(here, "me", 30) == (False, False)

    @pytest.mark.parametrize("others", [0, 60])
    async def test_one_call_asks_for_many_slots(self, store: Store, others: int) -> None:
        table = table_of(store)
        slots = [slot("one"), slot("two"), slot("two", "alice"), slot("three", "bob"), slot("four", "bob")]
        slots += [slot(f"other {n}", "carol" if n % 2 else None) for n in range(others)]
        assert await table.waiting([]) == set()
        assert await table.waiting(slots) == set()
        for one in slots[:4]:
            assert await table.take(one, "me", 30, "a") is not None
        for one in slots[1:4]:
            assert await table.send(one, "text", "a")
        await table.received(slots[1], "me", (await table.texts(slots[1], "me"))[-1].number)
        assert await table.waiting(slots) == {slots[2], slots[3]}
        assert await table.waiting(slots[3:4]) == {slots[3]}
        assert await table.waiting(slots[:2]) == set()

        await table.leave(slots[2], "me")
        assert await table.take(slots[2], "next", 30, "b") is not None
        assert await table.waiting(slots) == {slots[3]}, "what waits for another label does not count"
        for one, holder in ((slots[0], "me"), (slots[1], "me"), (slots[2], "next"), (slots[3], "me")):
            await table.leave(one, holder)

    async def test_a_holder_learns_at_its_next_renewal_that_texts_wait(self, store: Store) -> None:
        async with store.leases.acquire("s", ttl=1) as lease:
            assert not lease.has_texts
            assert await store.leases.send("s", None, "text")

            async def knows() -> bool:
                return lease.has_texts

            await until(knows)
            assert await lease.receive() == ["text"]
            assert not lease.has_texts


class _Ending:
    """Texts go with their session."""

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_texts_go_with_their_session(self, store: Store, how: str) -> None:
        session = Session(store, "s", user_id="alice")
        await session.append_message(user("text"))
        async with store.leases.acquire("s", "alice", label="a") as lease:
            assert await store.leases.send("s", "alice", "received")
            assert await lease.receive() == ["received"]
            assert await store.leases.send("s", "alice", "waits", label="a")
            assert await store.leases.send("s", "alice", "waits")

        await getattr(store.registry, how)(session._scope)  # pyright: ignore[reportPrivateUsage]

        async with store.leases.acquire("s", "alice", label="a") as lease:
            assert await lease.receive() == []

    async def test_texts_stay_for_another_agent_of_the_session(self, store: Store) -> None:
        one, other = (Session(store, "s", agent_id=agent) for agent in ("one", "other"))
        for session in (one, other):
            await session.append_message(user("text"))
        async with store.leases.acquire("s", label="agent:other"):
            assert await store.leases.send("s", None, "for other", label="agent:other")

        await store.registry.delete(one._scope)  # pyright: ignore[reportPrivateUsage]
        async with store.leases.acquire("s", label="agent:other") as lease:
            assert await lease.receive() == ["for other"]

    async def test_texts_outlive_the_store_that_sent_them(self, store: Store, reopen: Reopen) -> None:
        async with store.leases.acquire("s", label="a"):
            other = await reopen()
            assert await other.leases.send("s", None, "text", label="a")
            await other.close()
        async with (await reopen()).leases.acquire("s", label="a") as lease:
            assert await lease.receive() == ["text"]


@pytest.mark.asyncio
class LeaseMessageContract(_Holders, _Sending, _Repeating, _Ending):
    """Others see who holds a lease, and what they send to the holder arrives once, there or at the next.

    Subclasses define the fixtures `store` and `reopen` as `DurableContract` says.
    """
