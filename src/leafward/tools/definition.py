"""What a tool is: the words a model reads about it, the function behind it, and what may be done with its calls."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leafward.core.errors import ConfigurationError

if TYPE_CHECKING:
    from leafward.tools.runtime_context import RuntimeContext

Execute = Callable[[dict[str, Any]], Awaitable[Any]]
Prepare = Callable[[object, "RuntimeContext"], Callable[[], Any]]
"""Checks what a model sent and returns the call that is ready to run."""
Probe = Callable[[dict[str, Any], str], Any]
"""Takes the arguments of a call and its idempotency key; returns the result if the call took effect, else `None`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call: `await execute(arguments)` returns its answer, as text or as what JSON can hold.

    Raises:
        ConfigurationError: `timeout` is not a number of seconds above 0, or `probe` or `check` is not a function.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    execute: Execute
    checks_arguments: bool = field(default=False, repr=False, compare=False)
    """Whether `execute` itself takes anything a model may send, and answers its mistakes in words."""
    read_only: bool = field(default=False, kw_only=True)
    """Whether it changes nothing. A call that was cut off may run again."""
    retry_safe: bool = field(default=False, kw_only=True)
    """Whether a second run with the same idempotency key changes nothing more, so that a cut-off call may run again."""
    probe: Probe | None = field(default=None, kw_only=True)
    """Finds out whether a call that was cut off took effect."""
    timeout: float | None = field(default=None, kw_only=True)
    """The seconds that a call may take; `None` sets no limit."""
    group: str | None = field(default=None, kw_only=True)
    """The group of tools it belongs to; without one it is always offered."""
    external: bool = field(default=False, kw_only=True)
    """Whether another program does the work: a call waits until its result is sent."""
    check: Callable[..., Any] | None = field(default=None, kw_only=True)
    """Decides whether a call is allowed, denied or asked about, beside the rules of the session."""
    prepare: Prepare | None = field(default=None, kw_only=True, repr=False, compare=False)
    """How `leafward.tools.run` makes a call of what a model sent; by default `execute` on checked arguments."""

    def __post_init__(self) -> None:
        timeout: object = self.timeout
        if timeout is not None and not _is_seconds(timeout):
            raise ConfigurationError(f"the timeout of the tool {self.name!r} is {timeout!r}: give seconds above 0")
        for option in ("probe", "check"):
            function = getattr(self, option)
            if function is not None and not callable(function):
                raise ConfigurationError(f"the {option} of the tool {self.name!r} is {function!r}: give a function")


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
