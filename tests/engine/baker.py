"""A program with an agent whose tool waits for a line from the outside; tests send it signals.

python -m tests.engine.baker call|serve|finish <store> <timeout>
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from leafward import AgentShuttingDown, ReActAgent, RuntimeContext, tool
from leafward.engine import install_shutdown_signals
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@tool
def bake(dish: str) -> str:
    """Bake until the test writes a line."""
    say("began")
    sys.stdin.readline()
    return f"{dish} is baked"


def say(line: str) -> None:
    print(line, flush=True)


def agent(store: str, script: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[bake])


async def make_call(store: str, timeout: float) -> None:
    async with agent(store, [[call("bake", {"dish": "bread"}, id="c1")]]) as baking:
        install_shutdown_signals(baking, timeout=timeout)
        try:
            await baking.call("Bake", ALICE)
        except AgentShuttingDown:
            say("paused")
        await asyncio.Event().wait()


async def finish(store: str) -> None:
    async with agent(store, ["Done."]) as finishing:
        reply = await finishing.call("Bake", ALICE)
        history = await finishing.session("alice", "s1").get_raw_history()
        state = await finishing.get_agent_state("alice", "s1")
        parts = [message.parts for message in history]
        say(json.dumps({"reply": reply.text, "parts": parts, "flag": state.shutdown_interrupted}))


def serve(store: str, timeout: float) -> None:
    import uvicorn
    from fastapi import FastAPI, Response

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with agent(store, [[call("bake", {"dish": "bread"}, id="c1")]]) as baking:
            app.state.agent = baking
            with install_shutdown_signals(baking, timeout=timeout):
                yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/")
    async def post() -> Response:  # pyright: ignore[reportUnusedFunction]
        try:
            reply = await app.state.agent.call("Bake", ALICE)
        except AgentShuttingDown as error:
            return Response(str(error), 503)
        return Response(reply.text)

    listening = socket.create_server(("127.0.0.1", 0))
    say(str(listening.getsockname()[1]))
    uvicorn.Server(uvicorn.Config(app)).run(sockets=[listening])


if __name__ == "__main__":
    # A shell that runs the tests in the background has its children ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    mode, store = sys.argv[1:3]
    if mode == "call":
        asyncio.run(make_call(store, float(sys.argv[3])))
    elif mode == "serve":
        serve(store, float(sys.argv[3]))
    else:
        asyncio.run(finish(store))
