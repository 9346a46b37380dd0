"""What AgentScope kept of a session before 1.0.5 is all there afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from leafward.core.errors import StateDecodeError
from leafward.core.json import encode_text
from leafward.core.legacy_state import read_legacy, read_legacy_messages
from leafward.core.message import Message
from leafward.core.state_values import read_items


def test_every_component_gets_its_state() -> None:
    blob = {
        "memory": {"messages": [{"role": "user", "content": "hi"}]},
        "toolkit": {"activeGroups": ["web"]},
        "agent": {"id": "a", "name": "Bot", "iteration": 3},
        "planNotebook": {"currentPlan": {"name": "P"}},
        "mood": {"word": "fine"},
        "steps": [{"n": 1}],
        "count": 7,
    }
    states = read_legacy(blob)
    messages: Any = states.pop("memory_messages")
    [message] = messages
    assert message["role"] == "USER"
    assert message["content"] == [{"type": "text", "text": "hi"}]
    assert states == {
        "toolkit_activeGroups": {"activeGroups": ["web"]},
        "agent_meta": {"id": "a", "name": "Bot", "iteration": 3},
        "planNotebook_state": {"currentPlan": {"name": "P"}},
        "mood": {"word": "fine"},
        "steps": [{"n": 1}],
        "count": {"value": 7},
    }


def test_components_of_an_agent_are_found_in_it() -> None:
    inner = {
        "memory": {"messages": [{"role": "Assistant", "content": [{"type": "text", "text": "x"}]}]},
        "toolkit": {"activeGroups": []},
        "plan_notebook": {},
    }
    states = read_legacy({"agent": {**inner, "id": "a"}})
    assert [message["role"] for message in states["memory_messages"] if isinstance(message, dict)] == ["ASSISTANT"]
    assert states["toolkit_activeGroups"] == {"activeGroups": []}
    assert states["planNotebook_state"] == {"currentPlan": None}
    assert states["agent_meta"] == {"id": "a"}


def test_an_empty_memory_does_not_hide_the_agents() -> None:
    full = {"messages": [{"role": "user", "content": "hi"}]}
    assert len(read_legacy({"memory": {"messages": []}, "agent": {"memory": full}})["memory_messages"]) == 1
    assert read_legacy({"memory": {"messages": []}})["memory_messages"] == []
    assert read_legacy({}) == {}


@pytest.mark.parametrize("role", ["user", "USER", "Tool", "system"])
@pytest.mark.parametrize(
    "content", ["text", ["text"], [{"type": "text", "text": "text"}], {"type": "text", "text": "text"}]
)
def test_a_message_becomes_one_that_can_be_read(role: str, content: Any) -> None:
    found = read_legacy_messages([{"role": role, "content": content, "odd": 1}], "m")
    assert list(found[0])[:7] == ["id", "name", "role", "content", "metadata", "timestamp", "usage"]
    [message] = read_items([encode_text(one) for one in found], Message)
    assert (message.role, message.text, message.extra["odd"]) == (role.lower(), "text", 1)


def test_a_null_is_left_out_and_a_number_stands_for_a_role() -> None:
    found = read_legacy_messages([None, {"role": 1, "content": "x"}, None, {"role": "3", "content": []}], "m")

    assert [message["role"] for message in found] == ["ASSISTANT", "TOOL"]
    with pytest.raises(StateDecodeError, match=r"m\[1\]\.role must be"):
        read_legacy_messages([None, {"role": 4}], "m")


def test_a_time_that_cannot_be_read_is_kept() -> None:
    found = read_legacy_messages(
        [
            {"role": "user", "content": None, "timestamp": "2025-11-02 10:11:12.345"},
            {"role": "user", "content": [], "timestamp": 1762078272345},
            {"role": "user", "timestamp": "yesterday"},
        ],
        "m",
    )
    assert [one["timestamp"] for one in found] == ["2025-11-02 10:11:12.345", "1762078272345", "yesterday"]
    times = [one.at for one in read_items([encode_text(one) for one in found], Message)]
    assert times == [times[0]] * 3


@pytest.mark.parametrize(
    "blob",
    [
        [],
        {"memory": 7},
        {"memory": {"messages": {}}},
        {"memory": {"messages": [7]}},
        {"memory": {"messages": [{"role": "ghost", "content": "x"}]}},
        {"memory": {"messages": [{"role": "user", "content": 7}]}},
        {"memory": {"messages": [{"role": "user", "content": [{"type": "zzz"}]}]}},
        {"toolkit": {"activeGroups": [1]}},
    ],
)
def test_what_is_no_such_document_is_refused(blob: object) -> None:
    with pytest.raises(StateDecodeError):
        read_legacy(blob)
