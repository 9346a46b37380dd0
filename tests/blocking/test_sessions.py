"""A session is used without `await`, and is the same session."""

from __future__ import annotations

import inspect
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leafward
from leafward import (
    ConfigurationError,
    ContextError,
    InvalidId,
    Message,
    MessageNotFound,
    Session,
    StoredSearchProvider,
    assistant,
    open_store,
    user,
)
from leafward.portal import BlockingSession, BlockingStore, blocking


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


def public_methods(cls: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]


def test_the_root_offers_blocking_also_after_its_room_is_imported() -> None:
    assert leafward.blocking is blocking


def test_a_script_writes_and_reads_without_await(url: str) -> None:
    with blocking(url) as store:
        session = store.session("chat-1", user_id="alice")

        stored = session.append_message(user("hi", id="q"))
        session.append_messages([assistant("one", id="a"), user("two", id="b")])

        assert isinstance(stored, Message)
        assert [message.text for message in session.get_history()] == ["hi", "one", "two"]
        assert [found.id for found in session.search("two")] == ["b"]
        assert [node.id for node in session.get_tree()] == ["q", "a", "b"]
        assert session.get_version() == 2


def test_state_follows_the_conversation_without_await(url: str) -> None:
    with blocking(url) as store:
        session = store.session("s")
        session.append_message(user("one", id="1"), state={"plan": {"step": 1}})
        session.append_messages([user("two", id="2")], state={"plan": {"step": 2}})
        session.set_state("mood", {"is": "good"})

        assert session.get_states() == {"plan": {"step": 2}, "mood": {"is": "good"}}
        session.checkout("1")
        assert session.get_state("plan") == {"step": 1}
        assert session.get_state("plan", "2") == {"step": 2}
        with pytest.raises(InvalidId):
            session.set_state("leafward.turn", {})


def test_memory_is_kept_and_tidied_without_await(url: str) -> None:
    with blocking(url) as store:
        session = store.session("s").with_context("memory").with_context("notes", provider=StoredSearchProvider())
        session.replace_context_block("memory", "Likes tea.", expected="")
        with pytest.raises(ContextError, match="no longer holds"):
            session.replace_context_block("memory", "Likes milk.", expected="")
        session.freeze_system_prompt()
        assert not session.is_prompt_stale(content=True)

        tools = session.tools()
        answer = tools.call("set_context", {"label": "memory", "content": "Likes milk."})
        assert answer.startswith("Written")
        assert session.is_prompt_stale(content=True)
        tools.call("set_context", {"label": "notes", "content": "best in May", "metadata": {"title": "Kyoto"}})

        assert [(entry.key, entry.description) for entry in session.list_context_entries("notes")] == [
            ("kyoto", "Kyoto")
        ]
        assert session.delete_context_entry("notes", "kyoto") is True
        assert session.list_context_entries("notes") == []


def test_a_store_that_is_not_entered_is_closed_by_hand(url: str) -> None:
    store = blocking(url)
    try:
        store.session("s").append_message(user("hi"))
        assert store.session("s").get_path_length() == 1
    finally:
        store.close()


def test_the_blocking_store_says_what_the_store_says(tmp_path: Path) -> None:
    with blocking(f"sqlite:///{tmp_path}/chat.db", durability="process", max_message_bytes=2000) as store:
        store.session().append_message(user("kept"))
        store.backup(tmp_path / "copy.db")

        assert isinstance(store, BlockingStore)
        assert (store.durability(), store.max_message_bytes, store.distributed) == ("process", 2000, False)
        assert store.store is store

    with blocking(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert [message.text for message in copy.session().get_history()] == ["kept"]


def test_a_session_is_also_made_by_its_class(url: str) -> None:
    with blocking(url) as store:
        store.session("s", user_id="alice").append_message(user("hi"))

        made = [
            store.Session(store, "s", user_id="alice"),
            BlockingSession(store, session_id="s", user_id="alice"),
        ]

        assert [session.get_path_length() for session in made] == [1, 1]
        assert all(isinstance(session, BlockingSession) for session in made)
        assert [(one.session_id, one.user_id, one.agent_id) for one in made] == [("s", "alice", "default")] * 2


def test_a_session_without_a_blocking_store_says_what_it_needs() -> None:
    with pytest.raises(ConfigurationError, match=r"leafward\.blocking"):
        BlockingSession("chat.db")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", public_methods(Session))
def test_a_call_has_the_name_and_parameters_of_the_async_one(name: str) -> None:
    theirs = inspect.signature(getattr(Session, name)).parameters
    ours = getattr(BlockingSession, name)

    assert inspect.signature(ours).parameters == theirs
    assert not inspect.iscoroutinefunction(ours)
    assert ours.__doc__ == getattr(Session, name).__doc__


def test_a_wrong_argument_is_the_error_it_is_in_python(url: str) -> None:
    with blocking(url) as store, pytest.raises(TypeError, match="leaf"):
        store.session().get_history(leaf="x")  # pyright: ignore[reportCallIssue]


def test_errors_are_those_of_the_async_call(url: str) -> None:
    with blocking(url) as store:
        with pytest.raises(MessageNotFound, match="nowhere"):
            store.session().get_history("nowhere")
        with pytest.raises(ValueError, match="refused"):
            store.session("..")


@pytest.mark.parametrize(("wrong", "names"), [("nosuch://x", "sqlite://"), ("memory://?x=1/2", "memory://name")])
def test_a_url_that_names_no_store_is_refused_and_leaves_nothing_behind(wrong: str, names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        blocking(wrong)


def test_history_is_iterated_from_either_end(url: str) -> None:
    with blocking(url) as store:
        session = store.session()
        session.append_messages([user(str(number)) for number in range(600)])

        assert [message.text for message in session.iter_history()] == [str(number) for number in range(600)]
        assert next(session.iter_history(newest_first=True)).text == "599"


def test_one_session_can_be_copied_into_another_as_it_is_read(url: str) -> None:
    with blocking(url) as store:
        source, target = store.session("source"), store.session("target")
        source.append_messages([user(str(number)) for number in range(5)])

        target.append_messages(message for message in source.iter_history())

        assert target.get_history() == source.get_history()


def test_changes_are_followed_by_a_loop(url: str) -> None:
    with blocking(url) as store:
        session = store.session()
        session.append_message(user("one", id="one"))
        session.label("one", "first")

        with session.subscribe(since=0) as changes:
            assert [next(changes).kind for _ in range(2)] == ["append", "label"]


async def test_it_works_where_an_event_loop_is_running(url: str) -> None:
    with blocking(url) as store:
        session = store.session()
        session.append_message(user("from a notebook"))

        assert [message.text for message in session.iter_history()] == ["from a notebook"]


@settings(max_examples=15)
@given(texts=st.lists(st.text(max_size=20), max_size=6))
async def test_what_is_written_without_await_is_read_with_it(texts: list[str]) -> None:
    url = f"memory://{uuid4()}"
    with blocking(url) as store:
        written = store.session("s").append_messages([user(text) for text in texts])
        read = store.session("s").get_history()

    async with open_store(url) as store:
        assert written == read == await Session(store, "s").get_history()
