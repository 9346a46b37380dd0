"""How much a turn or a session may use before its model is not asked any more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from leafward.core.errors import BudgetExceeded, ConfigurationError
from leafward.engine.models.model import ChatModel
from leafward.engine.models.model_events import ModelUsage
from leafward.stores.contracts import Usage


class Spent(NamedTuple):
    """What was used so far."""

    tokens: int = 0
    """Of requests and replies together."""
    cost: float = 0.0


def add(spent: Spent, used: Usage) -> Spent:
    """Return what was used with one reply more."""
    return Spent(spent.tokens + used.input_tokens + used.output_tokens, spent.cost + used.cost)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens a turn or a session may use, or how much it may cost, in the currency of the model's price.

    It is looked at before each question to the model, and every reply counts in the commit that stores it. So the last
    reply may exceed it, and no other is asked for. Tokens are those of requests and replies together. A limit of 0
    never asks the model.

    Raises:
        ConfigurationError: it has no limit, or an option is wrong.
    """

    tokens: int | None = None
    cost: float | None = None
    per: Literal["turn", "session"] = "turn"

    def __post_init__(self) -> None:
        if self.tokens is None and self.cost is None:
            raise ConfigurationError("a budget has a number of tokens, a cost, or both: Budget(tokens=100_000)")
        if self.tokens is not None and not (_is_amount(self.tokens) and self.tokens % 1 == 0):
            raise ConfigurationError(f"tokens is a whole number, 0 or more, not {self.tokens!r}")
        if self.cost is not None and not _is_amount(self.cost):
            raise ConfigurationError(f"cost is a number, 0 or more, not {self.cost!r}")
        if self.per not in ("turn", "session"):
            raise ConfigurationError(f"per is 'turn' or 'session', not {self.per!r}")

    def check_model(self, model: ChatModel) -> None:
        """Refuse a model whose replies can have no cost, if this limits the cost.

        A model without an attribute `price` may report costs itself: each of its replies has to.

        Raises:
            ConfigurationError: its `price` is `None`.
        """
        if self.cost is not None and getattr(model, "price", self) is None:
            raise ConfigurationError(
                f"a budget with a cost needs the price of the model: {type(model).__name__}(…, price=(input, output)), "
                "each for a million tokens"
            )

    def check_reply(self, used: ModelUsage | None) -> None:
        """Refuse a reply of which it is not known what it used.

        Raises:
            ConfigurationError: the model did not report it.
        """
        if used is None:
            raise ConfigurationError("a budget needs a model that reports usage, and its reply came without ModelUsage")
        if self.cost is not None and used.cost is None:
            raise ConfigurationError(
                "a budget with a cost needs a model that reports it, and its reply came without ModelUsage.cost"
            )

    def check(self, spent: Spent, session_id: str) -> None:
        """Look whether the model may be asked.

        Raises:
            BudgetExceeded: nothing of the budget is left.
        """
        if self.tokens is not None and spent.tokens >= self.tokens:
            raise BudgetExceeded(session_id, kind="tokens", per=self.per, limit=self.tokens, used=spent.tokens)
        if self.cost is not None and spent.cost >= self.cost:
            raise BudgetExceeded(session_id, kind="cost", per=self.per, limit=self.cost, used=spent.cost)


def check_budget(budget: object, model: ChatModel, *, has_counters: bool) -> None:
    """Refuse what is not a budget, and one that cannot be kept with a model, or in a store.

    Raises:
        ConfigurationError: it is.
    """
    if budget is None:
        return
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"budget is a Budget(tokens=…, cost=…), or None, not {budget!r}")
    budget.check_model(model)
    if budget.per == "session" and not has_counters:
        raise no_counters()


def no_counters() -> ConfigurationError:
    """Return what is wrong with a budget of sessions in a custom store of states."""
    return ConfigurationError(
        "a custom store of states does not count what a session has used: use a budget per turn, or give the agent a "
        "store of leafward's"
    )


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
