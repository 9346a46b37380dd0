"""Tools by name: what a model is offered, in the shape of each provider, and a call by the name that it chose."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, cast

from leafward.core.errors import ConfigurationError
from leafward.tools.answers import describe_missing
from leafward.tools.definition import Tool
from leafward.tools.function_tools import as_tool
from leafward.tools.runner import Outcome, attempt, failed, log_failure
from leafward.tools.runtime_context import RuntimeContext

ToolLike = Tool | Callable[..., Any]
"""A tool, or a function to make one of."""


class ToolSet(Mapping[str, Tool]):
    """Tools by name; two sets merge with `|`, the right one's tools winning. A function is made a tool.

    Raises:
        ConfigurationError: these are not tools, a function cannot be one, or two tools have one name.
    """

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in map(as_tool, tools_in(tools)):
            self._add(tool)

    def _add(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise ConfigurationError(f"two tools are named {tool.name!r}: give one of them another name")
        self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __await__(self) -> Generator[Any, Any, ToolSet]:
        """Give itself, so that `await manager.tools()` reads like `await session.tools()`."""
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._tools)})"

    def __or__(self, other: Mapping[str, Tool] | Iterable[ToolLike]) -> ToolSet:
        return ToolSet({**self._tools, **ToolSet(tools_in(other))}.values())

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, raise_errors: bool = False
    ) -> str:
        """Run a tool and return its answer; what is not text is returned as JSON text.

        `arguments` may be the JSON text that a model wrote. A model's mistake is answered with a sentence that starts
        with `Error:` and says what to do. So is an exception that a tool raises, which is logged as well; with
        `raise_errors` it is raised instead.

        Raises:
            StoreError, LeaseLost: the store failed or the lease was lost. These are always raised: the session could
                not store the answer either.
        """
        outcome = await self._attempt(name, arguments, None)
        if raise_errors and outcome.error is not None:
            raise outcome.error
        log_failure(name, outcome)
        return outcome.text

    async def run(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, ctx: RuntimeContext | None = None
    ) -> Outcome:
        """Run a tool and return the parts of its result with its state, which is `error` where `call` answers `Error:`.

        Raises:
            StoreError, LeaseLost: the store failed or the lease was lost.
        """
        outcome = await self._attempt(name, arguments, ctx)
        log_failure(name, outcome)
        return outcome

    async def _attempt(self, name: str, arguments: object, ctx: RuntimeContext | None) -> Outcome:
        tool = self._tools.get(name)
        if tool is None:
            return failed(describe_missing(name, self._tools))
        return await attempt(tool, arguments, ctx)

    def to_openai(self) -> list[Any]:
        """Return the tools as OpenAI's chat API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": deepcopy(tool.input_schema),
                },
            }
            for tool in self._tools.values()
        ]

    def to_openai_responses(self) -> list[Any]:
        """Return the tools as OpenAI's Responses API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": deepcopy(tool.input_schema),
                # Strict is the default there, and takes no schema with an argument that may be left out.
                "strict": False,
            }
            for tool in self._tools.values()
        ]

    def to_anthropic(self) -> list[Any]:
        """Return the tools as Anthropic's messages API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": deepcopy(tool.input_schema)}
            for tool in self._tools.values()
        ]


def tools_in(tools: Mapping[str, Tool] | Iterable[ToolLike]) -> Iterable[ToolLike]:
    """Return the tools of a set, or of any other collection.

    Raises:
        ConfigurationError: it is not a collection.
    """
    if isinstance(tools, Mapping):
        return cast(Mapping[str, Tool], tools).values()
    if not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"tools are a list of functions and tools, or a leafward.Toolkit, not {tools!r}")
    return tools
