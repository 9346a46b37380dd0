"""What `state.context` shows of a path, and what has to be stored after it was changed.

The path is what the session's tree holds from its root to its leaf, with summaries in the place of what they cover. The
context shows the results of a reply in the order of its calls, and summaries as AgentScope does. A view hides messages
of the path and puts others between them; it is attached to a message, and in force for all that follow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, NamedTuple, Self

import msgspec

from leafward.core.agent_records import read_as, undecodable
from leafward.core.calls import holds_only_results, in_call_order
from leafward.core.ids import RESERVED_PREFIX
from leafward.core.message import Message, as_before, body_to_read, changed_in_place, ids_of, message_sharing, roles_of
from leafward.core.overlays import is_summary_id
from leafward.engine.summary_messages import shown_summary

START = ""
"""Stands for the first message of a path, whichever that is, where a range begins."""

_NEIGHBOURS = ("tool,tool", "user,user", "tool,user", "user,tool")
"""Roles in a row of which both may be results; only such results can stand in another order than their calls."""


@dataclass(frozen=True, slots=True)
class Put:
    """A message that stands before another one of the path."""

    before: str
    """If no message of the path has this id any more, the message stands at the front."""
    message: Message


@dataclass(frozen=True, slots=True)
class View:
    """What a context hides of a path, and what it shows besides."""

    drop: tuple[tuple[str, str], ...] = ()
    """Ranges, by the ids of their first and last message, in the order in which a context shows the whole path.

    `START` is the beginning of the path. A range one end of which is not there any more hides nothing.
    """
    put: tuple[Put, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Self:
        """Read what `write` returned.

        Raises:
            StateDecodeError: it is something else; the reason names the place.
        """
        if document is None:
            return cls()
        found = read_as(_Document, document, "")
        try:
            return cls(tuple(found.drop), tuple(Put(one.before, Message.from_dict(one.message)) for one in found.put))
        except ValueError as error:
            raise undecodable(f"put holds what is not a message: {error}") from error

    def write(self) -> dict[str, Any] | None:
        """Return the view as JSON values; `None` for one that changes nothing."""
        if not self.drop and not self.put:
            return None
        put = [{"before": one.before, "message": one.message.to_dict()} for one in self.put]
        return {"drop": [list(ends) for ends in self.drop], "put": put}

    def as_before(self) -> View:
        """Return the view without what was changed in its messages, which a context shows as they are."""
        if not changed_in_place(one.message for one in self.put):
            return self
        return View(self.drop, tuple(Put(one.before, as_before(one.message)) for one in self.put))

    @property
    def named(self) -> set[str]:
        """The ids of all messages that the view says something of."""
        return {end for ends in self.drop for end in ends} | {
            id for one in self.put for id in (one.before, one.message.id)
        }


NO_VIEW = View()


class _PutDocument(msgspec.Struct):
    before: str
    message: dict[str, Any]


class _Document(msgspec.Struct):
    drop: list[tuple[str, str]] = []
    put: list[_PutDocument] = []


class Difference(NamedTuple):
    """What has to be stored of a changed context."""

    appended: list[Message]
    """New messages, in the order in which the tree gets them."""
    updated: list[Message]
    """Messages of the path with other contents."""
    view: View
    """The view to be in force from now on; the very one that was given, if it still holds."""

    @property
    def is_empty(self) -> bool:
        """Whether no message has to be stored; the view may still be another one."""
        return not self.appended and not self.updated


# ── showing ──────────────────────────────────────────────────────────────────


def render(path: Sequence[Message], view: View = NO_VIEW) -> list[Message]:
    """Return the messages of a context, given the path as `store.messages.path` returns it.

    Messages that are shown as they are stored are the very same objects.
    """
    shown = in_shown_order(path)
    ids = ids_of(shown)
    if _has_summary(ids):
        # Before anything is hidden, so that a summary has the same id whatever else is shown.
        taken: set[str] = set()
        shown = [_shown(message, taken) for message in shown]
    return seen_through(view, ids, shown) if view.drop or view.put else shown


def in_shown_order(path: Sequence[Message]) -> list[Message]:
    """Return the messages of a path with the results of each reply in the order of its calls."""
    shown = list(path)
    roles = roles_of(shown)
    if not _has_neighbours(roles):
        return shown
    for start, end in _segments(roles):
        if end - start > 2 and _has_neighbours(roles[start + 1 : end]):
            ordered = in_call_order(shown[start], shown[start + 1 : end])
            if ordered is not None:
                shown[start + 1 : end] = ordered
    return shown


def _segments(roles: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Yield where each assistant's message stands, and where the next one does."""
    starts = [row for row, role in enumerate(roles) if role == "assistant"]
    return pairwise([*starts, len(roles)])


