"""What can be said of a function that a user handed in, without calling it, and what its odd exceptions become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

ENDINGS = (StopIteration, StopAsyncIteration, SystemExit, GeneratorExit)
"""What would end a coroutine or the whole event loop instead of being raised to the caller."""


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling `function` gives something to await."""
    plain = without_partial(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None))  # noqa: B004


def without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that `functools.partial` was given, however often; any other as it is."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def name_of(function: Callable[..., Any]) -> str:
    """Return what a function is called in an error."""
    return getattr(without_partial(function), "__qualname__", None) or repr(function)


def as_failure(function: Callable[..., Any], error: BaseException) -> RuntimeError:
    """Return an error that can be raised to the caller, in place of one that would end more than the call."""
    failure = RuntimeError(f"{name_of(function)} raised {error!r}")
    failure.__cause__ = error
    return failure


def words_of(error: BaseException) -> str:
    """Return the text of an error that a user's function raised; empty if it has none, or cannot say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (the error itself is what counts)
        return ""


def cancelled_itself(function: Callable[..., Any], error: BaseException) -> RuntimeError:
    """Return the error for a function that raised `CancelledError` although its caller was not cancelled."""
    failure = RuntimeError(f"{name_of(function)} raised CancelledError although its caller was not cancelled")
    failure.__cause__ = error
    return failure
