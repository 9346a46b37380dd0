"""A stored part may hold anything in any field: reading it never fails, and providers accept what is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from leafward import Message
from leafward.core.tokens import count_tokens
from leafward.core.transcript import Transcriber
from tests.formats.conversations import WRITERS
from tests.formats.validators import CHECKS

Part = dict[str, Any]
ODD: list[Any] = [None, True, 0, -1.5, "", " ", "odd", [], ["odd"], [[]], [None], {}, {"odd": []}, {"type": []}]
PARTS: list[Part] = [
    {"type": "text", "text": "hello", "annotations": [{"type": "url_citation"}]},
    {"type": "refusal", "refusal": "no"},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "reasoning", "text": "hm", "id": "rs_1", "encrypted_content": "x", "summary": [{"text": "s"}]},
    {"type": "tool_use", "id": "c1", "name": "look", "input": {"w": 1}, "state": "asking"},
    {"type": "tool_call", "id": "c1", "name": "look", "input": {"w": 1}},
    {"type": "tool_result", "id": "c1", "name": "look", "output": [{"type": "text", "text": "x"}], "state": "success"},
    {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": True},
    {"type": "tool-look", "toolCallId": "c1", "state": "output-available", "input": {"w": 1}, "output": {"x": 1}},
    {"type": "tool-look", "toolCallId": "c1", "state": "output-error", "input": {"w": 1}, "errorText": "bad"},
    {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c1", "state": "input-available", "input": {"w": 1}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    {"type": "audio", "source": {"type": "base64", "media_type": "audio/wav", "data": "aGk="}},
    {
        "type": "file",
        "file": {"file_id": "file_1", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
    },
    {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "t"},
    {"type": "data", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
    {"type": "video", "source": {"type": "url", "url": "https://example.com/a.mp4"}},
    {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []},
]


def spoiled(part: Part, within: str = "") -> Iterator[tuple[str, Part]]:
    """Make parts with one field changed or missing, also in the objects within."""
    for key, value in part.items():
        if key == "type" and not within:
            continue
        yield f"{within}{key} missing", {other: kept for other, kept in part.items() if other != key}
        for odd in ODD:
            yield f"{within}{key}={json.dumps(odd)}", {**part, key: odd}
        if isinstance(value, dict):
            for name, inner in spoiled(value, f"{within}{key}."):
                yield name, {**part, key: inner}


def around(part: Part) -> Iterator[list[Message]]:
    """Put a part where it may stand: in a reply, in what a person says, in a result."""
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "id": "c1", "name": "look", "output": "x", "state": "success"}
    yield [Message("assistant", [part], id="m1"), Message("user", "go on", id="m2")]
    yield [Message("user", [part], id="m1")]
    yield [Message("assistant", [call], id="m1"), Message("tool", [part], id="m2")]
    yield [Message("assistant", [part], id="m1"), Message("tool", [result], id="m2")]
    yield [
        Message("assistant", [call], id="m1"),
        Message("tool", [{**result, "output": [part]}], id="m2"),
    ]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part["type"])
def test_any_value_in_any_field_is_read_and_sent(part: Part) -> None:
    wrong: dict[str, str] = {}
    for name, odd in [("unspoiled", part), *spoiled(part)]:
        for place, messages in enumerate(around(odd)):
            failed = _failures(messages)
            if failed:
                wrong.setdefault(f"{failed}", f"{name} at {place}")

    assert wrong == {}


def _failures(messages: list[Message]) -> str | None:
    try:
        transcriber = Transcriber(messages)
        for message in messages:
            transcriber.turn(message)
            count_tokens(message)
    except Exception as error:
        return f"reading: {error!r}"
    for name, write in WRITERS.items():
        try:
            payload = write(messages)
            json.dumps(payload)
            if name in CHECKS:
                CHECKS[name](payload)
        except Exception as error:
            return f"{name}: {error!r}"
    return None
