"""What a tool returned is stored so that nothing of its structure is lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from leafward import tool_result


@dataclass
class Row:
    name: str
    tags: list[str]


class Point(msgspec.Struct):
    x: int


class Model(BaseModel):
    at: datetime


MOMENT = datetime(2026, 11, 17, tzinfo=UTC)
OUTPUTS: list[tuple[Any, str]] = [
    ("plain", "plain"),
    ("", ""),
    ({"rows": [[1, 2], [3, 4]]}, '{"rows":[[1,2],[3,4]]}'),
    ([{"name": "A", "tags": ["x", "y"]}], '[{"name":"A","tags":["x","y"]}]'),
    ([{"type": "file", "name": "a.txt"}], '[{"type":"file","name":"a.txt"}]'),
    ([{"type": "text", "text": "Name", "required": True}], '[{"type":"text","text":"Name","required":true}]'),
    ([{"type": "image", "image": "x.png"}], '[{"type":"image","image":"x.png"}]'),
    ([{"type": "file", "data": "a.txt"}], '[{"type":"file","data":"a.txt"}]'),
    ({}, "{}"),
    ([], "[]"),
    (None, "null"),
    (True, "true"),
    (1.5, "1.5"),
    (2**70, str(2**70)),
    (Row("A", ["x"]), '{"name":"A","tags":["x"]}'),
    (Point(3), '{"x":3}'),
    (Model(at=MOMENT), '{"at":"2026-11-17T00:00:00Z"}'),
    ({"models": [Model(at=MOMENT)]}, '{"models":[{"at":"2026-11-17T00:00:00Z"}]}'),
    ({1: "one"}, '{"1":"one"}'),
]


@pytest.mark.parametrize(("output", "text"), OUTPUTS)
def test_a_tool_result_keeps_json(output: Any, text: str) -> None:
    assert tool_result("c", output).parts[0]["output"] == [{"type": "text", "text": text}]


def test_a_list_of_content_blocks_is_kept_as_blocks() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "url": "https://x.test"}}]

    assert tool_result("c", blocks).parts[0]["output"] == blocks


@pytest.mark.parametrize("output", [float("nan"), {"a": float("inf")}, object(), {"a": object()}, b"x"])
def test_a_tool_result_that_json_cannot_hold_is_refused(output: Any) -> None:
    with pytest.raises(ValueError, match="a tool's output"):
        tool_result("c", output)
