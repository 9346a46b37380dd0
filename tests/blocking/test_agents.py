"""An agent is used without `await`, from any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from leafward import AgentShuttingDown, ConfigurationError, ReActAgent, RuntimeContext, tool
from leafward.engine import InMemoryMemory
from leafward.portal import BlockingSession, blocking
from leafward.testing import ScriptedModel, call
from tests.blocking.doubles import run_program

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


def echo(request: Any) -> str:
    """Say all that the user has said."""
    return " ".join(message.text for message in request.messages if message.role == "user")


def test_a_script_calls_an_agent_and_finds_its_conversation_in_the_store(url: str) -> None:
    with blocking(url) as store:
        agent = store.agent(ReActAgent("helper", ScriptedModel(echo)))

        assert agent.call("One", ALICE).text == "One"
        assert agent.call("Two", ALICE).text == "One Two"

        session = agent.session("alice", "s1")
        assert isinstance(session, BlockingSession)
        assert [message.text for message in session.get_history()] == ["One", "One", "Two", "One Two"]
        assert store.session("s1", user_id="alice", agent_id="helper").get_history() == session.get_history()
        assert len(agent.get_agent_state("alice", "s1").context) == 4
        assert (agent.name, agent.agent_id) == ("helper", "helper")
        agent.clear_context("alice", "s1")
        assert agent.call("Three", ALICE).text == "Three"


def test_a_stream_is_a_plain_iterator(url: str) -> None:
    with blocking(url) as store:
        agent = store.agent(ReActAgent("helper", ScriptedModel(["Hello there, how are you?"], chunk=5)))

        events = list(agent.stream("Hi", ALICE))

        pieces = [event.text for event in events if event.type == "TEXT_BLOCK_DELTA"]
        assert (len(pieces), "".join(pieces)) == (5, "Hello there, how are you?")
        assert (events[0].type, events[-1].type) == ("AGENT_START", "AGENT_END")


def test_a_stream_that_is_left_stores_what_was_said(url: str) -> None:
    with blocking(url) as store:
        agent = store.agent(ReActAgent("helper", ScriptedModel([["Hello", "there"], "Again."])))

        with agent.stream("Hi", ALICE) as events:
            for event in events:
                if event.type == "TEXT_BLOCK_DELTA":
                    break

        history = agent.session("alice", "s1").get_history()
        assert [message.text for message in history] == ["Hi", "Hello"]
        assert agent.call(None, ALICE).text == "Again."


def test_another_thread_interrupts_a_call(url: str) -> None:
    thinking = threading.Event()
    with blocking(url) as store, ThreadPoolExecutor(1) as threads:

        @tool
        def think(ctx: RuntimeContext) -> str:
            """Think until the turn is interrupted."""
            thinking.set()
            while not ctx.agent_state.interrupt_control.is_interrupted:
                threading.Event().wait(0.01)
            return "thought"

        agent = store.agent(ReActAgent("helper", ScriptedModel([[call("think", {}, id="c1")]]), tools=[think]))
        running = threads.submit(agent.call, "Think", ALICE)
        assert thinking.wait(30)

        assert agent.interrupt("alice", "s1", "Enough.")

        reply = running.result(30)
        assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
        assert not agent.interrupt("alice", "s1")


def test_each_thread_has_the_session_that_it_has_loaded(url: str) -> None:
    memory = InMemoryMemory()
    with blocking(url) as store, ThreadPoolExecutor(4) as threads:
        agent = store.agent(ReActAgent("helper", ScriptedModel(echo), memory=memory))
        together = threading.Barrier(4)

        def talk(name: str) -> tuple[str, int]:
            assert not agent.load_if_exists(store, name)
            together.wait(30)
            agent.call(f"{name}1")
            together.wait(30)
            agent.save_to(store, name)
            return agent.call(f"{name}2").text, len(memory)

        names = ["ann", "bob", "cid", "dan"]
        assert list(threads.map(talk, names)) == [(f"{name}1 {name}2", 4) for name in names]
        # This thread has loaded nothing.
        assert (agent.get_agent_state().session_id, len(memory)) == ("helper", 0)
        agent.load_from(store, "ann")
        assert agent.call("ann3").text == "ann1 ann2 ann3"


def test_a_sync_tool_asks_another_agent_in_a_session_of_its_own(url: str) -> None:
    with blocking(url) as store:
        researcher = store.agent(ReActAgent("researcher", ScriptedModel(["5,000 years."])))

        @tool
        def research(question: str, ctx: RuntimeContext) -> str:
            """Have the researcher find something out."""
            return researcher.call(question, ctx.child("researcher")).text

        model = ScriptedModel([[call("research", {"question": "How old is tea?"}, id="c1")], "Very old."])
        boss = store.agent(ReActAgent("boss", model, tools=[research]))

        assert boss.call("Tea?", ALICE).text == "Very old."
        assert "5,000 years." in str(model.requests[1].messages[-1].parts)
        (child,) = store.manager(user_id="alice", agent_id="researcher").list()
        assert child.parent_session_id == "s1"


def test_an_agent_with_a_store_of_its_own_keeps_it_and_closes_it(tmp_path: Path) -> None:
    own = f"sqlite:///{tmp_path}/own.db"
    with blocking("memory://") as store:
        with store.agent(ReActAgent("helper", ScriptedModel(echo), store=own)) as agent:
            agent.call("One", ALICE)
        with pytest.raises(AgentShuttingDown):
            agent.call("Two", ALICE)
        assert store.session("s1", user_id="alice", agent_id="helper").get_history() == []
    with blocking(own) as store:
        assert len(store.session("s1", user_id="alice", agent_id="helper").get_history()) == 2


def test_an_agent_without_a_store_goes_from_one_to_the_next(tmp_path: Path) -> None:
    agent = ReActAgent("helper", ScriptedModel(echo))
    for number, url in enumerate([f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"]):
        with blocking(url) as store:
            assert store.agent(agent).call(f"n{number}", ALICE).text == f"n{number}"
            assert store.agent(agent) is store.agent(store.agent(agent))


def test_an_agent_is_refused_by_a_second_store_while_the_first_is_open(url: str) -> None:
    helper = ReActAgent("helper", ScriptedModel(echo))
    with blocking("memory://") as second:
        with blocking(url) as first:
            agent = first.agent(helper)
            agent.call("One", ALICE)

            with pytest.raises(ConfigurationError, match="'helper' keeps its conversations in another blocking store"):
                second.agent(helper)

            assert agent.call("Two", ALICE).text == "One Two"
            assert len(first.session("s1", user_id="alice", agent_id="helper").get_history()) == 4
        assert second.agent(helper).call("Three", ALICE).text == "Three"


def test_an_agent_of_a_store_that_was_dropped_or_is_its_parents_goes_to_the_next() -> None:
    done = run_program(
        """
import gc, os, warnings
warnings.simplefilter("ignore")
from leafward import ReActAgent
from leafward.portal import blocking
from leafward.testing import ScriptedModel

helper = ReActAgent("helper", ScriptedModel(lambda request: "ok"))
blocking("memory://").agent(helper).call("Hi")
gc.collect()
with blocking("memory://") as store:
    print(store.agent(helper).call("Hi").text)
    child = os.fork()
    if child == 0:
        with blocking("memory://") as mine:
            os._exit(0 if mine.agent(helper).call("Hi").text == "ok" else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )

    assert (done.stdout, done.stderr) == ("ok\n0\n", "")


def test_what_is_not_an_agent_is_refused() -> None:
    with blocking("memory://") as store:
        wrong: Any = "helper"
        with pytest.raises(ConfigurationError, match="an agent is a ReActAgent"):
            store.agent(wrong)


def test_errors_of_a_call_are_raised_in_the_calling_thread(url: str) -> None:
    with blocking(url) as store:
        agent = store.agent(ReActAgent("helper", ScriptedModel([ValueError("no")])))
        with pytest.raises(ValueError, match="no"):
            agent.call("Hi", ALICE)
        with pytest.raises(ValueError, match="empty list"):
            agent.call([], ALICE)
