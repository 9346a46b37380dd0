"""The tables are made by us, once, by however many come first; tables that would mix things up are refused."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from leafward import ConfigurationError, CorruptStore, Session, StoreError, open_store, user
from leafward.stores.servers.mysql import MysqlServer
from leafward.stores.sql import tables
from leafward.stores.sql.dialect import Postgres
from tests.stores.both_servers import KINDS, Kind, OnBothServers, drop_tables, opened, run_writers

PROCESSES = 8


class TestTheTables(OnBothServers):
    async def test_eight_processes_that_start_at_once_make_them_once(self, kind: Kind, url: str, prefix: str) -> None:
        await run_writers(url, prefix, "shared", processes=PROCESSES, messages=5)

        async with opened(url, table_prefix=prefix) as store:
            history = await Session(store, "shared").get_history()
            assert sorted(one.id for one in history) == sorted(f"p{p} {n}" for p in range(PROCESSES) for n in range(5))
        assert await kind.ask(url, f"SELECT value FROM {prefix}meta WHERE name = 'schema'") == [
            (str(len(tables.STEPS)),)
        ]

    @pytest.mark.parametrize("name", [*tables.TABLES, "meta"])
    async def test_a_table_of_somebody_else_is_told_and_left_alone(
        self, kind: Kind, url: str, prefix: str, name: str
    ) -> None:
        await kind.ask(url, f"CREATE TABLE {prefix}{name} (mine INT)")

        with pytest.raises(ConfigurationError, match=f"the table {prefix}{name} .*table_prefix="):
            await open_store(url, table_prefix=prefix)

        assert await kind.tables(url, prefix) == [f"{prefix}{name}"]

    async def test_a_prefix_keeps_its_sessions_to_itself(self, kind: Kind, url: str, prefix: str) -> None:
        others = [prefix[:-1], f"{prefix}_", f"{prefix}session_"]
        try:
            for one in (prefix, *others):
                async with opened(url, table_prefix=one) as store:
                    assert await Session(store, one).get_history() == []
                    for name in (prefix, *others):
                        await Session(store, name).append_message(user(f"walnut {one}", id=name))
            for one in (prefix, *others):
                async with opened(url, table_prefix=one) as store:
                    for name in (prefix, *others):
                        assert [m.text for m in await Session(store, name).get_history()] == [f"walnut {one}"]
                        assert len(await Session(store, name).search("walnut")) == 1
        finally:
            for other in others:
                await drop_tables(kind, url, other)

    async def test_a_newer_leafward_is_told_apart(self, kind: Kind, url: str, prefix: str) -> None:
        async with opened(url, table_prefix=prefix) as store:
            await Session(store).append_message(user("hi"))
        await kind.ask(url, f"UPDATE {prefix}meta SET value = '99' WHERE name = 'schema'")

        with pytest.raises(StoreError, match="newer leafward"):
            await open_store(url, table_prefix=prefix)

        await kind.ask(url, f"UPDATE {prefix}meta SET value = '{len(tables.STEPS)}' WHERE name = 'schema'")
        async with opened(url, table_prefix=prefix) as store:
            assert [one.text for one in await Session(store).get_history()] == ["hi"]

    async def test_a_version_that_is_no_number_is_told(self, kind: Kind, url: str, prefix: str) -> None:
        async with opened(url, table_prefix=prefix):
            pass
        await kind.ask(url, f"UPDATE {prefix}meta SET value = 'x' WHERE name = 'schema'")

        with pytest.raises(CorruptStore, match=f"{prefix}meta.*version 'x'"):
            await open_store(url, table_prefix=prefix)

    async def test_a_meta_table_of_somebody_else_is_told_and_left_alone(
        self, kind: Kind, url: str, prefix: str
    ) -> None:
        await kind.ask(url, f"CREATE TABLE {prefix}meta (name VARCHAR(20), value VARCHAR(20))")
        await kind.ask(url, "BEGIN", f"INSERT INTO {prefix}meta VALUES ('colour', 'red')", "COMMIT")

        with pytest.raises(ConfigurationError, match=f"{prefix}meta.*table_prefix="):
            await open_store(url, table_prefix=prefix)

        assert await kind.tables(url, prefix) == [f"{prefix}meta"]

    async def test_others_in_the_database_are_left_alone(self, kind: Kind, url: str, prefix: str) -> None:
        await kind.ask(url, f"CREATE TABLE {prefix}mine (name VARCHAR(20))", f"INSERT INTO {prefix}mine VALUES ('x')")
        async with opened(url, table_prefix=prefix) as store:
            await Session(store).append_message(user("hi"))
        assert await kind.ask(url, f"SELECT * FROM {prefix}mine") == [("x",)]


class TestAHalfMadeSchema(OnBothServers):
    @pytest.fixture
    def statements(self) -> int:
        return sum(isinstance(one, str) for step in tables.STEPS for one in step)

    async def test_is_taken_up_where_it_ended(
        self, kind: Kind, url: str, prefix: str, statements: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for made in range(0, statements, 5):
            with monkeypatch.context() as patch:
                _end_after(patch, made)
                with pytest.raises(Killed):
                    await open_store(url, table_prefix=prefix)
        async with opened(url, table_prefix=prefix) as store:
            await Session(store).append_message(user("hi"))
            assert [one.text for one in await Session(store).get_history()] == ["hi"]
        expected = sorted([f"{prefix}{name}" for name in (*tables.TABLES, "meta")])
        assert await kind.tables(url, prefix) == expected


class Killed(BaseException):
    """Stands for the end of the process."""


def _end_after(patch: pytest.MonkeyPatch, made: int) -> None:
    """Let the process end after so many statements that make something."""
    left = iter(range(made))

    def counted(original: Any) -> Any:
        async def run(self: Any, connection: Any, text: str, *rest: Any) -> Any:
            if text.lstrip().startswith(("CREATE ", "ALTER ")) and "meta" not in text and next(left, None) is None:
                raise Killed
            return await original(self, connection, text, *rest)

        return run

    patch.setattr(MysqlServer, "_ask", counted(MysqlServer._ask))
    patch.setattr(Postgres, "named", _counted_name(Postgres.named, left))


def _counted_name(original: Any, left: Any) -> Any:
    def named(self: Any, text: str) -> str:
        if (
            text.lstrip().startswith(("CREATE ", "ALTER ", "{word_index}"))
            and "meta" not in text
            and next(left, None) is None
        ):
            raise Killed
        return original(self, text)

    return named


WRONG = f"wrong{os.getpid()}_"
"""A prefix for this process alone: its neighbours run the same tests on the same server."""


class TestAWrongEngine:
    async def test_is_refused_by_mysql(self, mysql_url: str) -> None:
        kind = KINDS["mysql"]
        try:
            async with opened(mysql_url, table_prefix=WRONG) as store:
                await Session(store).append_message(user("hi"))
            await kind.ask(mysql_url, f"ALTER TABLE {WRONG}message ENGINE = MyISAM")
            with pytest.raises(ConfigurationError, match=rf"{WRONG}message.*engine MyISAM"):
                await open_store(mysql_url, table_prefix=WRONG)
        finally:
            await drop_tables(kind, mysql_url, WRONG)


class TestAWrongCollation:
    @pytest.mark.parametrize("collation", ["utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci"])
    async def test_is_refused_by_mysql(self, mysql_url: str, collation: str) -> None:
        await self._refused(mysql_url, f"ALTER TABLE {WRONG}session MODIFY session_id VARCHAR(255) COLLATE {collation}")

    @pytest.mark.parametrize("collation", ['"default"', '"en-US-x-icu"', '"POSIX"'])
    async def test_is_refused_by_postgresql(self, postgres_url: str, collation: str) -> None:
        await self._refused(postgres_url, f"ALTER TABLE {WRONG}session ALTER session_id TYPE TEXT COLLATE {collation}")

    async def _refused(self, url: str, alteration: str) -> None:
        kind = KINDS["mysql" if url.startswith("mysql") else "postgres"]
        try:
            async with opened(url, table_prefix=WRONG) as store:
                await Session(store).append_message(user("hi"))
            await kind.ask(url, alteration)
            with pytest.raises(ConfigurationError, match=rf"session_id.*{WRONG}session.*collation"):
                await open_store(url, table_prefix=WRONG)
        finally:
            await drop_tables(kind, url, WRONG)


def test_no_two_prefixes_share_a_name() -> None:
    """PostgreSQL has one namespace for tables and indexes."""
    made = re.compile(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (?:IF NOT EXISTS )?~(\w+)")
    dialect = Postgres("~")
    statements = [one for step in tables.STEPS for one in step if isinstance(one, str)]
    names = set(made.findall(dialect.named("; ".join([tables.CREATE_META, *statements]))))

    assert set(tables.TABLES) < names
    assert {(one, other) for one in names for other in names if one != other and one.endswith(other)} == set()
