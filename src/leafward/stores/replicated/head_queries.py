"""The head of a session, read from its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leafward.core import lanes
from leafward.core.ids import Scope
from leafward.stores.contracts import Appended
from leafward.stores.journal.transcript import last_id
from leafward.stores.replicated.heads import MOST_IDS, HeadChange, KeptHead
from leafward.stores.sql import points, reads
from leafward.stores.sql import statements as sql
from leafward.stores.sql.commands import AddUsage, Append, Clear, Command, Delete, Upsert
from leafward.stores.sql.operations import Operation, SessionRow, find_places, single, walk
from leafward.stores.sql.registry import need_session
from leafward.stores.sql.writes import continued

LAST_LANE = "SELECT seq FROM sqlite_sequence WHERE name = 'lane'"
COUNT = "SELECT count(*) FROM message WHERE tree_no = ?"
IDS = "SELECT id, place FROM message WHERE tree_no = ?"
USED = "SELECT usage_id FROM used WHERE session_no = ?"


def find_head(scope: Scope) -> Operation[KeptHead]:
    """Return where a session ends."""
    session = yield from need_session(scope)
    leaf = yield from reads.leaf(scope)
    prompt = single((yield sql.GET_PROMPT_TOKENS, (session.session_no,)))
    following = yield from _following(session)
    ranges = yield from walk(session, lanes.ranges(session.leaf))
    return KeptHead(
        version=session.version,
        leaf_id=None if leaf is None else leaf.id,
        line_id=None if leaf is None else last_id(leaf),
        window=session.window,
        prompt=prompt,
        next=following,
        path=[one for one in ranges if lanes.lane_of(one[1]) != lanes.lane_of(following)],
        states=(yield from points.in_force(session, session.leaf, (yield from points.names(session)))),
    )


def _following(session: SessionRow) -> Operation[int]:
    place = None if session.leaf is None else (yield from continued(session, session.leaf))
    if place is not None:
        return place
    lane = single((yield LAST_LANE, ())) or 0
    return lanes.before_first(lane + 1) + 1


def find_change(
    command: Command[Any], result: Any, before: KeptHead | None, *, is_new: bool
) -> Operation[HeadChange | None]:
    """Return what a command has made of the head that was there before, if that is known; `None` if it is too much."""
    scope = command.scope
    head = yield from find_head(scope)
    if not head.is_small:
        return None
    if is_new:
        session = yield from need_session(scope)
        if single((yield COUNT, (session.tree_no,))) > MOST_IDS:
            return None
        ids, used = yield from find_ids(scope)
        return HeadChange(head, head.states, ids, used=used, is_whole=True)
    states: dict[str, str | None] = dict(head.states)
    if before is not None:
        gone = dict.fromkeys(name for name in before.states if name not in head.states)
        states = {**gone, **{name: text for name, text in head.states.items() if before.states.get(name) != text}}
    added = yield from _added(scope, command, result)
    return HeadChange(
        head,
        states,
        added,
        removed=command.message_ids if isinstance(command, Delete) else (),
        used=_used(command, result),
        emptied=isinstance(command, Clear),
        has_all_states=before is None,
    )


def find_ids(scope: Scope) -> Operation[tuple[list[tuple[str, int]], list[str]]]:
    """Return all messages with their places, and all names of usage that was counted."""
    session = yield from need_session(scope)
    ids = [(id, place) for id, place in (yield IDS, (session.tree_no,))]
    return ids, [name for (name,) in (yield USED, (session.session_no,))]


def _added(scope: Scope, command: Command[Any], result: Any) -> Operation[list[tuple[str, int]]]:
    drafts = command.drafts if isinstance(command, Append) else [command.draft] if isinstance(command, Upsert) else []
    if not drafts or not isinstance(result, Appended) or not result.inserted:
        return []
    session = yield from need_session(scope)
    return list((yield from find_places(session, [one.message.id for one in drafts])).items())


def _used(command: Command[Any], result: Any) -> Sequence[str]:
    is_counted = bool(result) if isinstance(command, AddUsage) else isinstance(command, Append) and result.counted
    usage = command.usage if isinstance(command, (AddUsage, Append)) and is_counted else None
    return () if usage is None or usage.usage_id is None else (usage.usage_id,)
