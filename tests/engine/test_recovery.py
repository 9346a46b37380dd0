"""What a call does with calls that have no result, and with input that is stored already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from leafward.core.calls import Call
from leafward.core.errors import StateDecodeError
from leafward.core.json import decode, encode
from leafward.core.message import Message, assistant, ids_of, tool_result, user
from leafward.engine.call_results import Fate, closing_result, fate_of
from leafward.engine.known_input import InputMatch, match_input
from leafward.engine.recovery import idempotency_key, open_calls, plan_calls
from leafward.engine.turn_note import TurnNote


def reply(id: str, *calls: str, text: str = "") -> Message:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "tool_use", "id": call, "name": "pay", "input": {"call": call}} for call in calls]
    return assistant(parts, id=id)


AWAITED = {
    "type": "tool_result",
    "name": "pay",
    "output": [{"type": "text", "text": "[Awaiting external execution]"}],
    "metadata": {"agentscope_suspended": True},
    "state": "running",
}
"""What AgentScope gives out for a tool that runs elsewhere."""


# ── calls without results ────────────────────────────────────────────────────


def test_open_calls_are_those_of_the_newest_reply_without_a_final_result() -> None:
    context = [
        user("hi", id="u1"),
        reply("a1", "old"),
        reply("a2", "c1", "c2", "c3"),
        tool_result("c2", "done", "pay", id="r2"),
        Message("tool", [{**AWAITED, "id": "c3"}], id="r3"),
    ]

    assert [call.id for call in open_calls(context)] == ["c1", "c3"]
    assert [call.message.id for call in open_calls(context)] == ["a2", "a2"]


def test_a_result_of_1x_which_has_no_state_answers_its_call() -> None:
    read_by_agentscope = tool_result("c1", "paid", "pay", state="running", id="r1")

    assert open_calls([reply("a1", "c1"), read_by_agentscope]) == []


def test_a_reply_is_open_below_later_messages_of_the_user() -> None:
    assert [call.id for call in open_calls([reply("a1", "c1"), user("hello?", id="u1")])] == ["c1"]


@pytest.mark.parametrize("context", [[], [user("hi")], [reply("a1", "c1"), reply("a2", text="done")]])
def test_without_calls_in_the_newest_reply_none_is_open(context: list[Message]) -> None:
    assert open_calls(context) == []


@dataclass(frozen=True)
class Flags:
    read_only: bool = False
    retry_safe: bool = False
    probe: object | None = None


def call(name: str = "pay") -> Call:
    message = assistant([{"type": "tool_use", "id": "c1", "name": name, "input": {}}], id="a1")
    return open_calls([message])[0]


KEY = idempotency_key("a1", "c1")


@pytest.mark.parametrize(
    ("tool", "begun", "again", "action", "attempts"),
    [
        (Flags(), False, 0, "run", 0),
        (Flags(probe=print), False, 0, "run", 0),
        (Flags(probe=print), True, 0, "probe", 0),
        (Flags(probe=print, read_only=True), True, 5, "probe", 5),
        (Flags(read_only=True), True, 0, "run_again", 1),
        (Flags(retry_safe=True), True, 1, "run_again", 2),
        (Flags(retry_safe=True), True, 2, "unknown", 2),
        (Flags(), True, 0, "unknown", 0),
        (None, True, 0, "unknown", 0),
        (None, False, 0, "run", 0),
    ],
)
def test_a_call_without_a_result_is_handled_as_its_tool_says(
    tool: Flags | None, begun: bool, again: int, action: str, attempts: int
) -> None:
    tools = {} if tool is None else {"pay": tool}

    (plan,) = plan_calls([call()], tools, begun=begun, attempts={KEY: again})

    assert (plan.action, plan.attempts, plan.key) == (action, attempts, KEY)


def test_a_call_that_is_killed_each_time_runs_three_times_in_all() -> None:
    runs, attempts = 1, dict[str, int]()
    while (plan := plan_calls([call()], {"pay": Flags(retry_safe=True)}, begun=True, attempts=attempts)[0]).action == (
        "run_again"
    ):
        runs += 1
        attempts = {plan.key: plan.attempts}

    assert runs == 3


def test_an_idempotency_key_is_the_same_for_ever_and_for_one_call_only() -> None:
    assert idempotency_key("a1", "c1") == "call_879234d974ae51dfbd6470e1"
    others = {idempotency_key(*both) for both in [("a1", "c2"), ("a2", "c1"), ("a1c", "1"), ("c1", "a1")]}
    assert len(others | {KEY}) == 5


def test_the_result_of_a_lost_process_says_that_its_outcome_is_unknown() -> None:
    found = closing_result("r0", call(), "unknown")

    assert found.role == "tool"
    assert found.parts == [
        {
            "type": "tool_result",
            "id": "c1",
            "name": "pay",
            "output": [
                {
                    "type": "text",
                    "text": "Outcome unknown: the process ended while this ran. Find out before you call it again.",
                }
            ],
            "state": "interrupted",
        }
    ]
    assert found.metadata == {"leafward_outcome": "unknown"}
    assert open_calls([call().message, found]) == []


@pytest.mark.parametrize(
    ("fate", "text"), [("not begun", "Interrupted before it ran."), ("elsewhere", "Not answered on this branch.")]
)
def test_other_results_of_ours_are_interrupted_and_say_why(fate: Fate, text: str) -> None:
    found = closing_result("r0", call(), fate)

    assert (found.parts[0]["state"], found.parts[0]["output"][0]["text"], found.metadata) == ("interrupted", text, None)


def test_the_outcome_of_a_call_that_was_cut_off_is_unknown() -> None:
    assert closing_result("r0", call(), "cut off").metadata == {"leafward_outcome": "unknown"}


def test_two_processes_that_repair_at_once_make_the_same_result() -> None:
    one = call()

    assert closing_result("r0", one, "unknown") == closing_result("r0", one, "unknown")
    assert closing_result("r0", one, "unknown").id == closing_result("r0", one, "not begun").id
    other = open_calls([reply("a2", one.id)])[0]
    places = [("r1", one), ("r0", other), (None, one), ("r0", one)]
    others = {closing_result(parent, made, "unknown").id for parent, made in places}
    assert len(others) == 4


# ── input that is known ──────────────────────────────────────────────────────


def match(input: Sequence[Message], path: Sequence[Message], note: TurnNote | None, **more: Any) -> InputMatch:
    return match_input(input, path, note, **more)


U1, U2, A1, A2 = user("one", id="u1"), user("two", id="u2"), reply("a1", text="first"), reply("a2", text="second")
OPEN = TurnNote("t", "running", ("u1",))
CLOSED = TurnNote("t", None, ("u1",))
FAILED = TurnNote("t", None, ("u1",), failed="TimeoutError")
RESUME = InputMatch("resume")


def test_new_input_begins_a_turn() -> None:
    assert match([U2], [U1, A1], CLOSED) == InputMatch("begin", (U2,))
    assert match([U2], [], None) == InputMatch("begin", (U2,))


@pytest.mark.parametrize("note", [OPEN, TurnNote("t", "asking", ("u1",)), TurnNote("t", "paused", ("u1",)), FAILED])
def test_the_input_of_an_open_turn_goes_on_with_it(note: TurnNote) -> None:
    path = [U1, reply("a1", "c1")]

    assert match([U1], path, note) == RESUME
    assert match([user("one")], path, note) == RESUME
    assert match([], path, note) == RESUME


def test_an_unanswered_message_above_the_input_of_an_open_turn_is_answered_by_it() -> None:
    path = [U1, U2, reply("a1", "c1")]

    assert match([U1], path, TurnNote("t", "running", ("u2",))) == RESUME
    assert match([U1], [U1, A1, U2], TurnNote("t", "running", ("u2",))) == InputMatch("answer", reply=A1)


def test_the_words_of_a_closed_turn_begin_another_one() -> None:
    again = user("one")

    assert match([again], [U1, A1], CLOSED) == InputMatch("begin", (again,))


def test_other_input_while_a_turn_is_open_begins_a_turn() -> None:
    same_words = user("one", id="mine")

    assert match([U2], [U1], OPEN) == InputMatch("begin", (U2,))
    assert match([same_words], [U1], OPEN) == InputMatch("begin", (same_words,))
    assert match([assistant("one")], [U1], OPEN).action == "begin"


def test_input_of_several_messages_goes_on_only_if_all_are_the_same() -> None:
    note = TurnNote("t", "running", ("u1", "u2"))

    assert match([user("one"), user("two")], [U1, U2], note) == RESUME
    assert match([U1, user("two")], [U1, U2], note) == RESUME
    assert match([user("two"), user("one")], [U1, U2], note).action == "begin"
    assert match([user("two")], [U1, U2], note).action == "begin"


def test_a_client_may_send_the_whole_history() -> None:
    path = [U1, A1]

    assert match([U1, A1, U2], path, CLOSED) == InputMatch("begin", (U2,))
    note = TurnNote("t2", "running", ("u2",))
    assert match([U1, A1, user("two")], [*path, U2], note) == RESUME
    assert match([U1, A1, U2], [*path, U2], note) == RESUME


def test_a_known_message_gets_its_stored_reply() -> None:
    path = [U1, reply("a0", "c1"), tool_result("c1", "x", id="r1"), A1, U2, A2]
    note = TurnNote("t2", None, ("u2",))

    assert match([U2], path, note) == InputMatch("answer", reply=A2)
    assert match([U1], path, note) == InputMatch("answer", reply=A1)
    assert match([U1, A1, U2, A2], path, note) == InputMatch("answer", reply=A2)


def test_the_reply_of_a_turn_that_was_steered_is_its_last_one() -> None:
    path = [U1, reply("a0", "c1"), tool_result("c1", "x", id="r1"), user("faster", id="s1"), A1]
    path += [user("hm", id="x1"), reply("x2", text="not of this turn")]

    assert match([U1], path, TurnNote("t", None, ("u1",), joined=("s1",))) == InputMatch("answer", reply=A1)


def test_an_interrupted_turn_gives_its_interrupted_reply() -> None:
    partial = reply("a1", text="I was ab")
    note = TurnNote("t", None, ("u1",), joined=("stop",))

    assert match([U1], [U1, partial, user("stop!", id="stop")], note) == InputMatch("answer", reply=partial)
    assert match([U1], [U1, user("stop!", id="stop")], note) == InputMatch("answer", reply=None)


def test_a_known_message_that_no_turn_has_answered_is_answered() -> None:
    assert match([U2], [U1, A1, U2], CLOSED) == RESUME
    assert match([U1], [U1], None) == RESUME


def test_a_message_of_another_branch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'u2' is on another branch: send it without an id"):
        match([U2], [U1, A1], CLOSED, elsewhere={"u2"})
    assert match([user("two")], [U1, A1], CLOSED, elsewhere={"u2"}).action == "begin"


def test_a_last_message_that_is_known_with_other_parts_is_refused() -> None:
    other = user("one, but different", id="u1")

    for note in (OPEN, CLOSED):
        with pytest.raises(ValueError, match=r"'u1' is stored with other parts: send it without an id"):
            match([other], [U1, A1], note)
    assert match([other, U2], [U1, A1], CLOSED) == InputMatch("begin", (U2,))


def test_without_an_open_turn_there_is_nothing_to_go_on_with() -> None:
    for path, note in [([U1, A1], CLOSED), ([], None), ([U1, A1], None)]:
        with pytest.raises(ValueError, match="no turn is open"):
            match([], path, note)


def test_a_copy_of_a_session_goes_on_from_a_message_without_an_answer() -> None:
    assert match([], [U1], None) == RESUME
    assert match([], [U1, reply("a1", "c1")], None) == RESUME


def test_after_a_checkout_the_same_words_begin_a_turn_and_no_input_goes_on() -> None:
    path = [U1, reply("a1", "c1")]
    again = user("one")

    assert match([again], path, OPEN, checked_out=True) == InputMatch("begin", (again,), not_answered=True)
    assert match([], path, OPEN, checked_out=True) == InputMatch("resume", not_answered=True)
    assert match([U1], path, OPEN, checked_out=True) == InputMatch("resume", not_answered=True)


# ── the note ─────────────────────────────────────────────────────────────────


def test_a_note_comes_back_from_its_document_with_keys_of_later_versions() -> None:
    document = {
        "id": "t",
        "open": "asking",
        "input": ["u1", "u2"],
        "slot": 7,
        "joined": ["s1"],
        "attempts": {KEY: 2},
        "failed": "ValueError",
        "later": {"x": [1]},
    }

    note = TurnNote.read(decode(encode(document)))

    assert note.write() == document
    assert (note.open, note.input, note.slot, note.joined) == ("asking", ("u1", "u2"), 7, ("s1",))
    assert TurnNote.read(TurnNote("t").write()) == TurnNote("t")


@pytest.mark.parametrize(
    ("document", "problem"), [({}, "id is missing"), ({"id": "t", "open": "maybe"}, "open is 'maybe'")]
)
def test_a_document_that_is_not_a_note_is_refused(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(StateDecodeError, match=problem):
        TurnNote.read(document)


def test_finding_open_calls_lends_nothing_of_the_messages() -> None:
    message = Message.stored("a1", "assistant", 0, {"parts": [{"type": "tool_use", "id": "c1", "name": "pay"}]})

    assert ids_of(one.message for one in open_calls([message])) == ["a1"]
    assert not message._is_lent  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("known", "fate"),
    [
        ({}, "not begun"),
        ({"has_begun": True}, "cut off"),
        ({"in_doubt": True}, "unknown"),
        ({"in_doubt": True, "is_external": True}, "not begun"),
        ({"in_doubt": True, "has_begun": True}, "cut off"),
        ({"has_begun": True, "is_paused": True}, "unknown"),
    ],
)
def test_what_became_of_a_call_depends_on_where_it_may_have_run(known: dict[str, bool], fate: Fate) -> None:
    assert fate_of(**known) == fate
