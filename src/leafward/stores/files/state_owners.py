"""Whose a session's directory is, by what is in it.

AgentScope gives two ids one directory where one of them is called like the encoding of the other. What we made, we mark
with its ids. What AgentScope made is never claimed: it is of the ids in its `agent_state.json`, and without these it is
unclear, so that both ids may be meant, as in Java, or only the literal one where an encoding is unlikely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from leafward.core.ids import refusal
from leafward.core.json import DecodeError, decode, encode
from leafward.stores.files import state_lists as lists
from leafward.stores.files import state_names as names
from leafward.stores.files.names import decoded, is_likely_encoded
from leafward.stores.files.state_names import IDS
from leafward.stores.files.state_tree import is_saved_by_us
from leafward.stores.leases import Slot
from leafward.stores.states.table import EMPTY

STATE = "agent_state" + names.VALUE
"""What AgentScope 2.x keeps of a session; it begins with the ids."""
_STATE_VERSION = "agent_state" + names.VERSION
_BEGINNING = 4096
_USER_ID, _SESSION_ID = (
    re.compile(rb'"' + key + rb'"\s*:\s*("(?:[^"\\]|\\.)*")') for key in (b"user_id", b"session_id")
)

Beginning = Callable[[str, int], bytes]
"""Returns the first bytes of a file in a directory; none when it is not there."""
Unclear = tuple[str | None, str | None]
"""The names of a session's user and of itself, as far as they may be encodings."""


class Noted(NamedTuple):
    """Whose a directory is by what is in it; `None` is what nothing tells, or what the name tells alone."""

    user_id: str | None = None
    session_id: str | None = None


_NOTHING = Noted()


def noted(unclear: Unclear, files: Sequence[str], beginning: Beginning, *, asked: Noted | None = None) -> Noted:
    """Return whose a directory is, as far as its name leaves that open.

    What makes no difference to who is `asked` for need not be found out: it costs a look at further files.
    """
    if unclear == (None, None):
        return _NOTHING
    mark = _mark(beginning) if IDS in files else None
    if isinstance(mark, Slot):
        known = _fitting(unclear, Noted(*mark))
        return known if _is_all(unclear, known) else _either(known, _by_java(unclear, files, beginning))
    if mark is not None:
        # What we saved there ourselves says nothing about whose it was.
        is_ours = _STATE_VERSION in files and is_saved_by_us(beginning(_STATE_VERSION, _BEGINNING))
        return _either(_NOTHING if is_ours else _by_java(unclear, files, beginning), _fitting(unclear, mark))
    known = _by_java(unclear, files, beginning)
    before = Noted(*(None if name is None else decoded(name) for name in unclear))
    either = _either(known, before)
    if either == known or (asked is not None and all(map(_is_found_anyway, unclear, known, before, asked))):
        return known
    return either if is_from_before(files, beginning) else known


def _is_found_anyway(name: str | None, known: str | None, before: str | None, asked: str | None) -> bool:
    return name is None or known is not None or (asked == before and is_likely_encoded(name))


def is_free(files: Sequence[str]) -> bool:
    """Tell whether a directory is any id's, because nothing is in it."""
    return not any(map(names.is_of_a_slot, files))


def may_be(name: str | None, told: str | None, id: str | None) -> bool:
    """Tell whether an id may be meant by a name of which something or nothing is told."""
    if name is None or told is not None:
        return told in (None, id)
    return id == name or (is_likely_encoded(name) and id == decoded(name))


def most_likely(name: str, told: str | None) -> str:
    """Return the id that a name is listed as."""
    return told or (decoded(name) if is_likely_encoded(name) else None) or name


def ids_of_two(unclear: Unclear, files: Sequence[str], beginning: Beginning) -> tuple[str, str] | None:
    """Return our id and AgentScope's if both keep different sessions in a directory that we made."""
    mark = _mark(beginning) if IDS in files and STATE in files else None
    if not isinstance(mark, Slot):
        return None
    for ours, theirs in zip(_fitting(unclear, Noted(*mark)), _by_java(unclear, files, beginning), strict=True):
        if ours is not None and theirs is not None and ours != theirs:
            return ours, theirs
    return None


