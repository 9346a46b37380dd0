"""Formats for storage and screens lose nothing, whatever a message holds beside what they know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from leafward import Message
from leafward.formats import from_agentscope, from_ui_messages, to_agentscope, to_ui_messages
from tests.formats.conversations import WRITERS
from tests.formats.sample_parts import PARTS, Part

EXTRAS: dict[str, Any] = {
    "leafward_provider": {"name": "another", "rest": {"kept": "for it"}},
    "cache_control": {"type": "ephemeral"},
}
CALLS = ("tool_use", "tool_call", "tool_result", "tool-look", "dynamic-tool")
every_screen = pytest.mark.parametrize("name", ["agentscope", "ui_messages"])


def said(role: str, part: Part) -> Message:
    return Message(
        role,
        [{**part, **EXTRAS}],
        id=f"id of {role}",
        name=f"name of {role}",
        metadata={"of": role},
        more=[f"more of {role}"],
    )


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool", "critic"])
@pytest.mark.parametrize("part", [part for part in PARTS if part["type"] not in CALLS], ids=lambda part: part["type"])
def test_a_message_comes_back_from_a_screen_as_it_was(part: Part, role: str) -> None:
    message = said(role, part)

    [back] = from_ui_messages(json.loads(json.dumps(to_ui_messages([message]))))

    assert back.to_dict() == message.to_dict()


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool", "critic"])
@pytest.mark.parametrize("part", [part for part in PARTS if part["type"] not in CALLS], ids=lambda part: part["type"])
def test_a_message_comes_back_from_agentscope_as_it_was(part: Part, role: str) -> None:
    message = said(role, part)

    [back] = from_agentscope(json.loads(json.dumps(to_agentscope([message]))))

    assert back.to_dict() == message.to_dict()


@every_screen
@pytest.mark.parametrize("call", [part for part in PARTS if part["type"] in CALLS], ids=lambda part: part["type"])
@pytest.mark.parametrize("result", [part for part in PARTS if part["type"] == "tool_result"], ids=["ours", "anthropic"])
def test_a_call_and_its_result_keep_all_that_stood_beside_them(name: str, call: Part, result: Part) -> None:
    asked, answered = (
        said("assistant", {**call, "mark": "of the call"}),
        said("tool", {**result, "mark": "of the result"}),
    )

    facts = set(_facts(WRITERS[name]([asked, answered])))

    assert [fact for fact in (*_facts(asked.to_dict()), *_facts(answered.to_dict())) if fact not in facts] == []


def _facts(value: Any) -> Iterator[str]:
    """Tell the values that are in a value, wherever they stand; kinds and states are said in each format's words."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("type", "state", "is_error"):
                yield from _facts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _facts(item)
    else:
        yield json.dumps(value)
