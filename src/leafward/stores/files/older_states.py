"""Files that AgentScope's documents name otherwise than its code, and files of its versions before 1.0.5."""

from __future__ import annotations

from typing import cast

from leafward.core.errors import StateDecodeError
from leafward.core.json import decode_leniently, encode_text
from leafward.core.legacy_state import MESSAGES, PLAN, read_legacy, read_legacy_messages
from leafward.core.pretty import pretty
from leafward.stores.files import state_lists as lists
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import LONGEST
from leafward.stores.files.state_names import VALUE, files_of, name_to_keep
from leafward.stores.files.state_tree import StateTree
from leafward.stores.leases import Slot

_VALUES = {PLAN: "plan_notebook"}
"""How the documents name the file of a value."""
_LISTS = {MESSAGES: "memory"}
"""And that of a list, which is one document there."""
NAMES = _VALUES | _LISTS
"""The states whose files the documents name otherwise."""


def value_file(tree: StateTree, place: Parts, name: str) -> Parts | None:
    """Return the other file that may hold a value, if it is there."""
    return _other_file(tree, place, _VALUES.get(name))


def list_file(tree: StateTree, slot: Slot, place: Parts, name: str) -> tuple[Parts, list[str]] | None:
    """Return the other file that may hold a list, if it is there and does, and its items."""
    parts = _other_file(tree, place, _LISTS.get(name))
    data = None if parts is None else tree.read(parts)
    if parts is None or data is None:
        return None
    try:
        found = decode_leniently(data)
        messages: object = cast(dict[str, object], found).get("messages") if isinstance(found, dict) else found
        if not isinstance(messages, list):
            return None
        return parts, [encode_text(one) for one in read_legacy_messages(cast(list[object], messages), "messages")]
    except (ValueError, StateDecodeError) as error:
        raise _undecoded(tree, slot, name, parts, error) from error


def other_files(tree: StateTree, slot: Slot, place: Parts, name: str) -> list[Parts]:
    """Return the other files of a state, also if it cannot be read."""
    parts = _other_file(tree, place, NAMES.get(name))
    try:
        of_another = name in _LISTS and list_file(tree, slot, place, name) is None
    except StateDecodeError:
        of_another = False
    return [] if parts is None or of_another else [parts, files_of(place, NAMES[name]).version]


def _other_file(tree: StateTree, place: Parts, stem: str | None) -> Parts | None:
    """Return the file that documents give a state, unless it is of a state that has this name with us."""
    if stem is None:
        return None
    files = files_of(place, stem)
    return files.value if tree.has(files.value) and not tree.is_ours(files) else None


def session_file(tree: StateTree, slot: Slot) -> Parts | None:
    """Return the one file of a session, as it was before 1.0.5, if it is there."""
    name = slot.session_id + VALUE
    if slot.user_id is not None or "/" in name or len(name.encode()) > LONGEST:
        return None
    return (*tree.root, name) if tree.has((*tree.root, name)) else None


def sessions(tree: StateTree) -> set[str]:
    """Return the sessions that have such a file."""
    return {file.removesuffix(VALUE) for file in tree.folder.files(tree.root) if file.endswith(VALUE)}


def states_in(tree: StateTree, slot: Slot, parts: Parts, place: Parts) -> dict[Parts, bytes]:
    """Return the files that a session's one file amounts to, to be put in its place."""
    try:
        states = read_legacy(decode_leniently(tree.read(parts) or b""))
    except (ValueError, StateDecodeError) as error:
        raise _undecoded(tree, slot, None, parts, error) from error
    written: dict[Parts, bytes] = {}
    for name, state in states.items():
        files = files_of(place, name)
        written |= name_to_keep(files, name)
        if isinstance(state, dict):
            written[files.value] = pretty(encode_text(state)).encode()
        else:
            lines = lists.to_lines(encode_text(item) for item in state)
            written |= {files.mark: lists.mark_of(lines).encode(), files.items: lines}
    return written


def _undecoded(
    tree: StateTree, slot: Slot, name: str | None, parts: Parts, error: ValueError | StateDecodeError
) -> StateDecodeError:
    reason = error.reason if isinstance(error, StateDecodeError) else str(error)
    return StateDecodeError(*slot, name, f"{tree.folder.shown(parts)}: {reason}")
