"""Running a tool: there is an outcome, in time, whatever the tool does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from leafward import LeaseLost, Message, StorageFull, Tool, ToolError, ToolSet, tool, tool_result, user
from leafward.tools import Outcome, as_tool, ask_probe, run
from leafward.tools.threads import RUNNING, ToolThreads, tool_threads

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


async def outcome_of(function: Any, **arguments: Any) -> Outcome:
    return await run(as_tool(function), arguments)


async def ended(threads: ToolThreads) -> None:
    """Wait until every function that was given up has ended; the test's own timeout is the limit."""
    while threads.abandoned:  # noqa: ASYNC110  (there is no event: no caller is left)
        await asyncio.sleep(0.001)


# ── what a tool returns ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("result", "parts"),
    [
        ("sunny", [{"type": "text", "text": "sunny"}]),
        (None, [{"type": "text", "text": "null"}]),
        ({"a": [1]}, [{"type": "text", "text": '{"a":[1]}'}]),
        ([1, 2], [{"type": "text", "text": "[1,2]"}]),
        ([{"type": "text", "text": "look"}, IMAGE], [{"type": "text", "text": "look"}, IMAGE]),
        (user("hi"), [{"type": "text", "text": "hi"}]),
        (Message("assistant", [IMAGE]), [IMAGE]),
        (b"plain", [{"type": "text", "text": "plain"}]),
        (
            b"\x89PNG\r\n\x1a\n\x00",
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoA"}}],
        ),
        (
            b"\xff\x00",
            [{"type": "data", "source": {"type": "base64", "media_type": "application/octet-stream", "data": "/wA="}}],
        ),
    ],
)
async def test_a_result_of_any_type_becomes_parts(result: Any, parts: list[Any]) -> None:
    def give() -> Any:
        return result

    outcome = await outcome_of(give)

    assert (outcome.parts, outcome.state) == (parts, "success")
    stored = tool_result("c1", outcome.parts, name="give", state=outcome.state)
    assert Message.from_dict(stored.to_dict()) == stored


async def test_parts_are_no_longer_shared_with_the_tool() -> None:
    kept = [{"type": "text", "text": "before"}]

    def give() -> Any:
        return kept

    outcome = await outcome_of(give)
    kept[0]["text"] = "after"

    assert outcome.parts == [{"type": "text", "text": "before"}]
    assert outcome.text == '[{"type":"text","text":"before"}]'


@pytest.mark.parametrize("result", [object(), float("nan"), [{"type": "image", "source": {"data": 2**70}}]])
async def test_what_cannot_be_stored_is_the_tools_failure(result: Any) -> None:
    def give() -> Any:
        return result

    outcome = await outcome_of(give)

    assert outcome.state == "error"
    assert outcome.text.startswith("Error: the tool 'give' failed (ValueError: a tool's output")


async def test_the_words_of_a_tool_error_are_for_the_model(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(n: int) -> None:
        raise ToolError("n must be even: send 2 or 4")

    outcome = await outcome_of(refuse, n=1)

    assert (outcome.state, outcome.text) == ("error", "Error: n must be even: send 2 or 4")
    assert isinstance(outcome.error, ToolError)
    assert [(record.name, record.levelno) for record in caplog.records] == [("leafward.tools", logging.WARNING)]


@pytest.mark.parametrize("error", [StorageFull("chat.db"), LeaseLost("s")])
async def test_a_failure_of_the_store_is_raised(error: Exception) -> None:
    def write() -> None:
        raise error

    with pytest.raises(type(error)):
        await outcome_of(write)


class _Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(1), StopIteration(), GeneratorExit(), _Odd(), asyncio.CancelledError()])
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_exception_that_would_end_more_than_the_call_is_an_outcome(kind: str, error: BaseException) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    outcome = await outcome_of(plain if kind == "plain" else coroutine)

    assert outcome.state == "error"
    assert type(error).__name__ in outcome.text


async def test_an_unknown_tool_is_an_outcome() -> None:
    outcome = await ToolSet().run("nothing", {})

    assert (outcome.state, outcome.text) == ("error", "Error: there is no tool 'nothing'. Call one of: none.")