def _has_neighbours(roles: Sequence[str]) -> bool:
    joined = ",".join(roles)
    return any(both in joined for both in _NEIGHBOURS)


def _has_summary(ids: Sequence[str]) -> bool:
    # No id holds a line break. This takes a tenth of the time of looking at each id.
    return f"\n{RESERVED_PREFIX}" in "\n" + "\n".join(ids)


def _shown(message: Message, taken: set[str]) -> Message:
    """Return a message as a context has it; of two summaries with the same text, the second gets another id."""
    if not is_summary_id(message.id):
        return message
    shown = shown_summary(message)
    if shown.id in taken:
        number = 2
        while f"{shown.id}#{number}" in taken:
            number += 1
        shown = Message.stored(f"{shown.id}#{number}", shown.role, shown.at, body_to_read(shown))
    taken.add(shown.id)
    return shown


def seen_through(view: View, ids: Sequence[str], shown: Sequence[Message]) -> list[Message]:
    """Return what a view shows of messages, which stand in the order of a context and are known by `ids`."""
    wanted = {*(end for ends in view.drop for end in ends), *(one.before for one in view.put)}
    rows = {one: row for row, one in enumerate(ids) if one in wanted} | {START: 0}
    visible = bytearray(b"\1") * len(shown)
    for first, last in view.drop:
        if first in rows and last in rows and last != START and rows[first] <= rows[last]:
            visible[rows[first] : rows[last] + 1] = bytes(rows[last] + 1 - rows[first])
    found: list[Message] = []
    done = 0
    for row, message in sorted(((rows.get(one.before, 0), one.message) for one in view.put), key=lambda put: put[0]):
        found += compress(shown[done:row], visible[done:row])
        found.append(message)
        done = row
    found += compress(shown[done:], visible[done:])
    return found


# ── storing ──────────────────────────────────────────────────────────────────


def difference(
    path: Sequence[Message],
    view: View,
    context: Sequence[Message],
    *,
    arrived: Sequence[str] = (),
    rendered: Sequence[Message] | None = None,
) -> Difference:
    """Return what has to be stored so that the path, seen through the view, is shown as `context`.

    Messages at the end that the path does not have are appended: those named in `arrived` in that order, if they are
    results that a context shows in the order of their calls. A message with the id of one of the path and other
    contents is an update; its time stays. Anything else becomes a view. `rendered` is what
    `render(path, view)` returns, if the caller has it.

    Raises:
        ValueError: two messages have one id, a new message has the role `system`, or an id that is kept for summaries.
    """
    before = render(path, view) if rendered is None else list(rendered)
    given = list(context)
    last = _last_reply(path)
    # Lists compare their items by identity first, so this is fast where nothing was replaced.
    if given[: len(before)] == before:
        tail = given[len(before) :]
        if not tail:
            return Difference([], [], view)
        appended = _in_order(tail, arrived)
        if _are_new(ids_of(tail), path, view) and _stay_below(path[last:], appended, tail):
            check_new(tail)
            return Difference(appended, [], view)
    if not view.drop and not view.put and given[:last] == before[:last]:
        # Nothing that changes below the last reply changes what is shown above it.
        found = compare(path[last:], view, given[last:], arrived=arrived)
        if (
            found.view == view
            and _are_new(ids_of(found.appended), path, view)
            and _is_reply(path[last:], found.updated)
        ):
            return found
    return compare(path, view, given, arrived=arrived)


