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
    (
        "ALTER TABLE {p}session ADD COLUMN window_tokens INTEGER",
        "ALTER TABLE {p}session ADD COLUMN overlays INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}session ADD COLUMN reclaimed INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}session ADD COLUMN name TEXT",
        "ALTER TABLE {p}session ADD COLUMN parent_session_id TEXT",
        "ALTER TABLE {p}session ADD COLUMN model TEXT",
        "ALTER TABLE {p}session ADD COLUMN source TEXT",
        "ALTER TABLE {p}session ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}session ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {p}session ADD COLUMN estimated_cost REAL NOT NULL DEFAULT 0",
        "ALTER TABLE {p}session ADD COLUMN end_reason TEXT",
        """
        CREATE TABLE {p}overlay (
            overlay_no INTEGER PRIMARY KEY AUTOINCREMENT,
            tree_no INTEGER NOT NULL REFERENCES {p}tree,
            id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            low INTEGER NOT NULL,
            high INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            created_at INTEGER NOT NULL,
            summary TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX {p}overlay_id ON {p}overlay (tree_no, id)",
        "CREATE INDEX {p}overlay_span ON {p}overlay (tree_no, low, high DESC, overlay_no DESC, seq, tokens)",
        """
        CREATE TABLE {p}reclaimed (
            place INTEGER NOT NULL,
            call_id TEXT NOT NULL,
            tree_no INTEGER NOT NULL,
            notice TEXT NOT NULL,
            PRIMARY KEY (place, call_id)
        ) WITHOUT ROWID""",
        "CREATE INDEX {p}reclaimed_tree ON {p}reclaimed (tree_no)",
        """
        CREATE TABLE {p}skill (
            session_no INTEGER NOT NULL,
            label TEXT NOT NULL,
            skill_key TEXT NOT NULL,
            PRIMARY KEY (session_no, label, skill_key)
        ) WITHOUT ROWID""",
        """
        CREATE TABLE {p}prompt (
            session_no INTEGER PRIMARY KEY,
            prompt TEXT NOT NULL,
            tokens INTEGER NOT NULL,
            fingerprint TEXT NOT NULL
        )""",
        """
        CREATE TABLE {p}shelf (
            shelf_no INTEGER PRIMARY KEY AUTOINCREMENT,
            owner_no INTEGER NOT NULL REFERENCES {p}owner,
            session_no INTEGER NOT NULL,
            label TEXT NOT NULL,
            UNIQUE (owner_no, session_no, label)
        )""",
        "CREATE INDEX {p}shelf_discarded ON {p}shelf (shelf_no) WHERE session_no < 0",
        """
        CREATE TABLE {p}entry (
            entry_no INTEGER PRIMARY KEY AUTOINCREMENT,
            shelf_no INTEGER NOT NULL REFERENCES {p}shelf,
            entry_key TEXT NOT NULL,
            updated_at INTEGER NOT NULL,
            analyzer TEXT,
            description TEXT,
            content TEXT NOT NULL,
            UNIQUE (shelf_no, entry_key)
        )""",
        "CREATE INDEX {p}entry_analyzer ON {p}entry (shelf_no, analyzer)",
        "CREATE INDEX {p}entry_uncut ON {p}entry (entry_no) WHERE analyzer = ''",
        """
        CREATE TABLE {p}entry_word (
            shelf_no INTEGER NOT NULL,
            word TEXT NOT NULL,
            entry_no INTEGER NOT NULL,
            PRIMARY KEY (shelf_no, word, entry_no)
        ) WITHOUT ROWID""",
    ),
    (
        """
        CREATE TABLE {p}lease (
            user_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            token INTEGER NOT NULL,
            holder TEXT,
            expires_at INTEGER NOT NULL,
            PRIMARY KEY (user_id, session_id)
        ) WITHOUT ROWID""",
        """
        CREATE TABLE {p}ticket (
            ticket_no INTEGER PRIMARY KEY AUTOINCREMENT,
            user_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            holder TEXT NOT NULL,
            expires_at INTEGER NOT NULL
        )""",
        "CREATE INDEX {p}ticket_slot ON {p}ticket (user_id, session_id, ticket_no)",
    ),
    (
        "CREATE INDEX {p}owner_user ON {p}owner (user_id)",
        """
        CREATE TABLE {p}state (
            session_id TEXT NOT NULL,
            state_key TEXT NOT NULL,
            item_index INTEGER NOT NULL,
            state_data TEXT NOT NULL,
            version INTEGER NOT NULL,
            PRIMARY KEY (session_id, state_key, item_index)
        )""",
    ),
    (
        """
        CREATE TABLE {p}point (
            tree_no INTEGER NOT NULL,
            name TEXT NOT NULL,
            place INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            text TEXT,
            digest TEXT,
            PRIMARY KEY (tree_no, name, place)
        ) WITHOUT ROWID""",
        """
        CREATE TABLE {p}used (
            session_no INTEGER NOT NULL,
            usage_id TEXT NOT NULL,
            model TEXT,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cost REAL NOT NULL,
            at INTEGER NOT NULL,
            PRIMARY KEY (session_no, usage_id)
        ) WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE {p}lease ADD COLUMN label TEXT",
        "ALTER TABLE {p}lease ADD COLUMN since INTEGER",
        "ALTER TABLE {p}lease ADD COLUMN process TEXT",
        "ALTER TABLE {p}ticket ADD COLUMN process TEXT",
        """
        CREATE TABLE {p}sent (
            sent_no INTEGER PRIMARY KEY AUTOINCREMENT,
            user_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            label TEXT,
            text TEXT NOT NULL
        )""",
        "CREATE INDEX {p}sent_slot ON {p}sent (user_id, session_id, sent_no)",
    ),
)

GET_META = "SELECT value FROM {p}meta WHERE name = ?"

SET_META = "INSERT INTO {p}meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

CREATE_META = "CREATE TABLE IF NOT EXISTS {p}meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

_SPELLINGS = {
    "{states}": "{p}state",
    "{touch}": "",
    "{hold}": "",
    "{name_lock}": "length(?)",
    "{bytewise}": "",
}


def spell(statement: str, prefix: str) -> str:
    """Return a statement as SQLite takes it."""
    for name, spelling in _SPELLINGS.items():
        statement = statement.replace(name, spelling)
    return statement.replace("{p}", prefix)


SCHEMA_VERSION = "schema"
"""The name in the meta table under which the number of applied steps is kept."""
