"""Notes what a tenant is told: every value returned and every error raised, by the call that gave it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import fields, is_dataclass
from inspect import isawaitable
from typing import Any, NamedTuple

from leafward import Message


class Told(NamedTuple):
    """A call and what came of it, as text."""

    call: str
    text: str


class Witness:
    """All that one tenant was told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def note(self, call: str, value: object) -> None:
        self.told.append(Told(call, text_of(value).lower()))

    def calls(self) -> set[str]:
        return {one.call for one in self.told}


class Watched:
    """Stands for an object and notes the outcome of whatever public is used of it."""

    def __init__(self, target: Any, kind: str, witness: Witness) -> None:
        self.target = target
        self._kind = kind
        self._witness = witness

    def __getattr__(self, name: str) -> Any:
        call, value = f"{self._kind}.{name}", getattr(self.target, name)
        if not callable(value):
            self._witness.note(call, value)
            return value

        def noted(*args: Any, **options: Any) -> Any:
            try:
                result = value(*args, **options)
            except Exception as error:
                self._witness.note(call, error)
                raise
            if isawaitable(result):
                return self._awaited(call, result)
            if isinstance(result, AsyncIterator):
                return self._iterated(call, result)
            self._witness.note(call, result)
            return result

        return noted

    async def _awaited(self, call: str, result: Awaitable[Any]) -> Any:
        try:
            value = await result
        except Exception as error:
            self._witness.note(call, error)
            raise
        self._witness.note(call, value)
        return value

    async def _iterated(self, call: str, result: AsyncIterator[Any]) -> Any:
        async for value in result:
            self._witness.note(call, value)
            yield value


def text_of(value: object) -> str:
    """Return all that a value says, to its last part."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseException):
        return f"{value!r} {value} {text_of(value.__cause__)} {text_of(value.__context__)}"
    if isinstance(value, Message):
        return text_of(value.to_dict())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if is_dataclass(value) and not isinstance(value, type):
        return text_of({field.name: getattr(value, field.name) for field in fields(value)})
    return repr(value)
