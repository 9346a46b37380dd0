"""Calls that the user is asked about: listed and answered in any process, and nothing runs before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import pytest

from leafward import AgentShuttingDown, ConfigurationError, Message, ReActAgent, RuntimeContext, open_store, tool, user
from leafward.core.agent_contexts import PermissionContext, PermissionRule
from leafward.engine import Opinion
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, is_paired, results
from tests.engine.two_handles import Handles, on

BOOK = [call("book", {"city": "Kyoto"}, id="c1"), call("look", {"city": "Kyoto"}, id="c2")]


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


class Desk:
    """An agent whose tool `book` is asked about, and what ran."""

    def __init__(self, store: Any, script: Any = None, **options: Any) -> None:
        self.ran: list[str] = []
        self.model = ScriptedModel(script or self._reply)
        options.setdefault("permissions", asking("book"))
        self.agent = ReActAgent("desk", self.model, store=store, tools=self._tools(), **options)

    def _reply(self, request: Any) -> Any:
        said = [message for message in request.messages if message.role == "user"][-1].text
        asked = {part["id"] for message in request.messages for part in message.parts if part["type"] == "tool_use"}
        return BOOK if said.startswith("Book") and "c1" not in asked else "Done."

    def _tools(self) -> list[Any]:
        @tool
        async def book(city: str, ctx: RuntimeContext) -> str:
            """Book a room."""
            self.ran.append(f"book {city}")
            return f"booked in {city}"

        @tool(read_only=True)
        def look(city: str) -> str:
            """Look at a city."""
            self.ran.append(f"look {city}")
            return f"{city} is nice"

        return [book, look]

    async def results(self) -> dict[str, tuple[str, str]]:
        return results((await self.agent.get_agent_state("alice", "s1")).context)


def asking(*names: str) -> PermissionContext:
    found = PermissionContext(mode="bypass")
    for name in names:
        found.ask_rules[name] = [PermissionRule(name, "ask", "policy")]
    return found


def reason(message: Message) -> Any:
    return (message.metadata or {}).get("agentscope_generate_reason")


async def test_while_one_call_is_asked_about_none_of_the_reply_runs(store: Store) -> None:
    desk = Desk(store)

    reply = await desk.agent.call("Book a room", ALICE)

    assert (reason(reply), desk.ran) == ("PERMISSION_ASKING", [])
    assert [part["state"] for part in reply.parts if part["type"] == "tool_use"] == ["asking", "allowed"]
    (question,) = await desk.agent.questions("alice", "s1")
    assert (question.call["id"], question.call["input"], question.reply_id) == ("c1", {"city": "Kyoto"}, reply.id)
    assert question.suggested_rules == [PermissionRule("book", "allow", "suggested")]
    again = await desk.agent.call("Book a room", ALICE)
    assert (again.id, desk.ran, len(desk.model.requests)) == (reply.id, [], 1)

    answered = await desk.agent.answer("alice", "s1", {"c1": True})

    assert (answered.text, sorted(desk.ran)) == ("Done.", ["book Kyoto", "look Kyoto"])
    assert await desk.agent.questions("alice", "s1") == []
    assert is_paired(desk.model.requests[1].messages)
    stored = await desk.agent.session("alice", "s1").get_history()
    assert [message.role for message in stored] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_a_declined_call_is_answered_as_denied_and_the_others_run(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)

    await desk.agent.answer("alice", "s1", {"c1": False})

    assert desk.ran == ["look Kyoto"]
    assert (await desk.results())["c1"] == ("denied", "Permission denied by user")


async def test_answers_are_plain_data_that_may_edit_the_call_and_bring_rules(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)
    (question,) = await desk.agent.questions("alice", "s1")
    answer = {
        "confirmed": True,
        "toolCall": {**question.call, "input": {"city": "Nara"}},
        "rules": [{"tool_name": "book", "rule_content": None, "behavior": "allow", "source": "suggested"}],
    }
    hop = json.loads(json.dumps({"role": "user", "parts": [], "metadata": {"agentscope_confirm_results": [answer]}}))

    await desk.agent.call(Message.from_dict(hop), ALICE)

    assert "book Nara" in desk.ran
    (rule,) = (await desk.agent.get_permissions("alice", "s1")).allow_rules["book"]
    assert rule.extra == {"leafward_accepted": True}
    other = Desk(store)  # another process: the rule is in the session, and beats the ask rule
    other.model = ScriptedModel([[call("book", {"city": "Uji"}, id="c9")], "Done."])
    agent = ReActAgent("desk", other.model, store=store, tools=other._tools(), permissions=asking("book"))
    assert (await agent.call("Book another", ALICE)).text == "Done."
    assert other.ran == ["book Uji"]
    assert (await agent.get_permissions("bob", "s1")).allow_rules == {}


@pytest.mark.parametrize("is_sent", [False, True])
async def test_what_a_question_suggests_can_be_sent_back_as_it_is(store: Store, is_sent: bool) -> None:
    desk = Desk(store, [[call("book", {"city": "Kyoto"}, id="c1")], [call("book", {"city": "Uji"}, id="c2")], "Done."])
    await desk.agent.call("Book two rooms", ALICE)
    (question,) = await desk.agent.questions("alice", "s1")
    sent = json.loads(json.dumps(question.to_dict()))
    assert (sent["replyId"], datetime.fromisoformat(sent["askedAt"])) == (question.reply_id, question.asked_at)

    given = sent if is_sent else {"toolCall": question.call, "rules": question.suggested_rules}
    reply = await desk.agent.answer("alice", "s1", [{**given, "confirmed": True}])

    assert (reply.text, desk.ran) == ("Done.", ["book Kyoto", "book Uji"])


async def test_answers_may_come_in_parts_and_the_rest_is_asked_again(store: Store) -> None:
    desk = Desk(store, permissions=asking("book", "look"))
    await desk.agent.call("Book a room", ALICE)

    rest = await desk.agent.answer("alice", "s1", {"c2": True})

    assert (reason(rest), desk.ran) == ("PERMISSION_ASKING", [])
    assert [question.call["id"] for question in await desk.agent.questions("alice", "s1")] == ["c1"]
    assert (await desk.agent.answer("alice", "s1", {"c1": True})).text == "Done."
    assert sorted(desk.ran) == ["book Kyoto", "look Kyoto"]


async def test_the_same_answer_again_changes_nothing(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)
    first = await desk.agent.answer("alice", "s1", {"c1": True})

    again = await desk.agent.answer("alice", "s1", {"c1": True})

    assert (again.id, len(desk.ran), len(desk.model.requests)) == (first.id, 2, 2)
    with pytest.raises(ValueError, match="the call 'c1' has been answered already, and differently"):
        await desk.agent.answer("alice", "s1", {"c1": False})


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"c2": True}, "no question is open about a call 'c2'; about these: c1"),
        ({"zz": True}, "no question is open about a call 'zz'"),
        ([{"confirmed": "yes", "toolCall": {"id": "c1"}}], "an answer is"),
        ([{"confirmed": True}], "an answer is"),
        ([], "is a list of answers"),
        (
            [{"confirmed": True, "toolCall": {"id": "c1"}}, {"confirmed": False, "toolCall": {"id": "c1"}}],
            "two answers about the call 'c1'",
        ),
        ([{"confirmed": True, "toolCall": {"id": "c1", "name": "rm"}}], "cannot make it one of 'rm'"),
        ([{"confirmed": True, "toolCall": {"id": "c1", "input": "all"}}], "are an object"),
        ([{"confirmed": True, "toolCall": {"id": "c1"}, "rules": [{"tool_name": "book"}]}], "a rule is {"),
        (
            [
                {
                    "confirmed": True,
                    "toolCall": {"id": "c1"},
                    "rules": [{"tool_name": "rm", "behavior": "allow", "source": "x"}],
                }
            ],
            "is for 'rm'",
        ),
        (
            [
                {
                    "confirmed": True,
                    "toolCall": {"id": "c1"},
                    "rules": [{"tool_name": "book", "behavior": "deny", "source": "x"}],
                }
            ],
            "has to allow calls",
        ),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_and_changes_nothing(
    store: Store, answers: Any, said: str
) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)
    before = (await desk.agent.get_agent_state("alice", "s1")).to_json()

    with pytest.raises(ValueError, match=said):
        await desk.agent.answer("alice", "s1", answers)

    assert (desk.ran, (await desk.agent.get_agent_state("alice", "s1")).to_json()) == ([], before)
    assert (await desk.agent.answer("alice", "s1", {"c1": True})).text == "Done."


async def test_words_beside_an_answer_are_refused(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)
    answer = [{"confirmed": True, "toolCall": {"id": "c1"}}]

    with pytest.raises(ValueError, match="sent alone"):
        await desk.agent.call(Message("user", "And hurry", metadata={"agentscope_confirm_results": answer}), ALICE)


async def test_a_plain_message_declines(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)

    assert (await desk.agent.call("Never mind", ALICE)).text == "Done."

    found = await desk.results()
    assert (found["c1"], found["c2"][0]) == (("denied", "Permission denied by user"), "interrupted")
    assert desk.ran == []


@pytest.mark.parametrize("given", [None, "Book a room", "Something else"])
async def test_a_question_that_nobody_answers_in_time_is_declined_by_the_next_call(store: Store, given: Any) -> None:
    desk = Desk(store, ask_timeout=0.05)
    await desk.agent.call("Book a room", ALICE)
    await asyncio.sleep(0.06)

    assert await desk.agent.questions("alice", "s1") == []
    with pytest.raises(ValueError, match="is over"):
        await desk.agent.answer("alice", "s1", {"c1": True})
    assert (await desk.agent.call(given, ALICE)).text == "Done."

    assert (await desk.results())["c1"] == ("denied", "Permission denied: the user has not answered in time")
    assert desk.ran == (["look Kyoto"] if given != "Something else" else [])


async def test_a_rule_that_denies_answers_the_call_and_the_others_run(store: Store) -> None:
    denying = PermissionContext(mode="bypass", deny_rules={"book": [PermissionRule("book", "deny", "policy")]})
    desk = Desk(store, permissions=denying)

    events = [event async for event in desk.agent.stream("Book a room", ALICE)]

    assert desk.ran == ["look Kyoto"]
    assert (await desk.results())["c1"] == ("denied", "Permission denied by rules: a rule")
    assert "ALL_TOOLS_DENIED" not in [event.type for event in events]


@pytest.mark.parametrize("mode", ["dont_ask", "explore"])
async def test_a_reply_all_of_whose_calls_are_denied_is_told_and_the_model_goes_on(store: Store, mode: Any) -> None:
    desk = Desk(store, [[call("book", {"city": "Kyoto"}, id="c1")], "I may not."], permissions=mode)

    events = [event async for event in desk.agent.stream("Book a room", ALICE)]

    assert [event.type for event in events].count("ALL_TOOLS_DENIED") == 1
    assert events[-2].message is not None
    assert (events[-2].message.text, desk.ran) == ("I may not.", [])


async def test_events_ask_and_tell_what_was_answered(store: Store) -> None:
    desk = Desk(store)

    asked = [event async for event in desk.agent.stream("Book a room", ALICE)]
    (confirm,) = [event for event in asked if event.type == "REQUIRE_USER_CONFIRM"]
    assert ([part["id"] for part in confirm.data], confirm.committed) == (["c1"], True)
    answer = Message(
        "user", [], metadata={"agentscope_confirm_results": [{"confirmed": False, "toolCall": {"id": "c1"}}]}
    )
    told = [event async for event in desk.agent.stream(answer, ALICE)]

    (result,) = [event for event in told if event.type == "USER_CONFIRM_RESULT"]
    assert [one["confirmed"] for one in result.data] == [False]


# ── a tool's own check ───────────────────────────────────────────────────────


def _raises(arguments: Any, ctx: RuntimeContext) -> None:
    raise OSError("no")


async def _hangs(arguments: Any, ctx: RuntimeContext) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (lambda arguments, ctx: None, "success"),
        (lambda arguments, ctx: "allow", "success"),
        (lambda arguments, ctx: "deny", "denied"),
        (lambda arguments, ctx: Opinion("deny", f"not to {arguments['city']} for {ctx.user_id}"), "denied"),
        (lambda arguments, ctx: "perhaps", "denied"),
        (lambda arguments, ctx: Opinion("denied", "no"), "denied"),  # pyright: ignore[reportArgumentType]
        (_raises, "denied"),
        (_hangs, "denied"),
    ],
)
async def test_a_check_decides_where_no_rules_are(store: Store, check: Any, state: str) -> None:
    @tool(check=check, timeout=0.05)
    async def book(city: str) -> str:
        """Book a room."""
        return "booked"

    model = ScriptedModel([[call("book", {"city": "Kyoto"}, id="c1")], "Done."])
    agent = ReActAgent("desk", model, store=store, tools=[book])

    assert (await agent.call("Book", ALICE)).text == "Done."
    assert results((await agent.get_agent_state("alice", "s1")).context)["c1"][0] == state


async def test_a_check_that_asks_asks_although_there_are_no_rules(store: Store) -> None:
    @tool(check=lambda arguments, ctx: "ask")
    async def book(city: str) -> str:
        """Book a room."""
        return "booked"

    model = ScriptedModel([[call("book", {"city": "Kyoto"}, id="c1")], "Done."])
    agent = ReActAgent("desk", model, store=store, tools=[book])

    assert reason(await agent.call("Book", ALICE)) == "PERMISSION_ASKING"
    without = ReActAgent("desk", ScriptedModel(["Gone."]), store=store)
    assert (await without.answer("alice", "s1", {"c1": True})).text == "Gone."
    state, text = results((await without.get_agent_state("alice", "s1")).context)["c1"]
    assert (state, "there is no tool 'book'" in text) == ("error", True)


# ── host calls ───────────────────────────────────────────────────────────────


async def test_a_call_that_is_denied_beside_a_question_is_not_run_after_a_shutdown(store: Store) -> None:
    begun, ran = asyncio.Event(), list[str]()

    async def asks(arguments: Any, ctx: Any) -> str:
        begun.set()
        await asyncio.sleep(0.05)
        return "ask"

    def cook(script: Any) -> ReActAgent:
        @tool
        async def burn() -> str:
            """Burn it."""
            ran.append("burn")
            return "burnt"

        @tool(check=asks)
        async def serve() -> str:
            """Serve it."""
            ran.append("serve")
            return "served"

        return ReActAgent("cook", ScriptedModel(script), store=store, tools=[burn, serve])

    paused = cook([[call("burn", id="c1"), call("serve", id="c2")]])
    await paused.add_rule("alice", "s1", PermissionRule("burn", "deny", "policy"))
    task = asyncio.create_task(paused.call("Cook", ALICE))
    await begun.wait()
    await paused.shutdown(timeout=5)
    with pytest.raises(AgentShuttingDown):
        await task

    resumed = cook(["Served."])
    assert reason(await resumed.call(None, ALICE)) == "PERMISSION_ASKING"
    await resumed.answer("alice", "s1", {"c2": True})

    assert ran == ["serve"]
    found = results((await resumed.get_agent_state("alice", "s1")).context)
    assert {id: state for id, (state, _) in found.items()} == {"c1": "denied", "c2": "success"}


async def test_permissions_are_changed_and_stored_at_once(store: Store) -> None:
    desk = Desk(store, permissions=None)

    await desk.agent.set_permission_mode("alice", "s1", "dont_ask")
    await desk.agent.add_rule("alice", "s1", PermissionRule("look", "allow", "userSettings"))
    await desk.agent.add_rule("alice", "s1", {"tool_name": "book", "behavior": "deny", "source": "userSettings"})

    other = ReActAgent("desk", ScriptedModel([BOOK, "Done."]), store=store, tools=desk._tools())
    found = await other.get_permissions("alice", "s1")
    assert (found.mode, [*found.allow_rules], [*found.deny_rules]) == ("dont_ask", ["look"], ["book"])
    await other.call("Book a room", ALICE)
    assert desk.ran == ["look Kyoto"]
    assert (await other.get_permissions("bob", "s1")).mode == "default"


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool_name": "book", "behavior": "forbid", "source": "policy"},
        {"tool_name": "book", "behavior": "allow"},
        "book",
    ],
)
async def test_a_rule_that_is_none_is_answered_with_what_a_rule_is(store: Store, wrong: Any) -> None:
    with pytest.raises(ValueError, match='"allow", "deny" or "ask"') as refused:
        await Desk(store).agent.add_rule("alice", "s1", wrong)

    assert str(refused.value).endswith(f"not {wrong!r}")
    assert "state" not in str(refused.value)
    assert "passthrough" not in str(refused.value)


async def test_another_answer_after_a_decline_is_refused_as_one_to_an_answered_question(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)
    await desk.agent.answer("alice", "s1", {"c1": False})

    with pytest.raises(ValueError, match="the call 'c1' has been answered already, and differently"):
        await desk.agent.answer("alice", "s1", {"c1": True})

    assert desk.ran == ["look Kyoto"]
    assert (await desk.results())["c1"][0] == "denied"


async def test_a_running_turn_takes_a_change_over_at_its_next_step(store: Store) -> None:
    desk = Desk(store, permissions=None)
    begun, over = asyncio.Event(), asyncio.Event()

    async def script(request: Any) -> Any:
        begun.set()
        await over.wait()
        return BOOK if len(request.messages) == 1 else "Done."

    desk.model = ScriptedModel(script)
    agent = ReActAgent("desk", desk.model, store=store, tools=desk._tools())
    task = asyncio.create_task(agent.call("Book a room", ALICE))
    await begun.wait()
    await agent.set_permission_mode("alice", "s1", "explore")
    over.set()
    await task

    assert desk.ran == ["look Kyoto"]
    assert (await agent.get_permissions("alice", "s1")).mode == "explore"


@pytest.mark.parametrize("mode", ["whatever", None, 5])
async def test_a_mode_that_does_not_exist_is_refused(store: Store, mode: Any) -> None:
    agent = Desk(store).agent

    with pytest.raises(ConfigurationError, match="is not a permission mode"):
        await agent.set_permission_mode("alice", "s1", mode)
    with pytest.raises(ValueError, match="a rule"):
        await agent.add_rule("alice", "s1", {"tool_name": "x", "behavior": mode, "source": "y"})


@pytest.mark.parametrize("option", [{"permissions": "whatever"}, {"ask_timeout": 0}, {"ask_timeout": "soon"}])
def test_wrong_options_are_refused(option: Any) -> None:
    with pytest.raises(ConfigurationError):
        ReActAgent("desk", ScriptedModel([]), store="memory://", **option)


# ── in other processes ───────────────────────────────────────────────────────


@on("sqlite", "postgres", "redis")
async def test_a_question_of_one_process_is_listed_by_a_second_and_answered_in_a_third(handles: Handles) -> None:
    first, second = handles
    asking_process = Desk(first)
    await asking_process.agent.call(user("Book a room", id="q1"), ALICE)

    (question,) = await Desk(second).agent.questions("alice", "s1")
    third = Desk(second)
    assert (await third.agent.answer("alice", "s1", {question.call["id"]: True})).text == "Done."

    assert (asking_process.ran, sorted(third.ran)) == ([], ["book Kyoto", "look Kyoto"])
    again = await Desk(first).agent.call(user("Book a room", id="q1"), ALICE)
    assert (again.text, asking_process.ran) == ("Done.", [])


@pytest.mark.parametrize("edited", [{"city": 5}, {"town": "Nara"}, {}])
async def test_an_edit_that_the_tool_does_not_take_is_refused_and_the_question_stays(store: Store, edited: Any) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)

    with pytest.raises(ValueError, match="the answer does not fit the tool 'book': "):
        await desk.agent.answer("alice", "s1", [{"confirmed": True, "toolCall": {"id": "c1", "input": edited}}])

    assert [question.call["id"] for question in await desk.agent.questions("alice", "s1")] == ["c1"]
    await desk.agent.answer("alice", "s1", {"c1": True})
    assert "book Kyoto" in desk.ran


@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_answer_that_is_sent_again_is_not_one_to_a_later_question_of_the_same_call_id(
    store: Store, confirmed: bool
) -> None:
    script = [[call("book", {"city": city}, id="call_0")] for city in ("Kyoto", "Osaka")]
    desk = Desk(store, [*script, "Done."])
    await desk.agent.call("Book two rooms", ALICE)
    (first,) = await desk.agent.questions("alice", "s1")
    named = {**first.to_dict(), "confirmed": confirmed, "rules": []}
    await desk.agent.answer("alice", "s1", [named])
    (second,) = await desk.agent.questions("alice", "s1")

    with pytest.raises(ValueError, match="name the reply"):
        await desk.agent.answer("alice", "s1", {"call_0": confirmed})
    again = await desk.agent.answer("alice", "s1", [named])
    assert (again.id, await desk.agent.questions("alice", "s1")) == (second.reply_id, [second])
    assert desk.ran == (["book Kyoto"] if confirmed else [])

    reply = await desk.agent.answer("alice", "s1", [{**second.to_dict(), "confirmed": True, "rules": []}])
    assert (reply.text, desk.ran) == ("Done.", [*desk.ran[:-1], "book Osaka"])


async def test_no_answers_at_all_are_refused(store: Store) -> None:
    desk = Desk(store)
    await desk.agent.call("Book a room", ALICE)

    with pytest.raises(ValueError, match="not None"):
        await desk.agent.answer("alice", "s1", None)  # pyright: ignore[reportArgumentType]
    assert len(await desk.agent.questions("alice", "s1")) == 1
