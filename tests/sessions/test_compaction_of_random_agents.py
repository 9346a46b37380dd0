"""Whatever an agent does, a compaction that reports no error leaves its session below the threshold."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import CompactionFailed, Message, Session, create_compact_function, open_store
from leafward.core.tokens import TokenCounter, count_tokens
from leafward.sessions import CompactionRecord, estimate_tokens
from tests.sessions.excuses import excuse
from tests.sessions.random_agent import RandomAgent

NO_TOKENIZER = "no tokenizer"
STEPS = list(RandomAgent(None).steps)  # type: ignore[arg-type]


class Summariser:
    """Writes what its name says, and keeps the lengths of its prompts."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.prompts: list[int] = []

    async def __call__(self, prompt: str) -> str | None:
        self.prompts.append(estimate_tokens(prompt))
        match self._kind:
            case "blank":
                return None
            case "long":
                return "and so on " * 5_000
            case "raising" | "at times" if self._kind == "raising" or len(self.prompts) % 3 == 0:
                raise ConnectionError("the model is away")
            case _:
                asked = int(prompt.rsplit("Aim for about ", 1)[1].split(maxsplit=1)[0])
                return "summary " * max(1, asked // 2)


def per_character(message: Message) -> int:
    return len(str(message.parts)) // 3


def failing(message: Message) -> int:
    if len(message.parts) % 2:
        raise RuntimeError(NO_TOKENIZER)
    return count_tokens(message)


counters: list[TokenCounter | None] = [None, per_character, lambda message: 30, failing]

setups = st.fixed_dictionaries(
    {
        "threshold": st.sampled_from([60, 150, 600, 3_000]),
        "prompt": st.sampled_from([0, 0, 10, 100]),
        "counter": st.sampled_from(counters),
        "kind": st.sampled_from(["good", "good", "good", "blank", "long", "raising", "at times"]),
        "own_counter": st.sampled_from([None, None, count_tokens]),
        "limits": st.fixed_dictionaries(
            {
                "protect_head": st.integers(0, 5),
                "head_token_budget": st.sampled_from([None, 0, 50, 10_000]),
                "tail_token_budget": st.sampled_from([0, 100, 20_000]),
                "min_tail_messages": st.integers(0, 6),
            }
        ),
    }
)
walks = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 60)), min_size=5, max_size=40)


def attempts(session: Session, last: CompactionRecord | None = None) -> list[CompactionRecord]:
    """Return the records of compactions that were tried, those after `last` if it is given."""
    tried = [one for one in session.compaction_log if not one.reason.startswith(("backing off", "another"))]
    return list(takewhile(lambda one: one is not last, reversed(tried)))[::-1]


@settings(max_examples=60)
@given(setup=setups, walk=walks)
async def test_a_compaction_without_an_error_leaves_at_most_the_threshold(
    setup: dict[str, Any], walk: list[tuple[str, int]]
) -> None:
    errors: list[Exception] = []
    unexcused: list[Exception] = []
    model = Summariser(setup["kind"])
    function = create_compact_function(summarize=model, token_counter=setup["own_counter"], **setup["limits"])
    context = [{"label": "soul", "provider": "be kind " * setup["prompt"]}] if setup["prompt"] else []

    async def report(error: Exception) -> None:
        errors.append(error)
        judged = setup["kind"] == "good" and setup["counter"] is None
        if judged and await excuse(session, setup["threshold"], agent.growing) is None:
            unexcused.append(error)

    async with open_store("memory://") as store:
        session = Session(
            store,
            context=context,
            on_compaction=function,
            compact_after=setup["threshold"],
            token_counter=setup["counter"],
            on_compaction_error=report,
        )
        agent = RandomAgent(session)
        for what, number in walk:
            last, seen = next(reversed(attempts(session)), None), len(errors)
            appended = await agent.step(what, number)

            tried = attempts(session, last)
            reported = [error for error in errors[seen:] if str(error) != NO_TOKENIZER]
            assert [one.error for one in tried if one.error is not None] == reported
            assert unexcused == []
            assert {type(error) for error in reported} <= {CompactionFailed, ConnectionError}
            if appended and tried and tried[-1].error is None:
                assert await session.estimate_tokens() <= setup["threshold"]
            if setup["counter"] is None:
                history = await session.get_history()
                prompt = estimate_tokens(await session.freeze_system_prompt())
                assert await session.estimate_tokens() == prompt + sum(map(count_tokens, history))

        assert all(tokens <= max(1_000, setup["threshold"]) for tokens in model.prompts)
        for name, message in agent.stored.items():
            assert await session.get_message(name) == message
        leaf = await session.get_latest_leaf()
        raw = [message.id for message in await session.get_raw_history()]
        assert raw[-1:] == ([] if leaf is None else [leaf.id])
        assert set(raw) <= set(agent.stored)