async def test_an_external_tool_is_not_run() -> None:
    @tool(external=True)
    def ask(question: str) -> str:
        raise AssertionError("it was run")

    waiting = await run(ask, {"question": "Which?"})

    assert (waiting.state, waiting.text) == ("running", "[Awaiting external execution]")
    assert (await run(ask, {})).state == "error"


# ── cancellation ─────────────────────────────────────────────────────────────


async def test_a_tool_that_cancels_its_task_does_not_cancel_the_caller() -> None:
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    outcome = await outcome_of(cancel)

    assert outcome.state == "error"
    assert "raised CancelledError although its caller was not cancelled" in outcome.text


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_cancelled_caller_is_cancelled(swallows: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            if not swallows:
                raise
        return "done all the same"

    calling = asyncio.create_task(outcome_of(wait))
    await begun.wait()
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ended.is_set()


async def test_a_second_cancellation_does_not_wait_for_a_tool_that_ignores_the_first() -> None:
    begun, release, ignored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                ignored.set()

    calling = asyncio.create_task(outcome_of(wait))
    await begun.wait()
    calling.cancel()
    await ignored.wait()
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    release.set()


# ── timeouts ─────────────────────────────────────────────────────────────────


async def test_an_async_tool_is_cancelled_at_its_timeout() -> None:
    cancelled = asyncio.Event()

    @tool(timeout=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    outcome = await run(hang)

    assert outcome.state == "error"
    assert outcome.text == (
        "Error: the tool 'hang' did not end within 0.01 s. It may have taken effect: "
        "find out before you call it again, or go on without it."
    )
    assert cancelled.is_set()
    with pytest.raises(TimeoutError, match="'hang' did not end"):
        await ToolSet([hang]).call("hang", raise_errors=True)


async def test_a_tool_that_ignores_its_timeout_is_given_up() -> None:
    release = asyncio.Event()

    @tool(timeout=0.01)
    async def hang() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    assert (await run(hang)).state == "error"
    release.set()


async def test_a_result_that_a_tool_gives_when_it_is_cancelled_counts() -> None:
    @tool(timeout=0.01)
    async def partly() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "the first half"
        return "all"

    assert (await run(partly)).text == "the first half"


async def test_a_plain_function_past_its_timeout_is_counted_until_it_ends() -> None:
    release = threading.Event()

    @tool(timeout=0.02)
    def hang() -> None:
        release.wait()

    outcome = await run(hang)

    assert outcome.text.startswith("Error: the tool 'hang' did not end within 0.02 s.")
    assert tool_threads().abandoned == 1
    release.set()
    await ended(tool_threads())


async def test_a_tool_that_no_thread_was_free_for_is_reported_as_not_started() -> None:
    release, called = threading.Event(), threading.Event()
    holding = [asyncio.create_task(tool_threads().call(release.wait)) for _ in range(RUNNING)]

    @tool(timeout=0.02)
    def late() -> None:
        called.set()

    outcome = await run(late)
    release.set()
    await asyncio.gather(*holding)

    assert (outcome.state, outcome.text) == (
        "error",
        "Error: the tool 'late' was not started within 0.02 s: call it again.",
    )
    assert not called.is_set()


async def test_a_timeout_error_of_the_tool_is_the_tools() -> None:
    @tool(timeout=60)
    def call() -> None:
        raise TimeoutError("the service did not answer")

    assert (await run(call)).text.startswith("Error: the tool 'call' failed (TimeoutError: the service did not answer)")


# ── threads ──────────────────────────────────────────────────────────────────


async def test_plain_functions_run_in_parallel_with_the_callers_context() -> None:
    who = contextvars.ContextVar[str]("who")
    together = threading.Barrier(10)

    def meet(n: int) -> str:
        together.wait(30)
        return f"{who.get()} {n}"

    async def call(n: int) -> str:
        who.set(f"caller {n}")
        return (await outcome_of(meet, n=n)).text

    assert await asyncio.gather(*map(call, range(10))) == [f"caller {n} {n}" for n in range(10)]


async def test_no_more_functions_run_at_a_time_than_there_are_threads() -> None:
    threads = ToolThreads(running=3)
    lock, now, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1

    await asyncio.gather(*(threads.call(work) for _ in range(20)))

    assert (most, now) == (3, 0)


async def test_threads_are_used_again() -> None:
    threads = ToolThreads()

    assert len({await threads.call(threading.get_ident) for _ in range(20)}) == 1


def test_threads_end_with_their_event_loop() -> None:
    async def call() -> set[threading.Thread]:
        return set(await asyncio.gather(*(tool_threads().call(work) for _ in range(5))))

    together = threading.Barrier(5)

    def work() -> threading.Thread:
        together.wait(30)
        return threading.current_thread()

    used = asyncio.run(call())
    gc.collect()

    assert len(used) == 5
    for thread in used:
        thread.join(30)
        assert not thread.is_alive()


async def test_hanging_functions_do_not_use_up_the_threads_until_there_are_too_many() -> None:
    threads = ToolThreads(running=2, abandoned=5)
    release = threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await threads.call(release.wait)

    for n in range(5):
        assert await threads.call(lambda: "runs") == "runs"
        await give_up()
        assert threads.abandoned == n + 1
    with pytest.raises(ToolError, match="no thread is free: 5 earlier tool calls did not end in time"):
        await threads.call(lambda: "runs")

    release.set()
    await ended(threads)
    assert await threads.call(lambda: "runs") == "runs"


async def test_a_function_that_waits_in_line_and_is_given_up_is_not_called() -> None:
    threads = ToolThreads(running=1)
    release, called = threading.Event(), threading.Event()
    first = asyncio.create_task(threads.call(release.wait))
    second = asyncio.create_task(threads.call(called.set))
    await asyncio.sleep(0)
    second.cancel()
    release.set()

    await first
    await asyncio.gather(second, return_exceptions=True)
    assert (second.cancelled(), called.is_set(), threads.abandoned) == (True, False, 0)


async def test_a_tool_on_a_thread_may_wait_for_another_one() -> None:
    threads = ToolThreads(running=1)
    loop = asyncio.get_running_loop()

    def outer() -> str:
        return asyncio.run_coroutine_threadsafe(threads.call(lambda: "inner"), loop).result(30)

    assert await asyncio.wait_for(threads.call(outer), 30) == "inner"


def test_a_hanging_function_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from leafward import tool
from leafward.tools import run

@tool(timeout=0.05)
def hang() -> None:
    threading.Event().wait()

print(asyncio.run(run(hang)).state)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "error"


# ── probes ───────────────────────────────────────────────────────────────────


async def test_a_probe_finds_the_result_of_a_call_that_was_cut_off() -> None:
    done = {"key-1": {"paid": 5}}

    def look(arguments: dict[str, Any], key: str) -> Any:
        assert arguments == {"amount": 5}
        return done.get(key)

    @tool(probe=look)
    def pay(amount: int) -> None: ...

    assert await ask_probe(pay, '{"amount": 5}', "key-1") == Outcome([{"type": "text", "text": '{"paid":5}'}])
    assert await ask_probe(pay, {"amount": 5}, "key-2") is None
    assert await ask_probe(pay, "not JSON", "key-1") is None


async def test_a_probe_that_fails_says_so() -> None:
    async def look(arguments: dict[str, Any], key: str) -> Any:
        raise OSError("the bank is closed")

    with pytest.raises(OSError, match="closed"):
        await ask_probe(Tool("pay", "", {}, lambda _: asyncio.sleep(0), probe=look), {}, "key")


async def test_what_waited_for_a_thread_is_checked_again_before_it_runs() -> None:
    threads = ToolThreads(running=1)
    go_on, ran = threading.Event(), threading.Event()
    is_held = True

    def check() -> None:
        if not is_held:
            raise LeaseLost("s1")

    first = asyncio.create_task(threads.call(go_on.wait, check))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.call(ran.set, check))
    await asyncio.sleep(0)
    is_held = False
    go_on.set()

    assert await first
    with pytest.raises(LeaseLost):
        await second
    assert not ran.is_set()
