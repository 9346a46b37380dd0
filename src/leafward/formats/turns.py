"""A conversation as it is sent to a model: who speaks, and after each turn the results of its calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from leafward.core.calls import Call, Item, Pairs, Result, pair
from leafward.core.fallback_text import describe, missing_result, orphan_parts
from leafward.core.media import read_media
from leafward.core.message import Message
from leafward.core.overlays import is_summary_id
from leafward.core.parts import Part, is_ui_only, parts_of

AFTER_SUMMARY = "[The newest message is part of the summary above.]"
"""What the user says when a summary is the last message: a model takes an assistant's for words to continue."""

_ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(slots=True)
class Turn:
    """What one side says without a break."""

    role: str
    """`system`, `developer`, `user` or `assistant`; any other speaker is a user to the model."""
    message: Message
    items: list[Item]
    """Parts and calls."""
    first: bool
    """Whether this is the first turn of its message."""


@dataclass(slots=True)
class Answers:
    """The results of the calls in the turn before."""

    pairs: list[tuple[Call, Result]]


Entry = Turn | Answers


def turns(messages: Sequence[Message]) -> list[Entry]:
    """Return the turns of a conversation; every call is answered exactly once, directly after its turn.

    A conversation that ends with a summary is given one more turn, of the user.
    """
    pairs = pair(messages)
    calls = {result: call for call, result in pairs.belonging()}
    entries: list[Entry] = []
    for message, items in zip(messages, pairs.items, strict=True):
        for turn in _turns_of(message, items, pairs.orphans, calls):
            entries.append(turn)
            answered = _answers(turn, pairs)
            if answered:
                entries.append(Answers(answered))
    if messages and is_summary_id(messages[-1].id):
        entries.append(Turn("user", messages[-1], [{"type": "text", "text": AFTER_SUMMARY}], False))
    return entries


def role_of(message: Message) -> str:
    """Return the role a model knows for the one who sent a message."""
    return known_role(message.role)


def known_role(role: str) -> str:
    """Return the role a model knows for any role: that of a user for all that it does not know."""
    return role.lower() if role.lower() in _ROLES else "user"


def with_ids(entries: list[Entry], fit: Callable[[str], str], *, everywhere: bool) -> list[Entry]:
    """Give each call an id that fits the format, and another one when it is taken.

    Ids must differ in one turn; with `everywhere`, in the whole conversation.
    """
    known = {item.id for entry in entries if isinstance(entry, Turn) for item in entry.items if isinstance(item, Call)}
    taken: set[str] = set()
    counts: dict[str, int] = {}
    renamed: dict[Call, Call] = {}
    for entry in entries:
        if isinstance(entry, Answers):
            entry.pairs = [
                (renamed[call], structs.replace(result, call_id=renamed[call].id)) for call, result in entry.pairs
            ]
            continue
        if not everywhere:
            taken, counts = set(), {}
        for place, item in enumerate(entry.items):
            if isinstance(item, Call):
                renamed[item] = structs.replace(item, id=_free(item.id, fit(item.id), taken, known, counts))
                entry.items[place] = renamed[item]
    return entries


def media_to_user(entries: list[Entry], *, may_send: Collection[str], from_results: bool) -> list[Entry]:
    """Move the files of roles that may not send them into a user's turn after the one that holds them.

    With `from_results`, those in results too: after the results, so that nothing comes between them and their calls.
    """
    moved: list[Entry] = []
    waiting: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Turn):
            moved += waiting
            waiting = []
        found = _files(entry, may_send, from_results)
        if not (found and isinstance(entry, Turn) and not entry.items):
            moved.append(entry)
        waiting += found
    return moved + waiting


def _turns_of(
    message: Message, items: list[Item], orphans: Collection[Result], calls: Mapping[Result, Call]
) -> Iterator[Turn]:
    builder = _Builder(message)
    for item in items:
        if isinstance(item, Result):
            if item in orphans:
                builder.say("user", orphan_parts(item, calls.get(item)))
            else:
                builder.answered(calls[item], item)
        elif isinstance(item, Call):
            builder.call(item)
        elif item["type"] == "step-start":
            builder.step()
        elif not is_ui_only(item):
            builder.say(role_of(message), [item])
    yield from builder.finish(empty=not parts_of(message.body) and message.role not in ("tool", "function"))


class _Builder:
    """Cuts one message into turns: a model that speaks on after a result has begun a new one."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._done: list[Turn] = []
        self._role = ""
        self._items: list[Item] = []
        self._calls: set[Call] = set()
        self._heard = False
        self._heard_apart = False

    def say(self, role: str, parts: list[Part]) -> None:
        if self._heard or role != self._role:
            self._cut(role)
        self._items += parts

    def call(self, call: Call) -> None:
        # AI SDK writes parallel calls one after the other, each with its result.
        if self._heard_apart or self._role != "assistant":
            self._cut("assistant")
        self._items.append(call)
        self._calls.add(call)

    def answered(self, call: Call, result: Result) -> None:
        """Note a result that is sent after its turn; it ends the turn only if it answers a call in it."""
        if call in self._calls:
            self._heard = True
            self._heard_apart = self._heard_apart or result.call is None

    def step(self) -> None:
        if self._calls:
            self._cut(self._role)

    def finish(self, *, empty: bool) -> list[Turn]:
        self._cut("")
        if empty:
            self._done.append(Turn(role_of(self._message), self._message, [], True))
        return self._done

    def _cut(self, role: str) -> None:
        if self._items:
            self._done.append(Turn(self._role, self._message, self._items, not self._done))
        self._role, self._items, self._calls = role, [], set()
        self._heard = self._heard_apart = False


def _answers(turn: Turn, pairs: Pairs) -> list[tuple[Call, Result]]:
    calls = [item for item in turn.items if isinstance(item, Call)]
    found = [(call, pairs.answers[call]) for call in calls if call in pairs.answers]
    missing = [(call, missing_result(call)) for call in calls if call not in pairs.answers]
    return sorted(found, key=lambda each: pairs.places[each[1]]) + missing


def _free(call_id: str, wanted: str, taken: set[str], known: set[str], counts: dict[str, int]) -> str:
    found = wanted
    # An id of our making must not be one that another call has, now or later.
    while found in taken or (found != call_id and found in known):
        counts[wanted] = counts.get(wanted, 1) + 1
        found = f"{wanted}_{counts[wanted]}"
    taken.add(found)
    return found


def _files(entry: Entry, may_send: Collection[str], from_results: bool) -> list[Turn]:
    if isinstance(entry, Answers):
        if not from_results:
            return []
        return [
            Turn("user", result.message, _announced(files, f"from the call {call.id}"), False)
            for call, result in entry.pairs
            if (files := [block for block in result.blocks if read_media(block) is not None])
        ]
    if entry.role in may_send:
        return []
    files = [item for item in entry.items if isinstance(item, dict) and read_media(item) is not None]
    if not files:
        return []
    entry.items = [item for item in entry.items if not any(item is file for file in files)]
    return [Turn("user", entry.message, _announced(files, f"from the {entry.role}"), False)]


def _announced(files: list[Part], origin: str) -> list[Item]:
    announced: list[Item] = []
    for file in files:
        media = read_media(file)
        assert media is not None
        announced += [{"type": "text", "text": f"{describe(replace(media, url=None, text=None))} {origin}"}, file]
    return announced
