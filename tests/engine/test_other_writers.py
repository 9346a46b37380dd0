"""A slot that another writer saved between two of our calls: it is taken over, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, ReActAgent, open_store, tool, user
from leafward.engine.call_results import TEXTS
from leafward.engine.models.model import ModelRequest
from leafward.engine.summary_messages import shown_id
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import ALICE, goes_on, is_paired, results
from tests.engine.java_slots import BACKENDS, Embedded, JavaSlot, java_slot
from tests.engine.slots import seen_by_java

SERVERS = ("postgres", "mysql", "redis")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.server] if name in SERVERS else []) for name in BACKENDS])
async def slot(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[JavaSlot]:
    def server_url(name: str) -> str:
        return request.getfixturevalue("server_url")(name)

    async with java_slot(request.param, tmp_path, server_url) as found:
        yield found


@pytest.fixture
async def file_slot(tmp_path: Path) -> AsyncGenerator[JavaSlot]:
    async with java_slot("json", tmp_path, str) as found:
        yield found


# ── what the other writer does ───────────────────────────────────────────────

State = dict[str, Any]


def msg(id: str, role: str, *content: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return a message as Java writes it."""
    return {
        "id": id,
        "name": name or role.lower(),
        "role": role,
        "content": list(content),
        "metadata": {},
        "timestamp": "2026-08-22 23:15:56.123",
        "usage": None,
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, state: str = "pending") -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": id,
        "name": "rm",
        "input": {"f": "x"},
        "content": None,
        "metadata": {},
        "state": state,
    }


def result(id: str) -> dict[str, Any]:
    output = [text("removed 'x' \\ \"all\"")]
    return {"type": "tool_result", "id": id, "name": "rm", "output": output, "metadata": {}, "state": "success"}


def only_saves(state: State, number: int) -> None:
    """Java read the state and saved it; what it does not know is gone."""


def appends_a_turn(state: State, number: int) -> None:
    state["context"] += [
        msg(f"j{number}-1", "USER", text("Java's question 你好 'x'")),
        msg(f"j{number}-2", "ASSISTANT", {"type": "thinking", "thinking": "hm", "metadata": None}, use(f"jc{number}")),
        msg(f"j{number}-3", "TOOL", result(f"jc{number}")),
        msg(f"j{number}-4", "ASSISTANT", text("Java's reply")),
    ]


def edits_a_message(state: State, number: int) -> None:
    state["context"][-1]["content"] = [text(f"edited {number}")]


def compacts(state: State, number: int) -> None:
    """Cut where the last turn but one begins, as Java does: not between a call and its result."""
    rows = [row for row, message in enumerate(state["context"]) if message["role"] == "USER"]
    summary = f"Summary {number}."
    words = text(f"Here is a summary of the conversation to date:\n\n{summary}")
    made = msg(shown_id(summary), "USER", words, name="__compaction_summary__")
    state["context"] = [made, *state["context"][rows[-2] :]]


def cuts_the_front(state: State, number: int) -> None:
    rows = [row for row, message in enumerate(state["context"]) if message["role"] == "USER"]
    del state["context"][: rows[1]]


def cuts_the_end(state: State, number: int) -> None:
    rows = [row for row, message in enumerate(state["context"]) if message["role"] == "USER"]
    del state["context"][rows[-1] :]


def changes_the_small_state(state: State, number: int) -> None:
    rule = {"tool_name": "rm", "rule_content": f"/{number}/**", "behavior": "deny", "source": "userSettings"}
    state["permission_context"]["mode"] = "bypass"
    state["permission_context"]["deny_rules"] = {"rm": [rule]}
    state["plan_mode_context"] = {"plan_active": True, "current_plan_file": f"plans/{number}.md"}
    state["tool_context"]["activated_groups"] = ["web", f"group {number}"]
    state["summary"] = f"small {number}"
    task = {"subject": f"task {number}", "description": "do it", "metadata": {}, "created_at": "2026-08-22T23:15:56Z"}
    more = {"state": "in_progress", "id": f"t{number}", "owner": None, "blocks": [], "blocked_by": []}
    state["tasks_context"] = {"tasks": [{**task, **more}]}


def starts_again(state: State, number: int) -> None:
    state["context"] = [msg(f"j{number}-1", "USER", text("Once more")), msg(f"j{number}-2", "ASSISTANT", text("Yes?"))]