def to_mark(slot: Slot, unclear: Unclear, files: Sequence[str], beginning: Beginning) -> bytes | None:
    """Return what is to be kept in a directory before a slot is saved there; `None` if it is there already.

    What we made is marked as the slot's. What was found is marked as such, with the ids that AgentScope tells: after
    our save there may be nothing left to tell that it was not ours.
    """
    mark = _mark(beginning) if IDS in files else None
    if mark == slot or isinstance(mark, Noted):
        return None
    # A note that does not fit the name tells nothing.
    others = [file for file in files if file != IDS]
    if is_free(others) or is_from_before(others, beginning):
        return encode(slot)
    known = noted(unclear, others, beginning)._asdict()
    return encode({key: id for key, id in known.items() if id is not None})


def kept_ids(beginning: Beginning) -> Slot | None:
    """Return the ids that we keep in a directory that we made."""
    return names.read_ids(beginning(IDS, _BEGINNING))


def is_from_before(files: Sequence[str], beginning: Beginning) -> bool:
    """Tell whether we made a directory before there were marks: it then was of the id that is encoded so."""
    is_ours = any(_is_ours(beginning, file) for file in files)
    return IDS not in files and is_ours and not has_sign_of_java(files, beginning)


def has_sign_of_java(files: Sequence[str], beginning: Beginning) -> bool:
    """Tell whether anything but leafward has saved in a directory."""
    there = {*files}
    for file in files:
        if file.endswith(names.VALUE):
            version = file.removesuffix(names.VALUE) + names.VERSION
            if version not in there or not is_saved_by_us(beginning(version, _BEGINNING)):
                return True
        elif file.endswith(names.ITEMS):
            if file.removesuffix(names.ITEMS) + names.MARK not in there:
                return True
        elif file.endswith(names.MARK):
            mark = beginning(file, _BEGINNING)
            if not lists.is_ours(mark) and mark.strip() != EMPTY.encode():
                return True
    return False


def _is_ours(beginning: Beginning, file: str) -> bool:
    if file.endswith(names.VERSION):
        return is_saved_by_us(beginning(file, _BEGINNING))
    return file.endswith(names.MARK) and lists.is_ours(beginning(file, _BEGINNING))


def _mark(beginning: Beginning) -> Slot | Noted | None:
    """Return what is kept in a directory: the ids of one that we made, or what was known of one that was found."""
    content = beginning(IDS, _BEGINNING)
    if not content.startswith(b"{"):
        return names.read_ids(content)
    with suppress(ValueError, DecodeError, RecursionError):
        found = decode(content)
        known = cast(dict[str, object], found) if isinstance(found, dict) else {"": None}
        if {*known} <= {*Noted._fields} and all(refusal(id) is None for id in known.values()):
            return Noted(**cast(dict[str, str], known))
    return None


def _by_java(unclear: Unclear, files: Sequence[str], beginning: Beginning) -> Noted:
    if STATE not in files:
        return _NOTHING
    ids = beginning(STATE, _BEGINNING).partition(b'"context"')[0]
    user, session = unclear
    return Noted(_told(user, _USER_ID, ids), _told(session, _SESSION_ID, ids))


def _told(name: str | None, pattern: re.Pattern[bytes], ids: bytes) -> str | None:
    """Return the id in a text of AgentScope's that an unclear name may stand for."""
    found = None if name is None else pattern.search(ids)
    if found is not None:
        with suppress(ValueError, DecodeError):
            id = decode(found[1])
            return id if isinstance(id, str) and _fits(name, id) else None
    return None


def _fitting(unclear: Unclear, ids: Noted) -> Noted:
    """Return those ids that unclear names may stand for."""
    user, session = unclear
    return Noted(
        ids.user_id if _fits(user, ids.user_id) else None, ids.session_id if _fits(session, ids.session_id) else None
    )


def _fits(name: str | None, id: str | None) -> bool:
    return name is not None and id is not None and (id == name or id == decoded(name))


def _is_all(unclear: Unclear, known: Noted) -> bool:
    return (unclear[0] is None or known[0] is not None) and (unclear[1] is None or known[1] is not None)


def _either(first: Noted, other: Noted) -> Noted:
    return Noted(first.user_id or other.user_id, first.session_id or other.session_id)
