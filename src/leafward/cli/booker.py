"""`python -m leafward.cli.booker URL SESSION AGENT`: run a turn of an agent whose tools never end, until killed.

Each tool says on standard output, on a line of its own, that it runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from leafward import LeafwardError, ReActAgent, RuntimeContext, Session, open_store, tool, user
from leafward.cli import story
from leafward.engine import CallDelta, ModelEvent, ModelRequest, Stop, TextDelta
from leafward.stores import Store

Running = Callable[[str], Awaitable[None]]


class ScriptedGuide:
    """A model whose words are written beforehand: it books, finds out what became of that, and says so."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        called = [part["name"] for message in request.messages for part in message.parts if part["type"] == "tool_use"]
        if not called:
            yield TextDelta("I book a bicycle, and look at the weather.")
            yield CallDelta('{"day": "Saturday"}', "book_bicycle", "book-1")
            yield CallDelta("{}", "forecast", "forecast-1")
        elif "find_bookings" not in called:
            yield CallDelta("{}", "find_bookings", "find-1")
        else:
            yield TextDelta("Your bicycle is booked for Saturday, and it will be sunny.")
        yield Stop("stop" if "find_bookings" in called else "tool_calls")


def make_agent(store: Store, session_id: str, agent_id: str, running: Running) -> ReActAgent:
    """Return the agent; `running` is awaited with the name of each tool that runs, after its effect."""
    bookings = Session(store, f"{session_id}-bookings", agent_id=agent_id)

    @tool
    async def book_bicycle(day: str) -> str:
        """Book a bicycle."""
        await bookings.append_message(user(f"a bicycle on {day}"))
        await running("book_bicycle")
        return "Booked."

    @tool(read_only=True)
    async def forecast() -> str:
        """Tell the weather."""
        await running("forecast")
        return "Sunny."

    @tool(read_only=True)
    async def find_bookings() -> str:
        """List what is booked."""
        await running("find_bookings")
        return "\n".join(message.text for message in await bookings.get_history())

    return ReActAgent(
        "demo", ScriptedGuide(), agent_id=agent_id, tools=[book_bicycle, forecast, find_bookings], store=store
    )


async def _say_and_wait(name: str) -> None:
    os.write(1, f"{name}\n".encode())
    await asyncio.Event().wait()


async def book_until_killed(url: str, session_id: str, agent_id: str) -> None:
    async with open_store(url) as store:
        agent = make_agent(store, session_id, agent_id, _say_and_wait)
        await agent.call(story.BOOKING, RuntimeContext(session_id=session_id))


def main() -> None:
    try:
        asyncio.run(book_until_killed(*sys.argv[1:]))
    except LeafwardError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
