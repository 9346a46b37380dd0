"""Which result answers which call: the same wherever it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import Message, Session, assistant, open_store, tool_result, user
from leafward.core.calls import Call, open_ends, pair
from leafward.core.cuts import Cuts
from leafward.core.message import Message as Stored
from leafward.core.notices import with_notices
from leafward.core.parts import search_text
from leafward.core.tokens import count_tokens
from leafward.core.transcript import Transcriber
from leafward.formats import to_anthropic, to_openai_chat


def call(call_id: str, name: str = "look", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **fields}


def answered(messages: list[Message]) -> list[tuple[str, object]]:
    """Return the name of each answered call, and its output."""
    return [(one.name, result.output) for one, result in pair(messages).answers.items()]


def texts(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def test_a_result_answers_the_nearest_call_above_when_an_id_is_used_again() -> None:
    messages = [
        assistant([call("c0", "first")]),
        tool_result("c0", "one"),
        assistant([call("c0", "second")]),
        tool_result("c0", "two"),
    ]

    assert answered(messages) == [("first", texts("one")), ("second", texts("two"))]


def test_a_call_left_open_by_a_crash_is_not_answered_by_a_later_turn() -> None:
    messages = [assistant([call("c0", "lost")]), user("again"), assistant([call("c0", "second")])]
    messages += [tool_result("c0", "two"), tool_result("c0", "two again")]

    assert answered(messages) == [("second", texts("two"))]


def test_an_orphan_does_not_take_the_call_of_a_later_turn() -> None:
    messages = [tool_result("c0", "orphan"), assistant([call("c0")]), tool_result("c0", "right")]

    assert answered(messages) == [("look", texts("right"))]
    assert [result.output for result in pair(messages).orphans] == [texts("orphan")]


def test_a_result_that_was_stored_before_its_call_answers_it() -> None:
    assert answered([tool_result("c0", "early"), assistant([call("c0")])]) == [("look", texts("early"))]


def test_a_result_whose_call_was_deleted_does_not_answer_a_later_call_of_its_id() -> None:
    messages = [tool_result("c0", "PAID 10 EUR"), user("Once more."), assistant([call("c0", "pay")])]

    assert answered(messages) == []
    assert Cuts.of(messages).pending == 2
    assert "PAID" not in to_openai_chat(messages)[-1]["content"]


def test_two_calls_of_one_message_that_share_an_id_are_answered_in_their_order() -> None:
    messages = [assistant([call("c0", "a"), call("c0", "b")]), tool_result("c0", "1"), tool_result("c0", "2")]

    assert answered(messages) == [("a", texts("1")), ("b", texts("2"))]


def test_a_final_result_wins_over_one_that_is_not() -> None:
    messages = [assistant([call("c0")]), tool_result("c0", "wait", state="running"), tool_result("c0", "done")]

    assert answered(messages) == [("look", texts("done"))]


def test_a_part_of_ai_sdk_that_repeats_an_open_call_is_its_result() -> None:
    open_call = {"type": "tool-look", "toolCallId": "c", "state": "input-available", "input": {"at": 1}}
    settled = {**open_call, "state": "output-available", "output": "seen"}

    payload = to_openai_chat([assistant([open_call]), assistant([settled])])

    assert [message["role"] for message in payload] == ["assistant", "tool"]
    assert payload[1]["content"] == "seen"


def test_a_part_of_ai_sdk_that_comes_again_after_a_question_is_a_new_call() -> None:
    lost = {"type": "tool-pay", "toolCallId": "c0", "state": "input-available", "input": {"sum": 10}}
    paid = {**lost, "state": "output-available", "output": "paid"}
    said = {"type": "text", "text": "Once more."}

    payload = to_openai_chat([assistant([lost]), user("Once more."), assistant([paid])])

    assert [each["role"] for each in payload] == ["assistant", "tool", "user", "assistant", "tool"]
    assert "interrupted" in payload[1]["content"]
    assert payload[4]["content"] == "paid"
    assert [each["role"] for each in to_openai_chat([assistant([lost]), assistant([said, paid])])] == [
        *("assistant", "tool"),
        *("assistant", "tool"),
    ]


@pytest.mark.parametrize("between", [[], [tool_result("other", "x")], [assistant([{"type": "data-x", "data": 1}])]])
def test_a_part_that_repeats_a_call_is_its_result_also_where_text_stands_beside_it(between: list[Message]) -> None:
    lost = {"type": "tool-pay", "toolCallId": "c0", "state": "input-available", "input": {"sum": 10}}
    paid = {**lost, "state": "output-available", "output": "paid"}
    said = {"type": "text", "text": "So."}

    pairs = pair([assistant([lost, said]), *between, assistant([paid, said])])

    assert [one.output for one in pairs.answers.values()] == ["paid"]
    assert [one.id for row in pairs.items for one in row if isinstance(one, Call)] == ["c0"]


OUTCOMES: list[tuple[dict[str, Any], str, str]] = [
    ({"state": "output-available", "output": "sun"}, "success", "sun"),
    ({"state": "output-error", "errorText": "boom", "output": "word " * 1000}, "error", "boom"),
    ({"state": "output-error", "output": "half of it"}, "error", "half of it"),
    ({"errorText": "boom"}, "error", "boom"),
    ({"state": "output-denied"}, "denied", "The user denied this call."),
    ({"state": "output-denied", "approval": {"reason": "Too dear."}}, "denied", "Too dear."),
    ({"state": "success", "is_error": True, "output": "boom"}, "error", "boom"),
    ({"state": "interrupted", "is_error": True, "output": "stopped"}, "interrupted", "stopped"),
    ({"is_error": True, "content": "boom"}, "error", "boom"),
]


@pytest.mark.parametrize(("fields", "state", "output"), OUTCOMES)
def test_how_a_tool_ended_is_the_same_wherever_it_is_asked(fields: dict[str, Any], state: str, output: str) -> None:
    ui = {"type": "tool-look", "toolCallId": "c", "input": {}}
    is_result = state == "interrupted" or "is_error" in fields
    parts = [call("c"), {"type": "tool_result", "id": "c", **fields}] if is_result else [{**ui, **fields}]
    message = assistant(parts)

    [result] = pair([message]).answers.values()

    assert (result.state, result.output) == (state, output)
    assert to_openai_chat([message])[1]["content"] == output
    label = {"success": "Output"}.get(state, state.capitalize())
    assert f"{label}: {output}" in Transcriber([message]).turn(message)
    assert count_tokens(message) < 20
    assert output in search_text(message.body)
    assert to_openai_chat([with_notices(message, {"c": "[gone]"})])[1]["content"] == "[gone]"


def test_a_call_and_its_result_are_not_cut_apart_whatever_the_dialect() -> None:
    anthropic = Message("user", [{"type": "tool_result", "tool_use_id": "c", "content": "x"}])
    openai = Stored.stored("m", "tool", 0, {"parts": texts("x"), "tool_call_id": "c"})
    for result in (tool_result("c", "x"), anthropic, openai):
        for part in (call("c"), {**call("c"), "type": "tool_call"}):
            assert Cuts.of([assistant([part]), result, user("next")]).at_or_before(1) == 0


def test_a_transcript_names_the_tool_of_a_nameless_result() -> None:
    messages = [
        assistant([call("c0", "first")]),
        tool_result("c0", "one"),
        assistant([call("c0", "second")]),
        tool_result("c0", "two"),
    ]
    writer = Transcriber(messages)

    assert "[Result of tool: first]" in writer.turn(messages[1])
    assert "[Result of tool: second]" in writer.turn(messages[3])


def test_calls_outside_a_window_are_missed_also_when_their_id_is_used_again_in_it() -> None:
    window = [tool_result("c0", "old"), assistant([call("c0")]), tool_result("c0", "new")]

    assert open_ends(window) == ({"c0"}, False)
    assert open_ends(window[1:]) == (set(), False)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(("text", "tool_use", "tool_result", "tool-look")), st.sampled_from("abc")),
            min_size=1,
            max_size=3,
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_open_ends_are_those_of_the_pairs(rows: list[list[tuple[str, str]]], running: bool) -> None:
    state = {"state": "running"} if running else {}
    made = {
        "text": lambda _: {"type": "text", "text": "words"},
        "tool_use": call,
        "tool_result": lambda id: {"type": "tool_result", "id": id, "output": "found", **state},
        "tool-look": lambda id: {"type": "tool-look", "toolCallId": id, "input": {}, "output": "found"},
    }
    messages = [assistant([made[kind](id) for kind, id in row]) for row in rows]
    pairs = pair(messages)
    unanswered = any(one not in pairs.answers for row in pairs.items for one in row if isinstance(one, Call))
    missed = {one.call_id for one in pairs.orphans if one not in pairs.repeats}
    missed |= {one.call_id for asked, one in pairs.answers.items() if pairs.places[asked] > pairs.places[one]}

    assert open_ends(messages) == (missed, unanswered)


@pytest.mark.parametrize("limit", range(1, 7))
async def test_a_window_holds_the_call_of_each_result_when_an_id_is_used_again(limit: int) -> None:
    async with open_store("memory://") as store:
        session = Session(store)
        for turn in range(3):
            await session.append_messages([user(f"q{turn}"), assistant([call("c0", f"tool{turn}")])])
            await session.append_message(tool_result("c0", f"r{turn}"))

        recent = await session.get_recent_history(max_messages=limit)

        assert open_ends(recent.messages) == (set(), False)
        assert len(recent.messages) <= limit + 1
        assert "whose call is not part" not in str(to_anthropic(recent.messages))


@pytest.mark.parametrize("limit", range(1, 6))
async def test_a_window_holds_results_that_were_stored_before_their_calls(limit: int) -> None:
    async with open_store("memory://") as store:
        session = Session(store)
        early = [tool_result("c0", "one"), tool_result("c1", "two")]
        await session.append_messages([user("q"), *early, assistant([call("c0"), call("c1")]), user("and now?")])

        recent = (await session.get_recent_history(max_messages=limit)).messages

        pairs = pair(recent)
        calls = [one for items in pairs.items for one in items if isinstance(one, Call)]
        assert [one.id for one in calls if one not in pairs.answers] == []
        assert len(recent) in (limit, 4)


async def test_a_window_finds_an_early_result_among_other_results() -> None:
    async with open_store("memory://") as store:
        session = Session(store)
        stored = [tool_result("c0", "one"), tool_result("gone", "orphan"), assistant([call("c0")])]
        await session.append_messages([user("q"), *stored])

        recent = await session.get_recent_history(max_messages=1)

        assert recent.messages == stored
        assert recent.truncated


async def test_a_window_that_waits_for_a_result_holds_no_results_of_others() -> None:
    async with open_store("memory://") as store:
        session = Session(store)
        waiting = assistant([call("c1")])
        await session.append_messages([user("q"), assistant([call("c0")]), tool_result("c0", "one"), waiting])

        recent = await session.get_recent_history(max_messages=1)

        assert (recent.messages, recent.truncated) == ([waiting], True)


def test_a_part_of_type_tool_call_is_a_call_everywhere() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "weather", "input": '{"city": "Paris"}'}

    assert "Paris" in search_text({"parts": [call]})
    assert count_tokens(assistant([call])) > 8
    assert Cuts.of([assistant([call]), tool_result("c1", "x"), user("hi")]).at_or_before(1) == 0
    assert to_openai_chat([assistant([call])])[0]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
