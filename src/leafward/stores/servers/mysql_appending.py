"""Appends as packets for MySQL: the statements of one transaction, sent together.

Each statement decides by the rows it finds whether the one before it was done: by `ROW_COUNT()` a server that can no
longer answer, and still runs the packet to its end, would not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from leafward.stores.contracts import Usage, Weight
from leafward.stores.leases import Fence
from leafward.stores.servers.mysql_packets import HELD, HOLD, HOLD_LEASE, Answer, Packet, join, lease_of
from leafward.stores.servers.mysql_points import AT_LEAF, changes, compared, way
from leafward.stores.servers.paths import Path
from leafward.stores.servers.positions import Digested, Placed, Planned, Position
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids

_WEIGHED = " AND s.window_tokens IS NOT NULL"
_WEIGHT = "s.window_tokens, (SELECT tokens FROM {p}prompt p WHERE p.session_no = s.session_no)"
_INSERT = "INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)"
_KEEP = "INSERT INTO {p}point (tree_no, name, place, seq, text, digest)"
_COUNT = "INSERT INTO {p}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)"
_USED = """,
        s.input_tokens = s.input_tokens + %s, s.output_tokens = s.output_tokens + %s,
        s.estimated_cost = s.estimated_cost + %s"""

_NO_USAGE = Usage(0, 0)

# Moved only if the messages were added.
_FIND = f"""
    SELECT %s + {_WEIGHT}, s.session_no, s.tree_no, s.version + 1, s.leaf + %s
    FROM {{p}}session s WHERE s.session_no = @held;"""
_DRAFT = "SELECT %s AS n, %s AS id, %s AS role, %s AS tokens, %s AS created_at, %s AS body"
_ADD = f"""{_INSERT}
    SELECT s.leaf + d.n, s.tree_no, s.version + 1, d.id, d.role, d.tokens, d.created_at, d.body
    FROM ({{rows}}) d JOIN {{p}}session s JOIN {{p}}lane l ON l.lane_no = s.leaf >> 32
    WHERE s.session_no = @held AND l.floor <= s.leaf + 1
        AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.place > s.leaf AND m.place < (l.lane_no + 1) << 32)"""
_NEW = " AND NOT EXISTS (SELECT 1 FROM {p}message m WHERE m.tree_no = s.tree_no AND m.id IN ({ids}))"
_UNUSED = " AND NOT EXISTS (SELECT 1 FROM {p}used u WHERE u.session_no = s.session_no AND u.usage_id = %s)"
_BELOW = " AND EXISTS (SELECT 1 FROM {p}message m WHERE m.place = s.leaf AND m.id = %s)"
_AT_VERSION = " AND s.version = %s"
_COMPARE = f"""
    SELECT {{is_whole}}{{compared}} INTO @all_lanes{{changed}}
    FROM {{p}}session s {AT_LEAF} {{joined}} WHERE s.session_no = @held;"""
_WAS_ADDED = """
    s.session_no = @held AND EXISTS (
        SELECT 1 FROM {p}message n WHERE n.place = s.leaf + %s AND n.tree_no = s.tree_no AND n.seq = s.version + 1
    )"""
_ATTACH = f"""{_KEEP}
    SELECT s.tree_no, %s, s.leaf + %s, s.version + 1, %s, %s FROM {{p}}session s WHERE {_WAS_ADDED} AND {{changes}};"""
_ADD_USED = f"{_COUNT} SELECT s.session_no, %s, %s, %s, %s, %s, %s FROM {{p}}session s WHERE {_WAS_ADDED};"
_MOVE = f"""
    UPDATE {{p}}session s SET s.leaf = s.leaf + %s, s.version = s.version + 1,
        s.window_tokens = s.window_tokens + %s, s.updated_at = %s{{used}}
    WHERE {_WAS_ADDED};"""

# Nothing that matters here happens to a session without moving its version; an id that is known violates its key.
_MOVE_AT = """
    UPDATE {p}session s SET s.leaf = %s, s.version = s.version + 1,
        s.window_tokens = s.window_tokens + %s, s.updated_at = %s{used}
    WHERE s.session_no = %s AND s.tree_no = %s AND s.version = %s AND s.leaf = %s"""
# Added if it was moved: had another writer moved it to just there, the place would be taken and all be undone.
_IF_MOVED = """ FROM {p}session s
    WHERE s.session_no = %s AND s.tree_no = %s AND s.version = %s AND s.leaf = %s"""
_ROW_AT = f" SELECT %s, %s, %s, %s, %s, %s, %s, %s{_IF_MOVED}"
_STATE_AT = f" SELECT %s, %s, %s, %s, %s, %s{_IF_MOVED}"
_USED_AT = f"{_COUNT} SELECT %s, %s, %s, %s, %s, %s, %s{_IF_MOVED};"
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
_USING = f"{_MOVED}, %s AS input_tokens, %s AS output_tokens, %s AS cost"
# By the rows: those whose last message was added, and that are moved at the end.
_WHERE_ADDED = """
    ({rows}) g STRAIGHT_JOIN {p}session s FORCE INDEX (PRIMARY)
        ON s.session_no = g.session_no AND s.version = g.version
        STRAIGHT_JOIN {p}message m ON m.place = g.leaf"""
_STATE = """
    SELECT %s AS session_no, %s AS version, %s AS leaf, %s AS tree_no, %s AS name, %s AS text, %s AS digest"""
_KEEP_ALL = f"{_KEEP} SELECT g.tree_no, g.name, g.leaf, g.version + 1, g.text, g.digest FROM {_WHERE_ADDED};"
_COUNTED = f"{_USING}, %s AS usage_id, %s AS model"
_COUNT_ALL = f"""{_COUNT}
    SELECT g.session_no, g.usage_id, g.model, g.input_tokens, g.output_tokens, g.cost, %s FROM {_WHERE_ADDED};"""
_MOVE_ALL = f"""
    UPDATE {_WHERE_ADDED}
    SET s.leaf = g.leaf, s.version = s.version + 1, s.window_tokens = s.window_tokens + g.tokens, s.updated_at = %s"""
_USE_ALL = """,
        s.input_tokens = s.input_tokens + g.input_tokens, s.output_tokens = s.output_tokens + g.output_tokens,
        s.estimated_cost = s.estimated_cost + g.cost"""


def below_the_leaf(
    command: Append, states: Sequence[Digested], fence: Fence | None, at: int, path: Path | None
) -> Packet:
    """Append if the session is there, all ids are new and the leaf is the parent and the last of its lane."""
    lease, usage = lease_of(command, fence), command.usage
    count = len(command.drafts)
    ids = [draft.message.id for draft in command.drafts]
    rows = [
        Packet(_DRAFT, (number, message.id, message.role, tokens, message.at, body.decode()))
        for number, (message, body, tokens) in enumerate(command.drafts, 1)
    ]
    named = _is_named(usage)
    return join(
        [
            Packet(HOLD_LEASE if fence else "", lease),
            Packet(HOLD, scope_ids(command.scope)),
            *([_compare(states, path)] if states else []),
            Packet(_FIND, (command.tokens, count)),
            _of_rows(_ADD, rows),
            Packet((_WEIGHED if command.weigh else "") + (f" AND {HELD}" if fence else ""), lease),
            Packet(_NEW.replace("{ids}", ", ".join(["%s"] * count)), ids),
            *([Packet(_BELOW, [command.parent])] if isinstance(command.parent, str) else []),
            *([] if command.expected_version is None else [Packet(_AT_VERSION, [command.expected_version])]),
            *([Packet(_UNUSED, _used(usage)[:1])] if named else []),
            Packet(" AND @all_lanes;" if states else ";"),
            *(
                Packet(_ATTACH.replace("{changes}", changes(number)), (name, count, text, digest, count))
                for number, (name, text, digest) in enumerate(states)
            ),
            *([Packet(_ADD_USED, (*_used(usage), at, count))] if named else []),
            Packet(
                _MOVE.replace("{used}", "" if usage is None else _USED),
                (count, command.tokens, at, *(() if usage is None else usage[:3]), count),
            ),
        ]
    )


def _compare(states: Sequence[Digested], path: Path | None) -> Packet:
    along = way(path)
    expressions, variables, values = compared(states, along)
    text = _COMPARE.replace("{compared}", expressions).replace("{changed}", variables)
    return Packet(text.replace("{joined}", along.joins).replace("{is_whole}", along.is_whole), values)


def was_placed(
    command: Append, states: Sequence[Digested], fence: Fence | None, answers: Sequence[Answer]
) -> Placed | None:
    """Return where an append below the leaf ended, by what was answered; `None` when nothing was written."""
    found, _, *wrote = answers[1 + (fence is not None) + bool(states) :]
    if not wrote[-1].wrote:
        return None
    window, prompt, session_no, tree_no, version, leaf = found.rows[0]
    last = command.drafts[-1].message
    before = Position(session_no, tree_no, version - 1, leaf - len(command.drafts), "")
    return Placed(
        before.moved(version, leaf, last.id, states),
        Weight(window, prompt) if command.weigh else None,
        [one.state for one, answer in zip(states, wrote, strict=False) if answer.wrote],
    )


def at_position(planned: Planned, at: int) -> Packet:
    """Append to a session if nothing was written to it since it was at its position."""
    position, command, fence, _, changed = planned
    session_no, tree_no, version, leaf = position.row
    drafts, usage = command.drafts, command.usage
    end = planned.leaf
    named = _is_named(usage)
    lease = lease_of(command, fence)
    text = _text_at_position(
        len(drafts), len(changed), usage is not None, named=named, fenced=fence is not None, weigh=command.weigh
    )
    moved = (session_no, tree_no, version + 1, end)
    values = [*lease, end, command.tokens, at, *(() if usage is None else usage[:3]), *position.row, *lease]
    for place, (message, body, tokens) in enumerate(drafts, leaf + 1):
        values += (place, tree_no, version + 1, message.id, message.role, tokens, message.at, body.decode(), *moved)
    for name, value, digest in changed:
        values += (tree_no, name, end, version + 1, value, digest, *moved)
    if named:
        values += (session_no, *_used(usage), at, *moved)
    return Packet(text, [*values, session_no] if command.weigh else values)


@lru_cache(maxsize=256)
def _text_at_position(drafts: int, states: int, usage: bool, *, named: bool, fenced: bool, weigh: bool) -> str:
    return "".join(
        (
            HOLD_LEASE if fenced else "",
            _MOVE_AT.replace("{used}", _USED if usage else ""),
            (_WEIGHED if weigh else "") + (f" AND {HELD}" if fenced else "") + ";",
            _INSERT + " UNION ALL ".join([_ROW_AT] * drafts) + ";",
            _KEEP + " UNION ALL ".join([_STATE_AT] * states) + ";" if states else "",
            _USED_AT if named else "",
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
    ordered = sorted(planned, key=lambda one: one.position.row)
    states = [Packet(_STATE, values) for one in ordered for values in _states_of(one)]
    using = any(one.command.usage is not None for one in ordered)
    counted = [one for one in ordered if _is_named(one.command.usage)]
    return join(
        [
            *(Packet(HOLD_LEASE, lease_of(one.command, one.fence)) for one in ordered if one.fence is not None),
            _of_rows(_HOLD_ALL, [_wanted(_WANTED, one) for one in ordered]),
            _of_rows(_ADD_ALL, [row for one in ordered for row in _given(one)]),
            *([_of_rows(_KEEP_ALL, states)] if states else []),
            *([_count_all(counted, at)] if counted else []),
            _of_rows(_MOVE_ALL, (_moved(one, using=using) for one in ordered), (at,)),
            Packet((_USE_ALL if using else "") + ";"),
        ]
    )


def were_placed_at(planned: Sequence[Planned], answers: Sequence[Answer]) -> list[Placed | None]:
    """Return where each append ended, by what was answered."""
    held = answers[sum(one.fence is not None for one in planned)]
    weights = {(session_no, version): Weight(*weight) for session_no, version, *weight in held.rows}
    found: list[Placed | None] = []
    for one in planned:
        weight = weights.get((one.position.session_no, one.position.version))
        found.append(None if weight is None else one.placed(weight if one.command.weigh else None))
    return found


def _wanted(text: str, planned: Planned, *, tokens: int | None = None) -> Packet:
    position, command, fence, *_ = planned
    values = (*position.row, command.tokens if tokens is None else tokens, command.weigh, *lease_of(command, fence))
    return Packet(text.replace("{held}", HELD if fence else "1"), values)


def _given(planned: Planned) -> Iterator[Packet]:
    for place, (message, body, tokens) in enumerate(planned.command.drafts, planned.position.leaf + 1):
        text, values = _wanted(_GIVEN, planned, tokens=tokens)
        yield Packet(text, (*values, place, message.id, message.role, message.at, body.decode()))


def _moved(planned: Planned, *, using: bool) -> Packet:
    position, command = planned.position, planned.command
    used = (command.usage or _NO_USAGE)[:3] if using else ()
    values = (position.session_no, position.version, planned.leaf, command.tokens, *used)
    return Packet(_USING if using else _MOVED, values)


def _count_all(counted: Sequence[Planned], at: int) -> Packet:
    rows: list[Packet] = []
    for one in counted:
        usage = one.command.usage or _NO_USAGE
        rows.append(Packet(_COUNTED, (*_moved(one, using=True).parameters, usage.usage_id, usage.model)))
    text, values = _of_rows(_COUNT_ALL, rows)
    # The time stands before the rows.
    return Packet(text, [at, *values])


def _states_of(planned: Planned) -> Iterator[tuple[Any, ...]]:
    position = planned.position
    for one in planned.changed:
        yield position.session_no, position.version, planned.leaf, position.tree_no, *one


def _is_named(usage: Usage | None) -> bool:
    return usage is not None and usage.usage_id is not None


def _used(usage: Usage | None) -> tuple[Any, ...]:
    usage = usage or _NO_USAGE
    return usage.usage_id, usage.model, usage.input_tokens, usage.output_tokens, usage.cost


def _of_rows(statement: str, rows: Iterable[Packet], after: Sequence[Any] = ()) -> Packet:
    """Return a statement about rows that are sent along; `after` are its parameters after those of the rows."""
    text, values = join(rows, " UNION ALL ")
    return Packet(statement.replace("{rows}", text), [*values, *after])
