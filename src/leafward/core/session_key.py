"""Whose state is meant: a session of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from leafward.core.errors import ConfigurationError
from leafward.core.ids import check_id
from leafward.core.json import encode_text


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session of a user; without a user, of the anonymous one.

    Raises:
        InvalidId: one of the ids is refused.
    """

    session_id: str
    user_id: str | None = None

    def __post_init__(self) -> None:
        check_id("session id", self.session_id)
        if self.user_id is not None:
            check_id("user id", self.user_id)

    @classmethod
    def of(cls, session_id: str) -> Self:
        """Return the key of an anonymous session."""
        return cls(session_id)

    def to_identifier(self) -> str:
        """Return the session's id; with a user, both as JSON, so that no two users have the same."""
        if self.user_id is None:
            return self.session_id
        return encode_text({"userId": self.user_id, "sessionId": self.session_id})


SimpleSessionKey = SessionKey
"""The name that a key has in AgentScope 1.x."""


@runtime_checkable
class Identified(Protocol):
    """A key of a user's own: whatever says which session it is for."""

    def to_identifier(self) -> str: ...


AnyKey = str | SessionKey | Identified
"""What is taken for a key; a plain string is the id of an anonymous session."""


def key_of(key: AnyKey) -> SessionKey:
    """Return the session that a key is for.

    Raises:
        InvalidId: an id in it is refused.
        ConfigurationError: it is no key.
    """
    if isinstance(key, SessionKey):
        return key
    if isinstance(key, str):
        return SessionKey(key)
    if isinstance(key, Identified) and not isinstance(key, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        return SessionKey(key.to_identifier())
    raise ConfigurationError(
        f"a key is a session id, a SessionKey or an object with to_identifier(), not a {type(key).__name__}"
    )
