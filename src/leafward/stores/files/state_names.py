"""Where typed state lies: AgentScope's names where these can be told apart, otherwise names that nothing else has.

Its 2.x has a directory for each session in one for each user, its 1.x one for each session. An id is taken as it is, or
written in base64; a state's name is the name of its files. A name of our own begins with a `~`, which neither does.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from leafward.core.ids import refusal
from leafward.core.json import DecodeError, decode, encode, encode_text
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import ANONYMOUS, ESCAPE, LONGEST, SAFE, decoded, encoded, hashed
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

OWN = ".leafward"
"""How the names of our own files at the root begin."""
IDS = "~ids"
"""The file that keeps the ids of a slot whose directory has a hashed name."""
VALUE, ITEMS = ".json", ".jsonl"
_VERSION, _MARK, _NAME = ".ver", ".hash", ".name"
_ENDINGS = (VALUE, _VERSION, ITEMS, _MARK, _NAME)
_UNFINISHED = ".tmp"
"""How the name of a file ends that Java has not finished."""
_HASHED = ESCAPE + ESCAPE


class NameFiles(NamedTuple):
    """The files of one state: of a value the first two, of a list the next."""

    value: Parts
    version: Parts
    items: Parts
    mark: Parts
    name: Parts
    """What the state is called, where its files have a hashed name."""


@lru_cache(maxsize=4096)
def segment(id: str) -> str:
    """Return the name of a directory for an id."""
    name = encoded(id)
    if SAFE.fullmatch(id):
        name = ESCAPE + id if id.startswith(OWN) or decoded(id) is not None else id
    return name if len(name) <= LONGEST else hashed(id)


def user_segment(user_id: str | None) -> str:
    return ANONYMOUS if user_id is None else segment(user_id)


@lru_cache(maxsize=4096)
def place_of(slot: Slot, layout: Layout) -> Parts:
    """Return the directories, from the root down, of a slot."""
    if layout == "2.x":
        return user_segment(slot.user_id), segment(slot.session_id)
    if slot.user_id is None:
        return (segment(slot.session_id),)
    # 1.x knows no users.
    name = f"{ESCAPE}{segment(slot.user_id)}{ESCAPE}{segment(slot.session_id)}"
    # No id has the character that goes before what is hashed here.
    return (name if name.count(ESCAPE) == 2 and len(name) <= LONGEST else hashed(f"\0{encode_text(slot)}"),)


def ids_to_keep(slot: Slot, home: Parts) -> dict[Parts, bytes]:
    """Return the file that tells which slot a directory is, where its name does not."""
    return {(*home, IDS): encode(slot)} if home[-1].startswith(_HASHED) else {}


def name_to_keep(files: NameFiles, name: str) -> dict[Parts, bytes]:
    """Return the same for the files of a state."""
    return {files.name: name.encode()} if files.name[-1].startswith(_HASHED) else {}


def slot_in(place: Parts, user_id: str | None, layout: Layout, kept: Callable[[], bytes]) -> Slot | None:
    """Return which slot of a user a directory is, if it is one; `kept` reads the ids that are kept in it."""
    name = place[-1]
    if name.startswith(_HASHED):
        slot = _read_ids(kept())
    elif layout == "1.x" and name.count(ESCAPE) == 2:
        _, user, session = name.split(ESCAPE)
        slot = Slot(_id_of(user), _id_of(session))
    else:
        session_id = name[1:] if name.startswith(ESCAPE) else _id_of(name)
        slot = Slot(user_id if layout == "2.x" else None, session_id)
    fits = slot is not None and slot.user_id == user_id and refusal(slot.session_id) is None
    return slot if fits and place_of(slot, layout) == place else None


def _id_of(name: str) -> str:
    return decoded(name) or name


def _read_ids(content: bytes) -> Slot | None:
    try:
        user_id, session_id = decode(content)
    except (ValueError, TypeError, DecodeError):
        return None
    return Slot(user_id, session_id)


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
    if stem.startswith(_HASHED):
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
    stems = [file.removesuffix(_MARK) for file in files if file.endswith(_MARK)]
    return [(stem + ITEMS, stem + _MARK) for stem in stems if stem + ITEMS not in files]


def is_of_a_slot(file: str) -> bool:
    """Tell whether a file goes when its slot does; somebody else's stays."""
    if file == IDS or (file.startswith(_HASHED) and file.endswith(_NAME)):
        return True
    return file.removesuffix(_UNFINISHED).endswith((VALUE, _VERSION, ITEMS, _MARK))
