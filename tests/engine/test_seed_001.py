"""The agent of seed 001: it is loaded from a session, called, and saved to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    Message,
    ReActAgent,
    RuntimeContext,
    SessionKey,
    SessionNotFound,
    StateDecodeError,
    assistant,
    open_store,
    tool,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.engine import InMemoryMemory
from leafward.stores import InMemorySession, JsonSession
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import AsyncStates, PlainStates

QUICK_START = """
import asyncio, sys
from leafward import ReActAgent
from leafward.engine import InMemoryMemory
from leafward.stores import JsonSession
from leafward.testing import ScriptedModel

async def main():
    memory = InMemoryMemory()
    model = ScriptedModel(lambda request: f"I know {len(request.messages)} messages.")
    async with ReActAgent("Assistant", model, memory=memory) as agent, JsonSession(sys.argv[1]) as session:
        print(await agent.load_if_exists(session, "userId"), len(memory))
        response = await agent.call("Hello!")
        print(response.text, len(memory))
        await agent.save_to(session, "userId")

asyncio.run(main())
"""


def echo(request: Any) -> str:
    """Say all that the model is shown."""
    return " ".join(message.text for message in request.messages if message.role == "user")


def assistant_agent(**options: Any) -> ReActAgent:
    return ReActAgent("Assistant", ScriptedModel(echo), **{"store": "memory://", **options})


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_the_quick_start_in_two_processes_remembers(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", QUICK_START, str(tmp_path / "sessions")],
            # What is remembered is in the session, and nowhere else.
            env={**os.environ, "AGENTSCOPE_STATE_HOME": str(tmp_path / home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for home in ("first", "second")
    ]

    assert said == ["False 0\nI know 1 messages. 2\n", "True 2\nI know 3 messages. 4\n"]


async def test_two_processes_with_one_home_remember_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path / "home"))
    for number, expected in enumerate(["One", "One Two", "One Two Three"]):
        async with assistant_agent(store=None) as agent, JsonSession(tmp_path / "sessions") as session:
            assert await agent.load_if_exists(session, "userId") is bool(number)
            assert (await agent.call(expected.split()[-1])).text == expected
            await agent.save_to(session, "userId")
            assert len(await agent.session().get_history()) == 2 * number + 2


@pytest.mark.parametrize("kind", ["1.x", "store", "plain", "async"])
async def test_any_store_will_do(kind: str) -> None:
    async with open_store("memory://") as store, InMemorySession() as session:
        target: Any = {"1.x": session, "store": store, "plain": PlainStates(), "async": AsyncStates()}[kind]
        async with assistant_agent() as first:
            assert not await first.load_if_exists(target, SessionKey("k", "alice"))
            await first.call("One")
            await first.save_to(target, SessionKey("k", "alice"))
        async with assistant_agent() as second:
            await second.load_from(target, SessionKey("k", "alice"))
            assert (await second.call("Two")).text == "One Two"
            state = await second.get_agent_state("alice", "k")
            assert (state.user_id, state.session_id) == ("alice", "k")


async def test_what_a_memory_of_1x_has_saved_is_loaded() -> None:
    memory = InMemoryMemory()
    memory.add_message(user("Hello!"))
    memory.add_message(assistant("Hi!"))
    async with InMemorySession() as session, assistant_agent() as agent:
        await memory.save_to(session, "user123")

        assert await agent.load_if_exists(session, "user123")

        assert (await agent.call("And now?")).text == "Hello! And now?"


async def test_two_tasks_that_share_one_agent_never_meet() -> None:
    everyone = asyncio.Barrier(8)

    async def wait(request: Any) -> str:
        await everyone.wait()
        return echo(request)

    async with InMemorySession() as session, ReActAgent("A", ScriptedModel(wait), store="memory://") as agent:

        async def talk(name: str) -> list[str]:
            assert not await agent.load_if_exists(session, name)
            said = [(await agent.call(f"{name}{number}")).text for number in range(3)]
            await agent.save_to(session, name)
            return said

        names = [f"n{number}" for number in range(8)]
        said = await asyncio.gather(*map(talk, names))

        assert said == [[f"{one}0", f"{one}0 {one}1", f"{one}0 {one}1 {one}2"] for one in names]
        for name in names:
            saved = await session.get(name, "agent_state", AgentState)
            assert saved is not None
            assert all(message.text.startswith(name) for message in saved.context)
        # This task has loaded nothing.
        assert (await agent.get_agent_state()).session_id == "A"


@pytest.mark.parametrize("raises", [True, False])
async def test_a_missing_key_never_inherits_anothers_messages(raises: bool) -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.load_if_exists(session, "k1")
        await agent.call("Mine")
        await agent.save_to(session, "k1")

        if raises:
            with pytest.raises(SessionNotFound):
                await agent.load_from(session, "k2")
        else:
            assert not await agent.load_if_exists(session, "k2")

        assert (await agent.call("Yours")).text == "Yours"
        assert (await agent.get_agent_state()).session_id == "k2"


async def test_a_missing_key_starts_empty_although_the_agent_has_messages_of_it_that_stay_in_the_tree() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.call("Not saved", RuntimeContext(session_id="k"))

        assert not await agent.load_if_exists(session, "k")

        assert (await agent.call("New")).text == "New"
        assert len(await agent.session(None, "k").search("saved")) == 2


async def test_what_was_not_saved_is_left_beside_what_was() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.load_if_exists(session, "k")
        await agent.call("One")
        await agent.save_to(session, "k")
        await agent.call("Two")

        assert await agent.load_if_exists(session, "k")

        assert (await agent.call("Three")).text == "One Three"
        assert len(await agent.session(None, "k").search("two")) == 2


async def test_a_context_of_a_call_comes_first() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.load_if_exists(session, SessionKey("k", "alice"))
        await agent.call("Mine")

        assert (await agent.call("Other", RuntimeContext(session_id="k2"))).text == "Other"
        assert (await agent.call("Bob's", RuntimeContext("bob"))).text == "Bob's"
        assert (await agent.call("Again", RuntimeContext(region="eu"))).text == "Mine Again"


async def test_another_task_does_not_see_what_a_task_has_loaded_and_its_children_do() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:

        async def current() -> str:
            return (await agent.get_agent_state()).session_id

        await asyncio.create_task(agent.load_if_exists(session, "k1"))
        assert await current() == "Assistant"
        await agent.load_if_exists(session, "k2")
        assert await asyncio.create_task(current()) == "k2"
        async with assistant_agent() as other:
            assert (await other.get_agent_state()).session_id == "Assistant"


async def test_without_a_load_the_session_of_calls_without_a_context_is_saved() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.call("One")
        await agent.save_to(session, "user123")
        async with assistant_agent() as second:
            await second.load_from(session, "user123")
            assert (await second.call("Two")).text == "One Two"

        # A session of that key that the agent has is what is saved.
        await agent.call("Mine", RuntimeContext(session_id="user123"))
        await agent.save_to(session, "user123")
        saved = await session.get("user123", "agent_state", AgentState)
        assert saved is not None
        assert texts(saved.context) == ["Mine", "Mine"]


async def test_in_its_own_store_there_is_nothing_to_copy() -> None:
    async with open_store("memory://") as store:
        agent = assistant_agent(store=store)
        assert not await agent.load_if_exists(store, "k")
        await agent.call("One")
        before = await store.states.get_versioned("k", "agent_state")
        await agent.save_to(store, "k")

        assert await store.states.get_versioned("k", "agent_state") == before
        assert await assistant_agent(store=store).load_if_exists(store, "k")
        # Another key of the same store gets a copy.
        await agent.save_to(store, "k2")
        assert (await agent.call("Two", RuntimeContext(session_id="k2"))).text == "One Two"


@pytest.mark.parametrize("is_saved", [True, False])
async def test_what_another_writer_left_in_the_session_stays_in_its_tree(is_saved: bool) -> None:
    async with open_store("memory://") as store, InMemorySession() as session:
        if is_saved:
            await session.save("k", "agent_state", AgentState(context=[user("Saved")]))
        agent = assistant_agent(store=store)
        await agent.call("Mine", RuntimeContext(session_id="k"))
        state = await agent.get_agent_state(session_id="k")
        state.context.append(user("From Java"))
        await store.states.save("k", "agent_state", state)

        assert await agent.load_if_exists(session, "k") is is_saved

        reply = await agent.call("Next")
        assert reply.text == ("Saved Next" if is_saved else "Next")
        assert len(await agent.session(None, "k").search("Java")) == 1


async def test_saving_while_a_turn_runs_saves_what_is_stored() -> None:
    async with InMemorySession() as session:
        saved: list[list[str]] = []

        @tool
        async def save() -> str:
            """Save the agent."""
            await agent.save_to(session, "k")
            state = await session.get("k", "agent_state", AgentState)
            assert state is not None
            saved.append([message.role for message in state.context])
            return "saved"

        script = [[call("save", {}, id="c1")], "Saved."]
        async with ReActAgent("A", ScriptedModel(script), tools=[save], store="memory://") as agent:
            await agent.load_if_exists(session, "k")
            await agent.call("Save")

        assert saved == [["user", "assistant"]]
        # The call that may have begun is not run again by who loads it.
        model = ScriptedModel(["I will see."])
        async with ReActAgent("A", model, tools=[save], store="memory://") as other:
            await other.load_from(session, "k")
            await other.call("What happened?")
        assert "Outcome unknown" in str(model.requests[0].messages[2].parts)
        assert saved == [["user", "assistant"]]


async def test_loading_waits_for_a_turn_of_the_session() -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def think(request: Any) -> str:
        thinking.set()
        await go_on.wait()
        return echo(request)

    async with InMemorySession() as session, ReActAgent("A", ScriptedModel(think), store="memory://") as agent:
        running = asyncio.create_task(agent.call("One", RuntimeContext(session_id="k")))
        await thinking.wait()
        loading = asyncio.create_task(agent.load_if_exists(session, "k"))
        done, _ = await asyncio.wait({loading}, timeout=0.05)
        assert not done
        go_on.set()

        assert (await running).text == "One"
        assert not await loading
        assert (await agent.get_agent_state(None, "k")).context == []


async def test_loading_inside_a_turn_of_the_session_is_an_error() -> None:
    async with InMemorySession() as session:

        @tool
        async def load() -> str:
            """Load the agent."""
            with pytest.raises(ConfigurationError, match="inside a turn of session 'k'"):
                await agent.load_if_exists(session, "k")
            return "refused"

        async with ReActAgent(
            "A", ScriptedModel([[call("load", {})], "Done."]), tools=[load], store="memory://"
        ) as agent:
            assert (await agent.call("Load", RuntimeContext(session_id="k"))).text == "Done."


async def test_what_cannot_be_read_is_an_error_and_no_other_session_goes_on_in_its_place() -> None:
    async with InMemorySession() as session, assistant_agent() as agent:
        await agent.load_if_exists(session, "k1")
        await agent.call("One")
        await session.save("k2", "agent_state", {"context": "none"})

        with pytest.raises(StateDecodeError):
            await agent.load_if_exists(session, "k2")

        with pytest.raises(ConfigurationError, match="'k2' could not be loaded"):
            await agent.call("Whose am I?")
        assert (await agent.get_agent_state(None, "k2")).context == []
        await agent.save_to(session, "k1")
        assert (await agent.call("Two", RuntimeContext(session_id="k1"))).text == "One Two"
        await agent.load_if_exists(session, "k1")
        assert (await agent.call("Three")).text == "One Three"


async def test_what_is_not_a_store_or_a_key_is_refused() -> None:
    async with assistant_agent() as agent:
        wrong: Any = "sqlite:///x.db"
        with pytest.raises(ConfigurationError):
            await agent.load_if_exists(wrong, "k")
        with pytest.raises(ConfigurationError):
            await agent.save_to(wrong, "k")
        async with InMemorySession() as session:
            with pytest.raises(ValueError, match="session id"):
                await agent.load_if_exists(session, "")


async def test_without_a_slot_an_agent_is_saved_and_cannot_be_loaded() -> None:
    async with InMemorySession() as session, assistant_agent(slot="off") as agent:
        await agent.call("One")
        await agent.save_to(session, "k")
        assert await session.exists("k")
        with pytest.raises(ConfigurationError, match="slot='off'"):
            await agent.load_if_exists(session, "k")


async def test_a_closed_agent_is_neither_loaded_nor_saved() -> None:
    agent = assistant_agent()
    await agent.close()
    async with InMemorySession() as session:
        with pytest.raises(AgentShuttingDown):
            await agent.load_if_exists(session, "k")
        with pytest.raises(AgentShuttingDown):
            await agent.save_to(session, "k")


class TestMemory:
    async def test_in_a_call_it_shows_and_changes_the_context_of_that_call(self) -> None:
        memory = InMemoryMemory()
        seen: list[list[str]] = []

        @tool
        async def note() -> str:
            """Add a message."""
            seen.append([message.role for message in memory.get_messages()])
            memory.add_message(user("Noted."))
            return "ok"

        @tool
        def look() -> str:
            """Look, on a thread."""
            seen.append([message.role for message in memory.get_messages()])
            return "ok"

        script = [[call("note", {}, id="c1")], [call("look", {}, id="c2")], "Done."]
        agent = ReActAgent("A", ScriptedModel(script), tools=[note, look], store="memory://", memory=memory)
        async with agent:
            await agent.call("Go")

            assert seen[0] == ["user", "assistant"]
            assert sorted(seen[1]) == ["assistant", "assistant", "tool", "user", "user"]
            stored = await agent.session().get_history()
            assert memory.get_messages() == (await agent.get_agent_state()).context
            assert "Noted." in texts(stored)

    async def test_outside_it_shows_what_this_task_has_called_or_loaded_last_as_of_then(self) -> None:
        memory = InMemoryMemory()
        async with InMemorySession() as session, assistant_agent(memory=memory) as agent:
            assert memory.get_messages() == []
            await agent.call("One", RuntimeContext("alice", "s1"))
            await asyncio.create_task(agent.call("Two", RuntimeContext("alice", "s1")))
            assert texts(memory.get_messages()) == ["One", "One"]
            await agent.call("Hello", RuntimeContext("bob", "s1"))
            assert texts(memory.get_messages()) == ["Hello", "Hello"]
            await agent.save_to(session, SessionKey("s1", "alice"))
            await agent.load_from(session, SessionKey("s1", "alice"))
            assert texts(memory.get_messages()) == ["One", "One", "Two", "One Two"]
            await agent.load_if_exists(session, "missing")
            assert (len(memory), repr(memory)) == (0, "<InMemoryMemory of 0 messages>")

    async def test_a_call_that_fails_leaves_what_it_stored(self) -> None:
        memory = InMemoryMemory()
        async with ReActAgent("A", ScriptedModel([ValueError("no")]), store="memory://", memory=memory) as agent:
            with pytest.raises(ValueError, match="no"):
                await agent.call("One")
            assert texts(memory.get_messages()) == ["One"]

    async def test_tools_of_calls_at_once_see_their_own(self) -> None:
        memory, both = InMemoryMemory(), asyncio.Barrier(2)

        @tool
        async def look() -> str:
            """Look at the memory."""
            await both.wait()
            return memory.get_messages()[0].text

        model = ScriptedModel(lambda r: [call("look", {})] if len(r.messages) == 1 else str(r.messages[2].parts[0]))
        async with ReActAgent("A", model, tools=[look], store="memory://", memory=memory) as agent:
            said = await asyncio.gather(*(agent.call(f"I am {n}", RuntimeContext(n, "s")) for n in ("ann", "bob")))
        assert ["I am ann" in said[0].text, "I am bob" in said[1].text] == [True, True]

    async def test_it_is_saved_by_itself_only(self) -> None:
        memory = InMemoryMemory()
        async with InMemorySession() as session, assistant_agent(memory=memory) as agent:
            await agent.call("One")
            await agent.save_to(session, "k")
            assert await session.get_list("k", "memory_messages") == []
            await memory.save_to(session, "k")
            assert texts(await session.get_list("k", "memory_messages", Message)) == ["One", "One"]

    async def test_outside_a_call_it_cannot_be_changed(self) -> None:
        memory = InMemoryMemory()
        async with InMemorySession() as session, assistant_agent(memory=memory) as agent:
            await agent.call("One")
            await memory.save_to(session, "k")
            for change in (memory.clear, lambda: memory.add_message(user("Two"))):
                with pytest.raises(ConfigurationError, match="in its calls only"):
                    change()
            with pytest.raises(ConfigurationError, match="in its calls only"):
                await memory.load_from(session, "k")
            assert len(memory) == 2

    def test_one_that_has_messages_or_is_something_else_is_refused(self) -> None:
        memory = InMemoryMemory()
        memory.add_message(user("Hello!"))
        with pytest.raises(ConfigurationError, match="the memory has 1 messages"):
            assistant_agent(memory=memory)
        with pytest.raises(ConfigurationError, match="memory is an InMemoryMemory"):
            assistant_agent(memory=[])
