"""What AgentScope 1.x left of a session is found in every store, and a lost process loses nothing of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from leafward import ReActAgent, RuntimeContext, SessionKey, assistant, user
from leafward.core.ids import new_id
from leafward.testing import ScriptedModel
from tests.engine.dying_store import Died, DyingStore
from tests.engine.two_handles import KINDS, Handles, on

MEMORY = [user("Which soup?", id="m1"), assistant("Leek.", id="m2")]


@on(*KINDS)
@pytest.mark.parametrize("left", ["messages", "groups"])
async def test_it_goes_on(handles: Handles, left: str) -> None:
    store, other = handles
    key = SessionKey(new_id(), "alice")
    if left == "messages":
        await other.states.save_list(key, "memory_messages", MEMORY)
    else:
        await other.states.save(key, "toolkit_activeGroups", {"activeGroups": ["kitchen"]})
    agent = ReActAgent("cook", ScriptedModel(["As you like."]), store=store)

    await agent.call("With cream?", RuntimeContext("alice", key.session_id))

    state = await agent.get_agent_state("alice", key.session_id)
    before = ["Which soup?", "Leek."] if left == "messages" else []
    assert [message.text for message in state.context] == [*before, "With cream?", "As you like."]
    assert state.tool_context.activated_groups == ([] if left == "messages" else ["kitchen"])


@on("memory")
@pytest.mark.parametrize("commits", range(1, 5))
async def test_a_process_that_is_lost_in_the_first_call_loses_nothing_of_it(handles: Handles, commits: int) -> None:
    store, _ = handles
    await store.states.save_list(SessionKey("s1", "alice"), "memory_messages", MEMORY)
    ctx = RuntimeContext("alice", "s1")
    dying: Any = DyingStore(store, commits, at_once=True)
    with suppress(Died):
        await ReActAgent("cook", ScriptedModel(["As you like."]), store=dying).call(user("With cream?", id="q1"), ctx)
    assert dying.is_dead
    await dying.bury("s1", "alice")
    agent = ReActAgent("cook", ScriptedModel(["As you like."]), store=store)

    await agent.call(user("With cream?", id="q1"), ctx)

    state = await agent.get_agent_state("alice", "s1")
    assert [message.text for message in state.context] == ["Which soup?", "Leek.", "With cream?", "As you like."]
