"""Hooks: objects that are called at each event of a call, by their priorities; the events are AgentScope's."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.middleware import ToolRequest
from leafward.engine.models.model import ModelRequest
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext


class HookEvent(Struct, frozen=True):
    """Something that happens in a call; the field that a hook may change is named by `changes`."""

    changes: ClassVar[str] = ""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields."""
        return replace(self, **changes)


class PreCallEvent(HookEvent, frozen=True):
    """A call begins: its state is loaded, its input is not taken yet. A hook may change the input."""

    changes: ClassVar[str] = "messages"
    messages: Sequence[Message]


class PreReasoningEvent(HookEvent, frozen=True):
    """The model is about to be asked. A hook may change the request, of which nothing is stored."""

    changes: ClassVar[str] = "request"
    request: ModelRequest


class ReasoningChunkEvent(HookEvent, frozen=True, gc=False):
    """The model has sent a piece, which `event` shows."""

    event: AgentEvent


class PostReasoningEvent(HookEvent, frozen=True):
    """The model has answered. A hook may change the reply, before it is stored and its calls are looked at."""

    changes: ClassVar[str] = "message"
    message: Message


class PreActingEvent(HookEvent, frozen=True):
    """A tool is about to run. A hook may change the arguments."""

    changes: ClassVar[str] = "request"
    request: ToolRequest


class ActingChunkEvent(HookEvent, frozen=True):
    """A tool has sent a piece of its result. The whole text comes as one piece when the tool has ended."""

    request: ToolRequest
    text: str


class PostActingEvent(HookEvent, frozen=True):
    """A tool has ended. A hook may change what became of the call, before that is stored."""

    changes: ClassVar[str] = "outcome"
    request: ToolRequest
    outcome: Outcome


class PreSummaryEvent(HookEvent, frozen=True):
    """All steps are used up, and the model is about to be asked to sum up. A hook may change the request."""

    changes: ClassVar[str] = "request"
    request: ModelRequest


class SummaryChunkEvent(HookEvent, frozen=True, gc=False):
    """The model has sent a piece of its last words, which `event` shows."""

    event: AgentEvent


class PostSummaryEvent(HookEvent, frozen=True):
    """The model has summed up. A hook may change the reply, before it is stored."""

    changes: ClassVar[str] = "message"
    message: Message


class PostCallEvent(HookEvent, frozen=True):
    """The call is about to return `message`; what hooks change in `ctx.agent_state` is stored with its end.

    The reply may also ask the user, or be that of an interrupted turn: its metadata has the reason.
    """

    message: Message


class ErrorEvent(HookEvent, frozen=True):
    """The call is about to raise `error`; what hooks change in `ctx.agent_state` is stored with its end.

    The error of a cancelled call is `asyncio.CancelledError`, that of one that is paused `AgentShuttingDown`.
    """

    error: BaseException


class Hook:
    """Something that is called at the events of each call: subclass it, and override `on_event`.

    Hooks are called in the order of their priorities, the lowest first, and those with equal ones in the order of
    `agent.hooks`. Each gets the event as the one before has left it. One object serves all calls at once.
    """

    priority: int = 100
    events: Collection[type[HookEvent]] | None = None
    """For which events it is called; `None` for all. A hook that does not want pieces costs them nothing."""

    def on_event(self, event: HookEvent, ctx: RuntimeContext) -> Awaitable[HookEvent | None] | HookEvent | None:
        """Look at an event; return `None`, or a changed copy: `event.replace(outcome=…)`.

        The method may be async. What it raises ends the call, but at the end of a call, in `PostCallEvent` and
        `ErrorEvent`, it is logged. An interrupt ends its waits. So does a shutdown, except in the events of a tool,
        where the hook counts as part of the tool; and a hook that runs because its call ends has 2 seconds.
        """
        return None
