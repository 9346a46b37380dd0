"""How slots and states are named: as AgentScope names them; docs/formats/states-redis.md says what differs.

A place is what the keys of a slot begin with. AgentScope 2.x writes `user/session`, 1.x the session alone, whatever
characters they hold. The name of a state follows behind a colon and holds none itself, so the end of a key says what
the key is, and no two places share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from leafward.stores.leases import Slot
from leafward.stores.redis.keys import Keys, escape
from leafward.stores.states.row_names import ANONYMOUS
from leafward.stores.states.table import Layout

DEFAULT_PREFIX = "agentscope:session:"
SET = ":_keys"
"""What stands behind a place in the key of the set that names what is there."""
LIST = ":list"
"""What stands behind the name of a list in that set, and in its key."""
FILLED = "py:list"
"""The hash of a list that is not empty. No hash of Java's is equal to it, so Java writes the whole list again."""
OLD_FILLED = "py:content"
"""The same, under the old rule."""

_ENDINGS = frozenset({"list", "ver", "sum", "_hash"})
"""What stands behind the name of a state in the keys that belong to it."""


class _Escape:
    """Writes separators by their numbers, and a `%` as `%25` only where it would be read as such a number."""

    def __init__(self, separators: str, reserved: str = "") -> None:
        numbers = "|".join(f"{ord(one):02X}" for one in f"{separators}{reserved}")
        self._ambiguous = re.compile("|".join([*separators, f"%(?=(?:25)*(?:{numbers}))"]))
        self._escaped = re.compile(f"%(25)?((?:25)*(?:{numbers}))")

    def write(self, text: str) -> str:
        return self._ambiguous.sub(lambda found: f"%{ord(found[0]):02X}", text)

    def read(self, text: str) -> str:
        return self._escaped.sub(lambda found: f"%{found[2]}" if found[1] else chr(int(found[2], 16)), text)


class _OldEscape:
    """What was escaped under the old rule: more separators, and every `%` before a number of one or before `25`."""

    def __init__(self, separators: str, reserved: str = "") -> None:
        numbers = "|".join(f"{ord(one):02X}" for one in f"%{separators}{reserved}")
        self._ambiguous = re.compile(f"[{separators}]|%(?={numbers})")
        self._escaped = re.compile(f"%({numbers})")

    def write(self, text: str) -> str:
        return self._ambiguous.sub(lambda found: f"%{ord(found[0]):02X}", text)

    def read(self, text: str) -> str:
        return self._escaped.sub(lambda found: chr(int(found[1], 16)), text)


_NEXT = "%7E"
"""What stands between a user and a session in 1.x, which has no users; no session is written with it."""
_NAME = _Escape(":")
_USER = _Escape("/")
_OF_1X = _Escape("", "~")
_OLD_USER = _OldEscape("/:")
_OLD_SESSION = _OldEscape(":")
_OLD_OF_1X = _OldEscape("/:", "~")
"""Still that of slots with a user in 1.x, which AgentScope does not have."""


Kind = Literal["new", "unsure", "old"]
"""`new`: named by today's rule. `unsure`: the same, but the old rule has this name for another slot; the content says
whose it is. `old`: named by the old rule."""


class Place(NamedTuple):
    """What the keys of a slot begin with."""

    start: str
    kind: Kind = "new"
    is_older: bool = False
    """Whether it is of 1.x, looked at from 2.x, which does not write there."""

    @property
    def set(self) -> bytes:
        return f"{self.start}{SET}".encode()


