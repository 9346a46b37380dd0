"""The tables as servers have them, in numbered steps; `{id}`, `{text}` and the like are types that a dialect names.

They are the tables of `schema.py` with the indexes that servers need. Nothing refers by foreign key: every write holds
its session's row, and a key that is checked is one more row to lock.
"""

from __future__ import annotations

from typing import NamedTuple


class NewColumn(NamedTuple):
    """A column that a table of an earlier version lacks. New tables have it, so only an upgrade needs to ALTER any."""

    table: str
    name: str
    type: str

    @property
    def statement(self) -> str:
        return f"ALTER TABLE {{p}}{self.table} ADD COLUMN {self.name} {self.type}"


STEPS: tuple[tuple[str | NewColumn, ...], ...] = (
    (
        """
        CREATE TABLE {p}owner (
            owner_no {serial},
            agent_id {id} NOT NULL,
            user_id {id} NOT NULL,
            UNIQUE (agent_id, user_id)
        ){options}""",
        """
        CREATE TABLE {p}session (
            session_no {serial},
            owner_no {int} NOT NULL,
            session_id {id} NOT NULL,
            tree_no {int} NOT NULL UNIQUE,
            leaf {int},
            version {int} NOT NULL,
            window_tokens {int},
            overlays {int} NOT NULL DEFAULT 0,
            reclaimed {int} NOT NULL DEFAULT 0,
            indexed_seq {int} NOT NULL DEFAULT 0,
            indexed_place {int} NOT NULL DEFAULT 0,
            name {text},
            parent_session_id {id},
            model {text},
            source {text},
            input_tokens {int} NOT NULL DEFAULT 0,
            output_tokens {int} NOT NULL DEFAULT 0,
            estimated_cost {real} NOT NULL DEFAULT 0,
            end_reason {text},
            created_at {int} NOT NULL,
            updated_at {int} NOT NULL,
            UNIQUE (owner_no, session_id)
        ){roomy}""",
        """
        CREATE TABLE {p}tree (
            tree_no {serial},
            owner_no {int} NOT NULL,
            discarded {int} NOT NULL
        ){options}""",
        "CREATE INDEX {p}tree_discarded ON {p}tree (discarded, tree_no)",
        """
        CREATE TABLE {p}lane (
            lane_no {serial},
            tree_no {int} NOT NULL,
            origin {int},
            floor {int} NOT NULL,
            removed {int} NOT NULL
        ){options}""",
        "CREATE INDEX {p}lane_origin ON {p}lane (tree_no, origin)",
        """
        CREATE TABLE {p}message (
            place {int} NOT NULL PRIMARY KEY,
            tree_no {int} NOT NULL,
            seq {int} NOT NULL,
            id {id} NOT NULL,
            role {text} NOT NULL,
            tokens {int} NOT NULL,
            created_at {int} NOT NULL,
            body {text} NOT NULL
        ){options}""",
        "CREATE UNIQUE INDEX {p}message_id ON {p}message (tree_no, id)",
        "CREATE INDEX {p}message_seq ON {p}message (tree_no, seq, place)",
        """
        CREATE TABLE {p}words (
            place {int} NOT NULL PRIMARY KEY,
            {word_number}words {words} NOT NULL
        ){options}""",
        "{word_index}",
        """
        CREATE TABLE {p}unindexed (
            place {int} NOT NULL PRIMARY KEY,
            tree_no {int} NOT NULL
        ){options}""",
        "CREATE INDEX {p}unindexed_trees ON {p}unindexed (tree_no)",
        """
        CREATE TABLE {p}label (
            place {int} NOT NULL PRIMARY KEY,
            tree_no {int} NOT NULL,
            name {text} NOT NULL
        ){options}""",
        "CREATE INDEX {p}label_trees ON {p}label (tree_no)",
        """
        CREATE TABLE {p}change (
            session_no {int} NOT NULL,
            seq {int} NOT NULL,
            kind {id} NOT NULL,
            ids {text} NOT NULL,
            PRIMARY KEY (session_no, seq)
        ){options}""",
        """
        CREATE TABLE {p}overlay (
            overlay_no {serial},
            tree_no {int} NOT NULL,
            id {id} NOT NULL,
            seq {int} NOT NULL,
            low {int} NOT NULL,
            high {int} NOT NULL,
            tokens {int} NOT NULL,
            created_at {int} NOT NULL,
            summary {text} NOT NULL
        ){options}""",
        "CREATE UNIQUE INDEX {p}overlay_id ON {p}overlay (tree_no, id)",
        "CREATE INDEX {p}overlay_span ON {p}overlay (tree_no, low, high DESC, overlay_no DESC, seq, tokens)",
        """
        CREATE TABLE {p}reclaimed (
            reclaimed_no {serial},
            place {int} NOT NULL,
            call_id {text} NOT NULL,
            tree_no {int} NOT NULL,
            notice {text} NOT NULL
        ){options}""",
        "CREATE INDEX {p}reclaimed_places ON {p}reclaimed (place)",
        "CREATE INDEX {p}reclaimed_trees ON {p}reclaimed (tree_no)",
        """
        CREATE TABLE {p}skill (
            skill_no {serial},
            session_no {int} NOT NULL,
            label {id} NOT NULL,
            skill_key {text} NOT NULL
        ){options}""",
        "CREATE INDEX {p}skill_sessions ON {p}skill (session_no)",
        """
        CREATE TABLE {p}prompt (
            session_no {int} NOT NULL PRIMARY KEY,
            prompt {text} NOT NULL,
            tokens {int} NOT NULL,
            fingerprint {id} NOT NULL
        ){options}""",
        """
        CREATE TABLE {p}shelf (
            shelf_no {serial},
            owner_no {int} NOT NULL,
            session_no {int} NOT NULL,
            label {id} NOT NULL,
            UNIQUE (owner_no, session_no, label)
        ){options}""",
        "CREATE INDEX {p}shelf_sessions ON {p}shelf (session_no)",
        """
        CREATE TABLE {p}entry (
            entry_no {serial},
            shelf_no {int} NOT NULL,
            entry_key {key} NOT NULL,
            updated_at {int} NOT NULL,
            analyzer {id},
            description {text},
            content {text} NOT NULL,
            UNIQUE (shelf_no, entry_key)
        ){options}""",
        "CREATE INDEX {p}entry_analyzer ON {p}entry (shelf_no, analyzer)",
        """
        CREATE TABLE {p}entry_word (
            shelf_no {int} NOT NULL,
            word {id} NOT NULL,
            entry_no {int} NOT NULL,
            PRIMARY KEY (shelf_no, word, entry_no)
        ){options}""",
        """
        CREATE TABLE {p}lease (
            user_id {id} NOT NULL,
            session_id {id} NOT NULL,
            token {int} NOT NULL,
            holder {id},
            expires_at {int} NOT NULL,
            label {key},
            since {int},
            process {id},
            PRIMARY KEY (user_id, session_id)
        ){options}""",
        """
        CREATE TABLE {p}ticket (
            ticket_no {serial},
            user_id {id} NOT NULL,
            session_id {id} NOT NULL,
            holder {id} NOT NULL,
            expires_at {int} NOT NULL,
            process {id}
        ){options}""",
        "CREATE INDEX {p}ticket_slot ON {p}ticket (user_id, session_id, ticket_no)",
        """
        CREATE TABLE {p}done (
            op {id} NOT NULL PRIMARY KEY,
            at {int} NOT NULL
        ){options}""",
        "CREATE INDEX {p}done_at ON {p}done (at)",
    ),
    ("CREATE INDEX {p}owner_user ON {p}owner (user_id)",),
    (
        """
        CREATE TABLE {p}point (
            tree_no {int} NOT NULL,
            name {id} NOT NULL,
            place {int} NOT NULL,
            seq {int} NOT NULL,
            text {text},
            digest {id},
            PRIMARY KEY (tree_no, name, place)
        ){options}""",
        """
        CREATE TABLE {p}used (
            session_no {int} NOT NULL,
            usage_id {id} NOT NULL,
            model {text},
            input_tokens {int} NOT NULL,
            output_tokens {int} NOT NULL,
            cost {real} NOT NULL,
            at {int} NOT NULL,
            PRIMARY KEY (session_no, usage_id)
        ){options}""",
    ),
    (
        NewColumn("lease", "label", "{key}"),
        NewColumn("lease", "since", "{int}"),
        NewColumn("lease", "process", "{id}"),
        NewColumn("ticket", "process", "{id}"),
        """
        CREATE TABLE {p}sent (
            sent_no {serial},
            user_id {id} NOT NULL,
            session_id {id} NOT NULL,
            label {key},
            text {text} NOT NULL
        ){options}""",
        "CREATE INDEX {p}sent_slot ON {p}sent (user_id, session_id, sent_no)",
    ),
)

