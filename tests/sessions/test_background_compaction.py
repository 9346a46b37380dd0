"""Compaction after the append has returned: one at a time, never lost, ended with its store."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

import leafward
from leafward import Session, SessionManager, create_compact_function, open_store, user
from leafward.stores import background
from leafward.testing.speaking import said, texts
from leafward.testing.summarising import Failing, Slow, all_but_the_last, covering

PATIENCE = 20.0


def later(store: Any, function: Any, threshold: int = 20, **options: Any) -> Session:
    return Session(store, "s", on_compaction=function, **options).compact_after(threshold, background=True)


async def until_summarised(session: Session) -> None:
    async with asyncio.timeout(PATIENCE), aclosing(session.subscribe(since=0)) as changes:
        async for change in changes:
            if change.kind == "compaction":
                return


class Errors(list[Exception]):
    """Keeps what it is given, and lets others wait for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()

    async def __call__(self, error: Exception) -> None:
        self.append(error)
        self.first.set()


async def test_the_append_returns_before_the_summary_is_made() -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        function = Slow()
        session = later(store, function)

        await session.append_messages(said(6))
        assert await session.get_compactions() == []
        await function.asked.wait()
        assert len(await session.get_history()) == 6
        function.go_on.set()
        await until_summarised(session)

        assert texts(await session.get_history()) == ["so far", "m5"]
        assert session.compaction_log[-1].compaction is not None


async def test_the_task_lives_though_no_handle_is_kept() -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        function = Slow()
        await later(store, function).append_messages(said(6))
        await function.asked.wait()
        gc.collect()

        function.go_on.set()

        await until_summarised(Session(store, "s"))


async def test_one_runs_at_a_time_for_all_handles() -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        function = Slow()
        handles = [later(store, function), later(store, function), Session(store, "s", on_compaction=function)]

        await asyncio.gather(*(session.append_messages(said(4, start=4 * n)) for n, session in enumerate(handles)))
        await function.asked.wait()
        for n in range(20, 30):
            await handles[n % 2].append_message(user(f"m{n}"))
        by_hand = asyncio.create_task(handles[2].compact())
        await asyncio.sleep(0.01)
        assert (function.calls, function.most) == (1, 1)
        assert handles[0].compaction_log[-1].reason == "another compaction is running"
        function.go_on.set()
        await by_hand

        assert function.most == 1


async def test_a_failure_is_given_to_the_handler_and_backs_off() -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        errors, function = Errors(), Failing()
        session = later(store, function, on_compaction_error=errors)

        for n in range(100):
            await session.append_message(user(f"m{n}", id=f"{n}"))
            await asyncio.sleep(0)
        await errors.first.wait()

        assert {type(error) for error in errors} == {ConnectionError}
        assert function.calls <= 8
        assert len(await session.get_history()) == 100
        function.fails = False
        while not await session.get_compactions():
            await session.append_message(user("more"))
            await asyncio.sleep(0)


async def test_a_manager_sets_it_up_for_all_its_sessions() -> None:
    async with open_store("memory://") as store:
        manager = SessionManager(store).on_compaction(all_but_the_last).compact_after(20, background=True)

        await manager.get_session("s").append_messages(said(6))

        await until_summarised(Session(store, "s"))


@pytest.mark.parametrize("scheme", ["memory://", "sqlite:///{}/chat.db", "file:///{}/chat"])
async def test_closing_the_store_cancels_what_runs(scheme: str, tmp_path: Path) -> None:
    errors, function = Errors(), Slow()
    async with asyncio.timeout(PATIENCE):
        store = await open_store(scheme.format(tmp_path))
        session = later(store, function, on_compaction_error=errors)
        await session.append_messages(said(6))
        await function.asked.wait()

        await asyncio.gather(store.close(), store.close())

        assert function.running == 0
        assert session.compaction_log[-1].reason == "it was cancelled"
        assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()
    assert errors == []


async def test_a_task_that_has_not_begun_is_cancelled_and_recorded() -> None:
    store = await open_store("memory://")
    session = later(store, Slow())
    await session.append_messages(said(6))

    await store.close()

    assert [record.reason for record in session.compaction_log] == ["it was cancelled"]