class OfAgentScope:
    """Keys as AgentScope has them."""

    def __init__(self, prefix: str, layout: Layout) -> None:
        self._prefix = prefix
        self._layout: Layout = layout
        self.fixed = len(prefix.encode())
        """How many bytes at the start of a key are the same for all."""

    def spelled(self, name: str, place: Place) -> str:
        """Return the name of a state as it stands in keys: without colons.

        Behind a place with a colon it never is one of the endings either: `a:b` and `list` would be the list `b` of
        `a`. It is written as if a colon stood before it; a name such as `:list` is refused.
        """
        return _NAME.write(f":{name}" if name in _ENDINGS and ":" in place.start[len(self._prefix) :] else name)

    def read_name(self, written: str) -> str:
        """Return the name of a state that stands so in keys, also if Java or the old rule wrote it."""
        name = written if ":" in written else _NAME.read(written)
        return name.removeprefix(":") if name.removeprefix(":") in _ENDINGS else name

    def places(self, slot: Slot) -> list[Place]:
        """Return where a slot may be found; it is written to the first of them."""
        found = list(self._in_layout(slot, self._layout))
        if self._layout == "2.x" and slot.user_id is None and "/" not in slot.session_id:
            found += [place._replace(is_older=True) for place in self._in_layout(slot, "1.x")]
        return found

    def in_the_way(self, place: Place) -> list[Place]:
        """Return the places of the slot that the old rule kept at a new place, if any."""
        slot = self.read(place.set.decode(), old=True) if place.kind == "unsure" else None
        return [] if slot is None else self.places(slot)

    def _in_layout(self, slot: Slot, layout: Layout) -> Iterable[Place]:
        name, old = _name(slot, layout), _old_name(slot, layout)
        yield Place(f"{self._prefix}{name}", "new" if _read_old(name, layout) in (None, slot) else "unsure")
        if old != name:
            yield Place(f"{self._prefix}{old}", "old")

    def index(self, user_id: str | None) -> None:
        """Say that there is no list of a user's sessions: they are looked for."""

    def pattern(self, user_id: str | None) -> bytes:
        """Return what the keys of the sets of all of a user's places match; those of others may as well."""
        start = self._prefix
        # A session that is empty is named by what stands before it.
        slot = Slot(user_id, "")
        if user_id is not None and _name(slot, self._layout) == _old_name(slot, self._layout):
            start += _name(slot, self._layout)
        return (re.sub(r"[*?\[\]\\]", r"\\\g<0>", start) + f"*{SET}").encode()

    def read(self, key: str, *, old: bool) -> Slot | None:
        """Return the slot whose set has this key; `None` if there is none.

        `old` says that its content was written under the old rule, which decides where both rules have this name.
        """
        name = key[len(self._prefix) : -len(SET)]
        layout: Layout = "2.x" if self._layout == "2.x" and "/" in name else "1.x"
        slot = (_read_old(name, layout) if old else None) or _read(name, layout)
        # What would not be written so is not ours to find.
        return slot if slot is not None and key in [f"{place.start}{SET}" for place in self.places(slot)] else None


def _name(slot: Slot, layout: Layout) -> str:
    user, session = slot
    if layout == "2.x":
        return f"{ANONYMOUS if user is None else _USER.write(user)}/{session}"
    return _OF_1X.write(session) if user is None else _old_name(slot, layout)


def _read(name: str, layout: Layout) -> Slot | None:
    if layout == "2.x":
        user, _, session = name.partition("/")
        return Slot(None if user == ANONYMOUS else _USER.read(user), session)
    return _read_old(name, layout) if _NEXT in name else Slot(None, _OF_1X.read(name))


def _old_name(slot: Slot, layout: Layout) -> str:
    user, session = slot
    if layout == "2.x":
        return f"{ANONYMOUS if user is None else _OLD_USER.write(user)}/{_OLD_SESSION.write(session)}"
    return f"{'' if user is None else _OLD_OF_1X.write(user) + _NEXT}{_OLD_OF_1X.write(session)}"


def _read_old(name: str, layout: Layout) -> Slot | None:
    if layout == "2.x":
        user, _, session = name.partition("/")
        slot = Slot(None if user == ANONYMOUS else _OLD_USER.read(user), _OLD_SESSION.read(session))
    else:
        user, mark, session = name.rpartition(_NEXT)
        slot = Slot(_OLD_OF_1X.read(user) if mark else None, _OLD_OF_1X.read(session))
    return slot if _old_name(slot, layout) == name else None


class OfACluster:
    """Keys of our own, all that belongs to a user in one slot of a cluster."""

    fixed = 1_000_000
    """No part of a key can be another slot's: ids are without colons."""

    def __init__(self, prefix: str) -> None:
        self._keys = Keys(prefix)

    def spelled(self, name: str, place: Place) -> str:
        return name

    def read_name(self, written: str) -> str:
        return written

    def places(self, slot: Slot) -> list[Place]:
        return [Place(f"{self._keys.user(slot.user_id)}:state:{escape(slot.session_id)}")]

    def in_the_way(self, place: Place) -> list[Place]:
        return []

    def index(self, user_id: str | None) -> bytes:
        """Return the key of the set of a user's sessions."""
        return f"{self._keys.user(user_id)}:states".encode()


StateKeys = OfAgentScope | OfACluster
