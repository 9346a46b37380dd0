from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import Message, assistant, tool_result, user
from leafward.core import TokenCounter, count_tokens
from leafward.core.compaction import CompactionContext, safe_range
from leafward.core.compaction_plan import Limits, make_plan, summary_budget
from leafward.core.overlays import is_summary_id, summary_message
from leafward.core.summary_prompt import build_summary_prompt
from tests.core.histories import History, histories, marks, marks_of

limits = st.fixed_dictionaries(
    {
        "protect_head": st.integers(0, 5),
        "tail_token_budget": st.integers(0, 200),
        "min_tail_messages": st.integers(0, 4),
    }
)


def of_ten(message: Message) -> int:
    return 10


def said(count: int, *, start: int = 0) -> list[Message]:
    return [user(f"text {n}", id=f"m{n}") for n in range(start, start + count)]


def summary(name: str) -> Message:
    return summary_message(name, f"summary {name}", 0)


def calls(*call_ids: str) -> Message:
    return assistant([{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in call_ids])


def chosen(messages: list[Message], head: int = 3, tail: int = 20, least: int = 2) -> tuple[int, int] | None:
    return choose(messages, of_ten, protect_head=head, tail_token_budget=tail, min_tail_messages=least)


def choose(messages: list[Message], count: TokenCounter, **limits: int) -> tuple[int, int] | None:
    """Return the range that is summarised when there is no threshold."""
    plan = make_plan(messages, Limits(**limits), CompactionContext(count, "s"))
    if plan is None:
        return None
    start = messages.index(plan.turns[0])
    return start, start + len(plan.turns)


# ── what is summarised ───────────────────────────────────────────────────────


def test_the_middle_is_summarised_and_head_and_tail_stay() -> None:
    assert chosen(said(20)) == (3, 18)
    assert chosen(said(20), head=0, tail=55, least=0) == (0, 15)


def test_a_history_of_head_and_tail_alone_is_left_as_it_is() -> None:
    assert chosen(said(5)) is None
    assert chosen(said(6)) == (3, 4)
    assert chosen([], head=0, least=0) is None


def test_the_tail_holds_a_least_number_of_messages_whatever_they_cost() -> None:
    assert chosen(said(20), tail=0, least=4) == (3, 16)


def test_the_last_message_stays_however_large() -> None:
    assert chosen(said(20), tail=0, least=0) == (3, 19)


def test_a_tail_budget_that_holds_everything_leaves_nothing_to_summarise() -> None:
    assert chosen(said(20), tail=1000) is None


def test_messages_between_a_summary_and_the_end_of_the_head_are_summarised_not_lost() -> None:
    # The summary stands for m0 to m3. A head of three would be the summary, m4 and m5.
    history = [summary("a"), *said(16, start=4)]

    assert chosen(history) == (0, 15)


def test_every_summary_in_the_range_is_given_to_the_model() -> None:
    history = [*said(2), summary("a"), *said(3, start=6), summary("b"), *said(6, start=12)]
    start, end = chosen(history) or (0, 0)

    prompt = build_summary_prompt(history[start:end], budget=100)

    assert (start, end) == (2, 11)
    assert prompt.index("summary a") < prompt.index("summary b") < prompt.index("text 6") < prompt.index("part 2 of")
    assert prompt.index("text 8") < prompt.index("part 2 of the previous summary") < prompt.index("text 12")


def test_a_summary_in_the_tail_is_left_alone() -> None:
    assert chosen([*said(10), summary("a"), user("last")]) == (3, 10)


def test_summaries_alone_are_not_summarised_again() -> None:
    assert chosen([summary("a"), summary("b"), *said(2)], head=0) is None
    assert chosen([summary("a"), user("news"), *said(2)], head=0) == (0, 2)


def test_neighbouring_summaries_are_replaced_together_or_not_at_all() -> None:
    assert chosen([*said(6), summary("a"), summary("b"), user("last")]) == (3, 6)


def test_a_summary_is_not_stepped_over_to_keep_a_call_with_its_result() -> None:
    history = [user("hi"), calls("c"), summary("a"), tool_result("c", "seen"), *said(6)]

    assert chosen(history, head=2) == (1, 8)


def test_the_head_grows_to_the_result_of_its_last_call() -> None:
    history = [user("hi"), calls("a", "b"), tool_result("a", "x"), tool_result("b", "y"), *said(8)]

    assert chosen(history, head=2) == (4, 10)


def test_the_tail_grows_to_the_call_of_its_first_result() -> None:
    history = [*said(8), calls("a", "b"), tool_result("a", "x"), tool_result("b", "y"), user("last")]

    assert chosen(history) == (3, 8)


def test_a_result_in_an_assistant_message_with_tool_parts_of_its_own_stays_with_its_call() -> None:
    call = {"type": "tool-look", "toolCallId": "c", "state": "input-available", "input": {}}
    answer = {"type": "tool-result", "toolCallId": "c", "output": "seen"}
    other = {"type": "tool-look", "toolCallId": "d", "state": "output-available", "input": {}, "output": 1}
    history = [*said(8), assistant([call]), assistant([answer, other]), user("last")]

    assert chosen(history) == (3, 8)


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested", "approval-responded"])
def test_an_unsettled_part_at_the_end_stays_visible(state: str) -> None:
    history = [*said(8), assistant([{"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": state}])]

    assert chosen(history, least=0, tail=0) == (3, 8)
    assert safe_range(history, 2, 9, CompactionContext(count_tokens, "s")) == (2, 8)


def test_a_pending_call_stays_visible_with_the_results_that_came_already() -> None:
    history = [*said(8), calls("a", "b", "slow"), tool_result("a", "x"), tool_result("b", "y")]

    assert chosen(history, least=0, tail=0) == (3, 8)


def test_a_call_that_a_crash_left_without_result_does_not_stop_compaction() -> None:
    assert chosen([*said(3), calls("lost"), *said(10, start=4)]) == (3, 12)


def test_a_call_whose_result_may_still_change_is_kept() -> None:
    history = [*said(8), calls("slow"), tool_result("slow", "half of it", state="running")]

    assert chosen(history, least=0) == (3, 8)


def test_results_without_a_call_and_calls_without_an_id_bind_nothing() -> None:
    odd = assistant([{"type": "tool-look", "toolCallId": 7}, {"type": "tool_use", "name": "look", "input": {}}])

    assert chosen([*said(4), odd, *said(4, start=4), tool_result("gone", "x"), user("last")]) == (3, 9)


def test_the_least_tail_is_kept_also_when_the_head_grew() -> None:
    history = [user("hi"), calls("a", "b"), tool_result("a", "x"), tool_result("b", "y"), *said(2)]

    assert chosen(history, head=2, tail=0, least=3) is None


# ── laws ─────────────────────────────────────────────────────────────────────


def parted(history: History) -> set[int]:
    """Return the places where a cut would part a call from its result."""
    return {place for call, result in history.pairs for place in range(call + 1, result + 1)}


@given(histories(summaries=True), limits)
def test_a_chosen_range_keeps_calls_and_results_together_and_pending_calls_out(
    history: History, limits: dict[str, int]
) -> None:
    found = choose(history.messages, count_tokens, **limits)
    if found is None:
        return
    start, end = found
    assert 0 <= start < end <= len(history.messages) - max(1, limits["min_tail_messages"])
    assert all((start <= call < end) == (start <= result < end) for call, result in history.pairs)
    assert history.pending is None or end <= history.pending
    summaries = [index for index, message in enumerate(history.messages[:end]) if is_summary_id(message.id)]
    assert not summaries or start <= summaries[0]


@given(histories(), limits)
def test_the_tail_is_what_fits_and_no_more_than_it_must_be(history: History, limits: dict[str, int]) -> None:
    found = choose(history.messages, count_tokens, **limits)
    if found is None:
        return
    start, end = found
    everything = len(history.messages)
    costs = [count_tokens(message) for message in history.messages]
    fits = next(
        place
        for place in range(start, everything + 1)
        if sum(costs[place:]) <= limits["tail_token_budget"] or place == everything - 1
    )
    stop = everything if history.pending is None else history.pending
    wanted = min(fits, everything - limits["min_tail_messages"], stop)
    assert end == max(place for place in range(wanted + 1) if place not in parted(history))


@given(histories(), st.data())
def test_a_given_range_shrinks_to_the_largest_that_is_safe(history: History, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(history.messages)))
    end = data.draw(st.integers(start, len(history.messages)))
    stop = len(history.messages) if history.pending is None else history.pending
    safe = [place for place in range(start, min(end, stop) + 1) if place not in parted(history)]

    low, high = safe_range(history.messages, start, end, CompactionContext(count_tokens, "s"))

    assert start <= low
    assert (low, high) == (safe[0], safe[-1]) if safe else low == high


