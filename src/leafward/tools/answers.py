"""What a model is answered: how much of it, what an error says, and tools that answer its mistakes in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from leafward.core.callables import words_of
from leafward.core.errors import LeafwardError, LeaseLost, StoreError
from leafward.core.transcript import shortened
from leafward.tools.arguments import Mistake, checked
from leafward.tools.definition import Probe, Tool

Work = Callable[[dict[str, Any]], Awaitable[str]]

ANSWER_CHARACTERS = 20_000
"""How much text a tool of ours answers with, about; a skill is given whole."""
FAILURE_CHARACTERS = 2_000
"""How much of the text of an error that a tool raised a model is given."""
SEPARATOR = "\n\n---\n\n"
"""What stands between messages, and between results of a search."""

STORAGE_FAILURES = (StoreError, LeaseLost)
"""What is raised also where a tool's errors are answered: the session could not store the answer either."""


class TimedOut(TimeoutError):
    """A tool did not end within its timeout. The text is for the model."""


def count_fitting(texts: Iterable[str]) -> int:
    """Return how many of the texts, from the first on, fit into one answer."""
    count, size = 0, 0
    for text in texts:
        size += len(text) + len(SEPARATOR)
        if size > ANSWER_CHARACTERS:
            break
        count += 1
    return count


def error_answer(text: str) -> str:
    """Return what a model is answered instead of a result."""
    return f"Error: {shortened(text, ANSWER_CHARACTERS)}"


def describe_failure(name: str, error: BaseException) -> str:
    """Say to a model what a tool raised, and what to do."""
    if isinstance(error, (LeafwardError, TimedOut)):
        return str(error)
    text = shortened(" ".join(words_of(error).split()), FAILURE_CHARACTERS)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"the tool {name!r} failed ({what}). Try it with other arguments, or go on without it."


def describe_missing(name: str, offered: Iterable[str], *, why: str = "there is no tool") -> str:
    """Say to a model that it cannot call a tool of this name, and which ones it can."""
    return f"{why} {name!r}. Call one of: {', '.join(offered) or 'none'}."


def make_tool(
    name: str,
    description: str,
    input_schema: dict[str, Any],
    work: Work,
    *,
    chosen: Sequence[str] = (),
    read_only: bool = False,
    retry_safe: bool = False,
    probe: Probe | None = None,
) -> Tool:
    """Return a tool of ours, whose `execute` checks its arguments and answers mistakes in words.

    Of the arguments in `chosen`, `work` itself checks whether they are among those offered. What it refuses with a
    `LeafwardError` is a mistake of the model.
    """
    properties: dict[str, dict[str, Any]] = dict(input_schema["properties"])
    for argument in chosen:
        properties[argument] = {key: value for key, value in properties[argument].items() if key != "enum"}
    schema = {**input_schema, "properties": properties}

    async def perform(arguments: dict[str, Any]) -> str:
        try:
            return await work(arguments)
        except (*STORAGE_FAILURES, Mistake):
            raise
        except LeafwardError as error:
            raise Mistake(str(error)) from error

    async def execute(arguments: dict[str, Any]) -> str:
        try:
            return await perform(checked(schema, arguments))
        except Mistake as mistake:
            return error_answer(str(mistake))

    def prepare(arguments: object, _: object) -> Callable[[], Awaitable[str]]:
        return partial(perform, checked(schema, arguments))

    return Tool(
        name,
        description,
        input_schema,
        execute,
        checks_arguments=True,
        prepare=prepare,
        read_only=read_only,
        retry_safe=retry_safe,
        probe=probe,
    )
