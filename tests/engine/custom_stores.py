"""Stores of states as a user might write them: eight methods, sync or async, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from leafward import SessionKey


class PlainStates:
    """Keeps JSON texts in a dict, by sync methods. It can be made to stop for good after some saves."""

    # No room for weak references, and equal to others: both are allowed.
    __slots__ = ("saves", "stops_after", "texts")
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, stops_after: int | None = None) -> None:
        self.texts: dict[tuple[SessionKey, str], str] = {}
        self.saves: list[dict[str, Any]] = []
        self.stops_after = stops_after

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainStates)

    def save(self, key: SessionKey, name: str, value: dict[str, Any]) -> None:
        if self.stops_after is not None and len(self.saves) >= self.stops_after:
            raise OSError("the process is gone")
        self.saves.append(value)
        self.texts[key, name] = json.dumps(value)

    def get(self, key: SessionKey, name: str, type: type[Any] = dict) -> Any:
        found = self.texts.get((key, name))
        return None if found is None else json.loads(found)

    def save_list(self, key: SessionKey, name: str, values: list[dict[str, Any]]) -> None:
        self.texts[key, name] = json.dumps(values)

    def get_list(self, key: SessionKey, name: str, type: type[Any] = dict) -> Any:
        return self.get(key, name, type)

    def exists(self, key: SessionKey) -> bool:
        return any(known == key for known, _ in self.texts)

    def delete(self, key: SessionKey, name: str | None = None) -> None:
        for slot in [one for one in self.texts if one[0] == key and name in (None, one[1])]:
            del self.texts[slot]

    def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        return {key for key, _ in self.texts if key.user_id == user_id}

    def close(self) -> None:
        self.texts.clear()


class AsyncStates:
    """The same by async methods."""

    def __init__(self, stops_after: int | None = None) -> None:
        self.plain = PlainStates(stops_after)

    @property
    def saves(self) -> list[dict[str, Any]]:
        return self.plain.saves

    @property
    def stops_after(self) -> int | None:
        return self.plain.stops_after

    @stops_after.setter
    def stops_after(self, number: int | None) -> None:
        self.plain.stops_after = number

    async def save(self, key: SessionKey, name: str, value: dict[str, Any]) -> None:
        self.plain.save(key, name, value)

    async def get(self, key: SessionKey, name: str, type: type[Any] = dict) -> Any:
        return self.plain.get(key, name, type)

    async def save_list(self, key: SessionKey, name: str, values: list[dict[str, Any]]) -> None:
        self.plain.save_list(key, name, values)

    async def get_list(self, key: SessionKey, name: str, type: type[Any] = dict) -> Any:
        return self.plain.get_list(key, name, type)

    async def exists(self, key: SessionKey) -> bool:
        return self.plain.exists(key)

    async def delete(self, key: SessionKey, name: str | None = None) -> None:
        self.plain.delete(key, name)

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        return self.plain.list_session_keys(user_id)

    async def close(self) -> None:
        self.plain.close()
