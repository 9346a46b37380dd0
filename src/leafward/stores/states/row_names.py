"""How rows name slots: as AgentScope does where that is unambiguous, otherwise by a name that no other slot has.

AgentScope 2.x writes `user:session`, split at the first colon; 1.x the session alone. A name of our own begins with a
`~` and has no colon, which in 2.x no plain name is without, and holds nothing that a collation could fold.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256

from leafward.core.json import DecodeError, decode, encode
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

ANONYMOUS = "__anon__"
LONGEST = 255
HASH = ":_hash"
"""What stands behind the name of a list in the row that says it is one."""
IDS = HASH
"""The name under which a slot with a hashed name keeps its ids: that of a list without a name."""
SPELLED, HASHED = "~x", "~h"

_OURS = re.compile(r"~x([0-9a-f]{2})*|~h[0-9a-f]{64}")
_LIKE_OURS = re.compile(r"~[xh][0-9a-f]*")
_LIKE_A_HASH = re.compile(r".*:_h?a?s?h?", re.DOTALL)
_ESCAPES = re.compile("%(?:25|3A)")


@lru_cache(maxsize=1024)
def plain_name(slot: Slot, layout: Layout) -> str | None:
    """Return the name that AgentScope gives a slot; `None` where that would not be this slot's alone, or not fit."""
    if layout == "2.x":
        name = f"{_user(slot.user_id)}:{slot.session_id}"
    elif slot.user_id is None and not _is_ours(slot.session_id):
        name = slot.session_id
    else:
        return None
    return name if len(name) <= LONGEST else None


def looks_ours(name: str) -> bool:
    """Tell whether a name has the form of one of ours, as the session `~x61` of 1.x has."""
    return _OURS.fullmatch(name) is not None


def _is_ours(name: str) -> bool:
    """Tell whether a name may stand for other ids than itself."""
    if not looks_ours(name):
        return False
    slot = read_ids(name) if name.startswith(SPELLED) else None
    return name.startswith(HASHED) or (slot is not None and own_name(slot) == name)


def _user(user_id: str | None) -> str:
    if user_id is None:
        return ANONYMOUS
    if ":" not in user_id and not _ESCAPES.search(user_id):
        return user_id
    return user_id.replace("%", "%25").replace(":", "%3A")


@lru_cache(maxsize=1024)
def own_name(slot: Slot) -> str:
    """Return a name that no collation takes for another."""
    return _own(encode(slot))


def own_key(name: str) -> str:
    """Return the same for the name of a state."""
    return _own(name.encode())


def _own(content: bytes) -> str:
    spelled = f"{SPELLED}{content.hex()}"
    # There is to be room for the ending of a list's name.
    return spelled if len(spelled) + len(HASH) <= LONGEST else f"{HASHED}{sha256(content).hexdigest()}"


def plain_key(name: str) -> str | None:
    """Return the name of a state as AgentScope has it; `None` where it would not fit, or be taken for one of ours."""
    return None if len(name) + len(HASH) > LONGEST or _OURS.fullmatch(name) else name


def is_like_ours(name: str) -> bool:
    """Tell whether a table that folds names may take this one for a name of ours."""
    return _LIKE_OURS.fullmatch(_folded(name)) is not None


def is_like_a_hash(key: str) -> bool:
    """Tell whether such a table may take this one for the row that says a name is a list."""
    return _LIKE_A_HASH.fullmatch(_folded(key)) is not None


def _folded(name: str) -> str:
    # What is not ASCII even then is ignored by some collations, and a letter to others: those who ask allow for both.
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().rstrip().lower()


def read_key(key: str) -> str | None:
    """Return the name of a state by what stands in its row; `None` for ids, and for a name that was too long."""
    if not key or (key.startswith(HASHED) and _OURS.fullmatch(key)):
        return None
    try:
        return bytes.fromhex(key[len(SPELLED) :]).decode() if _OURS.fullmatch(key) else key
    except UnicodeDecodeError:
        # Somebody else's, who names states so.
        return key


def user_prefix(user_id: str | None) -> str:
    """Return what the plain names of all slots of a user begin with in 2.x."""
    return f"{_user(user_id)}:"


def read_ids(spelled: str) -> Slot | None:
    """Return the slot of a name of ours, or of the ids that are kept beside a hashed one; `None` if it is neither."""
    try:
        content = bytes.fromhex(spelled[len(SPELLED) :]) if spelled.startswith(SPELLED) else spelled.encode()
        user_id, session_id = decode(content)
    except (ValueError, TypeError, DecodeError):
        return None
    are_ids = isinstance(session_id, str) and (user_id is None or isinstance(user_id, str))
    return Slot(user_id, session_id) if are_ids else None


def write_ids(slot: Slot) -> str:
    return encode(slot).decode()
