"""What a tool returned, as the parts of its result."""

from __future__ import annotations

from base64 import b64encode
from typing import cast

from leafward.core.message import Message
from leafward.core.parts import Part
from leafward.core.tool_output import are_blocks, output_blocks, output_text, plain_output

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_PDF = b"%PDF-"


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def parts_of_output(output: object) -> list[Part]:
    """Return a tool's output as parts that the tool no longer shares.

    A string is one text, and a list of text and media parts stays as it is; a message gives its parts. Bytes are text
    if they are UTF-8, else an image or another file in base64. Anything else is JSON text.

    Raises:
        ValueError: JSON cannot hold it.
    """
    if isinstance(output, Message):
        return output_blocks(output.to_dict()["parts"])
    if isinstance(output, (bytes, bytearray, memoryview)):
        return [_part_of_bytes(bytes(cast(bytes, output)))]
    return plain_output(output) if are_blocks(output) else [text_part(output_text(output))]


def text_of_parts(parts: list[Part]) -> str:
    """Return the text of one text part that has nothing but its text; other parts as JSON."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return output_text(parts)


def _part_of_bytes(data: bytes) -> Part:
    media_type = _media_type(data)
    if media_type is None:
        try:
            return text_part(data.decode())
        except UnicodeDecodeError:
            media_type = "application/octet-stream"
    kind = "image" if media_type.startswith("image/") else "data"
    source = {"type": "base64", "media_type": media_type, "data": b64encode(data).decode()}
    return {"type": kind, "source": source}


def _media_type(data: bytes) -> str | None:
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(_PDF):
        return "application/pdf"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)
