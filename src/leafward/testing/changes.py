"""What versions and `subscribe` promise: each change once, in commit order, resumable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from leafward import MessageNotFound, Session, SessionManager, user

if TYPE_CHECKING:
    from leafward.sessions import Change
    from leafward.stores import Store

PATIENCE = 20.0
"""Seconds after which a change that should have come counts as missing."""


@asynccontextmanager
async def _changes(
    session: Session, since: int | None = None, *, messages: bool = False
) -> AsyncGenerator[AsyncGenerator[Change]]:
    # Closed by hand, so that no subscription outlives its store.
    async with aclosing(session.subscribe(since, messages=messages)) as changes:
        yield changes


async def changes_until(session: Session, version: int, *, since: int = 0, messages: bool = False) -> list[Change]:
    """Return the changes after `since`, up to the one that made the session's `version`."""
    found: list[Change] = []
    if version <= since:
        return found
    async with asyncio.timeout(PATIENCE), _changes(session, since, messages=messages) as changes:
        async for change in changes:
            found.append(change)
            if change.version >= version:
                break
    return found


def _told(changes: list[Change]) -> list[tuple[str, list[str]]]:
    """What each change says, a batch of appends told one by one."""
    told: list[tuple[str, list[str]]] = []
    for change in changes:
        if change.kind == "append":
            told.extend(("append", [message_id]) for message_id in change.message_ids)
        else:
            told.append((change.kind, [] if change.kind == "clear" else sorted(change.message_ids)))
    return told


class _Versions:
    """The number that says whether anything happened."""

    async def test_each_write_makes_a_new_version(self, store: Store) -> None:
        session = Session(store, "s")
        versions = [await session.get_version()]
        writes = [
            lambda: session.append_message(user("a", id="a")),
            lambda: session.append_messages([user("b", id="b"), user("c", id="c")]),
            lambda: session.update_message(user("b2", id="b")),
            lambda: session.upsert_message(user("d", id="d")),
            lambda: session.upsert_message(user("d2", id="d")),
            lambda: session.checkout("b"),
            lambda: session.label("b", "here"),
            lambda: session.label("b", None),
            lambda: session.checkout(None),
            lambda: session.delete_messages(["c"]),
            session.clear_messages,
            lambda: session.append_message(user("a", id="a")),
        ]

        for write in writes:
            await write()
            versions.append(await session.get_version())

        assert versions[0] == 0
        assert all(earlier < later for earlier, later in pairwise(versions))

    async def test_what_writes_nothing_keeps_the_version(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        version = await session.get_version()

        await session.get_history()
        await session.get_tree()
        await session.search("a")
        await session.get_recent_history(max_messages=1)
        await session.append_message(user("a", id="a"))
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        for refused in (session.checkout, session.get_history):
            with pytest.raises(MessageNotFound):
                await refused("nowhere")

        assert await session.get_version() == version
        assert await Session(store, "s").get_version() == version


class _Subscribing:
    """Being told."""

    async def test_changes_are_told_in_commit_order(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("a", id="a"))
        await session.append_messages([user("b", id="b"), user("c", id="c")])
        await session.update_message(user("b2", id="b"))
        await session.upsert_message(user("d", id="d"), parent_id="a")
        await session.upsert_message(user("d2", id="d"))
        await session.checkout("b")
        await session.label("a", "start")
        await session.checkout(None)
        await session.label("a", None)

        changes = await changes_until(session, await session.get_version())

        assert _told(changes) == [
            ("append", ["a"]),
            ("append", ["b"]),
            ("append", ["c"]),
            ("update", ["b"]),
            ("append", ["d"]),
            ("update", ["d"]),
            ("checkout", ["b"]),
            ("label", ["a"]),
            ("checkout", []),
            ("label", ["a"]),
        ]
        assert {change.session_id for change in changes} == {"s"}

    async def test_versions_of_changes_grow_and_end_at_the_session_version(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(5)])
        await session.checkout("2")
        version = await session.get_version()

        versions = [change.version for change in await changes_until(session, version)]

        assert versions == sorted(set(versions))
        assert versions[0] > 0
        assert versions[-1] == version

    async def test_a_subscription_resumes_after_any_version(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(4)])
        await session.checkout("1")
        await session.update_message(user("new", id="2"))
        await session.append_message(user("m4", id="4"))
        version = await session.get_version()
        every = await changes_until(session, version)

        for position, change in enumerate(every):
            assert await changes_until(session, version, since=change.version) == every[position + 1 :]

    async def test_a_deleted_message_is_told_as_deleted_only(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(name, id=name) for name in ("a", "b", "c")])
        await session.delete_messages(["b", "nowhere"])
        await session.append_message(user("again", id="b"))

        assert _told(await changes_until(session, await session.get_version())) == [
            ("append", ["a"]),
            ("append", ["c"]),
            ("delete", ["b"]),
            ("append", ["b"]),
        ]

    async def test_cleared_messages_are_told_as_cleared_only(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        await session.clear_messages()
        await session.append_message(user("c", id="c"))

        assert _told(await changes_until(session, await session.get_version())) == [
            ("clear", []),
            ("append", ["c"]),
        ]

    async def test_a_waiting_subscriber_hears_what_happens(self, store: Store) -> None:
        reader, writer = Session(store, "s"), Session(store, "s")
        await writer.append_message(user("before", id="before"))
        since = await reader.get_version()

        async with asyncio.timeout(PATIENCE), _changes(reader, since) as changes:
            for n in range(5):
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)
                await writer.append_message(user(f"m{n}", id=f"{n}"))
                assert _told([await waiting]) == [("append", [f"{n}"])]

    async def test_a_subscriber_without_a_version_hears_what_follows_its_first_step(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("before", id="before"))
        sent: list[str] = []

        async with asyncio.timeout(PATIENCE), _changes(session) as changes:
            waiting = asyncio.ensure_future(anext(changes))
            # The first step takes its time to begin, so something is sent until it hears.
            while not waiting.done():
                sent.append(f"{len(sent)}")
                await session.append_message(user("now", id=sent[-1]))
                await asyncio.sleep(0)
            first = await waiting

        assert first.kind == "append"
        assert set(first.message_ids) <= set(sent)

    async def test_each_change_is_heard_once_however_many_write(self, store: Store) -> None:
        session = Session(store, "s")
        writers = [Session(store, "s") for _ in range(4)]

        async def write(writer: Session, name: int) -> None:
            for n in range(10):
                await writer.append_message(user("text", id=f"{name}.{n}"))

        async with asyncio.timeout(PATIENCE), _changes(session, 0) as one, _changes(writers[0], 0) as two:
            writing = asyncio.gather(*(write(writer, name) for name, writer in enumerate(writers)))
            heard: list[list[str]] = [[], []]
            for ids, changes in zip(heard, (one, two), strict=True):
                while len(ids) < 40:
                    ids.extend((await anext(changes)).message_ids)
            await writing

        order = [m.id for m in await session.get_history()]
        assert heard == [order, order]

    async def test_a_subscriber_that_gives_up_harms_nobody(self, store: Store) -> None:
        session = Session(store, "s")

        async with _changes(session, 0) as changes:
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        stored = await session.append_message(user("after"))

        assert await session.get_history() == [stored]
        assert len(await changes_until(session, await session.get_version())) == 1


