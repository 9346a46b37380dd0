"""The step of the demo that shows a turn: one process is killed inside its tools, another goes on."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any

from leafward import Message, RuntimeContext, Session, StoreError, open_store
from leafward.cli import story
from leafward.cli.booker import make_agent
from leafward.cli.screen import Screen
from leafward.cli.stage import AGENT, Demo, Facts, check

PATIENCE_S = 50.0
TOOLS = {"book_bicycle", "forecast"}
"""The tools that run when the process is killed."""


async def turn(demo: Demo, screen: Screen) -> Facts:
    """Kill an agent while its tools run, and send the same question to another one here."""
    session_id = f"{demo.session_id}-turn"
    with screen.working("an agent in a child process is booking …"):
        pid, exit_code = await _kill_inside_tools(demo, session_id)
    ran: list[str] = []

    async def running(name: str) -> None:
        ran.append(name)

    async with open_store(demo.url) as store:
        agent = make_agent(store, session_id, AGENT, running)
        session = agent.session(session_id=session_id)
        before = [message.role for message in await session.get_raw_history()]
        reply = await agent.call(story.BOOKING, RuntimeContext(session_id=session_id))
        after = await session.get_raw_history()
        bookings = await Session(store, f"{session_id}-bookings", agent_id=AGENT).get_path_length()
    outcome = _result(after, "book-1")["output"][0]["text"]
    check(demo, before == ["user", "assistant"], f"a killed turn left {before}")
    check(demo, ran == ["forecast", "find_bookings"], f"tools that ran again: {ran}")
    check(demo, bookings == 1, f"{bookings} bookings of one")
    check(demo, [message.role for message in after].count("user") == 1, "a question is stored twice")
    screen.say(f"Process {pid} had stored the question and the model's reply, and was running two tools when it got")
    screen.say(
        ("SIGKILL", "bold red"), ". The same question, sent to an agent in this process, goes on with that turn:"
    )
    screen.say(("forecast", "bold"), " is read-only, and ran again.")
    screen.say(("book_bicycle", "bold"), " did not run again. The model reads: ", (outcome, "green"))
    screen.say(("find_bookings", "bold"), f" → {_result(after, 'find-1')['output'][0]['text']}")
    screen.say(f"Reply: {reply.text}")
    screen.say("The question is stored once, ", ("one bicycle is booked", "bold green"), ".")
    return {
        "exit_code": exit_code,
        "stored_before": before,
        "stored_after": [message.role for message in after],
        "ran_again": ran,
        "outcome": outcome,
        "bookings": bookings,
        "reply": reply.text,
    }


def _result(messages: list[Message], call_id: str) -> dict[str, Any]:
    """Return the result of a call."""
    parts = [part for message in messages for part in message.parts]
    return next(part for part in parts if part["type"] == "tool_result" and part["id"] == call_id)


async def _kill_inside_tools(demo: Demo, session_id: str) -> tuple[int, int | None]:
    """Start an agent, kill it when both tools run, and return its process id and its exit code."""
    booker = await asyncio.create_subprocess_exec(
        # -P: what lies in the current directory is not imported.
        *(sys.executable, "-P", "-m", "leafward.cli.booker", demo.url, session_id, AGENT),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        await asyncio.wait_for(_wait_for_tools(booker), PATIENCE_S)
    finally:
        if booker.returncode is None:
            booker.kill()
            await booker.wait()
    return booker.pid, booker.returncode


async def _wait_for_tools(booker: Process) -> None:
    assert booker.stdout is not None
    assert booker.stderr is not None
    waiting = set(TOOLS)
    while waiting:
        line = await booker.stdout.readline()
        if not line:
            reason = (await booker.stderr.read()).decode(errors="replace").strip()
            raise StoreError(f"the agent ended before it was killed: {reason.rpartition(chr(10))[2]}")
        waiting.discard(line.decode().strip())
