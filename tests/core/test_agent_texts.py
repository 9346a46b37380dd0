"""What is written of a message is made once, and is what it would be if it were made each time."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leafward.core import agent_texts
from leafward.core.agent_message_writer import Checked, MsgWriter, Written, write_messages
from leafward.core.agent_state import AgentState, text_of
from leafward.core.json import encode_text
from leafward.core.message import Message, assistant, body_to_read, kept_with, tool_result, user
from leafward.core.notices import with_notices
from leafward.core.pretty import pretty, with_escapes
from leafward.core.state_values import read_items, write_items, write_value
from leafward.core.tokens import count_tokens
from tests.core.agent_states import JSON, MESSAGES
from tests.core.test_messages_of_java import ODD, msg
from tests.formats.conversations import conversations
from tests.formats.sample_parts import PARTS

OF_JAVA = [*ODD.values(), msg(), msg(id="n", role="TOOL"), msg(timestamp=None), msg(id="o", usage={"time": 1.5})]


def copied(message: Message) -> Message:
    """Return a message with which nothing is kept, and that shares nothing."""
    return Message.stored(message.id, message.role, message.at, copy.deepcopy(body_to_read(message)))


def made_again(state: AgentState) -> str:
    """Return what is written of a state when each message is written for this one time."""
    rest = json.loads(replace(state, context=[]).to_json())
    return encode_text({**rest, "context": write_messages([*map(copied, state.context)])})


def outcome(write: Callable[[], str]) -> str:
    """Return what is written, or what is said to be wrong."""
    try:
        return write()
    except ValueError as error:
        return str(error)


def is_written(state: AgentState) -> bool:
    return outcome(state.to_json).startswith("{")


def check(state: AgentState) -> None:
    """Compare all forms of a state with those that are made each time."""
    text = outcome(lambda: made_again(state))
    assert outcome(state.to_json) == text
    if text.startswith("{"):
        assert write_value(state) == with_escapes(text)
        assert text_of(state).laid_out() == pretty(with_escapes(text))


def check_list(state: AgentState, *, of_1x: bool) -> None:
    """Compare the items of a list with those that are made each time."""
    if is_written(replace(state, context=[*map(copied, state.context)])):
        items = write_messages([*map(copied, state.context)], of_1x=of_1x)
        assert write_items(state.context, of_1x=of_1x) == [with_escapes(encode_text(item)) for item in items]


def check_list_of_1x(state: AgentState) -> None:
    check_list(state, of_1x=True)


def check_list_of_2x(state: AgentState) -> None:
    check_list(state, of_1x=False)


def containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


ANY = st.one_of(
    JSON,
    st.sampled_from([1, True, 1.0, 0.0, -0.0, "1", "\x1b", "\ud800", {}, [], (1,), {1}, float("nan"), 2**70]),
    st.sampled_from(PARTS),
)
KEYS = ["type", "text", "id", "output", "timestamp", "usage", "metadata", "name", "leafward_continues", "", "x"]


class Meddler:
    """Changes messages in every way that is open to who gets hold of something in them."""

    def __init__(self, seed: int, values: list[Any]) -> None:
        self._random = Random(seed)
        self._values = values
        self._held: list[Any] = []

    def choose(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def get_hold(self, message: Message) -> None:
        """Keep something of a message for later."""
        way = self.choose("parts", "metadata", "extra", "body", "copy", "notices")
        if way == "copy":
            self._held += containers(copy.copy(message).body)
        elif way == "notices" and is_written(AgentState(context=[copied(message)])):
            self._held += containers(with_notices(message, {}).body)
        elif way in body_to_read(message) or way in ("extra", "body"):
            self._held += containers(getattr(message, way))

    def change(self) -> None:
        """Change something that was got hold of at any time."""
        place = self.choose(*self._held, {})
        if isinstance(place, dict):
            key = self.choose(*place, *KEYS)
            what = self.choose("set", "remove", "reorder", "respell", "clear")
            if what == "set":
                place[key] = self._value()
            elif what == "clear":
                place.clear()
            elif key in place:
                value = place.pop(key)
                if what == "reorder":
                    place[key] = value
                elif what == "respell" and isinstance(value, int):
                    # Equal, and another text.
                    place[key] = self.choose(float(value), bool(value))
        else:
            what = self.choose("append", "insert", "pop", "replace", "reverse")
            if what == "append":
                place.append(self._value())
            elif what == "insert":
                place.insert(0, copy.deepcopy(self.choose(*PARTS)))
            elif what == "reverse":
                place.reverse()
            elif place and what == "pop":
                place.pop()
            elif place:
                place[-1] = self._value()

    def _value(self) -> Any:
        return copy.deepcopy(self.choose(*self._values))


CONTEXTS = st.one_of(
    st.lists(MESSAGES, max_size=4),
    conversations().map(lambda made: made.messages),
    st.lists(st.sampled_from(OF_JAVA), max_size=5).map(
        lambda items: AgentState.from_json(encode_text({"context": items})).context
    ),
    st.lists(st.sampled_from(PARTS), max_size=3).map(lambda parts: [assistant([part], id="p") for part in parts]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([check, check, check_list_of_1x, check_list_of_2x]),
    st.integers(),
    st.lists(ANY, min_size=1, max_size=6),
    CONTEXTS,
    CONTEXTS,
)
def test_what_was_changed_since_is_written_as_it_is_now(
    check: Callable[[AgentState], None], seed: int, values: list[Any], messages: list[Message], others: list[Message]
) -> None:
    state = AgentState(session_id="s", reply_id="r", context=[*messages])
    meddler = Meddler(seed, values)
    for _ in range(10):
        check(state)
        what = meddler.choose("get hold", "get hold", "change", "change", "rest", "cut", "add", "move", "reread")
        if what == "change":
            meddler.change()
        elif what == "rest":
            state.summary = meddler.choose("", "\x1f in short")
        elif what == "add":
            place = meddler.choose(0, 1, 2, 3)
            state.context[place:place] = others
        elif what == "reread" and is_written(replace(state, context=[*map(copied, state.context)])):
            state = AgentState.from_json(state.to_json())
        elif state.context:
            if what == "cut":
                del state.context[meddler.choose(*range(len(state.context)))]
            elif what == "move":
                state.context.append(state.context.pop(0))
            else:
                meddler.get_hold(meddler.choose(*state.context))
    check(state)


def shown(message: Message) -> Message:
    return with_notices(message, {})


WAYS: dict[str, Callable[[Message], Any]] = {
    "its parts": lambda message: message.parts[0],
    "the list of them": lambda message: message.parts,
    "its metadata": lambda message: message.metadata,
    "other keys": lambda message: message.extra["more"],
    "its body": lambda message: message.body,
    "a copy": lambda message: copy.copy(message).parts[0],
    "what a notice leaves of it": lambda message: shown(message).parts[0],
}


@pytest.mark.parametrize("get_hold", WAYS.values(), ids=WAYS)
def test_no_way_into_a_message_escapes_notice(get_hold: Callable[[Message], Any]) -> None:
    for message in (
        user("hello", metadata={"n": 1}, more={"n": 1}),
        copied(user("hello", metadata={"n": 1}, more={"n": 1})),
        shown(user("hello", metadata={"n": 1}, more={"n": 1})),
    ):
        state = AgentState(session_id="s", reply_id="r", context=[message])
        check(state)
        for _ in range(2):
            before = state.to_json()
            held = get_hold(message)
            if isinstance(held, list):
                held.append({"type": "text", "text": "more"})
            else:
                held["n"] = held.get("n", 1) + 1
            check(state)
            assert state.to_json() != before


def test_what_two_messages_share_is_written_as_it_is_in_both() -> None:
    message = user("hello")
    state = AgentState(session_id="s", reply_id="r", context=[message, shown(message), copy.copy(message)])
    check(state)

    message.parts[0]["text"] = "bye"
    check(state)
    assert state.to_json().count("bye") == 3


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of the messages that were written, in any list, since the test began."""
    found: list[int] = []

    class Noting(MsgWriter):
        def write(self, index: int, checked: Checked) -> Written:
            found.append(index)
            return super().write(index, checked)

    monkeypatch.setattr(agent_texts, "MsgWriter", Noting)
    return found