class _Messages:
    """Changes that bring their messages."""

    async def test_a_change_brings_its_messages_when_they_are_asked_for(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        await session.label("a", "start")
        await session.checkout("a")
        await session.append_message(user("c", id="c"))
        await session.checkout(None)
        history = {name: await session.get_message(name) for name in ("a", "b", "c")}
        version = await session.get_version()

        changes = await changes_until(session, version, messages=True)

        assert [(change.kind, change.messages) for change in changes] == [
            ("append", [history["a"], history["b"]]),
            ("label", [history["a"]]),
            ("checkout", [history["a"]]),
            ("append", [history["c"]]),
            ("checkout", []),
        ]
        plain = await changes_until(session, version)
        assert [change.messages for change in plain] == [[] for _ in changes]
        assert [change.message_ids for change in plain] == [change.message_ids for change in changes]

    async def test_messages_of_changes_are_those_stored_when_they_are_read(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(name, id=name) for name in ("a", "b", "c")])
        updated = await session.update_message(user("a2", id="a"))
        await session.update_message(user("b2", id="b"))
        await session.delete_messages(["b"])
        again = await session.append_message(user("another b", id="b"))
        c = await session.get_message("c")

        changes = await changes_until(session, await session.get_version(), messages=True)

        told = [(change.kind, change.message_ids, change.messages) for change in changes]
        # What has the id of the deleted message now is not told with its deletion.
        assert told == [
            ("append", ["a", "c"], [updated, c]),
            ("update", ["a"], [updated]),
            ("update", ["b"], [again]),
            ("delete", ["b"], []),
            ("append", ["b"], [again]),
        ]

    async def test_a_long_past_is_brought_whole_and_in_order(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(600)])
        for n in range(50):
            stored.append(await session.append_message(user(f"n{n}", id=f"n{n}")))

        changes = await changes_until(session, await session.get_version(), messages=True)

        assert [message for change in changes for message in change.messages] == stored
        assert [change.version for change in changes] == sorted({change.version for change in changes})

    async def test_a_waiting_subscriber_is_brought_what_is_appended(self, store: Store) -> None:
        reader, writer = Session(store, "s"), Session(store, "s")

        async with asyncio.timeout(PATIENCE), _changes(reader, 0, messages=True) as changes:
            for n in range(3):
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)
                stored = await writer.append_message(user(f"m{n}"))
                assert (await waiting).messages == [stored]


