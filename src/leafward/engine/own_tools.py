"""The tools that an agent brings itself, and what its model reads beside them."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.errors import ConfigurationError
from leafward.engine.group_tool import group_tool
from leafward.engine.model_requests import ModelRequests, PromptStep
from leafward.engine.plan_mode import PlanMode
from leafward.engine.todo_list import reminder, todo_tool
from leafward.tools.toolkit import Toolkit


def with_own_tools(toolkit: Toolkit, plan: PlanMode | None, *, task_list: bool) -> Toolkit:
    """Add to a toolkit those for the plan, for the todo list, and for the groups that a model may switch.

    Raises:
        ConfigurationError: a tool has one of their names, or `task_list` is not True or False.
    """
    if not isinstance(task_list, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"task_list is True or False, not {task_list!r}")
    switch = group_tool(toolkit)
    own = [
        *([] if plan is None else plan.tools()),
        *([todo_tool()] if task_list else []),
        *([switch] if switch else []),
    ]
    for tool in own:
        toolkit.register(tool)
    return toolkit


def own_requests(
    system_prompt: str, plan: PlanMode | None, *, task_list: bool, prompts: Sequence[PromptStep] = ()
) -> ModelRequests:
    """Return what makes the requests of an agent: with what is said of the plan, and the reminder of the todo list."""
    parts = [] if plan is None else [plan.prompt]
    return ModelRequests(system_prompt, parts, [reminder] if task_list else [], prompts)
