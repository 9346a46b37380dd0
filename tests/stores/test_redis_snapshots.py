"""A journal that begins with a snapshot is read only if it is one of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from leafward import CorruptStore, Session, StoreError, open_store, user
from leafward.core.ids import new_id
from leafward.stores.journal import lines
from leafward.stores.journal.entry import FORMAT, Entry, timestamp
from leafward.stores.replicated.snapshots import SNAPSHOT
from leafward.stores.sql.schema import MIGRATIONS
from tests.stores.redis_store import command, forget

SESSION = {
    "session_no": 1,
    "owner_no": 1,
    "session_id": "s",
    "tree_no": 1,
    "version": 7,
    "created_at": 1,
    "updated_at": 1,
}
TABLES: dict[str, Any] = {"session": [list(SESSION), [list(SESSION.values())]], "tree": [["tree_no", "owner_no"], []]}


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    prefix = f"{new_id()}:"
    yield prefix
    forget(redis_url, prefix)


def _write(url: str, prefix: str, **differently: Any) -> None:
    told = {
        "at": 1,
        "format": FORMAT,
        "schema": len(MIGRATIONS),
        "incarnation": "x~1",
        "tables": TABLES,
        "counted": {},
        "context": [],
        **differently,
    }
    entry = Entry(type=SNAPSHOT, timestamp=timestamp(1), leafward=msgspec.Raw(msgspec.json.encode(told)))
    data, crc = lines.encode([entry], 0)
    journal, mark = (f"{prefix}{{anonymous}}:agent:default:{part}:s" for part in ("journal", "mark"))
    command(url, "RPUSH", journal, data[:-1])
    command(url, "SET", mark, f"x~1:1:{crc:08x}:nonce")


async def test_a_snapshot_is_read(redis_url: str, prefix: str) -> None:
    _write(redis_url, prefix)

    async with open_store(redis_url, key_prefix=prefix) as store:
        assert await Session(store, "s").get_version() == 7


async def test_one_of_the_version_before_takes_states(redis_url: str, prefix: str) -> None:
    # It had four steps of the schema, and neither states nor usage by name.
    _write(redis_url, prefix, schema=4)

    for version in (7, 9):
        async with open_store(redis_url, key_prefix=prefix) as store:
            session = Session(store, "s")
            assert await session.get_version() == version
            await session.set_state("plan", {"at": version})
            await session.append_message(user("one"))
            assert await session.get_states() == {"plan": {"at": version}}


@pytest.mark.parametrize(
    "differently",
    [
        {"tables": {**TABLES, "owner": [["agent_id", "user_id"], [["a", "b"]]]}},
        {"tables": {**TABLES, "meta; --": [[], [[]]]}},
        {"tables": {**TABLES, "label": [["place", "tree_no", "name) SELECT 1, 1, sql FROM sqlite_master --"], [[1]]]}},
        {"tables": {**TABLES, "label": [["place", "colour"], []]}},
        {"tables": "none"},
        {"context": [["too", "short"]]},
    ],
    ids=["another table", "no table", "a statement", "another column", "no tables", "no entry"],
)
async def test_one_that_names_what_no_session_has_is_damage(
    redis_url: str, prefix: str, differently: dict[str, Any]
) -> None:
    _write(redis_url, prefix, **differently)

    async with open_store(redis_url, key_prefix=prefix) as store:
        for call in (Session(store, "s").get_history, lambda: Session(store, "s").append_message(user("text"))):
            with pytest.raises(CorruptStore, match="the journal of session 's' begins with a snapshot"):
                await call()


@pytest.mark.parametrize("differently", [{"schema": len(MIGRATIONS) + 1}, {"format": FORMAT + 1, "tables": "other"}])
async def test_one_of_a_newer_leafward_asks_for_an_upgrade(
    redis_url: str, prefix: str, differently: dict[str, Any]
) -> None:
    _write(redis_url, prefix, **differently)

    async with open_store(redis_url, key_prefix=prefix) as store:
        with pytest.raises(StoreError, match=r"newer leafward .* upgrade") as caught:
            await Session(store, "s").get_history()
    assert not isinstance(caught.value, CorruptStore)
