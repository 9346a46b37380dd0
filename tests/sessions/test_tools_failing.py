"""Tools that raise, or return something else than text: what the model is answered, and what the program gets."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import leafward
from leafward import (
    ContextError,
    LeaseLost,
    Session,
    StorageFull,
    Tool,
    ToolSet,
    open_store,
    user,
)
from leafward.tools import arguments
from leafward.tools.answers import FAILURE_CHARACTERS, make_tool
from leafward.tools.arguments import object_schema

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
KYOTO = {"city": "Kyoto"}


def weather(result: Any) -> ToolSet:
    """Return a tool that answers with `result`, or raises it."""

    async def execute(arguments: dict[str, Any]) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    return ToolSet([Tool("weather", "The weather in a city.", SCHEMA, execute)])


# ── raising ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError("no answer in 5 s"), "TimeoutError: no answer in 5 s"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("temp"), "KeyError: 'temp'"),
        (
            ExceptionGroup("two requests", [ValueError("a"), OSError("b")]),
            "ExceptionGroup: two requests (2 sub-exceptions)",
        ),
        (RuntimeError("a\n\n  traceback\nof lines"), "RuntimeError: a traceback of lines"),
    ],
)
async def test_a_tool_that_raises_is_answered_with_what_it_raised(error: BaseException, said: str) -> None:
    answer = await weather(error).call("weather", KYOTO)

    assert answer == f"Error: the tool 'weather' failed ({said}). Try it with other arguments, or go on without it."


async def test_a_tool_that_cancels_its_own_request_is_answered_as_failed() -> None:
    answer = await weather(asyncio.CancelledError()).call("weather", KYOTO)

    assert answer.startswith("Error: the tool 'weather' failed (RuntimeError: ")
    assert "raised CancelledError although its caller was not cancelled" in answer


async def test_a_long_error_is_shortened() -> None:
    answer = await weather(OSError("<html>" * 100_000)).call("weather", KYOTO)

    assert answer.startswith("Error: the tool 'weather' failed (OSError: <html><html>")
    assert "more characters)" in answer
    assert len(answer) < FAILURE_CHARACTERS + 200


async def test_an_error_that_says_what_to_do_is_answered_in_its_words() -> None:
    answer = await weather(ContextError("the note is too long: shorten it")).call("weather", KYOTO)

    assert answer == "Error: the note is too long: shorten it"


async def test_a_tools_error_is_raised_on_request() -> None:
    for error in (TimeoutError("slow"), ContextError("too long")):
        with pytest.raises(type(error)) as caught:
            await weather(error).call("weather", KYOTO, raise_errors=True)
        assert caught.value is error


async def test_a_models_mistake_is_answered_also_where_errors_are_raised() -> None:
    tools = weather("sunny")

    assert (await tools.call("weather", {}, raise_errors=True)).startswith("Error: the argument 'city' is missing.")
    assert (await tools.call("weather", "{", raise_errors=True)).startswith("Error: the arguments are not valid JSON")
    assert (await tools.call("wether", KYOTO, raise_errors=True)).startswith("Error: there is no tool 'wether'.")
    async with open_store("memory://") as store:
        session = Session(store, "s").with_context("memory", max_tokens=3)
        note = {"label": "memory", "content": "walnut " * 20}
        assert (await (await session.tools()).call("set_context", note, raise_errors=True)).startswith("Error: ")


@pytest.mark.parametrize("error", [StorageFull("chat.db"), LeaseLost("s")])
@pytest.mark.parametrize("raise_errors", [False, True])
async def test_a_failure_of_the_store_is_always_raised(error: Exception, raise_errors: bool) -> None:
    with pytest.raises(type(error)) as caught:
        await weather(error).call("weather", KYOTO, raise_errors=raise_errors)
    assert caught.value is error


async def test_a_tool_of_a_leased_session_raises_once_the_lease_is_lost() -> None:
    async with open_store("memory://") as store:
        async with Session(store, "s").with_context("memory").lease() as leased:
            tools = await leased.tools()

        with pytest.raises(LeaseLost):
            await tools.call("set_context", {"label": "memory", "content": "late"})


async def test_cancelling_a_call_cancels_the_tool() -> None:
    begun = asyncio.Event()

    async def execute(arguments: dict[str, Any]) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    tools = ToolSet([Tool("weather", "", SCHEMA, execute)])
    calling = asyncio.ensure_future(tools.call("weather", KYOTO))
    await begun.wait()
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await tools.call("weather", KYOTO)


async def test_what_a_model_is_answered_is_in_the_log_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="leafward.tools"):
        await weather(TimeoutError("slow")).call("weather", KYOTO)
        await weather("sunny").call("weather", {})
        with pytest.raises(TimeoutError):
            await weather(TimeoutError("slow")).call("weather", KYOTO, raise_errors=True)

    (record,) = caplog.records
    assert (record.name, record.getMessage()) == (
        "leafward.tools",
        "tool 'weather' failed; the model is answered with the error",
    )
    assert record.exc_info is not None
    assert record.exc_info[0] is TimeoutError


# ── returning ────────────────────────────────────────────────────────────────


@dataclass
class Forecast:
    city: str
    rain: bool


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("sunny", "sunny"),
        ("", ""),
        ({"rows": [[1, 2], [3, 4]]}, '{"rows":[[1,2],[3,4]]}'),
        ([], "[]"),
        (None, "null"),
        (21.5, "21.5"),
        (Forecast("京都", True), '{"city":"京都","rain":true}'),
    ],
)
async def test_what_is_not_text_is_answered_as_json(result: Any, text: str) -> None:
    assert await weather(result).call("weather", KYOTO) == text


async def test_what_json_cannot_hold_is_the_tools_failure() -> None:
    answer = await weather(object()).call("weather", KYOTO)

    assert answer.startswith("Error: the tool 'weather' failed (ValueError: a tool's output cannot be written as JSON")
    with pytest.raises(ValueError, match="JSON"):
        await weather(float("nan")).call("weather", KYOTO, raise_errors=True)


async def test_a_plain_function_runs_on_a_thread() -> None:
    def execute(arguments: dict[str, Any]) -> Any:
        return {"city": arguments["city"], "thread": threading.current_thread() is threading.main_thread()}

    plain: Any = execute
    tools = ToolSet([Tool("weather", "", SCHEMA, plain)])

    assert await tools.call("weather", KYOTO) == '{"city":"Kyoto","thread":false}'


# ── arguments ────────────────────────────────────────────────────────────────


async def test_arguments_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    original = arguments.find_mistake

    def find_mistake(schema: Any, given: Any) -> str | None:
        checked.append(given)
        return original(schema, given)

    monkeypatch.setattr(arguments, "find_mistake", find_mistake)

    async def work(arguments: dict[str, Any]) -> str:
        return "done"

    ours = make_tool("ours", "", object_schema({"n": {"type": "integer"}}, ["n"]), work)
    tools = ToolSet([ours]) | weather("sunny")

    assert await tools.call("ours", '{"n": 1}') == "done"
    assert await tools["ours"].execute({"n": 2}) == "done"
    assert await tools.call("weather", KYOTO) == "sunny"
    assert checked == [{"n": 1}, {"n": 2}, KYOTO]


def test_a_blocking_tool_set_answers_and_raises_likewise() -> None:
    with leafward.blocking("memory://") as store:
        session = store.session("s").with_context("memory")
        session.append_message(user("hello"))
        tools = session.tools() | list(weather(TimeoutError("slow")).values())

        assert tools.call("weather", KYOTO).startswith("Error: the tool 'weather' failed (TimeoutError: slow)")
        with pytest.raises(TimeoutError):
            tools.call("weather", KYOTO, raise_errors=True)
        assert [one["name"] for one in tools.to_openai_responses()] == ["set_context", "weather"]
