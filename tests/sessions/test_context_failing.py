"""Providers that raise, hang or answer nonsense: a clear error, and the session stays usable."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    ContextError,
    DirectorySkillProvider,
    NotFound,
    Session,
    StoredSearchProvider,
    StoreError,
    open_store,
    user,
)
from leafward.stores import Store
from leafward.testing.keyed import content_of, note
from leafward.testing.prompts import Shelf


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


def raising(*_: object) -> str:
    raise RuntimeError("the disk is on fire")


async def raising_later(*_: object) -> str:
    await asyncio.sleep(0)
    raise RuntimeError("the disk is on fire")


async def never(*_: object) -> str:
    await asyncio.Event().wait()
    return ""


def _session(store: Store, behave: Callable[..., Any]) -> Session:
    """Return a session whose block `bad` behaves in every method, beside one that is sound."""
    bad = {"get": behave, "set": behave, "load": behave, "search": behave}
    return Session(store, "s").with_context("memory").with_context("bad", provider=bad, timeout=0.2)


async def _is_usable(session: Session) -> None:
    await session.append_message(user("hi"))
    assert (await session.get_history())[-1].text == "hi"
    await session.replace_context_block("memory", "sound")
    assert await content_of(session) == "sound"
    assert await session.remove_context("bad") is True
    assert "sound" in await session.refresh_system_prompt()


EVERY_USE: dict[str, Callable[[Session], Any]] = {
    "get_context_block": lambda s: s.get_context_block("bad"),
    "get_context_blocks": lambda s: s.get_context_blocks(),
    "freeze_system_prompt": lambda s: s.freeze_system_prompt(),
    "refresh_system_prompt": lambda s: s.refresh_system_prompt(),
    "load_skill": lambda s: s.load_skill("bad", "key"),
    "estimate_tokens": lambda s: s.estimate_tokens(),
}

MODEL_CALLS = {
    "set_context": {"label": "bad", "content": "text"},
    "load_context": {"label": "bad", "key": "key"},
    "search_context": {"label": "bad", "query": "words"},
}


@pytest.mark.parametrize("behave", [raising, raising_later])
async def test_a_provider_that_raises_is_named_with_its_reason(store: Store, behave: Callable[..., Any]) -> None:
    session = _session(store, behave)

    for use in EVERY_USE.values():
        with pytest.raises(ContextError, match=r"'bad'.*RuntimeError: the disk is on fire") as caught:
            await use(session)
        assert isinstance(caught.value.__cause__, RuntimeError)
    for name, arguments in MODEL_CALLS.items():
        answer = await (await session.tools()).call(name, arguments)
        assert answer.startswith("Error: ")
        assert "'bad'" in answer
        assert "the disk is on fire" in answer

    assert await session.get_loaded_skill_keys() == []
    await _is_usable(session)


@pytest.mark.parametrize("answer", [7, b"bytes", ["text"], {"text": "x"}, True])
async def test_a_provider_that_gives_no_text_is_named_with_what_it_gave(store: Store, answer: object) -> None:
    session = _session(store, lambda *_: answer)

    for use in EVERY_USE.values():
        with pytest.raises(ContextError, match=f"'bad'.*{type(answer).__name__}.*not text"):
            await use(session)
    for name in ("load_context", "search_context"):
        assert (await (await session.tools()).call(name, MODEL_CALLS[name])).startswith("Error: ")

    assert await session.get_loaded_skill_keys() == []
    await _is_usable(session)


async def test_a_provider_that_hangs_is_given_up_on(store: Store) -> None:
    session = _session(store, never)
    begun = time.monotonic()

    with pytest.raises(ContextError, match=r"'bad'.*did not answer get\(\) within 0.2 s"):
        await session.freeze_system_prompt()
    assert "within 0.2 s" in await (await session.tools()).call("load_context", MODEL_CALLS["load_context"])

    assert time.monotonic() - begun < 10
    await _is_usable(session)


async def test_a_plain_provider_that_hangs_holds_up_nobody_else(store: Store) -> None:
    go_on = threading.Event()

    def stuck(*_: object) -> str:
        assert go_on.wait(30)
        return "late"

    session = _session(store, stuck)
    try:
        for _ in range(2):
            with pytest.raises(ContextError, match=r"'bad'.*within"):
                await session.get_context_block("bad")
        await session.append_context_block("memory", "meanwhile")
    finally:
        go_on.set()

    async with asyncio.timeout(20):
        while True:
            try:
                assert await content_of(session, "bad") == "late"
                break
            except ContextError:
                continue
    await _is_usable(session)


async def test_a_block_whose_provider_fails_is_not_added(store: Store) -> None:
    session = Session(store, "s").with_context("memory")

    for behave in (raising, lambda: 7, never):
        with pytest.raises(ContextError, match="'bad'"):
            await session.add_context("bad", provider={"get": behave}, timeout=0.2)

    assert await session.get_context_block("bad") is None
    assert (await session.add_context("bad", provider="fine")).content == "fine"


async def test_a_write_that_fails_leaves_the_block_as_it_was(store: Store) -> None:
    session = Session(store, "s").with_context("bad", provider={"get": lambda: "old", "set": raising})

    for write in (session.replace_context_block, session.append_context_block):
        with pytest.raises(ContextError, match="on fire"):
            await write("bad", "new")

    assert await content_of(session, "bad") == "old"


async def test_a_cancelled_read_is_cancelled_and_not_an_error_of_the_provider(store: Store) -> None:
    session = _session(store, never)
    reading = asyncio.ensure_future(session.get_context_block("bad"))
    await asyncio.sleep(0.01)

    reading.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_failing_store_is_raised_to_the_program_and_not_told_to_the_model() -> None:
    async with open_store("memory://") as store:
        session = (
            Session(store, "s")
            .with_context("memory")
            .with_context("skills", provider=Shelf())
            .with_context("facts", provider=StoredSearchProvider())
        )
        tools = await session.tools()
    for name, arguments in {
        "set_context": {"label": "memory", "content": "text"},
        "load_context": {"label": "skills", "key": "api-ref"},
        "unload_context": {"label": "skills", "key": "api-ref"},
        "search_context": {"label": "facts", "query": "words"},
    }.items():
        with pytest.raises(StoreError):
            await tools.call(name, arguments)
        with pytest.raises(StoreError):
            await tools[name].execute(arguments)


@pytest.mark.parametrize(
    "key", ["../secret.txt", "/etc/passwd", "..", ".", "a/../../secret.txt", "", "C:\\x", "a\x00b"]
)
async def test_a_skill_key_that_is_a_path_leads_nowhere(store: Store, tmp_path: Path, key: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    skill = tmp_path / "skills" / "a"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: a\ndescription: A\n---\nText of a.")
    session = Session(store, "s").with_context("skills", provider=DirectorySkillProvider(tmp_path / "skills"))

    with pytest.raises((ContextError, NotFound)):
        await session.load_skill("skills", key)
    answer = await (await session.tools()).call("load_context", {"label": "skills", "key": key})

    assert answer.startswith(("Error: ", "Not found: "))
    assert "secret" not in answer.replace(key, "")
    assert await session.get_loaded_skill_keys() == []
    assert "Text of a." in await session.load_skill("skills", "a")


# ── a storage of one's own ───────────────────────────────────────────────────


class OwnStorage:
    """The twelve methods, doing nothing: only context is looked at here."""

    def _nothing(self, *_: object, **__: object) -> Any:
        return None

    def _none(self, *_: object, **__: object) -> list[Any]:
        return []

    get_message = get_latest_leaf = append_message = update_message = _nothing
    delete_messages = clear_messages = add_compaction = get_path_length = _nothing
    get_history = get_branches = get_compactions = search_messages = _none


async def test_a_storage_of_ones_own_keeps_no_blocks_but_takes_providers() -> None:
    session = Session(OwnStorage())

    with pytest.raises(ConfigurationError, match=r"'memory'.*give it one"):
        await session.add_context("memory")
    added = await session.add_context("memory", provider={"get": lambda: "kept elsewhere", "set": lambda _: None})

    assert added.content == "kept elsewhere"
    assert list(await session.tools()) == ["set_context"]
    assert "kept elsewhere" in await session.freeze_system_prompt()


async def test_skills_work_with_a_storage_of_ones_own() -> None:
    session = Session(OwnStorage()).with_context("skills", provider=Shelf({"a": "Text of a."}))

    tools = await session.tools()

    # What is loaded cannot be kept there, so nothing can be unloaded.
    assert list(tools) == ["load_context"]
    assert await tools.call("load_context", {"label": "skills", "key": "a"}) == "Text of a."
    for missing in (session.get_loaded_skill_keys(), session.unload_skill("skills", "a")):
        with pytest.raises(ConfigurationError, match="skills"):
            await missing


async def test_titles_stay_apart_in_a_store_beside_a_storage_of_ones_own(store: Store) -> None:
    def opened() -> Session:
        return Session(OwnStorage()).with_context("facts", provider=StoredSearchProvider(store))

    await note(opened(), "C++", "first")
    await note(opened(), "C", "second")

    assert await content_of(opened(), "facts") == "2 entries indexed."


async def test_a_provider_that_is_cancelled_from_within_has_failed_like_any_other(store: Store) -> None:
    async def gives_up() -> str:
        asking = asyncio.get_running_loop().create_future()
        asking.cancel()
        return await asking

    errors: list[Exception] = []
    session = Session(store, on_compaction=lambda messages: None, compact_after=10, on_compaction_error=errors.append)
    session.with_context("memory", provider={"get": gives_up})

    await session.append_message(user("hello"))

    with pytest.raises(ContextError, match="raised CancelledError although its caller was not cancelled"):
        await session.get_context_blocks()
    assert [type(error) for error in errors] == [ContextError]
    assert len(await session.get_history()) == 1
