"""A description as the metadata of an object, which is sent in a header and holds ASCII only."""

from __future__ import annotations

from leafward.core.errors import ContextError
from leafward.sessions.skills.listing import one_line

MAX_BYTES = 1900
"""What S3 keeps of an object's own metadata is 2 KB, names included."""


def encode_description(description: str) -> str:
    """Return a description as a header can carry it: as it is if ASCII, else as RFC 2047 has it.

    Raises:
        ContextError: it is longer than an object's metadata may be.
    """
    from email.header import Header

    text = one_line(description)
    if not text.isascii() or "=?" in text:
        text = Header(text, "utf-8").encode(linesep="")
    if len(text) > MAX_BYTES:
        raise ContextError("the description is too long to be stored with the skill: shorten it and try again")
    return text


def decode_description(value: str) -> str:
    """Return the description a header carries; one that only looks encoded is returned as it is."""
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    if "=?" not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeError):
        return value
