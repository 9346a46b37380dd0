"""Wiping the unused parts of pages changes nothing that is stored."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward.stores.sqlite.pages import MalformedPage, wiped
from tests.stores.sqlite_store import rows


class TestPages:
    @settings(max_examples=40)
    @given(st.integers(0, 10**9), st.sampled_from((512, 4096, 65536)))
    def test_a_wiped_database_holds_what_it_held(
        self, tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
    ) -> None:
        chance, path = random.Random(seed), tmp_path_factory.mktemp("pages") / "any.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(f"PRAGMA page_size = {size}")
            database.execute("PRAGMA secure_delete = OFF")
            database.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB)")
            database.execute("CREATE INDEX i ON t (b, c)")
            database.execute("BEGIN")
            for _ in range(300):
                key, length = chance.randrange(200), chance.choice((0, 9, 99, 999, 9999))
                database.execute("INSERT OR REPLACE INTO t VALUES (?, ?, ?)", (key, f"stale{key}", b"x" * length))
                database.execute("DELETE FROM t WHERE a = ?", (chance.randrange(200),))
            database.execute("COMMIT")
            held = database.execute("SELECT * FROM t").fetchall()
        data = path.read_bytes()
        pages = [data[at : at + size] for at in range(0, len(data), size)]
        clean = pages[:1] + [wiped(page) or page for page in pages[1:]]
        path.write_bytes(b"".join(clean))
        assert rows(path, "SELECT * FROM t") == held
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        assert all(wiped(page) is None for page in clean[1:])

    @given(st.sampled_from((2, 5, 10, 13)), st.binary(min_size=511, max_size=511))
    def test_no_page_makes_it_run_out_of_the_page(self, kind: int, rest: bytes) -> None:
        page = bytes([kind]) + rest
        try:
            clean = wiped(page)
        except MalformedPage:
            return
        assert clean is None or len(clean) == len(page)
