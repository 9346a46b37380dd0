"""A storage of one's own, with the twelve methods of seed 002, in place of a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    Message,
    MessageNotFound,
    MessageTooLarge,
    SearchResult,
    Session,
    assistant,
    user,
)
from leafward.sessions import SessionProvider
from tests.sessions.dict_storage import TWELVE, DictStorage, make_async


@pytest.fixture
def storage() -> DictStorage:
    return DictStorage()


@pytest.fixture(params=["plain", "async"])
def session(request: pytest.FixtureRequest, storage: DictStorage) -> Session:
    return Session(storage if request.param == "plain" else make_async(storage))


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def said(count: int, start: int = 0) -> list[Message]:
    return [user(f"walnut {n}", id=f"m{n}") for n in range(start, start + count)]


# ── what it takes ────────────────────────────────────────────────────────────


def test_twelve_methods_are_enough() -> None:
    assert len(TWELVE) == 12
    assert sorted(TWELVE) == sorted(name for name in vars(SessionProvider) if not name.startswith("_"))


@pytest.mark.parametrize("name", TWELVE)
def test_a_missing_method_is_named(name: str) -> None:
    broken: Any = type("Broken", (), {one: getattr(DictStorage, one) for one in TWELVE if one != name})()

    for make in (Session, Session.create):
        with pytest.raises(ConfigurationError, match=rf"lacks {name}$"):
            make(broken)


@pytest.mark.parametrize("thing", [None, 5, "sqlite:///chat.db", {}, pytest.param(object(), id="object")])
def test_what_is_neither_store_nor_storage_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="open store"):
        Session(thing)


async def test_a_storage_may_have_attributes_like_a_stores(storage: DictStorage) -> None:
    for name in ("entries", "registry", "close"):
        setattr(storage, name, {})

    await Session(storage).append_message(user("walnut", id="m"))

    assert list(storage.messages) == ["m"]


async def test_a_storage_holds_one_session(storage: DictStorage) -> None:
    with pytest.raises(ConfigurationError, match="one session"):
        Session(storage, "chat-1")
    with pytest.raises(ConfigurationError, match="one session"):
        Session.create(storage).for_session("chat-1")

    for session in (Session(storage, "default"), Session.create(storage, user_id="alice").for_session("default")):
        assert session.session_id == "default"
        await session.append_message(user("walnut"))
    assert len(storage.messages) == 2


# ── messages ─────────────────────────────────────────────────────────────────


async def test_messages_are_appended_read_changed_and_removed(session: Session) -> None:
    first = await session.append_message(user("one", id="1"))
    await session.append_messages([assistant("two", id="2"), user("three", id="3")])
    changed = await session.update_message(assistant("two, changed", id="2"))
    await session.upsert_message(user("three, changed", id="3"))
    await session.upsert_message(assistant("four", id="4"))

    assert first.text == "one"
    assert changed.text == "two, changed"
    assert [message.text for message in await session.get_history()] == [
        "one",
        "two, changed",
        "three, changed",
        "four",
    ]
    assert await session.get_message("1") == first
    assert await session.get_message("never") is None
    assert await session.get_path_length() == 4
    assert await session.delete_messages(["2", "never", "2"]) == 1
    assert ids(await session.get_history()) == ["1", "3", "4"]
    await session.clear_messages()
    assert await session.get_history() == []
    assert await session.get_latest_leaf() is None


async def test_an_update_keeps_the_time_of_the_message(session: Session) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    await session.append_message(user("one", id="1", created_at=then))

    await session.update_message(user("changed", id="1"))

    message = await session.get_message("1")
    assert message is not None
    assert (message.text, message.created_at) == ("changed", then)


async def test_a_known_id_is_appended_once(session: Session, storage: DictStorage) -> None:
    await session.append_message(user("first", id="m"))

    again = await session.append_message(user("second", id="m"), parent_id=None)
    await session.append_messages([user("third", id="m"), user("below", id="below")])

    assert again.text == "first"
    assert storage.parents == {"m": None, "below": "m"}


async def test_a_parent_is_passed_only_when_it_is_given(session: Session, storage: DictStorage) -> None:
    latest = DictStorage.append_message.__defaults__

    await session.append_message(user("one", id="1"))
    await session.append_message(user("two", id="2"), parent_id=None)
    await session.append_messages([user("three", id="3"), user("four", id="4")], parent_id="1")

    assert latest is not None
    assert [arguments for _, arguments in storage.calls] == [
        ("1", latest[0]),
        ("2", None),
        ("3", "1"),
        ("4", latest[0]),
    ]


async def test_what_is_not_there_is_not_found(session: Session, storage: DictStorage) -> None:
    await session.append_message(user("one", id="1"))

    for call in (
        lambda: session.append_message(user("x"), parent_id="never"),
        lambda: session.append_messages([user("x"), user("y")], parent_id="never"),
        lambda: session.update_message(user("x", id="never")),
        lambda: session.get_history("never"),
        lambda: session.get_raw_history(""),
        lambda: session.get_branches("never"),
        lambda: session.get_parent("never"),
        lambda: session.get_path_length("never"),
        lambda: session.compact("never"),
        lambda: session.add_compaction("x", "1", "never"),
        lambda: session.add_compaction("x", "compaction_never", "1"),
    ):
        with pytest.raises((MessageNotFound, ConfigurationError)):
            await call()
    assert list(storage.messages) == ["1"]


async def test_a_message_is_checked_before_the_storage_sees_it(session: Session, storage: DictStorage) -> None:
    with pytest.raises(ValueError, match="compaction_"):
        await session.append_message(user("x", id="compaction_1"))
    with pytest.raises(MessageTooLarge):
        await session.append_message(user("x" * 9_000_000))
    with pytest.raises(ValueError, match="twice"):
        await session.append_messages([user("x", id="1"), user("y", id="1")])

    assert storage.messages == {}


# ── branches ─────────────────────────────────────────────────────────────────


async def test_branches_are_those_of_the_storage(session: Session) -> None:
    await session.append_messages([user("question", id="q"), assistant("answer", id="a")])
    await session.append_message(assistant("another answer", id="b"), parent_id="q")
    await session.append_message(user("thanks", id="t"))

    assert ids(await session.get_branches("q")) == ["a", "b"]
    assert ids(await session.get_history()) == ["q", "b", "t"]
    assert ids(await session.get_history("a")) == ["q", "a"]
    assert await session.get_path_length("a") == 2
    leaf, parent = await session.get_latest_leaf(), await session.get_parent("t")
    assert leaf is not None
    assert parent is not None
    assert (leaf.id, parent.id, await session.get_parent("q")) == ("t", "b", None)


async def test_a_history_is_read_in_parts_too(session: Session) -> None:
    await session.append_messages(said(20))
    await session.add_compaction("summary", "m2", "m15")

    forward = [message async for message in session.iter_history()]
    backward = [message async for message in session.iter_history(newest_first=True)]
    recent = await session.get_recent_history(max_messages=3)

    assert forward == await session.get_history() == backward[::-1]
    assert ids(list(recent.messages)) == ["m17", "m18", "m19"]
    assert recent.truncated


# ── search ───────────────────────────────────────────────────────────────────


async def test_a_search_is_the_storages_own(session: Session, storage: DictStorage) -> None:
    await session.append_messages([user("The walnut tree", id="1"), assistant("A maple tree", id="2")])

    found = await session.search("tree walnut", limit=7)

    message = await session.get_message("1")
    assert message is not None
    assert storage.calls[-1] == ("search_messages", ("tree walnut", 7))
    assert [(one.session_id, one.id, one.role, one.content) for one in found] == [
        ("default", "1", "user", "The walnut tree")
    ]
    assert (found[0].snippet, found[0].created_at) == ("The walnut tree", message.created_at)
    assert [one.id for one in await session.search("tree")] == ["1", "2"]
    filters: list[dict[str, Any]] = [{"role": "user"}, {"since": datetime.now(UTC)}, {"until": datetime.now(UTC)}]
    for only in filters:
        with pytest.raises(ConfigurationError, match="filter"):
            await session.search("tree", **only)


@pytest.mark.parametrize("form", ["result", "dict", "message", "camel"])
async def test_results_may_have_any_shape(form: str) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    result = SearchResult("default", "1", "user", "walnut", "walnut", [(0, 6)], at, 2.0)
    message = user("walnut", id="1", created_at=at)
    shapes: dict[str, Any] = {
        "result": result,
        "dict": {"id": "1", "role": "user", "content": "walnut", "created_at": at},
        "message": message,
        "camel": {"id": "1", "role": "user", "content": "walnut", "createdAt": "2026-01-01T00:00:00Z"},
    }

    class Searching(DictStorage):
        def search_messages(self, query: str, limit: int) -> list[Any]:
            return [shapes[form]]

    (found,) = await Session(Searching()).search("walnut")

    assert (found.id, found.role, found.content, found.created_at) == ("1", "user", "walnut", at)


async def test_raw_pages_are_cut_from_the_path(session: Session) -> None:
    await session.append_messages([user("walnut", id=f"m{n}") for n in range(6)])
    await session.append_message(user("aside", id="aside"), parent_id="m1")

    assert ids(await session.get_raw_history("m5", limit=2)) == ["m4", "m5"]
    assert ids(await session.get_raw_history("m5", limit=2, before="m4")) == ["m2", "m3"]
    assert ids(await session.get_raw_history(before="m1")) == ["m0"]
    with pytest.raises(ValueError, match="not on the path"):
        await session.get_raw_history(limit=2, before="m4")
    with pytest.raises(MessageNotFound):
        await session.get_raw_history(limit=2, before="nowhere")


# ── what goes beyond ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda session: session.checkout("m0"), "check out"),
        (lambda session: session.checkout(None), "check out"),
        (lambda session: session.get_tip("m0"), "newest leaf"),
        (lambda session: session.label("m0", "x"), "label"),
        (lambda session: session.get_labels(), "label"),
        (lambda session: session.set_state("plan", {"step": 1}), "attach states"),
        (lambda session: session.set_state("plan", None), "attach states"),
        (lambda session: session.get_state("plan"), "attach states"),
        (lambda session: session.get_states("m0"), "attach states"),
        (lambda session: session.append_message(user("x"), state={"plan": {}}), "attach states"),
        (lambda session: session.append_messages([user("x"), user("y")], state={"plan": None}), "attach states"),
        (lambda session: session.get_leaves(), "leaves"),
        (lambda session: session.get_tree(), "tree"),
        (lambda session: session.get_branches(None), "roots"),
        (lambda session: session.get_version(), "version"),
        (lambda session: anext(session.subscribe()), "changes"),
        (lambda session: anext(session.subscribe(0)), "changes"),
        (lambda session: session.lease(), "leases"),
        (lambda session: session.get_loaded_skill_keys(), "skills"),
        (lambda session: session.unload_skill("recipes", "tea"), "skills"),
    ],
)
async def test_what_twelve_methods_cannot_do_is_refused_by_name(session: Session, call: Any, named: str) -> None:
    await session.append_message(user("walnut", id="m0"))

    with pytest.raises(ConfigurationError, match=named):
        await call(session)
    assert ids(await session.get_history()) == ["m0"]


async def test_blocks_with_a_provider_work(session: Session) -> None:
    kept = {"text": "Likes walnuts."}
    session.with_context("soul", provider="You are helpful.")
    session.with_context(
        "memory", max_tokens=10, provider={"get": lambda: kept["text"], "set": lambda text: kept.update(text=text)}
    )

    prompt = await session.freeze_system_prompt()
    await session.append_context_block("memory", "And tea.")
    answer = await (await session.tools()).call("set_context", {"label": "memory", "content": "walnut " * 40})

    assert "You are helpful." in prompt
    assert kept["text"] == "Likes walnuts.\nAnd tea."
    assert answer.startswith("Error:")
    assert await session.freeze_system_prompt() == prompt
    assert "And tea." in await session.refresh_system_prompt()
    assert await session.remove_context("soul")


async def test_a_block_without_a_provider_is_refused_by_its_label(session: Session) -> None:
    session.with_context("memory")

    with pytest.raises(ConfigurationError, match="'memory'"):
        await session.get_context_blocks()


async def test_a_block_without_a_provider_is_refused_when_it_is_added_later(session: Session) -> None:
    await session.append_message(user("walnut"))

    with pytest.raises(ConfigurationError, match="'memory'"):
        await session.add_context("memory")

    assert await session.get_context_blocks() == []
    assert len(await session.get_history()) == 1


async def test_the_prompt_may_be_kept_by_a_provider(session: Session) -> None:
    kept: dict[str, str] = {}
    session.with_context("soul", provider="You are helpful.")
    session.with_cached_prompt({"get": lambda: kept.get("prompt"), "set": lambda text: kept.update(prompt=text)})

    prompt = await session.freeze_system_prompt()

    assert kept == {"prompt": prompt}
