"""What hostile users and an outside review found, as promises."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import leafward
from leafward import (
    ConfigurationError,
    ContextError,
    DirectorySkillProvider,
    MessageTooLarge,
    Session,
    SessionManager,
    create_compact_function,
    open_store,
    user,
)
from leafward.core.ids import Scope
from leafward.stores import Store
from leafward.stores.sqlite import erase
from leafward.stores.sqlite.store import SqliteStore
from leafward.testing.summarising import all_but_the_last
from tests.sessions.dict_storage import DictStorage


def leave() -> str:
    sys.exit(3)


async def leave_later() -> str:
    sys.exit(3)


@pytest.mark.parametrize("get", [leave, leave_later], ids=["plain", "async"])
def test_a_provider_that_exits_ends_neither_the_loop_nor_a_blocking_program(get: Any) -> None:
    with leafward.blocking("memory://") as store:
        session = store.session("s").with_context("far", provider={"get": get}).with_context("near", provider="here")

        for _ in range(2):
            with pytest.raises(ContextError, match="SystemExit"):
                session.get_context_blocks()

        block = session.get_context_block("near")
        assert block is not None
        assert block.content == "here"


class Slow:
    """Takes its time to be written, and remembers who was in it at once."""

    def __init__(self) -> None:
        self.content = ""
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def get(self) -> str:
        return self.content

    def set(self, content: str) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.02)
        self.content = content
        with self._lock:
            self.inside -= 1


async def test_a_write_cancelled_while_it_waits_for_its_turn_is_never_made() -> None:
    slow = Slow()
    async with open_store("memory://") as store:
        session = Session(store).with_context("notes", provider=slow)
        first = asyncio.ensure_future(session.replace_context_block("notes", "first"))
        second = asyncio.ensure_future(session.replace_context_block("notes", "second"))
        await asyncio.sleep(0.005)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await first
        await asyncio.sleep(0.05)

    assert slow.content == "first"


async def test_mappings_made_anew_over_one_object_take_turns() -> None:
    slow = Slow()
    async with open_store("memory://") as store:
        handles = [
            Session(store, f"s{n}").with_context("notes", provider={"get": slow.get, "set": slow.set}) for n in range(5)
        ]
        await asyncio.gather(*(one.append_context_block("notes", f"line {n}") for n, one in enumerate(handles)))

    assert sorted(slow.content.split("\n")) == [f"line {n}" for n in range(5)]
    assert slow.most == 1


def test_two_event_loops_lose_no_line_of_one_provider() -> None:
    slow = Slow()

    def write(name: str) -> None:
        with leafward.blocking("memory://") as store:
            session = store.session("s").with_context("notes", provider=slow)
            for n in range(5):
                session.append_context_block("notes", f"{name}{n}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert sorted(slow.content.split("\n")) == sorted(f"{name}{n}" for name in "ab" for n in range(5))


async def test_two_handles_on_one_storage_take_turns() -> None:
    class Watched(DictStorage):
        inside = most = 0

        def get_message(self, message_id: str) -> Any:
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.01)
            self.inside -= 1
            return super().get_message(message_id)

    storage = Watched()
    await asyncio.gather(*(Session(storage).append_message(user(f"m{n}")) for n in range(6)))

    assert storage.most == 1


async def test_titles_of_several_users_never_overwrite_each_other_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "SKILL.md").write_text("---\nname: deploy\ndescription: By hand\n---\nby hand")
    provider = DirectorySkillProvider(tmp_path, writable=True)
    async with open_store("memory://") as store:
        for name, title in (("u", "C"), ("v", "C++"), ("w", "Deploy!"), ("w", "Deploy!")):
            session = Session(store, "s", user_id=name).with_context("skills", provider=provider)
            arguments = {"label": "skills", "content": f"{name} says {title}", "metadata": {"title": title}}
            assert (await (await session.tools()).call("set_context", arguments)).startswith("Indexed")
        listing = (await provider.get() or "").splitlines()
        texts = [await provider.load(line[2:].partition(":")[0]) or "" for line in listing]

    assert len(texts) == 4
    assert sorted(text.strip() for text in texts) == ["by hand", "u says C", "v says C++", "w says Deploy!"]


async def test_no_word_written_through_a_provider_of_ones_own_stays_in_the_file(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    provider = {"get": lambda: None, "search": lambda _: None, "set": kept.__setitem__}
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        manager = SessionManager(store).with_context("own", provider=provider)
        info = await manager.create("chat")
        tools = await manager.get_session(info.id).tools()
        await tools.call("set_context", {"label": "own", "content": "zqcanaryone zqcanarytwo"})
        titled = {"label": "own", "content": "x", "metadata": {"title": "zqcanarythree"}}
        await tools.call("set_context", titled)
        report = await manager.erase(info.id)

    assert len(kept) == 2
    assert any("providers of your own" in one for one in report.not_reached)
    for path in tmp_path.iterdir():
        assert b"zqcanary" not in path.read_bytes().lower()


async def test_erasing_again_finishes_an_erasure_that_was_killed(tmp_path: Path) -> None:
    scope = Scope.of("s")
    path = tmp_path / "chat.db"
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        await Session(store, "s").append_messages([user(f"zqcanary {n}") for n in range(50)])
        await store.settle()
        # As a process leaves it that is killed right after it began.
        runner: Any = store.messages._runner  # pyright: ignore[reportPrivateUsage]
        await runner._commit(lambda: erase.begin(scope))

        report = await store.registry.erase(scope)

        assert report.erased is False
        for file in tmp_path.iterdir():
            assert b"zqcanary" not in file.read_bytes()


async def test_a_compaction_function_that_compacts_its_own_session_is_told(store: Store) -> None:
    async def again(messages: list[Any]) -> None:
        await session.compact()

    session = Session(store).on_compaction(again)
    await session.append_messages([user("a"), user("b")])

    with pytest.raises(ConfigurationError, match="cannot compact"):
        await asyncio.wait_for(session.compact(), 10)


async def test_a_threshold_that_no_compaction_reaches_does_not_ask_at_every_append(store: Store) -> None:
    asked: list[str] = []

    def summarize(prompt: str) -> str:
        asked.append(prompt)
        return "a summary"

    errors: list[Exception] = []
    session = Session(
        store,
        context=[{"label": "soul", "provider": "word " * 1000}],
        on_compaction=create_compact_function(summarize=summarize),
        compact_after=1000,
        on_compaction_error=errors.append,
    )
    for n in range(120):
        await session.append_message(user(f"{n} " + "word " * 30))

    assert 0 < len(errors) <= 12
    assert 0 < len(asked) <= 24
    assert all("system prompt alone takes 1,3" in str(error) for error in errors)


async def test_failed_compactions_do_not_keep_the_histories_they_saw(store: Store) -> None:
    def fail(messages: list[Any]) -> None:
        raise RuntimeError("no")

    session = Session(store).on_compaction(fail)
    await session.append_messages([user("a"), user("b")])
    with pytest.raises(RuntimeError, match="no"):
        await session.compact()

    error = session.compaction_log[-1].error
    assert error is not None
    trace = error.__traceback__
    while trace is not None:
        assert "view" not in trace.tb_frame.f_locals or trace.tb_frame.f_code.co_name.startswith("test_")
        trace = trace.tb_next


async def test_a_manager_refuses_one_place_for_the_prompts_of_all_its_sessions(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="apart"):
        SessionManager(store).with_cached_prompt({"get": lambda: None, "set": lambda text: None})


async def test_a_block_has_a_size_limit_even_without_max_tokens() -> None:
    async with open_store("memory://", max_message_bytes=1000) as store:
        session = Session(store).with_context("memory")
        with pytest.raises(ContextError, match="1,000 bytes"):
            await session.replace_context_block("memory", "x" * 1001)
        assert (await session.replace_context_block("memory", "x" * 1000)).tokens == 250


async def test_a_summary_has_the_size_limit_of_a_message() -> None:
    async with open_store("memory://", max_message_bytes=1000) as small:
        told: list[Exception] = []
        session = Session(
            small,
            on_compaction=lambda messages: {
                "summary": "x" * 1001,
                "from_message_id": messages[0].id,
                "to_message_id": messages[0].id,
            },
            compact_after=5,
            on_compaction_error=told.append,
        )
        first, _ = await session.append_messages([user("a"), user("b")])
        assert [type(error) for error in told] == [MessageTooLarge]
        with pytest.raises(MessageTooLarge):
            await session.compact()
        with pytest.raises(MessageTooLarge):
            await session.add_compaction("x" * 1001, first.id, first.id)
        assert await session.get_compactions() == []


async def test_a_compaction_renews_the_frozen_prompt_of_its_handle_though_it_is_still_over() -> None:
    content = ["before"]
    async with open_store("memory://") as store:
        session = Session(
            store,
            context=[{"label": "far", "provider": {"get": lambda: content[0]}}],
            on_compaction=all_but_the_last,
            compact_after=1,
        )
        assert "before" in await session.freeze_system_prompt()
        content[0] = "after"
        await session.append_messages([user(f"m{n}") for n in range(6)])

        assert len(await session.get_compactions()) == 1
        assert "after" in await session.freeze_system_prompt()


async def test_one_message_where_a_list_is_wanted_is_told(store: Store) -> None:
    with pytest.raises(ValueError, match="append_message takes one"):
        await Session(store).append_messages(user("x"))  # type: ignore[arg-type]


@pytest.fixture
async def store() -> Any:
    async with open_store("memory://") as opened:
        yield opened