WRITERS = (
    only_saves,
    appends_a_turn,
    edits_a_message,
    changes_the_small_state,
    compacts,
    cuts_the_end,
    appends_a_turn,
    cuts_the_front,
    edits_a_message,
    starts_again,
)
SMALL = ("summary", "permission_context", "tool_context", "tasks_context", "plan_mode_context")


# ── our side ─────────────────────────────────────────────────────────────────


@tool
async def cook(dish: str) -> str:
    """Cook a dish."""
    return f"{dish} is ready"


def cooks_first(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if last.role == "user":
        return ["Let me see. ", call("cook", {"dish": last.text})]
    return f"It is done, of {len(request.messages)}."


def without_times(context: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "timestamp"} for item in context]


async def test_what_another_writer_saved_between_any_two_calls_is_taken_over(slot: JavaSlot) -> None:
    model = ScriptedModel(cooks_first)
    agent = ReActAgent("cook", model, store=slot.agent_store, tools=[cook])
    await agent.call("the first question", ALICE)
    await agent.call("question 0", ALICE)
    known: dict[str, Message] = {}
    # Each backend begins elsewhere, so that each writer follows another one.
    start = BACKENDS.index(slot.name)
    for number, write in enumerate((*WRITERS[start:], *WRITERS[:start])):
        state = await slot.load()
        write(state, number)
        await slot.save(state)
        asked = len(model.requests)

        await agent.call(f"question {number + 1}", ALICE)

        # The model sees exactly what the other writer left, and the new question.
        seen = list(model.requests[asked].messages)
        assert seen_by_java(seen[:-1]) == without_times(state["context"]), write.__name__
        assert seen[-1].text == f"question {number + 1}"
        assert all(is_paired(request.messages) for request in model.requests[asked:])
        after = await slot.load()
        assert {key: after[key] for key in SMALL} == {key: state[key] for key in SMALL}, write.__name__
        assert without_times(after["context"])[: len(state["context"])] == without_times(state["context"])
        # Nothing is lost: every message is in the tree.
        session = agent.session("alice", "s1")
        known |= {message.id: message for message in await session.get_raw_history()}
        assert {id for id in known if await session.get_message(id) is None} == set()
        in_slot = {message["id"] for message in after["context"] if not message["id"].startswith("__compaction")}
        assert {id for id in in_slot if await session.get_message(id) is None} == set()


async def test_what_another_writer_saves_while_a_slot_is_all_there_is_becomes_the_tree(slot: JavaSlot) -> None:
    """Java began the session; we go on."""
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=slot.agent_store)
    await agent.call("made here, so that there is a place", ALICE)
    state = await slot.load()
    starts_again(state, 1)
    changes_the_small_state(state, 1)
    await slot.save(state)

    asked = await goes_on(slot.agent_store)

    assert [message.text for message in asked] == ["Once more", "Yes?", "And now?"]


# ── questions that are open ──────────────────────────────────────────────────


def asks(state: State, *states: str) -> None:
    """Java's turn waits: for an answer of the user's, or because a shutdown came before the calls were run."""
    calls = [use(f"jc{row}", one) for row, one in enumerate(states)]
    asked = msg("j-2", "ASSISTANT", text("May I?"), *calls)
    asked["metadata"] = {"agentscope_confirm_request_reply_id": "r1"}
    state["context"] += [msg("j-1", "USER", text("Remove x")), asked]


@pytest.mark.parametrize("states", [("asking",), ("pending",), ("asking", "allowed"), ("submitted", "pending")])
async def test_a_plain_message_declines_what_java_asked(file_slot: JavaSlot, states: tuple[str, ...]) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=file_slot.agent_store)
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    asks(state, *states)
    await file_slot.save(state)

    found = results(await goes_on(file_slot.agent_store))

    declined, left = ("denied", "Permission denied by user"), ("interrupted", "Interrupted before it ran.")
    assert found == {f"jc{row}": declined if state == "asking" else left for row, state in enumerate(states)}
    await file_slot.load()


class Remover:
    def __init__(self) -> None:
        self.removed: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        async def rm(f: str) -> str:
            """Remove a file."""
            self.removed.append(f)
            return "removed"

        return [rm]


