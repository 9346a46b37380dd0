"""What AgentScope left in an older form: sessions that are read one at a time, from where nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, NamedTuple, Protocol

from leafward.core.session_key import SessionKey
from leafward.stores.leases import Slot
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import Layout

Text = str | bytes
Texts = dict[str, Text | list[Text]]
"""The values and lists of one session by name, as they are stored."""
Reading = Literal["guess", "literal", "encoded"]
"""How to take the name of a directory that may be an id, or else the encoding of another."""


class Place(NamedTuple):
    """Where something of one session is."""

    shown: str
    """The place as a person finds it, without secrets."""
    at: str
    """What it is called there."""


class Remark(NamedTuple):
    """What a person should know of a place."""

    shown: str
    """The place as a person finds it, without secrets."""
    text: str


class Older(Protocol):
    """What is left somewhere of AgentScope 1.x, and of its versions before 1.0.5, which had a document per session.

    What is wrong with one session alone raises `StateDecodeError`; anything else concerns them all.
    """

    @property
    def renamed(self) -> str | None:
        """The name that a table got, which had the name of one of today; or is to get."""
        ...

    async def count(self) -> int:
        """Return how many places and documents there are."""
        ...

    def places(self) -> AsyncIterator[Place]:
        """Find the places of 1.x sessions."""
        ...

    async def read(self, place: Place) -> tuple[Slot, Texts]:
        """Return what one place holds, and of which session."""
        ...

    def documents(self) -> AsyncIterator[Place]:
        """Find the documents of sessions, each called as its session is."""
        ...

    async def document(self, session_id: str) -> Text | None:
        """Return the document of a session, if there is one."""
        ...

    async def left_out(self) -> list[Remark]:
        """Return what may be a session and was not read: because it may be something else, or is superseded."""
        ...

    async def unclear(self) -> list[Remark]:
        """Return what was read as one session and may be another."""
        ...

    async def close(self) -> None: ...


class Held(Protocol):
    """Looks at a store of today, without making or changing anything."""

    async def held(self, slot: Slot, layout: Layout) -> Texts:
        """Return what is kept where a slot is written to in a layout."""
        ...


async def save_new_list(states: StateStore, key: SessionKey, name: str, texts: Sequence[str]) -> None:
    """Save a list under a name that holds nothing.

    Raises:
        StaleState: it holds something by now.
    """
    table = await states._table()  # pyright: ignore[reportPrivateUsage]
    await table.put_list(Slot(key.user_id, key.session_id), name, texts, None, fresh=True)


async def own_names(states: StateStore, key: SessionKey) -> dict[str, bool]:
    """Return what a slot holds itself, without what an older layout left: by name, whether it is a list."""
    table = await states._table()  # pyright: ignore[reportPrivateUsage]
    return await table.names(Slot(key.user_id, key.session_id))