MESSAGE_OF_EACH_KIND = {
    "text": user("hello \x1b[1m", id="u"),
    "call": assistant([{"type": "tool_use", "id": "c", "name": "look", "input": {"n": 1}}], id="a"),
    "result": tool_result("c", "seen", "look", id="t"),
    "in pieces": Message("assistant", [{"type": "reasoning", "text": "hm"}, {"type": "odd"}], id="p"),
    "in several": Message("user", [{"type": "text", "text": "x"}, {"type": "tool_result", "id": "c"}], id="s"),
    "of Java": AgentState.from_json(encode_text({"context": [msg(id="j")]})).context[0],
}


@pytest.mark.parametrize("message", MESSAGE_OF_EACH_KIND.values(), ids=MESSAGE_OF_EACH_KIND)
def test_a_message_is_written_once(message: Message, written: list[int]) -> None:
    message = copied(message)
    state = AgentState(context=[message])
    text = state.to_json()
    assert state.to_json() == text
    assert written == [0]

    state.context.append(user("more"))
    state.to_json()
    assert written == [0, 1]
    check(state)


def test_looking_at_a_message_does_not_have_it_written_again(written: list[int]) -> None:
    message = user("hello", metadata={"n": 1}, more={"m": 2})
    state = AgentState(context=[message])
    state.to_json()

    for look in (Message.to_dict, str, count_tokens, Message.sealed):
        look(message)
    for name in ("parts", "metadata", "extra", "body", "text"):
        assert getattr(message, name)
    state.to_json()
    assert written == [0]


def test_a_message_that_is_changed_and_changed_back_is_not_written_again(written: list[int]) -> None:
    message = user("hello")
    state = AgentState(context=[message])
    before = state.to_json()

    message.parts.append({"type": "text", "text": "more"})
    assert state.to_json() != before
    message.parts.pop()
    assert state.to_json() == before
    assert written == [0, 0, 0], "only the text of the last words is kept"


