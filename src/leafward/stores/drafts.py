"""A message on its way into a store."""

from __future__ import annotations

from typing import NamedTuple

from leafward.core.message import Message


class Draft(NamedTuple):
    """A message, already checked, encoded and counted."""

    message: Message
    body: bytes
    """`message.body` as JSON, to be kept byte for byte."""
    tokens: int
