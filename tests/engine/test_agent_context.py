"""Context blocks of an agent: in the prompt of each session, written by the model through the session's tools."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import (
    CompactionConfig,
    ConfigurationError,
    LeaseLost,
    ReActAgent,
    RuntimeContext,
    StoredSearchProvider,
    open_store,
    tool,
    user,
)
from leafward.engine import ModelRequest
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import ALICE, BAKE, Oven
from tests.engine.custom_stores import AsyncStates
from tests.engine.talker import is_prompt_for_summary

MEMORY: dict[str, Any] = {"label": "memory", "description": "Learned facts", "max_tokens": 100}


def agent(store: Any, script: Any, **options: Any) -> ReActAgent:
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return ReActAgent("cook", model, store=store, **{"context": [MEMORY], **options})


def write(content: str, *, action: str = "replace", id: str | None = None) -> dict[str, Any]:
    return call("set_context", {"label": "memory", "content": content, "action": action}, id=id)


def results(request: ModelRequest) -> list[str]:
    return [
        part["output"][0]["text"] for one in request.messages for part in one.parts if part["type"] == "tool_result"
    ]


@pytest.fixture
async def store() -> Any:
    async with open_store("memory://") as opened:
        yield opened


# ── the prompt ───────────────────────────────────────────────────────────────


async def test_blocks_are_part_of_the_prompt_behind_the_agents_own(store: Store) -> None:
    model = ScriptedModel(["hi"])
    soul = {"label": "soul", "provider": "You like tea."}
    cook = agent(store, model, system_prompt="Be brief.", context=[soul, MEMORY])
    await cook.session("alice", "s1").replace_context_block("memory", "Alice takes coffee black.")

    await cook.call("hello", ALICE)

    prompt = model.requests[0].system
    assert prompt.startswith("Be brief.\n\n")
    assert prompt.index("You like tea.") < prompt.index("Alice takes coffee black.")


async def test_each_session_has_blocks_of_its_own_and_shared_ones_are_those_of_the_user(store: Store) -> None:
    model = ScriptedModel(lambda _: "hi")
    cook = agent(store, model, context=[MEMORY, {"label": "facts", "shared": True}])
    await cook.session("alice", "s1").replace_context_block("memory", "only in one")
    await cook.session("alice", "s1").replace_context_block("facts", "for all of hers")

    for ctx in (ALICE, RuntimeContext("alice", "s2"), RuntimeContext("bob", "s1")):
        await cook.call("hello", ctx)

    first, second, bobs = (request.system for request in model.requests)
    assert "only in one" in first
    assert "only in one" not in second
    assert "for all of hers" in first
    assert "for all of hers" in second
    assert "for all of hers" not in bobs


async def test_the_prompt_stays_the_same_within_a_turn_and_is_rendered_for_the_next_one(store: Store) -> None:
    model = ScriptedModel([[write("Alice likes tea.")], "Noted.", "Tea."])
    cook = agent(store, model, session_tools=True)

    await cook.call("I like tea.", ALICE)
    await cook.call("What do I like?", ALICE)

    first, second, third = (request.system for request in model.requests)
    assert first == second
    assert "Alice likes tea." in third


async def test_a_cached_prompt_is_the_same_in_all_turns_and_processes_until_it_is_refreshed(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    prompts: list[str] = []
    for number in range(3):
        model = ScriptedModel([[write(f"note {number}", action="append")], "Noted."])
        async with agent(url, model, cached_prompt=True, session_tools=True) as cook:
            await cook.call(f"turn {number}", ALICE)
            prompts += [request.system for request in model.requests]
    assert len(set(prompts)) == 1
    assert "note 0" not in prompts[0]

    model = ScriptedModel(["hi"])
    async with agent(url, model, cached_prompt=True, session_tools=True) as cook:
        session = cook.session("alice", "s1")
        assert await session.is_prompt_stale(content=True)
        refreshed = await session.refresh_system_prompt()
        await cook.call("go on", ALICE)
    assert model.requests[0].system == refreshed
    assert "note 0\nnote 1\nnote 2" in refreshed


async def test_a_cleared_context_has_a_cached_prompt_rendered_again(store: Store) -> None:
    model = ScriptedModel([[write("Alice likes tea.")], "Noted.", "hi"])
    cook = agent(store, model, cached_prompt=True, session_tools=True)
    await cook.call("I like tea.", ALICE)

    await cook.clear_context("alice", "s1")
    await cook.call("hello", ALICE)

    assert "Alice likes tea." in model.requests[-1].system
    assert len(model.requests[-1].messages) == 1


@pytest.mark.parametrize("cached", [False, True])
async def test_after_a_compaction_the_prompt_is_rendered_again(store: Store, cached: bool) -> None:
    asked: list[ModelRequest] = []

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            return "They noted."
        asked.append(request)
        return [write(f"note {len(asked)}", action="append")] if len(asked) < 4 else "Done."

    config = CompactionConfig(trigger_messages=5, keep_messages=2)
    cook = agent(store, ScriptedModel(reply), cached_prompt=cached, session_tools=True, compaction=config)
    await cook.call("take notes", ALICE)

    assert asked[0].system == asked[1].system
    assert "note 1\nnote 2" in asked[2].system
    assert "expand_summary" in asked[2].tools
    assert "expand_summary" not in asked[1].tools


async def test_a_block_whose_provider_fails_fails_the_call_and_the_session_goes_on(store: Store) -> None:
    works = False

    def weather() -> str:
        if works:
            return "Sun."
        raise RuntimeError("no weather")

    model = ScriptedModel(["It is sunny."])
    cook = agent(store, model, context=[{"label": "weather", "provider": {"get": weather}}])
    with pytest.raises(Exception, match="weather"):
        await cook.call(user("How is it?", id="q"), ALICE)
    works = True

    assert (await cook.call(user("How is it?", id="q"), ALICE)).text == "It is sunny."
    assert "Sun." in model.requests[0].system


# ── tools ────────────────────────────────────────────────────────────────────


async def test_the_model_writes_what_it_learned_and_another_process_knows_it(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with agent(url, [[write("Alice likes tea.")], "Noted."], session_tools=True) as cook:
        await cook.call("I like tea.", ALICE)
    model = ScriptedModel(["Tea."])
    async with agent(url, model, session_tools=True) as cook:
        await cook.call("What do I like?", ALICE)

    assert "Alice likes tea." in model.requests[0].system
    assert results(model.requests[0]) == ["Written to memory. Usage: 4% (4/100 tokens)"]


async def test_without_session_tools_the_model_reads_and_cannot_write(store: Store) -> None:
    model = ScriptedModel([[write("x")], "hm"])
    cook = agent(store, model)
    await cook.call("hello", ALICE)

    assert list(model.requests[0].tools) == []
    assert "there is no tool 'set_context'" in results(model.requests[1])[0]


async def test_a_session_offers_what_its_blocks_allow_beside_the_tools_of_the_agent(store: Store) -> None:
    model = ScriptedModel(["hi"])
    notes = {"label": "notes", "provider": StoredSearchProvider()}
    cook = agent(store, model, context=[MEMORY, notes], session_tools=True, tools=Oven().tools())
    await cook.call("hello", ALICE)

    assert list(model.requests[0].tools) == ["bake", "set_context", "search_context", "list_context", "delete_context"]


@pytest.mark.parametrize("name", ["set_context", "expand_summary"])
async def test_a_tool_named_as_one_of_the_session_is_refused_at_the_first_call(store: Store, name: str) -> None:
    @tool(name=name)
    def mine() -> str:
        """Mine."""
        return "mine"

    cook = agent(store, ["hi"], session_tools=True, tools=[mine])
    with pytest.raises(ConfigurationError, match=f"two tools are named '{name}', and one is the session's own"):
        await cook.call("hello", ALICE)
    assert await cook.session("alice", "s1").get_raw_history() == []
    await agent(store, ["hi"], tools=[mine]).call("hello", ALICE)


async def test_a_model_does_not_overwrite_what_another_chat_wrote_meanwhile(store: Store) -> None:
    shared = {**MEMORY, "shared": True}

    async def meanwhile(_: Any) -> None:
        await cook.session("alice", "other").append_context_block("memory", "Is allergic to nuts.")

    model = ScriptedModel([[meanwhile, write("Likes tea.")], [write("Is allergic to nuts. Likes tea.")], "Noted."])
    cook = agent(store, model, context=[shared], session_tools=True)
    await cook.call("I like tea.", ALICE)

    refused, written = results(model.requests[2])
    assert "nothing was written" in refused
    assert refused.endswith("Is allergic to nuts.")
    assert written.startswith("Written")


async def test_calls_of_one_reply_write_one_after_the_other(tmp_path: Any) -> None:
    calls = [write(f"line {number}", action="append") for number in range(4)]
    model = ScriptedModel([[*calls, write("all new"), write("the end", action="append")], "Noted."])
    # There each write waits for a disk, so that others could overtake it.
    async with open_store(f"sqlite:///{tmp_path}/a.db") as store:
        cook = agent(store, model, session_tools=True)
        await cook.call("note", ALICE)

        block = await cook.session("alice", "s1").get_context_block("memory")
        assert block is not None
        assert block.content == "all new\nthe end"
        assert [one.startswith("Written") for one in results(model.requests[1])] == [True] * 6


async def test_a_turn_that_has_lost_its_lease_writes_no_block(store: Store) -> None:
    async def lose(_: Any) -> None:
        holder = await store.leases.holder("s1", "alice")
        assert holder is not None
        await store.leases.release("s1", "alice", token=holder.token)

    @tool(read_only=True)
    async def wait() -> str:
        """Lose the lease beside the call that writes."""
        return "waited"

    cook = agent(store, [[write("late"), lose]], session_tools=True, tools=[wait])
    with pytest.raises(LeaseLost):
        await cook.call("note", ALICE)

    block = await cook.session("alice", "s1").get_context_block("memory")
    assert block is not None
    assert block.content == ""


@pytest.mark.parametrize(
    ("before", "after"), [("", "tea"), ("tea", "tea"), ("coffee", "coffee\ntea"), ("coffee\ntea", "coffee\ntea")]
)
async def test_an_append_that_was_cut_off_is_not_made_twice(store: Store, before: str, after: str) -> None:
    """What it wrote is in the block, or not: the process was lost on either side of the write."""
    from tests.engine.dying_store import Died, DyingStore

    dying = DyingStore(store, 3)  # slot, input, intent
    with pytest.raises(Died):
        await agent(dying, [[write("tea", action="append", id="c1")]], session_tools=True).call("I like tea.", ALICE)
    await dying.bury("s1", "alice")
    model = ScriptedModel(["Noted."])
    cook = agent(store, model, session_tools=True)
    await cook.session("alice", "s1").replace_context_block("memory", before)
    await cook.call(None, ALICE)

    block = await cook.session("alice", "s1").get_context_block("memory")
    assert block is not None
    assert block.content == after
    assert results(model.requests[0])[0].startswith("Written to memory.")


async def test_permissions_are_heeded_for_the_sessions_tools(store: Store) -> None:
    model = ScriptedModel([[write("x")], "I may not."])
    cook = agent(store, model, session_tools=True, permissions="explore")
    await cook.call("note", ALICE)

    assert "Written" not in results(model.requests[1])[0]


# ── the handle, and options ──────────────────────────────────────────────────


async def test_the_handle_of_the_agent_has_the_same_blocks(store: Store) -> None:
    cook = agent(store, ["hi"])
    session = cook.session("alice", "s1")
    blocks = await session.get_context_blocks()
    assert [(block.label, block.max_tokens, block.writable) for block in blocks] == [("memory", 100, True)]
    assert list(await session.tools()) == ["set_context"]


async def test_a_custom_store_of_states_has_no_place_for_blocks() -> None:
    for options in ({}, {"context": (), "cached_prompt": True}, {"context": (), "session_tools": True}):
        with pytest.raises(ConfigurationError, match="needs a tree of messages"):
            agent(AsyncStates(), ["hi"], **options)

    cook = agent("memory://", ["hi"])
    with pytest.raises(ConfigurationError, match="context= needs a tree of messages"):
        await cook.call("hello", RuntimeContext("alice", "s1", session=AsyncStates()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": [MEMORY, MEMORY]}, "there is a block 'memory' already"),
        ({"context": ["memory"]}, "a context block is set up by a dict or a ContextConfig"),
        (
            {"context": [{"label": "a", "color": "red"}]},
            "no 'color'; its keys are label, description, max_tokens, ",
        ),
        ({"context": [{}]}, "a context block is not set up like this"),
        ({"context": "memory"}, "context is not 'memory': give a list of blocks"),
        ({"context": {"label": "memory"}}, "give a list of blocks"),
        ({"cached_prompt": "yes"}, "cached_prompt is True or False"),
        ({"session_tools": 1}, "session_tools is True or False"),
    ],
)
def test_options_that_cannot_be_are_refused_when_the_agent_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        agent("memory://", ["hi"], **options)


async def test_an_agent_without_blocks_asks_its_store_for_nothing_more(store: Store) -> None:
    model = ScriptedModel([BAKE, "Done."])
    oven = Oven()
    oven.is_done.set()
    cook = agent(store, model, context=(), tools=oven.tools(), system_prompt="Bake.")
    await cook.call("bread", ALICE)
    assert [request.system for request in model.requests] == ["Bake.", "Bake."]