def test_a_state_that_was_read_is_written_as_it_was_without_writing_a_message(written: list[int]) -> None:
    messages = [one for name, one in MESSAGE_OF_EACH_KIND.items() if not name.startswith("in ")]
    text = AgentState(context=[*map(copied, messages)]).to_json()
    written.clear()

    for form in (text, pretty(with_escapes(text)), with_escapes(text).encode()):
        state = AgentState.from_json(form)
        assert state.to_json() == text
        assert written == []
        check(state)
        written.clear()


def test_what_java_spells_in_another_way_is_written_once(written: list[int]) -> None:
    [message] = AgentState.from_json('{"context":[{"role":"USER","id":"m"}]}').context
    state = AgentState(context=[message])

    assert state.to_json() == state.to_json()
    assert written == [0]


def test_a_message_of_java_is_written_by_what_is_above_it() -> None:
    document = encode_text({"context": [msg(id="a", timestamp=None), msg(id="b"), msg(id="c", timestamp="later")]})
    state = AgentState.from_json(document)
    first, second, third = state.context
    for order in ([first, second, third], [third, first, second], [second, second], [third], [second, third, first]):
        state.context = order
        check(state)


def test_a_call_of_ai_sdk_that_a_message_repeats_is_written_by_what_is_above_it() -> None:
    part = {"type": "tool-look", "toolCallId": "c", "input": {"n": 1}}
    asked = assistant([{**part, "state": "input-available"}], id="a")
    answered = assistant([{**part, "state": "output-available", "output": "x"}], id="b")
    for order in ([answered], [asked, answered], [answered, asked], [user("x", id="u"), answered], [asked, answered]):
        check(AgentState(session_id="s", reply_id="r", context=order))


def test_each_layout_gets_the_blocks_that_it_knows() -> None:
    message = assistant([{"type": "hint", "hint": "look up"}], id="m")
    state = AgentState(session_id="s", reply_id="r", context=[message])
    for _ in range(2):
        check_list_of_1x(state)
        check(state)
        check_list_of_2x(state)
    assert json.loads(state.to_json())["context"][0]["content"] == message.parts
    assert json.loads(write_items([message], of_1x=True)[0])["content"][0]["type"] == "text"


def test_local_times_follow_the_zone_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = user("hello", created_at=datetime(2026, 8, 22, 12, tzinfo=UTC))
    [theirs] = AgentState.from_json(encode_text({"context": [msg()]})).context
    state = AgentState(session_id="s", reply_id="r", context=[ours, theirs])
    try:
        for zone, local in (("Asia/Shanghai", "20:00"), ("America/New_York", "08:00"), ("Asia/Shanghai", "20:00")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            check(state)
            assert f'"2026-08-22 {local}:00.000"' in state.to_json()
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_is_equal_and_takes_nothing_along_that_was_kept(copies: Callable[[Any], Any]) -> None:
    message = user("hello", metadata={"n": 1}, id="m")
    state = AgentState(session_id="s", reply_id="r", context=[message])
    size = len(pickle.dumps(state))
    text = state.to_json()

    assert len(pickle.dumps(state)) == size
    for one in (message, state):
        assert copies(one) == one
        assert kept_with(getattr(copies(one), "context", [copies(one)])[0]) in (None, kept_with(message))
    assert copies(state).to_json() == text
    copies(message).parts[0]["text"] = "bye"
    copies(state).context[0].parts[0]["text"] += "!"
    check(state)


def test_equality_and_text_are_those_of_the_words_alone() -> None:
    one, other = (user("hello", id="m", created_at=datetime(2026, 8, 22, tzinfo=UTC)) for _ in range(2))
    AgentState(context=[one]).to_json()

    assert one == other
    assert repr(one) == repr(other)
    assert one.sealed()[1] == other.sealed()[1]


def test_the_remainder_is_written_as_it_is_now() -> None:
    state = AgentState(session_id="s", reply_id="r", extra={"n": 1})
    for value in (1, True, 1.0, "1", [1], {"a": {"b": 2}}, 10**30, "\ud800"):
        state.extra["n"] = value
        assert state.to_json() == replace(state).to_json()
    for unsound in (datetime(2026, 8, 22, tzinfo=UTC), {1}, float("nan"), object()):
        with pytest.raises(ValueError, match="holds"):
            AgentState(extra={"n": unsound}).to_json()
        state.extra["n"] = "2026-08-22T00:00:00Z"
        state.to_json()
        state.extra["n"] = unsound
        with pytest.raises(ValueError, match="holds"):
            state.to_json()


def test_items_of_a_list_are_written_once(written: list[int]) -> None:
    messages = [*map(copied, MESSAGE_OF_EACH_KIND.values())]
    texts = write_items(messages)
    assert written == [*range(len(messages))]

    assert write_items([*messages, user("more")])[: len(texts)] == texts
    assert written[len(messages) :] == [len(messages)]
    assert len(read_items(texts, Message)) == len(messages)
