"""`StateTable` for a backend that keeps all states of a user in one JSON document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from leafward.core.errors import StaleState
from leafward.stores.gate import Gate
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, Slot
from leafward.stores.states.table import OF_SANDBOXES, Stored, holds_list, holds_value

T = TypeVar("T")

STATES = "states"
"""Under what name of the document they are; all others are the backend's own."""


class ChangesDocuments(Protocol):
    """Replaces a document in one atomic step."""

    async def __call__(self, user_id: str | None, change: Callable[[dict[str, Any]], T], fence: Fence | None) -> T:
        """Apply `change`, which alters what it is given, to what is stored, and return what it returns.

        It may be applied more than once, to what is stored then; when it raises, nothing is stored.

        Raises:
            LeaseLost: the fence does not hold.
            OutcomeUnknown: nobody knows whether the document was replaced.
        """
        ...


class DocumentStates:
    """Reads a user's document, empty if there is none yet, or changes it; each call is one of the two."""

    def __init__(
        self, guard: Guard, read: Callable[[str | None], Awaitable[dict[str, Any]]], change: ChangesDocuments
    ) -> None:
        self._guard = guard
        self._read = read
        self._replace = change
        # What is saved last is what stays.
        self._gate = Gate()

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        held = (await self._names(slot)).get(name)
        if held is None:
            return None
        if "items" in held:
            raise holds_list(slot, name)
        return Stored(held["text"], held["version"])

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        def change(names: dict[str, Any]) -> int:
            version: int = names.get(name, {}).get("version", 0)
            if expected is not None and (version != expected or "items" in names.get(name, {})):
                raise StaleState(*slot, name, expected)
            names[name] = {"text": text, "version": version + 1}
            return version + 1

        return await self._change(slot, change, fence)

    async def get_list(self, slot: Slot, name: str) -> list[str]:
        held = (await self._names(slot)).get(name, {"items": []})
        if "items" not in held:
            raise holds_value(slot, name)
        return held["items"]

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        def change(names: dict[str, Any]) -> None:
            if fresh and name in names:
                raise StaleState(*slot, name, 0)
            names[name] = {"items": list(texts)}

        await self._change(slot, change, fence)

    async def exists(self, slot: Slot) -> bool:
        return bool(await self._names(slot))

    async def names(self, slot: Slot) -> dict[str, bool]:
        return {name: "items" in held for name, held in (await self._names(slot)).items()}

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        await self._change(slot, lambda names: names.clear() if name is None else names.pop(name, None), fence)

    async def forget(self, slot: Slot) -> bool:
        def change(names: dict[str, Any]) -> bool:
            there = bool(names)
            names.clear()
            return there

        return await self._change(slot, change, None)

    async def sessions(self, user_id: str | None) -> set[str]:
        self._guard.check()
        sessions = (await self._read(user_id)).get(STATES, {})
        # Sandboxes are nobody's.
        hidden = {OF_SANDBOXES} if user_id is None else set[str]()
        return {session for session, names in sessions.items() if names.keys() - hidden}

    async def _names(self, slot: Slot) -> dict[str, Any]:
        self._guard.check()
        return (await self._read(slot.user_id)).get(STATES, {}).get(slot.session_id, {})

    async def _change(self, slot: Slot, change: Callable[[dict[str, Any]], T], fence: Fence | None) -> T:
        def change_document(document: dict[str, Any]) -> T:
            sessions = document.pop(STATES, {})
            names = sessions.pop(slot.session_id, {})
            result = change(names)
            if names:
                sessions[slot.session_id] = names
            if sessions:
                document[STATES] = sessions
            return result

        self._guard.check()
        async with self._gate.turn(slot.user_id):
            return await self._replace(slot.user_id, change_document, fence)
