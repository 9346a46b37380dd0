"""How many tokens a text costs, estimated without a tokenizer."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from typing import cast

from leafward.core.calls import Call
from leafward.core.errors import ConfigurationError
from leafward.core.json import encode_text
from leafward.core.message import Message, body_to_read
from leafward.core.parts import (
    CALLS,
    Part,
    is_media,
    is_thinking,
    is_ui_only,
    parts_of,
    thinking_text,
    tool_input,
    tool_output,
)
from leafward.core.provider_extras import ORIGIN, raw_of

TokenCounter = Callable[[Message], int]
"""Counts a message in place of `count_tokens`."""
TextCounter = Callable[[str], int]
"""Counts a text in place of `estimate_tokens`."""

MESSAGE_OVERHEAD = 4
MEDIA_TOKENS = 1000
"""An image, recording or file: about what providers charge for one, whatever its bytes."""
_SAMPLE = 4096
"""How much of a text file in base64 is decoded; a multiple of four."""


@cache
def _cjk() -> re.Pattern[str]:
    return re.compile(
        "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3100-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
        "\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+"
    )


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text.

    Words and characters are weighed as `ceil(max(len/4, 1.3 * words))`, the length in UTF-16 units; Chinese,
    Japanese and Korean characters count one each beside that.
    """
    if not text:
        return 0
    if text.isascii():
        return math.ceil(max(len(text) / 4, 1.3 * len(text.split())))
    rest, runs = _cjk().subn(" ", text)
    cjk = len(text) - len(rest) + runs
    length = len(rest.encode("utf-16-le", "surrogatepass")) // 2 - runs
    return cjk + math.ceil(max(length / 4, 1.3 * len(rest.split())))


def count_tokens(message: Message, count_text: TextCounter = estimate_tokens) -> int:
    """Estimate the tokens of what a model is sent of a message: its parts, and four for its envelope.

    `count_text` counts a text, with a model's tokenizer for example; what is not text is estimated all the same.
    """
    tokens = MESSAGE_OVERHEAD
    for part in parts_of(body_to_read(message)):
        tokens += _part_tokens(part, message, count_text)
    return tokens


def checked_count(counter: TokenCounter, message: Message) -> int:
    """Return what a user's counter says, rounded up.

    Raises:
        ConfigurationError: it returns something that is not a number of tokens.
    """
    tokens = cast(object, counter(message))
    if not isinstance(tokens, (int, float)) or isinstance(tokens, bool) or not 0 <= tokens < 2**53:
        raise ConfigurationError(f"a token counter gives a number of at least 0, not {tokens!r}")
    return math.ceil(tokens)


def _part_tokens(part: Part, message: Message, count: TextCounter) -> int:
    words: object = part.get("text")
    if part["type"] == "text" and isinstance(words, str) and ORIGIN not in part:
        return count(words)  # nearly every part
    if is_thinking(part):
        return max(count(thinking_text(part)), _hidden_tokens(part, count))
    if is_ui_only(part):
        return 0
    raw = raw_of(part)
    if raw is not None:
        return _raw_tokens(raw, count)
    if is_media(part):
        return _media_tokens(part, count)
    called, answered = _arguments(part, message), tool_output(part)
    if called is not None or answered is not None:
        return _value_tokens(called, count) + _value_tokens(answered, count)
    words = part.get(part["type"]) if part["type"] in ("text", "refusal", "hint") else None
    if isinstance(words, str):
        return count(words)
    return _raw_tokens(part, count) if _goes_back_whole(part["type"]) else 0


def _arguments(part: Part, message: Message) -> object:
    """Return the arguments of a call, also those that were not parsed; `None` for other parts."""
    given = tool_input(part)
    if part["type"] in CALLS and given in ({}, None) and isinstance(part.get("content"), str):
        return Call("", "", given, part, message, 0).arguments
    return given


def _goes_back_whole(kind: str) -> bool:
    """Tell Anthropic's blocks that only it understands: searches, and what tools on its side were given and gave."""
    return kind in ("search_result", "server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


def _hidden_tokens(part: Part, count: TextCounter) -> int:
    """Count reasoning that is encrypted for its maker, and goes back to it."""
    raw = raw_of(part)
    hidden = part.get("data") if raw is None else raw.get("encrypted_content")
    return count(hidden) if isinstance(hidden, str) else 0


def _media_tokens(part: Part, count: TextCounter) -> int:
    # Loaded with the first file: most processes count none.
    from leafward.core.media import read_media

    source: object = part.get("source")
    held = cast(Part, source) if isinstance(source, dict) else {}
    if held.get("type") in ("text", "content"):
        return _raw_tokens(held, count)
    media = read_media(part)
    return MEDIA_TOKENS if media is None or not media.text_data else _file_tokens(media.text_data, count)


def _file_tokens(data: str, count: TextCounter) -> int:
    """Count a text file, which is sent as its text, by its beginning: decoding all of it would make a write slow."""
    start = data[:_SAMPLE]
    try:
        text = b64decode(start).decode(errors="ignore")
    except ValueError:
        return MEDIA_TOKENS
    return math.ceil(count(text) * len(data) / len(start))


def _raw_tokens(value: object, count: TextCounter) -> int:
    """Count an item that goes back to its provider whole; a file in it costs what a file costs, not its base64."""
    if isinstance(value, str):
        return MEDIA_TOKENS if value.startswith("data:") and ";base64," in value[:100] else count(value)
    if isinstance(value, dict):
        value = list(cast(dict[str, object], value).values())
    return sum(_raw_tokens(one, count) for one in cast(list[object], value)) if isinstance(value, list) else 0


def _value_tokens(value: object, count: TextCounter) -> int:
    if value is None:
        return 0
    if isinstance(value, list):
        # A screenshot in a tool's output costs what an image costs, not what its base64 would.
        items = cast(list[object], value)
        files = [cast(Part, item) for item in items if is_media(item)]
        if files:
            rest = [item for item in items if not is_media(item)]
            return sum(_media_tokens(file, count) for file in files) + _value_tokens(rest, count)
    return count(value if isinstance(value, str) else encode_text(cast(object, value)))
