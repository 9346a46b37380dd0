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
_LONG = 10
"""Characters of a name from which on it may encode any text that can be printed."""
_SHORT = 4
"""Characters of a name that encodes three bytes; below that, no encoding is taken for likely."""
_LITERAL = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
"""Numbers, hexadecimal numbers and UUIDs."""
_WORD = re.compile(r"[a-z]*(?:[A-Z][a-z]{2,})*|[A-Z]+")
"""Words: `acme`, `User`, `UserList`, `ABC`."""
_PLAIN = r" -~"
_SEPARATED = re.compile(r"[A-Za-z0-9 :/@._#|+%-]+")
"""Letters and digits with the usual separators."""
_SIGNS = r"\xa0-\xbf\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2100-\u214f\u2460-\u24ff\u3000-\u303f\uff00-\uffef"
"""Signs that are written between letters of any script: quotes, dashes, currencies, numbers in circles."""
_SCRIPTS = (
    r"\xc0-\u024f\u1e00-\u1eff",  # Latin, with Vietnamese
    r"\u0386-\u03ce",  # Greek
    r"\u0400-\u045f\u0490-\u04ff",  # Cyrillic
    r"\u0591-\u05f4",  # Hebrew
    r"\u060c-\u06ff\u200c\u200d",  # Arabic
    r"\u0900-\u097f\u200c\u200d",  # Hindi
    r"\u0e01-\u0e5b",  # Thai
    r"\u3005\u3040-\u30ff\u4e00-\u9fff",  # Japanese and Chinese
    r"\uac00-\ud7a3",  # Korean
    r"\u2600-\u27bf\u200d\ufe0f\U0001f000-\U0001faff",  # Emoji
)
_ONE_SCRIPT = re.compile("|".join(f"[{_PLAIN}{script}{_SIGNS}]+" for script in _SCRIPTS))
"""Text in one script besides plain ASCII; what a word decodes to by chance mixes them."""
_ENDS = re.compile(r"[^\W_].*[^\W_]|.*[^ -~].*", re.DOTALL)
"""Text that begins and ends with a letter or digit, or is not ASCII."""
_THREE_BYTES = re.compile(rf"[A-Za-z0-9][{_PLAIN}][A-Za-z0-9]|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]")
_THREE_BYTES_OF_A_WORD = re.compile(r"[A-Za-z0-9][ :/@][A-Za-z0-9]")
_NOT_PRINTED = re.compile(r"[\xa0\xad\u2000-\u200f\u202f\u3000]")
"""Spaces and joiners that ids of some scripts have, and that Python does not count as printable."""


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
    """Tell whether a name that may be an encoding is taken for one: lookups, listings, saves and `migrate` ask this.

    Of random names of 4 characters up to 10 in 1,000 are taken for an encoding, of longer ones up to 4 in 1,000.
    Numbers, also hexadecimal ones, and UUIDs never are.
    """
    text = decoded(name)
    if text is None or len(name) < _SHORT or _LITERAL.fullmatch(name):
        return False
    is_word = _WORD.fullmatch(name) is not None
    if len(name) == _SHORT:
        return (_THREE_BYTES_OF_A_WORD if is_word else _THREE_BYTES).fullmatch(text) is not None
    if is_word and not _SEPARATED.fullmatch(text):
        return False
    if len(name) >= _LONG and not is_word:
        return _NOT_PRINTED.sub("", text).isprintable()
    return _ONE_SCRIPT.fullmatch(text) is not None and _ENDS.fullmatch(text) is not None


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
