"""Runs a tool for a model: whatever the tool does, there is an outcome to store."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from leafward.core.callables import as_failure, cancelled_itself, is_async
from leafward.core.errors import ConfigurationError
from leafward.core.parts import Part
from leafward.core.tool_output import are_blocks, output_text
from leafward.tools.answers import STORAGE_FAILURES, TimedOut, describe_failure, error_answer
from leafward.tools.arguments import Mistake, checked, parsed
from leafward.tools.definition import Tool
from leafward.tools.outputs import parts_of_output, text_of_parts, text_part
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.threads import Check, always, tool_threads

State = Literal["success", "error", "interrupted", "denied", "running"]
"""How a call stands, in AgentScope's words."""

AWAITING = "[Awaiting external execution]"
"""What stands in place of the result of an external tool until that is sent; AgentScope's text."""
TIMEOUT_GRACE_S = 1.0
"""How long a tool may take to end once it is cancelled at its timeout."""
CHECK_S = 30.0
"""How long the check of a tool without a timeout may take."""
CANCEL_GRACE_S = 20.0
"""How long it may take where its caller was cancelled: longer than a write to a store, which is finished first."""

_log = logging.getLogger("leafward.tools")
_abandoned: set[asyncio.Task[Any]] = set()
"""Tasks that ignored their cancellation, kept from the garbage collector."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call: the parts of its result, and its state."""

    parts: list[Part]
    state: State = "success"
    error: BaseException | None = field(default=None, compare=False)
    """What the tool raised; `None` also for a mistake of the model."""
    verbatim: bool = field(default=False, repr=False, compare=False)
    """Whether the tool itself returned a list of parts."""

    @property
    def text(self) -> str:
        """The result as text: a text as it is, anything else as JSON."""
        return output_text(self.parts) if self.verbatim else text_of_parts(self.parts)


def failed(text: str, error: BaseException | None = None) -> Outcome:
    """Return the outcome of a call that failed."""
    return Outcome([text_part(error_answer(text))], "error", error)


async def run(tool: Tool, arguments: object = None, ctx: RuntimeContext | None = None) -> Outcome:
    """Run a tool with what a model sent, and return what became of it.

    A mistake of the model and an exception of the tool are outcomes with the state `error`, whose text says what to do;
    the exception is logged as well. An external tool is not run: its outcome has the state `running`. A tool that
    exceeds its timeout is cancelled; a plain function then goes on without a caller.

    Raises:
        StoreError, LeaseLost: the store failed or the lease was lost. The outcome could not be stored either.
    """
    outcome = await attempt(tool, arguments, ctx)
    log_failure(tool.name, outcome)
    return outcome


def log_failure(name: str, outcome: Outcome) -> None:
    """Log what a tool raised, which otherwise only a model would get to know."""
    if outcome.error is not None:
        _log.warning("tool %r failed; the model is answered with the error", name, exc_info=outcome.error)


async def attempt(tool: Tool, arguments: object, ctx: RuntimeContext | None, *, check: Check = always) -> Outcome:
    """Do what `run` does, and log nothing; what `check` raises keeps the tool from being started."""
    try:
        call = _prepare(tool, arguments, RuntimeContext.empty() if ctx is None else ctx)
        if tool.external:
            return Outcome([text_part(AWAITING)], "running")
        return _succeeded(await _perform(tool, call, check))
    except STORAGE_FAILURES:
        raise
    except Mistake as mistake:
        return failed(str(mistake))
    except Exception as error:  # noqa: BLE001  (answered, and returned to the caller)
        return failed(describe_failure(tool.name, error), error)


def mistake_in(tool: Tool, arguments: object) -> str | None:
    """Return what is wrong with the arguments of a call; `None` if the tool can be called with them."""
    try:
        _prepare(tool, arguments, RuntimeContext.empty())
    except Mistake as mistake:
        return str(mistake)
    return None


