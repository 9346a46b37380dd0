"""Tools made of functions: the schema comes from the signature, the words from the docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from leafward.core.callables import name_of, without_partial
from leafward.core.errors import ConfigurationError
from leafward.tools.definition import Probe, Tool
from leafward.tools.docstrings import read_docstring
from leafward.tools.parameters import Parameters
from leafward.tools.runner import invoke
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.signatures import read_parameters

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
"""What every provider takes as the name of a tool."""


@dataclass(frozen=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool that is still the function it was made of: calling it calls the function."""

    function: Callable[P, R] = field(kw_only=True, repr=False)
    parameters: Parameters = field(kw_only=True, repr=False)
    is_method: bool = field(kw_only=True, repr=False)
    """Whether the function is written in a class, and not bound to an object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = without_partial(self.function)
        # As functools.wraps does, for help() and inspect.signature(); the fields of a tool are frozen.
        self.__dict__.update(
            __name__=self.name,
            __qualname__=name_of(self.function),
            __doc__=plain.__doc__,
            __wrapped__=self.function,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        """Return the tool of an object, as a method is returned."""
        bind = getattr(self.function, "__get__", None)
        if instance is None or bind is None:
            return self
        bound = bind(instance, owner)
        # A method whose first parameter has another name than `self` was read with it.
        parameters = self.parameters if self.is_method else _made(bound, self.name, None, {}).parameters
        return replace(cast("FunctionTool[..., R]", self), **_calling(bound, parameters), is_method=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionTool) and self._flags() == cast("FunctionTool[..., Any]", other)._flags()

    def __hash__(self) -> int:
        return hash((self.name, self.function))

    def _flags(self) -> tuple[object, ...]:
        identity = (self.name, self.description, self.function, self.read_only, self.retry_safe, self.probe)
        return (*identity, self.timeout, self.group, self.external, self.check)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    read_only: bool = False,
    retry_safe: bool = False,
    probe: Probe | None = None,
    group: str | None = None,
    external: bool = False,
    check: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    read_only: bool = False,
    retry_safe: bool = False,
    probe: Probe | None = None,
    group: str | None = None,
    external: bool = False,
    check: Callable[..., Any] | None = None,
) -> Any:
    """Make a tool of a function or a method, plain or async; it can still be called as before.

    The model sees the parameters with their types, defaults and descriptions (`Annotated[int, "How many."]`, or the
    docstring), and the text of the docstring. A parameter that is annotated `RuntimeContext` gets the context of the
    call; no model sees or sets it. A plain function runs on a thread.

    - `name`, `description`: what the model sees instead of the function's name and docstring.
    - `timeout`: the seconds a call may take.
    - `read_only`: the tool changes nothing. `retry_safe`: it may run twice with one idempotency key.
    - `probe(arguments, key)`: returns the result if a call that was cut off took effect, else `None`.
    - `group`: the group it belongs to. `external`: another program does the work and sends the result.
    - `check`: decides whether a call is allowed, denied or asked about, beside the rules of the session.

    Raises:
        ConfigurationError: a parameter has no form in JSON, or the name is one that providers refuse.
    """
    flags: dict[str, Any] = {
        "timeout": timeout,
        "read_only": read_only,
        "retry_safe": retry_safe,
        "probe": probe,
        "group": group,
        "external": external,
        "check": check,
    }

    def make(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            wrapper = cast("type[staticmethod[..., Any]]", type(cast(object, function)))
            return wrapper(make(cast("staticmethod[..., Any]", function).__func__))
        return _made(function, name, description, flags)

    return make if function is None else make(function)


def as_tool(function: Tool | Callable[..., Any]) -> Tool:
    """Return a tool as it is, and any other function as a tool.

    Raises:
        ConfigurationError: it is not a function, has a parameter without a form in JSON, or is a method of no object.
    """
    if isinstance(function, MethodType) and isinstance(function.__func__, FunctionTool):
        # So a tool that is a class method arrives from Python 3.13 on.
        function = cast("FunctionTool[..., Any]", function.__func__).__get__(function.__self__)
    found: Tool = function if isinstance(function, Tool) else _made(function, None, None, {})
    if getattr(found, "is_method", False):
        raise ConfigurationError(f"the tool {found.name!r} is a method: give that of an object, not that of the class")
    return found


def _made(
    function: Callable[..., Any], name: str | None, description: str | None, flags: dict[str, Any]
) -> FunctionTool[..., Any]:
    given: object = function
    if isinstance(given, Tool):
        raise ConfigurationError(f"{given.name!r} is a tool already")
    if not callable(given):
        raise ConfigurationError(f"{given!r} cannot be a tool: give a function")
    plain = without_partial(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(f"{name_of(function)} cannot be a tool: it yields; return one result, such as a list")
    called = name or getattr(plain, "__name__", type(plain).__name__)
    if not _NAME.fullmatch(called):
        raise ConfigurationError(
            f"{called!r} cannot be the name of a tool: use 1 to 64 letters of A to Z, digits, '_' and '-', "
            "as in @tool(name='search_web')"
        )
    text, described = read_docstring(inspect.getdoc(plain) or "")
    parameters, is_method = read_parameters(function, described)
    return FunctionTool(
        name=called,
        description=description or text or called,
        **_calling(function, parameters),
        **flags,
        is_method=is_method,
    )


def _calling(function: Callable[..., Any], parameters: Parameters) -> dict[str, Any]:
    """Return the fields of a tool that say what its calls do."""

    async def execute(arguments: dict[str, Any]) -> Any:
        return await invoke(parameters.bind(function, arguments, RuntimeContext.empty()))

    return {
        "input_schema": parameters.schema,
        "execute": execute,
        "prepare": partial(parameters.bind, function),
        "function": function,
        "parameters": parameters,
    }
