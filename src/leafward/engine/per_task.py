"""Values that belong to a task, not to the object that they are about."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class PerTask(Generic[T]):
    """A value for each of some objects, as the running task has set it; tasks that it starts later see it too.

    One variable serves all objects, which are not kept alive by it.
    """

    def __init__(self, name: str) -> None:
        self._values: ContextVar[dict[int, tuple[weakref.ref[object], T]]] = ContextVar(name)

    def get(self, owner: object) -> T | None:
        """Return the value of an object; `None` where this task has set none."""
        found = self._values.get({}).get(id(owner))
        # Another object may have had the id before.
        return found[1] if found is not None and found[0]() is owner else None

    def set(self, owner: object, value: T) -> None:
        """Set the value of an object, for this task."""
        living = {one: kept for one, kept in self._values.get({}).items() if kept[0]() is not None}
        self._values.set({**living, id(owner): (weakref.ref(owner), value)})
