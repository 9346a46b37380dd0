"""What a registry promises: every session is listed and described, and copied and ended whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    InvalidId,
    Session,
    SessionExists,
    SessionInfo,
    SessionManager,
    SessionNotFound,
    assistant,
    user,
)
from leafward.testing.copying import CopyContract
from leafward.testing.deletion import DeletionContract
from leafward.testing.filled import manage, picture, put_fact
from leafward.testing.ids import REFUSED_IDS

if TYPE_CHECKING:
    from leafward.stores import Store


def ids(sessions: list[SessionInfo]) -> list[str]:
    return [info.id for info in sessions]


async def _use(manager: SessionManager) -> None:
    await manager.add_usage("s", 1, 2, 0.5)


WRITES: dict[str, Callable[[SessionManager, Session], Awaitable[object]]] = {
    "append": lambda manager, _: manager.append("s", user("new")),
    "upsert": lambda manager, _: manager.upsert("s", user("changed", id="m0")),
    "append_all": lambda manager, _: manager.append_all("s", [user("one"), user("two")]),
    "delete_messages": lambda manager, _: manager.delete_messages("s", ["m1"]),
    "clear_messages": lambda manager, _: manager.clear_messages("s"),
    "rename": lambda manager, _: manager.rename("s", "another"),
    "add_usage": lambda manager, _: _use(manager),
    "compact_and_split": lambda manager, _: manager.compact_and_split("s", "a summary"),
    "append_message": lambda _, session: session.append_message(user("new")),
    "update_message": lambda _, session: session.update_message(user("changed", id="m0")),
    "set_state": lambda _, session: session.set_state("plan", {"step": 1}),
    "checkout": lambda _, session: session.checkout("m0"),
    "label": lambda _, session: session.label("m0", "first"),
    "add_compaction": lambda _, session: session.add_compaction("a summary", "m0", "m1"),
    "replace_context_block": lambda _, session: session.replace_context_block("memory", "new"),
    "a shared block": lambda _, session: session.replace_context_block("house", "new"),
    "an entry": lambda _, session: put_fact(session, "New", "new"),
    "load_skill": lambda _, session: session.load_skill("recipes", "tea"),
}

NEEDING: dict[str, Callable[[SessionManager, str], Awaitable[object]]] = {
    "rename": lambda manager, id: manager.rename(id, "x"),
    "add_usage": lambda manager, id: manager.add_usage(id, 1, 1, 0.0),
    "append": lambda manager, id: manager.append(id, user("x")),
    "upsert": lambda manager, id: manager.upsert(id, user("x")),
    "append_all": lambda manager, id: manager.append_all(id, [user("x")]),
    "get_history": lambda manager, id: manager.get_history(id),
    "get_message_count": lambda manager, id: manager.get_message_count(id),
    "clear_messages": lambda manager, id: manager.clear_messages(id),
    "delete_messages": lambda manager, id: manager.delete_messages(id, ["x"]),
    "fork": lambda manager, id: manager.fork(id, "x", "y"),
    "compact_and_split": lambda manager, id: manager.compact_and_split(id, "x"),
    "export_session": lambda manager, id: manager.export_session(id),
}


@pytest.mark.asyncio
class RegistryContract(DeletionContract, CopyContract):
    """What `SessionManager` tells of sessions, and how it copies and ends them.

    Subclasses define an async `store` fixture that yields an empty, open store, and override `settle` when their
    index follows writes in the background.
    """

    # Beginning.

    async def test_a_created_session_is_described(self, store: Store) -> None:
        manager = SessionManager(store)

        made = await manager.create("My chat", parent_session_id="before", model="a-model", source="web")

        assert made == SessionInfo(
            made.id, "My chat", "before", "a-model", "web", 0, 0, 0.0, None, made.created_at, made.updated_at
        )
        assert made.created_at == made.updated_at
        assert made.created_at.utcoffset() is not None
        assert await manager.get(made.id) == made
        assert await manager.list() == [made]
        assert await manager.get_history(made.id) == []

    async def test_created_sessions_may_share_a_name_and_never_an_id(self, store: Store) -> None:
        manager = SessionManager(store)

        made = [await manager.create("chat") for _ in range(20)]

        assert len(set(ids(made))) == 20
        assert {info.name for info in made} == {"chat"}

    async def test_an_id_that_exists_is_refused_and_its_session_left_alone(self, store: Store) -> None:
        manager = SessionManager(store)
        first = await manager.create("first", session_id="s", model="a-model")
        await Session(store, "written").append_message(user("walnut"))

        for taken in ("s", "written"):
            with pytest.raises(SessionExists):
                await manager.create("second", session_id=taken)

        assert await manager.get("s") == first
        assert [message.text for message in await manager.get_history("written")] == ["walnut"]
        assert len(await manager.list()) == 2

    async def test_of_many_who_create_one_id_one_succeeds(self, store: Store) -> None:
        manager = SessionManager(store)

        outcomes = await asyncio.gather(
            *(manager.create(f"{n}", session_id="s") for n in range(10)), return_exceptions=True
        )

        made = [one for one in outcomes if isinstance(one, SessionInfo)]
        assert len(made) == 1
        assert sum(isinstance(one, SessionExists) for one in outcomes) == 9
        assert await manager.list() == made

    @pytest.mark.parametrize("refused", REFUSED_IDS, ids=range(len(REFUSED_IDS)))
    async def test_a_refused_id_begins_no_session_and_is_known_to_none(self, store: Store, refused: str) -> None:
        manager = SessionManager(store)

        with pytest.raises(InvalidId):
            await manager.create("x", session_id=refused)
        with pytest.raises(InvalidId):
            manager.get_session(refused)

        assert await manager.get(refused) is None
        assert await manager.delete(refused) is False
        assert (await manager.erase(refused)).erased is False
        for call in NEEDING.values():
            with pytest.raises(SessionNotFound):
                await call(manager, refused)
        assert await manager.list() == []

    async def test_a_session_that_was_only_written_to_is_listed_under_its_id(self, store: Store) -> None:
        await Session(store, "by message").append_message(user("walnut"))
        await Session(store, "by block").with_context("memory").replace_context_block("memory", "walnut")
        manager = SessionManager(store)
        await manager.get_session("by handle").append_message(user("walnut"))

        listed = await manager.list()

        assert [(info.id, info.name) for info in listed] == [(name, name) for name in ids(listed)]
        assert ids(listed) == ["by handle", "by block", "by message"]

    async def test_a_handle_makes_no_session_until_it_writes(self, store: Store) -> None:
        manager = manage(store)

        session = manager.get_session("s")
        await picture(session)

        assert manager.get_session("s") is session
        assert await manager.get("s") is None
        assert await manager.list() == []

    # Listing.

    @pytest.mark.parametrize("write", WRITES)
    async def test_every_write_touches_the_session(self, store: Store, write: str) -> None:
        manager = manage(store)
        await manager.create("chat", session_id="s")
        await manager.append_all("s", [user("walnut", id="m0"), user("maple", id="m1")])
        await manager.create("later", session_id="later")
        before = await manager.get("s")
        assert before is not None

        await WRITES[write](manager, manager.get_session("s"))

        after = await manager.get("s")
        assert after is not None
        assert after.updated_at > before.updated_at
        assert after.created_at == before.created_at
        others = [info for info in await manager.list() if info.parent_session_id is None]
        assert ids(others) == ["s", "later"]

    async def test_what_changes_nothing_touches_nothing(self, store: Store) -> None:
        manager = manage(store)
        await manager.append((await manager.create("chat")).id, user("walnut", id="m"))
        session_id = (await manager.list())[0].id
        before = await manager.list()

        await manager.append(session_id, user("again", id="m"))
        await manager.delete_messages(session_id, ["unknown"])
        await picture(manager.get_session(session_id))
        await manager.export_session(session_id)
        await manager.fork(session_id, "m", "fork")

        assert [info for info in await manager.list() if info.id == session_id] == before

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
    async def test_pages_together_are_the_list(self, store: Store, limit: int) -> None:
        manager = SessionManager(store)
        for n in range(7):
            await manager.create(f"{n}", session_id=f"s{n}")
        whole = await manager.list(limit=None)

        pages = [await manager.list(limit=limit)]
        while pages[-1].next_cursor is not None:
            pages.append(await manager.list(limit=limit, cursor=pages[-1].next_cursor))

        assert ids(whole) == [f"s{n}" for n in reversed(range(7))]
        assert whole.next_cursor is None
        assert [info for page in pages for info in page] == whole
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert 0 < len(pages[-1]) <= limit

    async def test_a_page_has_fifty_sessions_unless_told_otherwise(self, store: Store) -> None:
        manager = SessionManager(store)
        for n in range(51):
            await manager.create(f"{n}")

        page = await manager.list()

        assert len(page) == 50
        assert len(await manager.list(cursor=page.next_cursor)) == 1
        assert await manager.list(limit=0) == []
        assert await manager.list(limit=2**63) == await manager.list(limit=None)

    async def test_paging_goes_on_while_sessions_end_and_change(self, store: Store) -> None:
        manager = SessionManager(store)
        for n in range(8):
            await manager.create(f"{n}", session_id=f"s{n}")
        first = await manager.list(limit=3)
        assert ids(first) == ["s7", "s6", "s5"]

        await manager.delete("s5")
        await manager.delete("s4")
        await manager.rename("s2", "moved to the front")
        await manager.create("new")
        rest = await manager.list(limit=None, cursor=first.next_cursor)

        assert ids(rest) == ["s3", "s1", "s0"]

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.2.3", "-1.1", "9" * 30 + ".1", "١.١", 7, b"1.1"])
    async def test_what_is_no_cursor_is_refused(self, store: Store, cursor: Any) -> None:
        manager = SessionManager(store)
        await manager.create("x")

        with pytest.raises(ValueError, match="next_cursor"):
            await manager.list(cursor=cursor)
        for limit in (-1, 1.5, "3"):
            with pytest.raises(ValueError, match="limit"):
                await manager.list(limit=limit)  # pyright: ignore[reportArgumentType]

    # What is known of a session.

    async def test_a_renamed_session_has_its_new_name(self, store: Store) -> None:
        manager = SessionManager(store)
        await Session(store, "s").append_message(user("walnut"))

        await manager.rename("s", "北京 🦊 'x'")

        info = await manager.get("s")
        assert info is not None
        assert info.name == "北京 🦊 'x'"
        for nameless in ("", "  ", None):
            with pytest.raises(ValueError, match="name"):
                await manager.rename("s", nameless)  # pyright: ignore[reportArgumentType]

    async def test_usage_adds_up_whoever_adds(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.create("x", session_id="s")

        await asyncio.gather(*(manager.add_usage("s", 100, 20, 0.25) for _ in range(8)))
        await manager.add_usage("s", 1, 0, 0)

        info = await manager.get("s")
        assert info is not None
        assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (801, 160, 2.0)
        for wrong in ((-1, 0, 0.0), (0, 1.5, 0.0), (0, 0, -0.1), (0, 0, float("nan")), (0, 0, float("inf"))):
            with pytest.raises(ValueError, match="at least 0"):
                await manager.add_usage("s", *wrong)  # pyright: ignore[reportArgumentType]
        assert await manager.get("s") == info

    @pytest.mark.parametrize("call", NEEDING)
    async def test_a_session_that_is_not_there_is_not_found_and_not_made(self, store: Store, call: str) -> None:
        manager = SessionManager(store)
        await Session(store, "there", user_id="someone").append_message(user("walnut", id="x"))

        for unknown in ("nowhere", "there"):
            with pytest.raises(SessionNotFound):
                await NEEDING[call](manager, unknown)

        assert await manager.list() == []

    async def test_messages_go_through_the_manager_as_through_a_session(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.create("x", session_id="s")
        session = Session(store, "s")

        first = await manager.append("s", user("one", id="1"))
        await manager.append_all("s", [assistant("two", id="2"), user("three", id="3")])
        await manager.append("s", assistant("another two", id="2b"), "1")
        await manager.upsert("s", assistant("another two, changed", id="2b"))
        await manager.upsert("s", user("four", id="4"), parent_id="2b")

        assert first == await session.get_message("1")
        assert await manager.get_history("s") == await session.get_history()
        assert [message.id for message in await manager.get_history("s")] == ["1", "2b", "4"]
        assert [message.id for message in await manager.get_history("s", "3")] == ["1", "2", "3"]
        assert await manager.get_message_count("s") == 3
        await session.add_compaction("a summary", "1", "2b")
        assert await manager.get_message_count("s") == 3
        assert await manager.delete_messages("s", ["4", "unknown"]) == 1
        await manager.clear_messages("s")
        assert await manager.get_message_count("s") == 0
        assert await manager.get("s") is not None
