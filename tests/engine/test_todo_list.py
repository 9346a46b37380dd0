"""The agent's list of things to do, which the model writes and is reminded of."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import AgentState, ConfigurationError, ReActAgent, SessionKey, SessionManager, open_store, tool
from leafward.core.agent_contexts import Task
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates
from tests.engine.going_on import ALICE, results

REMINDER = "This reminder comes with each request, and not from the user. Your todo list:\n"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store({"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}[request.param]) as opened:
        yield opened


def write(*todos: Any, id: str = "c1") -> Any:
    return [call("todo_write", {"todos": list(todos)}, id=id)]


def todo(content: Any, **more: Any) -> dict[str, Any]:
    return {"content": content, **more}


def agent(store: Any, *script: Any, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, task_list=True, **options)


async def tasks(cook: ReActAgent) -> list[Task]:
    return (await cook.get_agent_state("alice", "s1")).tasks_context.tasks


def last_words(cook: ReActAgent) -> list[str]:
    """Return the last message of each request."""
    model = cook._answers.setup.model
    assert isinstance(model, ScriptedModel)
    return [request.messages[-1].text for request in model.requests]


async def said(cook: ReActAgent) -> dict[str, tuple[str, str]]:
    return results((await cook.get_agent_state("alice", "s1")).context)


async def test_a_model_writes_its_list_and_is_answered_with_it(store: Store) -> None:
    todos = [
        todo("Buy rice"),
        todo("Wash it", status="in_progress", priority="high"),
        todo("Eat", status="completed", priority="low"),
    ]
    cook = agent(store, write(*todos), "Done.")
    await cook.call("Cook", ALICE)

    shown = "- [ ] Buy rice\n- [~] Wash it (priority: high)\n- [x] Eat (priority: low)"
    assert await said(cook) == {"c1": ("success", f"2 open todo(s):\n{shown}")}
    assert last_words(cook) == ["Cook", REMINDER + shown]
    stored = await tasks(cook)
    assert [(one.subject, one.description, one.state, one.metadata) for one in stored] == [
        ("Buy rice", "Buy rice", "pending", {}),
        ("Wash it", "Wash it", "in_progress", {"priority": "high"}),
        ("Eat", "Eat", "completed", {"priority": "low"}),
    ]
    assert len({one.id for one in stored}) == 3


async def test_a_list_is_replaced_and_what_stays_keeps_id_and_age(store: Store) -> None:
    cook = agent(store, write(todo("rice"), todo("tea"), todo("tea")), "Written.")
    await cook.call("Cook", ALICE)
    rice, tea, more_tea = await tasks(cook)
    for task, day in ((rice, 1), (tea, 2), (more_tea, 3)):
        task.created_at = f"2026-01-0{day}T10:00:00.000+01:00"
    state = await cook.get_agent_state("alice", "s1")
    state.tasks_context.tasks[:] = [rice, tea, more_tea]
    await cook.save_agent_state("alice", "s1", state)

    later = agent(store, write(todo("tea", status="completed"), todo("cake"), todo("tea"), todo("tea")), "Written.")
    await later.call("Go on", ALICE)

    found = await tasks(later)
    assert [(one.id, one.created_at) for one in (found[0], found[2])] == [
        (tea.id, tea.created_at),
        (more_tea.id, more_tea.created_at),
    ]
    assert len({rice.id, *(one.id for one in found)}) == 5
    assert [one.state for one in found] == ["completed", "pending", "pending", "pending"]


async def test_an_empty_list_clears_it_and_ends_the_reminders(store: Store) -> None:
    cook = agent(store, write(todo("rice")), write(id="c2"), "Done.")
    await cook.call("Cook", ALICE)

    assert (await said(cook))["c2"] == ("success", "Todo list cleared (0 items).")
    assert await tasks(cook) == []
    assert [words.startswith(REMINDER) for words in last_words(cook)] == [False, True, False]


async def test_a_list_of_which_everything_is_done_is_still_shown() -> None:
    cook = agent("memory://", write(todo("rice", status="completed")), "Done.")
    await cook.call("Cook", ALICE)

    assert await said(cook) == {"c1": ("success", "0 open todo(s):\n- [x] rice")}


@pytest.mark.parametrize(
    ("todos", "says"),
    [
        ([todo("")], "todo 1 has no content. Say what is to do."),
        ([todo("tea"), todo(" \n\t")], "todo 2 has no content. Say what is to do."),
        ([todo(None)], "todo 1 has no content. Say what is to do."),
        ([todo(7)], "todo 1 has no content. Say what is to do."),
        ([{}], "todo 1 has no content. Say what is to do."),
        (["tea"], "todo 1 is not an object with 'content'."),
        ([None], "todo 1 is not an object with 'content'."),
        ([todo("tea", status="done")], "todo 1 has the status 'done'. Use one of: pending, in_progress, completed."),
        ([todo("tea", status=[])], "todo 1 has the status []. Use one of: pending, in_progress, completed."),
        ([todo("tea", status="")], "todo 1 has the status ''. Use one of: pending, in_progress, completed."),
        (
            [todo("tea", status="in_progress"), todo("rice", status="in_progress")],
            "2 todos are in_progress ('tea', 'rice'). Set at most one.",
        ),
        (None, "the argument 'todos' is null, not an array."),
        ("tea", "the argument 'todos' is a string, not an array."),
        ({}, "the argument 'todos' is an object, not an array."),
    ],
)
async def test_a_list_with_a_mistake_is_answered_with_what_to_do_and_changes_nothing(todos: Any, says: str) -> None:
    cook = agent("memory://", write(todo("rice")), [call("todo_write", {"todos": todos}, id="c2")], "I see.")
    await cook.call("Cook", ALICE)

    assert (await said(cook))["c2"] == ("error", f"Error: {says}")
    assert [task.subject for task in await tasks(cook)] == ["rice"]


@pytest.mark.parametrize("arguments", [{}, {"items": []}, "{", '{"todos": [}'])
async def test_arguments_without_a_list_change_nothing(arguments: Any) -> None:
    cook = agent("memory://", write(todo("rice")), [call("todo_write", arguments, id="c2")], "I see.")
    await cook.call("Cook", ALICE)

    state, text = (await said(cook))["c2"]
    assert (state, text[:7]) == ("error", "Error: ")
    assert [task.subject for task in await tasks(cook)] == ["rice"]


@pytest.mark.parametrize("priority", ["urgent", "", None, 3, ["high"], "HIGH"])
async def test_another_priority_is_left_out(priority: Any) -> None:
    cook = agent("memory://", write(todo("rice", priority=priority)), "Done.")
    await cook.call("Cook", ALICE)

    assert [task.metadata for task in await tasks(cook)] == [{}]


async def test_the_reminder_comes_with_each_request_and_is_never_stored(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        return "stirred"

    cook = agent(store, write(todo("rice")), [call("stir")], "Done.", "Hi.", tools=[stir])
    await cook.call("Cook", ALICE)
    await cook.call("Hello", ALICE)

    assert last_words(cook) == ["Cook", *[f"{REMINDER}- [ ] rice"] * 3]
    model = cook._answers.setup.model
    assert isinstance(model, ScriptedModel)
    assert [one.text for one in model.requests[-1].messages if one.role == "user"] == [
        "Cook",
        "Hello",
        last_words(cook)[-1],
    ]
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state")
    raw = await cook.session("alice", "s1").get_raw_history()
    assert "reminder" not in json.dumps([slot, *(message.to_dict() for message in raw)])
    assert [message.role for message in raw].count("user") == 2


async def test_the_list_survives_a_compaction(store: Store) -> None:
    cook = agent(store, write(todo("rice", status="in_progress")), "Done.", "Hi.")
    await cook.call("Cook", ALICE)
    before = await tasks(cook)
    session = cook.session("alice", "s1")
    history = await session.get_history()
    await session.add_compaction("The user wants to eat.", history[0].id, history[-1].id)

    await cook.call("And now?", ALICE)

    model = cook._answers.setup.model
    assert isinstance(model, ScriptedModel)
    assert not any(part["type"] == "tool_use" for one in model.requests[-1].messages for part in one.parts)
    assert last_words(cook)[-1] == f"{REMINDER}- [~] rice"
    assert await tasks(cook) == before


async def test_checkout_branch_and_fork_bring_the_list_of_their_point(store: Store) -> None:
    cook = agent(store, write(todo("rice")), "First.", write(todo("tea")), "Second.", "On a branch.", "In a fork.")
    first = await cook.call("Cook", ALICE)
    second = await cook.call("Cook more", ALICE)
    fork = await SessionManager(store, user_id="alice", agent_id="cook").fork("s1", first.id, "fork")

    await cook.session("alice", "s1").checkout(first.id)
    assert [task.subject for task in await tasks(cook)] == ["rice"]
    await cook.call("Go on here", ALICE)
    assert last_words(cook)[-1] == f"{REMINDER}- [ ] rice"
    await cook.session("alice", "s1").checkout(second.id)
    assert [task.subject for task in await tasks(cook)] == ["tea"]
    forked = (await cook.get_agent_state("alice", fork.id)).tasks_context.tasks
    assert [task.subject for task in forked] == ["rice"]


async def test_a_list_that_agentscope_saved_is_shown_and_gone_on_with(store: Store) -> None:
    made = Task(
        "Write tests", "Write tests", {"priority": "high"}, "2026-08-22T23:15:56.123+08:00", "in_progress", "t1"
    )
    state = AgentState()
    state.tasks_context.tasks.append(made)
    cook = agent(store, write(todo("Write tests", status="completed", priority="high")), "Done.")
    await cook.save_agent_state("alice", "s1", state)
    await cook.call("Hello", ALICE)

    assert last_words(cook)[0] == f"{REMINDER}- [~] Write tests (priority: high)"
    (task,) = await tasks(cook)
    assert (task.id, task.created_at, task.state) == ("t1", "2026-08-22T23:15:56.123+08:00", "completed")


async def test_a_custom_store_of_states_keeps_the_list() -> None:
    states = PlainStates()
    await agent(states, write(todo("rice")), "Done.").call("Cook", ALICE)

    later = agent(states, "Hi.")
    await later.call("Hello", ALICE)

    assert last_words(later) == [f"{REMINDER}- [ ] rice"]


@pytest.mark.parametrize("mode", ["default", "accept_edits", "explore", "bypass", "dont_ask"])
async def test_the_list_is_written_in_every_mode(mode: Any) -> None:
    cook = agent("memory://", write(todo("rice")), "Done.", permissions=mode)

    assert (await cook.call("Cook", ALICE)).text == "Done."
    assert [task.subject for task in await tasks(cook)] == ["rice"]


async def test_without_the_option_there_is_neither_tool_nor_reminder(store: Store) -> None:
    await agent(store, write(todo("rice")), "Done.").call("Cook", ALICE)

    model = ScriptedModel(["Hi."])
    await ReActAgent("cook", model, store=store).call("Hello", ALICE)

    assert (list(model.requests[0].tools), model.requests[0].messages[-1].text) == ([], "Hello")


@pytest.mark.parametrize("wrong", ["yes", None, 1])
def test_what_says_nothing_of_a_list_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="task_list is True or False"):
        ReActAgent("cook", ScriptedModel([]), store="memory://", task_list=wrong)
