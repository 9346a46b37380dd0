"""The note of an agent's turn, attached to the messages of its session as `leafward.turn`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import msgspec

from leafward.core.agent_records import read_as

Openness = Literal["running", "asking", "paused"]
"""Why a turn has no end yet: it runs or its process was lost, it waits for an answer, or a shutdown stopped it."""


@dataclass(frozen=True, slots=True)
class TurnNote:
    """What is known of the turn to which a message belongs, as of that message."""

    id: str
    open: Openness | None = "running"
    """`None` once the turn has ended."""
    input: tuple[str, ...] = ()
    """The ids of the messages that began it."""
    slot: int = 0
    """The version of the slot that the turn has read, or has written."""
    attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often calls were run again, by their idempotency keys."""
    failed: str | None = None
    """What ended the turn before it had a final reply: an error or a cancellation."""
    interrupted: bool = False
    """Whether an interrupt ended the turn."""
    joined: tuple[str, ...] = ()
    """The ids of the user's messages that came while it ran: steered, or with an interrupt."""
    state_name: str = "agent_state"
    """The name of the slot of the agent whose turn it is."""
    tokens: int = 0
    """What its replies used so far, if there is a budget for the turn."""
    cost: float = 0.0
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys that this version does not know."""

    @property
    def may_go_on(self) -> bool:
        """Whether the same input goes on with this turn."""
        return self.open is not None or self.failed is not None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what `write` returned.

        Raises:
            StateDecodeError: it is something else; the reason names the place.
        """
        found = read_as(_Document, document, "")
        rest = {key: value for key, value in document.items() if key not in _KEYS}
        return cls(
            id=found.id,
            open=found.open,
            input=tuple(found.input),
            joined=tuple(found.joined),
            slot=found.slot,
            attempts=found.attempts,
            failed=found.failed,
            interrupted=found.interrupted,
            state_name=found.state,
            tokens=found.tokens,
            cost=found.cost,
            rest=rest,
        )

    def write(self) -> dict[str, Any]:
        """Return the note as JSON values; keys that say nothing are left out."""
        found: dict[str, Any] = {"id": self.id, "open": self.open, "input": list(self.input), "slot": self.slot}
        if self.joined:
            found["joined"] = list(self.joined)
        if self.attempts:
            found["attempts"] = dict(self.attempts)
        if self.failed is not None:
            found["failed"] = self.failed
        if self.interrupted:
            found["interrupted"] = True
        if self.state_name != "agent_state":
            found["state"] = self.state_name
        if self.tokens or self.cost:
            found |= {"tokens": self.tokens, "cost": self.cost}
        return {**found, **self.rest}


class _Document(msgspec.Struct):
    id: str
    open: Openness | None = None
    input: list[str] = []
    joined: list[str] = []
    slot: int = 0
    attempts: dict[str, int] = {}
    failed: str | None = None
    interrupted: bool = False
    state: str = "agent_state"
    tokens: int = 0
    cost: float = 0.0


_KEYS = frozenset(_Document.__struct_fields__)
