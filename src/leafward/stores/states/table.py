"""What a backend does for typed state: texts by slot and name, each call one atomic step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeGuard

from leafward.core.errors import ConfigurationError, InvalidId, StateDecodeError
from leafward.core.ids import check_id
from leafward.core.json import decode_leniently, encode_text
from leafward.core.pretty import with_escapes
from leafward.stores.leases import Fence, Slot

_OF_THE_LAYOUTS = re.compile(r".*:_hash|.*:list|.*:ver|.*:sum|(.*:)?_keys", re.DOTALL)

Layout = Literal["1.x", "2.x"]

EMPTY = "empty:0"
"""What says, beside a list, that it is empty; Java writes the same."""
FILLED = "py:content"
"""What says that it is not; no hash that Java computes is so, whereupon it trusts nothing and writes the list anew."""
LONG = 300_000
"""Characters of a text whose checksum takes longer than handing it to a thread."""
OF_SANDBOXES = "_sandbox_state"
"""Java keeps the state of sandboxes in slots that are nobody's sessions."""


class Stored(NamedTuple):
    """A value as stored, and its version."""

    text: str | bytes
    version: int


class LaysOut(Protocol):
    """A value as JSON that is laid out when it is asked for."""

    def laid_out(self) -> str: ...


class KeepsLaidOut(Protocol):
    """A table that keeps values laid out for people, and does so where no one waits for it."""

    async def put_laid_out(
        self, slot: Slot, name: str, value: LaysOut, expected: int | None, fence: Fence | None
    ) -> int:
        """Store a value as `StateTable.put` does."""
        ...


class StateTable(Protocol):
    """Keeps texts, each a JSON object, as values with versions and as lists.

    Ids and names are checked already. A write behind a fence that does not hold raises `LeaseLost`.
    """

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        """Return a value; a name that holds a list raises `holds_list`.

        Without `versioned` nobody asks for the version: it may be 0, and a read leaves no trace. With it, a backend may
        note which value it gave this version to, so that a later save by Java is another version.
        """
        ...

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        """Store a value in place of what the name holds, and return its version.

        With `expected`, 0 for nothing at all, a value at another version raises `StaleState`, and so does a list.
        """
        ...

    async def get_list(self, slot: Slot, name: str) -> Sequence[str | bytes]:
        """Return the items of a list, none where there is no such list; a name that holds a value raises."""
        ...

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        """Store a list in place of what the name holds; of one that begins with the stored one, only the rest.

        With `fresh`, a name that holds anything raises `StaleState`.
        """
        ...

    async def exists(self, slot: Slot) -> bool: ...

    async def names(self, slot: Slot) -> dict[str, bool]:
        """Return what is kept where the slot is written to, without what an older layout left: by name, whether it is
        a list."""
        ...

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        """Remove what a name holds, or all that the slot does."""
        ...

    async def forget(self, slot: Slot) -> bool:
        """Remove all that the slot holds, and tell whether that was anything; where nothing can be kept, nothing is."""
        ...

    async def sessions(self, user_id: str | None) -> set[str]:
        """Return the ids of the user's sessions that have anything stored."""
        ...


class LooksBeside(Protocol):
    """A table that tells in the same read as a value whether other names hold anything."""

    async def get_beside(self, slot: Slot, name: str, others: Sequence[str]) -> tuple[Stored | None, bool]:
        """Return a value with its version, as `get` does, and whether any of the other names may hold something."""
        ...


# An `isinstance` with a protocol takes a hundred times as long, at each call of an agent.


def keeps_laid_out(table: StateTable) -> TypeGuard[KeepsLaidOut]:
    return hasattr(table, "put_laid_out")


def looks_beside(table: StateTable) -> TypeGuard[LooksBeside]:
    return hasattr(table, "get_beside")


def check_name(name: str) -> str:
    """Return the name of a state if it may be one."""
    check_id("state name", name)
    if _OF_THE_LAYOUTS.fullmatch(name):
        raise InvalidId("state name", name, "the layouts use such names for themselves")
    return name


def check_layout(layout: str) -> Layout:
    if layout not in ("1.x", "2.x"):
        raise ConfigurationError(f"layout is '2.x' or '1.x', not {layout!r}")
    return layout


def common_items(stored: Sequence[str | bytes], wanted: Sequence[str]) -> int:
    """Return how many items the two lists begin with alike, whoever wrote the stored ones."""
    for index, (old, new) in enumerate(zip(stored, wanted, strict=False)):
        if old != new and _rewritten(old) != new:
            return index
    return min(len(stored), len(wanted))


def _rewritten(text: str | bytes) -> str | None:
    """Return a stored text as we would write it; `None` where it is damaged."""
    try:
        return with_escapes(encode_text(decode_leniently(text)))
    except ValueError:
        return None


def holds_list(slot: Slot, name: str) -> StateDecodeError:
    return StateDecodeError(slot.user_id, slot.session_id, name, "it is a list: read it with get_list()")


def holds_value(slot: Slot, name: str) -> StateDecodeError:
    return StateDecodeError(slot.user_id, slot.session_id, name, "it is a single value: read it with get()")
