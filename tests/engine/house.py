"""An agent that plans how to repair a house, with a tool that looks and one that builds."""

from __future__ import annotations

from typing import Any

from leafward import AgentState, Message, ReActAgent, tool
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import results


class House:
    """An agent with a tool that looks and one that builds, and what ran."""

    def __init__(self, store: Any, script: Any = (), **options: Any) -> None:
        self.ran: list[str] = []
        self.model = ScriptedModel(script)
        options.setdefault("plan_mode", True)
        self.agent = ReActAgent(
            "builder", self.model, store=store, tools=self._tools(), system_prompt="Build.", **options
        )

    def _tools(self) -> list[Any]:
        @tool(read_only=True)
        async def look() -> str:
            """Look at the house."""
            self.ran.append("look")
            return "It is old."

        @tool
        async def build(what: str) -> str:
            """Build something."""
            self.ran.append(f"build {what}")
            return "built"

        @tool(external=True)
        async def order(what: str) -> str:
            """Have something brought."""
            return what

        return [look, build, order]

    @property
    def prompts(self) -> list[str]:
        return [request.system for request in self.model.requests]

    async def state(self) -> AgentState:
        return await self.agent.get_agent_state("alice", "s1")

    async def results(self) -> dict[str, tuple[str, str]]:
        return results((await self.state()).context)

    async def active(self) -> bool:
        return await self.agent.is_plan_mode_active("alice", "s1")

    async def plan(self) -> str | None:
        return await self.agent.get_plan("alice", "s1")


def enter() -> Any:
    return call("plan_enter", id="enter")


def write(text: Any, id: str = "write") -> Any:
    return call("plan_write", {"content": text}, id=id)


def leave(id: str = "exit") -> Any:
    return call("plan_exit", {"summary": "A roof"}, id=id)


def build(what: str = "a roof", id: str = "build") -> Any:
    return call("build", {"what": what}, id=id)


def look(id: str = "look") -> Any:
    return call("look", id=id)


def reason(message: Message) -> Any:
    return (message.metadata or {}).get("agentscope_generate_reason")


def is_banner(prompt: str) -> bool:
    return prompt.startswith("Build.\n\n# Plan mode\n\nPlan mode is on")


DENIED = (
    "Permission denied by rules: plan mode is on, and {!r} is not read-only. Put what it should do into the plan with"
    " plan_write, and call plan_exit when the plan is complete."
)
HINT = "Build.\n\nThis session has a plan. plan_read returns it."
