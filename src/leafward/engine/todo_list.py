"""The agent's list of things to do: a tool that replaces it, and a reminder in each request to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from leafward.core.agent_contexts import Task, TaskState
from leafward.core.agent_state import AgentState
from leafward.engine.state_tools import state_tool
from leafward.tools.arguments import Mistake
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext

TODO_WRITE = "todo_write"
STATES: dict[TaskState, str] = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}
"""The states of a task, and how a list shows them."""
PRIORITIES = ("high", "medium", "low")

_DESCRIPTION = """\
Write your list of things to do: all of it, as it replaces the list that was there. Use it for work with several \
steps. At most one item is in_progress; set it to completed as soon as it is done. An empty list clears it."""
_ITEM = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "description": "What is to do."},
        "status": {"type": "string", "enum": list(STATES), "description": "pending if left out."},
        "priority": {"type": "string", "enum": list(PRIORITIES)},
    },
    "required": ["content"],
}


def todo_tool() -> Tool:
    """Return the tool by which a model writes its list."""
    properties = {"todos": {"type": "array", "items": _ITEM, "description": "The whole list."}}
    return state_tool(TODO_WRITE, _DESCRIPTION, properties, _write, required=("todos",))


def reminder(state: AgentState) -> str | None:
    """Return what a model is reminded of; `None` without tasks."""
    tasks = state.tasks_context.tasks
    if not tasks:
        return None
    return f"This reminder comes with each request, and not from the user. Your todo list:\n{_listed(tasks)}"


async def _write(ctx: RuntimeContext, given: dict[str, Any]) -> str:
    context = ctx.agent_state.tasks_context
    context.tasks = read_todos(given["todos"], context.tasks)
    if not context.tasks:
        return "Todo list cleared (0 items)."
    left = sum(task.state != "completed" for task in context.tasks)
    return f"{left} open todo(s):\n{_listed(context.tasks)}"


def read_todos(todos: Sequence[object], present: Sequence[Task]) -> list[Task]:
    """Return the tasks of a list that a model wrote; what was there with the same content keeps id and age.

    Raises:
        Mistake: an item is not one, or two are in progress.
    """
    known: dict[str, list[Task]] = {}
    for task in reversed(present):
        known.setdefault(task.subject, []).append(task)
    found = [_read_todo(number, item, known) for number, item in enumerate(todos, 1)]
    running = [task.subject for task in found if task.state == "in_progress"]
    if len(running) > 1:
        listed = ", ".join(map(repr, running))
        raise Mistake(f"{len(running)} todos are in_progress ({listed}). Set at most one.")
    return found


def _read_todo(number: int, item: object, known: Mapping[str, list[Task]]) -> Task:
    if not isinstance(item, dict):
        raise Mistake(f"todo {number} is not an object with 'content'.")
    given = cast(dict[str, object], item)
    content, status, priority = given.get("content"), given.get("status"), given.get("priority")
    if not isinstance(content, str) or not content.strip():
        raise Mistake(f"todo {number} has no content. Say what is to do.")
    if status is None:
        status = "pending"
    if not isinstance(status, str) or status not in STATES:
        raise Mistake(f"todo {number} has the status {status!r}. Use one of: {', '.join(STATES)}.")
    metadata: dict[str, Any] = {"priority": priority} if priority in PRIORITIES else {}
    made = Task(content, content, metadata, state=status)
    if known.get(content):
        before = known[content].pop()
        made.id, made.created_at = before.id, before.created_at
    return made


def _listed(tasks: Sequence[Task]) -> str:
    return "\n".join(f"- {STATES[task.state]} {task.subject}{_priority(task)}" for task in tasks)


def _priority(task: Task) -> str:
    priority = task.metadata.get("priority")
    return f" (priority: {priority})" if priority in PRIORITIES else ""
