"""Stores of the version that had no attached states are opened, and can do what is new.

The journal and the SQLite file were written by that version. On PostgreSQL and MySQL the tables are as it made them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leafward import Session, SessionManager, open_store, user
from leafward.core.ids import new_id
from leafward.stores import Store
from leafward.stores.journal.lines import read
from leafward.stores.journal.replaying import read_header
from leafward.stores.sql import tables
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.files_store import drop_index, journal, types
from tests.stores.redis_store import command, forget
from tests.stores.test_sqlite_schema import old_file

JOURNAL = Path(__file__).parent / "fixtures" / "before-states.log.jsonl"
LAST_STEP = 3
"""The step of a server's schema that made the tables of states; the version before had two."""


async def attach(store: Store) -> None:
    """Do all that is new to a session of the version before."""
    manager = SessionManager(store, user_id="alice")
    session = manager.get_session("chat-1")
    before = await session.get_raw_history()
    assert [message.id for message in before][:2] == ["m1", "m2"]
    assert await session.get_states() == {}

    await session.set_state("plan", {"step": 1})
    await session.append_message(user("On", id="on"), state={"plan": {"step": 2}})
    for _ in range(2):
        await manager.add_usage("chat-1", 1, 2, 0.25, usage_id="call 1", model="a-model")
    await session.checkout("m1")
    await manager.fork("chat-1", "on", "fork")


async def check(store: Store) -> None:
    """See that it was done."""
    manager = SessionManager(store, user_id="alice")
    session = manager.get_session("chat-1")
    assert await session.get_states() == {}
    assert await session.get_states("on") == {"plan": {"step": 2}}
    above = await session.get_parent("on")
    assert above is not None
    assert await session.get_states(above.id) == {"plan": {"step": 1}}
    (fork,) = [info for info in await manager.list() if info.name == "fork"]
    assert await manager.get_session(fork.id).get_states() == {"plan": {"step": 2}}
    exported = await manager.export_session("chat-1")
    assert (exported["version"], [one["id"] for one in exported["usages"]]) == (2, ["call 1"])
    await manager.delete_messages("chat-1", ["on"])
    await manager.clear_messages("chat-1")
    assert await session.get_states() == {}


async def test_a_sqlite_file_of_the_version_before_takes_states(tmp_path: Path) -> None:
    for step in (attach, check):
        async with open_store(old_file(tmp_path, 4) if step is attach else f"sqlite:///{tmp_path}/old.db") as store:
            await step(store)


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_journal_of_the_version_before_takes_states(tmp_path: Path, indexed: bool) -> None:
    path = journal(tmp_path, "chat-1", "alice")
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(JOURNAL.read_bytes())
    path.chmod(0o600)
    tmp_path.chmod(0o700)
    for step in (attach, check):
        async with open_store(f"file:///{tmp_path}") as store:
            assert await Session(store, "chat-1", user_id="alice").get_labels() in ({"m2": "first try"}, {})
            await step(store)
        if not indexed:
            drop_index(tmp_path)
    assert path.read_bytes().startswith(JOURNAL.read_bytes())
    assert types(path).count("state") == 2


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    prefix = f"{new_id()}:"
    yield prefix
    forget(redis_url, prefix)


async def test_a_journal_of_the_version_before_takes_states_on_redis(redis_url: str, prefix: str) -> None:
    data = JOURNAL.read_bytes()
    reading = read(data)
    batches = [data[batch.start : batch.end].rstrip(b"\n") for batch in reading.batches]
    # A header is in the same batch as what followed it.
    batches[:2] = [b"\n".join(batches[:2])]
    own, mark = (f"{prefix}{{u:alice}}:agent:default:{part}:chat-1" for part in ("journal", "mark"))
    for batch in batches:
        command(redis_url, "RPUSH", own, batch)
    incarnation = read_header(reading.entries[0]).incarnation
    command(redis_url, "SET", mark, f"{incarnation}:{len(batches)}:{reading.crc:08x}:nonce")

    for step in (attach, check):
        async with open_store(redis_url, key_prefix=prefix) as store:
            await step(store)


class TestTablesOfTheVersionBefore(OnBothServers):
    async def test_take_states(self, kind: Kind, url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(tables, "STEPS", tables.STEPS[: LAST_STEP - 1])
            patch.setattr(tables, "TABLES", [name for name in tables.TABLES if name not in ("point", "used")])
            async with opened(url, table_prefix=prefix) as store:
                session = Session(store, "chat-1", user_id="alice")
                await session.append_messages([user("Hello", id="m1"), user("Tea?", id="m2")])
                await session.append_message(user("Milk?", id="m3"))
        assert f"{prefix}point" not in await kind.tables(url, prefix)

        for step in (attach, check):
            async with opened(url, table_prefix=prefix) as store:
                await step(store)
