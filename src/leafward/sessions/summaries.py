"""A ready-made compaction function: it chooses what to summarise and asks a model to do it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from leafward.core.compaction import CompactionContext, CompactionResult, choose, summary_budget
from leafward.core.errors import ConfigurationError
from leafward.core.message import Dumpable, Message, as_message
from leafward.core.overlays import is_summary_id
from leafward.core.summary_prompt import build_summary_prompt
from leafward.core.tokens import TokenCounter, checked_count, count_tokens
from leafward.sessions.calling import call, is_async

Summarizer = Callable[[str], str | Awaitable[str | None] | None]
"""Answers a prompt with a summary; blank or `None` means that there is none."""


class CompactFunction(Protocol):
    """What `Session.on_compaction` takes: it summarises a part of a history, or answers `None`."""

    async def __call__(
        self, messages: Sequence[Message | Mapping[str, Any] | Dumpable], context: CompactionContext | None = None
    ) -> CompactionResult | None: ...


def create_compact_function(
    *,
    summarize: Summarizer,
    protect_head: int = 3,
    tail_token_budget: int = 20_000,
    min_tail_messages: int = 2,
    token_counter: TokenCounter | None = None,
) -> CompactFunction:
    """Make a compaction function that summarises the middle of a history with `summarize(prompt)`.

    The first `protect_head` messages stay as they are, and so do the newest that fit into `tail_token_budget`, at least
    `min_tail_messages`. Earlier summaries in the middle are updated, not summarised again from nothing. Tokens are
    counted by `token_counter`, else as the session counts them.

    `summarize` is async, or sync and then called in a worker thread. What it raises, the function raises.

    Raises:
        ConfigurationError: an option is wrong; from the function: `summarize` answered something else than text.
    """
    if not callable(summarize):
        raise ConfigurationError(f"summarize is a function from a prompt to a summary, not {type(summarize).__name__}")
    if token_counter is not None and (not callable(token_counter) or is_async(token_counter)):
        raise ConfigurationError(f"token_counter is a plain function of a message, not {type(token_counter).__name__}")
    limits = _Limits(protect_head, tail_token_budget, min_tail_messages)

    async def compact(
        messages: Sequence[Message | Mapping[str, Any] | Dumpable], context: CompactionContext | None = None
    ) -> CompactionResult | None:
        history = [as_message(message) for message in messages]
        count = token_counter or (count_tokens if context is None else context.count)
        # Counting and writing down a long history takes a while, which others need not wait for.
        plan = await asyncio.to_thread(_plan, history, limits, partial(checked_count, count))
        if plan is None:
            return None
        summary = await _answer(summarize, plan.prompt)
        return CompactionResult(summary, plan.from_message_id, plan.to_message_id) if summary.strip() else None

    return compact


@dataclass(frozen=True, slots=True)
class _Limits:
    protect_head: int
    tail_token_budget: int
    min_tail_messages: int

    def __post_init__(self) -> None:
        for name in ("protect_head", "tail_token_budget", "min_tail_messages"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigurationError(f"{name} is a whole number of at least 0, not {value!r}")


@dataclass(frozen=True, slots=True)
class _Plan:
    prompt: str
    from_message_id: str
    to_message_id: str


def _plan(history: Sequence[Message], limits: _Limits, count: TokenCounter) -> _Plan | None:
    chosen = choose(
        history,
        protect_head=limits.protect_head,
        tail_token_budget=limits.tail_token_budget,
        min_tail_messages=limits.min_tail_messages,
        count=count,
    )
    if chosen is None:
        return None
    turns = history[slice(*chosen)]
    previous = [turn for turn in turns if is_summary_id(turn.id)]
    known = sum(map(count, previous))
    budget = summary_budget(sum(map(count, turns)) - known, known)
    prompt = build_summary_prompt(turns, previous=[summary.text for summary in previous], budget=budget)
    return _Plan(prompt, turns[0].id, turns[-1].id)


async def _answer(summarize: Summarizer, prompt: str) -> str:
    answer: object = await call(summarize, prompt)
    if answer is None:
        return ""
    if not isinstance(answer, str):
        raise ConfigurationError(f"summarize answers with the summary's text, not {type(answer).__name__}")
    return answer
