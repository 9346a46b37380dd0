"""How the directories and files of typed state may be named: AgentScope's names, and names that nothing else has.

Its 2.x has a directory for each session in one for each user, its 1.x one for each session. An id is taken as it is, or
written in base64; a state's name is the name of its files. A name of our own begins with a `~`, which neither does.
Which of the names a session has is told by what is there: `state_places`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from leafward.core.ids import refusal
from leafward.core.json import DecodeError, decode, encode, encode_text
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import ANONYMOUS, ESCAPE, LONGEST, SAFE, decoded, encoded, hashed
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

OWN = ".leafward"
"""How the names of our own files at the root begin."""
LEASES = f"{OWN}.sqlite"
"""The file at the root that keeps leases, and whose lock is that of the whole tree."""
IDS = "~ids"
"""The file in a session's directory that tells its user and session, where the name does not."""
VALUE, ITEMS, VERSION, MARK = ".json", ".jsonl", ".ver", ".hash"
_NAME = ".name"
_ENDINGS = (VALUE, VERSION, ITEMS, MARK, _NAME)
_UNFINISHED = ".tmp"
"""How the name of a file ends that Java has not finished."""
HASHED = ESCAPE + ESCAPE
_LONGEST_IDS = 4096


class NameFiles(NamedTuple):
    """The files of one state: of a value the first two, of a list the next."""

    value: Parts
    version: Parts
    items: Parts
    mark: Parts
    name: Parts
    """What the state is called, where its files have a hashed name."""


def is_literal(id: str) -> bool:
    """Tell whether AgentScope takes an id as it is."""
    return SAFE.fullmatch(id) is not None


@lru_cache(maxsize=4096)
def directory_names(id: str) -> tuple[str, ...]:
    """Return the names that the directory of an id may have: the one it is to have comes first.

    An encoded id has another one, in case that an id which is called like the encoding has the first. One that is
    taken as it is, but reads like an encoding, had another name before.
    """
    name = id if is_literal(id) else encoded(id)
    if name.startswith(OWN):
        name = ESCAPE + id
    if len(name) > LONGEST:
        return (hashed(id),)
    if not is_literal(id):
        return name, hashed(id)
    return (name, segment_before(id)) if decoded(id) is not None else (name,)


@lru_cache(maxsize=4096)
def segment_before(id: str) -> str:
    """Return the one name that an id had before the literal name of AgentScope was always its own."""
    name = encoded(id)
    if is_literal(id):
        name = ESCAPE + id if id.startswith(OWN) or decoded(id) is not None else id
    return name if len(name) <= LONGEST else hashed(id)


def id_before(name: str) -> str:
    """Return the id that had a name then."""
    return decoded(name) or name


@lru_cache(maxsize=4096)
def places_of(slot: Slot, layout: Layout) -> tuple[Parts, ...]:
    """Return the directories, from the root down, that may be a slot's: the one it is to have comes first."""
    sessions = directory_names(slot.session_id)
    if layout == "2.x":
        users = (ANONYMOUS,) if slot.user_id is None else directory_names(slot.user_id)
        return tuple((user, session) for user in users for session in sessions)
    if slot.user_id is None:
        return tuple((session,) for session in sessions)
    # 1.x knows no users.
    name = f"{ESCAPE}{segment_before(slot.user_id)}{ESCAPE}{segment_before(slot.session_id)}"
    # No id has the character that goes before what is hashed here.
    return ((name if name.count(ESCAPE) == 2 and len(name) <= LONGEST else hashed(f"\0{encode_text(slot)}"),),)


def may_be_encoded(name: str) -> bool:
    """Tell whether a name may be an encoding; then it may just as well be an id."""
    return decoded(name) is not None


def is_clear(name: str) -> bool:
    """Tell whether a name can only be that of the id that is called so."""
    return is_literal(name) and not may_be_encoded(name) and not name.startswith(OWN) and refusal(name) is None


def ids_to_keep(slot: Slot, place: Parts, layout: Layout, lying: Parts | None = None) -> dict[Parts, bytes]:
    """Return the file that tells which slot a directory is, where its name does not.

    It goes with the directory's files, which may be `lying` in another place still.
    """
    own = place[-2:] if layout == "2.x" else place[-1:]
    unclear = place[-1].startswith(HASHED) or any(map(may_be_encoded, own))
    return {(*(lying or place), IDS): encode(slot)} if unclear else {}


def read_ids(content: bytes) -> Slot | None:
    """Return the ids that are kept in a directory; anything else that is there tells nothing."""
    ids = _decoded(content)
    if not isinstance(ids, list) or len(cast(list[object], ids)) != 2:
        return None
    user_id, session_id = cast(list[Any], ids)
    fits = refusal(session_id) is None and (user_id is None or refusal(user_id) is None)
    return Slot(user_id, session_id) if fits else None


def read_id(content: bytes) -> str | None:
    """Return the one id that is kept in a directory."""
    id = _decoded(content)
    return id if isinstance(id, str) and refusal(id) is None else None


def _decoded(content: bytes) -> object:
    try:
        return decode(content) if len(content) <= _LONGEST_IDS else None
    except (ValueError, DecodeError, RecursionError):
        return None


def name_to_keep(files: NameFiles, name: str) -> dict[Parts, bytes]:
    """Return the file that tells what a state is called, where the names of its files do not."""
    return {files.name: name.encode()} if files.name[-1].startswith(HASHED) else {}


@lru_cache(maxsize=4096)
def _stem(name: str) -> str:
    longest = LONGEST - len(ITEMS) - len(_UNFINISHED)
    if len(name.encode()) <= longest and not name.startswith(ESCAPE) and "/" not in name and "\\" not in name:
        return name
    escaped = ESCAPE + encoded(name)
    return escaped if len(escaped) <= longest else hashed(name)


def files_of(place: Parts, name: str) -> NameFiles:
    """Return the files of a state's name in a slot."""
    stem = _stem(name)
    return NameFiles(*((*place, stem + ending) for ending in _ENDINGS))


def name_in(file: str, kept: Callable[[str], bytes | None]) -> str | None:
    """Return the name of the state that a file holds; `kept` reads a file beside it."""
    stem = file[: -len(VALUE)] if file.endswith(VALUE) else file.removesuffix(ITEMS)
    if stem.startswith(HASHED):
        name = (kept(stem + _NAME) or b"").decode(errors="replace")
    else:
        name = _decoded_name(stem) if stem.startswith(ESCAPE) else stem
    return name if refusal(name) is None and _stem(name) == stem else None


def _decoded_name(stem: str) -> str:
    padded = stem[1:] + "=" * (-len(stem[1:]) % 4)
    try:
        return urlsafe_b64decode(padded).decode()
    except ValueError:
        return ""


def is_state(file: str) -> bool:
    """Tell whether a file holds a value or a list."""
    return file.endswith((VALUE, ITEMS))


def lists_missing(files: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lists, as files of items and marks, of which a directory has only the marks."""
    there = set(files)
    stems = [file.removesuffix(MARK) for file in files if file.endswith(MARK)]
    return [(stem + ITEMS, stem + MARK) for stem in stems if stem + ITEMS not in there]


def is_of_a_slot(file: str) -> bool:
    """Tell whether a file goes when its slot does; somebody else's stays."""
    if file == IDS or (file.startswith(HASHED) and file.endswith(_NAME)):
        return True
    return file.removesuffix(_UNFINISHED).endswith((VALUE, VERSION, ITEMS, MARK))
