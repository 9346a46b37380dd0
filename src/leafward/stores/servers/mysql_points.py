"""Attached states for MySQL: the head of a session as one statement, and states for its leaf as a packet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from leafward.stores.contracts import NO_HEAD, Head
from leafward.stores.leases import Fence
from leafward.stores.servers.heads import Asked, Shape
from leafward.stores.servers.mysql_packets import HELD, HOLD, HOLD_LEASE, SCOPE, Answer, Packet, join, lease_of
from leafward.stores.servers.positions import Attached, Digested
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids

LANES = 8
"""How many lanes of a path one statement looks at; where there are more, the operation has to."""
FEW_LANES = 4
"""How many a statement for the head looks at first: each lane more costs time, and few sessions have more."""

AT_LEAF = "LEFT JOIN {p}message m ON m.place = s.leaf"


class Lanes(NamedTuple):
    """Some lanes of a path as pieces of a statement about the session `s` and the message `m` that the path ends at.

    The server reads their rows first, each by its key, and then takes what they hold for constants: what is attached
    along the path is one range of the index for each lane.
    """

    origins: tuple[str, ...]
    joined: str
    are_all: str
    """The condition that the path has no other lanes."""
    in_force: str
    """A column of the state of a name in force at the message, as far as these lanes tell; place 0 is the root."""

    @classmethod
    def first(cls, count: int) -> Lanes:
        origins = tuple(f"l{number}.origin" for number in range(1, count + 1))
        joins = (
            f"LEFT JOIN {{p}}lane l{number} ON l{number}.lane_no = {below} >> 32"
            for number, below in enumerate(("m.place", *origins[:-1]), 1)
        )
        on_path = (f"p.place BETWEEN {end} >> 32 << 32 AND {end}" for end in ("m.place", *origins[:-1]))
        return cls(
            origins,
            " ".join(joins),
            f"{origins[-1]} IS NULL",
            f"""(
                SELECT p.{{column}} FROM {{p}}point p
                WHERE p.tree_no = s.tree_no AND p.name = %s AND ({" OR ".join(on_path)} OR p.place = 0)
                ORDER BY p.place DESC LIMIT 1)""",
        )

    def column_in_force(self, column: str) -> str:
        return self.in_force.replace("{column}", column)


PATH = Lanes.first(LANES)
_DIGEST = PATH.column_in_force("digest")

_HEAD = f"""
    SELECT s.version, m.id, m.place, {{origins}}{{found}}
    FROM {{p}}session s {{leaf}} {{joined}} {{known}} WHERE {SCOPE}"""
_NAMED_LEAF = "JOIN {p}message m ON m.tree_no = s.tree_no AND m.id = %s"
_KNOWN = "LEFT JOIN {{p}}message k{0} ON k{0}.tree_no = s.tree_no AND k{0}.id = %s"

# What the later statements need is looked up once. Where no row is found the variables stay as they were: `@fits` is
# set before, and without it no other one counts.
_LOOK = f"""
    SELECT s.session_no, s.tree_no, s.version, coalesce(s.leaf, 0), m.id{{compared}}
    INTO @fits, @tree, @version, @place, @leaf_id{{changed}}
    FROM {{p}}session s {AT_LEAF} {PATH.joined} WHERE s.session_no = @held AND {PATH.are_all}{{conditions}};"""
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


def compared(states: Sequence[Digested]) -> tuple[str, str, list[str | None]]:
    """Return expressions for whether each state changes, the variables for them, and their parameters."""
    return (
        f", NOT (%s <=> {_DIGEST})" * len(states),
        "".join(f", {changes(number)}" for number in range(len(states))),
        [value for one in states for value in (one.digest, one.name)],
    )


def changes(number: int) -> str:
    """Return the variable for whether one of the states changes."""
    return f"@changes{number}"


def head_of(asked: Asked, lanes: int) -> Packet:
    """Ask where a session stands, by some lanes of its path."""
    leaf, names, ids = asked.parameters
    return Packet(_head_text(asked.shape, lanes), (*names, *leaf, *ids, *scope_ids(asked.question.scope)))


@lru_cache(maxsize=64)
def _head_text(shape: Shape, lanes: int) -> str:
    path = Lanes.first(lanes)
    found = [path.column_in_force("text")] * shape.names + [f"k{number}.place" for number in range(shape.ids)]
    pieces = {
        "origins": ", ".join(path.origins),
        "found": "".join(f", {one}" for one in found),
        "leaf": _NAMED_LEAF if shape.has_leaf else AT_LEAF,
        "joined": path.joined,
        "known": " ".join(_KNOWN.format(number) for number in range(shape.ids)),
    }
    text = _HEAD
    for name, piece in pieces.items():
        text = text.replace(f"{{{name}}}", piece)
    return text


def found_head(asked: Asked, lanes: int, rows: Sequence[Any]) -> Head | None:
    """Return where a session stands, by the rows that were found; `None` when not all lanes were looked at."""
    if not rows:
        return NO_HEAD if asked.question.leaf_id is None else None
    version, leaf_id, *found = rows[0]
    ends, found = found[: lanes + 1], found[lanes + 1 :]
    names = asked.shape.names
    if ends[-1] is not None and (None in found[:names] or asked.ids):
        return None
    texts = dict(zip(asked.names, found, strict=False))
    return asked.head(version, leaf_id, texts, found[names:], [end for end in ends if end is not None])


def at_the_leaf(command: Append, states: Sequence[Digested], fence: Fence | None, at: int, name: str) -> Packet:
    """Attach states to the leaf if the session is there and the leaf is the parent."""
    lease = lease_of(command, fence)
    parent = [command.parent] if isinstance(command.parent, str) else []
    expected = [] if command.expected_version is None else [command.expected_version]
    expressions, variables, values = compared(states)
    conditions = (
        (" AND m.id = %s" if parent else "")
        + (" AND s.version = %s" if expected else "")
        + (f" AND {HELD}" if fence else "")
    )
    look = _LOOK.replace("{compared}", expressions).replace("{changed}", variables)
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
