"""Packets for MySQL: the statements of one transaction, sent together, and what comes back for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from leafward.stores.leases import Fence
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids


class Packet(NamedTuple):
    """Statements, each with a semicolon after it, or a piece of them, and the parameters in them."""

    text: str
    parameters: Sequence[Any] = ()


class Answer(NamedTuple):
    """What came back for one statement."""

    rows: list[Any]
    wrote: int
    """How many rows it changed or added."""
    key: int
    """The number that the new row was given."""


SCOPE = "s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = %s AND user_id = %s) AND s.session_id = %s"
_LEASE = "FROM {p}lease WHERE user_id = %s AND session_id = %s AND token = %s AND holder IS NOT NULL"
HOLD_LEASE = f"SELECT 1 {_LEASE} LOCK IN SHARE MODE;"
HELD = f"EXISTS (SELECT 1 {_LEASE})"
# Held first, so that it stays what the later statements find it to be. They go by its number: by its ids they might
# find a session that another made meanwhile, and that is not held.
HOLD = f"SET @held = (SELECT s.session_no FROM {{p}}session s WHERE {SCOPE} FOR UPDATE);"


def join(pieces: Iterable[Packet], between: str = "") -> Packet:
    """Return pieces as one packet."""
    kept = list(pieces)
    return Packet(between.join(one.text for one in kept), [value for one in kept for value in one.parameters])


def lease_of(command: Append, fence: Fence | None) -> tuple[Any, ...]:
    """Return the parameters of `HELD`, none without a lease."""
    return () if fence is None else (*scope_ids(command.scope)[1:], fence.token)