async def test_a_question_of_java_is_asked_again_and_nothing_runs(file_slot: JavaSlot) -> None:
    remover = Remover()
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=file_slot.agent_store, tools=remover.tools())
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    asks(state, "asking", "allowed")
    await file_slot.save(state)

    reply = await agent.call(None, ALICE)

    assert (reply.id, (reply.metadata or {})["agentscope_generate_reason"]) == ("j-2", "PERMISSION_ASKING")
    assert remover.removed == []
    assert without_times((await file_slot.load())["context"]) == without_times(state["context"])
    await goes_on(file_slot.agent_store)


@pytest.mark.parametrize("shut_down", [False, True])
async def test_calls_that_java_had_not_begun_run_when_the_turn_goes_on(file_slot: JavaSlot, shut_down: bool) -> None:
    remover = Remover()
    agent = ReActAgent(
        "cook", ScriptedModel(["Hello.", "It is gone."]), store=file_slot.agent_store, tools=remover.tools()
    )
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    asks(state, "pending")
    state["shutdown_interrupted"] = shut_down
    await file_slot.save(state)

    # The client sends its message again, as after any failure.
    reply = await agent.call("Remove x" if shut_down else None, ALICE)

    assert (reply.text, remover.removed) == ("It is gone.", ["x"])
    assert [item["id"] for item in (await file_slot.load())["context"]].count("j-1") == 1
    assert not (await file_slot.load())["shutdown_interrupted"]
    await goes_on(file_slot.agent_store)


async def test_results_can_be_sent_for_calls_that_java_left_open(file_slot: JavaSlot) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello.", "It is gone."]), store=file_slot.agent_store)
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    asks(state, "pending")
    await file_slot.save(state)

    reply = await agent.call(Message.tool_result("jc0", "removed by hand", "rm"), ALICE)

    assert reply.text == "It is gone."
    assert results(await goes_on(file_slot.agent_store))["jc0"] == ("success", "removed by hand")


async def test_a_turn_of_ours_that_java_ended_is_over(file_slot: JavaSlot) -> None:
    @tool(external=True)
    async def sign() -> str:
        """Have a person sign."""
        return "never run here"

    model = ScriptedModel([[call("sign", {}, id="c1")], "Signed twice?"])
    agent = ReActAgent("cook", model, store=file_slot.agent_store, tools=[sign])
    await agent.call("Yes", ALICE)
    state = await file_slot.load()
    state["context"] += [msg("j-1", "TOOL", {**result("c1"), "name": "sign"}), msg("j-2", "ASSISTANT", text("Signed."))]
    await file_slot.save(state)

    # The same words are another question: the first one is answered.
    await agent.call("Yes", ALICE)

    assert [message.text for message in model.requests[1].messages if message.role == "user"] == ["Yes", "Yes"]
    await goes_on(file_slot.agent_store)


async def test_a_message_that_java_left_unanswered_is_answered(file_slot: JavaSlot) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello.", "Here it is."]), store=file_slot.agent_store)
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    state["context"].append(msg("j-1", "USER", text("Bring x")))
    await file_slot.save(state)

    assert (await agent.call(None, ALICE)).text == "Here it is."
    assert [item["role"] for item in (await file_slot.load())["context"]] == ["USER", "ASSISTANT"] * 2


async def test_the_same_message_sent_again_answers_what_java_left_unanswered(file_slot: JavaSlot) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello.", "Here it is."]), store=file_slot.agent_store)
    await agent.call("hello", ALICE)
    state = await file_slot.load()
    state["context"].append(msg("j-1", "USER", text("Bring x")))
    await file_slot.save(state)

    assert (await agent.call(user("Bring x", id="j-1"), ALICE)).text == "Here it is."
    assert [item["role"] for item in (await file_slot.load())["context"]] == ["USER", "ASSISTANT"] * 2


# ── branches and accepted rules ──────────────────────────────────────────────


async def test_a_slot_that_shows_an_earlier_branch_again_is_shown_again(file_slot: JavaSlot) -> None:
    agent = ReActAgent(
        "cook", ScriptedModel(lambda request: f"reply {len(request.messages)}"), store=file_slot.agent_store
    )
    await agent.call("one", ALICE)
    await agent.call("two", ALICE)
    earlier = await file_slot.load()
    cut = json.loads(json.dumps(earlier))
    cuts_the_end(cut, 0)
    await file_slot.save(cut)
    await agent.call("three", ALICE)
    await file_slot.save(earlier)

    asked = await goes_on(file_slot.agent_store)

    assert [message.text for message in asked if message.role == "user"] == ["one", "two", "And now?"]


