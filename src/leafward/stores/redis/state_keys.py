"""How slots of states are named: as AgentScope does where that is unambiguous; docs/formats/states-redis.md tells it.

A place is what the keys of a slot begin with. AgentScope 2.x writes `user/session`, 1.x the session alone; the name of
a state follows behind a colon. What an id holds of these separators is escaped.
"""

from __future__ import annotations

import re

from leafward.stores.leases import Slot
from leafward.stores.redis.keys import Keys, escape
from leafward.stores.states.row_names import ANONYMOUS
from leafward.stores.states.table import Layout

DEFAULT_PREFIX = "agentscope:session:"
SET = ":_keys"
"""What stands behind a place in the key of the set that names what is there."""
LIST = ":list"
"""What stands behind the name of a list in that set, and in its key."""


def keys_of(place: str, name: str) -> list[bytes]:
    """Return the keys of a place's set, and of a state's value, version, list and hash."""
    return [f"{place}:{one}".encode() for one in ("_keys", name, f"{name}:ver", f"{name}{LIST}", f"{name}{LIST}:_hash")]


class _Escape:
    """Writes separators by their numbers, and a `%` where it would be read as such a number."""

    def __init__(self, separators: str, marks: str = "") -> None:
        numbers = "|".join(f"{ord(one):02X}" for one in f"%{separators}{marks}")
        self._ambiguous = re.compile(f"[{separators}]|%(?={numbers})")
        self._escaped = re.compile(f"%({numbers})")

    def write(self, id: str) -> str:
        return self._ambiguous.sub(lambda found: f"%{ord(found[0]):02X}", id)

    def read(self, text: str) -> str:
        return self._escaped.sub(lambda found: chr(int(found[1], 16)), text)


_USER = _Escape("/:")
_SESSION = _Escape(":")
_OF_1X = _Escape("/:", "~")
_NEXT = "%7E"
"""What stands between a user and a session in 1.x, which knows no users; no id is written with it."""


class OfAgentScope:
    """Keys as AgentScope has them."""

    def __init__(self, prefix: str, layout: Layout) -> None:
        self._prefix = prefix
        self._layout: Layout = layout

    def places(self, slot: Slot) -> list[str]:
        """Return where a slot may be found; it is written to the first of them."""
        place = f"{self._prefix}{_name(slot, self._layout)}"
        return [place, f"{self._prefix}{_name(slot, '1.x')}"] if self._is_in_both(slot) else [place]

    def _is_in_both(self, slot: Slot) -> bool:
        return self._layout == "2.x" and slot.user_id is None and not set(":/") & set(slot.session_id)

    def index(self, user_id: str | None) -> None:
        """Say that there is no list of a user's sessions: they are looked for."""

    def pattern(self, user_id: str | None) -> bytes:
        """Return what the keys of the sets of all of a user's places match; those of others may as well."""
        start = self._prefix
        if user_id is not None:
            start += f"{_USER.write(user_id)}/" if self._layout == "2.x" else f"{_OF_1X.write(user_id)}{_NEXT}"
        return (re.sub(r"[*?\[\]\\]", r"\\\g<0>", start) + f"*{SET}").encode()

    def read(self, key: str) -> Slot | None:
        """Return the slot whose set has this key; `None` if there is none."""
        name = key[len(self._prefix) : -len(SET)]
        user, slash, session = name.partition("/")
        if slash:
            slot = Slot(None if user == ANONYMOUS else _USER.read(user), _SESSION.read(session))
        else:
            user, mark, session = name.rpartition(_NEXT)
            slot = Slot(_OF_1X.read(user) if mark else None, _OF_1X.read(session))
        # Whatever we would not write so is not ours to find.
        return slot if f"{self._prefix}{name}" in self.places(slot) else None


def _name(slot: Slot, layout: Layout) -> str:
    user, session = slot
    if layout == "2.x":
        return f"{ANONYMOUS if user is None else _USER.write(user)}/{_SESSION.write(session)}"
    return f"{'' if user is None else _OF_1X.write(user) + _NEXT}{_OF_1X.write(session)}"


class OfACluster:
    """Keys of our own, all that belongs to a user in one slot of a cluster."""

    def __init__(self, prefix: str) -> None:
        self._keys = Keys(prefix)

    def places(self, slot: Slot) -> list[str]:
        return [f"{self._keys.user(slot.user_id)}:state:{escape(slot.session_id)}"]

    def index(self, user_id: str | None) -> bytes:
        """Return the key of the set of a user's sessions."""
        return f"{self._keys.user(user_id)}:states".encode()


StateKeys = OfAgentScope | OfACluster
