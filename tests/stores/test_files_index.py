"""The index is made from the journals: whatever happens to it, nobody notices."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from leafward import Session, StoreError, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Owner, Scope
from leafward.core.message import Message
from leafward.stores.contracts import NewOverlay, Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Prompt, Shelf
from leafward.stores.files import FileStore
from leafward.stores.registry import Origin
from leafward.testing.ids import HOSTILE_IDS
from tests.stores.files_store import drop_index, end, fill, journal, opened, said, shared_journal, start, tell, texts

OWNER = Owner("default", None)
UNUSABLE = pytest.mark.parametrize("how", ["missing", "damaged", "not a database", "newer", "older", "without its log"])


async def grow(store: FileStore) -> None:
    """Do some of everything."""
    session, scope = Session(store, "s"), Scope.of("s")
    await fill(store, count=6)
    await session.append_message(user("branch walnut", id="b"), parent_id="m1")
    await session.label("m1", "a label")
    await session.append_message(user("stepped", id="s"), "m5", state={"plan": {"at": "s"}, "状態": {}})
    await session.append_messages([user("more", id="more"), user("known", id="m4")], state={"plan": {"at": "m4"}})
    usage = Usage(5, 6, 0.5, "a-model")
    await store.messages.append(scope, [Draft(*user("used", id="u").sealed(), 2)], "m1", usage=usage)
    await store.messages.append(scope, [], None, state=[AttachedState("plan", '{"at":"root"}')])
    await session.set_state("状態", None)
    await session.update_message(user("walnut changed", id="m2"))
    await session.delete_messages(["m4"])
    await store.messages.add_overlay(scope, NewOverlay("o", "so far", 3, 5, "m0", "m1"))
    await store.entries.edit(Shelf(scope, "notes"), "k", lambda _: "a walnut note", searchable=True)
    await store.entries.edit(Shelf(scope, "facts", shared=True), "k", lambda _: "a shared fact")
    await store.entries.load_skill(scope, "skills", "cook")
    await store.entries.keep_prompt(scope, Prompt("You are", 2, "f"), replace=True)
    await store.registry.rename(scope, "Walnuts")
    await store.registry.add_usage(scope, Usage(3, 4, 0.25))
    await store.registry.fork(scope, "m3", Scope.of("fork"), "Copy")
    await store.registry.split(scope, Scope.of("next"), None, Draft(*Message("user", "go on").sealed(), 2))
    await store.registry.create(Scope.of("empty"), Origin("Empty"))
    await session.checkout("m3")


async def picture(store: FileStore) -> dict[str, Any]:
    """All that can be read of every session."""
    found: dict[str, Any] = {"count": await store.registry.count(OWNER)}
    found["list"] = await store.registry.list(OWNER, limit=None, cursor=None)
    found["shared"] = await store.entries.get(Shelf(Scope.of("s"), "facts", shared=True), "k")
    for info in found["list"]:
        session, scope = Session(store, info.id), Scope.of(info.id)
        archive = await store.registry.dump(scope)
        changes = await store.messages.changes(scope, 0)
        results = await session.search("walnut", limit=50)
        found[info.id] = archive, changes, results, await session.get_version(), await session.get_tree()
    return found


@UNUSABLE
async def test_an_index_that_cannot_be_used_is_made_anew(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path) as store:
        await grow(store)
        before = await picture(store)
        if how == "without its log":
            shutil.copy(tmp_path / "index.sqlite", tmp_path / "kept")
    index = tmp_path / "index.sqlite"
    if how == "missing":
        drop_index(tmp_path)
    elif how == "damaged":
        data = bytearray(index.read_bytes())
        data[100:4096] = os.urandom(3996)
        index.write_bytes(data)
    elif how == "not a database":
        index.write_bytes(b"These are not the pages you are looking for. " * 200)
    elif how == "without its log":
        (tmp_path / "kept").rename(index)
    else:
        await _set_versions(index, how)

    async with opened(tmp_path) as store:
        assert await picture(store) == before
        await Session(store, "s").append_message(user("on"))
        assert (await texts(store))[-1] == "on"


async def _set_versions(index: Path, how: str) -> None:
    database = sqlite3.connect(index)
    name, value = ("schema", "99") if how == "newer" else ("journals", "0")
    database.execute("UPDATE leafward_meta SET value = ? WHERE name = ?", (value, name))
    database.commit()
    database.close()


async def test_an_index_that_is_behind_catches_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=2)
    shutil.copy(tmp_path / "index.sqlite", tmp_path / "kept")
    async with opened(tmp_path) as store:
        await grow(store)
        before = await picture(store)
    drop_index(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "index.sqlite")

    async with opened(tmp_path) as store:
        assert await store.registry.get(Scope.of("fork")) is not None
        assert await picture(store) == before


async def test_an_index_removed_while_it_is_open_is_made_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await grow(store)
        before = await picture(store)

        drop_index(tmp_path)

        assert await picture(store) == before
        await Session(store, "s").append_message(user("on", id="on"))
        drop_index(tmp_path)
        lease = await store.leases.acquire("s")
        await Session(store, "s").with_lease(lease).append_message(user("leased"))
        await lease.release()
        assert (await texts(store))[-2:] == ["on", "leased"]
        assert (tmp_path / "index.sqlite").exists()


async def test_a_subscriber_does_not_notice_that_the_index_was_lost(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        # Read again in another order, the sessions have other numbers in the new index.
        await fill(store, "other")
        await fill(store, "s")
        session = Session(store, "s")
        async with asyncio.timeout(20), aclosing(session.subscribe(since=3)) as changes:
            assert (await anext(changes)).message_ids == ["m3"]
            drop_index(tmp_path)
            await session.append_message(user("on", id="on"))

            assert (await anext(changes)).message_ids == ["on"]


async def test_a_journal_removed_by_hand_and_begun_again_is_another_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, "s", 2)
        session = Session(store, "s")
        async with asyncio.timeout(20), aclosing(session.subscribe(since=1)) as changes:
            assert (await anext(changes)).message_ids == ["m1"]
            journal(tmp_path).unlink()
            await fill(store, "s", 3)
            found = [await anext(changes) for _ in range(4)]

        assert [(change.version, change.kind) for change in found] == [
            (0, "clear"),
            *((n, "append") for n in (1, 2, 3)),
        ]


async def test_an_index_removed_under_another_process_is_noticed_there(tmp_path: Path) -> None:
    program = """
