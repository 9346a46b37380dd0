"""Tools of an agent that change the state of the session they are called in, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from leafward.tools.answers import error_answer
from leafward.tools.arguments import checked, object_schema
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext

Work = Callable[[RuntimeContext, dict[str, Any]], Awaitable[str]]
"""Changes the state of a call, and returns what the model is answered; a `Mistake` changes nothing."""


def state_tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    work: Work,
    *,
    required: tuple[str, ...] = (),
    read_only: bool = True,
) -> Tool:
    """Return a tool that rules may deny or ask about, and that runs where they say nothing.

    A session's notes are not what a user protects by a mode, so it counts as one that changes nothing. A call that was
    cut off runs again: a second time, it makes the same change.
    """
    schema = object_schema(dict(properties), required)

    async def execute(_: dict[str, Any]) -> str:
        return error_answer(f"{name} runs in a call of an agent only.")

    def prepare(arguments: object, ctx: RuntimeContext) -> Callable[[], Awaitable[str]]:
        given = checked(schema, arguments)
        return partial(execute, given) if ctx.agent_state is None else partial(work, ctx, given)

    return Tool(
        name,
        description,
        schema,
        execute,
        checks_arguments=True,
        read_only=read_only,
        retry_safe=True,
        check=_runs,
        prepare=prepare,
    )


async def _runs(_: object, __: object) -> str:
    return "allow"
