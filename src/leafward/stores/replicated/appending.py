"""An append below the leaf of a session that is in memory, which takes no look at the tables."""

from __future__ import annotations

import re
from dataclasses import replace

from leafward.core.attached_state import AttachedState, is_same
from leafward.core.json import encode
from leafward.core.parent import LATEST_LEAF
from leafward.core.times import from_micros, now_micros
from leafward.stores.contracts import Appended, Usage, Weight
from leafward.stores.journal import records
from leafward.stores.replicated.attempts import Attempt, following, listing, unchanged
from leafward.stores.replicated.head_queries import find_head
from leafward.stores.replicated.heads import HeadChange
from leafward.stores.replicated.journals import NOTHING, Listing
from leafward.stores.replicated.replica import Ending, Replica
from leafward.stores.replicated.steps import is_below
from leafward.stores.sql import registry
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import Operation

_USED = re.compile(rb'"input_tokens":(\d+),"output_tokens":(\d+),"estimated_cost":([^,]+)')
"""What the list of sessions tells of usage; a quote within a name is escaped, so these are the keys."""


def ending_for(replica: Replica, command: Append) -> Ending | None:
    """Return what the session ends with, if that is all that the append has to know."""
    if command.is_empty or replica.marks[replica.own] == NOTHING:
        return None
    ids = [draft.message.id for draft in command.drafts]
    if len(set(ids)) < len(ids) or replica.knows(ids):
        return None
    if command.usage is not None and command.usage.usage_id is not None and replica.is_shrunk:
        return None
    if replica.ending is None:
        replica.ending = replica.run(_find_ending(replica))
    head = replica.ending.head
    if command.expected_version not in (None, head.version) or not is_below(command.parent, head.leaf_id):
        return None
    return None if command.weigh and head.window is None else replica.ending


def _find_ending(replica: Replica) -> Operation[Ending]:
    head = yield from find_head(replica.scope)
    info = yield from registry.get(replica.scope)
    assert info is not None
    return Ending(head, listing(info))


def append_below_leaf(replica: Replica, command: Append, ending: Ending) -> Attempt[Appended]:
    """Append new messages, states and usage below the leaf."""
    head, drafts, at = ending.head, command.drafts, now_micros()
    changed = [one for one in command.attached if not is_same(one.text, head.states.get(one.name))]
    used = command.usage if _is_new(replica, command.usage) else None
    version = head.version + 1 if drafts or changed else head.version
    window = None if head.window is None else head.window + command.tokens
    messages = [draft.message for draft in drafts]
    result = Appended(
        messages,
        len(messages),
        Weight(window, head.prompt) if command.weigh and messages and window is not None else None,
        version=version,
        states=changed if command.state else (),
        attached_to=messages[-1].id if messages else head.leaf_id if command.state else None,
        counted=used is not None,
    )
    if not drafts and not changed and used is None:
        return Attempt([unchanged(replica, replica.own)], result, ending=ending, skips_tables=True)
    # The leaf need not be named: it is where the session stands at this point of its journal.
    below = command if command.parent is LATEST_LEAF else replace(command, parent=LATEST_LEAF)
    told = records.record(below, result, at, head.line_id)
    moved = head._replace(version=version, window=window, next=head.next + len(drafts))
    if drafts:
        after = len(changed) + (used is not None)
        moved = moved._replace(leaf_id=messages[-1].id, line_id=told[-1 - after].id)
    if changed:
        moved = moved._replace(states=_changed(dict(head.states), changed))
    change = HeadChange(
        moved,
        {one.name: one.text for one in changed},
        [(message.id, head.next + number) for number, message in enumerate(messages)],
        used=() if used is None or used.usage_id is None else (used.usage_id,),
    )
    listed = _listed_at(ending.listing, at) if used is None else _listed_with(ending.listing, used, at)
    written = following(replica, replica.own, [], told, listed, change)
    return Attempt([written], result, ending=Ending(moved, listed), skips_tables=True)


def _is_new(replica: Replica, usage: Usage | None) -> bool:
    return usage is not None and (usage.usage_id is None or not replica.counted(usage.usage_id))


def _changed(states: dict[str, str], changed: list[AttachedState]) -> dict[str, str]:
    for name, text in changed:
        if text is None:
            del states[name]
        else:
            states[name] = text
    return states


def _listed_at(listed: Listing, at: int) -> Listing:
    """Return the same with another time of the last change, which is the last that `SessionInfo` tells."""
    info = listed.info
    return Listing(at, listed.session_id, info[: info.rindex(b':"') + 1] + encode(from_micros(at)) + b"}")


def _listed_with(listed: Listing, usage: Usage, at: int) -> Listing:
    """Return the same with more usage as well."""
    found = _USED.search(listed.info)
    assert found is not None
    counts = int(found[1]) + usage.input_tokens, int(found[2]) + usage.output_tokens
    told = b'"input_tokens":%d,"output_tokens":%d,"estimated_cost":' % counts
    told += encode(float(found[3]) + usage.cost)
    info = listed.info[: found.start()] + told + listed.info[found.end() :]
    return _listed_at(listed._replace(info=info), at)
