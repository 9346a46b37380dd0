"""What a leased handle promises: it writes as long as it holds the lease, and nothing after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    LATEST_LEAF,
    ConfigurationError,
    LeaseLost,
    Session,
    StoredContextProvider,
    StoredSearchProvider,
    assistant,
    create_compact_function,
    user,
)
from leafward.core.ids import Scope
from leafward.stores import NOT_THERE, AttachedState, Draft, Usage
from leafward.testing.elsewhere import elsewhere
from leafward.testing.filled import fill, manage, picture, put_fact

if TYPE_CHECKING:
    from leafward.stores import Lease, Store

NOTE = {"label": "memory", "content": "late"}
TEA = {"label": "recipes", "key": "tea"}


async def _call_tool(session: Session, name: str, arguments: dict[str, Any]) -> str:
    return await (await session.tools()).call(name, arguments)


WRITES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "append_message": lambda s: s.append_message(user("late")),
    "append_message of a known id": lambda s: s.append_message(user("late", id="m1")),
    "append_messages": lambda s: s.append_messages([user("late"), assistant("late")]),
    "append_message elsewhere": lambda s: s.append_message(user("late"), parent_id=None),
    "append_message with a state": lambda s: s.append_message(user("late"), state={"late": {}}),
    "append_message of a known id with a state": lambda s: s.append_message(user("", id="m1"), state={"late": {}}),
    "set_state": lambda s: s.set_state("walnuts", {"late": True}),
    "set_state that removes": lambda s: s.set_state("walnuts", None),
    "set_state that is in force": lambda s: s.set_state("walnuts", {"cracked": 6}),
    "update_message": lambda s: s.update_message(user("late", id="m1")),
    "upsert_message that is there": lambda s: s.upsert_message(user("late", id="m1")),
    "upsert_message that is new": lambda s: s.upsert_message(user("late")),
    "delete_messages": lambda s: s.delete_messages(["m1"]),
    "clear_messages": lambda s: s.clear_messages(),
    "checkout": lambda s: s.checkout("m2"),
    "label": lambda s: s.label("m1", "late"),
    "label taken away": lambda s: s.label("m2", None),
    "compact": lambda s: s.compact(),
    "add_compaction": lambda s: s.add_compaction("late", "m6", "m7"),
    "replace_context_block": lambda s: s.replace_context_block("memory", "late"),
    "append_context_block": lambda s: s.append_context_block("memory", "late"),
    "append_context_block that is shared": lambda s: s.append_context_block("house", "late"),
    "load_skill": lambda s: s.load_skill("recipes", "tea"),
    "unload_skill": lambda s: s.unload_skill("recipes", "tea"),
    "remove_context of a loaded skill": lambda s: s.remove_context("recipes"),
    "freeze_system_prompt": lambda s: s.freeze_system_prompt(),
    "refresh_system_prompt": lambda s: s.refresh_system_prompt(),
    "set_context": lambda s: _call_tool(s, "set_context", NOTE),
    "set_context of an entry": lambda s: put_fact(s, "Late", "late"),
    "load_context": lambda s: _call_tool(s, "load_context", TEA),
    "unload_context": lambda s: _call_tool(s, "unload_context", TEA),
}


async def _whole(store: Store) -> Session:
    """Return a session that has one of everything, something to sum up, and no stored prompt."""
    compact = create_compact_function(
        summarize=lambda prompt: "in short", protect_head=1, tail_token_budget=10, min_tail_messages=1
    )
    session = manage(store).on_compaction(compact).get_session("s")
    await fill(session)
    await session.append_messages([user(f"walnut again {n}", id=f"w{n}") for n in range(8)])
    await session.add_compaction("said again", "w0", "w1")
    return session


async def _answers(make: Callable[[], Session]) -> dict[str, str]:
    """Make every write through a handle of its own and return what did not say that the lease is lost."""
    said: dict[str, str] = {}
    for name, write in WRITES.items():
        try:
            said[name] = repr(await write(make()))
        except LeaseLost:
            continue
        except Exception as error:  # noqa: BLE001  (whatever else it was is the finding)
            said[name] = repr(error)
    return said


async def _taken_over(store: Store) -> tuple[Lease, Lease]:
    """Return a lease that was lost, and the one of the next holder."""
    lost = await store.leases.acquire("s", ttl=0.05)
    lost._renewing.cancel()  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(20):
        return lost, await elsewhere(store.leases.acquire("s"))


async def _write_on(leased: Session) -> None:
    """Write until that is refused."""
    while True:
        await leased.append_message(user("old"))
        # A store in memory answers at once; others want their turn.
        await asyncio.sleep(0)


async def _follow(store: Store, session: Session) -> None:
    """Write once as the next holder."""
    async with store.leases.acquire(session.session_id) as lease:
        await session.with_lease(lease).append_message(user("new"))


class Fencing:
    """What a handle with a lease may write, and when."""

    async def test_every_write_works_behind_a_lease(self, store: Store) -> None:
        for name, write in WRITES.items():
            session = await _whole(store)
            async with store.leases.acquire("s") as lease:
                try:
                    await write(session.with_lease(lease))
                except Exception as error:
                    raise AssertionError(f"{name} failed behind a lease") from error
            await manage(store).delete("s")

    async def test_no_write_of_a_holder_that_was_followed_changes_anything(self, store: Store) -> None:
        session = await _whole(store)
        lost, held = await _taken_over(store)
        before = await picture(session), await session.get_version()

        said = await _answers(lambda: session.with_lease(lost))

        assert said == {}
        assert (await picture(session), await session.get_version()) == before
        await session.with_lease(held).append_message(user("mine"))
        await held.release()

    async def test_no_write_behind_a_released_lease_changes_anything(self, store: Store) -> None:
        session = await _whole(store)
        lease = await store.leases.acquire("s")
        await lease.release()
        before = await picture(session), await session.get_version()

        said = await _answers(lambda: session.with_lease(lease))

        assert said == {}
        assert (await picture(session), await session.get_version()) == before

    async def test_no_batch_of_a_holder_that_was_followed_changes_anything(self, store: Store) -> None:
        session = await _whole(store)
        lost, held = await _taken_over(store)
        before = await picture(session), await session.get_version(), await manage(store).get("s")
        messages = store.fenced(lost).messages
        new, known = (Draft(*user("late", id=id).sealed(), 2) for id in ("late", "m1"))
        late = [AttachedState("walnuts", '{"late":true}')]
        usage = Usage(1, 2, 3.0, usage_id="late")

        for drafts, states, used in (
            ([new], late, usage),
            ([new], [], usage),
            ([known], late, usage),
            ([known], [], usage),
            ([], late, usage),
            ([], [], usage),
        ):
            with pytest.raises(LeaseLost):
                await messages.append(Scope.of("s"), drafts, LATEST_LEAF, state=states, usage=used)

        assert (await picture(session), await session.get_version(), await manage(store).get("s")) == before
        mine = store.fenced(held).messages
        done = await mine.append(Scope.of("s"), [new], LATEST_LEAF, state=late, usage=usage)
        assert (done.inserted, list(done.states), done.counted) == (1, late, True)
        await held.release()

    async def test_a_lease_that_ran_out_holds_until_another_holder_comes(self, store: Store) -> None:
        lease = await store.leases.acquire("s", ttl=0.05)
        lease._renewing.cancel()  # pyright: ignore[reportPrivateUsage]
        session = Session(store, "s").with_lease(lease)
        await asyncio.sleep(0.1)

        assert not lease.held
        await session.append_message(user("nobody came"))
        async with store.leases.acquire("s"):
            with pytest.raises(LeaseLost):
                await session.append_message(user("late"))

        assert [m.text for m in await session.get_history()] == ["nobody came"]

    async def test_a_handle_without_the_lease_still_writes(self, store: Store) -> None:
        session = Session(store, "s")
        lease = await store.leases.acquire("s")
        leased = session.with_lease(lease)

        await session.append_message(user("one"))
        await leased.append_message(user("two"))
        await lease.release()
        await session.append_message(user("three"))

        assert leased is not session
        assert [m.text for m in await leased.get_history()] == ["one", "two", "three"]

    async def test_a_handle_whose_lease_is_lost_still_reads(self, store: Store) -> None:
        session = await _whole(store)
        lost, held = await _taken_over(store)

        assert await picture(session.with_lease(lost)) == await picture(session)
        await held.release()

    async def test_a_lease_is_for_its_slot_only(self, store: Store) -> None:
        async with store.leases.acquire("s", user_id="alice") as lease:
            for session in (
                Session(store, "t", user_id="alice"),
                Session(store, "s", user_id="Alice"),
                Session(store, "s"),
                Session(store, "alice", user_id="s"),
            ):
                with pytest.raises(ConfigurationError, match="alice"):
                    session.with_lease(lease)
            fenced = store.fenced(lease)
            for scope in (Scope.of("t", user_id="alice"), Scope.of("s")):
                with pytest.raises(ConfigurationError, match="alice"):
                    await fenced.messages.clear(scope)
                with pytest.raises(ConfigurationError, match="alice"):
                    await fenced.entries.load_skill(scope, "recipes", "tea")
                assert await store.messages.revision(scope) == NOT_THERE

    async def test_the_anonymous_users_lease_is_for_no_other_user(self, store: Store) -> None:
        async with store.leases.acquire("s") as lease:
            await Session(store, "s").with_lease(lease).append_message(user("mine"))
            with pytest.raises(ConfigurationError, match="'s'"):
                Session(store, "s", user_id="alice").with_lease(lease)

    async def test_agents_share_the_lease_of_a_users_session(self, store: Store) -> None:
        sessions = [Session(store, "s", user_id="alice", agent_id=name) for name in ("one", "two")]
        lease = await store.leases.acquire("s", user_id="alice")
        leased = [session.with_lease(lease) for session in sessions]

        for session in leased:
            await session.append_message(user(session.agent_id))
        await lease.release()
        for session in leased:
            with pytest.raises(LeaseLost):
                await session.append_message(user("late"))

        assert [[m.text for m in await session.get_history()] for session in sessions] == [["one"], ["two"]]

    async def test_a_leased_handle_is_set_up_like_the_one_it_comes_from(self, store: Store) -> None:
        compact = create_compact_function(
            summarize=lambda prompt: "in short", protect_head=1, tail_token_budget=10, min_tail_messages=1
        )
        session = (
            Session(store, "s", user_id="alice", agent_id="support")
            .with_context("soul", provider="You are helpful.")
            .with_context("memory", description="Learned facts", max_tokens=30)
            .with_cached_prompt()
            .on_compaction(compact)
            .compact_after(200)
        )
        await session.replace_context_block("memory", "Likes tea.")
        prompt = await session.freeze_system_prompt()
        async with store.leases.acquire("s", user_id="alice") as lease:
            leased = session.with_lease(lease)

            assert (leased.session_id, leased.user_id, leased.agent_id) == ("s", "alice", "support")
            assert await leased.get_context_blocks() == await session.get_context_blocks()
            assert await leased.freeze_system_prompt() == prompt
            assert list(await leased.tools()) == list(await session.tools())
            await leased.append_messages([user(f"a longer message {n} " * 4) for n in range(20)])
            assert len(await leased.get_compactions()) == 1
            assert leased.compaction_log == session.compaction_log != []

    async def test_a_leased_handle_may_be_set_up_further(self, store: Store) -> None:
        session = Session(store, "s").with_context("memory")
        async with store.leases.acquire("s") as lease:
            leased = session.with_lease(lease).with_context("more")

            assert [block.label for block in await leased.get_context_blocks()] == ["memory", "more"]
            assert [block.label for block in await session.get_context_blocks()] == ["memory"]

    async def test_a_new_lease_takes_the_place_of_the_old_one(self, store: Store) -> None:
        session = Session(store, "s").with_context("memory", provider=StoredContextProvider(store=store))
        async with store.leases.acquire("s") as first:
            leased = session.with_lease(first)
            await leased.append_message(user("one"))
        async with store.leases.acquire("s") as second:
            await leased.with_lease(second).append_message(user("two"))
            await leased.with_lease(second).replace_context_block("memory", "Likes tea.")
            with pytest.raises(LeaseLost):
                await leased.append_message(user("late"))
        with pytest.raises(LeaseLost):
            await leased.with_lease(second).replace_context_block("memory", "late")

        assert [m.text for m in await session.get_history()] == ["one", "two"]

    async def test_a_provider_that_names_the_same_store_is_fenced_too(self, store: Store) -> None:
        session = (
            Session(store, "s")
            .with_context("memory", provider=StoredContextProvider(store=store))
            .with_context("facts", provider=StoredSearchProvider(store=store))
            .with_cached_prompt(StoredContextProvider(store=store))
        )
        await session.replace_context_block("memory", "Likes tea.")
        await put_fact(session, "Tree", "The walnut tree is old.")
        lease = await store.leases.acquire("s")
        leased = session.with_lease(lease)
        await leased.append_context_block("memory", "Takes milk.")
        await lease.release()

        for write in (
            leased.append_context_block("memory", "late"),
            put_fact(leased, "Late", "late"),
            leased.refresh_system_prompt(),
        ):
            with pytest.raises(LeaseLost):
                await write

        contents = [block.content for block in await session.get_context_blocks()]
        assert contents == ["Likes tea.\nTakes milk.", "1 entries indexed."]

    @pytest.mark.parametrize("steps", range(0, 24, 3))
    async def test_no_write_that_races_a_release_lands_behind_the_next_holder(self, store: Store, steps: int) -> None:
        for n in range(4):
            session = Session(store, f"s{n}")
            lease = await store.leases.acquire(session.session_id)
            leased = session.with_lease(lease)

            writing = asyncio.ensure_future(_write_on(leased))
            following = elsewhere(_follow(store, session))
            for _ in range(steps):
                await asyncio.sleep(0)
            await lease.release()
            async with asyncio.timeout(20):
                with pytest.raises(LeaseLost):
                    await writing
                await following

            texts = [m.text for m in await session.get_history()]
            assert texts == ["old"] * (len(texts) - 1) + ["new"]

    async def test_no_write_that_races_a_takeover_lands_behind_the_next_holder(self, store: Store) -> None:
        async def race(session: Session) -> list[str]:
            lost = await store.leases.acquire(session.session_id, ttl=0.05)
            lost._renewing.cancel()  # pyright: ignore[reportPrivateUsage]
            leased = session.with_lease(lost)

            following = elsewhere(_follow(store, session))
            with pytest.raises(LeaseLost):
                await _write_on(leased)
            await following
            return [m.text for m in await session.get_history()]

        async with asyncio.timeout(60):
            raced = await asyncio.gather(*(race(Session(store, f"s{n}")) for n in range(12)))

        assert [texts.index("new") == len(texts) - 1 for texts in raced] == [True] * 12
