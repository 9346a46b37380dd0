"""Calls that are wrong: each is refused, nothing is stored, and the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    Message,
    ReActAgent,
    RuntimeContext,
    Session,
    SessionKey,
    StoreError,
    open_store,
    tool,
    tool_result,
    user,
)
from leafward.engine.custom_states import states_of
from leafward.stores import JsonFileAgentStateStore, Store
from leafward.stores.files.names import hashed
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates
from tests.engine.going_on import ALICE, goes_on, results


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


async def texts(store: Store) -> list[str]:
    return [message.text for message in await Session(store, "s1", user_id="alice", agent_id="cook").get_history()]


# ── input ────────────────────────────────────────────────────────────────────

CALL = {"type": "tool_use", "id": "c1", "name": "rm", "input": {}}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (5, "not int"),
        (b"hello", "not bytes"),
        (object(), "not object"),
        ({"text": "hello"}, "a role and parts"),
        ({"role": "user"}, "a role and parts"),
        ([None], "not NoneType"),
        ([["hello"]], "not list"),
        ([], "empty list"),
        (Message.system("obey"), "role 'system'"),
        ({"role": "system", "content": "obey"}, "role 'system'"),
        ([user("a", id="1"), user("b", id="1")], "have one id"),
        (tool_result("c1", "done"), "no call 'c1' waits"),
        ([user("look"), tool_result("c1", "done")], "no call 'c1' waits"),
        (Message("assistant", [CALL]), "a call without a result"),
        ([Message("assistant", [CALL]), user("and?")], "a call without a result"),
        (None, "no turn is open"),
    ],
)
async def test_wrong_input_is_refused_and_nothing_is_stored(store: Store, wrong: Any, why: str) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
    await agent.call("hello", ALICE)

    with pytest.raises(ValueError, match=why):
        await agent.call(wrong, ALICE)

    assert await texts(store) == ["hello", "Hello."]
    await goes_on(store)


async def test_a_conversation_from_elsewhere_is_input_if_it_is_whole(store: Store) -> None:
    whole = [user("remove"), Message("assistant", [CALL]), tool_result("c1", "removed"), user("really?")]
    model = ScriptedModel(["Yes."])

    assert (await ReActAgent("cook", model, store=store).call(whole, ALICE)).text == "Yes."

    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool", "user"]
    await goes_on(store)


# ── results of external calls ────────────────────────────────────────────────


@tool(external=True)
async def sign(paper: str) -> str:
    """Have a person sign."""
    return "never run here"


def signing(store: Store, *more: Any) -> ReActAgent:
    calls = [call("sign", {"paper": "a"}, id="c1"), call("sign", {"paper": "b"}, id="c2")]
    return ReActAgent("cook", ScriptedModel([calls, *more]), store=store, tools=[sign])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (tool_result("c3", "signed"), "no call 'c3' waits"),
        ([tool_result("c1", "signed"), tool_result("c3", "signed")], "no call 'c3' waits"),
        ([tool_result("c1", "signed"), tool_result("c1", "refused")], "two results for one call"),
        ([tool_result("c2", "signed"), user("and hurry")], "calls still wait: c1"),
        (Message("user", [*tool_result("c2", "signed").parts, {"type": "text", "text": "hurry"}]), "still wait: c1"),
    ],
)
async def test_wrong_results_are_refused_and_the_calls_still_wait(store: Store, wrong: Any, why: str) -> None:
    agent = signing(store, "Both are signed.")
    await agent.call("Sign", ALICE)

    with pytest.raises(ValueError, match=why):
        await agent.call(wrong, ALICE)

    partly = await agent.call(tool_result("c1", "signed"), ALICE)
    assert (partly.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
    with pytest.raises(ValueError, match="no call 'c1' waits"):
        await agent.call(tool_result("c1", "signed after all"), ALICE)
    assert (await agent.call(tool_result("c2", "signed"), ALICE)).text == "Both are signed."
    assert results(await goes_on(store)) == {"c1": ("success", "signed"), "c2": ("success", "signed")}


async def test_words_may_come_with_the_last_results(store: Store) -> None:
    agent = signing(store, "Both are signed.")
    await agent.call("Sign", ALICE)
    await agent.call(tool_result("c2", "signed"), ALICE)

    assert (await agent.call([tool_result("c1", "signed"), user("and hurry")], ALICE)).text == "Both are signed."

    assert [message.text for message in await goes_on(store)][-3:-1] == ["and hurry", "Both are signed."]


async def test_results_that_are_sent_again_get_the_stored_reply(store: Store) -> None:
    agent = signing(store, "Both are signed.")
    await agent.call("Sign", ALICE)
    both = [{"role": "tool", "content": [{"type": "tool_result", "id": id, "output": "signed"}]} for id in ("c1", "c2")]
    first = await agent.call(both, ALICE)

    # The answer was lost on its way to the client.
    again = await agent.call(both, ALICE)

    assert (again.id, again.text) == (first.id, "Both are signed.")
    assert len(await texts(store)) == 5
    await goes_on(store)


async def test_what_a_caller_does_to_a_result_that_it_has_sent_changes_nothing(store: Store) -> None:
    result = tool_result("c1", "signed")

    def change(_: Any) -> str:
        result.parts[0]["output"][0]["text"] = "torn"
        return "It is signed."

    agent = ReActAgent(
        "cook", ScriptedModel([[call("sign", {"paper": "a"}, id="c1")], change]), store=store, tools=[sign]
    )
    await agent.call("Sign", ALICE)
    await agent.call(result, ALICE)

    history = await agent.session("alice", "s1").get_history()
    assert [one.parts[0]["output"][0]["text"] for one in history if one.role == "tool"] == ["signed"]


async def test_equal_results_of_calls_that_share_an_id_are_each_stored(store: Store) -> None:
    script = [part for reply in ("one", "two") for part in ([call("sign", {"paper": reply}, id="call_0")], reply)]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[sign])
    for reply in ("one", "two"):
        await agent.call("Sign", ALICE)
        assert (await agent.call(tool_result("call_0", "signed"), ALICE)).text == reply

    assert [message.role for message in await goes_on(store)].count("tool") == 2


async def test_a_plain_message_instead_of_results_declines_the_calls(store: Store) -> None:
    await signing(store).call("Sign", ALICE)

    assert {state for state, _ in results(await goes_on(store)).values()} == {"interrupted"}


# ── the wrong moment, the wrong place ────────────────────────────────────────


async def test_a_call_after_close_is_refused(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
    await agent.call("hello", ALICE)
    await agent.close()

    with pytest.raises(AgentShuttingDown):
        await agent.call("still there?", ALICE)

    assert await texts(store) == ["hello", "Hello."]
    await goes_on(store)


@pytest.mark.parametrize("kind", ["sqlite", "json"])
def test_a_call_from_another_event_loop_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path))
    where = f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else None
    agent = ReActAgent("cook", ScriptedModel(["Hello.", "Again."]), store=where)

    async def first_loop() -> None:
        await agent.call("hello", ALICE)
        with pytest.raises(StoreError, match="event loop"):
            await asyncio.to_thread(asyncio.run, agent.call("from a thread", ALICE))
        assert (await agent.call("again", ALICE)).text == "Again."
        await agent.close()

    asyncio.run(first_loop())

    async def second_loop() -> None:
        async with ReActAgent("cook", ScriptedModel(["Still here."]), store=where) as other:
            assert (await other.call("and now?", ALICE)).text == "Still here."
            assert len((await other.get_agent_state("alice", "s1")).context) == 6

    asyncio.run(second_loop())


@pytest.mark.parametrize("how", ["async", "on a thread", "in a task"])
async def test_a_call_in_a_tool_of_the_same_session_is_refused(store: Store, how: str) -> None:
    found: list[BaseException] = []

    async def ask_again() -> str:
        try:
            await agent.call("inside", ALICE)
        except ConfigurationError as error:
            found.append(error)
        return "asked"

    @tool(name="ask")
    async def ask() -> str:
        """Ask again."""
        return await (asyncio.create_task(ask_again()) if how == "in a task" else ask_again())

    @tool(name="ask")
    def ask_on_a_thread() -> str:
        """Ask again."""
        return asyncio.run(ask_again())

    script = [[call("ask", {}, id="c1")], "Done."]
    tools = [ask_on_a_thread if how == "on a thread" else ask]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=tools)

    assert (await agent.call("Ask", ALICE)).text == "Done."

    assert "'s1'" in str(found[0])
    assert results(await goes_on(store))["c1"] == ("success", "asked")


async def test_a_call_in_a_tool_of_another_session_is_answered(store: Store) -> None:
    @tool
    async def ask() -> str:
        """Ask elsewhere."""
        return (await agent.call("elsewhere", RuntimeContext("alice", "s2"))).text

    script = [[call("ask", {}, id="c1")], "Of the other session.", "Done."]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[ask])

    assert (await agent.call("Ask", ALICE)).text == "Done."
    assert results(await goes_on(store))["c1"] == ("success", "Of the other session.")


async def test_a_call_under_a_lease_of_the_callers_own_is_refused(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
    async with store.leases.acquire("s1", "alice"):
        with pytest.raises(ConfigurationError, match="'s1'"):
            await agent.call("hello", ALICE)

    assert (await agent.call("hello", ALICE)).text == "Hello."
    await goes_on(store)


async def test_a_call_while_another_task_has_the_lease_waits_for_it(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
    held, over = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with store.leases.acquire("s1", "alice"):
            held.set()
            await over.wait()

    holding = asyncio.create_task(hold())
    await held.wait()
    waiting = asyncio.create_task(agent.call("hello", ALICE))
    done, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not done
    over.set()

    assert (await waiting).text == "Hello."
    await holding
    await goes_on(store)


async def test_the_session_of_a_closed_agent_is_refused_as_its_calls_are(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel([]), store=store)
    await agent.close()

    with pytest.raises(AgentShuttingDown):
        agent.session("alice", "s1")


@pytest.mark.parametrize("kind", ["memory", "json", "custom"])
async def test_clearing_a_session_that_is_unknown_stores_nothing(store: Store, tmp_path: Path, kind: str) -> None:
    states: Any = {
        "memory": lambda: store.states,
        "json": lambda: JsonFileAgentStateStore(tmp_path),
        "custom": PlainStates,
    }[kind]()
    agent = ReActAgent("cook", ScriptedModel([]), store=states)

    await agent.clear_context("alice", "s1")

    assert SessionKey("s1", "alice") not in await states_of(states).list_session_keys("alice")
    await states_of(states).close()


async def test_an_agent_may_have_any_name_without_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path))
    names = ("a/b", "a", "../b", "YS9i", hashed("a/b"))
    for name in names:
        async with ReActAgent(name, ScriptedModel([f"from {name}"]), default_session_id="s1") as agent:
            await agent.call("Hi")
            assert len((await agent.get_agent_state()).context) == 2

    hidden = [hashed(name) for name in ("a/b", "../b", hashed("a/b"))]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a", "YS9i", *hidden])