TABLES = (
    *("owner", "session", "tree", "lane", "message", "words", "unindexed", "label", "change", "overlay", "reclaimed"),
    *("skill", "prompt", "shelf", "entry", "entry_word", "lease", "ticket", "done", "point", "used", "sent"),
)

CREATE_STATES = """
    CREATE TABLE IF NOT EXISTS {states} (
        session_id {id} NOT NULL,
        state_key {id} NOT NULL,
        item_index INT NOT NULL DEFAULT 0,
        state_data {text} NOT NULL,
        created_at {time} DEFAULT CURRENT_TIMESTAMP,
        updated_at {time} DEFAULT CURRENT_TIMESTAMP{touched},
        version BIGINT NOT NULL DEFAULT 0,
        leafward_sum VARCHAR(100),
        PRIMARY KEY (session_id, state_key, item_index)
    ){options}"""

ADD_STATE_COLUMNS = {
    "version": "ALTER TABLE {states} ADD COLUMN version BIGINT NOT NULL DEFAULT 0",
    "leafward_sum": "ALTER TABLE {states} ADD COLUMN leafward_sum VARCHAR(100)",
}
"""What a table that Java made may lack, each with the statement that adds it. Java names its columns when it writes."""

CREATE_META = "CREATE TABLE IF NOT EXISTS {p}meta (name {id} NOT NULL PRIMARY KEY, value {text} NOT NULL){options}"

ADD_META = "INSERT INTO {p}meta (name, value) VALUES (?, ?)"

CHANGE_META = "UPDATE {p}meta SET value = ? WHERE name = ?"
