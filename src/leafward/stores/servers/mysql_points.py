"""Attached states for MySQL: the head of a session as one statement, and states for its leaf as a packet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from leafward.stores.leases import Fence
from leafward.stores.servers.heads import Asked, Found, Shape
from leafward.stores.servers.mysql_packets import HELD, HOLD, HOLD_LEASE, SCOPE, Answer, Packet, join, lease_of
from leafward.stores.servers.paths import LANES, Path, joined_lanes, origins
from leafward.stores.servers.positions import Attached, Digested
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids

AT_LEAF = "LEFT JOIN {p}message m ON m.place = s.leaf"


class Way(NamedTuple):
    """How a statement goes along the path to the message `m` of the session `s`."""

    joins: str
    is_whole: str
    """The condition that these are all lanes."""
    on_path: str
    """The condition that a row `p` is attached along it."""


def _way(joins: str, is_whole: str, above: Iterable[Any]) -> Way:
    ends = ("m.place", *above)
    on_path = " OR ".join(f"p.place BETWEEN {end} >> 32 << 32 AND {end}" for end in ends)
    return Way(joins, is_whole, f"({on_path} OR p.place = 0)")


# The server reads the rows of the joined lanes first, each by its key, and then takes what they hold for constants:
# what is attached along the path is one range of the index for each lane. Place 0 is the root.
_SHORT = _way(joined_lanes("m.place"), f"{origins()[-1]} IS NULL", origins()[:-1])


_SINGLE = _way("", "m.place >> 32 = %s", ())


def way(path: Path | None) -> Way:
    """Return how a statement goes along a path, whose lanes stand in the statement if it is long."""
    return _SHORT if path is None else _way("", f"m.place >> 32 = {path.lane}", path.above)


def in_force(column: str, way: Way) -> str:
    """Return a subquery for a column of the state in force at the message `m` of the session `s`; its name is given."""
    return f"""(
        SELECT p.{column} FROM {{p}}point p
        WHERE p.tree_no = s.tree_no AND p.name = %s AND {way.on_path} ORDER BY p.place DESC LIMIT 1)"""


_HEAD = f"""
    SELECT s.version, m.id, m.place{{found}}
    FROM {{p}}session s {{leaf}} {{joined}} {{known}} WHERE {SCOPE}"""
_NAMED_LEAF = "JOIN {p}message m ON m.tree_no = s.tree_no AND m.id = %s"
_KNOWN = "LEFT JOIN {{p}}message k{0} ON k{0}.tree_no = s.tree_no AND k{0}.id = %s"

# What the later statements need is looked up once. Where no row is found the variables stay as they were: `@fits` is
# set before, and without it no other one counts.
_LOOK = f"""
    SELECT s.session_no, s.tree_no, s.version, coalesce(s.leaf, 0), m.id{{compared}}
    INTO @fits, @tree, @version, @place, @leaf_id{{changed}}
    FROM {{p}}session s {AT_LEAF} {{joined}} WHERE s.session_no = @held AND {{is_whole}}{{conditions}};"""
_SEEN = "SELECT @fits, @version, @leaf_id;"
_ATTACH = """
    INSERT INTO {p}point (tree_no, name, place, seq, text, digest)
    SELECT @tree, %s, @place, @version + 1, %s, %s FROM DUAL WHERE @fits IS NOT NULL AND {changed}
    ON DUPLICATE KEY UPDATE seq = VALUES(seq), text = VALUES(text), digest = VALUES(digest);"""
_NOTE = """
    INSERT INTO {p}change (session_no, seq, kind, ids)
    SELECT @fits, @version + 1, 'state', CASE WHEN @leaf_id IS NULL THEN '[]' ELSE JSON_ARRAY(@leaf_id) END
    FROM DUAL WHERE @fits IS NOT NULL AND ({changed});"""
_NAME = "INSERT INTO {p}done (op, at) SELECT %s, %s FROM DUAL WHERE @fits IS NOT NULL AND ({changed});"
_MOVE = """
    UPDATE {p}session s SET s.version = s.version + 1, s.updated_at = %s WHERE s.session_no = @fits AND ({changed});"""


def compared(states: Sequence[Digested], way: Way) -> tuple[str, str, list[str | None]]:
    """Return expressions for whether each state changes, the variables for them, and their parameters."""
    return (
        f", NOT (%s <=> {in_force('digest', way)})" * len(states),
        "".join(f", {changes(number)}" for number in range(len(states))),
        [value for one in states for value in (one.digest, one.name)],
    )


def changes(number: int) -> str:
    """Return the variable for whether one of the states changes."""
    return f"@changes{number}"


def head_of(asked: Asked, path: Path | None) -> Packet:
    """Ask where a session stands."""
    leaf, names, ids = asked.parameters
    parameters = (*names, *leaf, *ids, *scope_ids(asked.question.scope))
    if path is None:
        return Packet(_short_head_text(asked.shape), parameters)
    if not path.above:
        return Packet(_single_head_text(asked.shape), (*parameters, path.lane))
    return Packet(f"{_head_text(asked.shape, way(path), [])} AND {way(path).is_whole}", parameters)


@lru_cache(maxsize=64)
def _short_head_text(shape: Shape) -> str:
    return _head_text(shape, _SHORT, origins())


@lru_cache(maxsize=64)
def _single_head_text(shape: Shape) -> str:
    return f"{_head_text(shape, _SINGLE, [])} AND {_SINGLE.is_whole}"


def _head_text(shape: Shape, way: Way, ends: Sequence[str]) -> str:
    found = [*ends, *[in_force("text", way)] * shape.names, *(f"k{number}.place" for number in range(shape.ids))]
    pieces = {
        "found": "".join(f", {one}" for one in found),
        "leaf": _NAMED_LEAF if shape.has_leaf else AT_LEAF,
        "joined": way.joins,
        "known": " ".join(_KNOWN.format(number) for number in range(shape.ids)),
    }
    text = _HEAD
    for name, piece in pieces.items():
        text = text.replace(f"{{{name}}}", piece)
    return text


def found_head(asked: Asked, path: Path | None, rows: Sequence[Any]) -> Found | None:
    """Return where a session stands, by what was found; `None` when not all lanes were looked at."""
    if not rows:
        return asked.nothing if path is None else None
    version, leaf_id, place, *found = rows[0]
    ends = [place, *(found[:LANES] if path is None else (*path.above, None))]
    found = found[LANES:] if path is None else found
    texts = dict(zip(asked.names, found, strict=False))
    return asked.head(version, leaf_id, ends, texts, found[asked.shape.names :])


def at_the_leaf(
    command: Append, states: Sequence[Digested], fence: Fence | None, at: int, name: str, path: Path | None
) -> Packet:
    """Attach states to the leaf if the session is there and the leaf is the parent."""
    lease = lease_of(command, fence)
    parent = [command.parent] if isinstance(command.parent, str) else []
    expected = [] if command.expected_version is None else [command.expected_version]
    along = way(path)
    expressions, variables, values = compared(states, along)
    conditions = (
        (" AND m.id = %s" if parent else "")
        + (" AND s.version = %s" if expected else "")
        + (f" AND {HELD}" if fence else "")
    )
    look = _LOOK.replace("{compared}", expressions).replace("{changed}", variables)
    look = look.replace("{joined}", along.joins).replace("{is_whole}", along.is_whole)
    any_changes = " OR ".join(map(changes, range(len(states))))
    return join(
        [
            Packet(HOLD_LEASE if fence else "", lease),
            Packet(HOLD.replace("SET ", "SET @fits = NULL, "), scope_ids(command.scope)),
            Packet(look.replace("{conditions}", conditions), (*values, *parent, *expected, *lease)),
            Packet(_SEEN),
            *(Packet(_ATTACH.replace("{changed}", changes(number)), one) for number, one in enumerate(states)),
            Packet(_NOTE.replace("{changed}", any_changes)),
            Packet(_NAME.replace("{changed}", any_changes), (name, at)),
            Packet(_MOVE.replace("{changed}", any_changes), (at,)),
        ]
    )


def was_attached(states: Sequence[Digested], fence: Fence | None, answers: Sequence[Answer]) -> Attached | None:
    """Return what attaching states has come to, by what was answered; `None` when the session did not fit."""
    _, _, seen, *wrote = answers[0 if fence is None else 1 :]
    ((session_no, version, leaf_id),) = seen.rows
    if session_no is None:
        return None
    changed = [one.state for one, answer in zip(states, wrote, strict=False) if answer.wrote]
    return Attached(session_no, version + bool(changed), leaf_id, states, changed)
