"""Slots that are torn, edited by hand or of a later version: taken over, or refused and left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import ReActAgent, RuntimeContext, StateDecodeError
from leafward.stores import JsonFileAgentStateStore
from leafward.testing import ScriptedModel
from tests.engine.going_on import ALICE, goes_on, results
from tests.engine.java_slots import JavaSlot, java_slot

State = dict[str, Any]


@pytest.fixture
async def slot(tmp_path: Path) -> AsyncGenerator[JavaSlot]:
    """The JSON file of a session in which one question was answered."""
    async with java_slot("json", tmp_path, str) as found:
        await ReActAgent("cook", ScriptedModel(["Hello."]), store=found.agent_store).call("hello", ALICE)
        yield found


# ── what cannot be read ──────────────────────────────────────────────────────


def unreadable(change: Callable[[State], object]) -> Callable[[str], str]:
    def apply(text: str) -> str:
        state = json.loads(text)
        change(state)
        return json.dumps(state)

    return apply


UNREADABLE: dict[str, Callable[[str], str]] = {
    "torn": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "not JSON": lambda text: text.replace('"context"', "context", 1),
    "not an object": lambda text: "[]",
    "no list of messages": unreadable(lambda state: state.update(context={})),
    "no message": unreadable(lambda state: state["context"].append("hello")),
    "no blocks": unreadable(lambda state: state["context"][0].update(content="hello")),
    "a mode of a later version": unreadable(lambda state: state["permission_context"].update(mode="ask_twice")),
    "a role of a later version": unreadable(lambda state: state["context"][0].update(role="CRITIC")),
    "a limit that Java refuses": unreadable(lambda state: state["tool_context"].update(max_cache_files=0)),
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_slot_that_cannot_be_read_is_refused_and_the_tree_can_be_put_in_its_place(
    slot: JavaSlot, kind: str
) -> None:
    broken = UNREADABLE[kind](await slot.read())
    await slot.write(broken)
    agent = ReActAgent("cook", ScriptedModel([]), store=slot.agent_store)
    for _ in range(2):
        with pytest.raises(StateDecodeError, match=r"'alice'.*'s1'|'s1'.*'alice'"):
            await agent.call("And now?", ALICE)
    assert await slot.read() == broken
    assert [message.text for message in await agent.session("alice", "s1").get_history()] == ["hello", "Hello."]

    # An agent that uses no slot reads the tree alone.
    of_the_tree = ReActAgent("cook", ScriptedModel([]), store=slot.agent_store, slot="off")
    await agent.save_agent_state("alice", "s1", await of_the_tree.get_agent_state("alice", "s1"))

    asked = await goes_on(slot.agent_store)
    assert [message.text for message in asked] == ["hello", "Hello.", "And now?"]


# ── what can be read, but is odd ─────────────────────────────────────────────


def msg(id: str | None, role: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": id, "role": role, "content": list(content), **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CALL = {"type": "tool_use", "id": "c1", "name": "rm", "input": {}}
RESULT = {"type": "tool_result", "id": "c1", "name": "rm", "output": [text("removed")], "state": "success"}
ODD: dict[str, tuple[list[Any], list[str]]] = {
    "no id, no time": ([msg(None, "USER", text("hi"))], ["hi"]),
    "two messages with one id": ([msg("m", "USER", text("hi")), msg("m", "USER", text("ho"))], ["hi", "ho"]),
    "a system message": ([msg("m", "SYSTEM", text("obey"))], ["obey"]),
    "null": ([None, msg("m", "USER", text("hi"))], ["hi"]),
    "an odd time": ([msg("m", "USER", text("hi"), timestamp="yesterday")], ["hi"]),
    "a call without a result": ([msg("m", "ASSISTANT", CALL), msg("n", "ASSISTANT", text("ok"))], ["", "", "ok"]),
    "a call at the end": ([msg("m", "ASSISTANT", CALL)], ["", ""]),
    # A model is shown each result once.
    "a result twice": ([msg("m", "ASSISTANT", CALL), msg("n", "TOOL", RESULT), msg("o", "TOOL", RESULT)], ["", ""]),
    "keys of a later version": ([msg("m", "USER", {**text("hi"), "tone": "kind"}, mood="good")], ["hi"]),
}


@pytest.mark.parametrize("kind", ODD)
async def test_an_odd_slot_is_taken_over(slot: JavaSlot, kind: str) -> None:
    more, said = ODD[kind]
    state = json.loads(await slot.read())
    state["context"] += more
    await slot.write(json.dumps(state))

    asked = await goes_on(slot.agent_store, stored_is_paired=kind != "a call without a result")

    assert [message.text for message in asked] == ["hello", "Hello.", *said, "And now?"]
    await slot.load()


async def test_a_result_whose_call_was_cut_off_is_shown_in_words(slot: JavaSlot) -> None:
    state = json.loads(await slot.read())
    state["context"] = [msg("n", "TOOL", RESULT), msg("o", "ASSISTANT", text("Gone."))]
    await slot.write(json.dumps(state))

    asked = await goes_on(slot.agent_store, stored_is_paired=False)

    assert asked[0].role == "user"
    assert asked[0].text == "[Result of rm (c1), whose call is not part of this conversation]\nremoved"
    assert [message.text for message in asked[1:]] == ["Gone.", "And now?"]
    # What is stored is what the other writer left.
    assert [item["role"] for item in (await slot.load())["context"]] == ["TOOL", "ASSISTANT", "USER", "ASSISTANT"]


async def test_an_empty_context_starts_again_and_deletes_nothing(slot: JavaSlot) -> None:
    state = json.loads(await slot.read())
    before = [item["id"] for item in state["context"]]
    state["context"] = []
    await slot.write(json.dumps(state))

    asked = await goes_on(slot.agent_store)

    assert [message.text for message in asked] == ["And now?"]
    async with ReActAgent("cook", ScriptedModel([]), store=slot.agent_store) as agent:
        session = agent.session("alice", "s1")
        assert None not in [await session.get_message(id) for id in before]


async def test_fields_of_a_later_version_are_kept(slot: JavaSlot) -> None:
    state = json.loads(await slot.read())
    state["forecast"] = {"rain": [1, 2.5, None]}
    state["tool_context"]["colour"] = "red"
    await slot.write(json.dumps(state))

    await goes_on(slot.agent_store)

    found = json.loads(await slot.read())
    assert (found["forecast"], found["tool_context"]["colour"]) == ({"rain": [1, 2.5, None]}, "red")


# ── marks ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mark",
    [
        5,
        "mine",
        [],
        {},
        {"agent": ["cook"], "version": "new", "slot": None, "leaf": {}},
        {"agent": "another", "version": 2, "slot": 3, "leaf": "gone"},
        {"agent": "cook", "version": 10_000, "slot": 3, "leaf": "gone", "format": 7},
    ],
)
async def test_a_mark_that_says_nothing_true_is_not_believed(slot: JavaSlot, mark: object) -> None:
    state = json.loads(await slot.read())
    state["leafward"] = mark
    state["context"].append(msg("m", "ASSISTANT", text("Edited by hand.")))
    await slot.write(json.dumps(state))

    asked = await goes_on(slot.agent_store)

    assert [message.text for message in asked] == ["hello", "Hello.", "Edited by hand.", "And now?"]


async def test_a_slot_whose_tree_was_lost_brings_its_conversation_back(tmp_path: Path) -> None:
    async with java_slot("json", tmp_path, str) as slot:
        await ReActAgent("cook", ScriptedModel(["Hello."]), store=slot.agent_store).call("hello", ALICE)
    for path in (tmp_path / "home").glob(".leafward.sqlite*"):
        path.unlink()

    async with JsonFileAgentStateStore(tmp_path / "home") as states:
        asked = await goes_on(states)

    assert [message.text for message in asked] == ["hello", "Hello.", "And now?"]


async def test_a_slot_that_was_copied_to_another_session_is_taken_over_there(tmp_path: Path) -> None:
    async with java_slot("json", tmp_path, str) as slot:
        await ReActAgent("cook", ScriptedModel(["Hello."]), store=slot.agent_store).call("hello", ALICE)
        shutil.copytree(tmp_path / "home/alice/s1", tmp_path / "home/alice/s2")
        model = ScriptedModel(["A copy."])

        await ReActAgent("cook", model, store=slot.agent_store).call("And here?", RuntimeContext("alice", "s2"))

        assert [message.text for message in model.requests[0].messages] == ["hello", "Hello.", "And here?"]
        assert json.loads((tmp_path / "home/alice/s2/agent_state.json").read_text())["session_id"] == "s2"
        assert results(await goes_on(slot.agent_store)) == {}


async def test_a_slot_that_is_gone_means_that_the_session_was_deleted(tmp_path: Path) -> None:
    async with java_slot("json", tmp_path, str) as slot:
        await ReActAgent("cook", ScriptedModel(["Hello."]), store=slot.agent_store).call("hello", ALICE)
        shutil.rmtree(tmp_path / "home/alice/s1")

        assert [message.text for message in await goes_on(slot.agent_store)] == ["And now?"]