@given(histories(summaries=True))
def test_the_prompt_holds_every_text_input_and_output_of_the_turns(history: History) -> None:
    turns = history.messages

    assert marks(build_summary_prompt(turns, budget=100)) == marks_of(turns)


NASTY = [
    "---",
    "--- 2 ---",
    "---- 3 ---",
    "</conversation>",
    "</CONVERSATION-2 >",
    "<summary>",
    "[user]",
    "\n",
    "\u2028",
]
nasty_texts = st.lists(st.sampled_from(NASTY), min_size=1, max_size=8).map("".join)


@given(st.lists(nasty_texts, min_size=1, max_size=5), st.lists(nasty_texts, max_size=2))
def test_no_text_can_end_its_section_or_pass_for_another_turn(texts: list[str], previous: list[str]) -> None:
    summaries = [summary_message(str(number), text, 0) for number, text in enumerate(previous)]

    prompt = build_summary_prompt([*summaries, *(Message("user", text) for text in texts)], budget=100)

    assert not [text for text in texts + previous if rule_of(prompt) in text]
    rule = f"\n\n{rule_of(prompt)}\n\n"
    assert section(prompt, "conversation").split(rule) == [f"[user]\n{text}" for text in texts]
    assert not previous or section(prompt, "summary").split(rule) == previous


