"""Appends as packets for MySQL: the statements of one transaction, sent together.

Each statement decides by the rows it finds whether the one before it was done: by `ROW_COUNT()` a server that can no
longer answer, and still runs the packet to its end, would not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from leafward.stores.contracts import Weight
from leafward.stores.leases import Fence
from leafward.stores.servers.server import Placed, Planned, Position
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids


class Packet(NamedTuple):
    """Statements, each with a semicolon after it, or a piece of them, and the parameters in them."""

    text: str
    parameters: Sequence[Any] = ()


class Answer(NamedTuple):
    """What came back for one statement."""

    rows: list[Any]
    wrote: int
    """How many rows it changed or added."""
    key: int
    """The number that the new row was given."""


_SCOPE = "s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = %s AND user_id = %s) AND s.session_id = %s"
_LEASE = "FROM {p}lease WHERE user_id = %s AND session_id = %s AND token = %s AND holder IS NOT NULL"
_HOLD_LEASE = f"SELECT 1 {_LEASE} LOCK IN SHARE MODE;"
_HELD = f"EXISTS (SELECT 1 {_LEASE})"
_WEIGHED = " AND s.window_tokens IS NOT NULL"
_WEIGHT = "s.window_tokens, (SELECT tokens FROM {p}prompt p WHERE p.session_no = s.session_no)"
_INSERT = "INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)"

# Held first, so that it stays what the later statements find it to be; moved only if the messages were added. They go
# by its number: by its ids they might find a session that another made meanwhile, and that is not held.
_HOLD = f"SET @held = (SELECT s.session_no FROM {{p}}session s WHERE {_SCOPE} FOR UPDATE);"
_FIND = f"""
    SELECT %s + {_WEIGHT}, s.session_no, s.tree_no, s.version + 1, s.leaf + %s
    FROM {{p}}session s WHERE s.session_no = @held;"""
_DRAFT = "SELECT %s AS n, %s AS id, %s AS role, %s AS tokens, %s AS created_at, %s AS body"
_ADD = f"""{_INSERT}
    SELECT s.leaf + d.n, s.tree_no, s.version + 1, d.id, d.role, d.tokens, d.created_at, d.body
    FROM ({{rows}}) d JOIN {{p}}session s JOIN {{p}}lane l ON l.lane_no = s.leaf >> 32
    WHERE s.session_no = @held AND l.floor <= s.leaf + 1
        AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.place > s.leaf AND m.place < (l.lane_no + 1) << 32)"""
_NEW = " AND NOT EXISTS (SELECT 1 FROM {p}message m WHERE m.tree_no = s.tree_no AND m.id IN ({ids}));"
_MOVE = """
    UPDATE {p}session s SET s.leaf = s.leaf + %s, s.version = s.version + 1,
        s.window_tokens = s.window_tokens + %s, s.updated_at = %s
    WHERE s.session_no = @held AND EXISTS (
        SELECT 1 FROM {p}message m WHERE m.place = s.leaf + %s AND m.tree_no = s.tree_no AND m.seq = s.version + 1
    );"""

# Nothing that matters here happens to a session without moving its version; an id that is known violates its key.
_MOVE_AT = """
    UPDATE {p}session s SET s.leaf = %s, s.version = s.version + 1,
        s.window_tokens = s.window_tokens + %s, s.updated_at = %s
    WHERE s.session_no = %s AND s.tree_no = %s AND s.version = %s AND s.leaf = %s"""
# Added if it was moved: had another writer moved it to just there, the place would be taken and all be undone.
_ROW_AT = """
    SELECT %s, %s, %s, %s, %s, %s, %s, %s FROM {p}session s
    WHERE s.session_no = %s AND s.tree_no = %s AND s.version = %s AND s.leaf = %s"""
_TOLD = f"SELECT {_WEIGHT} FROM {{p}}session s WHERE s.session_no = %s;"

# All that can be moved are held first, which tells who they are: what cannot be then cannot be later. Without the hints
# a server would go through a small table of sessions row by row, and wait for those that others hold.
_WANTED = """
    SELECT %s AS session_no, %s AS tree_no, %s AS version, %s AS leaf, %s AS tokens, %s AS weigh, {held} AS held"""
_CAN_BE_MOVED = """
    STRAIGHT_JOIN {p}session s FORCE INDEX (PRIMARY) ON s.session_no = d.session_no
        AND s.tree_no = d.tree_no AND s.version = d.version AND s.leaf = d.leaf
    WHERE d.held AND (s.window_tokens IS NOT NULL OR NOT d.weigh) FOR UPDATE;"""
_HOLD_ALL = f"SELECT s.session_no, s.version, d.tokens + {_WEIGHT} FROM ({{rows}}) d {_CAN_BE_MOVED}"
_GIVEN = f"{_WANTED}, %s AS place, %s AS id, %s AS role, %s AS created_at, %s AS body"
_ADD_ALL = f"""{_INSERT}
    SELECT d.place, d.tree_no, d.version + 1, d.id, d.role, d.tokens, d.created_at, d.body
    FROM ({{rows}}) d {_CAN_BE_MOVED}"""
_MOVED = "SELECT %s AS session_no, %s AS version, %s AS leaf, %s AS tokens"
_MOVE_ALL = """
    UPDATE ({rows}) g STRAIGHT_JOIN {p}session s FORCE INDEX (PRIMARY)
        ON s.session_no = g.session_no AND s.version = g.version
        STRAIGHT_JOIN {p}message m ON m.place = g.leaf
    SET s.leaf = g.leaf, s.version = s.version + 1, s.window_tokens = s.window_tokens + g.tokens, s.updated_at = %s;"""


def below_the_leaf(command: Append, fence: Fence | None, at: int) -> Packet:
    """Append if the session is there, all ids are new and the leaf is the last of its lane."""
    lease = _lease(command, fence)
    ids = [draft.message.id for draft in command.drafts]
    rows = [
        Packet(_DRAFT, (number, message.id, message.role, tokens, message.at, body.decode()))
        for number, (message, body, tokens) in enumerate(command.drafts, 1)
    ]
    return _join(
        [
            Packet(_HOLD_LEASE if fence else "", lease),
            Packet(_HOLD, scope_ids(command.scope)),
            Packet(_FIND, (command.tokens, len(ids))),
            _of_rows(_ADD, rows),
            Packet((_WEIGHED if command.weigh else "") + (f" AND {_HELD}" if fence else ""), lease),
            Packet(_NEW.replace("{ids}", ", ".join(["%s"] * len(ids))), ids),
            Packet(_MOVE, (len(ids), command.tokens, at, len(ids))),
        ]
    )


def was_placed(command: Append, answers: Sequence[Answer]) -> Placed | None:
    """Return where an append below the leaf ended, by what was answered; `None` when nothing was written."""
    *_, found, _, moved = answers
    if not moved.wrote:
        return None
    window, prompt, *position = found.rows[0]
    return Placed(Position(*position), Weight(window, prompt) if command.weigh else None)


def at_position(planned: Planned, at: int) -> Packet:
    """Append to a session if nothing was written to it since it was at its position."""
    (session_no, tree_no, version, leaf), command, fence = planned
    drafts = command.drafts
    end = leaf + len(drafts)
    lease = _lease(command, fence)
    text = _text_at_position(len(drafts), fenced=fence is not None, weigh=command.weigh)
    values = [*lease, end, command.tokens, at, session_no, tree_no, version, leaf, *lease]
    for place, (message, body, tokens) in enumerate(drafts, leaf + 1):
        values += (place, tree_no, version + 1, message.id, message.role, tokens, message.at, body.decode())
        values += (session_no, tree_no, version + 1, end)
    return Packet(text, [*values, session_no] if command.weigh else values)


@lru_cache(maxsize=64)
def _text_at_position(drafts: int, *, fenced: bool, weigh: bool) -> str:
    return "".join(
        (
            _HOLD_LEASE if fenced else "",
            _MOVE_AT + (_WEIGHED if weigh else "") + (f" AND {_HELD}" if fenced else "") + ";",
            _INSERT + " UNION ALL ".join([_ROW_AT] * drafts) + ";",
            _TOLD if weigh else "",
        )
    )


def was_placed_at(planned: Planned, answers: Sequence[Answer]) -> Placed | None:
    """Return where an append at a position ended, by what was answered; `None` when nothing was written."""
    moved = answers[0 if planned.fence is None else 1]
    if not moved.wrote:
        return None
    return planned.placed(Weight(*answers[-1].rows[0]) if planned.command.weigh else None)


def at_positions(planned: Sequence[Planned], at: int) -> Packet:
    """Append to each session if nothing was written to it since it was at its position."""
    # In one order, so that two who do this do not wait for each other.
    ordered = sorted(planned, key=lambda one: one.position)
    return _join(
        [
            *(Packet(_HOLD_LEASE, _lease(one.command, one.fence)) for one in ordered if one.fence is not None),
            _of_rows(_HOLD_ALL, [_wanted(_WANTED, one) for one in ordered]),
            _of_rows(_ADD_ALL, [row for one in ordered for row in _given(one)]),
            _of_rows(_MOVE_ALL, map(_moved, ordered), (at,)),
        ]
    )


def were_placed_at(planned: Sequence[Planned], answers: Sequence[Answer]) -> list[Placed | None]:
    """Return where each append ended, by what was answered."""
    *_, held, _, _ = answers
    weights = {(session_no, version): Weight(*weight) for session_no, version, *weight in held.rows}
    found: list[Placed | None] = []
    for one in planned:
        weight = weights.get((one.position.session_no, one.position.version))
        found.append(None if weight is None else one.placed(weight if one.command.weigh else None))
    return found


def _wanted(text: str, planned: Planned, *, tokens: int | None = None) -> Packet:
    position, command, fence = planned
    values = (*position, command.tokens if tokens is None else tokens, command.weigh, *_lease(command, fence))
    return Packet(text.replace("{held}", _HELD if fence else "1"), values)


def _given(planned: Planned) -> Iterator[Packet]:
    for place, (message, body, tokens) in enumerate(planned.command.drafts, planned.position.leaf + 1):
        text, values = _wanted(_GIVEN, planned, tokens=tokens)
        yield Packet(text, (*values, place, message.id, message.role, message.at, body.decode()))


def _moved(planned: Planned) -> Packet:
    session_no, _, version, leaf = planned.position
    return Packet(_MOVED, (session_no, version, leaf + len(planned.command.drafts), planned.command.tokens))


def _join(pieces: Iterable[Packet], between: str = "") -> Packet:
    kept = list(pieces)
    return Packet(between.join(one.text for one in kept), [value for one in kept for value in one.parameters])


def _of_rows(statement: str, rows: Iterable[Packet], after: Sequence[Any] = ()) -> Packet:
    """Return a statement about rows that are sent along; `after` are its parameters after those of the rows."""
    text, values = _join(rows, " UNION ALL ")
    return Packet(statement.replace("{rows}", text), [*values, *after])


def _lease(command: Append, fence: Fence | None) -> tuple[Any, ...]:
    return () if fence is None else (*scope_ids(command.scope)[1:], fence.token)
