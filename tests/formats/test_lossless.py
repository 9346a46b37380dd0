"""Formats for storage and screens lose nothing, whatever a message holds beside what they know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from leafward import Message
from leafward.core.message import Message as Stored
from leafward.formats import from_agentscope, from_ui_messages, to_agentscope, to_openai_chat, to_ui_messages
from tests.formats.conversations import READERS, WRITERS
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

    payload = json.loads(json.dumps(WRITERS[name]([asked, answered])))

    assert READERS[name](payload) == [asked, answered]
    facts = set(_facts(payload))
    assert [fact for fact in (*_facts(asked.to_dict()), *_facts(answered.to_dict())) if fact not in facts] == []


OPEN = {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c1", "state": "input-available", "input": {"w": 1}}
SETTLED = {**OPEN, "state": "output-available", "output": "seen"}
RESULT = {"type": "tool_result", "id": "c1", "name": "look", "output": [{"type": "text", "text": "seen"}]}
REPEATED: dict[str, list[tuple[str, Part]]] = {
    "a pending part twice": [("assistant", OPEN), ("assistant", {**OPEN, "title": "of the second"})],
    "a pending part, then settled": [("assistant", OPEN), ("assistant", {**SETTLED, "title": "of the second"})],
    "pending, pending, settled": [
        ("assistant", {**OPEN, "title": "of the first"}),
        ("assistant", {**OPEN, "title": "of the second"}),
        ("assistant", {**SETTLED, "title": "of the third"}),
    ],
    "a call of ours, then settled by AI SDK": [
        ("assistant", {"type": "tool_use", "id": "c1", "name": "look", "input": {"w": 1}}),
        ("assistant", {**SETTLED, "title": "of the second"}),
    ],
    "a result twice": [("assistant", OPEN), ("tool", RESULT), ("tool", {**RESULT, "mark": "of the second"})],
    "a result of another name": [("assistant", OPEN), ("tool", {**RESULT, "name": "another"})],
    "a result that is not final": [("assistant", OPEN), ("tool", {**RESULT, "state": "running", "mark": "of it"})],
    "a result that is not final, then one that is": [
        ("assistant", OPEN),
        ("tool", {**RESULT, "output": [{"type": "text", "text": "wait"}], "state": "running"}),
        ("tool", {**RESULT, "mark": "of the last"}),
    ],
    "a result in an unknown state": [("assistant", OPEN), ("tool", {**RESULT, "state": "odd"})],
}
"""Conversations in which a call or its result is stored more than once, or in an odd way."""


def repeated(name: str) -> list[Message]:
    return [
        Message(role, [part], id=f"m{number}", metadata={"of": f"m{number}"})
        for number, (role, part) in enumerate(REPEATED[name])
    ]


@pytest.mark.parametrize("case", sorted(REPEATED))
def test_what_is_stored_twice_is_not_lost(case: str) -> None:
    messages = repeated(case)

    facts = set(_facts(to_ui_messages(messages)))

    assert [fact for message in messages for fact in _facts(message.to_dict()) if fact not in facts] == []
    assert from_agentscope(to_agentscope(messages)) == messages


@pytest.mark.parametrize("case", sorted(REPEATED))
def test_what_is_stored_twice_is_shown_once(case: str) -> None:
    [message] = to_ui_messages(repeated(case))

    assert [part["toolCallId"] for part in message["parts"]] == ["c1"]


@pytest.mark.parametrize("case", sorted(REPEATED))
def test_what_is_stored_twice_comes_back_from_a_screen_as_it_was(case: str) -> None:
    messages = repeated(case)

    assert from_ui_messages(json.loads(json.dumps(to_ui_messages(messages)))) == messages


def test_the_state_of_a_result_that_the_screen_does_not_know_is_kept() -> None:
    [message] = to_ui_messages(repeated("a result in an unknown state"))

    assert message["parts"][0]["callProviderMetadata"]["leafward"]["result"]["part"]["state"] == "odd"


READ = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"w":1}'}}
LEGACY: list[dict[str, Any]] = [
    {"tool_calls": [READ]},
    {"tool_calls": [READ, {"id": "c2", "type": "shell", "shell": "ls"}]},
    {"tool_calls": [{**READ, "index": 7}, {"id": "c2", "type": "custom", "custom": {"name": "run", "input": "ls"}}]},
    {"tool_calls": ["not a call", None]},
    {"tool_calls": {"not": "a list"}},
    {"tool_calls": None, "tool_call_id": 7},
    {"tool_call_id": "c0", "name": "look"},
]
"""Keys that earlier versions stored beside the parts."""


@pytest.mark.parametrize("keys", LEGACY, ids=str)
def test_calls_in_openais_own_keys_are_not_lost(keys: dict[str, Any]) -> None:
    message = Stored.stored("m", "assistant", 0, {"parts": [{"type": "text", "text": "so"}], **keys})

    payload = to_ui_messages([message])

    facts = set(_facts(payload))
    assert [fact for fact in _facts(message.to_dict()) if fact not in facts] == []
    assert to_openai_chat(from_ui_messages(payload)) == to_openai_chat([message])
    assert from_agentscope(to_agentscope([message])) == [message]


def test_calls_in_openais_own_keys_that_became_parts_are_not_written_again() -> None:
    other = {"id": "c2", "type": "shell", "shell": "ls"}
    message = Stored.stored("m", "assistant", 0, {"parts": [], "tool_calls": [READ, other]})

    [shown] = to_ui_messages([message])

    assert shown["tool_calls"] == [other]
    assert [part["toolCallId"] for part in shown["parts"]] == ["c1"]


def _facts(value: Any) -> Iterator[str]:
    """Tell the values that are in a value, wherever they stand; kinds and states are said in each format's words."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("type", "state", "is_error", "arguments"):
                yield from _facts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _facts(item)
    else:
        yield json.dumps(value)
