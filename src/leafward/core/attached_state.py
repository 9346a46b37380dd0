"""State that is attached to a message: a name and a JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from leafward.core.errors import InvalidId, MessageTooLarge
from leafward.core.ids import check_id
from leafward.core.json import Plain, decode_body, encode, encode_sorted

if TYPE_CHECKING:
    from hashlib import blake2b

OUR_PREFIX = "leafward."
"""Names that begin so are for this library's own use."""
TURN = "leafward.turn"
"""The note of an agent's open turn; a copy of a session does not have it."""


class AttachedState(NamedTuple):
    """A state on its way into a store, checked and encoded."""

    name: str
    text: str | None
    """The JSON object; `None` removes the state from here on."""


def attach(name: str, value: Mapping[str, Any] | None, *, largest: int) -> AttachedState:
    """Return a state as a store takes it.

    Raises:
        InvalidId: the name is not an id.
        ValueError: the value is not a JSON object, or holds NaN or an infinity.
        MessageTooLarge: it has more than `largest` bytes of JSON.
    """
    check_id("state name", name)
    if value is None:
        return AttachedState(name, None)
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"the state {name!r} is a JSON object or None, not a {type(value).__name__}")
    text = encode(Plain(f"the state {name!r}").copy(value))
    if len(text) > largest:
        raise MessageTooLarge(name, size=len(text), limit=largest, what="state")
    return AttachedState(name, text.decode())


def check_public_name(name: str) -> str:
    """Return the name of a state that an application may set.

    Raises:
        InvalidId: it is not an id, or one of this library's own names.
    """
    if check_id("state name", name).startswith(OUR_PREFIX):
        raise InvalidId("state name", name, f"names that begin with {OUR_PREFIX!r} belong to leafward")
    return name


def read_states(texts: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return stored states as the objects they hold."""
    return {name: decode_body(text) for name, text in dict(texts).items()}


def digest(text: str | None) -> str | None:
    """Return 32 digits that stored states have in common if their values are equal, whatever the order of their keys.

    By it a server compares states of which it only knows the text.
    """
    return None if text is None else _blake2b()(encode_sorted(decode_body(text)), digest_size=16).hexdigest()


@cache
def _blake2b() -> type[blake2b]:
    # Loaded when it is first needed: importing leafward stays fast.
    from hashlib import blake2b

    return blake2b


def is_same(text: str | None, other: str | None) -> bool:
    """Tell whether two stored states have equal values, whatever the order of their keys."""
    if text == other:
        return True
    # Python's equality would take 1, 1.0 and true for the same.
    return (
        text is not None
        and other is not None
        and len(text) == len(other)
        and encode_sorted(decode_body(text)) == encode_sorted(decode_body(other))
    )
