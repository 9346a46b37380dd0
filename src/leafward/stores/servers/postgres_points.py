"""Attached states as single statements for PostgreSQL: the head of a session, and states for its leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count, islice
from typing import Any, NamedTuple

from leafward.stores.leases import Fence
from leafward.stores.servers.heads import Asked, Found, Shape
from leafward.stores.servers.paths import LANES, Path, joined_lanes, origins
from leafward.stores.servers.positions import Attached, Digested, digested
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.operations import scope_ids

_SCOPE = "s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = $1 AND user_id = $2) AND s.session_id = $3"

# Each lane is a range of one index, and so is the root, place 0. Places rise along a path.
_IN_FORCE = """(
    SELECT f.{column} FROM ({ends}) AS e (place) CROSS JOIN LATERAL (
        SELECT p.place, p.{column} FROM {p}point p
        WHERE p.tree_no = {tree} AND p.name = {name} AND p.place BETWEEN e.place >> 32 << 32 AND e.place
        ORDER BY p.place DESC LIMIT 1
    ) f ORDER BY f.place DESC LIMIT 1)"""

# A row for each name, so that one plan finds all states. What is the same in all of them is found once.
_HEAD = f"""
    WITH head AS {{once}} (
        SELECT s.version, s.tree_no, m.id, m.place AS end0{{ends}}{{known}}
        FROM {{p}}session s {{leaf}} {{lanes}} WHERE {_SCOPE} {{in_lane}}
    )
    SELECT head.version, head.id, {{columns}}{{found}} FROM head{{names}}"""
_AT_LEAF = "LEFT JOIN {p}message m ON m.place = s.leaf"
_AT_MESSAGE = "JOIN {{p}}message m ON m.tree_no = s.tree_no AND m.id = {}"
_PLACE = "(SELECT k.place FROM {{p}}message k WHERE k.tree_no = s.tree_no AND k.id = {})"

ENDS = "".join(f", {origin} AS end{number}" for number, origin in enumerate(origins(), 1))
"""The ends of a path in the lanes above its leaf's, from what is joined, as columns `end1`, `end2`, …"""
JOINED_LANES = joined_lanes("s.leaf")

