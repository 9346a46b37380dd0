"""An automatic compaction gets below its threshold, or says why not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    CompactionFailed,
    ConfigurationError,
    Message,
    Session,
    SessionManager,
    assistant,
    create_compact_function,
    open_store,
    tool_result,
    user,
)
from leafward.core.tokens import count_tokens
from leafward.sessions import estimate_tokens
from leafward.stores import Store
from leafward.testing.speaking import said, texts
from leafward.testing.summarising import covering
from tests.sessions.dict_storage import DictStorage


class Model:
    """A summariser that keeps its prompts."""

    def __init__(self, answer: Any = "so far") -> None:
        self.prompts: list[str] = []
        self.answer = answer

    def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        return self.answer


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def model() -> Model:
    return Model()


def compacting(store: Any, model: Model, errors: list[Exception], threshold: int, **options: Any) -> Session:
    function = create_compact_function(summarize=model)
    return Session(store, on_compaction=function, compact_after=threshold, on_compaction_error=errors.append, **options)


# ── what could not get below ─────────────────────────────────────────────────


async def test_a_threshold_below_the_default_tail_compacts(store: Store, model: Model, errors: list[Exception]) -> None:
    session = compacting(store, model, errors, 6_000)

    for n in range(200):
        await session.append_message(user(f"{n}: " + "word " * 75))
        assert await session.estimate_tokens() <= 6_000

    assert errors == []
    assert 2 <= len(model.prompts) <= 20


async def test_a_first_turn_that_reads_a_log_is_not_kept_for_ever(
    store: Store, model: Model, errors: list[Exception]
) -> None:
    session = compacting(store, model, errors, 8_000)
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}

    await session.append_message(user("Read the log."))
    await session.append_message(assistant([call]))
    await session.append_message(tool_result("c", "a line of the log\n" * 30_000, name="read"))
    assert await session.estimate_tokens() <= 8_000
    for n in range(100):
        await session.append_message(user(f"{n}: " + "word " * 75))
        assert await session.estimate_tokens() <= 8_000

    assert errors == []
    assert texts(await session.get_history())[0] == "Read the log."


@pytest.mark.parametrize("place", [0, 5])
async def test_a_message_that_alone_exceeds_the_threshold_is_summarised(
    store: Store, model: Model, errors: list[Exception], place: int
) -> None:
    session = compacting(store, model, errors, 4_000)
    await session.append_messages(said(place))

    await session.append_message(user("pasted " * 100_000, id="huge"))

    assert errors == []
    assert await session.estimate_tokens() <= 4_000
    assert "huge" not in [message.id for message in await session.get_history()]
    assert (await session.get_raw_history())[-1].id == "huge"
    assert all(estimate_tokens(prompt) <= 4_000 for prompt in model.prompts)


@pytest.mark.parametrize(("threshold", "tokens"), [(4_950, 2_000), (8_000, 4_030)])
async def test_the_newest_question_is_answered_and_not_summarised(
    store: Store, model: Model, errors: list[Exception], threshold: int, tokens: int
) -> None:
    session = compacting(store, model, errors, threshold)
    await session.append_messages([user("word " * 300) for _ in range(11)])

    await session.append_message(user("word " * int(tokens / 1.3), id="question"))

    assert (await session.get_history())[-1].id == "question"
    assert await session.estimate_tokens() <= threshold
    assert len(model.prompts) == 1
    assert errors == []


AWAY = ConnectionError("the model is away")


class Failing(Model):
    """Fails at every so many calls."""

    def __init__(self, every: int, failure: Any = AWAY) -> None:
        super().__init__()
        self._every = every
        self._failure = failure

    def __call__(self, prompt: str) -> Any:
        super().__call__(prompt)
        if len(self.prompts) % self._every:
            return f"so far {len(self.prompts)}"
        if isinstance(self._failure, Exception):
            raise self._failure
        return self._failure


@pytest.mark.parametrize("failure", [AWAY, " ", "word " * 5_000])
async def test_a_call_that_fails_does_not_undo_the_calls_before_it(store: Store, failure: Any) -> None:
    session = Session(store)
    await session.append_messages([user("word " * 300) for _ in range(100)])
    session = Session(store, on_compaction=create_compact_function(summarize=Failing(4, failure)), compact_after=5_000)

    tokens = [await session.estimate_tokens()]
    while tokens[-1] > 5_000:
        try:
            await session.compact()
        except (ConnectionError, CompactionFailed):
            assert session.compaction_log[-1].error is not None
        tokens.append(await session.estimate_tokens())
        assert tokens[-1] < tokens[-2]

    assert len(tokens) > 2


@pytest.mark.parametrize("before", [0, 10])
async def test_a_call_that_waited_is_compacted_when_its_result_comes(
    store: Store, model: Model, errors: list[Exception], before: int
) -> None:
    session = compacting(store, model, errors, 5_000)
    await session.append_messages([user("word " * 300) for _ in range(before + 1)])
    call = {"type": "tool_use", "id": "c", "name": "write", "input": {"text": "word " * 5_000}}

    await session.append_message(assistant([call]))
    assert "wait for the result" in str(errors.pop())
    await session.append_message(tool_result("c", "written", name="write"))

    assert errors == []
    assert await session.estimate_tokens() <= 5_000


async def test_results_are_shortened_while_a_large_session_backs_off(store: Store, errors: list[Exception]) -> None:
    await Session(store).append_messages([user("word " * 300) for _ in range(100)])
    session = compacting(store, Failing(1), errors, 5_000)
    before = await session.estimate_tokens()
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}

    for n in range(3):
        await session.append_message(assistant([{**call, "id": f"c{n}"}]))
        await session.append_message(tool_result(f"c{n}", "a line of the log\n" * 3_000, name="read"))

    assert await session.estimate_tokens() < before + 8_000


async def test_an_attempt_that_was_enough_and_failed_is_not_waited_for(store: Store, errors: list[Exception]) -> None:
    class Half(Model):
        def __call__(self, prompt: str) -> Any:
            super().__call__(prompt)
            if len(self.prompts) == 2:
                raise AWAY
            return "so far"

    model = Half()
    function = create_compact_function(summarize=model, prompt_token_budget=1_200)
    session = Session(store, on_compaction=function, compact_after=2_000, on_compaction_error=errors.append)
    while not errors:
        await session.append_message(user("word " * 100))
    left = await session.estimate_tokens()
    assert left < 2_000

    await session.append_message(user("word " * 1_000))

    assert left + 1_200 > 2_000
    assert await session.estimate_tokens() <= 2_000


async def test_a_summary_too_long_to_go_on_from_is_not_stored(store: Store) -> None:
    await Session(store).append_messages([user("word " * 300) for _ in range(30)])
    function = create_compact_function(summarize=lambda prompt: "fact " * 1_000)
    session = Session(store, on_compaction=function, compact_after=2_000)

    with pytest.raises(CompactionFailed, match="were asked for"):
        await session.compact()

    assert await session.get_compactions() == []


async def test_two_appends_at_once_back_off_like_one_after_the_other(store: Store, errors: list[Exception]) -> None:
    async def soul() -> str:
        await asyncio.sleep(0)
        return "be kind " * 700

    failing = Failing(1)
    session = compacting(store, failing, errors, 2_000, context=[{"label": "soul", "provider": {"get": soul}}])
    for _ in range(30):
        await asyncio.gather(*(session.append_message(user("word " * 30)) for _ in range(2)))

    assert len(failing.prompts) <= 6


async def test_the_log_keeps_what_happened_beside_many_that_were_put_off(store: Store, errors: list[Exception]) -> None:
    session = compacting(store, Failing(1), errors, 100)

    for n in range(200):
        await session.append_message(user(f"word {n}"))

    reasons = [record.reason for record in session.compaction_log]
    assert reasons.count("it failed") == len(errors) > 4
    assert len(reasons) <= 2 * len(errors)


async def test_a_first_compaction_of_a_huge_history_takes_several_calls(
    store: Store, model: Model, errors: list[Exception]
) -> None:
    await Session(store).append_messages([user(f"<{n}> " + "word " * 75) for n in range(400)])
    session = compacting(store, model, errors, 4_000)

    await session.append_message(user("go on"))

    assert errors == []
    assert len(model.prompts) > 5
    assert all(estimate_tokens(prompt) <= 4_000 for prompt in model.prompts)
    shown = "".join([*model.prompts, *texts(await session.get_history())])
    assert [n for n in range(400) if f"<{n}>" not in shown] == []


async def test_a_custom_tokenizer_decides_for_trigger_and_cut(
    store: Store, model: Model, errors: list[Exception]
) -> None:
    def count(message: Message) -> int:
        return len(str(message.parts))

    function = create_compact_function(summarize=model)
    session = Session(store).on_compaction(function).compact_after(4_000, count).on_compaction_error(errors.append)

    for n in range(60):
        await session.append_message(user(f"{n}: " + "word " * 30))
        assert sum(map(count, await session.get_history())) <= 4_000

    assert errors == []


# ── what is reported ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answer", "reason"), [(None, "blank"), ("", "blank"), (" \n", "blank"), ("word " * 3_000, "takes 3,90")]
)
async def test_a_summary_that_is_blank_or_too_long_is_refused_and_reported(
    store: Store, errors: list[Exception], answer: Any, reason: str
) -> None:
    session = compacting(store, Model(answer), errors, 1_000)

    stored = await session.append_messages([user("word " * 70) for _ in range(12)])

    (error,) = errors
    assert isinstance(error, CompactionFailed)
    assert error.session_id == "default"
    assert reason in str(error)
    assert await session.get_history() == stored
    assert session.compaction_log[-1].error is error
    with pytest.raises(CompactionFailed, match=reason):
        await session.compact()


async def test_a_refused_summary_backs_off(store: Store, errors: list[Exception]) -> None:
    model = Model(None)
    session = compacting(store, model, errors, 500)

    for n in range(150):
        await session.append_message(user(f"{n}: " + "word " * 20))

    assert len(model.prompts) == len(errors) <= 12
    assert "backing off: " in session.compaction_log[-1].reason


async def test_results_are_shortened_while_the_summariser_is_away(store: Store, errors: list[Exception]) -> None:
    def away(prompt: str) -> str:
        raise ConnectionError("the model is away")

    function = create_compact_function(summarize=away)
    session = Session(store, on_compaction=function, compact_after=8_000, on_compaction_error=errors.append)
    await session.append_messages([user("word " * 300) for _ in range(25)])
    failed = len(errors)

    for name in ("first", "second"):
        await session.append_message(assistant([{"type": "tool_use", "id": name, "name": "read", "input": {}}]))
        await session.append_message(tool_result(name, "All is well.\n" * 23_000, name="read"))

        assert await session.estimate_tokens() < 20_000
    assert failed == 1
    assert {type(error) for error in errors} == {ConnectionError}


async def test_an_append_that_adds_little_is_skipped_after_a_failure(store: Store, errors: list[Exception]) -> None:
    session = compacting(store, Model(""), errors, 1_000)
    await session.append_messages([user("word " * 100) for _ in range(10)])

    await session.append_message(user("word"))

    assert len(errors) == 1
    assert session.compaction_log[-1].reason.startswith("backing off")


async def test_a_compaction_that_only_shortens_returns_none_and_says_so(store: Store, model: Model) -> None:
    before = Session(store)
    await before.append_message(assistant([{"type": "tool_use", "id": "1", "name": "read", "input": {}}]))
    await before.append_message(tool_result("1", "All is well.\n" * 23_000, name="read"))
    session = Session(store, on_compaction=create_compact_function(summarize=model), compact_after=8_000)

    assert await session.compact() is None

    assert session.compaction_log[-1].reason == "1 tool result was shortened"
    assert await session.estimate_tokens() < 8_000


async def test_a_function_that_finds_nothing_above_the_threshold_is_reported(
    store: Store, errors: list[Exception]
) -> None:
    session = Session(store, on_compaction=lambda messages: None, compact_after=20, on_compaction_error=errors.append)

    await session.append_messages(said(5))

    (error,) = errors
    assert str(error) == (
        "session 'default' takes 30 tokens, its threshold is 20: the compaction function found nothing to summarise; "
        "the system prompt takes 0, summaries 0, other messages 30 tokens"
    )
    assert await session.compact() is None


async def test_a_summary_that_is_not_enough_is_laid_and_reported(store: Store, errors: list[Exception]) -> None:
    session = Session(store, on_compaction=covering("0", "2"), compact_after=30, on_compaction_error=errors.append)

    await session.append_messages(said(10))

    assert texts(await session.get_history())[:2] == ["in short", "m3"]
    (error,) = errors
    assert isinstance(error, CompactionFailed)
    assert (error.tokens, error.threshold) == (49, 30)
    assert "3 messages became one summary" in str(error)


async def test_a_prompt_that_leaves_no_room_is_named(store: Store, model: Model, errors: list[Exception]) -> None:
    session = compacting(store, model, errors, 6_000, context=[{"label": "soul", "provider": "x" * 23_500}])

    await session.append_messages([user("word " * 75) for _ in range(60)])

    (error,) = errors
    assert "the system prompt alone takes 5,9" in str(error)
    assert "of 6,000 tokens" in str(error)
    # What could be done was done: the history is short.
    assert len(await session.get_history()) < 12


async def test_a_call_that_waits_with_too_much_is_named(store: Store, model: Model, errors: list[Exception]) -> None:
    session = compacting(store, model, errors, 1_000)
    written = {"type": "tool_use", "id": "c", "name": "write", "input": {"text": "word " * 5_000}}

    await session.append_message(assistant([written], id="writes"))

    (error,) = errors
    assert "the messages from 'writes' on wait for the result of a tool call and take 6,5" in str(error)
    await session.append_message(tool_result("c", "written", name="write"))
    await session.append_message(user("thanks"))
    assert await session.estimate_tokens() <= 1_000


async def test_without_a_handler_it_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(store, on_compaction=create_compact_function(summarize=Model("")), compact_after=50)

    with caplog.at_level(logging.WARNING, logger="leafward.sessions"):
        await session.append_messages(said(20))

    assert "the summary is blank" in caplog.text


async def test_a_manual_compaction_is_held_to_the_same_rules(store: Store) -> None:
    session = Session(store, on_compaction=covering("1", "1", "longer than that"))
    await session.append_messages(said(3))

    with pytest.raises(CompactionFailed, match="takes 8 tokens, the message it replaces takes 6"):
        await session.compact()

    assert await session.get_compactions() == []


async def test_an_error_in_counting_the_prompt_does_not_stop_a_manual_compaction(
    store: Store, model: Model, errors: list[Exception]
) -> None:
    def away() -> str:
        raise ConnectionError("the block is away")

    await Session(store).append_messages([user("word " * 75) for _ in range(60)])
    session = compacting(store, model, errors, 3_000, context=[{"label": "far", "provider": {"get": away}}])

    assert await session.compact() is not None
    assert errors


# ── setups ───────────────────────────────────────────────────────────────────


async def test_a_threshold_with_no_room_is_refused_at_first_use(store: Store, model: Model) -> None:
    function = create_compact_function(summarize=model)
    session = Session(store, on_compaction=function, compact_after=49)
    managed = SessionManager(store).on_compaction(function).compact_after(49).get_session("s")

    for one in (session, managed):
        with pytest.raises(ConfigurationError, match="at least 50 tokens"):
            await one.append_message(user("hi"))
    # A custom function may know better.
    await Session(store, on_compaction=lambda messages: None, compact_after=49).append_message(user("hi"))


async def test_a_function_is_given_the_threshold_and_what_the_prompt_takes(store: Store) -> None:
    given: list[Any] = []
    session = Session(
        store,
        context=[{"label": "soul", "provider": "You are helpful."}],
        on_compaction=lambda messages, context: given.append(context),
        compact_after=40,
        on_compaction_error=lambda error: None,
    )

    await session.append_messages(said(6))
    await session.compact()

    prompt = estimate_tokens(await session.freeze_system_prompt())
    assert [(one.threshold, one.prompt_tokens, one.session_id) for one in given] == [(40, prompt, "default")] * 2
    shorter = user("m", id="0")
    assert given[0].count((await session.get_history())[0]) == 6
    assert given[0].count(shorter) == count_tokens(shorter)


async def test_a_custom_storage_keeps_no_notices_and_gets_below_all_the_same(
    model: Model, errors: list[Exception]
) -> None:
    session = compacting(DictStorage(), model, errors, 2_000)
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}

    await session.append_messages([user("Read."), assistant([call]), tool_result("c", "line\n" * 5_000, name="read")])

    assert errors == []
    assert texts(await session.get_history()) == ["Read.", "so far"]


async def test_an_edit_under_a_summary_in_a_custom_storage_can_be_compacted(model: Model) -> None:
    storage = DictStorage()
    session = Session(storage).on_compaction(
        create_compact_function(summarize=model, protect_head=1, tail_token_budget=20)
    )
    await session.append_messages(said(12))
    await session.add_compaction("earlier", "1", "10")
    await session.append_messages([user("edited", id="x"), user("reply", id="y")], parent_id="6")

    made = await session.compact()

    assert made is not None
    assert (made.from_message_id, made.to_message_id) == ("1", "x")


async def test_the_sessions_of_one_store_share_nothing_about_their_thresholds(model: Model) -> None:
    async with open_store("memory://") as store:
        small = Session(store, "small", on_compaction=create_compact_function(summarize=model), compact_after=200)
        large = Session(store, "large", on_compaction=create_compact_function(summarize=model), compact_after=10_000)
        for session in (small, large):
            await session.append_messages([user("word " * 20) for _ in range(20)])

        assert len(await small.get_compactions()) == 1
        assert await large.get_compactions() == []
