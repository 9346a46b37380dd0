"""What an open store promises: closing, who may use it, and what a cancelled write leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Session, StoreError, user

if TYPE_CHECKING:
    from leafward.stores import Store

PATIENCE = 20
"""Seconds after which a call that should have ended counts as stuck."""

CALLS: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "append_message": lambda s: s.append_message(user("late")),
    "append_messages": lambda s: s.append_messages([user("late")]),
    "update_message": lambda s: s.update_message(user("late", id="m")),
    "upsert_message": lambda s: s.upsert_message(user("late", id="m")),
    "delete_messages": lambda s: s.delete_messages(["m"]),
    "clear_messages": lambda s: s.clear_messages(),
    "get_history": lambda s: s.get_history(),
    "get_raw_history": lambda s: s.get_raw_history(),
    "get_raw_history of a page": lambda s: s.get_raw_history(limit=1),
    "iter_history": lambda s: anext(aiter(s.iter_history())),
    "get_recent_history": lambda s: s.get_recent_history(max_messages=1),
    "get_message": lambda s: s.get_message("m"),
    "get_parent": lambda s: s.get_parent("m"),
    "get_latest_leaf": lambda s: s.get_latest_leaf(),
    "get_branches": lambda s: s.get_branches(None),
    "get_path_length": lambda s: s.get_path_length(),
    "get_tip": lambda s: s.get_tip("m"),
    "checkout": lambda s: s.checkout("m"),
    "checkout of a tip": lambda s: s.checkout("m", tip=True),
    "get_leaves": lambda s: s.get_leaves(),
    "get_tree": lambda s: s.get_tree(),
    "label": lambda s: s.label("m", "late"),
    "get_labels": lambda s: s.get_labels(),
    "search": lambda s: s.search("text"),
    "get_version": lambda s: s.get_version(),
    "subscribe": lambda s: anext(aiter(s.subscribe(0))),
}


async def _refusals(session: Session) -> dict[str, str]:
    """Try every call and return what each one raised."""
    said: dict[str, str] = {}
    for name, call in CALLS.items():
        try:
            async with asyncio.timeout(PATIENCE):
                await call(session)
        except StoreError as error:
            said[name] = str(error)
        except Exception as error:  # noqa: BLE001  (whatever else it was is the finding)
            said[name] = f"not a StoreError: {error!r}"
        else:
            said[name] = "nothing raised"
    return said


def _in_a_forked_child(work: Callable[[], str]) -> str:
    """Return what `work` says in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Forking beside threads is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE * 2)
        try:
            os.write(writing, work().encode())
        except BaseException as error:  # noqa: BLE001  (a child must never return into the caller's tests)
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


class _Lifetime:
    """Open, closed, and elsewhere."""

    async def test_a_store_says_what_it_is(self, store: Store) -> None:
        assert store.durability() in {"none", "process", "power"}
        assert isinstance(store.distributed, bool)

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        await Session(store, "s").append_message(user("text"))

        await store.close()
        await store.close()

    async def test_use_after_close_says_so(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("text", id="m"))
        await store.close()

        said = await _refusals(session)

        assert {name: text for name, text in said.items() if "closed" not in text} == {}

    async def test_leaving_the_block_closes(self, store: Store) -> None:
        async with store as entered:
            session = Session(entered, "s")
            await session.append_message(user("text"))

        with pytest.raises(StoreError, match="closed"):
            await session.get_history()

    async def test_closing_waits_for_what_was_begun(self, store: Store) -> None:
        session = Session(store, "s")
        writes = [asyncio.ensure_future(session.append_message(user(f"m{n}"))) for n in range(20)]
        await asyncio.sleep(0)

        async with asyncio.timeout(PATIENCE):
            await store.close()
            results = await asyncio.gather(*writes, return_exceptions=True)

        refused = [result for result in results if isinstance(result, BaseException)]
        assert [error for error in refused if not isinstance(error, StoreError)] == []
        assert len(refused) < len(writes), "the first of them had begun"

    async def test_a_waiting_subscriber_ends_when_the_store_closes(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("text"))
        changes = aiter(session.subscribe(0))
        await anext(changes)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)

        async with asyncio.timeout(PATIENCE):
            await store.close()
            with pytest.raises((StoreError, StopAsyncIteration)):
                await waiting

    async def test_use_from_another_event_loop_says_so(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_message(user("text", id="m"))

        said = await asyncio.to_thread(lambda: asyncio.run(_refusals(session)))

        assert {name: text for name, text in said.items() if "event loop" not in text} == {}
        assert await session.get_history() == [stored]

    async def test_closing_from_another_event_loop_works_or_says_why_not(self, store: Store) -> None:
        await Session(store, "s").append_message(user("text"))
        (refusal,) = await asyncio.gather(asyncio.to_thread(lambda: asyncio.run(store.close())), return_exceptions=True)
        if refusal is not None:
            assert isinstance(refusal, StoreError)
            assert "event loop" in str(refusal)
            await Session(store, "s").append_message(user("and on"))
        await store.close()

    async def test_use_in_a_forked_child_says_so(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_message(user("text", id="m"))

        def work() -> str:
            said = asyncio.run(_refusals(session))
            return repr({name: text for name, text in said.items() if "fork" not in text})

        assert _in_a_forked_child(work) == "{}"
        assert await session.get_history() == [stored]
        await session.append_message(user("and on"))


class _Cancelling:
    """A write that its caller gave up on."""

    @pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13])
    async def test_a_cancelled_append_is_stored_whole_or_not_at_all(self, store: Store, steps: int) -> None:
        session = Session(store, "s")
        await session.append_message(user("root"))

        for n in range(12):
            batch = [user("one", id=f"{n}.1"), user("two", id=f"{n}.2")]
            writing = asyncio.ensure_future(session.append_messages(batch))
            for _ in range(steps):
                await asyncio.sleep(0)
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            present = [(await session.get_message(f"{n}.{k}")) is not None for k in (1, 2)]
            assert present in ([True, True], [False, False])
            if not writing.cancelled():
                assert present == [True, True]

            # What the caller saw stays so: nothing lands later.
            await session.append_message(user("next", id=f"{n}.next"))
            assert [(await session.get_message(f"{n}.{k}")) is not None for k in (1, 2)] == present

        history = await session.get_history()
        assert [await session.get_parent(m.id) for m in history] == [None, *history[:-1]]

    async def test_one_cancelled_write_does_not_disturb_the_others(self, store: Store) -> None:
        session = Session(store, "s")
        writes = [asyncio.ensure_future(session.append_message(user(f"m{n}", id=f"{n}"))) for n in range(30)]
        await asyncio.sleep(0)

        for writing in writes[::3]:
            writing.cancel()
        results = await asyncio.gather(*writes, return_exceptions=True)

        kept = {f"{n}" for n, result in enumerate(results) if not isinstance(result, BaseException)}
        assert kept >= {f"{n}" for n in range(30) if n % 3}
        history = await session.get_history()
        assert {m.id for m in history} >= kept
        assert [await session.get_parent(m.id) for m in history] == [None, *history[:-1]]

    async def test_a_cancelled_read_leaves_the_store_usable(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}") for n in range(200)])

        for steps in range(6):
            reading = asyncio.ensure_future(session.get_history())
            for _ in range(steps):
                await asyncio.sleep(0)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

        assert await session.get_path_length() == 200


@pytest.mark.asyncio
class StoreContract(_Lifetime, _Cancelling):
    """A store refuses clearly what it cannot do safely, and never does half of a write.

    Subclasses define an async `store` fixture that yields an empty, open store; tests may close it.
    """
