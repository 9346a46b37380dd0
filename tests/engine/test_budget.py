"""A budget is looked at before each question to the model, and counted with each reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    BudgetExceeded,
    ConfigurationError,
    LeafwardError,
    Message,
    ReActAgent,
    RuntimeContext,
    Session,
    SessionManager,
    open_store,
    tool,
    user,
)
from leafward.core.ids import new_id
from leafward.engine import Budget, ModelEvent, ModelRequest, ModelUsage, Stop, TextDelta
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import is_paired
from tests.engine.custom_stores import PlainStates
from tests.engine.dying_store import Died, DyingStore
from tests.engine.test_turn import store
from tests.engine.two_handles import KINDS, Handles, on

__all__ = ["store"]

ALICE = RuntimeContext("alice", "s1")
USED = ModelUsage(60, 40, cost=0.5)


@tool
async def stir() -> str:
    """Stir."""
    return "stirred"


def endless(request: ModelRequest) -> Any:
    """Call a tool for ever."""
    return [call("stir", {}), USED] if request.tools else ["I have stirred.", USED]


def cook(store: Any, budget: Any, script: Any = endless, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[stir], budget=budget, **options)


def asked(agent: ReActAgent) -> int:
    model: Any = agent._answers.setup.model  # pyright: ignore[reportPrivateUsage]
    return len(model.requests)


async def history(store: Store) -> list[Message]:
    return await Session(store, "s1", user_id="alice", agent_id="cook").get_history()


@pytest.mark.parametrize("per", ["turn", "session"])
@pytest.mark.parametrize("save", ["step", "call"])
@pytest.mark.parametrize(("limits", "asked_for"), [({"tokens": 250}, 3), ({"cost": 1.0}, 2), ({"tokens": 200}, 2)])
async def test_a_runaway_loop_ends_when_its_budget_is_used_up(
    store: Store, per: Any, save: Any, limits: Any, asked_for: int
) -> None:
    agent = cook(store, Budget(**limits, per=per), save=save)

    with pytest.raises(BudgetExceeded) as raised:
        await agent.call("Stir", ALICE)

    assert asked(agent) == asked_for
    error = raised.value
    kind = next(iter(limits))
    expected = 100 * asked_for if kind == "tokens" else 0.5 * asked_for
    assert (error.session_id, error.kind, error.per, error.limit, error.used) == (
        "s1",
        kind,
        per,
        limits[kind],
        expected,
    )
    assert isinstance(error, LeafwardError)
    stored = await history(store)
    assert [message.role for message in stored] == ["user", *["assistant", "tool"] * asked_for]
    assert is_paired(stored)
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens, info.output_tokens) == (60 * asked_for, 40 * asked_for)


@pytest.mark.parametrize("budget", [Budget(tokens=0), Budget(cost=0), Budget(tokens=0, per="session")])
async def test_a_budget_of_0_never_asks_the_model_and_the_session_goes_on_with_another(
    store: Store, budget: Budget
) -> None:
    agent = cook(store, budget)
    question = user("Stir", id="q1")

    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            await agent.call(question, ALICE)

    assert asked(agent) == 0
    assert [message.id for message in await history(store)] == ["q1"]
    reply = await cook(store, None, ["Stirred."]).call(question, ALICE)
    assert reply.text == "Stirred."


async def test_the_closing_summary_is_within_the_budget_too(store: Store) -> None:
    agent = cook(store, Budget(tokens=200), max_iterations=2)

    with pytest.raises(BudgetExceeded):
        await agent.call("Stir", ALICE)

    assert asked(agent) == 2


async def test_a_reply_that_exceeds_the_budget_is_returned_if_it_is_the_last(store: Store) -> None:
    agent = cook(store, Budget(tokens=150), [[call("stir", {}), USED], ["Done.", USED]])

    assert (await agent.call("Stir", ALICE)).text == "Done."


async def test_each_turn_has_its_own_budget_and_all_of_a_session_have_one(store: Store) -> None:
    of_turns = cook(store, Budget(tokens=100), lambda _: ["Yes.", USED])
    for text in ("One?", "Two?", "Three?"):
        await of_turns.call(text, ALICE)

    of_session = cook(store, Budget(tokens=350, per="session"), lambda _: ["Yes.", USED])
    await of_session.call("Four?", ALICE)
    with pytest.raises(BudgetExceeded, match="session 's1' has used 400 of 350 tokens"):
        await of_session.call("Five?", ALICE)
    await of_session.call("One?", RuntimeContext("alice", "s2"))
    await of_session.call("One?", RuntimeContext("bob", "s1"))


async def test_a_turn_that_goes_on_in_another_process_goes_on_with_its_budget(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/b.db"
    async with open_store(url) as first:
        # The empty slot, the input, the first reply, its result, the second reply.
        dying: Any = DyingStore(first, 5)
        with pytest.raises(Died):
            await cook(dying, Budget(tokens=300)).call("Stir", ALICE)
        await dying.bury("s1", "alice")
    async with open_store(url) as second:
        agent = cook(second, Budget(tokens=300))
        with pytest.raises(BudgetExceeded):
            await agent.call(None, ALICE)
        assert asked(agent) == 1
        larger = cook(second, Budget(tokens=350))
        with pytest.raises(BudgetExceeded):
            await larger.call(None, ALICE)
        assert asked(larger) == 1


async def test_an_empty_reply_counts(store: Store) -> None:
    agent = cook(store, Budget(tokens=200), lambda _: [USED])

    with pytest.raises(BudgetExceeded):
        await agent.call("Stir", ALICE)

    assert asked(agent) == 2


class Priced:
    """A model that says its price, or that it has none, or that reports no usage."""

    def __init__(self, price: Any, usage: ModelUsage | None = None) -> None:
        self.price = price
        self._usage = usage

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        yield TextDelta("Yes.")
        if self._usage is not None:
            yield self._usage
        yield Stop("stop")


async def test_a_cost_budget_needs_a_price_when_the_agent_is_made(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="needs the price of the model: Priced"):
        ReActAgent("cook", Priced(None), store=store, budget=Budget(cost=1))

    ReActAgent("cook", Priced(None), store=store, budget=Budget(tokens=1))
    priced = ReActAgent("cook", Priced((1, 2), USED), store=store, budget=Budget(cost=1))
    assert (await priced.call("Stir", ALICE)).text == "Yes."


@pytest.mark.parametrize(
    ("model", "budget", "missing"),
    [
        (Priced((1, 2)), Budget(tokens=1000), "without ModelUsage$"),
        (Priced((1, 2), ModelUsage(60, 40)), Budget(cost=1), r"without ModelUsage\.cost$"),
        (ScriptedModel(lambda _: "Yes."), Budget(cost=1), r"without ModelUsage\.cost$"),
    ],
)
async def test_a_reply_that_cannot_be_counted_fails_its_turn_and_the_session_goes_on(
    store: Store, model: Any, budget: Budget, missing: str
) -> None:
    question = user("Stir", id="q1")
    with pytest.raises(ConfigurationError, match=missing):
        await ReActAgent("cook", model, store=store, budget=budget).call(question, ALICE)

    assert [message.id for message in await history(store)] == ["q1"]
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens > 0) is (missing != "without ModelUsage$"), "what it says counts"
    assert (await cook(store, None, ["Stirred."]).call(question, ALICE)).text == "Stirred."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "a number of tokens, a cost, or both"),
        *(({"tokens": value}, "tokens is a whole number") for value in (-1, 1.5, True, "9")),
        *(({"cost": value}, "cost is a number") for value in (-1, float("nan"), float("inf"), True, "9")),
        ({"tokens": 1, "per": "day"}, "per is 'turn' or 'session'"),
    ],
)
def test_a_wrong_budget_is_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Budget(**options)


def test_what_is_not_a_budget_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="budget is a Budget"):
        cook("memory://", 1000)


async def test_a_custom_store_of_states_keeps_budgets_of_turns_only(store: Store) -> None:
    states: Any = PlainStates()
    with pytest.raises(ConfigurationError, match="use a budget per turn"):
        cook(states, Budget(tokens=100, per="session"))
    with pytest.raises(BudgetExceeded):
        await cook(states, Budget(tokens=200)).call("Stir", ALICE)

    of_session = cook(store, Budget(tokens=100, per="session"))
    with pytest.raises(ConfigurationError, match="use a budget per turn"):
        await of_session.call("Stir", RuntimeContext("alice", "s1", session=states))


@on(*KINDS)
async def test_a_budget_of_a_session_holds_in_all_processes(handles: Handles) -> None:
    session_id, budget = new_id(), Budget(tokens=250, cost=1.5, per="session")
    first, second = (cook(one, budget, lambda _: ["Yes.", USED]) for one in handles)
    ctx = RuntimeContext("alice", session_id)

    for agent in (first, second, first):
        await agent.call(user("Stir"), ctx)
    for agent in (second, first):
        with pytest.raises(BudgetExceeded, match="has used 300 of 250 tokens"):
            await agent.call(user("Stir"), ctx)