async def ask_probe(tool: Tool, arguments: object, key: str) -> Outcome | None:
    """Return the outcome of a call that was cut off if its tool's `probe` says that it took effect, else `None`.

    `key` is the idempotency key of that call.

    Raises:
        ConfigurationError: the tool has no probe.
        Exception: what the probe raised, or `TimeoutError`: it is not known whether the call took effect.
    """
    if tool.probe is None:
        raise ConfigurationError(f"the tool {tool.name!r} has no probe")
    try:
        given = parsed(arguments)
    except Mistake:
        # Such arguments are refused before a tool is run.
        return None
    found = await _perform(tool, partial(tool.probe, given, key))
    return None if found is None else _succeeded(found)


async def ask_check(tool: Tool, arguments: object, ctx: RuntimeContext) -> Any:
    """Return what a tool's `check` says of a call; `None` also where the arguments cannot be read.

    Raises:
        ConfigurationError: the tool has no check.
        Exception: what the check raised, or `TimeoutError`.
    """
    if tool.check is None:
        raise ConfigurationError(f"the tool {tool.name!r} has no check")
    try:
        given = parsed(arguments)
    except Mistake:
        # Such arguments are refused before a tool is run.
        return None
    return await _perform(tool, partial(tool.check, given, ctx), timeout=tool.timeout or CHECK_S)


def _prepare(tool: Tool, arguments: object, ctx: RuntimeContext) -> Callable[[], Any]:
    if tool.prepare is not None:
        return tool.prepare(arguments, ctx)
    given: Any = arguments if tool.checks_arguments else checked(tool.input_schema, arguments)
    return partial(tool.execute, given)


def _succeeded(result: object) -> Outcome:
    return Outcome(parts_of_output(result), verbatim=are_blocks(result))


async def _perform(tool: Tool, call: Callable[[], Any], check: Check = always, *, timeout: float | None = None) -> Any:
    timeout = timeout or tool.timeout
    has_started = False

    def start() -> None:
        nonlocal has_started
        check()
        has_started = True

    # In a task of its own, a tool can neither cancel its caller nor keep it from being cancelled.
    task = asyncio.create_task(invoke(call, start), name=f"tool {tool.name}")
    try:
        await asyncio.wait((task,), timeout=timeout)
    except asyncio.CancelledError:
        await _stop(tool, task, CANCEL_GRACE_S)
        raise
    if not task.done():
        await _stop(tool, task, TIMEOUT_GRACE_S)
        if not has_started:
            # It has waited for one of the threads.
            raise TimedOut(f"the tool {tool.name!r} was not started within {timeout:g} s: call it again.")
        if not task.done() or task.cancelled() or task.exception() is not None:
            raise TimedOut(
                f"the tool {tool.name!r} did not end within {timeout:g} s. It may have taken effect: "
                "find out before you call it again, or go on without it."
            )
    if task.cancelled():
        raise cancelled_itself(call, asyncio.CancelledError())
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise as_failure(call, error) from error
    return task.result()


async def invoke(call: Callable[[], Any], check: Check = always) -> Any:
    """Make a call that is ready to run: an async one here, a plain one on a thread; `check` comes right before."""
    try:
        if is_async(call):
            check()
            return await call()
        result = await tool_threads().call(call, check)
        return await result if inspect.isawaitable(result) else result
    except (StopAsyncIteration, StopIteration, SystemExit) as error:
        raise as_failure(call, error) from error


async def _stop(tool: Tool, task: asyncio.Task[Any], grace: float) -> None:
    """Cancel a task and wait until it ends, but not for longer than `grace` seconds."""
    _abandoned.add(task)
    task.add_done_callback(_ended)
    task.cancel()
    await asyncio.wait((task,), timeout=grace)
    if not task.done():
        _log.warning("tool %r was cancelled %g s ago and still runs; it goes on without a caller", tool.name, grace)


def _ended(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # The caller may be gone.
