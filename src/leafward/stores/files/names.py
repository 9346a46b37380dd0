"""File names for ids, as AgentScope names them.

AgentScope takes letters, digits, `_`, `.` and `-` as they are and writes everything else in base64, so two ids may have
one name: `acme` is an id, and the encoding of another. Such an id has a second name, which AgentScope never uses.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from leafward.core.ids import new_id, refusal

ANONYMOUS = "__anon__"
"""The directory of the anonymous user; no id is so."""
JOURNAL = ".log.jsonl"
"""How the name of a journal ends."""
INDEX = "index.sqlite"
LOCK = ".lock"
UNFINISHED = ".unfinished"
"""The directory of files that are not whole yet; no user's begins with a dot."""
ASIDE = ("torn", "damaged")
"""The kinds of files that are kept beside a journal."""

STATES = ".states"
"""The directory of typed state."""

ESCAPE = "~"
"""What a name of our own begins with."""
LONGEST = 255
"""Bytes of a name that a system allows."""
SAFE = re.compile(r"[A-Za-z0-9_.-]+")
_SHORTEST = 8
"""Characters of a name below which an encoding is not guessed: words and numbers are such names too often."""
_LONG = 16
"""Characters of a name from which on any punctuation may be in what it encodes."""
_LETTERS = r"\u00c0-\u024f\u0386-\u03ce\u0410-\u0451\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
"""Letters of Latin, Greek, Cyrillic, Japanese, Chinese and Korean; a number does not decode to these by chance."""
_PLAIN = re.compile(rf"[A-Za-z0-9 :/@._{_LETTERS}-]+|\{{\".*\}}")
_PRINTED = re.compile(rf"[ -~{_LETTERS}\u3000-\u303f\uff00-\uffef]+")


class Names(NamedTuple):
    """The names that a file or directory of an id may have; mostly they are one."""

    home: str
    """The name as AgentScope gives it."""
    unique: str
    """A name that no other id has, for an id whose `home` may also be that of an id that is not encoded."""
    old: str
    """The name that leafward gave before it left ids that look like an encoding as they are."""


@lru_cache(maxsize=4096)
def names_of(id: str, ending: str = "") -> Names:
    """Return the names of a user's directory or a session's file."""
    if SAFE.fullmatch(id):
        name = id + ending
        # A context file of AgentScope for the id "a.log" would be the journal of "a".
        reserved = id.startswith((".", INDEX)) or id.endswith(".log")
        old = ESCAPE + name if reserved or decoded(id) is not None else name
        if len(old) > LONGEST:
            old = hashed(id) + ending
        return Names(old, old, old) if reserved or len(name) > LONGEST else Names(name, name, old)
    unique = hashed(id) + ending
    name = encoded(id) + ending
    return Names(name, unique, name) if len(name) <= LONGEST else Names(unique, unique, unique)


@lru_cache(maxsize=4096)
def agent_names(agent_id: str) -> Names:
    """Return the names of an agent's directory, which AgentScope does not encode."""
    names = names_of(agent_id)
    encoded = "/" in agent_id or agent_id.startswith((ESCAPE, ".")) or len(agent_id.encode()) > LONGEST
    return names if encoded else Names(agent_id, agent_id, names.old)


def user_names(user_id: str | None) -> Names:
    return Names(ANONYMOUS, ANONYMOUS, ANONYMOUS) if user_id is None else names_of(user_id)


def encoded(text: str) -> str:
    """Return a text as AgentScope writes an id that has other characters."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def hashed(text: str) -> str:
    """Return a name for a text whose other names are too long."""
    return f"{ESCAPE}{ESCAPE}{sha256(text.encode()).hexdigest()}"


@lru_cache(maxsize=4096)
def decoded(name: str) -> str | None:
    """Return the id that is encoded to a name, if there is one."""
    try:
        id = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return None
    return id if refusal(id) is None and not SAFE.fullmatch(id) and encoded(id) == name else None


@lru_cache(maxsize=4096)
def is_likely_encoded(name: str) -> bool:
    """Tell whether a name that may be an encoding is one more likely than an id.

    Of 10,000 random names of 8 characters 6 are taken for an encoding, of longer ones less than 1.
    """
    text = decoded(name)
    if text is None or len(name) < _SHORTEST:
        return False
    return _PLAIN.fullmatch(text) is not None or (len(name) >= _LONG and _PRINTED.fullmatch(text) is not None)


def aside(journal: str, kind: str, number: int) -> str:
    """Return the name of a file that is kept beside a journal; `kind` is one of `ASIDE`."""
    return f"{_beside(journal)}.{kind}-{number}"


def is_aside(journal: str, name: str) -> bool:
    """Tell whether a name is that of a file kept beside a journal."""
    return re.fullmatch(re.escape(_beside(journal)) + rf"\.({'|'.join(ASIDE)})-[0-9]+", name) is not None


def kind_of(aside: str) -> str:
    """Return the kind of a file that is kept beside a journal."""
    return aside.rpartition(".")[2].partition("-")[0]


def _beside(journal: str) -> str:
    return journal if len(journal) <= LONGEST - len(".damaged-99999") else hashed(journal) + JOURNAL


def temporary() -> tuple[str, str]:
    """Return where a file may be that is not whole yet, or about to go; at the next opening it is removed."""
    return UNFINISHED, new_id()
