"""The ready-made compaction function: core plans, a model writes the summary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from leafward.core.callables import is_async
from leafward.core.compaction import CompactionContext, CompactionResult
from leafward.core.compaction_plan import Limits, Plan, make_plan
from leafward.core.errors import ConfigurationError
from leafward.core.message import Dumpable, Message, as_message
from leafward.core.summary_prompt import SummaryPrompts
from leafward.core.tokens import TokenCounter, count_tokens
from leafward.sessions.user_functions import call

Summarizer = Callable[[str], str | Awaitable[str | None] | None]
"""Answers a prompt with a summary."""


def create_compact_function(
    *,
    summarize: Summarizer,
    protect_head: int = 3,
    head_token_budget: int | None = None,
    tail_token_budget: int = 20_000,
    min_tail_messages: int = 2,
    token_counter: TokenCounter | None = None,
    prompt_token_budget: int | None = None,
) -> DefaultCompaction:
    """Make a compaction function that summarises the middle of a history with `summarize(prompt)`.

    The first `protect_head` messages stay, as many as fit into `head_token_budget`, and so do the newest that fit into
    `tail_token_budget`, at least `min_tail_messages`. Earlier summaries in the middle are updated, not summarised again
    from nothing. With `compact_after(threshold)` head and tail keep at most half of it, whatever these options say.

    A prompt takes at most `prompt_token_budget` tokens (default: the threshold, else 100,000); a longer history takes
    several. Tokens are counted by `token_counter`, else as the session counts them. `summarize` is async, or sync and
    then called in a worker thread. What it raises, the function raises; if earlier calls made a summary of a part, the
    function returns that, with what was raised as the result's `error`.

    Raises:
        ConfigurationError: an option is wrong; from the function: `summarize` answered something else than text.
    """
    if not callable(summarize):
        raise ConfigurationError(f"summarize is a function from a prompt to a summary, not {type(summarize).__name__}")
    if token_counter is not None and (not callable(token_counter) or is_async(token_counter)):
        raise ConfigurationError(f"token_counter is a plain function of a message, not {type(token_counter).__name__}")
    limits = Limits(protect_head, head_token_budget, tail_token_budget, min_tail_messages, prompt_token_budget)
    return DefaultCompaction(summarize, limits, token_counter)


class DefaultCompaction:
    """What `create_compact_function` makes, for `Session.on_compaction`."""

    def __init__(self, summarize: Summarizer, limits: Limits, token_counter: TokenCounter | None) -> None:
        self._summarize = summarize
        self._limits = limits
        self._counter = token_counter

    def check_threshold(self, threshold: int) -> None:
        """Raise `ConfigurationError` for a threshold that no history could be brought below."""
        self._limits.check_threshold(threshold)

    async def __call__(
        self, messages: Sequence[Message | Mapping[str, Any] | Dumpable], context: CompactionContext | None = None
    ) -> CompactionResult | None:
        """Summarise a part of a history; `None` when there is nothing to summarise."""
        history = [as_message(message) for message in messages]
        known = context or CompactionContext(count_tokens, "", estimates=True)
        # Counting and writing down a long history takes a while, which others need not wait for.
        plan, prompts, prompt = await asyncio.to_thread(self._prepare, history, known)
        if plan is None:
            return None
        if plan.shortened and known.shorten is not None:
            await known.shorten(plan.shortened)
        if prompts is None:
            return None
        summary, covered, error = await self._ask(prompts, prompt)
        first, last = plan.turns[0].id, plan.turns[covered - 1].id
        return CompactionResult(summary, first, last, error, plan.covers_being_written)

    def _prepare(
        self, history: Sequence[Message], context: CompactionContext
    ) -> tuple[Plan | None, SummaryPrompts | None, str]:
        """Return the plan, and what is to be asked, if anything is, with the first prompt."""
        plan = make_plan(history, self._limits, context, self._counter)
        if plan is None or not plan.turns:
            return plan, None, ""
        prompts = plan.prompts()
        return plan, prompts, prompts.next()

    async def _ask(self, prompts: SummaryPrompts, prompt: str) -> tuple[str, int, Exception | None]:
        """Return a summary, how many turns it covers, and why these are not all.

        Once an answer is there, a call that fails does not undo it: a long history takes many calls.
        """
        summary, covered = await self._answer(prompt), prompts.asked
        if prompts.goes_on_after(summary):
            prompts.check(summary)
        while prompts.goes_on_after(summary):
            try:
                answer = await self._answer(await asyncio.to_thread(prompts.next, summary))
                prompts.check(answer)
            except Exception as error:  # noqa: BLE001  (handed on with the result)
                return summary, covered, error
            summary, covered = answer, prompts.asked
        return summary, covered, None

    async def _answer(self, prompt: str) -> str:
        answer: object = await call(self._summarize, prompt)
        if answer is None:
            return ""
        if not isinstance(answer, str):
            raise ConfigurationError(f"summarize answers with the summary's text, not {type(answer).__name__}")
        return answer
