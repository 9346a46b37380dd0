"""Compaction functions for contracts: obedient, slow and failing ones."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from leafward import Message


def covering(first: str, last: str, summary: str = "in short") -> Callable[[list[Message]], dict[str, str]]:
    """Return a compaction function that always summarises the same messages."""
    return lambda messages: {"summary": summary, "from_message_id": first, "to_message_id": last}


def answering(answer: Any) -> Callable[[Any], Any]:
    """Return a function that always answers the same."""

    def answers(given: Any) -> Any:
        return answer

    return answers


def so_far(prompt: str) -> str:
    return "so far"


def ignore(error: Exception) -> None:
    """Be told of a failure, and do nothing about it."""


def all_but_the_last(messages: list[Message]) -> dict[str, str] | None:
    """Summarise everything but the newest message."""
    if len(messages) < 3:
        return None
    return {"summary": "so far", "from_message_id": messages[0].id, "to_message_id": messages[-2].id}


class Slow:
    """A compaction function that waits to be told to go on, and knows how many of it run at once."""

    def __init__(self, fn: Callable[[list[Message]], Any] = all_but_the_last) -> None:
        self._fn = fn
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.calls = self.running = self.most = 0

    async def __call__(self, messages: list[Message]) -> Any:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.asked.set()
        try:
            await self.go_on.wait()
            answer = self._fn(messages)
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            self.running -= 1


class Failing:
    """A compaction function that counts its calls and fails as long as it is told to."""

    def __init__(self, answer: Callable[[list[Message]], Any] | None = None) -> None:
        self.fails = True
        self.calls = 0
        self._answer = answer

    def __call__(self, messages: list[Message]) -> Any:
        self.calls += 1
        if self.fails and self._answer is not None:
            return self._answer(messages)
        if self.fails:
            raise ConnectionError("the model is away")
        return all_but_the_last(messages)
