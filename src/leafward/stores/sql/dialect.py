"""What databases spell differently: the statements are written for SQLite, and rendered here for the servers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple

from leafward.stores.sql import lease_statements as of_leases
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import STORE_CLOCK

_HELD = frozenset({sql.GET_SESSION, of_leases.GET_LEASE, sql.HOLD_OWNER})
"""Statements that hold the row they read, in a transaction that writes."""
_DECODED_AT_ONCE = frozenset({sql.READ_TRUNK, sql.READ_RANGE})
"""Statements whose bodies may as well be texts, which servers give faster."""
_RETURNING = re.compile(r"\s+RETURNING \w+$")
_ON_CONFLICT = re.compile(r"ON CONFLICT \([\w, ]+\) DO UPDATE SET")
_EXCLUDED = re.compile(r"excluded\.(\w+)")


class Rendered(NamedTuple):
    """A statement as a server takes it."""

    text: str
    gives_key: bool
    """Whether the answer is the number that the server gave the new row."""
    verbatim: bool = False
    """Whether texts are kept as they are, because others read them too."""


class Wanted(NamedTuple):
    """Asks the index for texts that have one word of each group; a parameter of `{match}`."""

    groups: list[list[str]]


class WordList(NamedTuple):
    """The words of a text; a parameter of `{word_list}`."""

    words: list[str]


class StatesTable(NamedTuple):
    """The name of the table of states; without a schema it is where the connection is."""

    table: str = "agentscope_sessions"
    schema: str | None = None


STATES = StatesTable()
STATES_IN_A_SCHEMA = StatesTable(schema="agentscope")


class Dialect(ABC):
    """The spellings that PostgreSQL and MySQL have in common, and those in which they differ."""

    clock: str
    share: str
    number: str
    as_bytes: str
    """How the text of a column is had as bytes; `{}` is the column."""
    bytewise: frozenset[str]
    """Collations in which two ids are the same only if all their bytes are, where others are not."""

    def __init__(self, prefix: str, types: Mapping[str, str], states: StatesTable) -> None:
        self.states = states
        self._prefix = prefix
        self._types = types
        self._rendered: dict[tuple[str, bool], Rendered] = {}

    def render(self, statement: str, *, writing: bool) -> Rendered:
        """Return a statement as the server takes it; rows that decide what is written are held."""
        try:
            return self._rendered[statement, writing]
        except KeyError:
            return self._rendered.setdefault((statement, writing), self._render(statement, writing))

    def _render(self, statement: str, writing: bool) -> Rendered:
        text = self.clock if statement is STORE_CLOCK else statement
        if writing and statement in _HELD:
            text += " FOR UPDATE"
        elif writing and statement is of_leases.CHECK_LEASE:
            text += f" {self.share}"
        as_it_is = statement in _DECODED_AT_ONCE
        for column in ("body", "m.body"):
            text = text.replace(f"CAST({column} AS BLOB)", column if as_it_is else self.as_bytes.format(column))
        text = text.replace("CAST(? AS INTEGER)", f"CAST(? AS {self.number})")
        return self._finish(self.named(text))._replace(verbatim="{states}" in statement)

    @abstractmethod
    def _finish(self, text: str) -> Rendered:
        """Spell what is left to be spelled."""

    def named(self, text: str) -> str:
        """Fill in the table prefix and the names of types."""
        for name, spelling in self._types.items():
            text = text.replace("{" + name + "}", spelling)
        return text.replace("{p}", self._prefix)

    def encode(self, parameters: Iterable[Any]) -> tuple[Any, ...]:
        """Return parameters as the server can keep them."""
        return tuple(map(self._encode, parameters))

    def _encode(self, value: Any) -> Any:
        match value:
            case Wanted(groups):
                return self.wanted(groups)
            case WordList(words):
                # A server cuts it in a fraction of the time that a driver takes for as many words.
                return " ".join(words)
            case _:
                return value

    @abstractmethod
    def wanted(self, groups: list[list[str]]) -> str:
        """Return in the index's language that a text has one word of each group."""

    def decode(self, rows: Iterable[Any]) -> list[Any]:
        """Return rows as they were before they were encoded."""
        return [tuple(row) for row in rows]


