"""The hooks of one call: who is called at an event, what becomes of its answer, and how its wait is ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar, cast

from leafward.core.errors import ConfigurationError
from leafward.core.message import Message
from leafward.engine.hooks import ErrorEvent, Hook, HookEvent, PostCallEvent
from leafward.engine.reply_reason import REASON
from leafward.engine.turn_control import TurnControl, TurnStopped
from leafward.tools.runtime_context import RuntimeContext

E = TypeVar("E", bound=HookEvent)

END_S = 2.0
"""How long a hook may take that runs because its call ends: two such hooks do not outlast a shutdown."""

_log = logging.getLogger("leafward.engine")


def check_hooks(hooks: Iterable[object]) -> list[Hook]:
    """Return the hooks as a list.

    Raises:
        ConfigurationError: one of them is not an object of a subclass of `Hook`.
    """
    if not isinstance(hooks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"hooks are given as a list, not as {hooks!r}")
    found = list(hooks)
    for hook in found:
        if not isinstance(hook, Hook):
            raise ConfigurationError(f"hooks are objects of subclasses of Hook, not {hook!r}")
    return cast(list[Hook], found)


class CallHooks:
    """The hooks of an agent, as one call has them."""

    def __init__(self, hooks: Iterable[Hook], ctx: RuntimeContext, control: TurnControl) -> None:
        self._hooks = sorted(check_hooks(hooks), key=lambda hook: hook.priority)
        self._ctx = ctx
        self._control = control
        self._listening: dict[type[HookEvent], list[Hook]] = {}
        self._reply: tuple[str, str | None] | None = None
        """The id of the reply that was reported last, and why it ended its turn."""
        self._has_failed = False
        """Whether an error was reported."""

    def listening(self, kind: type[HookEvent]) -> list[Hook]:
        """Return the hooks that are called for a kind of event, in their order."""
        found = self._listening.get(kind)
        if found is None:
            found = [hook for hook in self._hooks if hook.events is None or kind in hook.events]
            self._listening[kind] = found
        return found

    async def tell(self, event: E) -> E:
        """Call the hooks in the task of the turn, and return the event as they have left it.

        Raises:
            TurnStopped: the turn is to stop.
            Exception: what a hook raised.
        """
        # Around each piece of a stream, so kept to what is needed.
        hooks = self.listening(type(event))
        if not hooks:
            return event
        control, ctx = self._control, self._ctx
        control.begin_wait()
        try:
            for hook in hooks:
                found = hook.on_event(event, ctx)
                if found is not None and not isinstance(found, HookEvent):
                    found = await _awaitable(hook, found)
                if found is not None and found is not event:
                    event = _changed(hook, event, found)
        except BaseException as error:
            if control.was_ended() and isinstance(error, asyncio.CancelledError):
                raise TurnStopped from None
            raise
        control.end_wait()
        return event

    async def tell_in_tool(self, event: E) -> E:
        """Call the hooks in the task of a tool, and return the event as they have left it.

        Raises:
            TurnStopped: the turn was interrupted.
            Exception: what a hook raised.
        """
        hooks = self.listening(type(event))
        if not hooks:
            return event
        control = self._control
        wait = asyncio.timeout(0 if control.stop == "interrupt" else None)
        try:
            async with wait:
                control.tool_waits.add(wait)
                for hook in hooks:
                    found = await _answer(hook, event, self._ctx)
                    if found is not None and found is not event:
                        event = _changed(hook, event, found)
                return event
        except TimeoutError:
            if wait.expired():
                raise TurnStopped from None
            raise
        finally:
            control.tool_waits.discard(wait)

    async def tell_reply(self, message: Message, *, is_ending: bool = False) -> None:
        """Report that the call is about to return a reply, once for each that it may be; an error of a hook is logged.

        The turn may go on after all, with a message that joins meanwhile, or be interrupted.
        """
        named = message.id, (message.metadata or {}).get(REASON)
        if named != self._reply:
            self._reply = named
            await self._tell_end(PostCallEvent(message), is_ending)

    async def tell_result(self, message: Message) -> None:
        """Report what the call returns, unless that was done before it was stored."""
        if self._reply is None:
            await self.tell_reply(message)

    async def tell_error(self, error: BaseException) -> None:
        """Report once that the call raises; an error of a hook is logged, and masks nothing."""
        if not self._has_failed:
            self._has_failed = True
            await self._tell_end(ErrorEvent(error), True)

    async def _tell_end(self, event: HookEvent, is_ending: bool) -> None:
        kind = type(event)
        for hook in self.listening(kind):
            try:
                await self._tell_one(hook, event, is_ending)
            except TurnStopped:
                _log.warning("%s was cut off in %s: the turn stops", type(hook).__name__, kind.__name__)
            except Exception:  # noqa: BLE001  (the call has its end; an error of a hook masks nothing)
                _log.error("%s failed in %s", type(hook).__name__, kind.__name__, exc_info=True)

    async def _tell_one(self, hook: Hook, event: HookEvent, is_ending: bool) -> None:
        if is_ending or self._control.stop is not None:
            async with asyncio.timeout(END_S):
                found = await _answer(hook, event, self._ctx)
        else:
            with self._control.endable():
                found = await _answer(hook, event, self._ctx)
        if found is not None and found is not event:
            _changed(hook, event, found)


async def _answer(hook: Hook, event: HookEvent, ctx: RuntimeContext) -> Any:
    found = hook.on_event(event, ctx)
    return found if found is None or isinstance(found, HookEvent) else await _awaitable(hook, found)


def _awaitable(hook: Hook, found: Any) -> Awaitable[Any]:
    if not hasattr(found, "__await__"):
        raise _refusal(hook, found)
    return found


def _changed(hook: Hook, event: E, found: object) -> E:
    """Return the event with what a hook may change of it."""
    if type(found) is not type(event):
        raise _refusal(hook, found)
    field = event.changes
    if not field:
        raise ConfigurationError(
            f"{type(hook).__name__} returned a changed {type(event).__name__}: nothing of it can be changed"
        )
    return event.replace(**{field: getattr(found, field)})


def _refusal(hook: Hook, found: object) -> ConfigurationError:
    return ConfigurationError(
        f"{type(hook).__name__}.on_event returned {found!r}: return None, or a changed event, event.replace(…)"
    )
