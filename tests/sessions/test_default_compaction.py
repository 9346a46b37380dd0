from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import ConfigurationError, Message, user
from leafward.core.compaction import CompactionContext, CompactionResult
from leafward.core.overlays import is_summary_id, summary_id, summary_message
from leafward.sessions.default_compaction import create_compact_function
from tests.core.histories import STEPS, History, call_ids, histories, marks, marks_of


def said(count: int, *, start: int = 0) -> list[Message]:
    return [user(f"text {n}", id=f"m{n}") for n in range(start, start + count)]


class Model:
    """A summariser that keeps its prompts and forgets no mark in them."""

    def __init__(self, answer: object = "a summary") -> None:
        self.prompts: list[str] = []
        self._answer = answer

    def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        return self._answer


# ── what comes back ──────────────────────────────────────────────────────────


async def test_it_summarises_the_middle_of_a_history() -> None:
    model = Model()
    compact = create_compact_function(summarize=model, tail_token_budget=21)

    result = await compact(said(20))

    assert result == CompactionResult("a summary", "m3", "m16")
    (prompt,) = model.prompts
    assert [f"text {n}\n" in prompt for n in range(20)] == [3 <= n <= 16 for n in range(20)]


async def test_a_short_history_asks_no_model() -> None:
    model = Model()

    assert await create_compact_function(summarize=model)(said(20)) is None
    assert await create_compact_function(summarize=model)([]) is None
    assert model.prompts == []


async def test_messages_may_be_dicts() -> None:
    compact = create_compact_function(summarize=Model(), tail_token_budget=21)

    result = await compact([message.to_dict() for message in said(20)])

    assert result is not None
    assert (result.from_message_id, result.to_message_id) == ("m3", "m16")


async def test_messages_after_a_summary_are_summarised_with_it_and_not_lost() -> None:
    # A summary stands for m0 to m3: were it the head, m4 and m5 would vanish with the range that replaces it.
    model = Model()
    history = [summary_message("a", "how it began", 0), *said(16, start=4)]

    result = await create_compact_function(summarize=model, tail_token_budget=14)(history)

    assert result == CompactionResult("a summary", "compaction_a", "m17")
    (prompt,) = model.prompts
    assert "PREVIOUS SUMMARY" in prompt
    assert all(f"text {n}\n" in prompt for n in range(4, 18))


async def test_of_two_summaries_neither_is_lost() -> None:
    model = Model()
    first, second = summary_message("a", "how it began", 0), summary_message("b", "how it went on", 0)

    await create_compact_function(summarize=model, tail_token_budget=14)([first, *said(3), second, *said(9, start=3)])

    (prompt,) = model.prompts
    assert prompt.index("how it began") < prompt.index("how it went on") < prompt.index("text 0")


@pytest.mark.parametrize("answer", [None, "", " \n"])
async def test_a_blank_answer_is_handed_on_to_be_refused(answer: object) -> None:
    result = await create_compact_function(summarize=Model(answer), tail_token_budget=20)(said(20))

    assert result is not None
    assert not result.summary.strip()


@pytest.mark.parametrize("answer", [7, b"bytes", ["text"], {"summary": "text"}])
async def test_an_answer_that_is_not_text_is_refused_by_its_type(answer: object) -> None:
    compact = create_compact_function(summarize=Model(answer), tail_token_budget=20)

    with pytest.raises(ConfigurationError, match=f"summarize .* not {type(answer).__name__}"):
        await compact(said(20))


# ── how the model is called ──────────────────────────────────────────────────


async def test_a_sync_summariser_does_not_hold_up_the_loop() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(prompt: str) -> str:
        asked.set()
        assert go_on.wait(timeout=30)
        return "at last"

    running = asyncio.create_task(create_compact_function(summarize=slow, tail_token_budget=20)(said(20)))
    assert await asyncio.to_thread(asked.wait, 30)
    go_on.set()

    result = await running
    assert result is not None
    assert result.summary == "at last"


class AsyncModel:
    loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, prompt: str) -> str:
        return await self.ask("a", prompt)

    async def ask(self, word: str, prompt: str) -> str:
        self.loop = asyncio.get_running_loop()
        return f"{word} summary"


async def test_an_async_summariser_runs_in_the_callers_loop_however_it_is_made() -> None:
    model = AsyncModel()
    for summarize in (model, model.__call__, functools.partial(model.ask, "a"), lambda prompt: model.ask("a", prompt)):
        model.loop = None
        result = await create_compact_function(summarize=summarize, tail_token_budget=20)(said(20))
        assert result is not None
        assert result.summary == "a summary"
        assert model.loop is asyncio.get_running_loop()


async def test_what_a_summariser_raises_is_raised() -> None:
    def fails(prompt: str) -> str:
        raise ConnectionError("the model is away")

    async def fails_later(prompt: str) -> str:
        raise ConnectionError("the model is away")

    for summarize in (fails, fails_later):
        with pytest.raises(ConnectionError, match="the model is away"):
            await create_compact_function(summarize=summarize, tail_token_budget=20)(said(20))


# ── options ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["protect_head", "head_token_budget", "tail_token_budget", "min_tail_messages"])
@pytest.mark.parametrize("value", [-1, 1.5, "3", [], True])
def test_a_limit_is_a_whole_number_of_at_least_nought(name: str, value: object) -> None:
    options: dict[str, Any] = {name: value}

    with pytest.raises(ConfigurationError, match=name):
        create_compact_function(summarize=Model(), **options)


