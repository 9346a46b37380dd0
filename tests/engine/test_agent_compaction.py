"""An agent lays a summary over the older messages of a conversation, between the steps of a turn."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import (
    AgentState,
    CompactionConfig,
    ConfigurationError,
    Message,
    ReActAgent,
    Session,
    SessionKey,
    assistant,
    create_compact_function,
    open_store,
    tool,
    user,
)
from leafward.core.calls import Call, Result, pair
from leafward.engine import Middleware, ModelRequest
from leafward.engine.summary_messages import SUMMARY_NAME
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import ALICE, is_paired
from tests.engine.custom_stores import AsyncStates
from tests.engine.talker import Talker, agent, is_prompt_for_summary, said, talk

KEY = SessionKey("s1", "alice")


@pytest.fixture
async def store() -> Any:
    async with open_store("memory://") as opened:
        yield opened


# ── when, and what ───────────────────────────────────────────────────────────


async def test_a_conversation_that_has_become_long_is_summed_up_before_the_model_is_asked(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())

    await talk(cook, 3)

    summary = "Here is a summary of the conversation to date:\n\nThey greeted each other."
    assert said(talker.asked[1].messages) == ["m1", "You said: m1", "m2"]
    assert said(talker.asked[2].messages) == ["m1", "You said: m1", "m2", "You said: m2", "m3"]
    assert talker.to_sum_up == []

    await talk(cook, 1, first=4)

    assert said(talker.asked[3].messages) == [summary, "You said: m3", "m4"]
    first = talker.asked[3].messages[0]
    assert (first.role, first.name) == ("user", SUMMARY_NAME)
    assert "You said: m1" in talker.to_sum_up[0]


async def test_the_summary_is_one_overlay_and_every_message_stays(store: Store) -> None:
    cook = agent(store, Talker().model())

    await talk(cook, 4)

    session = cook.session("alice", "s1")
    (made,) = await session.get_compactions()
    assert (made.summary, made.from_message_id) == ("They greeted each other.", "m1")
    assert said(await session.get_history()) == ["They greeted each other.", "You said: m3", "m4", "You said: m4"]
    assert len(await session.get_raw_history()) == 8
    assert [found.id for found in await session.search("m1") if found.role == "user"] == ["m1"]


async def test_slot_and_state_show_the_summary_as_agentscope_does(store: Store) -> None:
    cook = agent(store, Talker().model())

    await talk(cook, 4)

    state = await cook.get_agent_state("alice", "s1")
    slot = await store.states.get(KEY, "agent_state", AgentState)
    assert slot is not None
    assert state.summary == slot.summary == "They greeted each other."
    assert said(state.context) == said(slot.context)
    assert slot.context[0].name == SUMMARY_NAME
    assert slot.context[0].id.startswith(f"{SUMMARY_NAME}:")


async def test_a_later_summary_takes_in_the_earlier_one(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())

    await talk(cook, 4)
    talker.summary = "They greeted each other for long."
    await talk(cook, 4, first=5)

    assert "They greeted each other." in talker.to_sum_up[1]
    history = await cook.session("alice", "s1").get_history()
    assert history[0].text == "They greeted each other for long."
    assert len([one for one in history if one.id.startswith("compaction_")]) == 1
    assert len(await cook.session("alice", "s1").get_raw_history()) == 16


async def test_other_processes_show_the_same(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with agent(url, Talker().model()) as first:
        await talk(first, 4)
        before = (await first.get_agent_state("alice", "s1")).to_json()

    talker = Talker()
    async with agent(url, talker.model(), compaction=None) as second:
        assert (await second.get_agent_state("alice", "s1")).to_json() == before
        await talk(second, 1, first=5)
    assert talker.asked[0].messages[0].name == SUMMARY_NAME


async def test_a_trigger_in_tokens_counts_prompt_tools_and_messages(store: Store) -> None:
    @tool
    def look_up(word: str) -> str:
        """Look a word up in a very large dictionary, which has an entry for each word of every language."""
        return word

    talker = Talker()
    small = CompactionConfig(trigger_messages=None, trigger_tokens=350, keep_messages=2)
    with_prompt = agent(store, talker.model(), compaction=small, system_prompt="word " * 220, tools=[look_up])
    without = ReActAgent("other", talker.model(), store=store, compaction=small)

    await talk(without, 3)
    assert talker.to_sum_up == []
    await talk(with_prompt, 1, first=4)
    assert len(talker.to_sum_up) == 1


async def test_the_prompt_of_each_request_counts(store: Store) -> None:
    class Growing(Middleware):
        async def on_system_prompt(self, ctx: Any, prompt: str) -> str:
            return "word " * (1_000 if len(talker.asked) > 1 else 1)

    @tool
    def look() -> str:
        """Look."""
        return "Nothing."

    class Looking(Talker):
        async def reply(self, request: ModelRequest) -> Any:
            said = await super().reply(request)
            return [call("look")] if not is_prompt_for_summary(request) and len(self.asked) < 4 else said

    talker = Looking()
    small = CompactionConfig(trigger_messages=None, trigger_tokens=600, keep_messages=2)
    await talk(agent(store, talker.model(), compaction=small, tools=[look], middlewares=[Growing()]), 1)

    assert len(talker.asked[1].system) < 10 < len(talker.asked[2].system)
    assert len(talker.to_sum_up) == 1


async def test_what_stays_may_be_given_in_tokens(store: Store) -> None:
    talker = Talker()
    config = CompactionConfig(trigger_messages=6, keep_tokens=7)
    cook = agent(store, talker.model(), compaction=config)

    await talk(cook, 4)

    # Four for the envelope, and two for the word.
    assert said(talker.asked[3].messages)[1:] == ["m4"]


async def test_of_short_messages_no_more_stay_than_half_of_the_trigger(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model(), compaction=CompactionConfig(trigger_messages=6, keep_tokens=10_000))

    await talk(cook, 4)

    assert said(talker.asked[3].messages)[1:] == ["m3", "You said: m3", "m4"]


async def test_another_model_may_write_the_summaries(store: Store) -> None:
    talker, writer = Talker(), Talker(summary="Written by another.")
    config = CompactionConfig(trigger_messages=6, keep_messages=2, model=writer.model())

    await talk(agent(store, talker.model(), compaction=config), 4)

    assert (len(talker.to_sum_up), len(writer.to_sum_up)) == (0, 1)
    assert "Written by another." in talker.asked[3].messages[0].text


async def test_the_last_question_after_all_rounds_is_compacted_for_as_well(store: Store) -> None:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            return "It looked."
        return [call("look")] if request.tools else "Enough."

    model = ScriptedModel(reply)
    cook = agent(store, model, tools=[look], max_iterations=3)
    answer = await cook.call("look around", ALICE)

    assert answer.text == "Enough."
    assert len(model.requests[-1].messages) < 6
    assert model.requests[-1].messages[0].name == SUMMARY_NAME


# ── calls and results, plan, permissions ─────────────────────────────────────


async def test_calls_and_their_results_stay_whole(store: Store) -> None:
    @tool(read_only=True)
    def look(place: str) -> str:
        """Look."""
        return f"seen {place}"

    rounds = 6
    requests: list[ModelRequest] = []

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            return "They looked."
        requests.append(request)
        if len(requests) > rounds:
            return "Done."
        return [call("look", {"place": f"{len(requests)} {side}"}) for side in ("left", "right", "up")]

    for keep in (1, 2, 3):
        requests.clear()
        config = CompactionConfig(trigger_messages=7, keep_messages=keep)
        cook = ReActAgent(f"cook{keep}", ScriptedModel(reply), store=store, tools=[look], compaction=config)
        await cook.call("look around", ALICE)

        assert all(is_paired(list(request.messages)) for request in requests)
        for request in requests:
            pairs = pair(list(request.messages))
            calls = [item for row in pairs.items for item in row if isinstance(item, Call)]
            results = [item for row in pairs.items for item in row if isinstance(item, Result)]
            assert len(calls) == len(results)
        assert (await cook.session("alice", "s1").get_compactions()) != []


async def test_permissions_and_everything_else_of_the_state_are_untouched(store: Store) -> None:
    cook = agent(store, Talker().model(), permissions="accept_edits")
    await talk(cook, 3)
    state = await cook.get_agent_state("alice", "s1")
    state.plan_mode_context.plan_active = True
    state.extra["own"] = {"kept": True}
    await cook.save_agent_state("alice", "s1", state)

    await talk(cook, 1, first=4)

    after = await cook.get_agent_state("alice", "s1")
    assert after.summary
    assert after.permission_context.mode == "accept_edits"
    assert after.plan_mode_context.plan_active
    assert after.extra["own"] == {"kept": True}


async def test_what_a_view_hides_is_not_summed_up_and_stays_hidden(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())
    await talk(cook, 3)
    state = await cook.get_agent_state("alice", "s1")
    # Another program hides the second pair, and puts a remark in front of the third.
    del state.context[2:4]
    state.context.insert(2, user("a remark", id="remark"))
    await cook.save_agent_state("alice", "s1", state)

    await talk(cook, 2, first=4)

    assert "a remark" in talker.to_sum_up[0]
    assert "m2" not in talker.to_sum_up[0]
    assert said(talker.asked[-1].messages)[1:] == ["You said: m3", "m4", "You said: m4", "m5"]
    state = await cook.get_agent_state("alice", "s1")
    assert said(state.context)[1:] == ["You said: m3", "m4", "You said: m4", "m5", "You said: m5"]
    assert len(await cook.session("alice", "s1").get_raw_history()) == 10


async def test_what_a_view_puts_below_the_summary_stays_where_it_is(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model(), compaction=CompactionConfig(trigger_messages=7, keep_messages=4))
    await talk(cook, 3)
    state = await cook.get_agent_state("alice", "s1")
    state.context.insert(5, user("a remark", id="remark"))
    state.context[0:1] = []
    await cook.save_agent_state("alice", "s1", state)

    await talk(cook, 1, first=4)

    assert said(talker.asked[-1].messages)[1:] == ["m3", "a remark", "You said: m3", "m4"]
    again = await agent(store, Talker().model()).get_agent_state("alice", "s1")
    assert said(again.context)[1:] == ["m3", "a remark", "You said: m3", "m4", "You said: m4"]


# ── input ────────────────────────────────────────────────────────────────────


async def test_input_that_a_summary_covers_is_never_doubled(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())
    await talk(cook, 4)

    again = await cook.call(user("m1", id="m1"), ALICE)

    assert again.text == "You said: m1"
    assert len(talker.asked) == 4
    assert len(await cook.session("alice", "s1").get_raw_history()) == 8


# ── a compaction function ────────────────────────────────────────────────────


async def test_a_compaction_function_is_asked_at_80_000_tokens(store: Store) -> None:
    prompts: list[str] = []

    async def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return "They talked for long."

    model = ScriptedModel(lambda request: f"{len(request.messages)} " + "word " * 35_000)
    cook = agent(store, model, compaction=create_compact_function(summarize=summarize))

    await talk(cook, 2)
    assert prompts == []
    await talk(cook, 1, first=3)
    assert prompts
    assert model.requests[-1].messages[0].id == "m1" or model.requests[-1].messages[0].name == SUMMARY_NAME
    assert "They talked for long." in " ".join(said(model.requests[-1].messages))


# ── save="call", and custom stores ───────────────────────────────────────────


async def test_where_whole_turns_are_stored_a_compaction_stores_what_there_is(store: Store) -> None:
    talker = Talker()
    stored: list[list[str]] = []

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            stored.append(said(await Session(store, "s1", user_id="alice", agent_id="cook").get_history())[-1:])
        return await talker.reply(request)

    cook = agent(store, ScriptedModel(reply), save="call")
    await talk(cook, 4)

    assert stored == [["m4"]]
    assert said(talker.asked[3].messages)[1:] == ["You said: m3", "m4"]
    assert len(await cook.session("alice", "s1").get_raw_history()) == 8


async def test_in_a_custom_store_of_states_the_context_itself_is_rewritten() -> None:
    states = AsyncStates()
    talker = Talker()
    cook = agent(states, talker.model())

    await talk(cook, 4)
    talker.summary = "They greeted each other for long."
    await talk(cook, 4, first=5)

    assert "They greeted each other." in talker.to_sum_up[1]
    state = await cook.get_agent_state("alice", "s1")
    assert state.summary == "They greeted each other for long."
    assert state.context[0].name == SUMMARY_NAME
    assert said(state.context)[1:] == ["You said: m7", "m8", "You said: m8"]
    assert said(talker.asked[-1].messages)[1:] == ["You said: m7", "m8"]


# ── with others ──────────────────────────────────────────────────────────────


async def test_a_session_of_the_agent_is_compacted_by_hand_in_the_same_way(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())
    await talk(cook, 2)

    made = await cook.session("alice", "s1").compact()

    assert made is not None
    assert made.summary == "They greeted each other."
    await talk(cook, 1, first=3)
    assert talker.asked[-1].messages[0].name == SUMMARY_NAME


async def test_a_session_has_no_compaction_of_its_own_beside_that_of_the_agent(store: Store) -> None:
    cook = agent(store, Talker().model())
    with pytest.raises(ConfigurationError, match="the agent compacts this session"):
        cook.session("alice", "s1").on_compaction(lambda messages: None)
    with pytest.raises(ConfigurationError, match="the agent compacts this session"):
        cook.session("alice", "s1").compact_after(1000)
    agent(store, Talker().model(), compaction=None).session("alice", "s1").on_compaction(lambda messages: None)


async def test_the_log_of_a_session_says_what_the_agent_compacted(store: Store) -> None:
    cook = agent(store, Talker().model())
    session = cook.session("alice", "s1")
    assert session.compaction_log == []
    await talk(cook, 4)

    (record,) = session.compaction_log
    assert record.automatic
    assert record.compaction is not None


async def test_a_checkout_above_a_summary_shows_the_messages_again(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())
    await talk(cook, 4)
    session = cook.session("alice", "s1")
    second = (await session.get_raw_history())[3]

    await session.checkout(second.id)
    await talk(cook, 1, first=9)

    assert said(talker.asked[-1].messages) == ["m1", "You said: m1", "m2", "You said: m2", "m9"]
    assert (await cook.get_agent_state("alice", "s1")).summary == ""


async def test_a_slot_that_another_writer_changed_meanwhile_is_merged_below_the_summary(store: Store) -> None:
    talker = Talker()

    async def reply(request: ModelRequest) -> Any:
        if not is_prompt_for_summary(request) and request.messages[-1].text == "m4":
            slot = await store.states.get(KEY, "agent_state", AgentState)
            assert slot is not None
            slot.context.append(user("from another", id="other"))
            await store.states.save(KEY, "agent_state", slot)
        return await talker.reply(request)

    cook = agent(store, ScriptedModel(reply), conflict_policy="append_merge")
    await talk(cook, 4)

    state = await cook.get_agent_state("alice", "s1")
    assert said(state.context)[1:] == ["You said: m3", "from another", "m4", "You said: m4"]
    assert state.context[0].name == SUMMARY_NAME


# ── options ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trigger_messages": None}, "has a trigger"),
        ({"trigger_messages": 2}, "trigger_messages is a number of messages, 3 or more, not 2"),
        ({"trigger_messages": True}, "trigger_messages"),
        ({"trigger_tokens": 10}, "trigger_tokens is a number of tokens, 50 or more, not 10"),
        ({"keep_messages": 0}, "keep_messages is a number of messages, 1 or more"),
        ({"keep_tokens": 0}, "keep_tokens is a number of tokens, 1 or more"),
        ({"trigger_messages": 21}, "keep at least two fewer"),
        ({"model": "gpt"}, "model is an object with a method `stream`"),
    ],
)
def test_a_compaction_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CompactionConfig(**options)


def test_what_is_not_a_compaction_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="compaction is a CompactionConfig"):
        ReActAgent("cook", Talker().model(), store="memory://", compaction=50)  # pyright: ignore[reportArgumentType]


async def test_assistants_words_are_summed_up_whoever_stored_them(store: Store) -> None:
    talker = Talker()
    cook = agent(store, talker.model())
    session = cook.session("alice", "s1")
    await session.append_messages([user("m0"), assistant("a0"), *(Message("user", f"x{n}") for n in range(5))])

    await talk(cook, 1)

    assert "a0" in talker.to_sum_up[0]
    assert len(talker.asked[0].messages) == 3