class Postgres(Dialect):
    """PostgreSQL; its texts hold no NUL, which is written as two characters that stand for nothing else."""

    clock = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    share = "FOR SHARE"
    number = "BIGINT"
    as_bytes = "convert_to({}, 'UTF8')"
    bytewise = frozenset()

    _MARK = "\ue000"
    _BYTES_MARK = _MARK.encode()

    def __init__(self, prefix: str, states: StatesTable = STATES_IN_A_SCHEMA) -> None:
        super().__init__(
            prefix,
            {
                "serial": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
                "int": "BIGINT",
                "real": "DOUBLE PRECISION",
                "id": 'TEXT COLLATE "C"',
                "key": 'TEXT COLLATE "C"',
                "text": 'TEXT COLLATE "C"',
                "word_number": "",
                "words": "TSVECTOR",
                "word_index": "CREATE INDEX {p}words_found ON {p}words USING gin (words)",
                "word_list": "array_to_tsvector(string_to_array(?, ' '))",
                "match": "w.words @@ CAST(CAST(? AS TEXT) AS TSQUERY)",
                "options": "",
                # Every write updates the session's row: with room beside it, and no index on what changes, in place.
                "roomy": " WITH (fillfactor = 50)",
                "time": "TIMESTAMP",
                "touched": "",
                "touch": ", updated_at = CURRENT_TIMESTAMP",
                "hold": " FOR UPDATE",
                "share": self.share,
                "next_version": "GREATEST(version, ?) + 1",
                "first_version": "1",
                "one_row": "(VALUES (1)) AS one_row",
                "checksum": "encode(sha256(convert_to(CAST(state_data AS TEXT), 'UTF8')), 'hex')",
                "name_lock": "pg_advisory_xact_lock(hashtextextended(?, 0))",
                "bytewise": ' COLLATE "C"',
                "schema": "current_schema()" if states.schema is None else f"'{states.schema}'",
                "states": ".".join(f'"{name}"' for name in (states.schema, states.table) if name is not None),
            },
            states,
        )

    def _finish(self, text: str) -> Rendered:
        numbers = count(1)
        return Rendered(re.sub(r"\?", lambda _: f"${next(numbers)}", text), False)

    def _encode(self, value: Any) -> Any:
        return self.encode_text(value) if isinstance(value, str) else super()._encode(value)

    def wanted(self, groups: list[list[str]]) -> str:
        return " & ".join(f"({' | '.join(group)})" for group in groups)

    def encode_text(self, text: str) -> str:
        if "\0" in text or self._MARK in text:
            return text.replace(self._MARK, self._MARK + "1").replace("\0", self._MARK + "0")
        return text

    def decode(self, rows: Iterable[Any]) -> list[Any]:
        found = list(rows)
        mark, bytes_mark = self._MARK, self._BYTES_MARK
        for row in found:
            for value in row:
                # Every value that is read comes by here, and hardly ever one is encoded.
                if (type(value) is str and mark in value) or (type(value) is bytes and bytes_mark in value):
                    return [tuple(self._decode_text(value) for value in row) for row in found]
        return found

    def _decode_text(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self._decode_text(value.decode()).encode()
        if isinstance(value, str):
            return value.replace(self._MARK + "0", "\0").replace(self._MARK + "1", self._MARK)
        return value


class MySQL(Dialect):
    """What MySQL 8 and MariaDB have in common; they differ in the name of the collation that compares bytes."""

    clock = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
    share = "LOCK IN SHARE MODE"
    number = "SIGNED"
    as_bytes = "CAST({} AS BINARY)"
    bytewise = frozenset({"utf8mb4_nopad_bin", "utf8mb4_0900_bin"})

    def __init__(self, prefix: str, states: StatesTable = STATES, *, collation: str) -> None:
        text = f"CHARACTER SET utf8mb4 COLLATE {collation}"
        types = {
            "serial": "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            "int": "BIGINT",
            "real": "DOUBLE",
            "id": f"VARCHAR(255) {text}",
            "key": f"VARCHAR(700) {text}",
            "text": f"LONGTEXT {text}",
            # After a crash InnoDB gives its own numbers again, also those it keeps as deleted: such rows are not found.
            "word_number": "FTS_DOC_ID BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, "
            "UNIQUE KEY FTS_DOC_ID_INDEX (FTS_DOC_ID), ",
            "words": f"LONGTEXT {text}",
            "word_index": "CREATE FULLTEXT INDEX {p}words_found ON {p}words (words)",
            "word_list": "?",
            "match": "MATCH (w.words) AGAINST (? IN BOOLEAN MODE)",
            "options": f" ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={collation}",
            "time": "DATETIME",
            "touched": " ON UPDATE CURRENT_TIMESTAMP",
            "touch": "",
            "hold": " FOR UPDATE",
            "share": self.share,
            # Which is then told as the key of a new row would be.
            "next_version": "LAST_INSERT_ID(GREATEST(version, ?) + 1)",
            "first_version": "LAST_INSERT_ID(1)",
            "one_row": "DUAL",
            "checksum": "SHA2(CONVERT(state_data USING utf8mb4), 256)",
            "name_lock": "LENGTH(?)",
            "bytewise": "",
            "schema": "DATABASE()",
            "states": f"`{states.table}`",
        }
        super().__init__(prefix, {**types, "roomy": types["options"]}, states)

    def _finish(self, text: str) -> Rendered:
        text, keys = _RETURNING.subn("", text)
        if _ON_CONFLICT.search(text):
            text = _EXCLUDED.sub(r"VALUES(\1)", _ON_CONFLICT.sub("ON DUPLICATE KEY UPDATE", text))
        return Rendered(text.replace("?", "%s"), bool(keys))

    def wanted(self, groups: list[list[str]]) -> str:
        return " ".join(f"+{group[0]}" if len(group) == 1 else f"+({' '.join(group)})" for group in groups)