def check_new(messages: Iterable[Message]) -> None:
    """Refuse messages that a context may not get.

    Raises:
        ValueError: one of them has the role `system`, or an id that is kept for summaries.
    """
    for message in messages:
        if (reason := refusal(message)) is not None:
            raise ValueError(reason)


def refusal(message: Message) -> str | None:
    """Return why a context may not get a message; `None` if it may."""
    if message.role == "system":
        return (
            f"message {message.id!r} has the role 'system', which a context does not hold: "
            "set the agent's system_prompt, or send it as the user's"
        )
    if is_summary_id(message.id):
        return f"ids that begin with {RESERVED_PREFIX!r} belong to summaries: rename {message.id!r}"
    return None


def _are_new(ids: Sequence[str], path: Sequence[Message], view: View) -> bool:
    """Tell whether neither the path nor the view knows any of these ids, and none stands there twice."""
    wanted = set(ids)
    return len(wanted) == len(ids) and wanted.isdisjoint(view.named) and wanted.isdisjoint(ids_of(path))


def _stay_below(reply: Sequence[Message], appended: Sequence[Message], tail: Sequence[Message]) -> bool:
    """Tell whether what is appended below the last reply is shown below all of it, as the tail of the context."""
    return ids_of(in_shown_order([*reply, *appended])) == ids_of(in_shown_order(reply)) + ids_of(tail)


def _is_reply(path: Sequence[Message], updated: Sequence[Message]) -> bool:
    """Tell whether the first message of a path is still the assistant's after an update."""
    return all(message.role == path[0].role for message in updated if message.id == path[0].id)


def _last_reply(path: Sequence[Message]) -> int:
    """Return where the last message of the assistant stands; 0 without one."""
    return next((row for row in range(len(path) - 1, -1, -1) if path[row].role == "assistant"), 0)


def _in_order(messages: list[Message], arrived: Sequence[str]) -> list[Message]:
    """Return messages with those that `arrived` names in that order, in the places that they have."""
    came = {id: number for number, id in enumerate(arrived)}
    rows = [row for row, message in enumerate(messages) if message.id in came]
    found = list(messages)
    for row, message in zip(rows, sorted((messages[row] for row in rows), key=lambda one: came[one.id]), strict=True):
        found[row] = message
    return found


def compare(
    path: Sequence[Message], view: View, context: Sequence[Message], *, arrived: Sequence[str] = (), strict: bool = True
) -> Difference:
    """Return what `difference` does, by looking at every message; without `strict`, any new message is taken."""
    ids = ids_of(context)
    if len(set(ids)) != len(ids):
        double = next(one for row, one in enumerate(ids) if one in ids[:row])
        raise ValueError(f"the context holds two messages with the id {double!r}: give one of them another id")
    places = _Places(path)
    keys = places.keys(context)
    new = [message for message, key in zip(context, keys, strict=True) if key is None]
    if strict:
        put = [one.message for one in view.put]
        check_new(message for message in new if not any(message is one for one in put))
    updated = [message for message, key in zip(context, keys, strict=True) if key and places.is_changed(message, key)]
    replaced = {message.id: message for message in updated}
    after = [replaced.get(message.id, message) for message in path] if replaced else list(path)
    added = _appended(after, context, keys)
    appended = _in_order(added, arrived)
    last = _last_reply(after)
    if appended != added and not _is_same_order([*after[last:], *appended], [*after[last:], *added]):
        appended = added
    shown = in_shown_order([*after, *appended])
    own = {message.id for message in added}
    made = _made_view(
        shown, context, [key or (one if one in own else None) for key, one in zip(keys, ids, strict=True)]
    )
    return Difference(appended, updated, view if made == view else made)


def _is_same_order(some: Sequence[Message], others: Sequence[Message]) -> bool:
    return ids_of(in_shown_order(some)) == ids_of(in_shown_order(others))


