"""Parts that a screen shows inside the part of another call: where they stood, and how they are put back there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

from leafward.core.calls import Call, Pairs, Result
from leafward.core.message import Message
from leafward.core.parts import Part
from leafward.formats.reading import refuse

Place = tuple[int, int]
"""The number of a message in a payload, and of a part in it."""


class Folding:
    """Keeps what is shown in the part of another call, and where it stood."""

    def __init__(self, messages: Sequence[Message], pairs: Pairs) -> None:
        self._messages = messages
        self._indexes = {id(part): index for message in messages for index, part in enumerate(message.parts)}
        self._repeats: dict[Call, list[Call | Result]] = {}
        shown = {id(result.part) for result in (*pairs.answers.values(), *pairs.orphans)}
        for item, call in (*pairs.repeated_calls.items(), *pairs.repeats.items()):
            if id(item.part) not in shown:
                shown.add(id(item.part))
                self._repeats.setdefault(call, []).append(item)

    def repeats(self, call: Call) -> list[Part]:
        """Return the parts that say a call, or its result, once more."""
        return [{"part": item.part, **self.place(item, call)} for item in self._repeats.get(call, [])]

    def place(self, item: Call | Result, call: Call) -> dict[str, Any]:
        """Return where a part stood: its index, and its message unless that is the message of the call."""
        place: dict[str, Any] = {"index": self._indexes.get(id(item.part), 0)}
        if item.message is not call.message:
            place["message"] = {key: value for key, value in item.message.to_dict().items() if key != "parts"}
            place["after"] = self._messages[item.row - 1].id if item.row else None
        return place


@dataclass(frozen=True, slots=True)
class Fold:
    """A part that was folded into another."""

    part: Part
    index: int
    message: dict[str, Any] | None
    """Its message without the parts, `None` for the one that holds the call."""
    after: str | None
    """The id of the message before that one."""


class Unfolding:
    """Puts parts that were folded back where they stood."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._rows = rows
        self._inside: dict[int, list[Fold]] = {}
        self._apart: dict[str, tuple[int, list[Fold]]] = {}
        self._sources: dict[int | str, set[Place]] = {}

    @property
    def rows(self) -> Set[int]:
        """The messages of the payload that get parts back."""
        return self._inside.keys()

    def behind(self, target: int | str) -> Set[Place]:
        """Return the parts that others were folded into which stood in a message: one of the payload, or another."""
        return self._sources.get(target, frozenset())

    def add(self, place: Place, fold: Fold) -> None:
        """Take a part that was folded into the one at a place."""
        row, _ = place
        message_id = None if fold.message is None else fold.message["id"]
        target = row if message_id is None else self._rows.get(message_id)
        if target is not None:
            self._inside.setdefault(target, []).append(fold)
            self._sources.setdefault(target, set()).add(place)
        elif message_id is not None:
            self._apart.setdefault(message_id, (row, []))[1].append(fold)
            self._sources.setdefault(message_id, set()).add(place)

    def whole(self, row: int, parts: list[Part]) -> list[Part]:
        """Return the parts of the message in `row`, with those that were folded."""
        return _inserted(parts, self._inside.get(row, []))

    def in_order(self, read: Sequence[Message], places: Sequence[str]) -> list[Message]:
        """Return the messages with those that only held parts that were folded, each after the one it followed."""
        known = {message.id for message in read} | self._apart.keys()
        following: dict[str | None, list[Message]] = {}
        for row, folds in self._apart.values():
            try:
                message = Message.from_dict({**(folds[0].message or {}), "parts": _inserted([], folds)})
            except ValueError as error:
                refuse(places[row], error)
            after = folds[0].after
            following.setdefault(after if after is None or after in known else read[row].id, []).append(message)
        found: list[Message] = []
        waiting = [*reversed(read), *reversed(following.pop(None, []))]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(following.pop(found[-1].id, []))
        # Two that each claim to follow the other are lost to no reader.
        return found + [message for left in following.values() for message in left]


def read_fold(record: object, part: Part | None) -> Fold | None:
    """Return a part and the place that a record says it had; nothing where the record is not one of ours."""
    kept = cast(Part, record) if isinstance(record, dict) else {}
    index, message, after = kept.get("index"), kept.get("message"), kept.get("after")
    if part is None or not isinstance(index, int) or not 0 <= index < 2**31:
        return None
    if not (after is None or isinstance(after, str)):
        return None
    if message is None:
        return Fold(part, index, None, None)
    folded = cast(Part, message) if isinstance(message, dict) else {}
    if not isinstance(folded.get("role"), str) or not isinstance(folded.get("id"), str):
        return None
    return Fold(part, index, folded, after)


def _inserted(parts: list[Part], folds: Iterable[Fold]) -> list[Part]:
    whole = list(parts)
    for fold in sorted(folds, key=lambda fold: fold.index):
        whole.insert(fold.index, fold.part)
    return whole