# As it was seen first, like an append: when another writer came between, nothing is written.
_ATTACH = f"""
    WITH {{held}}seen AS (
        SELECT s.session_no, s.tree_no, s.version, s.leaf, m.id{{ends}}
        FROM {{p}}session s {_AT_LEAF} {{lanes}} WHERE {_SCOPE} {{conditions}}
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
    is_long: bool


class PostgresPoints:
    """Reads and attaches states on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._dialect = dialect
        self._encode = dialect.encode_text
        self._head_text = lru_cache(maxsize=64)(self._make_head)
        self._attach_text = lru_cache(maxsize=64)(self._make_attach)

    async def head(self, connection: Any, asked: Asked, path: Path | None) -> Found | None:
        """Return where a session stands; `None` when one statement does not tell."""
        ids = map(self._encode, chain(scope_ids(asked.question.scope), *asked.parameters))
        text = self._head_text(asked.shape, path is not None, path is not None and bool(path.above))
        rows = self._dialect.decode(await connection.fetch(text, *ids, *values_of_path(path)))
        if not rows:
            return asked.nothing if path is None else None
        texts: dict[str, str | None] = {row[-2]: row[-1] for row in rows} if asked.names else {}
        version, leaf_id, *found = rows[0]
        ends, places = found[: LANES + 1], found[LANES + 1 :]
        if path is not None:
            ends, places = [found[0], *path.above, None], found[1:]
        return asked.head(version, leaf_id, ends, texts, places)

    async def attach(
        self, connection: Any, command: Append, fence: Fence | None, at: int, name: str, path: Path | None
    ) -> Attached | None:
        """Attach states to the leaf of a session, wherever that is."""
        encode, states = self._encode, digested(command.state)
        parent = command.parent if isinstance(command.parent, str) else None
        expected = command.expected_version
        shape = _Shape(fence is not None, parent is not None, expected is not None, len(states), path is not None)
        rows = await connection.fetch(
            self._attach_text(shape),
            *map(encode, scope_ids(command.scope)),
            at,
            name,
            *(() if fence is None else (fence.token,)),
            *(() if parent is None else (encode(parent),)),
            *(() if expected is None else (expected,)),
            *values_of(states, encode),
            *values_of_path(path),
        )
        if not rows:
            return None
        ((session_no, seen, moved, leaf_id, changed),) = self._dialect.decode(rows)
        if changed and moved is None:
            return None
        written = [one.state for one in states if encode(one.name) in changed]
        return Attached(session_no, seen if moved is None else moved, leaf_id, states, written)

    def _make_head(self, shape: Shape, is_given: bool, is_long: bool) -> str:
        numbers = count(4)
        leaf = _AT_MESSAGE.format(f"${next(numbers)}") if shape.has_leaf else _AT_LEAF
        names = ", ".join(f"(${next(numbers)}::text)" for _ in range(shape.names))
        places = [_PLACE.format(f"${next(numbers)}") for _ in range(shape.ids)]
        ends = [f"head.end{number}" for number in range(1 if is_given else LANES + 1)]
        in_lane = lane_given("m.place", numbers) if is_given else ""
        along = values(ends if is_given else ends[:-1])
        if is_long:
            along = f"SELECT head.end0 UNION ALL {places_given(numbers)}"
        before = in_force("text", "head.tree_no", along, "n.name")
        pieces = {
            "once": "MATERIALIZED" if places else "",
            "ends": "" if is_given else ENDS,
            "known": "".join(f", {place} AS known{number}" for number, place in enumerate(places)),
            "leaf": leaf,
            "lanes": "" if is_given else joined_lanes("m.place"),
            "in_lane": in_lane,
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
        text = _ATTACH.replace("{held}", lease).replace("{states}", rows_of(shape.states, numbers))
        seen = path_seen(numbers, leaf="s.leaf", beyond=origins()[-1], is_long=shape.is_long)
        conditions.append(seen.is_whole)
        text = text.replace("{conditions}", " ".join(conditions))
        text = text.replace("{ends}", seen.ends).replace("{lanes}", seen.lanes)
        before = in_force("digest", "seen.tree_no", seen.places, "g.name")
        return self._dialect.named(text.replace("{in_force}", before))


class PathSeen(NamedTuple):
    """How a statement goes along the path to the leaf of the session that it has as `seen`."""

    ends: str
    """The columns that `seen` needs for it."""
    lanes: str
    """The joins."""
    is_whole: str
    """The condition that these are all lanes."""
    places: str
    """The query of the last places of the path in its lanes, as `in_force` takes it."""


def path_seen(
    numbers: Iterator[int], *, is_long: bool, leaf: str = "seen.leaf", beyond: str = f"seen.end{LANES}"
) -> PathSeen:
    """Return how a statement goes along a path, which it is told if it is long.

    `leaf`, and what is `beyond` the lanes that are joined, are names that its condition can use.
    """
    if is_long:
        in_lane = lane_given(leaf, numbers)
        return PathSeen("", "", in_lane, f"SELECT seen.leaf UNION ALL {places_given(numbers)}")
    places = values(["seen.leaf", *(f"seen.end{number}" for number in range(1, LANES))])
    return PathSeen(ENDS, JOINED_LANES, f"AND {beyond} IS NULL", places)


def lane_given(leaf: str, numbers: Iterator[int]) -> str:
    """Return the condition that a leaf is in the lane of a path that is given."""
    return f"AND {leaf} >> 32 = ${next(numbers)}::bigint"


def places_given(numbers: Iterator[int]) -> str:
    """Return the query of the last places of a path that is given, in the lanes above its leaf's, and of the root."""
    return f"SELECT unnest(${next(numbers)}::bigint[])"


def values_of_path(path: Path | None) -> tuple[Any, ...]:
    """Return the values for a path that is given; without lanes above its leaf's, their places are not asked for."""
    return () if path is None else (path.lane, [*path.above, 0]) if path.above else (path.lane,)


def values(places: Sequence[str]) -> str:
    """Return a query of places, and of the root."""
    return "VALUES " + ", ".join(f"({place})" for place in (*places, "0::bigint"))


def in_force(column: str, tree_no: str, ends: str, name: str) -> str:
    """Return a subquery for a column of the state of that name in force at a leaf, all given as expressions.

    `ends` is a query of the last places of the leaf's path in its lanes, and of the root.
    """
    text = _IN_FORCE.replace("{column}", column).replace("{tree}", tree_no).replace("{name}", name)
    return text.replace("{ends}", ends)


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
