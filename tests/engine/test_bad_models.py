"""Models that misbehave: they are answered, asked again or reported, and the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import RuntimeContext, SessionManager, open_store, tool, user
from leafward.core.parts import Part
from leafward.engine import CallDelta, ModelError, Stop, TextDelta, WholePart
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, goes_on, is_paired, results


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


@tool
async def cook(dish: str = "soup") -> str:
    """Cook a dish."""
    return f"{dish} is ready"


def agent(store: Store, script: Any, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook], **options)


# ── calls that cannot be run ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (call("fry", {}, id="c1"), "there is no tool 'fry'. Call one of: cook."),
        (call("", {}, id="c1"), "there is no tool ''. Call one of: cook."),
        (call("cook", '{"dish": "so', id="c1"), "JSON"),
        (call("cook", "[1, 2]", id="c1"), "object"),
        (call("cook", {"dish": 7}, id="c1"), "dish"),
        (call("cook", {"fish": "cod"}, id="c1"), "fish"),
    ],
)
async def test_a_call_that_cannot_be_run_is_answered(store: Store, wrong: Part, answer: str) -> None:
    assert (await agent(store, [[wrong], "Sorry."]).call("Cook", ALICE)).text == "Sorry."

    state, text = results(await goes_on(store))["c1"]
    assert state == "error"
    assert text.startswith("Error: ")
    assert answer in text


@pytest.mark.parametrize("arguments", ['{"dish":', {"dish": 7}, {}, "[]"])
async def test_an_external_call_whose_arguments_do_not_fit_is_answered_and_goes_to_no_other_program(
    store: Store, arguments: Any
) -> None:
    @tool(external=True)
    def order(dish: str) -> str:
        """Order a dish."""
        return ""

    script = [[call("order", arguments, id="c1")], [call("order", {"dish": "rice"}, id="c2")]]
    waiter = ReActAgent("waiter", ScriptedModel(script), store=store, tools=[order])

    reply = await waiter.call("Order rice", ALICE)

    assert (reply.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
    state, text = results((await waiter.get_agent_state("alice", "s1")).context)["c1"]
    assert (state, text.startswith("Error: ")) == ("error", True)
    assert [part["id"] for part in reply.parts] == ["c2"]


async def test_the_same_call_id_twice_in_a_reply_gets_two_results(store: Store) -> None:
    twice = [call("cook", {"dish": "soup"}, id="c1"), call("cook", {"dish": "rice"}, id="c1")]
    assert (await agent(store, [twice, "Done."]).call("Cook", ALICE)).text == "Done."

    found = results(await goes_on(store))
    assert found == {"c1": ("success", "soup is ready"), "c1#2": ("success", "rice is ready")}


async def test_the_same_call_id_in_every_reply_gets_each_its_result(store: Store) -> None:
    script = [part for dish in ("soup", "rice", "fish") for part in ([call("cook", {"dish": dish}, id="call_0")], dish)]
    one = agent(store, script)
    for number in range(3):
        await one.call(f"question {number}", ALICE)

    asked = await goes_on(store)
    texts = [results([message])["call_0"][1] for message in asked if message.role == "tool"]
    assert texts == ["soup is ready", "rice is ready", "fish is ready"]


async def test_a_stream_that_ends_inside_a_call_is_answered_and_runs_nothing(store: Store) -> None:
    broken = [CallDelta('{"dish": "so', "cook", "c1"), Stop("length")]
    assert (await agent(store, [broken, "Once more."]).call("Cook", ALICE)).text == "Once more."

    state, text = results(await goes_on(store))["c1"]
    assert (state, "JSON" in text) == ("error", True)


# ── replies that say nothing ─────────────────────────────────────────────────


async def test_an_empty_reply_is_asked_again_and_its_usage_counts(store: Store) -> None:
    model = ScriptedModel(["", " \n", "Done."])
    one = ReActAgent("cook", model, store=store)

    assert (await one.call("Cook", ALICE)).text == "Done."

    assert "empty" in model.requests[1].messages[-1].text
    asked = await goes_on(store)
    assert [message.text for message in asked] == ["Cook", "Done.", "And now?"]
    assert await input_tokens(store) > 2 * len(model.requests)


async def input_tokens(store: Store) -> int:
    info = await SessionManager(store, user_id="alice", agent_id="cook").get("s1")
    assert info is not None
    return info.input_tokens


async def test_a_model_that_only_sends_empty_replies_ends_the_turn_and_stores_none(store: Store) -> None:
    reply = await agent(store, [""] * 4, max_iterations=3).call("Cook", ALICE)

    assert (reply.text, reply.metadata) == ("", {"agentscope_generate_reason": "MAX_ITERATIONS"})
    assert [message.text for message in await goes_on(store)] == ["Cook", "And now?"]


async def test_a_model_that_calls_for_ever_is_asked_to_sum_up_and_its_last_calls_are_not_run(store: Store) -> None:
    cooked: list[str] = []

    @tool
    async def fry(dish: str) -> str:
        """Fry a dish."""
        cooked.append(dish)
        return "fried"

    model = ScriptedModel(lambda _: [call("fry", {"dish": "fish"})])
    one = ReActAgent("cook", model, store=store, tools=[fry], max_iterations=2)

    reply = await one.call("Cook", ALICE)

    assert (reply.metadata or {})["agentscope_generate_reason"] == "MAX_ITERATIONS"
    assert (len(cooked), len(model.requests)) == (2, 3)
    assert is_paired(await one.session("alice", "s1").get_raw_history())
    assert list(results(await goes_on(store)).values())[-1] == (
        "interrupted",
        "Not run: no steps are left in this turn.",
    )


# ── models that fail ─────────────────────────────────────────────────────────


class Rubbish(Exception):
    pass


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (ModelError("out of order"), ModelError),
        (Rubbish("bug"), Rubbish),
        (asyncio.CancelledError(), ModelError),
        (WholePart({"type": "text", "text": {"not", "json"}}), ValueError),
    ],
)
@pytest.mark.parametrize("before", ["", "Some text, "])
async def test_a_model_that_fails_in_the_middle_fails_the_call_and_stores_nothing_of_it(
    store: Store, piece: Any, error: type[Exception], before: str
) -> None:
    broken = [TextDelta(before), call("cook", {}, id="c1"), piece] if before else [piece]
    question = user("Cook", id="q1")
    with pytest.raises(error):
        await agent(store, [broken]).call(question, ALICE)

    # The same input goes on with the turn.
    assert (await agent(store, ["Done."]).call(question, ALICE)).text == "Done."
    assert [message.text for message in await goes_on(store)] == ["Cook", "Done.", "And now?"]


@pytest.mark.parametrize("piece", [b"bytes", None, 5, object(), WholePart({"no": "type"})])
async def test_a_model_that_yields_rubbish_fails_the_call(store: Store, piece: object) -> None:
    class Broken:
        async def stream(self, request: Any) -> AsyncGenerator[Any]:
            yield TextDelta("Well, ")
            yield piece

    with pytest.raises(ModelError, match="it yielded a"):
        await ReActAgent("cook", Broken(), store=store).call("Cook", ALICE)

    assert [message.text for message in await goes_on(store)] == ["Cook", "And now?"]


async def test_a_temporary_error_is_asked_again_and_the_broken_attempt_is_not_stored(store: Store) -> None:
    again = ModelError("busy", temporary=True, retry_after=0)
    script = [["Half a ", call("cook", {}, id="c1"), again], "A whole reply."]

    assert (await agent(store, script).call("Cook", ALICE)).text == "A whole reply."
    assert [message.text for message in await goes_on(store)] == ["Cook", "A whole reply.", "And now?"]


async def test_what_cannot_be_stored_of_a_reply_that_is_cancelled_is_left_out(store: Store) -> None:
    begun = asyncio.Event()

    async def wait(_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    rubbish = WholePart({"type": "text", "text": {"not", "json"}})
    task = asyncio.create_task(agent(store, [["Half", rubbish, wait]]).call("Cook", ALICE))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [message.text for message in await goes_on(store)] == ["Cook", "And now?"]


async def test_a_reply_that_is_too_large_fails_the_call() -> None:
    async with open_store("memory://", max_message_bytes=5_000) as store:
        with pytest.raises(ValueError, match="bytes of JSON"):
            await ReActAgent("cook", ScriptedModel(["x" * 6_000]), store=store).call("Cook", ALICE)

        assert [message.text for message in await goes_on(store)] == ["Cook", "And now?"]


async def test_each_session_has_its_own_failure(store: Store) -> None:
    async def reply(request: Any) -> Any:
        return Rubbish("bug") if "bad" in request.messages[-1].text else "fine"

    one = ReActAgent("cook", ScriptedModel(reply), store=store)
    outcomes = await asyncio.gather(
        *(one.call("bad" if n % 2 else "good", RuntimeContext("alice", f"s{n}")) for n in range(6)),
        return_exceptions=True,
    )
    assert [isinstance(outcome, Rubbish) for outcome in outcomes] == [False, True] * 3


async def test_while_a_model_is_not_asked_again_yet_nothing_of_its_failed_attempt_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leafward.engine.model_call._FIRST_PAUSE_S", 0.0)
    busy = ModelError("busy", temporary=True, retry_after=3_600)
    model = ScriptedModel([[TextDelta("Partial"), busy], "Whole."])
    cook = ReActAgent("cook", model, store=store)
    waits = asyncio.Event()

    async def read() -> list[str]:
        found: list[str] = []
        async for event in cook.stream("hello", ALICE):
            found.append(event.type)
            if event.discarded:
                waits.set()
        return found

    reading = asyncio.create_task(read())
    await waits.wait()
    for _ in range(20):
        await asyncio.sleep(0.005)  # as often as a model that does not wish to wait would be asked again
    assert await cook.interrupt("alice", "s1")
    await reading

    assert len(model.requests) == 1
    assert [message.role for message in await cook.session("alice", "s1").get_history()] == ["user"]
