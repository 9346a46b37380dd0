"""A turn that plans, lists and switches groups, and whose store stops for good after any commit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from leafward import ReActAgent, RuntimeContext, Toolkit, tool, user
from leafward.engine import ModelRequest
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import is_paired
from tests.engine.two_handles import Handles, on

TODOS = [{"content": "Look"}, {"content": "Build", "status": "in_progress"}]
REPLIES: list[Any] = [
    [call("plan_enter", id="c0"), call("todo_write", {"todos": TODOS}, id="c1")],
    [call("build", id="c2"), call("reset_equipped_tools", {"to_activate": ["web"]}, id="c3")],
    [call("plan_write", {"content": "1. A roof"}, id="c4")],
    [call("plan_exit", id="c5")],
    [call("build", id="c6")],
    "Built.",
]


class Site:
    """An agent that plans, asks and builds; the model says what comes next in the conversation that it is shown."""

    def __init__(self, store: Any, session_id: str, built: list[str]) -> None:
        self.ctx = RuntimeContext("alice", session_id)

        @tool
        async def build() -> str:
            """Build."""
            built.append("roof")
            return "built"

        def reply(request: ModelRequest) -> Any:
            assert is_paired(request.messages)
            return REPLIES[sum(message.role == "assistant" for message in request.messages)]

        toolkit = Toolkit([build]).create_group("web")
        self.agent = ReActAgent(
            "builder", ScriptedModel(reply), store=store, tools=toolkit, plan_mode=True, task_list=True
        )

    async def work(self) -> str:
        """Send the input, and approve the plan if that is asked about."""
        reply = await self.agent.call(user("Build a roof", id=f"q{self.ctx.session_id}"), self.ctx)
        if await self.agent.questions("alice", self.ctx.session_id):
            reply = await self.agent.answer("alice", self.ctx.session_id, {"c5": True})
        return reply.text


@on("memory", "sqlite")
@pytest.mark.parametrize("at_once", [False, True])
async def test_another_process_goes_on_with_the_controls_of_the_last_commit(handles: Handles, at_once: bool) -> None:
    first, second = handles
    commits = 0
    for commits in count(int(at_once)):
        built: list[str] = []
        name = f"s{commits}"
        dying = DyingStore(first, commits, at_once=at_once)
        task = asyncio.create_task(Site(dying, name, built).work())
        with suppress(Died):
            await task
        await dying.bury(name, "alice")
        was_stopped = dying.is_dead

        site = Site(second, name, built)
        # A call that had begun is not made again: its result is unknown, and the model says that it is done.
        assert await site.work() == "Built."
        assert len(built) <= 1
        state = await site.agent.get_agent_state("alice", name)
        assert not state.plan_mode_context.plan_active
        assert await site.agent.get_plan("alice", name) == "1. A roof"
        assert [(task.subject, task.state) for task in state.tasks_context.tasks] == [
            ("Look", "pending"),
            ("Build", "in_progress"),
        ]
        assert state.tool_context.activated_groups == ["web"]
        history = await site.agent.session("alice", name).get_raw_history()
        assert [message.role for message in history].count("user") == 1
        denied = [one for one in history for part in one.parts if part.get("state") == "denied" and part["id"] == "c2"]
        assert len(denied) == 1
        if not was_stopped:
            assert built == ["roof"]
            break
    assert commits > 12
