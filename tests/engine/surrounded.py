"""An agent inside of middlewares, and what tests ask about it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from leafward import (
    Message,
    RuntimeContext,
    tool,
)
from leafward.engine import (
    CallNext,
    Middleware,
    ReActAgent,
)
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = call("add", {"a": 1, "b": 2}, id="c1")


def agent(store: Store, script: Any, *middlewares: Middleware, **options: Any) -> ReActAgent:
    return ReActAgent(
        "cook", ScriptedModel(script), store=store, middlewares=middlewares, **{"tools": [add], **options}
    )


def reason(reply: Message) -> str | None:
    return (reply.metadata or {}).get("agentscope_generate_reason")


async def texts(of: ReActAgent) -> list[str]:
    return [message.text for message in await of.session("alice", "s1").get_raw_history()]


async def goes_on(of: ReActAgent, store: Store) -> None:
    """Check that the session takes another call, of an agent without middleware."""
    reply = await ReActAgent("cook", ScriptedModel(["Still here."]), store=store, tools=[add]).call("And?", ALICE)
    assert reply.text == "Still here."


class Noted(Middleware):
    """Passes everything on at all points, and notes what it was called for."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    async def _around(self, point: str, request: Any, call_next: CallNext[Any, Any]) -> AsyncGenerator[Any]:
        self.notes.append(f"{self.name} {point} in")
        async for event in call_next(request):
            yield event
        self.notes.append(f"{self.name} {point} out")

    def on_agent(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("agent", request, call_next)

    def on_reasoning(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("reasoning", request, call_next)

    def on_model_call(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("model", request, call_next)

    def on_acting(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("acting", request, call_next)

    def on_system_prompt(self, ctx: Any, prompt: str) -> str:
        return f"{prompt} {self.name}"


class Agent(Middleware):
    """A middleware whose `on_agent` is a function."""

    def __init__(self, around: Any) -> None:
        self.on_agent = around


class Reasoning(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_reasoning = around


class Model(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_model_call = around


class Acting(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_acting = around
