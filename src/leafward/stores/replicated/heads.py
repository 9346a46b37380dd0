"""What a session ends with, and what a write makes of it.

It is all that an append below the leaf, and a look at the head, have to know. A server may keep it beside the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MOST_LANES, MOST_STATES = 256, 64
"""A session whose path goes through more lanes, or that has more states in force, is read whole."""
MOST_IDS = 5000
"""Messages that one commit may bring; those of a larger import are kept when the session is first read."""


class KeptHead(NamedTuple):
    """Where a session ends."""

    version: int
    leaf_id: str | None
    line_id: str | None
    """The last line of the leaf."""
    window: int | None
    """Tokens of the history that ends at the leaf; `None` when that has to be summed up."""
    prompt: int | None
    next: int
    """The place that the next message below the leaf gets."""
    path: Sequence[tuple[int, int]]
    """The path to the leaf in other lanes than that of `next`, as ranges: after the first place, up to the second."""
    states: Mapping[str, str]
    """All states in force at the leaf."""

    @property
    def is_small(self) -> bool:
        return len(self.path) <= MOST_LANES and len(self.states) <= MOST_STATES


class HeadChange(NamedTuple):
    """What a write makes of the head, of the ids of the messages, and of the names of the usage that was counted."""

    head: KeptHead
    states: Mapping[str, str | None]
    """Those of its states that changed; `None`: no longer in force."""
    added: Sequence[tuple[str, int]] = ()
    """New messages and their places."""
    removed: Sequence[str] = ()
    used: Sequence[str] = ()
    emptied: bool = False
    """All messages that were there before are gone."""
    has_all_states: bool = False
    """All others that were in force before no longer are."""
    is_whole: bool = False
    """Nothing of what was kept before counts."""
