"""Statements are written once, for SQLite, and spelled for each server; what is kept there comes back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.stores.servers import indexing, mysql, postgres, purge, running, searching, setup
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql import lease_statements, scanning, schema, statements, tables
from leafward.stores.sql.dialect import Dialect, MySQL, Postgres
from leafward.stores.sql.operations import STORE_CLOCK
from tests.stores.both_servers import Kind, OnBothServers
from tests.stores.server_store import PREFIX

DIALECTS = {"postgres": Postgres("p_"), "mysql": MySQL("p_", collation="utf8mb4_nopad_bin")}
SQLITE_SPELLINGS = re.compile(r"AS BLOB|AS INTEGER|\{\w+\}|\?|clock$")
MYSQL_LACKS = re.compile(r"RETURNING|ON CONFLICT|excluded\.|\$\d|COLLATE \"C\"|@@|TSVECTOR")
POSTGRES_LACKS = re.compile(r"%s|ON DUPLICATE|VALUES\(\w+\)|LOCK IN SHARE MODE|AGAINST|SIGNED|AS BINARY")
BEGINS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the statements that a module names."""
    for name, value in vars(module).items():
        for number, text in enumerate(value if isinstance(value, tuple) else (value,)):
            if name.isupper() and name[0] != "_" and isinstance(text, str) and text.lstrip().startswith(BEGINS):
                yield f"{module.__name__.rpartition('.')[2]}.{name}[{number}]", text


# What goes on with a condition is given one; what belongs to one server only is left out here.
CONDITION = "m.tree_no = ?" + scanning.NEWEST_FIRST
STATEMENTS = {
    name: text + CONDITION if text.rstrip().endswith(("WHERE", "AND")) else text
    for module in (statements, lease_statements, indexing, purge, running, searching, scanning, schema)
    for name, text in constants(module)
} | {
    "the clock": STORE_CLOCK,
    "tables.ADD_META": tables.ADD_META,
    "tables.CHANGE_META": tables.CHANGE_META,
}


def test_there_are_statements_to_look_at() -> None:
    assert len(STATEMENTS) > 120


@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_spelled_as_each_server_wants_it(name: str, writing: bool) -> None:
    for kind, lacks in (("postgres", POSTGRES_LACKS), ("mysql", MYSQL_LACKS)):
        text = DIALECTS[kind].render(STATEMENTS[name], writing=writing).text
        assert not SQLITE_SPELLINGS.search(text)
        assert not lacks.search(text)


def test_rows_that_decide_what_is_written_are_held_only_when_something_is() -> None:
    for dialect in DIALECTS.values():
        for statement in (statements.GET_SESSION, lease_statements.GET_LEASE):
            assert dialect.render(statement, writing=True).text.endswith("FOR UPDATE")
            assert "FOR UPDATE" not in dialect.render(statement, writing=False).text


def test_what_gives_a_number_gives_it_in_mysql_too() -> None:
    giving = [text for text in STATEMENTS.values() if "RETURNING" in text]
    assert len(giving) >= 6
    assert all(DIALECTS["mysql"].render(text, writing=True).gives_key for text in giving)
    assert not any(DIALECTS["mysql"].render(text, writing=True).gives_key for text in [statements.ADD_MESSAGE])


TEXT = st.text(st.one_of(st.sampled_from("\0\ue00001a"), st.characters(exclude_categories=["Cs"])))


class TestTextInPostgreSQL:
    @given(TEXT)
    def test_comes_back(self, text: str) -> None:
        dialect = DIALECTS["postgres"]
        (kept,) = dialect.encode([text])
        assert "\0" not in kept
        assert dialect.decode([(kept, kept.encode(), 1, None)]) == [(text, text.encode(), 1, None)]

    @given(TEXT, TEXT)
    def test_stays_apart_from_other_text(self, one: str, other: str) -> None:
        first, second = DIALECTS["postgres"].encode([one, other])
        assert (first == second) == (one == other)

    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ue000")))
    def test_of_the_usual_kind_is_kept_as_it_is(self, text: str) -> None:
        assert DIALECTS["postgres"].encode([text]) == (text,)


class TestTheServers(OnBothServers):
    @pytest.fixture
    def dialect(self, store: ServerStore) -> Dialect:
        return store._server.dialect

    @pytest.mark.parametrize("writing", [False, True])
    async def test_take_every_statement(self, store: ServerStore, kind: Kind, dialect: Dialect, writing: bool) -> None:
        own = {"postgres": [postgres.SETTINGS, postgres.HAS_META], "mysql": [mysql.SETTINGS, mysql.HAS_META]}[kind.name]
        database = {"postgres": "current_schema()", "mysql": "DATABASE()"}[kind.name]
        rendered = [dialect.render(text, writing=writing).text for text in STATEMENTS.values()]
        rendered.append(dialect.render(setup.COLLATIONS.replace("{schema}", database), writing=writing).text)
        async with store._server.connection() as connection:
            for text in (*rendered, *own):
                # Parsed, and compared with the tables, without being run.
                await connection.prepare(text.replace("%s", "?"))

    async def test_have_the_columns_that_sqlite_has(self, store: ServerStore, kind: Kind, url: str) -> None:
        rows = await kind.ask(
            url, f"SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE '{PREFIX}%'"
        )
        there = {(table.removeprefix(PREFIX), column) for table, column in rows}
        states = {column for table, column in there if table == "agentscope_sessions"}
        there -= {("agentscope_sessions", column) for column in states}
        with closing(sqlite3.connect(":memory:")) as database:
            for statement in (schema.CREATE_META, *(one for step in schema.MIGRATIONS for one in step)):
                database.execute(statement.replace("{p}", ""))
            here = {
                (table, column[1])
                for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                if not table.startswith("sqlite_")
                for column in database.execute(f"PRAGMA table_info({table})")
            }
        assert {column for table, column in here if table == "state"} == states - {
            "created_at",
            "updated_at",
            "leafward_sum",
        }
        here -= {("state", column) for column in states}
        assert here - there == {("unindexed", "low"), ("unindexed", "high")}
        assert there - here == {
            *(("session", column) for column in ("indexed_seq", "indexed_place")),
            *(("words", column) for column in ("place", "words")),
            *(("unindexed", column) for column in ("place", "tree_no")),
            *(("done", column) for column in ("op", "at")),
            *((table, f"{table}_no") for table in ("skill", "reclaimed")),
            *([("words", "FTS_DOC_ID")] if kind.name == "mysql" else []),
        }
        assert {table for table, _ in there} == {*tables.TABLES, "meta"}
        page = (Path(__file__).parents[2] / "docs/formats/servers.md").read_text(encoding="utf-8")
        told = {table: page.partition(f"**`{table}`**")[2].partition("\n**`")[0] for table, _ in there}
        assert {(table, column) for table, column in there if f"`{column}`" not in told[table]} == set()
