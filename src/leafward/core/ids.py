"""Which strings may be ids, who owns a row, and how fresh ids are made."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass

from leafward.core.errors import InvalidId

MAX_ID_LENGTH = 255
MAX_LABEL_LENGTH = 300
"""Room for a word and an id."""
RESERVED_PREFIX = "compaction_"
"""Ids of summaries in a history; no stored message may have such an id."""

_CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_REFUSED_NAMES = frozenset({".", "..", "__anon__"})


def refusal(value: object, longest: int = MAX_ID_LENGTH) -> str | None:
    """Say why `value` cannot be an id, or nothing when it can."""
    if not isinstance(value, str):
        return "an id is a string"
    if not value.strip():
        return "it is empty or blank"
    if len(value) > longest:
        return f"it is longer than {longest} characters"
    if _CONTROL_OR_SURROGATE.search(value):
        return "it holds a control character or a lone surrogate"
    if value in _REFUSED_NAMES:
        return "this name means something else on some backends"
    return None


def check_id(kind: str, value: object) -> str:
    """Return `value` if it may be an id.

    Raises:
        InvalidId: it may not; the text gives the reason.
    """
    reason = refusal(value)
    if reason is not None:
        raise InvalidId(kind, value, reason)
    assert isinstance(value, str)
    return value


def check_label(value: object) -> None:
    """Raise unless `value` may say who holds a lease.

    Raises:
        InvalidId: it may not; the text gives the reason.
    """
    reason = refusal(value, MAX_LABEL_LENGTH)
    if reason is not None:
        raise InvalidId("label", value, reason)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose conversations: one user of one agent. `user_id=None` is the anonymous user."""

    agent_id: str
    user_id: str | None

    def __post_init__(self) -> None:
        check_id("agent id", self.agent_id)
        if self.user_id is not None:
            check_id("user id", self.user_id)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which conversation: every row of it carries these three ids."""

    owner: Owner
    session_id: str

    def __post_init__(self) -> None:
        check_id("session id", self.session_id)

    @classmethod
    def of(cls, session_id: str, *, user_id: str | None = None, agent_id: str = "default") -> Scope:
        return cls(Owner(agent_id, user_id), session_id)


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)
_RANDOM_BITS = 78


class _Moments:
    """Microseconds that never repeat in this process, so that fresh ids sort as they were made."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            self._last = max(time.time_ns() // 1000, self._last + 1)
            return self._last


_moments = _Moments()


def new_id() -> str:
    """Return a fresh id of 26 letters and digits: 52 bits of time, 78 of chance."""
    number = _moments.next() << _RANDOM_BITS | int.from_bytes(os.urandom(10), "big") >> 2
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


class MessageIds:
    """The ids of the messages of one list, and others that none of them has."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._taken

    def add(self, id: str) -> None:
        self._taken.add(id)

    def made_of(self, *facts: object) -> str:
        """Return an id that no message has; until one has it, the same facts give the same id."""
        first = made = derived_id("msg", *facts, 1)
        if first in self._taken:
            # No id becomes free again, so the search goes on where the last one ended.
            number = self._numbers.get(first, 2)
            while (made := derived_id("msg", *facts, number)) in self._taken:
                number += 1
            self._numbers[first] = number
        return made


def derived_id(prefix: str, *facts: object) -> str:
    """Return an id that is the same whenever the facts are."""
    # Loaded when it is first needed: what is stored nearly always has an id.
    import hashlib

    digest = hashlib.blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{prefix}_{digest.hexdigest()}"
