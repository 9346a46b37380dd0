"""Where an appended message goes: under a message, under the current leaf, or at the root."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LatestLeaf(Enum):
    """The type of `LATEST_LEAF`, a value no message id can equal."""

    LATEST_LEAF = "LATEST_LEAF"

    def __repr__(self) -> str:
        return "LATEST_LEAF"


LATEST_LEAF: Final = LatestLeaf.LATEST_LEAF
"""Append to whatever is the current leaf when the write happens."""

ParentId = str | LatestLeaf | None
"""A message's id, `LATEST_LEAF`, or `None` for a new root."""
