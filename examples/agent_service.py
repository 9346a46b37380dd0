"""An agent behind HTTP: uvicorn agent_service:app --workers 2"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from leafward import AgentShuttingDown, LeaseLost, ReActAgent, RuntimeContext, StoreError, user
from leafward.engine import AgentEvent, ModelEvent, ModelRequest, Stop, TextDelta, install_shutdown_signals

Events = asyncio.Queue[AgentEvent | Exception]


class RepeatingModel:
    """A stand-in for your model: it repeats the question, a word every 50 ms."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for word in request.messages[-1].text.split():
            await asyncio.sleep(0.05)
            yield TextDelta(f"{word} ")
        yield Stop("stop")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    store = os.environ.get("LEAFWARD_STORE", "sqlite:///chat.db")
    async with ReActAgent("helper", RepeatingModel(), store=store) as agent:
        app.state.agent = agent
        app.state.turns = set()
        with install_shutdown_signals(agent, timeout=10):
            yield


app = FastAPI(lifespan=lifespan)


def whose(chat: str, x_user: Annotated[str, Header()]) -> RuntimeContext:
    """Return whose call it is; take the user from your authentication instead of a header."""
    return RuntimeContext(x_user, chat)


Context = Annotated[RuntimeContext, Depends(whose)]


class Question(BaseModel):
    text: str
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)


@app.post("/chats/{chat}/turns")
async def post_turn(ctx: Context, asked: Question, request: Request) -> StreamingResponse:
    """Answer a question, and send what happens; the turn goes on if the client leaves."""
    events: Events = asyncio.Queue()
    turn = asyncio.create_task(run(request.app.state.agent, asked, ctx, events))
    request.app.state.turns.add(turn)
    turn.add_done_callback(request.app.state.turns.discard)
    first = await events.get()  # before the response begins: it decides the status code
    if isinstance(first, Exception):
        raise first
    return StreamingResponse(follow(first, events), media_type="text/event-stream")


async def run(agent: ReActAgent, asked: Question, ctx: RuntimeContext, events: Events) -> None:
    try:
        async for event in agent.stream(user(asked.text, id=asked.id), ctx):
            events.put_nowait(event)
    except Exception as error:
        events.put_nowait(error)


async def follow(event: AgentEvent | Exception, events: Events) -> AsyncIterator[str]:
    while not isinstance(event, Exception):
        yield server_sent(event.to_dict())
        if event.type == "AGENT_END":
            return
        event = await events.get()
    yield server_sent({"type": "error", "text": str(event)})


@app.get("/chats/{chat}/turn")
async def get_turn(ctx: Context, request: Request) -> StreamingResponse:
    """Send the stored steps of the turn that runs, in whatever worker, and each further step."""

    async def steps() -> AsyncIterator[str]:
        async for event in request.app.state.agent.attach(ctx.user_id, ctx.session_id):
            yield server_sent(event.to_dict())

    return StreamingResponse(steps(), media_type="text/event-stream")


@app.post("/chats/{chat}/stop")
async def stop_turn(ctx: Context, request: Request) -> dict[str, bool]:
    """Stop the turn that runs, in whatever worker."""
    return {"stopped": await request.app.state.agent.interrupt(ctx.user_id, ctx.session_id)}


@app.get("/chats/{chat}/messages")
async def get_messages(ctx: Context, request: Request) -> list[dict[str, Any]]:
    session = request.app.state.agent.session(ctx.user_id, ctx.session_id)
    return [message.to_dict() for message in await session.get_raw_history(limit=50)]


def server_sent(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


STATUS = {AgentShuttingDown: 503, StoreError: 503, LeaseLost: 503, ValueError: 400}


async def refuse(request: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status, headers={"Retry-After": "1"} if status == 503 else None)


for kind in STATUS:
    app.add_exception_handler(kind, refuse)

if __name__ == "__main__":
    print(__doc__)
