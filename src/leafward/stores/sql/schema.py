"""The tables, as numbered steps; a step that was released is never changed, only followed by another.

What each table and column means is told in docs/formats/sqlite.md.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE {p}owner (
            owner_no INTEGER PRIMARY KEY AUTOINCREMENT,
            agent_id TEXT NOT NULL,
            user_id TEXT NOT NULL,
            UNIQUE (agent_id, user_id)
        )""",
        """
        CREATE TABLE {p}session (
            session_no INTEGER PRIMARY KEY AUTOINCREMENT,
            owner_no INTEGER NOT NULL REFERENCES {p}owner,
            session_id TEXT NOT NULL,
            tree_no INTEGER NOT NULL UNIQUE REFERENCES {p}tree,
            leaf INTEGER,
            version INTEGER NOT NULL,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            UNIQUE (owner_no, session_id)
        )""",
        """
        CREATE TABLE {p}tree (
            tree_no INTEGER PRIMARY KEY AUTOINCREMENT,
            owner_no INTEGER NOT NULL REFERENCES {p}owner,
            discarded INTEGER NOT NULL
        )""",
        "CREATE INDEX {p}tree_discarded ON {p}tree (tree_no) WHERE discarded = 1",
        """
        CREATE TABLE {p}lane (
            lane_no INTEGER PRIMARY KEY AUTOINCREMENT,
            tree_no INTEGER NOT NULL REFERENCES {p}tree,
            origin INTEGER,
            floor INTEGER NOT NULL,
            removed INTEGER NOT NULL
        )""",
        "CREATE INDEX {p}lane_origin ON {p}lane (tree_no, origin)",
        """
        CREATE TABLE {p}message (
            place INTEGER PRIMARY KEY,
            tree_no INTEGER NOT NULL REFERENCES {p}tree,
            seq INTEGER NOT NULL,
            id TEXT NOT NULL,
            role TEXT NOT NULL,
            tokens INTEGER NOT NULL,
            created_at INTEGER NOT NULL,
            body TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX {p}message_id ON {p}message (tree_no, id)",
        """
        CREATE TABLE {p}label (
            place INTEGER PRIMARY KEY,
            tree_no INTEGER NOT NULL,
            name TEXT NOT NULL
        )""",
        "CREATE INDEX {p}label_tree ON {p}label (tree_no)",
        """
        CREATE TABLE {p}change (
            session_no INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            kind TEXT NOT NULL,
            ids TEXT NOT NULL,
            PRIMARY KEY (session_no, seq)
        ) WITHOUT ROWID""",
        """
        CREATE TABLE {p}unindexed (
            low INTEGER PRIMARY KEY,
            high INTEGER NOT NULL
        )""",
    ),
)

GET_META = "SELECT value FROM {p}meta WHERE name = ?"

SET_META = "INSERT INTO {p}meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

CREATE_META = "CREATE TABLE IF NOT EXISTS {p}meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

SCHEMA_VERSION = "schema"
"""The name in the meta table under which the number of applied steps is kept."""