async def test_a_slot_that_shows_another_branch_moves_the_leaf_there_although_nothing_is_asked(
    file_slot: JavaSlot,
) -> None:
    agent = ReActAgent("cook", ScriptedModel(["one", "two"]), store=file_slot.agent_store)
    await agent.call("first", ALICE)
    second = user("second", id="q2")
    await agent.call(second, ALICE)
    state = await file_slot.load()
    del state["context"][0]
    await file_slot.save(state)
    session = agent.session("alice", "s1")
    await session.checkout((await session.get_history())[1].id)

    assert (await agent.call(second, ALICE)).text == "two"

    shown = ["one", "second", "two"]
    assert [item["content"][0]["text"] for item in (await file_slot.load())["context"]] == shown
    assert [message.text for message in (await agent.get_agent_state("alice", "s1")).context] == shown
    assert [message.text for message in await session.get_history()] == ["first", *shown]


async def test_a_rule_that_was_accepted_keeps_its_mark_when_java_saves_it(file_slot: JavaSlot) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello.", "Again."]), store=file_slot.agent_store)
    await agent.call("hello", ALICE)
    state = await agent.get_agent_state("alice", "s1")
    rule = {"tool_name": "rm", "rule_content": None, "behavior": "allow", "source": "session"}
    document = json.loads(state.to_json())
    document["permission_context"]["allow_rules"] = {"rm": [{**rule, "leafward_accepted": True}]}
    await agent.save_agent_state("alice", "s1", type(state).from_json(json.dumps(document)))
    await agent.call("again", ALICE)
    saved = await file_slot.load()
    saved["permission_context"]["allow_rules"] = {"rm": [rule, {**rule, "rule_content": "/tmp/**"}]}
    await file_slot.save(saved)

    after = await agent.get_agent_state("alice", "s1")

    assert [one.extra for one in after.permission_context.allow_rules["rm"]] == [{"leafward_accepted": True}, {}]


# ── turns that are cut off after they took over ──────────────────────────────


async def test_a_turn_that_is_cut_off_after_it_took_over_goes_on_without_loss() -> None:
    for commits in range(9):
        remover = Remover()
        async with open_store("memory://") as store:
            first = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
            await first.call("hello", ALICE)
            slot = Embedded(store)
            state = await slot.load()
            appends_a_turn(state, 1)
            edits_a_message(state, 1)
            await slot.save(state)
            script = [[call("rm", {"f": "x"}, id="c1")], "It is gone."]
            dying: Any = DyingStore(store, commits)
            question = user("Remove x", id="q1")
            with suppress(Died):
                lost = ReActAgent("cook", ScriptedModel(script), store=dying, tools=remover.tools())
                await lost.call(question, ALICE)
            await dying.bury("s1", "alice")

            model = ScriptedModel(lambda request: "It is gone.")
            resumed = ReActAgent("cook", model, store=store, tools=remover.tools())
            assert (await resumed.call(question, ALICE)).text == "It is gone."

            assert len(remover.removed) <= 1
            after = await slot.load()
            assert without_times(after["context"])[: len(state["context"])] == without_times(state["context"])
            assert [item["id"] for item in after["context"]].count("q1") == 1
            asked = await goes_on(store)
            if remover.removed:
                assert results(asked)["c1"][1] in ("removed", TEXTS["unknown"])


async def test_what_java_saves_after_a_turn_was_cut_off_is_taken_over() -> None:
    for commits in range(3):
        async with open_store("memory://") as store:
            await ReActAgent("cook", ScriptedModel(["Hello."]), store=store).call("hello", ALICE)
            slot = Embedded(store)
            state = await slot.load()
            dying: Any = DyingStore(store, commits)
            with suppress(Died):
                await ReActAgent("cook", ScriptedModel(["Lost?"]), store=dying).call("cut off", ALICE)
            await dying.bury("s1", "alice")
            appends_a_turn(state, 1)
            await slot.save(state)

            asked = await goes_on(store)

            assert seen_by_java(asked[:-1]) == without_times(state["context"])