class _Places:
    """Which message of a path a message of a context shows."""

    def __init__(self, path: Sequence[Message]) -> None:
        self._path = {message.id: message for message in path}
        self._summaries: dict[str, tuple[str, Message]] = {}
        if _has_summary(ids_of(path)):
            taken: set[str] = set()
            for message in in_shown_order(path):
                if is_summary_id(message.id):
                    shown = _shown(message, taken)
                    self._summaries[shown.id] = message.id, shown

    def keys(self, context: Iterable[Message]) -> list[str | None]:
        """Return for each message the id that it has in the path; `None` for one that the path does not have."""
        seen: set[str | None] = set()
        found: list[str | None] = []
        for message in context:
            key = self._key(message)
            # A summary may stand there as a context shows it and as a history does.
            found.append(None if key in seen else key)
            seen.add(key)
        return found

    def _key(self, message: Message) -> str | None:
        summary = self._summaries.get(message.id)
        if summary is not None and is_same(message, summary[1]):
            return summary[0]
        stored = self._path.get(message.id)
        # A summary with another text is another message.
        is_there = stored is not None and (not is_summary_id(message.id) or is_same(message, stored))
        return message.id if is_there else None

    def is_changed(self, message: Message, key: str) -> bool:
        """Tell whether the path has a message with other contents."""
        return not is_summary_id(key) and not is_same(message, self._path[key])


def is_same(message: Message, other: Message) -> bool:
    """Tell whether two messages say the same; their times and ids may differ."""
    return message is other or (message.role, body_to_read(message)) == (other.role, body_to_read(other))


def _appended(path: Sequence[Message], context: Sequence[Message], keys: Sequence[str | None]) -> list[Message]:
    """Return the new messages at the end of a context.

    A new result may stand above one of the same reply that the path has: it came later, and its call was earlier.
    """
    last = _last_reply(path)
    latest = {message.id for message in path[last + 1 :] if is_results(message)}
    found: list[Message] = []
    passed = False
    for message, key in zip(reversed(context), reversed(keys), strict=True):
        if key is None and (not passed or is_results(message)):
            found.append(message)
        elif key in latest:
            passed = True
        else:
            break
    return found[::-1]


def is_results(message: Message) -> bool:
    """Tell whether a message holds nothing but results of tools."""
    # What is read of a twin lends nothing of the message.
    twin = message_sharing(message.id, message.role, message.at, body_to_read(message))
    return message.role in ("tool", "user") and bool(twin.parts) and holds_only_results(twin)


def _made_view(shown: Sequence[Message], context: Sequence[Message], keys: Sequence[str | None]) -> View:
    """Return the view through which `shown` is seen as the context, whose last message must be one of them."""
    rows = {message.id: row for row, message in enumerate(shown)}
    wanted = [None if key is None else rows[key] for key in keys]
    kept = _kept(wanted)
    visible = bytearray(len(shown))
    for row in kept:
        visible[wanted[row] or 0] = 1
    put: list[Put] = []
    anchor = ""
    for row in range(len(context) - 1, -1, -1):
        if row in kept:
            anchor = shown[wanted[row] or 0].id
        else:
            put.append(Put(anchor, context[row]))
    return View(tuple(_ranges(shown, visible)), tuple(reversed(put)))


def _kept(wanted: Sequence[int | None]) -> set[int]:
    """Return which places of a list to keep, so that its numbers rise and the last one is kept, as many as possible."""
    if not wanted:
        return set()
    last = wanted[-1]
    assert last is not None
    rows = [row for row, number in enumerate(wanted) if number is not None and number <= last]
    numbers = [number for number in wanted if number is not None and number <= last]
    if numbers == sorted(numbers):
        return set(rows)
    tails: list[int] = []
    """The smallest number that ends a rising choice, by the length of the choice."""
    ends: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(tails, number)
        tails[length : length + 1] = [number]
        ends[length : length + 1] = [place]
        before.append(ends[length - 1] if length else -1)
    kept: set[int] = set()
    place = ends[-1]
    while place >= 0:
        kept.add(rows[place])
        place = before[place]
    return kept


def _ranges(shown: Sequence[Message], visible: bytearray) -> Iterable[tuple[str, str]]:
    """Yield the ends of what is hidden."""
    start = 0
    while (start := visible.find(0, start)) >= 0:
        end = visible.find(1, start)
        end = len(shown) if end < 0 else end
        yield (shown[start].id if start else START), shown[end - 1].id
        start = end