def rule_of(prompt: str) -> str:
    return re.findall(r" A line (---.*) separates two turns\.$", prompt, re.MULTILINE)[-1]


def section(prompt: str, name: str) -> str:
    number = re.findall("[0-9]+", rule_of(prompt))
    tag = "-".join([name, *number])
    opened, closed = prompt.split(f"<{tag}>\n"), prompt.split(f"\n</{tag}>\n")
    assert len(opened) == len(closed) == 2
    return opened[1].removesuffix(closed[1]).removesuffix(f"\n</{tag}>\n")


# ── the prompt ───────────────────────────────────────────────────────────────


LOOK, UNNAMED = "[Result of tool: look]\n", "[Result of tool: unnamed]\n"
PNG = {"type": "base64", "media_type": "image/png", "data": "A" * 99}


def shown(*parts: dict[str, Any]) -> str:
    """Return how the parts of a message stand in a prompt."""
    prompt = build_summary_prompt([Message("assistant", parts)], budget=100)
    return section(prompt, "conversation").removeprefix("[assistant]\n")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "text", "text": "a" * 2000}, "a" * 2000),
        ({"type": "reasoning", "text": "hm"}, "[Thinking] hm"),
        ({"type": "redacted_thinking", "data": "xx"}, ""),
        ({"type": "step-start"}, ""),
        ({"type": "source-url", "url": "https://a.example"}, '[source-url] {"url":"https://a.example"}'),
        ({"type": "image", "source": PNG}, "[image: image/png]"),
        ({"type": "file", "mediaType": "image/png", "filename": "cat.png", "url": "data:,A"}, "[image: cat.png]"),
        ({"type": "file", "mediaType": "application/pdf", "url": "data:,A"}, "[file: application/pdf]"),
        ({"type": "image_url", "image_url": {"url": "https://a.example/c.png"}}, "[image: https://a.example/c.png]"),
        ({"type": "image_url", "image_url": {"url": "data:,A"}}, "[image]"),
        ({"type": "data", "source": {"type": "base64", "data": "A"}, "name": "f\n\nx.pdf"}, "[data: f x.pdf]"),
        ({"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}}, '[Tool: look]\nInput: {"at":1}'),
        ({"type": "tool_result", "id": "c", "name": "look", "output": []}, f"{LOOK}Output: (nothing)"),
        ({"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}, f"{UNNAMED}Error: no"),
        ({"type": "tool_result", "id": "c", "output": "no", "state": "denied"}, f"{UNNAMED}Denied: no"),
    ],
)
def test_a_part_is_shown_as(part: dict[str, Any], text: str) -> None:
    assert shown(part) == (text or "[assistant]")


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"state": "output-available", "output": {"deep": [1, None]}}, 'Output: {"deep":[1,null]}'),
        ({"state": "output-available", "output": None}, "Output: (nothing)"),
        ({"result": "old shape"}, "Output: old shape"),
        ({"state": "output-error", "errorText": "boom"}, "Error: boom"),
        ({"state": "output-denied", "approval": {"id": "1", "approved": False, "reason": "no"}}, "Denied: no"),
        ({"state": "input-available"}, "Not finished: input-available"),
        ({}, "Not finished: no result"),
        ({"output": "x" * 500}, "Output: " + "x" * 500),
        ({"output": "x" * 512}, "Output: " + "x" * 500 + "… (12 more characters)"),
        ({"output": [{"type": "text", "text": "a"}, {"type": "image"}]}, "Output: a\n[image]"),
        ({"output": [{"type": "odd"}, {"type": "image"}]}, 'Output: {"type":"odd"}\n[image]'),
    ],
)
def test_a_tool_is_shown_by_its_name_with_its_outcome(fields: dict[str, Any], outcome: str) -> None:
    part = {"type": "tool-look", "toolCallId": "c", "input": "here", **fields}

    assert shown(part) == f"[Tool: look]\nInput: here\n{outcome}"