@pytest.mark.parametrize("summarize", [None, "gpt"])
def test_a_summariser_must_be_callable(summarize: Any) -> None:
    with pytest.raises(ConfigurationError, match="summarize is a function"):
        create_compact_function(summarize=summarize)


@pytest.mark.parametrize("counter", [7, "cl100k", AsyncModel(), AsyncModel().ask])
def test_a_token_counter_must_be_a_plain_function(counter: Any) -> None:
    with pytest.raises(ConfigurationError, match="token_counter is a plain function"):
        create_compact_function(summarize=Model(), token_counter=counter)


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf"), None, "3"])
async def test_a_token_counter_that_gives_no_number_is_named_as_the_cause(tokens: Any) -> None:
    compact = create_compact_function(summarize=Model(), token_counter=lambda message: tokens)

    with pytest.raises(ConfigurationError, match="token counter"):
        await compact(said(20))


async def test_tokens_are_counted_by_the_option_else_by_the_session_else_estimated() -> None:
    session = CompactionContext(count=lambda message: 4_000, session_id="s")
    plain = create_compact_function(summarize=Model())
    own = create_compact_function(summarize=Model(), token_counter=lambda message: 9_999.5)  # pyright: ignore[reportArgumentType]

    assert await plain(said(20)) is None
    assert await plain(said(20), session) == CompactionResult("a summary", "m3", "m14")
    assert await own(said(20), session) == CompactionResult("a summary", "m3", "m17")


async def test_the_summary_may_be_as_long_as_the_one_it_replaces() -> None:
    model = Model()
    history = [summary_message("a", "word " * 1000, 0), *said(10)]

    await create_compact_function(summarize=model, tail_token_budget=20)(history)

    assert "about 1304 tokens" in model.prompts[0]


async def test_the_summary_may_take_a_fifth_of_the_turns_it_adds() -> None:
    model = Model()
    history = [summary_message("a", "how it began", 0), *said(13)]

    await create_compact_function(summarize=model, tail_token_budget=100, token_counter=lambda message: 100)(history)

    # Eleven of the thirteen are added, the last two stay.
    assert "about 220 tokens" in model.prompts[0]


# ── laws ─────────────────────────────────────────────────────────────────────


@settings(max_examples=60)
@given(histories(summaries=True), st.integers(0, 4), st.integers(0, 150))
def test_the_model_is_given_all_of_the_range_and_nothing_else(history: History, head: int, tail: int) -> None:
    model = Model()

    compact = create_compact_function(summarize=model, protect_head=head, tail_token_budget=tail)
    result = asyncio.run(compact(history.messages))

    if result is None:
        assert model.prompts == []
        return
    ids = [message.id for message in history.messages]
    covered = history.messages[ids.index(result.from_message_id) : ids.index(result.to_message_id) + 1]
    assert marks(model.prompts[0]) == marks_of(covered)


class Overlaid:
    """A history under summaries: raw messages, and the ranges of them that are covered."""

    def __init__(self) -> None:
        self.history = History()
        self._covers: dict[str, tuple[int, int, str]] = {}

    def visible(self) -> list[Message]:
        found = list(self.history.messages)
        for name, (low, high, text) in sorted(self._covers.items(), key=lambda cover: -cover[1][0]):
            found[low : high + 1] = [summary_message(name, text, 0)]
        return found

    def cover(self, result: CompactionResult) -> None:
        low, _ = self._ends(result.from_message_id)
        _, high = self._ends(result.to_message_id)
        inside = [name for name, cover in self._covers.items() if low <= cover[0] and cover[1] <= high]
        kept = {name: cover for name, cover in self._covers.items() if name not in inside}
        assert all(cover[1] < low or high < cover[0] for cover in kept.values())
        self._covers = {**kept, f"{len(self.history.messages)} {low} {high}": (low, high, result.summary)}

    def _ends(self, message_id: str) -> tuple[int, int]:
        if is_summary_id(message_id):
            return next(cover[:2] for name, cover in self._covers.items() if summary_id(name) == message_id)
        place = next(index for index, message in enumerate(self.history.messages) if message.id == message_id)
        return place, place


def remember_everything(prompt: str) -> str:
    return " ".join(sorted(marks(prompt)))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(STEPS), call_ids), max_size=6),
            st.integers(0, 5),
            st.integers(0, 150),
            st.integers(0, 3),
        ),
        max_size=8,
    )
)
def test_compacting_again_and_again_loses_nothing(rounds: list[Any]) -> None:
    overlaid = Overlaid()
    for steps, head, tail, least in rounds:
        for step, ids in steps:
            step(overlaid.history, ids)
        # The limits differ from round to round, as they do between deploys.
        compact = create_compact_function(
            summarize=remember_everything, protect_head=head, tail_token_budget=tail, min_tail_messages=least
        )
        result = asyncio.run(compact(overlaid.visible()))
        if result is not None:
            overlaid.cover(result)

        assert marks_of(overlaid.visible()) == marks_of(overlaid.history.messages)


async def test_a_history_that_only_grows_stays_within_its_window() -> None:
    overlaid = Overlaid()
    compact = create_compact_function(summarize=lambda prompt: "so far", protect_head=1, tail_token_budget=40)
    for _ in range(200):
        overlaid.history.add("user", [overlaid.history.text()])
        result = await compact(overlaid.visible())
        if result is not None:
            overlaid.cover(result)
        assert len(overlaid.visible()) <= 8

    assert [message.text for message in overlaid.visible()].count("so far") == 1
