"""How an agent compacts conversations: what starts it, what stays, and which model writes the summary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import NamedTuple

from leafward.core.compaction import CompactFunction, CompactionContext, CompactionResult
from leafward.core.compaction_plan import Limits
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message, user
from leafward.engine.budget import Budget
from leafward.engine.compaction_config import CompactionConfig
from leafward.engine.model_call import pause_before
from leafward.engine.models.model import ChatModel, ModelRequest, open_stream
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.reply import Reply
from leafward.engine.turn_control import TurnStopped
from leafward.sessions.compactor import Size
from leafward.sessions.default_compaction import DefaultCompaction
from leafward.tools.answers import STORAGE_FAILURES

FUNCTION_TRIGGER = 80_000
"""The tokens at which a compaction function is asked that comes without a trigger."""

Compacting = CompactionConfig | CompactFunction
"""What the option `compaction` of an agent may be."""


RAISED = (*STORAGE_FAILURES, TurnStopped)
"""What ends a turn also while it compacts."""


class ToCompact(NamedTuple):
    """One compaction, as a turn asks for it."""

    function: CompactFunction
    size: Size
    """What context and prompt take."""
    threshold: int | None
    """The tokens that they may take together."""


@dataclass(frozen=True, slots=True)
class AgentCompaction:
    """The compaction of an agent's conversations."""

    given: Compacting
    model: ChatModel
    """Writes the summary, unless a function does."""
    retries: int

    @property
    def trigger_messages(self) -> int | None:
        """The number of messages at which it is due."""
        return self.given.trigger_messages if isinstance(self.given, CompactionConfig) else None

    @property
    def trigger_tokens(self) -> int | None:
        """The number of tokens at which it is due."""
        return self.given.trigger_tokens if isinstance(self.given, CompactionConfig) else FUNCTION_TRIGGER

    def function(self, replied: Callable[[Reply], None] | None = None) -> CompactFunction:
        """Return the compaction function; `replied` is called with each reply of the model."""
        config = self.given
        if not isinstance(config, CompactionConfig):
            return config

        async def summarize(prompt: str) -> str:
            reply = await _ask(self.model, prompt, self.retries)
            if replied is not None:
                replied(reply)
            return "" if reply.is_empty else reply.message().text

        async def compact(messages: Sequence[Message], context: CompactionContext) -> CompactionResult | None:
            kept = _kept(config, messages, context)
            limits = Limits(protect_head=0, tail_token_budget=0, min_tail_messages=kept)
            return await DefaultCompaction(summarize, limits, None)(messages, context)

        return compact


def agent_compaction(
    given: Compacting | None, model: ChatModel, *, retries: int, budget: Budget | None
) -> AgentCompaction | None:
    """Return how an agent compacts; `None` if it does not.

    Raises:
        ConfigurationError: `given` is neither a configuration nor a function, or the budget cannot be kept with the
            model that it names.
    """
    if given is None:
        return None
    if isinstance(given, type) or not (isinstance(given, CompactionConfig) or callable(given)):
        raise ConfigurationError(
            "compaction is a CompactionConfig(…), a compaction function such as create_compact_function(…), or None, "
            f"not {given!r}"
        )
    if isinstance(given, CompactionConfig) and given.model is not None:
        model = given.model
        if budget is not None:
            budget.check_model(model)
    return AgentCompaction(given, model, retries)


def _kept(config: CompactionConfig, messages: Sequence[Message], context: CompactionContext) -> int:
    """Return how many of the newest messages stay, if nothing else is to be heeded."""
    if config.keep_tokens is None:
        return config.keep_messages
    budget = config.keep_tokens
    fitting = sum(1 for _ in takewhile(lambda sum: sum <= budget, accumulate(map(context.count, reversed(messages)))))
    # Of short messages so many may fit that the next request would be above the trigger again.
    most = fitting if config.trigger_messages is None else config.trigger_messages // 2
    return max(1, min(fitting, most))


async def _ask(model: ChatModel, prompt: str, retries: int) -> Reply:
    """Return what a model answers to a prompt; it is asked again after temporary errors.

    Raises:
        ModelError: it failed, also when it was asked again.
    """
    attempt = 0
    while True:
        reply = Reply()
        try:
            async with open_stream(model, ModelRequest([user(prompt)])) as events:
                async for event in events:
                    reply.add(event)
            reply.end()
        except ModelError as error:
            if not error.temporary or attempt == retries:
                raise
            await asyncio.sleep(pause_before(error, attempt))
            attempt += 1
        else:
            return reply