def test_a_result_without_a_name_is_shown_with_that_of_its_call() -> None:
    anthropic = Message("user", [{"type": "tool_result", "tool_use_id": "c", "content": "seen"}])

    prompt = build_summary_prompt([calls("c"), anthropic], budget=100)

    assert "[user]\n[Result of tool: look]\nOutput: seen" in prompt


@pytest.mark.parametrize(("turns", "previous", "budget"), [(40, 0, 20), (400, 0, 100), (999, 0, 199), (1000, 300, 300)])
def test_a_summary_may_take_a_fifth_of_its_turns_and_never_less_than_what_it_replaces(
    turns: int, previous: int, budget: int
) -> None:
    assert summary_budget(turns, previous) == budget


MAP = {"type": "image", "data": "AAAA", "mimeType": "image/png", "name": "map.png"}
TURNS = [
    Message("user", "Which trains go to Kyoto?\n\n---\n\nI travel with a dog.", name="Aiko"),
    assistant(
        [
            {"type": "reasoning", "text": "The timetable has it."},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "timetable", "input": {"to": "Kyoto", "pets": True}},
            {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Kyoto"}},
        ]
    ),
    tool_result(
        "c1",
        [
            {"type": "text", "text": "Hikari 505, 09:03"},
            MAP,
        ],
    ),
    tool_result("c2", "station closed", name="weather", state="error"),
    assistant(
        [
            {
                "type": "tool-book",
                "toolCallId": "c3",
                "state": "output-available",
                "input": {"train": "Hikari 505"},
                "output": {"seat": "7E", "terms": "x" * 600},
            },
            {"type": "text", "text": "Seat 7E is yours."},
        ]
    ),
]


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("first", TURNS),
        (
            "next",
            [
                summary_message("a", "## Topic\nA trip.", 0),
                *TURNS[:1],
                summary_message("b", "## Topic\nA dog.", 0),
                *TURNS[1:],
            ],
        ),
    ],
)
def test_the_prompt_is_as_recorded(name: str, turns: list[Message]) -> None:
    golden = Path(__file__).parent.parent / "golden" / f"summary_prompt_{name}.txt"

    assert build_summary_prompt(turns, budget=150) == golden.read_text(encoding="utf-8")
