"""Sessions of sub-agents: each is a child of the session whose tool called, and is interrupted with its turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from leafward.core.calls import Call
from leafward.core.errors import SessionExists
from leafward.core.ids import Scope
from leafward.engine.agent_store import Place
from leafward.engine.events import AgentEvent
from leafward.engine.turn_control import TurnControl
from leafward.engine.turn_queue import turns_around
from leafward.stores.registry import Origin
from leafward.tools.runtime_context import RuntimeContext, child_name

_call: ContextVar[Call | None] = ContextVar("leafward call", default=None)
"""The call that the running tool answers."""


async def begin_child(ctx: RuntimeContext, place: Place, scope: Scope) -> None:
    """Have the store know whose child a session is, if its context was made by `child`; a later call changes nothing.

    A custom store of states has no list of sessions.
    """
    if ctx.parent_session_id is not None and place.store is not None:
        with suppress(SessionExists):
            await place.store.registry.create(scope, Origin(child_name(ctx), parent_session_id=ctx.parent_session_id))


def enter_call(call: Call) -> None:
    """Take note, in the context of a tool, which call it answers."""
    _call.set(call)


def _exposed(ctx: RuntimeContext) -> AgentEvent:
    """Return the event of a sub-agent that a tool has called."""
    call = _call.get()
    data = {"name": child_name(ctx), "sessionId": ctx.session_id}
    if call is None:
        return AgentEvent("SUBAGENT_EXPOSED", data=data)
    return AgentEvent("SUBAGENT_EXPOSED", call.message.id, call_id=call.id, name=call.name, data=data)


@contextmanager
def interrupted_with_parent(ctx: RuntimeContext, control: TurnControl) -> Generator[None]:
    """Stop a call with the turn that its tool belongs to, for the length of the block, if it is that of a child.

    A call that still waits for its turn waits no longer.
    """
    around = turns_around() if ctx.parent_session_id is not None else []
    parent = around[-1] if around else None
    if parent is None:
        yield
        return
    parent.children.add(control)
    parent.expose(_exposed(ctx))
    if parent.stop == "interrupt":
        control.interrupt()
    try:
        yield
    finally:
        parent.children.discard(control)