async def test_no_task_starts_while_the_store_closes() -> None:
    async with asyncio.timeout(PATIENCE):
        store = await open_store("memory://")
        closing, appended = asyncio.Event(), asyncio.Event()
        other = Session(store, "other", on_compaction=Slow()).compact_after(20, background=True)

        async def lingers(messages: list[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                closing.set()
                await appended.wait()

        await later(store, lingers).append_messages(said(6))
        await asyncio.sleep(0)
        ended = asyncio.create_task(store.close())
        await closing.wait()
        await other.append_messages(said(6))
        appended.set()
        await ended

        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [record.reason for record in other.compaction_log] == ["the store is closing"]


async def test_what_was_cancelled_is_started_again_by_the_next_append(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    async with asyncio.timeout(PATIENCE):
        async with open_store(url) as store:
            function = Slow()
            await later(store, function).append_messages(said(6))
            await function.asked.wait()
        async with open_store(url) as store:
            session = later(store, all_but_the_last)
            assert len(await session.get_history()) == 6
            await session.append_message(user("m6"))
            await until_summarised(session)


async def test_a_handler_may_close_the_store() -> None:
    async with asyncio.timeout(PATIENCE):
        store = await open_store("memory://")
        closed = asyncio.Event()

        async def close(error: Exception) -> None:
            await store.close()
            closed.set()

        await later(store, Failing(), on_compaction_error=close).append_messages(said(6))
        await closed.wait()


@pytest.mark.parametrize("takeover", [False, True])
async def test_a_lease_that_was_released_meanwhile_does_not_matter(takeover: bool) -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        errors, function = Errors(), Slow()
        async with store.leases.acquire("s") as lease:
            session = later(store, function, on_compaction_error=errors).with_lease(lease)
            await session.append_messages(said(6))
            await function.asked.wait()
            frozen = await session.freeze_system_prompt()
        if takeover:
            async with store.leases.acquire("s") as other:
                await Session(store, "s").with_lease(other).append_message(user("m6"))
        function.go_on.set()
        await until_summarised(session)

        assert texts(await session.get_history()) == ["so far", "m5", *(["m6"] if takeover else [])]
        assert frozen == await session.freeze_system_prompt()
    assert errors == []


async def test_a_function_that_appends_elsewhere_starts_an_own_compaction() -> None:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        asked: list[str] = []
        first, second = Session(store, "first"), Session(store, "second")

        async def summarise_second(messages: list[Any]) -> Any:
            # This runs in a task that an append inside the first one's function has started.
            await first.compact()
            asked.append("second")
            return all_but_the_last(messages)

        async def summarise_first(messages: list[Any]) -> Any:
            if not asked:
                asked.append("first")
                await second.append_messages(said(6))
            return None

        first.on_compaction(summarise_first)
        second.on_compaction(summarise_second).compact_after(20, background=True)
        await first.append_messages(said(3))
        await first.compact()
        await until_summarised(second)

        assert asked == ["first", "second"]


def test_without_await_it_goes_on_in_the_background(tmp_path: Path) -> None:
    with leafward.blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        session = store.session("s").on_compaction(covering("0", "3")).compact_after(20, background=True)
        session.append_messages(said(6))
        while not session.get_compactions():
            pass

        assert texts(session.get_history()) == ["in short", "m4", "m5"]


PROGRAM = """
import asyncio, sys
from leafward import Session, create_compact_function, open_store, user

async def summarize(prompt):
    await asyncio.sleep(60)

async def main(close):
    store = await open_store("sqlite:///chat.db")
    function = create_compact_function(summarize=summarize)
    session = Session(store).on_compaction(function).compact_after(50, background=True)
    await session.append_messages([user("word " * 20) for _ in range(6)])
    await asyncio.sleep(0.2)
    if close:
        await store.close()

asyncio.run(main(sys.argv[1] == "close"))
"""


@pytest.mark.parametrize("ending", ["close", "leave"])
def test_a_program_that_ends_meanwhile_ends_without_a_warning(ending: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, ending],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


async def test_the_built_in_function_runs_in_the_background_too() -> None:
    async with open_store("memory://") as store:
        session = later(store, create_compact_function(summarize=lambda prompt: "so far"), threshold=200)

        for n in range(60):
            await session.append_message(user(f"m{n} " + "word " * 10))
        await until_summarised(session)


async def test_a_store_closes_though_a_summariser_ignores_that_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "PATIENCE_S", 0.05)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(prompt: str) -> str:
        asked.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        return "short"

    async with asyncio.timeout(PATIENCE):
        async with open_store("memory://") as store:
            session = later(store, create_compact_function(summarize=stubborn), threshold=60)
            await session.append_messages([user("word " * 20) for _ in range(9)])
            await asked.wait()

        assert "did not end when they were cancelled" in caplog.text
        go_on.set()
        ended = await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        assert [error for error in ended if error is not None] == []
