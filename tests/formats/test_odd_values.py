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
from tests.formats.sample_parts import PARTS, Part
from tests.formats.validators import CHECKS

ODD: list[Any] = [None, True, 0, -1.5, "", " ", "odd", [], ["odd"], [[]], [None], {}, {"odd": []}, {"type": []}]


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
        if isinstance(value, list):
            for odd in ODD:
                yield f"{within}{key}[0]={json.dumps(odd)}", {**part, key: [odd, *value[1:]]}


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
