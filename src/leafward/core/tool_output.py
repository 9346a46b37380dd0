"""What a tool returned, as the blocks of its stored result: text as it is, everything else as JSON text."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from leafward.core.json import Plain, encode_text
from leafward.core.parts import Part, is_media


def output_blocks(output: object) -> list[Part]:
    """Return a tool's output as blocks: a list of text and media blocks as it is, anything else as one text."""
    if are_blocks(output):
        return list(cast(list[Part], output))
    return [{"type": "text", "text": output_text(output)}]


def output_text(output: object) -> str:
    """Return a tool's output as text: a string as it is, anything else as JSON.

    Dicts, lists, numbers, `None`, dataclasses, msgspec Structs and pydantic models have a JSON text.

    Raises:
        ValueError: JSON cannot hold it.
    """
    if isinstance(output, str):
        return output
    if isinstance(output, (bytes, bytearray, memoryview)):
        raise ValueError("a tool's output cannot be bytes: return text, or an image block with its data in base64")
    value = plain_output(output, any_integers=True)
    try:
        return encode_text(value)
    except OverflowError:
        # Integers beyond 64 bits are JSON, though not every encoder writes them.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain_output(output: object, *, any_integers: bool = False) -> Any:
    """Return a copy of a tool's output as dicts, lists, strings, numbers, booleans and `None`.

    Raises:
        ValueError: JSON cannot hold it, or, without `any_integers`, it has integers beyond 64 bits.
    """
    try:
        plain = msgspec.to_builtins(output, str_keys=True, enc_hook=_dumped)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"a tool's output cannot be written as JSON: {error}") from error
    return Plain("a tool's output", any_integers=any_integers).copy(plain)


def are_blocks(output: object) -> bool:
    """Tell a list of text and media blocks from a list of data."""
    blocks = cast(list[object], output) if isinstance(output, list) else []
    return bool(blocks) and all(map(_is_block, blocks))


def _is_block(value: object) -> bool:
    """Tell a block of text or media from a row of data, which may have a type as well."""
    if not isinstance(value, dict):
        return False
    block = cast(Part, value)
    if block.get("type") == "text":
        return isinstance(block.get("text"), str) and block.keys() <= _TEXT_FIELDS
    if not is_media(block):
        return False
    typed = any(isinstance(block.get(key), str) for key in ("mimeType", "mediaType", "media_type"))
    return (
        isinstance(block.get("source"), dict)
        or (typed and any(isinstance(block.get(key), str) for key in ("data", "url")))
        or any(isinstance(block.get(key), (str, dict)) for key in ("image_url", "input_audio", "file_data", "file_id"))
        or isinstance(block.get("file"), dict)
    )


_TEXT_FIELDS = frozenset({"type", "text", "id", "metadata", "annotations", "citations", "cache_control", "_meta"})


def _dumped(value: Any) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")
