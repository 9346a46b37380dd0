"""Attached states as single statements for PostgreSQL: the head of a session, and states for its leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count, islice
from typing import Any, NamedTuple

from leafward.stores.contracts import Head
from leafward.stores.leases import Fence
from leafward.stores.servers.heads import FEW_LANES, LANES, Asked, Shape, joined_lanes, origins
from leafward.stores.servers.positions import Attached, Digested, digested
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.operations import scope_ids
from leafward.stores.sql.points import HeadOf, StatesOf


def ends_of(lanes: int) -> str:
    return "".join(f", {origin} AS end{number}" for number, origin in enumerate(origins(lanes), 1))


_SCOPE = "s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = $1 AND user_id = $2) AND s.session_id = $3"

# Each lane is a range of one index, and so is the root, place 0. Places rise along a path.
_IN_FORCE = """(
    SELECT f.{column} FROM (VALUES {ends}) AS e (place) CROSS JOIN LATERAL (
        SELECT p.place, p.{column} FROM {p}point p
        WHERE p.tree_no = {tree} AND p.name = {name} AND p.place BETWEEN e.place >> 32 << 32 AND e.place
        ORDER BY p.place DESC LIMIT 1
    ) f ORDER BY f.place DESC LIMIT 1)"""

# A row for each name, so that one plan finds all states. What is the same in all of them is found once.
_HEAD = f"""
    WITH head AS {{once}} (
        SELECT s.version, s.tree_no, m.id, m.place AS end0{{ends}}{{known}}
        FROM {{p}}session s {{leaf}} {{lanes}} WHERE {_SCOPE}
    )
    SELECT head.version, head.id, {{columns}}{{found}} FROM head{{names}}"""
_AT_LEAF = "LEFT JOIN {p}message m ON m.place = s.leaf"
_AT_MESSAGE = "JOIN {{p}}message m ON m.tree_no = s.tree_no AND m.id = {}"
_PLACE = "(SELECT k.place FROM {{p}}message k WHERE k.tree_no = s.tree_no AND k.id = {})"

ENDS = ends_of(LANES)
"""The ends of a path in the lanes above its leaf's, from what `JOINED_LANES` joins, as columns `end1`, `end2`, …"""
JOINED_LANES = joined_lanes(LANES, "s.leaf")
ARE_ALL_LANES = f"{origins(LANES)[-1]} IS NULL"

# As it was seen first, like an append: when another writer came between, nothing is written.
_ATTACH = f"""
    WITH {{held}}seen AS (
        SELECT s.session_no, s.tree_no, s.version, s.leaf, m.id{ENDS}
        FROM {{p}}session s {_AT_LEAF} {JOINED_LANES} WHERE {_SCOPE} AND {ARE_ALL_LANES} {{conditions}}
    ), changed AS (
        SELECT g.name, g.text, g.digest FROM seen CROSS JOIN ({{states}}) AS g (name, text, digest)
        WHERE g.digest IS DISTINCT FROM {{in_force}}
    ), moved AS (
        UPDATE {{p}}session s SET version = s.version + 1, updated_at = $4 FROM seen
        WHERE s.session_no = seen.session_no AND s.version = seen.version AND s.tree_no = seen.tree_no
            AND EXISTS (SELECT 1 FROM changed)
        RETURNING s.session_no, s.tree_no, s.version
    ), kept AS (
        INSERT INTO {{p}}point (tree_no, name, place, seq, text, digest)
        SELECT moved.tree_no, changed.name, coalesce(seen.leaf, 0), moved.version, changed.text, changed.digest
        FROM moved CROSS JOIN seen CROSS JOIN changed
        ON CONFLICT (tree_no, name, place) DO UPDATE SET
            seq = excluded.seq, text = excluded.text, digest = excluded.digest
    ), noted AS (
        INSERT INTO {{p}}change (session_no, seq, kind, ids)
        SELECT moved.session_no, moved.version, 'state', coalesce('[' || to_json(seen.id)::text || ']', '[]')
        FROM moved CROSS JOIN seen
    ), done AS (
        INSERT INTO {{p}}done (op, at) SELECT $5, $4 FROM moved
    )
    SELECT seen.session_no, seen.version, moved.version, seen.id, ARRAY(SELECT name FROM changed)
    FROM seen LEFT JOIN moved ON true"""


class _Shape(NamedTuple):
    """What an append without messages has."""

    fenced: bool
    has_parent: bool
    has_version: bool
    states: int


