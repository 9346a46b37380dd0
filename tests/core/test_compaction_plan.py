"""What a plan keeps, summarises and shortens when there is a threshold, and what it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import CompactionFailed, ConfigurationError, Message, assistant, tool_result, user
from leafward.core import count_tokens
from leafward.core.compaction import CompactionContext, explain_weight, safe_range
from leafward.core.compaction_plan import Limits, Plan, make_plan
from leafward.core.notices import Reclaimed
from leafward.core.overlays import summary_message
from leafward.core.tokens import TokenCounter, estimate_tokens
from tests.core.histories import History, histories

WORDS_OF_100 = "word " * 73
"""A text that makes a message of about a hundred tokens."""


async def shorten(results: Sequence[Reclaimed]) -> None:
    raise AssertionError("a plan shortens nothing itself")


def context(threshold: int | None = None, *, count: TokenCounter = count_tokens, **fields: Any) -> CompactionContext:
    return CompactionContext(count, "s", threshold, **{"shorten": shorten, **fields})


def said(count: int, text: str = WORDS_OF_100, *, start: int = 0) -> list[Message]:
    return [user(text, id=f"m{n}") for n in range(start, start + count)]


def calls(*call_ids: str, name: str = "call") -> Message:
    return assistant([{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in call_ids], id=name)


def planned(messages: list[Message], threshold: int | None, limits: Limits | None = None, **fields: Any) -> Plan:
    plan = make_plan(messages, limits or Limits(), context(threshold, **fields))
    assert plan is not None
    return plan


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


# ── what is kept ─────────────────────────────────────────────────────────────


def test_head_and_tail_together_keep_at_most_half_of_the_threshold() -> None:
    history = said(50)

    plan = planned(history, 2_000)

    # The default tail of 20,000 tokens is cut to what the head leaves of 1,000.
    kept = [message for message in history if message not in plan.turns]
    assert ids(plan.turns) == [f"m{n}" for n in range(3, 43)]
    assert 900 < sum(map(count_tokens, kept)) <= 1_000


def test_the_prompt_takes_its_share_of_the_threshold() -> None:
    history = said(50)

    plan = planned(history, 2_000, prompt_tokens=1_000)

    kept = [message for message in history if message not in plan.turns]
    assert 400 < sum(map(count_tokens, kept)) <= 500


def test_the_head_has_a_token_budget() -> None:
    assert planned(said(50), None, Limits(head_token_budget=250, tail_token_budget=100)).turns[0].id == "m2"
    assert planned(said(50), None, Limits(head_token_budget=0, tail_token_budget=100)).turns[0].id == "m0"
    assert planned(said(50), 800).turns[0].id == "m2"


def test_a_protected_message_that_is_too_large_is_summarised() -> None:
    huge = user("word " * 20_000, id="huge")

    assert ids(planned([huge, *said(10)], 2_000).turns)[0] == "huge"
    first_two = planned([*said(1, "hello"), huge, *said(10, start=1)], 2_000)
    assert ids(first_two.turns) == ["huge"]
    in_the_tail = planned([*said(10), huge, *said(1, "so?", start=10)], 2_000, Limits(min_tail_messages=5))
    assert "huge" in ids(in_the_tail.turns)


def test_a_last_message_that_is_too_large_is_summarised() -> None:
    huge = user("word " * 20_000, id="huge")

    assert ids(planned([huge], 2_000).turns) == ["huge"]
    assert ids(planned([*said(4, "hello"), huge], 2_000).turns) == ["m3", "huge"]


@pytest.mark.parametrize(
    ("threshold", "question", "prompt"), [(4_950, 1_998, 0), (8_000, 4_030, 0), (8_000, 2_900, 4_000)]
)
def test_the_question_stays_while_it_fits_with_a_summary(threshold: int, question: int, prompt: int) -> None:
    asked = user("word " * int(question / 1.3), id="question")
    history = [*said(11, "word " * 300), asked]

    plan = planned(history, threshold, prompt_tokens=prompt)

    assert ids(plan.turns)[-1] != "question"
    kept = sum(count_tokens(message) for message in history if message not in plan.turns)
    assert question - 10 <= kept
    assert prompt + kept + 2 * plan.summary_tokens <= threshold


def test_the_last_message_comes_before_the_head() -> None:
    head = said(3, "word " * 300)
    newest = assistant("word " * 1_000, id="newest")

    plan = planned([*head, *said(20, start=3), newest], 4_000)

    assert plan.turns[0].id == "m1"
    assert plan.turns[-1].id != "newest"
    waiting = assistant([{"type": "text", "text": "word " * 1_400}, *calls("slow").parts], id="waiting")
    assert planned([*head, *said(20, start=3), waiting], 4_000).turns[0].id == "m0"


def test_a_question_beyond_three_quarters_is_summarised() -> None:
    asked = user("word " * int(6_100 / 1.3), id="question")

    assert ids(planned([*said(40), asked], 8_000).turns)[-1] == "question"


def test_below_its_threshold_a_history_keeps_what_it_would_keep_without() -> None:
    huge = user("word " * 2_000, id="huge")
    history = [*said(12, "hello"), huge]

    assert ids(planned(history, 4_000).turns)[-1] == "m10"
    assert make_plan(said(5), Limits(), context(10_000)) is None


def test_summaries_that_only_have_to_become_shorter_are_summarised_again() -> None:
    history = [summary_message("a", "word " * 1_400, 0), *said(1, "hello")]

    plan = planned(history, 1_500, prompt_tokens=100)

    assert ids(plan.turns) == ["compaction_a"]
    assert plan.summary_tokens <= 700
    assert make_plan(history, Limits(), context(10_000)) is None


def test_the_summary_that_is_asked_for_leaves_room_below_the_threshold() -> None:
    history = [summary_message("a", "word " * 3_000, 0), *said(50)]

    plan = planned(history, 2_000, prompt_tokens=400)

    kept = [message for message in history if message not in plan.turns]
    assert sum(map(count_tokens, kept)) + plan.summary_tokens + 400 < 2_000


def test_a_small_range_is_not_asked_to_grow() -> None:
    plan = planned(said(15, "hello"), None, Limits(tail_token_budget=0))

    assert plan.summary_tokens <= sum(map(count_tokens, plan.turns)) // 2


def test_the_threshold_counts_as_the_session_does_and_the_budgets_as_the_function_does() -> None:
    plan = make_plan(said(50), Limits(tail_token_budget=5), context(2_000), lambda message: 1)

    assert plan is not None
    assert ids(plan.turns) == [f"m{n}" for n in range(3, 45)]


# ── what is shortened ────────────────────────────────────────────────────────


def result_parts(text: str) -> dict[str, list[Message]]:
    ui = {"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}, "output": text}
    anthropic = {"type": "tool_result", "tool_use_id": "c", "content": text}
    return {
        "AgentScope": [calls("c"), tool_result("c", text, name="look", id="result")],
        "Anthropic": [calls("c"), Message("user", [anthropic], id="result")],
        "AI SDK": [assistant([ui], id="result")],
        "pending": [calls("c", "slow"), tool_result("c", text, name="look", id="result")],
    }


@pytest.mark.parametrize("shape", result_parts(""))
def test_the_newest_result_is_shortened_when_it_is_too_large(shape: str) -> None:
    history = [user("What does the log say?", id="question"), *result_parts("line\n" * 40_000)[shape]]

    plan = planned(history, 8_000)

    assert [one.message_id for one in plan.shortened] == ["result"]
    assert plan.turns == []
    assert sum(map(count_tokens, history)) - sum(one.tokens for one in plan.shortened) < 4_000


def test_the_results_of_a_pending_step_in_the_head_are_shortened() -> None:
    small = tool_result("a", "a line", name="look", id="small")
    large = tool_result("of no call", "line\n" * 40_000, name="look", id="large")

    plan = planned([user("go on", id="question"), calls("a", "slow"), small, large], 8_000)

    assert [one.message_id for one in plan.shortened] == ["large"]
    assert plan.turns == []


def test_shortening_may_not_be_enough() -> None:
    history = [*said(50), *result_parts("line\n" * 40_000)["AgentScope"]]

    plan = planned(history, 2_000)

    assert [one.message_id for one in plan.shortened] == ["result"]
    assert ids(plan.turns)[0] == "m3"
    assert "result" not in ids(plan.turns)


def test_results_of_parallel_calls_share_the_room() -> None:
    names = ["a", "b", "c", "d"]
    results = [tool_result(name, "line\n" * 2_000, name="look", id=f"result {name}") for name in names]

    plan = planned([user("go on", id="question"), calls(*names), *results], 4_000)

    assert len({one.notice for one in plan.shortened}) == 1
    assert [one.message_id for one in plan.shortened] == [f"result {name}" for name in names]


def test_an_earlier_result_is_summarised_and_not_shortened() -> None:
    history = [*said(2), *result_parts("line\n" * 40_000)["AgentScope"], *said(3, "well", start=2)]

    plan = planned(history, 2_000)

    assert plan.shortened == []
    assert "result" in ids(plan.turns)


def test_where_nothing_can_be_shortened_the_newest_results_are_summarised() -> None:
    history = [*said(2, "hello"), *result_parts("line\n" * 40_000)["AgentScope"]]

    plan = planned(history, 2_000, shorten=None)

    assert plan.shortened == []
    assert ids(plan.turns) == ["call", "result"]


def test_what_waits_for_a_result_is_kept_however_large() -> None:
    history = [*said(30), user("word " * 20_000, id="huge"), calls("slow")]

    plan = planned(history, 2_000)

    assert ids(plan.turns)[-1] == "huge"
    lone = assistant([{"type": "text", "text": "word " * 20_000}, *calls("slow").parts], id="lone")
    assert make_plan([lone], Limits(), context(2_000)) is None


# ── cuts that would cross a summary ──────────────────────────────────────────


def closed(*numbers: int) -> frozenset[str]:
    return frozenset(f"m{n}" for n in numbers)


def test_a_cut_that_would_cross_a_summary_is_moved_back_if_it_can_be() -> None:
    limits = Limits(protect_head=1, tail_token_budget=210)

    assert ids(planned(said(10), None, limits).turns) == [f"m{n}" for n in range(1, 8)]
    assert ids(planned(said(10), None, limits, no_end_at=closed(6, 7)).turns) == [f"m{n}" for n in range(1, 6)]


def test_a_cut_that_would_cross_a_summary_is_else_moved_on() -> None:
    limits = Limits(protect_head=1, tail_token_budget=310, min_tail_messages=3)

    plan = planned(said(8), None, limits, no_end_at=closed(1, 2, 3, 4, 5))

    assert ids(plan.turns) == [f"m{n}" for n in range(1, 7)]


def test_above_the_threshold_a_cut_is_moved_to_where_the_tail_fits() -> None:
    plan = planned(said(30), 1_000, no_end_at=closed(*range(5, 28)))

    assert plan.turns[-1].id == "m28"


def test_without_an_allowed_cut_nothing_is_asked() -> None:
    assert make_plan(said(8), Limits(tail_token_budget=0), context(None, no_end_at=closed(*range(8)))) is None
    # The last message is small: it stays, though a summary could end there.
    assert make_plan(said(30), Limits(), context(1_000, no_end_at=closed(*range(29)))) is None


def test_a_range_that_a_function_names_shrinks_to_an_allowed_end() -> None:
    assert safe_range(said(8), 1, 6, context(no_end_at=closed(4, 5))) == (1, 4)
    assert safe_range(said(8), 1, 6, context(no_end_at=closed(1, 2, 3, 4, 5))) == (1, 1)


# ── messages that are still being written ────────────────────────────────────


def test_a_message_that_is_being_written_stays_with_what_follows_it() -> None:
    limits = Limits(protect_head=1, tail_token_budget=210)

    plan = planned(said(10), None, limits, being_written=closed(4, 6))

    assert ids(plan.turns) == ["m1", "m2", "m3"]
    assert not plan.covers_being_written
    assert make_plan(said(10), limits, context(None, being_written=closed(1))) is None


def test_above_the_threshold_a_message_that_is_being_written_stays_if_three_quarters_are_enough() -> None:
    threshold = sum(map(count_tokens, said(20)))

    for first, covers in ((10, False), (8, True)):
        plan = planned(said(21), threshold, being_written=closed(first))
        assert plan.covers_being_written is covers
        assert (f"m{first}" in ids(plan.turns)) is covers
        assert plan.turns[-1].id != f"m{first}"


def test_a_range_that_a_function_names_ends_before_the_first_message_that_is_being_written() -> None:
    written = context(being_written=closed(3, 5))

    assert safe_range(said(8), 1, 6, written) == (1, 3)
    assert safe_range(said(8), 3, 6, written) == (3, 3)
    assert safe_range(said(8), 6, 8, written) == (6, 8)
    assert safe_range(said(8), 1, 6, written, covers_being_written=True) == (1, 5)


# ── laws ─────────────────────────────────────────────────────────────────────


@given(
    histories(summaries=True),
    st.integers(50, 600),
    st.integers(0, 5),
    st.sampled_from([None, 0, 40]),
    st.integers(0, 200),
    st.integers(0, 4),
    st.sets(st.integers(0, 40)),
    st.sets(st.integers(0, 40), max_size=2),
)
def test_what_a_plan_keeps_fits_or_cannot_be_summarised(
    history: History,
    threshold: int,
    head: int,
    head_budget: int | None,
    tail: int,
    least: int,
    closed: set[int],
    written: set[int],
) -> None:
    messages = history.messages
    no_end_at = frozenset(message.id for index, message in enumerate(messages) if index in closed)
    being_written = frozenset(message.id for index, message in enumerate(messages) if index in written)
    given = context(threshold, no_end_at=no_end_at, being_written=being_written)
    plan = make_plan(messages, Limits(head, head_budget, tail, least), given)
    if plan is None or not plan.turns:
        return
    names = ids(messages)
    start, end = names.index(plan.turns[0].id), names.index(plan.turns[-1].id) + 1
    assert all((start <= call < end) == (start <= result < end) for call, result in history.pairs)
    assert history.pending is None or end <= history.pending
    assert plan.turns[-1].id not in no_end_at | being_written
    assert plan.covers_being_written is not being_written.isdisjoint(ids(plan.turns))
    total = sum(map(count_tokens, messages))
    kept = total - sum(map(count_tokens, messages[start:end])) - sum(one.tokens for one in plan.shortened)
    alternatives = [
        place
        for place in range(end + 1, len(messages))
        if names[place - 1] not in no_end_at | being_written
        # Neighbouring summaries may share messages, and are replaced together.
        and not all(name.startswith("compaction_") for name in names[place - 1 : place + 1])
        and (history.pending is None or place <= history.pending)
        and all((start <= call < place) == (start <= result < place) for call, result in history.pairs)
    ]
    question = count_tokens(messages[-1]) if messages[-1].role == "user" and end == len(messages) - 1 else 0
    most = max(threshold // 2, question if question <= threshold * 3 // 4 else 0)
    if not being_written.isdisjoint(names[end:]):
        most = max(most, threshold * 3 // 4)
    assert total <= threshold or kept <= most or not alternatives


# ── what is asked ────────────────────────────────────────────────────────────


def ask(plan: Plan, answer: str | None = None) -> list[str]:
    """Answer each prompt and return them all."""
    asking = plan.prompts()
    prompts = [asking.next()]
    while asking.goes_on_after(given := answer or f"summary {len(prompts)}."):
        asking.check(given)
        prompts.append(asking.next(given))
    return prompts


def test_a_huge_history_is_summarised_in_several_prompts_each_within_its_budget() -> None:
    history = [user(f"<{n}> {WORDS_OF_100}", id=f"m{n}") for n in range(300)]

    prompts = ask(planned(history, 4_000))

    assert 8 <= len(prompts) <= 15
    assert all(estimate_tokens(prompt) <= 4_000 for prompt in prompts)
    assert all(f"summary {n}." in prompt for n, prompt in enumerate(prompts) if n)
    asked = "".join(prompts)
    assert [n for n in range(3, 280) if asked.count(f"<{n}>") != 1] == []


def test_without_a_threshold_a_prompt_has_a_budget_too() -> None:
    prompts = ask(planned(said(2_500), None))

    assert len(prompts) == 3
    assert all(estimate_tokens(prompt) <= 100_000 for prompt in prompts)
    assert len(ask(planned(said(2_500), None, Limits(prompt_token_budget=10_000)))) > 20
    assert len(ask(planned(said(2_500), 4_000, Limits(prompt_token_budget=10**6)))) == 1


def test_the_middle_of_an_enormous_text_is_left_out_of_the_prompt() -> None:
    text = "BEGIN " + "word " * 100_000 + "END"
    history = [*said(3, "hello"), user(text, id="huge"), *said(3, "so?", start=3)]

    (prompt,) = ask(planned(history, 4_000))

    assert estimate_tokens(prompt) <= 4_000
    assert "BEGIN" in prompt
    assert "END" in prompt
    assert "characters are left out here" in prompt


def test_an_earlier_summary_that_is_enormous_is_bounded_as_well() -> None:
    history = [summary_message("a", "word " * 50_000, 0), summary_message("b", "other " * 50_000, 0), *said(30)]

    prompts = ask(planned(history, 4_000))

    assert all(estimate_tokens(prompt) <= 4_000 for prompt in prompts)
    assert any("word" in prompt for prompt in prompts)
    assert any("other" in prompt for prompt in prompts)


@pytest.mark.parametrize("count", [lambda message: 5_000, lambda message: 1, lambda message: len(str(message.parts))])
def test_prompts_are_bounded_whatever_a_counter_says(count: TokenCounter) -> None:
    prompts = ask(planned(said(3_000), None, Limits(tail_token_budget=0), count=count))

    assert all(estimate_tokens(prompt) <= 100_000 for prompt in prompts)


def test_a_blank_answer_ends_the_asking() -> None:
    assert len(ask(planned(said(300), 4_000), " ")) == 1


def test_an_answer_that_is_too_long_to_go_on_with_is_refused() -> None:
    with pytest.raises(CompactionFailed, match="a summary takes 6,500 tokens, and about 919 were asked for"):
        ask(planned(said(300), 4_000), "word " * 5_000)


@given(st.lists(st.integers(0, 3_000), min_size=4, max_size=30), st.integers(1_000, 3_000))
def test_every_prompt_is_within_its_budget(sizes: list[int], budget: int) -> None:
    history = [user("word --- " * size, id=f"m{n}") for n, size in enumerate(sizes)]
    plan = make_plan(history, Limits(0, None, 0, 0, budget), context())

    assert plan is not None
    assert all(estimate_tokens(prompt) <= budget for prompt in ask(plan))


# ── limits and explanations ──────────────────────────────────────────────────


def test_a_threshold_that_leaves_no_room_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match=r"compact_after\(49\) .* at least 50 tokens"):
        Limits().check_threshold(49)
    Limits(tail_token_budget=10**6).check_threshold(50)


@pytest.mark.parametrize("budget", [999, 0, -1, True, "many"])
def test_a_prompt_budget_has_room_for_the_prompt_itself(budget: Any) -> None:
    with pytest.raises(ConfigurationError, match="prompt_token_budget is a whole number of at least 1,000"):
        Limits(prompt_token_budget=budget)


@pytest.mark.parametrize(
    ("messages", "fields", "text"),
    [
        (said(1), {"prompt_tokens": 5_900}, "the system prompt alone takes 5,900 of 6,000 tokens"),
        ([*said(40), calls("slow")], {}, "the system prompt takes 0, summaries 0, other messages 3,"),
        ([calls("slow"), tool_result("x", "line " * 3_000)], {}, "the messages from 'call' on wait for the result"),
        (said(60), {"no_end_at": closed(*range(5))}, "covers the messages up to 'm4' and ends on another branch"),
        ([summary_message("a", "word " * 4_000, 0)], {}, "the summaries in the history take 5,204 tokens"),
    ],
)
def test_what_keeps_a_history_above_its_threshold_is_named(
    messages: list[Message], fields: dict[str, Any], text: str
) -> None:
    tokens = [count_tokens(message) for message in messages]

    assert text in explain_weight(messages, tokens, context(6_000, **fields))
