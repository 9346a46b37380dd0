"""Groups of tools in an agent: configuration of the agent, state of each session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import ConfigurationError, ReActAgent, RuntimeContext, SessionKey, Toolkit, open_store, tool, user
from leafward.engine import ModelRequest
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import begin_shutdown, history, is_paused, on_commit
from tests.engine.custom_stores import PlainStates
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import ALICE, results


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}
    async with open_store(urls[request.param]) as opened:
        yield opened


def kitchen(ran: list[str]) -> Toolkit:
    @tool
    async def open_cupboard(name: str, ctx: RuntimeContext) -> str:
        """Have more tools at hand."""
        ctx.agent_state.tool_context.activated_groups.append(name)
        return "open"

    @tool(group="knives")
    async def cut(what: str) -> str:
        """Cut something."""
        ran.append(what)
        return f"{what} is cut"

    @tool(group="phone", external=True)
    async def order(what: str) -> str:
        """Have somebody else bring something."""
        return what

    @tool(group="spoons")
    async def stir(what: str) -> str:
        """Stir something."""
        ran.append(what)
        return f"{what} is stirred"

    made = Toolkit().create_group("knives").create_group("spoons", active=True).create_group("phone")
    return made.register(open_cupboard).register(cut).register(stir).register(order)


def agent(store: Any, script: Any, ran: list[str] | None = None) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=kitchen([] if ran is None else ran))


def requests(cook: ReActAgent) -> list[ModelRequest]:
    model = cook._answers.setup.model
    assert isinstance(model, ScriptedModel)
    return model.requests


def offered(cook: ReActAgent) -> list[list[str]]:
    """Return the tools of each request, but for the one that switches groups, which is in all of them."""
    names = [list(request.tools) for request in requests(cook)]
    assert all(tools.pop() == "reset_equipped_tools" for tools in names)
    return names


async def test_a_group_is_offered_from_the_step_after_it_was_activated_and_in_later_calls(store: Store) -> None:
    ran: list[str] = []
    cook = agent(store, [[call("open_cupboard", {"name": "knives"})], [call("cut", {"what": "bread"})], "Done."], ran)
    await cook.call("Cut the bread", ALICE)

    assert offered(cook) == [["open_cupboard", "stir"], *[["open_cupboard", "cut", "stir"]] * 2]
    assert ran == ["bread"]

    later = agent(store, ["Hi."])
    await later.call("Hello", ALICE)
    assert offered(later) == [["open_cupboard", "cut", "stir"]]


async def test_sessions_at_once_never_see_groups_of_each_other(store: Store) -> None:
    def reply(request: Any) -> Any:
        text = request.messages[-1].text
        return [call("open_cupboard", {"name": "knives"})] if text == "knives" else "Done."

    cook = agent(store, reply)
    await asyncio.gather(
        *(cook.call("knives" if n % 2 else "nothing", RuntimeContext("alice", f"s{n}")) for n in range(8))
    )

    for n in range(8):
        state = await cook.get_agent_state("alice", f"s{n}")
        assert state.tool_context.activated_groups == (["spoons", "knives"] if n % 2 else ["spoons"])


async def test_a_call_of_a_tool_that_is_not_active_is_answered_with_those_that_are(store: Store) -> None:
    ran: list[str] = []
    script = [[call("cut", {"what": "bread"}, id="c1"), call("order", {"what": "cheese"}, id="c2")], "I see."]
    reply = await agent(store, script, ran).call("Cut the bread", ALICE)

    assert (reply.text, ran) == ("I see.", [])
    known = "open_cupboard, stir, reset_equipped_tools"
    assert results((await agent(store, []).get_agent_state("alice", "s1")).context) == {
        id: ("error", f"Error: this session has not activated the tool {name!r}. Call one of: {known}.")
        for id, name in (("c1", "cut"), ("c2", "order"))
    }


async def test_a_checkout_brings_the_groups_of_that_point(store: Store) -> None:
    cook = agent(store, ["Hi.", [call("open_cupboard", {"name": "knives"})], "Open.", "Hi again."])
    first = await cook.call("Hello", ALICE)
    await cook.call("Open it", ALICE)
    await cook.session("alice", "s1").checkout(first.id)
    await cook.call("Hello again", ALICE)

    assert offered(cook)[-1] == ["open_cupboard", "stir"]


async def test_an_empty_list_that_was_saved_stays_empty_and_unknown_names_are_kept(store: Store) -> None:
    cook = agent(store, ["Hi.", "Hi."])
    for session_id, groups in (("empty", []), ("unknown", ["of Java", "knives"])):
        state = await cook.get_agent_state("alice", session_id)
        state.tool_context.activated_groups[:] = groups
        await cook.save_agent_state("alice", session_id, state)
        await cook.call("Hello", RuntimeContext("alice", session_id))

        assert (await cook.get_agent_state("alice", session_id)).tool_context.activated_groups == groups
    assert offered(cook) == [["open_cupboard"], ["open_cupboard", "cut"]]


@pytest.mark.parametrize(("saved", "active"), [(None, ["spoons"]), ({"activeGroups": ["knives"]}, ["knives"])])
async def test_a_session_of_1x_has_its_own_groups_or_those_of_a_new_one(
    store: Store, saved: dict[str, list[str]] | None, active: list[str]
) -> None:
    key = SessionKey("s1", "alice")
    await store.states.save_list(key, "memory_messages", [user("Hello")])
    if saved is not None:
        await store.states.save(key, "toolkit_activeGroups", saved)

    cook = agent(store, ["Hi."])
    await cook.call("Hello again", ALICE)

    assert (await cook.get_agent_state("alice", "s1")).tool_context.activated_groups == active


async def test_a_missing_key_that_is_loaded_begins_with_the_groups_of_a_new_session(store: Store) -> None:
    cook = agent(store, ["Hi."])
    await cook.load_if_exists(store, "missing")
    await cook.call("Hello")

    assert offered(cook) == [["open_cupboard", "stir"]]


def test_a_tool_in_a_group_needs_a_toolkit_that_has_it() -> None:
    @tool(group="knives")
    def cut(what: str) -> str:
        """Cut something."""
        return what

    with pytest.raises(ConfigurationError, match=r"Toolkit\(\)\.create_group\('knives'\)"):
        ReActAgent("cook", ScriptedModel([]), store="memory://", tools=[cut])


async def test_a_toolkit_that_changes_later_changes_no_agent(store: Store) -> None:
    made = kitchen([])
    cook = ReActAgent("cook", ScriptedModel(["Hi."]), store=store, tools=made)
    made.register(tool(name="late")(lambda: "x"))
    await cook.call("Hello", ALICE)

    assert offered(cook) == [["open_cupboard", "stir"]]


# The model switches.


def switch(*names: Any, id: str = "c1") -> list[Any]:
    return [call("reset_equipped_tools", {"to_activate": list(names)}, id=id)]


async def active(cook: ReActAgent, session_id: str = "s1") -> list[str]:
    return (await cook.get_agent_state("alice", session_id)).tool_context.activated_groups


async def test_a_model_replaces_the_groups_that_it_has_and_the_next_request_offers_their_tools(store: Store) -> None:
    ran: list[str] = []
    cook = agent(store, [switch("knives"), [call("cut", {"what": "bread"})], switch(id="c3"), "Done."], ran)

    await cook.call("Cut the bread", ALICE)

    assert offered(cook) == [["open_cupboard", "stir"], *[["open_cupboard", "cut"]] * 2, ["open_cupboard"]]
    assert (ran, await active(cook)) == (["bread"], [])
    assert results(requests(cook)[-1].messages)["c1"] == ("success", "Active groups: knives.")
    assert results(requests(cook)[-1].messages)["c3"] == ("success", "No group is active.")
    # An empty list that was chosen stays empty.
    later = agent(store, ["Hi."])
    await later.call("Hello", ALICE)
    assert offered(later) == [["open_cupboard"]]


async def test_groups_that_a_model_may_not_switch_and_unknown_ones_stay(store: Store) -> None:
    made = kitchen([]).create_group("oven", active=True, switchable=False).create_group("grill", switchable=False)
    cook = ReActAgent(
        "cook", ScriptedModel(["Hi.", switch("knives", "spoons", "knives"), "Done."]), store=store, tools=made
    )
    await cook.call("Hello", ALICE)
    state = await cook.get_agent_state("alice", "s1")
    state.tool_context.activated_groups.append("of Java")
    await cook.save_agent_state("alice", "s1", state)

    await cook.call("Switch", ALICE)

    assert await active(cook) == ["oven", "of Java", "knives", "spoons"]


@pytest.mark.parametrize("wrong", [["pans"], ["knives", "oven"], [3], [["knives"]], [None]])
async def test_a_group_that_is_unknown_or_not_for_the_model_is_an_error_and_changes_nothing(
    store: Store, wrong: list[Any]
) -> None:
    made = kitchen([]).create_group("oven", switchable=False)
    cook = ReActAgent("cook", ScriptedModel([switch(*wrong), "I see."]), store=store, tools=made)

    await cook.call("Switch", ALICE)

    ((state, text),) = results(requests(cook)[-1].messages).values()
    assert state == "error"
    assert text == f"Error: there is no group {wrong[-1]!r} to switch on. Choose of these: knives, spoons, phone."
    assert await active(cook) == ["spoons"]


async def test_the_tool_that_switches_says_which_groups_there_are() -> None:
    made = (
        Toolkit()
        .create_group("web", "Search and read pages")
        .create_group("files")
        .create_group("own", switchable=False)
    )
    cook = ReActAgent("cook", ScriptedModel(["Hi."]), store="memory://", tools=made)
    await cook.call("Hello")

    (shown,) = requests(cook)[0].tools.values()
    assert shown.description.endswith("The groups:\n- web: Search and read pages\n- files")
    assert shown.input_schema["properties"]["to_activate"]["items"]["enum"] == ["web", "files"]


@pytest.mark.parametrize("made", [Toolkit(), Toolkit().create_group("own", active=True, switchable=False)])
async def test_without_groups_for_a_model_there_is_no_tool_that_switches(made: Toolkit) -> None:
    cook = ReActAgent("cook", ScriptedModel(["Hi."]), store="memory://", tools=made)
    await cook.call("Hello")

    assert list(requests(cook)[0].tools) == []


def test_a_tool_of_the_name_of_one_of_ours_is_refused() -> None:
    mine = kitchen([]).register(tool(name="reset_equipped_tools")(lambda: "x"))

    with pytest.raises(ConfigurationError, match="two tools are named 'reset_equipped_tools'"):
        ReActAgent("cook", ScriptedModel([]), store="memory://", tools=mine)


async def test_groups_are_switched_where_rules_have_the_user_asked_and_in_every_mode(store: Store) -> None:
    modes: list[Any] = ["accept_edits", "explore", "bypass", "dont_ask"]
    for mode in modes:
        cook = ReActAgent(
            "cook", ScriptedModel([switch("knives"), "Done."]), store=store, tools=kitchen([]), permissions=mode
        )
        reply = await cook.call("Switch", RuntimeContext("alice", mode))
        assert (reply.text, await active(cook, mode)) == ("Done.", ["knives"])


async def test_groups_are_kept_in_a_custom_store_of_states() -> None:
    states = PlainStates()
    await agent(states, [switch("knives"), "Done."]).call("Switch", ALICE)

    later = agent(states, ["Hi."])
    await later.call("Hello", ALICE)

    assert offered(later) == [["open_cupboard", "cut"]]


async def test_a_call_of_an_external_tool_that_is_not_active_is_answered_after_a_pause_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cook = agent(store, [[call("order", {"what": "tea"}, id="c1")]])
    on_commit(monkeypatch, 2, lambda: begin_shutdown(cook))
    assert await is_paused(asyncio.create_task(cook.call("Order tea", ALICE)))

    events = [event async for event in agent(store, ["No phone."]).stream(None, ALICE)]

    assert "REQUIRE_EXTERNAL_EXECUTION" not in [event.type for event in events]
    assert [event.message.text for event in events if event.type == "AGENT_RESULT" and event.message] == ["No phone."]
    result = (await history(store))[2].parts[0]
    assert "has not activated the tool 'order'" in result["output"][0]["text"]


async def test_a_call_of_an_external_tool_that_is_not_active_is_in_doubt_where_a_process_was_lost(
    store: Store,
) -> None:
    dying: Any = DyingStore(store, 3)
    with pytest.raises(Died):
        await agent(dying, [[call("order", {"what": "tea"}, id="c1")], "never said"]).call("Order tea", ALICE)
    await dying.bury("s1", "alice")

    assert (await agent(store, ["As you like."]).call("No, cook", ALICE)).text == "As you like."

    # It may have been active then, and the user been asked for the result.
    assert (await history(store))[2].parts[0]["output"][0]["text"].startswith("Outcome unknown")