class PostgresPoints:
    """Reads and attaches states on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._dialect = dialect
        self._encode = dialect.encode_text
        self._head_text = lru_cache(maxsize=64)(self._make_head)
        self._attach_text = lru_cache(maxsize=64)(self._make_attach)

    async def head(self, connection: Any, question: HeadOf | StatesOf) -> Head | None:
        """Return where a session stands; `None` when one statement does not tell."""
        asked = Asked.of(question)
        ids = [*map(self._encode, chain(scope_ids(question.scope), *asked.parameters))]
        for lanes in (FEW_LANES, LANES):
            rows = self._dialect.decode(await connection.fetch(self._head_text(asked.shape, lanes), *ids))
            if not rows:
                return asked.nothing
            texts: dict[str, str | None] = {row[-2]: row[-1] for row in rows} if asked.names else {}
            version, leaf_id, *found = rows[0]
            ends, places = found[: lanes + 1], found[lanes + 1 :]
            head = asked.head(version, leaf_id, ends, texts, places)
            if head is not None:
                return head
        return None

    async def attach(
        self, connection: Any, command: Append, fence: Fence | None, at: int, name: str
    ) -> Attached | None:
        """Attach states to the leaf of a session, wherever that is."""
        encode, states = self._encode, digested(command.state)
        parent = command.parent if isinstance(command.parent, str) else None
        expected = command.expected_version
        rows = await connection.fetch(
            self._attach_text(_Shape(fence is not None, parent is not None, expected is not None, len(states))),
            *map(encode, scope_ids(command.scope)),
            at,
            name,
            *(() if fence is None else (fence.token,)),
            *(() if parent is None else (encode(parent),)),
            *(() if expected is None else (expected,)),
            *values_of(states, encode),
        )
        if not rows:
            return None
        ((session_no, seen, moved, leaf_id, changed),) = self._dialect.decode(rows)
        if changed and moved is None:
            return None
        written = [one.state for one in states if encode(one.name) in changed]
        return Attached(session_no, seen if moved is None else moved, leaf_id, states, written)

    def _make_head(self, shape: Shape, lanes: int) -> str:
        numbers = count(4)
        leaf = _AT_MESSAGE.format(f"${next(numbers)}") if shape.has_leaf else _AT_LEAF
        names = ", ".join(f"(${next(numbers)}::text)" for _ in range(shape.names))
        places = [_PLACE.format(f"${next(numbers)}") for _ in range(shape.ids)]
        ends = [f"head.end{number}" for number in range(lanes + 1)]
        before = in_force("text", "head.tree_no", ends[:-1], "n.name")
        pieces = {
            "once": "MATERIALIZED" if places else "",
            "ends": ends_of(lanes),
            "known": "".join(f", {place} AS known{number}" for number, place in enumerate(places)),
            "leaf": leaf,
            "lanes": joined_lanes(lanes, "m.place"),
            "columns": ", ".join([*ends, *(f"head.known{number}" for number in range(len(places)))]),
            "found": f", n.name, {before}" if names else "",
            "names": f" CROSS JOIN (VALUES {names}) AS n (name)" if names else "",
        }
        text = _HEAD
        for name, piece in pieces.items():
            text = text.replace(f"{{{name}}}", piece)
        return self._dialect.named(text)

    def _make_attach(self, shape: _Shape) -> str:
        numbers = count(6)
        lease, and_held = held("$2", "$3", f"${next(numbers)}") if shape.fenced else ("", "")
        conditions = [and_held]
        if shape.has_parent:
            conditions.append(f"AND m.id = ${next(numbers)}")
        if shape.has_version:
            conditions.append(f"AND s.version = ${next(numbers)}::bigint")
        text = _ATTACH.replace("{held}", lease).replace("{conditions}", " ".join(conditions))
        text = text.replace("{states}", rows_of(shape.states, numbers))
        before = in_force("digest", "seen.tree_no", ENDS_SEEN, "g.name")
        return self._dialect.named(text.replace("{in_force}", before))


ENDS_SEEN = ["seen.leaf", *(f"seen.end{number}" for number in range(1, LANES))]
"""The ends of a path in the lanes that are looked at, as `in_force` takes them."""


def in_force(column: str, tree_no: str, ends: Sequence[str], name: str) -> str:
    """Return a subquery for a column of the state of that name in force at a leaf, all given as expressions.

    `ends` are the last places of the leaf's path in its lanes, its own first.
    """
    text = _IN_FORCE.replace("{column}", column).replace("{tree}", tree_no).replace("{name}", name)
    return text.replace("{ends}", ", ".join(f"({end})" for end in (*ends, "0::bigint")))


def rows_of(states: int, numbers: Iterator[int]) -> str:
    """Return so many states as rows of parameters: the name, the text, the digest."""
    row = "(${}::text, ${}::text, ${}::text)"
    return "VALUES " + ", ".join(row.format(*islice(numbers, 3)) for _ in range(states))


def values_of(states: Sequence[Digested], encode: Callable[[str], str]) -> list[str | None]:
    """Return the values of such rows."""
    values: list[str | None] = []
    for name, text, digest in states:
        values += (encode(name), None if text is None else encode(text), digest)
    return values


def held(user_id: str, session_id: str, token: str) -> tuple[str, str]:
    """Return what a statement behind a lease begins with, and the condition that the lease is held."""
    return (
        f"""held AS (
        SELECT 1 FROM {{p}}lease
        WHERE user_id = {user_id} AND session_id = {session_id} AND token = {token} AND holder IS NOT NULL FOR SHARE
    ), """,
        "AND EXISTS (SELECT 1 FROM held)",
    )
