"""A model says that the conversation is too long: it is compacted once, and the model is asked once more."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leafward import CompactionConfig, Message, ReActAgent, create_compact_function, open_store, tool, user
from leafward.core.compaction import CompactionResult
from leafward.core.tokens import count_tokens
from leafward.engine import ModelError, ModelRequest
from leafward.engine.models.sdk_errors import model_error
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import ALICE, is_paired
from tests.engine.custom_stores import AsyncStates
from tests.engine.talker import is_prompt_for_summary

LATE = CompactionConfig(trigger_messages=1_000, keep_messages=2)
TEXTS = [
    "Error code: 400 - {'code': 'context_length_exceeded'}",
    "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Too many tokens in the prompt",
    "The input exceeds the model's maximum",
    "The token limit of this model was hit",
]


class Window:
    """A model with a window of so many tokens."""

    def __init__(self, tokens: int, text: str = TEXTS[1], *, summary: str = "They talked.") -> None:
        self.tokens = tokens
        self.text = text
        self.summary = summary
        self.requests: list[ModelRequest] = []
        self.refused = 0

    def model(self) -> ScriptedModel:
        return ScriptedModel(self.reply)

    async def reply(self, request: ModelRequest) -> Any:
        if sum(map(count_tokens, request.messages)) > self.tokens:
            self.refused += 1
            return ModelError(self.text, status=400)
        if is_prompt_for_summary(request):
            return self.summary
        self.requests.append(request)
        return "reply " + "word " * 20


def agent(store: Any, model: Any, **options: Any) -> ReActAgent:
    return ReActAgent("cook", model, store=store, **{"compaction": LATE, **options})


async def talk(of: ReActAgent, count: int) -> None:
    for number in range(1, count + 1):
        await of.call(user(f"m{number}", id=f"m{number}"), ALICE)


@pytest.fixture
async def store() -> Any:
    async with open_store("memory://") as opened:
        yield opened


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_conversation_that_a_model_refuses_is_compacted_and_sent_once_more(
    store: Store, text: str, streams: bool
) -> None:
    await talk(agent(store, Window(100_000).model()), 10)
    # The prompt for the summary has to fit as well, so another model writes it.
    window = Window(200, text)
    config = CompactionConfig(trigger_messages=1_000, keep_messages=2, model=Window(100_000).model())
    cook = agent(store, window.model(), compaction=config)

    if streams:
        events = [event async for event in cook.stream(user("m11", id="m11"), ALICE)]
        types = [event.name if event.type == "CUSTOM" else event.type for event in events]
        assert types[:4] == ["AGENT_START", "MODEL_CALL_START", "MODEL_CALL_END", "compaction"]
        assert [event.discarded for event in events if event.type == "MODEL_CALL_END"] == [True, False]
        assert types[-2:] == ["AGENT_RESULT", "AGENT_END"]
    else:
        assert (await cook.call(user("m11", id="m11"), ALICE)).text.startswith("reply")

    assert window.refused == 1
    assert len(window.requests) == 1
    raw = await cook.session("alice", "s1").get_raw_history()
    assert [one.id for one in raw].count("m11") == 1
    assert len(raw) == 22
    assert [one.text for one in window.requests[0].messages].count("m11") == 1
    assert len(await cook.session("alice", "s1").get_compactions()) == 1


async def test_without_a_compaction_the_error_of_the_model_is_raised_and_the_session_goes_on(store: Store) -> None:
    window = Window(100)
    cook = agent(store, window.model(), compaction=None)
    await talk(cook, 3)

    with pytest.raises(ModelError, match="maximum context length is 8192 tokens"):
        await cook.call(user("m4", id="m4"), ALICE)

    assert window.refused == 1
    assert (await agent(store, Window(1_000).model()).call(user("m4", id="m4"), ALICE)).text.startswith("reply")
    assert [one.id for one in await cook.session("alice", "s1").get_raw_history()].count("m4") == 1


async def test_an_overflow_that_compaction_cannot_cure_is_raised_and_the_session_goes_on(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    window = Window(0)
    cook = agent(store, window.model())
    with caplog.at_level(logging.ERROR), pytest.raises(ModelError, match="maximum context length is 8192 tokens"):
        await cook.call(user("hello", id="m1"), ALICE)

    window.tokens = 1_000
    assert (await cook.call(user("hello", id="m1"), ALICE)).text.startswith("reply")
    assert len(await cook.session("alice", "s1").get_raw_history()) == 2


async def test_the_model_is_asked_once_more_and_not_again(store: Store) -> None:
    await talk(agent(store, Window(100_000).model()), 10)
    window = Window(0)

    def shorten(messages: list[Message]) -> CompactionResult:
        # There is always more to sum up.
        return CompactionResult("They talked.", messages[0].id, messages[1].id)

    cook = agent(store, window.model(), compaction=shorten)

    with pytest.raises(ModelError, match="maximum context length"):
        await cook.call("m11", ALICE)

    assert window.refused == 2
    assert len(await cook.session("alice", "s1").get_compactions()) == 1


async def test_a_summary_that_fails_leaves_the_error_of_the_model(store: Store) -> None:
    await talk(agent(store, Window(100_000).model()), 10)
    window = Window(200)

    def summarize(prompt: str) -> str:
        raise RuntimeError("no model")

    cook = agent(store, window.model(), compaction=create_compact_function(summarize=summarize))
    with pytest.raises(ModelError, match="maximum context length"):
        await cook.call("m11", ALICE)

    assert await cook.session("alice", "s1").get_compactions() == []
    assert len(await cook.session("alice", "s1").get_raw_history()) == 21


@pytest.mark.parametrize(
    "error",
    [
        ModelError("Rate limit: too many tokens per minute", status=429),
        ModelError("too many tokens in flight", temporary=True, retry_after=0),
        ModelError("invalid api key", status=401),
    ],
)
async def test_another_error_is_no_reason_to_compact(store: Store, error: ModelError) -> None:
    await talk(agent(store, Window(100_000).model()), 10)
    cook = agent(store, ScriptedModel(lambda _: error), retries=0)

    with pytest.raises(ModelError, match=error.reason):
        await cook.call("m11", ALICE)

    assert await cook.session("alice", "s1").get_compactions() == []


async def test_a_large_result_of_a_tool_is_shortened_for_a_small_window(store: Store) -> None:
    @tool(read_only=True)
    def read() -> str:
        """Read the log."""
        return "All is well. " * 2_000

    asked: list[ModelRequest] = []

    async def reply(request: ModelRequest) -> Any:
        if sum(map(count_tokens, request.messages)) > 4_000:
            return ModelError(TEXTS[0], status=400)
        asked.append(request)
        return [call("read")] if len(asked) == 1 else "All is well."

    cook = agent(store, ScriptedModel(reply), tools=[read])
    answer = await cook.call("What does the log say?", ALICE)

    assert answer.text == "All is well."
    assert is_paired(list(asked[-1].messages))
    assert "characters are left out" in str(asked[-1].messages[-1].parts)
    stored = (await cook.session("alice", "s1").get_raw_history())[2]
    assert len(str(stored.parts)) > 20_000


async def test_a_custom_store_of_states_is_cured_in_the_same_way() -> None:
    states = AsyncStates()
    await talk(agent(states, Window(100_000).model()), 10)
    window = Window(200)
    config = CompactionConfig(trigger_messages=1_000, keep_messages=2, model=Window(100_000).model())
    cook = agent(states, window.model(), compaction=config)

    assert (await cook.call(user("m11", id="m11"), ALICE)).text.startswith("reply")

    state = await cook.get_agent_state("alice", "s1")
    assert state.summary == "They talked."
    assert [one.id for one in state.context].count("m11") == 1


def test_an_error_says_whether_the_conversation_is_too_long() -> None:
    assert all(ModelError(text).too_long for text in TEXTS)
    assert not ModelError("no such model").too_long
    assert ModelError("no", too_long=True).too_long
    assert not ModelError(TEXTS[0], too_long=False).too_long


def test_the_errors_of_sdks_say_so_as_well() -> None:
    openai = pytest.importorskip("openai")
    httpx = pytest.importorskip("httpx")
    response = httpx.Response(400, request=httpx.Request("POST", "http://localhost"))

    def made(body: object, said: str = "bad request") -> ModelError:
        error = model_error(openai.BadRequestError(said, response=response, body=body), openai)
        assert error is not None
        return error

    assert made({"code": "context_length_exceeded", "message": "no"}).too_long
    assert made({"message": TEXTS[1]}).too_long
    assert not made({"message": "unknown parameter"}).too_long
    assert not made({"message": TEXTS[1]}).temporary
