"""Plan mode: an agent looks around and writes a plan, and changes nothing else before the user approves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from leafward.core.agent_state import AgentState
from leafward.core.errors import ConfigurationError
from leafward.engine.small_state import PLAN, plan_text
from leafward.engine.state_tools import state_tool
from leafward.tools.arguments import Mistake
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext

PLAN_CHARACTERS = 100_000
"""How long a plan may be."""
PLAN_ENTER, PLAN_WRITE, PLAN_READ, PLAN_EXIT = "plan_enter", "plan_write", "plan_read", "plan_exit"
RUN_WHILE_PLANNING = frozenset(
    {PLAN_ENTER, PLAN_WRITE, PLAN_EXIT, "todo_write"}
    | {"agent_spawn", "agent_send", "agent_list", "task_output", "task_list"}
)
"""The tools that run in plan mode although they are not read-only."""

WriteFile = Callable[[RuntimeContext, str, str], Awaitable[None]]
"""Writes a plan to a file as well: the context of the call, the file's path, and the text."""

_BANNER = f"""\
# Plan mode

Plan mode is on: look around, think, and change nothing. Only read-only tools and those for the plan run; other calls \
are denied. Write the whole plan with {PLAN_WRITE}, and again whenever it changes. When it is complete, call \
{PLAN_EXIT} by itself: the user is asked, and you carry out the plan after the approval."""
_HINT = f"This session has a plan{{place}}. {PLAN_READ} returns it."

_DESCRIPTIONS = {
    PLAN_ENTER: "Switch plan mode on: you look around and write a plan, and change nothing before the user has approved"
    " it. Use it before work that has several steps or is hard to undo.",
    PLAN_WRITE: "Write the plan, in plan mode. It replaces the plan that was written before, so send all of it.",
    PLAN_READ: "Return the plan of this session.",
    PLAN_EXIT: "Ask the user to approve the plan; plan mode ends with the approval. Call it by itself, once the plan is"
    " written.",
}


@dataclass(frozen=True, slots=True)
class PlanMode:
    """How an agent plans: `ReActAgent(plan_mode=PlanMode(…))`; `plan_mode=True` is one without arguments.

    The text of a plan is state of its session, and follows its branches. `write_file(ctx, path, text)` writes it to a
    file as well, before it is stored; `allow` names tools that run in plan mode although they are not read-only.

    Raises:
        ConfigurationError: an argument is of another kind.
    """

    directory: str = "plans"
    """Where the file `PLAN.md` is; AgentScope reads the path in the session's state."""
    write_file: WriteFile | None = None
    allow: Collection[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.directory, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"the directory of plans is a text, not {self.directory!r}")
        if self.write_file is not None and not callable(self.write_file):
            raise ConfigurationError(f"write_file is an async function, not {self.write_file!r}")
        allow: object = self.allow
        if isinstance(allow, str):
            raise ConfigurationError(f"allow is a collection of names of tools, not the text {allow!r}")

    @property
    def file(self) -> str:
        """The path of the plan's file."""
        return f"{self.directory.strip('/')}/PLAN.md".lstrip("/")

    # What a session may do.

    def refusal(self, tool: Tool, state: AgentState) -> str | None:
        """Return why a call of a tool is denied now; `None` if plan mode has nothing against it."""
        if not state.plan_mode_context.plan_active or tool.read_only:
            return None
        if tool.name in RUN_WHILE_PLANNING or tool.name in self.allow:
            return None
        return (
            f"plan mode is on, and {tool.name!r} is not read-only. Put what it should do into the plan with"
            f" {PLAN_WRITE}, and call {PLAN_EXIT} when the plan is complete."
        )

    def always_asks(self, tool_name: str) -> bool:
        """Tell whether the user is asked about each call of a tool, whatever rules and mode allow."""
        return tool_name == PLAN_EXIT

    def prompt(self, ctx: RuntimeContext) -> str:
        """Return what the system prompt says of the plan."""
        state: AgentState = ctx.agent_state
        if state.plan_mode_context.plan_active:
            return _BANNER
        if plan_text(state) is None:
            return ""
        place = f" in {state.plan_mode_context.current_plan_file}" if self.write_file is not None else ""
        return _HINT.format(place=place)

    # Tools.

    def tools(self) -> list[Tool]:
        """Return the tools that an agent plans with."""
        content = {"content": {"type": "string", "description": "The whole plan, as Markdown."}}
        summary = {"summary": {"type": "string", "description": "What the user reads beside the question."}}
        enter, write, read, leave = (_DESCRIPTIONS[name] for name in (PLAN_ENTER, PLAN_WRITE, PLAN_READ, PLAN_EXIT))
        return [
            state_tool(PLAN_ENTER, enter, {}, self._enter),
            state_tool(PLAN_WRITE, write, content, self._write, required=("content",)),
            state_tool(PLAN_READ, read, {}, _read),
            state_tool(PLAN_EXIT, leave, summary, _exit, read_only=False),
        ]

    async def _enter(self, ctx: RuntimeContext, _: dict[str, Any]) -> str:
        enter(ctx.agent_state, self.file)
        return f"Plan mode is on. Look around, then write the plan with {PLAN_WRITE}."

    async def _write(self, ctx: RuntimeContext, given: dict[str, Any]) -> str:
        text: str = given["content"]
        state: AgentState = ctx.agent_state
        if not state.plan_mode_context.plan_active:
            raise Mistake(f"plan mode is off. Call {PLAN_ENTER} first.")
        if not text.strip():
            raise Mistake("the plan is empty. Send the whole plan.")
        if len(text) > PLAN_CHARACTERS:
            raise Mistake(f"the plan has {len(text):,} characters, and {PLAN_CHARACTERS:,} are kept. Shorten it.")
        enter(state, self.file)
        if self.write_file is not None:
            await self.write_file(ctx, state.plan_mode_context.current_plan_file or self.file, text)
        state.extra[PLAN] = text
        return f"The plan is written. Call {PLAN_EXIT} when it is complete."


async def _read(ctx: RuntimeContext, _: dict[str, Any]) -> str:
    text = plan_text(ctx.agent_state)
    if text is None:
        raise Mistake("this session has no plan.")
    return text


async def _exit(ctx: RuntimeContext, _: dict[str, Any]) -> str:
    leave(ctx.agent_state)
    return "The user has approved. Plan mode is off: carry out the plan."


def enter(state: AgentState, file: str) -> None:
    """Switch plan mode on; a file that the plan has already stays its file."""
    plan = state.plan_mode_context
    plan.plan_active = True
    plan.current_plan_file = plan.current_plan_file or file


def leave(state: AgentState) -> None:
    """Switch plan mode off; plan and file stay."""
    state.plan_mode_context.plan_active = False


def read_plan_mode(given: object) -> PlanMode | None:
    """Return how an agent plans; `None` if it does not.

    Raises:
        ConfigurationError: it is neither True or False nor a `PlanMode`.
    """
    if isinstance(given, PlanMode):
        return given
    if not isinstance(given, bool):
        raise ConfigurationError(f"plan_mode is True, False or PlanMode(…), not {given!r}")
    return PlanMode() if given else None