async def main():
    async with opened(directory) as store:
        session = Session(store, "s")
        for line in sys.stdin:
            await session.append_message(user(line.strip()))
            print(*(message.text for message in await session.get_history()), flush=True)
asyncio.run(main())
"""
    child = start(program, tmp_path)
    try:
        tell(child, "one")
        assert await said(child) == "one"
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert await texts(store) == ["one"]
            await Session(store, "s").append_message(user("two"))
            tell(child, "three")
            assert await said(child) == "one two three"
            assert await texts(store) == ["one", "two", "three"]
            drop_index(tmp_path)
            tell(child, "four")
            assert await said(child) == "one two three four"
            assert await texts(store) == ["one", "two", "three", "four"]
    finally:
        end(child)


async def test_one_who_waits_hears_changes_when_the_index_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = Session(store, "s")
        await session.append_message(user("one"))
        changes = session.subscribe(await session.get_version())
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.05)
        drop_index(tmp_path)

        await session.append_message(user("two", id="two"))

        async with asyncio.timeout(20):
            assert list((await waiting).message_ids) == ["two"]
        await changes.aclose()


async def test_an_index_that_becomes_unreadable_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=300)
        await store.settle()
    data = bytearray((tmp_path / "index.sqlite").read_bytes())
    for place in range(4096 * 2, len(data), 4096):
        data[place : place + 2000] = os.urandom(2000)
    (tmp_path / "index.sqlite").write_bytes(data)

    async with opened(tmp_path) as store:
        found: list[str] = []
        while not found:
            try:
                found = await texts(store)
            except StoreError as error:
                # A read that had begun cannot be run again by the store.
                if "repeat the call" not in str(error):
                    raise
        assert found == [f"walnut {n}" for n in range(300)]
        await Session(store, "s").append_message(user("on"))


async def test_a_journal_that_vanished_is_a_deleted_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for name in ("s", "other"):
            await fill(store, name)

        journal(tmp_path).unlink()

        assert [info.id for info in await store.registry.list(OWNER, limit=None, cursor=None)] == ["other"]
        assert await texts(store) == []
        await Session(store, "s").append_message(user("again"))
        assert await texts(store) == ["again"]


async def test_a_journal_copied_in_by_hand_appears(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as store:
        await grow(store)
        before = await store.registry.dump(Scope.of("s"))
    async with opened(tmp_path / "b") as store:
        await fill(store, "mine")
        assert await store.registry.count(OWNER) == 1

        shutil.copy(journal(tmp_path / "a"), journal(tmp_path / "b"))

        assert await store.registry.count(OWNER) == 2
        assert await store.registry.dump(Scope.of("s")) == before
        await Session(store, "s").append_message(user("on"))
        shutil.copy(journal(tmp_path / "a"), tmp_path / "again")
        (tmp_path / "again").replace(journal(tmp_path / "b"))
        assert await store.registry.dump(Scope.of("s")) == before
        await Session(store, "s").append_message(user("on"))


async def test_a_directory_copied_elsewhere_is_the_same_store(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as store:
        await grow(store)
        before = await picture(store)
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    async with opened(tmp_path / "b") as store:
        assert await picture(store) == before


async def test_hostile_ids_are_listed_from_their_journals_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, durability="process") as store:
        for name in HOSTILE_IDS:
            await Session(store, name, user_id="u").append_message(user(f"of {name}"))
    drop_index(tmp_path)

    async with opened(tmp_path, durability="process") as store:
        listed = await store.registry.list(Owner("default", "u"), limit=None, cursor=None)
        assert {info.id for info in listed} == set(HOSTILE_IDS)
        for name in HOSTILE_IDS:
            assert await texts(store, name, user_id="u") == [f"of {name}"]


async def test_shared_texts_come_back_without_the_index(tmp_path: Path) -> None:
    scope = Scope.of("s", user_id="ann")
    async with opened(tmp_path) as store:
        for n in range(3):
            await store.entries.edit(Shelf(scope, "facts", shared=True), f"k{n}", lambda _, n=n: f"walnut {n}")
        await store.entries.edit(Shelf(scope, "facts", shared=True), "k1", lambda _: None)
        revision = await store.messages.revision(scope)
    drop_index(tmp_path)

    async with opened(tmp_path) as store:
        other = Shelf(Scope.of("else", user_id="ann"), "facts", shared=True)
        assert [(await store.entries.get(other, f"k{n}") is not None) for n in range(3)] == [True, False, True]
        assert await store.entries.get(Shelf(Scope.of("s"), "facts", shared=True), "k0") is None
        assert await store.messages.revision(scope) == revision
        assert revision.version == 4
    assert shared_journal(tmp_path, "ann").exists()
