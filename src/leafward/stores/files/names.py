"""File names for ids: different ids have different names, and AgentScope's names where these can be told apart.

AgentScope takes letters, digits, `_`, `.` and `-` as they are and writes everything else in base64. An id whose name
would be that of another, or mean something else here, is written behind a `~`, which AgentScope never uses.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256

from leafward.core.ids import Scope, new_id, refusal

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


@lru_cache(maxsize=4096)
def name_of(id: str, ending: str = "") -> str:
    """Return the name of a file or directory for an id."""
    name = encoded(id)
    if SAFE.fullmatch(id):
        name = ESCAPE + id if _is_ambiguous(id) else id
    return (name if len(name) + len(ending) <= LONGEST else hashed(id)) + ending


def encoded(text: str) -> str:
    """Return a text as AgentScope writes an id that has other characters."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def hashed(text: str) -> str:
    """Return a name for a text whose other names are too long."""
    return f"{ESCAPE}{ESCAPE}{sha256(text.encode()).hexdigest()}"


def _is_ambiguous(id: str) -> bool:
    # A context file of AgentScope for the id "a.log" would be the journal of "a".
    return id.startswith((".", INDEX)) or id.endswith(".log") or decoded(id) is not None


def decoded(name: str) -> str | None:
    """Return the id that is encoded to a name, if there is one."""
    try:
        id = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return None
    return id if refusal(id) is None and not SAFE.fullmatch(id) and encoded(id) == name else None


def user_name(user_id: str | None) -> str:
    return ANONYMOUS if user_id is None else name_of(user_id)


def owner_parts(agent_id: str, user_id: str | None) -> tuple[str, ...]:
    """Return the directories, from the root down, below which all of an owner's files are."""
    return user_name(user_id), "agents", name_of(agent_id)


def session_parts(scope: Scope) -> tuple[str, ...]:
    """Return the directories, from the root down, and last the file of a session's journal."""
    owner = scope.owner
    return *owner_parts(owner.agent_id, owner.user_id), "sessions", name_of(scope.session_id, JOURNAL)


def shared_parts(agent_id: str, user_id: str | None) -> tuple[str, ...]:
    """Return the same for the journal that an owner's sessions share; it is not where those of sessions are."""
    return *owner_parts(agent_id, user_id), "shared" + JOURNAL


def aside(journal: str, kind: str, number: int) -> str:
    """Return the name of a file that is kept beside a journal; `kind` is one of `ASIDE`."""
    return f"{_beside(journal)}.{kind}-{number}"


def is_aside(journal: str, name: str) -> bool:
    """Tell whether a name is that of a file kept beside a journal."""
    return re.fullmatch(re.escape(_beside(journal)) + rf"\.({'|'.join(ASIDE)})-[0-9]+", name) is not None


def _beside(journal: str) -> str:
    return journal if len(journal) <= LONGEST - len(".damaged-99999") else hashed(journal) + JOURNAL


def temporary() -> tuple[str, str]:
    """Return where a file may be that is not whole yet, or about to go; at the next opening it is removed."""
    return UNFINISHED, new_id()