class _MadeAgain:
    """A session that was deleted, and another one under its id."""

    async def test_a_deleted_session_is_reported_as_cleared(self, store: Store) -> None:
        session, manager = Session(store, "s"), SessionManager(store)
        await session.append_messages([user("a", id="a"), user("b", id="b")])

        async with asyncio.timeout(PATIENCE), _changes(session, 0) as changes:
            assert _told([await anext(changes)]) == [("append", ["a"]), ("append", ["b"])]
            await manager.delete("s")
            gone = await anext(changes)
            await session.append_message(user("c", id="c"))
            after = await anext(changes)

        assert (gone.version, gone.kind, gone.message_ids, gone.messages) == (0, "clear", [], [])
        assert (after.version, after.kind, after.message_ids) == (1, "append", ["c"])

    @pytest.mark.parametrize("made", [1, 2, 3, 5])
    async def test_a_session_made_again_unseen_is_followed_from_its_beginning(self, store: Store, made: int) -> None:
        session, manager = Session(store, "s"), SessionManager(store)
        for n in range(3):
            await session.append_message(user(f"m{n}", id=f"{n}"))

        # Its version is then below, at or beyond the one that was seen last.
        async with asyncio.timeout(PATIENCE), _changes(session, 2) as changes:
            assert (await anext(changes)).version == 3
            await manager.delete("s")
            for n in range(made):
                await session.append_message(user("new", id=f"new {n}"))
            found = [await anext(changes) for _ in range(made + 1)]

        assert [(change.version, change.kind, change.message_ids) for change in found] == [
            (0, "clear", []),
            *((n + 1, "append", [f"new {n}"]) for n in range(made)),
        ]

    async def test_a_waiting_subscriber_hears_of_a_session_made_again(self, store: Store) -> None:
        session, manager = Session(store, "s"), SessionManager(store)
        await session.append_message(user("a", id="a"))
        kept = await manager.export_session("s")

        async with asyncio.timeout(PATIENCE), _changes(session, 0, messages=True) as changes:
            assert (await anext(changes)).version == 1
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await manager.delete("s")
            # The same messages, times and version, and still another session.
            await manager.import_session(kept)
            found = [await waiting, await anext(changes)]

        assert [(change.kind, change.message_ids) for change in found] == [("clear", []), ("append", ["a"])]
        assert found[1].messages == await session.get_history()

    async def test_a_cleared_session_is_reported_once(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("a", id="a"))

        async with asyncio.timeout(PATIENCE), _changes(session, 1) as changes:
            await session.clear_messages()
            await session.append_message(user("b", id="b"))
            found = [await anext(changes), await anext(changes)]

        assert [(change.version, change.kind) for change in found] == [(2, "clear"), (3, "append")]

    async def test_a_subscriber_may_come_before_the_session(self, store: Store) -> None:
        session = Session(store, "s")

        async with asyncio.timeout(PATIENCE), _changes(session, 0) as changes:
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await session.append_message(user("a", id="a"))
            first = await waiting

        assert (first.kind, first.message_ids) == ("append", ["a"])

    async def test_a_version_the_session_has_not_reached_begins_with_a_clear(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("a", id="a"))

        async with asyncio.timeout(PATIENCE), _changes(session, 7) as changes:
            found = [await anext(changes), await anext(changes)]

        assert [(change.version, change.kind) for change in found] == [(0, "clear"), (1, "append")]


@pytest.mark.asyncio
class ChangeContract(_Versions, _Subscribing, _Messages, _MadeAgain):
    """Whoever reads the version and then listens misses nothing.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
