"""An agent's state is what AgentScope for Java stores, and nothing that was in it is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given

from leafward.core.agent_contexts import PermissionRule, PlanModeContext, ToolContext, WorkingDirectory
from leafward.core.agent_records import Record, copy_record
from leafward.core.agent_state import AgentState, from_legacy
from leafward.core.errors import Conflict, LeafwardError, StaleState, StateDecodeError
from leafward.core.message import Message
from leafward.formats import from_agentscope
from tests.core.agent_states import STATES

FIXTURES = Path(__file__).parent / "fixtures"
FRESH = (FIXTURES / "fresh_state.json").read_text(encoding="utf-8")
FULL = (FIXTURES / "full_state.json").read_text(encoding="utf-8")
KNOWN = {"id", "name", "role", "content", "metadata", "timestamp", "usage"}


def reread(state: AgentState) -> AgentState:
    return AgentState.from_json(state.to_json())


def with_messages(*messages: Message) -> AgentState:
    return AgentState(session_id="s", context=list(messages))


def msg(**fields: Any) -> dict[str, Any]:
    return {"id": "m", "name": None, "role": "USER", "content": [], "metadata": {}, "timestamp": None, **fields}


def block(**fields: Any) -> dict[str, Any]:
    return {"context": [msg(role="ASSISTANT", content=[fields])]}


# ── golden vectors ───────────────────────────────────────────────────────────


def test_a_fresh_state_is_written_byte_for_byte_as_java_has_it() -> None:
    state = AgentState(session_id="session-001", user_id="alice", reply_id="0123456789abcdef0123456789abcdef")

    assert state.to_json() == FRESH
    assert AgentState.from_json(FRESH) == state
    assert AgentState.from_json(FRESH.encode()) == state


def test_a_full_state_comes_out_byte_for_byte_as_it_was_read() -> None:
    assert AgentState.from_json(FULL).to_json() == FULL


def test_a_full_state_is_read_into_typed_values() -> None:
    state = AgentState.from_json(FULL)

    assert state.permission_context.mode == "accept_edits"
    assert state.permission_context.working_directories == {"/proj": WorkingDirectory("/proj", "session")}
    assert state.permission_context.ask_rules == {"rm": [PermissionRule("rm", "ask", "policy", "/etc/**")]}
    assert state.tool_context.activated_groups == ["web"]
    assert state.tool_context.spawn_registry["agent:general-purpose:u1"].session_id == "sess-child"
    assert state.tasks_context.tasks[0].created_at == "2026-08-22T23:15:56.123+08:00"
    assert state.tasks_context.tasks[0].metadata == {"priority": "high"}
    assert state.plan_mode_context == PlanModeContext(True, "plans/PLAN.md")
    assert [message.role for message in state.context] == ["user", "assistant", "tool", "user", "assistant"]
    assert state.context[0].text == "Hello 你好"


def test_a_copy_of_a_state_shares_nothing_that_can_be_changed() -> None:
    state = replace(AgentState.from_json(FULL), context=[], extra={"ours": [{"deep": [1.5, ("a", ["b"])]}]})

    def changeable(value: object) -> list[int]:
        """Return which records, dicts and lists a value is made of."""
        if isinstance(value, Record):
            inner: Iterable[Any] = [getattr(value, one.name) for one in fields(value)]  # type: ignore[arg-type]
        elif isinstance(value, (dict, list, tuple)):
            inner = value.values() if isinstance(value, dict) else value
        else:
            return []
        own = [] if isinstance(value, tuple) else [id(value)]
        return own + [one for item in inner for one in changeable(item)]

    copied = copy_record(state)

    assert copied == state
    assert len(changeable(state)) > 20
    assert not set(changeable(copied)) & set(changeable(state))


def test_an_empty_document_is_a_fresh_state_with_two_random_ids() -> None:
    one, other = AgentState.from_json("{}"), AgentState.from_json(b"{}")

    assert re.fullmatch("[0-9a-f]{32}", one.session_id)
    assert re.fullmatch("[0-9a-f]{32}", one.reply_id)
    assert len({one.session_id, one.reply_id, other.session_id, other.reply_id}) == 4
    assert one == AgentState(session_id=one.session_id, reply_id=one.reply_id)


def test_null_is_read_as_missing() -> None:
    state = AgentState.from_json(json.dumps(dict.fromkeys(json.loads(FRESH))))

    assert state == AgentState(session_id=state.session_id, reply_id=state.reply_id)


def test_words_of_any_case_are_read_and_written_in_lower_case() -> None:
    rule = {"tool_name": "rm", "behavior": "DENY", "source": "policy"}
    document = {
        "permission_context": {"mode": "EXPLORE", "deny_rules": {"rm": [rule]}},
        "tasks_context": {"tasks": [{"subject": "a", "description": "b", "state": "In_Progress"}]},
    }
    written = json.loads(AgentState.from_json(json.dumps(document)).to_json())

    assert written["permission_context"]["mode"] == "explore"
    assert written["permission_context"]["deny_rules"]["rm"][0]["behavior"] == "deny"
    assert written["tasks_context"]["tasks"][0]["state"] == "in_progress"


def test_what_1x_left_out_of_a_message_is_filled_in_as_java_does() -> None:
    content = [None, {"type": "text", "text": None}, {"type": "tool_use", "id": "c", "name": "n"}]
    results = [{"type": "tool_result", "id": "c", "name": "n", "output": None}]
    document = {
        "context": [
            msg(role="ASSISTANT", content=content, metadata={"a": None, "b": 1}),
            msg(role="TOOL", content=results),
        ]
    }
    call, result = AgentState.from_json(json.dumps(document)).context

    assert call.metadata == {"b": 1}
    assert [part["type"] for part in call.parts] == ["text", "tool_use"]
    assert call.parts[0]["text"] == ""
    assert call.parts[1]["state"] == "pending"
    assert (result.parts[0]["state"], result.parts[0]["output"]) == ("running", [])


def test_a_message_without_id_and_time_is_the_same_at_every_read() -> None:
    text = json.dumps({"session_id": "s", "reply_id": "r", "context": [{"role": "USER", "content": []}] * 2})
    state = AgentState.from_json(text)

    assert state == AgentState.from_json(text) == reread(state)
    assert state.context[0].id != state.context[1].id


def test_lone_surrogates_become_the_replacement_character() -> None:
    assert reread(AgentState(summary="a\ud800b")).summary == "a\ufffdb"
    assert AgentState.from_json('{"summary":"a\\ud800b 你好 \\ud83d\\ude00"}').summary == "a\ufffdb 你好 😀"
    assert AgentState.from_json('{"summary":"a\udc00b"}').summary == "a\ufffdb"
    assert reread(with_messages(Message.user("x\udfff"))).context[0].text == "x\ufffd"


# ── refused documents ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "the document must be an object"),
        ({"summary": {}}, "summary must be a string"),
        ({"session_id": ["s"]}, "session_id must be a string"),
        ({"cur_iter": True}, "cur_iter must be a whole number"),
        ({"cur_iter": 2**31}, "cur_iter is 2147483648"),
        ({"shutdown_interrupted": "no"}, "shutdown_interrupted must be true or false"),
        ({"context": {}}, "context must be a list"),
        ({"context": [msg(), msg(), msg(), msg(role="user")]}, "context[3].role is 'user'"),
        ({"context": [msg(content="hi")]}, "context[0].content must be a list"),
        ({"context": [msg(content=[{}])]}, "context[0].content[0].type is missing"),
        ({"context": [msg(usage=3)]}, "context[0].usage must be an object"),
        ({"context": [msg(content=[{"type": "tool_use"}])]}, "context[0].content[0] is a 'tool_use' block"),
        ({"context": [msg(role="SYSTEM", content=[{"type": "hint"}])]}, "context[0].content[0] is a 'hint' block"),
        (block(type="zzz"), "context[0].content[0].type is 'zzz'"),
        (block(type="tool_use", state="PENDING"), "context[0].content[0].state is 'PENDING'"),
        (block(type="tool_use", input="{}"), "context[0].content[0].input must be an object"),
        (block(type="tool_result", output=[None]), "context[0].content[0].output[0] must be an object, not null"),
        (block(type="tool_result", metadata={"a": None}), "context[0].content[0].metadata.a is null"),
        (block(type="image"), "context[0].content[0].source is missing"),
        (block(type="image", source={"type": "file"}), "context[0].content[0].source.type is 'file'"),
        (block(type="image", source={"type": "url"}), "context[0].content[0].source.url is missing"),
        ({"permission_context": {"mode": "yolo"}}, "permission_context.mode is 'yolo'"),
        ({"permission_context": {"ask_rules": {"rm": {}}}}, "permission_context.ask_rules['rm'] must be a list"),
        ({"permission_context": {"ask_rules": {"rm": [{}]}}}, "permission_context.ask_rules['rm'][0].tool_name is mis"),
        (
            {"permission_context": {"deny_rules": {"rm": [{"tool_name": "rm", "behavior": "no", "source": "s"}]}}},
            "permission_context.deny_rules['rm'][0].behavior is 'no'",
        ),
        (
            {"permission_context": {"deny_rules": {"rm": [{"tool_name": "rm", "behavior": "deny"}]}}},
            "permission_context.deny_rules['rm'][0].source is missing",
        ),
        ({"tool_context": {"max_cache_files": 1}}, "tool_context.max_cache_files is 1"),
        ({"tool_context": {"max_cache_bytes": 10000}}, "tool_context.max_cache_bytes is 10000, not"),
        ({"tasks_context": {"tasks": [{"subject": "a"}]}}, "tasks_context.tasks[0].description is missing"),
        (
            {"tasks_context": {"tasks": [{"subject": "a", "description": "b", "state": "done"}]}},
            "tasks_context.tasks[0].state is 'done'",
        ),
        ({"plan_mode_context": []}, "plan_mode_context must be an object, not a list"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document: object, place: str) -> None:
    with pytest.raises(StateDecodeError) as caught:
        AgentState.from_json(json.dumps(document))
    assert caught.value.reason.startswith(place)


@pytest.mark.parametrize(
    "text", ["", "{", FRESH[:-1], FRESH + "}", '{"summary":NaN}', '{"summary":"\\ud800"', b"\xff", "[" * 100_000]
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(StateDecodeError, match="the state cannot be read: the document is"):
        AgentState.from_json(text)


def test_limits_just_above_those_refused_are_read() -> None:
    state = AgentState.from_json('{"tool_context":{"max_cache_files":2,"max_cache_bytes":10001}}')

    assert (state.tool_context.max_cache_files, state.tool_context.max_cache_bytes) == (2, 10001.0)
    assert '"max_cache_bytes":10001.0' in state.to_json()


@pytest.mark.parametrize(
    ("state", "place"),
    [
        (AgentState(tool_context=ToolContext(max_cache_files=1)), "max_cache_files"),
        (AgentState(extra={"summary": "x"}), "summary"),
        (AgentState(summary=None), "summary"),  # pyright: ignore[reportArgumentType]
        (AgentState(context=[{"role": "user"}]), "context[0]"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_state_that_could_not_be_read_again_is_not_written(state: AgentState, place: str) -> None:
    with pytest.raises(ValueError, match=re.escape(place)):
        state.to_json()


# ── nothing is lost ──────────────────────────────────────────────────────────


def unknown_everywhere(value: Any) -> Any:
    """Return a document with an unknown field in every object that has fields of its own."""
    if isinstance(value, list):
        return [unknown_everywhere(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: unknown_everywhere(item) for key, item in value.items()}
    return {**inner, "x_new": {"deep": [1, None, "é"]}} if is_record(value) else inner


def is_record(value: dict[str, Any]) -> bool:
    marks = {"session_id", "mode", "tool_name", "path", "max_cache_files", "tasks", "subject", "plan_active", "type"}
    return bool(value.keys() & (marks | {"role"}))


def test_unknown_fields_come_out_again_wherever_they_stood() -> None:
    document = unknown_everywhere(json.loads(FULL))

    assert json.dumps(document).count("x_new") > 25
    assert json.loads(AgentState.from_json(json.dumps(document)).to_json()) == document


def test_unknown_fields_with_names_of_ours_come_out_again() -> None:
    odd = msg(usage=None, parts=[1], createdAt=5, leafward_provider="theirs")
    state = AgentState.from_json(json.dumps({"context": [odd]}))

    assert json.loads(state.to_json())["context"] == [odd]
    assert reread(state) == state


@pytest.mark.parametrize(
    "message",
    [
        Message.user("hi"),
        Message.user("hi", metadata={}),
        Message.user("hi", metadata={"a": None}, usage={"inputTokens": 1}, custom=[1]),
        Message.user("hi", content="mine", leafward_at=1),
        Message.user("hi", leafward_message={"role": "user", "parts": []}),
        Message("developer", "rules"),
        Message("USER", "loud"),
        Message("user", [{"type": "tool-weather", "toolCallId": "c", "input": {"city": "Paris"}}]),
        Message("assistant", [{"type": "tool_use", "id": "c", "name": "n", "input": "{broken"}]),
        Message.tool_result("c", [{"type": "odd", "value": 1}], "n"),
        Message.user("hi", timestamp="noon"),
        Message.from_dict({"id": "m", "role": "USER", "content": [], "timestamp": "2026-08-22 23:15:56.123"}),
        Message.from_dict(msg()),
    ],
)
def test_any_message_comes_back_as_it_was_and_java_can_read_it(message: Message) -> None:
    state = with_messages(message)
    written = json.loads(state.to_json())

    assert reread(state).context == [message]
    # Java drops the keys it does not know; what is left must be a message to its reader.
    bare = {key: value for key, value in written["context"][0].items() if key in KNOWN}
    assert bare.keys() == KNOWN
    assert AgentState.from_json(json.dumps({"context": [bare]})).context[0].id == message.id


SCHEMA = {"schema": {"type": ["string", "null"], "of": {"type": {"a": 1}}}}


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", [{"type": "tool_use", "id": "1", "name": "n", "input": SCHEMA}]),
        Message("tool", [{"type": "tool_result", "id": "1", "name": "n", "output": SCHEMA}]),
        Message("tool", [{"type": "tool_result", "id": "1", "name": "n", "output": [SCHEMA, 7, [SCHEMA]]}]),
        Message("assistant", [{"type": "custom", "x": SCHEMA}]),
    ],
)
def test_a_schema_may_stand_anywhere_in_a_message(message: Message) -> None:
    assert reread(with_messages(message)).context == [message]


def test_sizes_and_counts_are_written_by_the_rules() -> None:
    source = {"type": "url", "url": "https://x/v.mp4"}
    odd = Message(
        "user",
        [{"type": "video", "source": source, "max_frames": 8, "min_pixels": 4, "fps": "x", "totalPixels": 3}],
        usage={"inputTokens": 1, "outputTokens": 2, "cachedTokens": "many", "totalTokens": 9},
    )
    shown = Message(
        "tool",
        [
            {
                "type": "tool_result",
                "id": "c",
                "name": "n",
                "output": [{"type": "image", "source": source, "max_pixels": 9}],
            }
        ],
    )
    state = with_messages(odd, shown)
    first, second = json.loads(state.to_json())["context"]
    assert first["content"] == [{"type": "video", "source": source, "maxFrames": 8, "minPixels": 4, "totalPixels": 3}]
    assert first["usage"] == {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    assert second["content"][0]["output"] == [{"type": "image", "source": source, "maxPixels": 9}]
    assert reread(state).context == [odd, shown]


def test_a_message_may_be_its_dict() -> None:
    state = AgentState(session_id="s")
    said: Any = {"id": "m", "role": "user", "parts": "hi"}
    state.context.append(said)
    assert [(one.id, one.text) for one in reread(state).context] == [("m", "hi")]


def test_a_message_that_formats_read_is_written_as_java_had_it() -> None:
    golden = [item for item in json.loads(FULL)["context"] if item["timestamp"]]
    state = with_messages(*from_agentscope(golden))

    assert json.loads(state.to_json())["context"] == golden
    assert reread(state) == state


def test_an_ordinary_message_is_written_once_with_its_exact_time() -> None:
    message = Message.user("hi", created_at=datetime(2026, 8, 22, 15, 15, 56, 123456, UTC))
    written = json.loads(with_messages(message).to_json())["context"][0]

    assert written.keys() == KNOWN | {"leafward_at"}
    assert written["leafward_at"] == 1787411756123456
    assert written["timestamp"].endswith(":56.123")
    assert written["metadata"] == {}


def test_an_open_call_is_stored_as_open() -> None:
    call = {"type": "tool_use", "id": "c", "name": "n", "input": {}, "content": "{}", "metadata": {}, "state": "asking"}
    state = with_messages(Message.assistant([call]))

    assert [item["content"] for item in json.loads(state.to_json())["context"]] == [[call]]


def test_an_interrupt_is_neither_stored_nor_compared() -> None:
    state = with_messages(Message.user("hi"))
    before = state.to_json()
    state.interrupt_control.interrupt()

    assert state.interrupt_control.is_interrupted
    assert state.to_json() == before
    assert state == reread(state)
    assert not reread(state).interrupt_control.is_interrupted
    state.interrupt_control.clear()
    assert not state.interrupt_control.is_interrupted


@given(STATES)
def test_every_state_reads_back_as_it_was_written(state: AgentState) -> None:
    text = state.to_json()

    assert AgentState.from_json(text) == state
    assert AgentState.from_json(text).to_json() == text


# ── 1.x data and errors ──────────────────────────────────────────────────────

LEGACY = [
    {"role": "USER", "name": "u", "content": [{"type": "text", "text": "hi"}]},
    {"id": "c", "role": "USER", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]},
]


@pytest.mark.parametrize("groups", [None, [], ["web"]])
def test_a_1x_session_becomes_a_state_of_its_own_slot(groups: list[str] | None) -> None:
    state = from_legacy([*LEGACY, Message.user("new", id="n")], groups, session_id="s1", user_id="alice")

    assert (state.session_id, state.user_id) == ("s1", "alice")
    assert [message.text for message in state.context] == ["hi", "", "new"]
    assert state.context[1].parts[0]["state"] == "pending"
    assert state.tool_context.activated_groups == (groups or [])
    assert reread(state) == state


def test_a_wrong_1x_message_is_refused_with_its_place() -> None:
    with pytest.raises(StateDecodeError, match=re.escape("memory_messages[1].role is 'user'")):
        from_legacy([LEGACY[0], {"role": "user", "content": []}], None, session_id="s1", user_id=None)


@pytest.mark.parametrize("user", ["alice", None])
def test_errors_about_a_stored_state_name_its_slot(user: Literal["alice"] | None) -> None:
    broken = StateDecodeError(user, "s1", "agent_state", "summary must be a string, not a list")
    stale = StaleState(user, "s1", "agent_state", 3)
    whose = "user 'alice'" if user else "the anonymous user"

    assert isinstance(broken, LeafwardError)
    assert str(broken) == f"the state 'agent_state' of session 's1' of {whose} cannot be read: {broken.reason}"
    assert (broken.user_id, broken.session_id, broken.name) == (user, "s1", "agent_state")
    assert isinstance(stale, Conflict)
    assert str(stale).startswith(f"the state 'agent_state' of session 's1' of {whose} is no longer at version 3")
    assert (stale.user_id, stale.session_id, stale.name, stale.expected) == (user, "s1", "agent_state", 3)
