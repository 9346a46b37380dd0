"""A chat service: uvicorn web_service:app --workers 2"""

import asyncio
import json
import logging
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from leafward import (
    InvalidId,
    LeaseBusy,
    LeaseLost,
    Message,
    MessageNotFound,
    MessageTooLarge,
    Session,
    StoreError,
    open_store,
    user,
)

BUSY_AFTER = 1.0  # seconds that a turn waits for the one before it
Events = asyncio.Queue[dict[str, Any] | Exception]


async def model(history: list[Message]) -> AsyncIterator[str]:
    """A stand-in for your provider's stream: it repeats the question, a word every 50 ms."""
    for word in history[-1].text.split():
        await asyncio.sleep(0.05)
        yield word + " "


# ── one store for each worker ────────────────────────────────────────────────


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with open_store(os.environ.get("LEAFWARD_STORE", "sqlite:///chat.db")) as store:
        app.state.store = store
        app.state.turns = set()
        yield
        for turn in app.state.turns:
            turn.cancel()
        await asyncio.gather(*app.state.turns, return_exceptions=True)  # each stores what it has


app = FastAPI(lifespan=lifespan)


def open_session(chat: str, request: Request, x_user: Annotated[str, Header()]) -> Session:
    """Return a handle for one request; take the user from your authentication instead of a header."""
    return Session(request.app.state.store, chat, user_id=x_user)


Chat = Annotated[Session, Depends(open_session)]


def server_sent(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


# ── a turn: one at a time for each chat, in a separate task ─────────────────


class Question(BaseModel):
    text: str
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)


@app.post("/chats/{chat}/turns")
async def post_turn(session: Chat, asked: Question, request: Request) -> StreamingResponse:
    events: Events = asyncio.Queue()
    turn = asyncio.create_task(take_turn(session, user(asked.text, id=asked.id), events))
    request.app.state.turns.add(turn)
    turn.add_done_callback(request.app.state.turns.discard)
    first = await events.get()  # before the response begins: it decides the status code
    if isinstance(first, Exception):
        raise first
    return StreamingResponse(follow(turn, first, events), media_type="text/event-stream")


class TooLate(Exception):
    """An older question was sent again."""


async def take_turn(session: Session, question: Message, events: Events) -> None:
    """Answer one question; report what happens, errors too, in `events`."""
    try:
        async with session.lease(wait=BUSY_AFTER) as leased:
            await leased.append_message(question)
            reply = await find_reply(leased, question)
            if reply is None and await has_gone_on(leased, question):
                raise TooLate("this question was not answered, and others were asked since: ask it again as a new one")
            events.put_nowait({"type": "begin", "question": question.id, "worker": os.getpid()})
            reply = reply or await stream_reply(leased, question, events)
            events.put_nowait({"type": "end", "reply": reply.to_dict()})
    except Exception as error:
        events.put_nowait(error)


async def find_reply(session: Session, question: Message) -> Message | None:
    """Return the reply to a question that was answered already: the client sent it again."""
    replies = await session.get_branches(question.id)
    return next((reply for reply in replies if reply.metadata == {"state": "complete"}), None)


async def has_gone_on(session: Session, question: Message) -> bool:
    """Tell whether other questions were asked since: a reply below an older one would be another branch."""
    asked = [message.id for message in await session.get_history() if message.role == "user"]
    return asked[-1:] != [question.id]


async def stream_reply(session: Session, question: Message, events: Events) -> Message:
    reply_id, text, state = uuid.uuid4().hex, "", "stopped"
    try:
        async for piece in model(await session.get_history(question.id)):
            text += piece
            events.put_nowait({"type": "text", "text": piece})
        state = "complete"
    finally:
        reply = Message("assistant", text, id=reply_id, metadata={"state": state})
        if text or state == "complete":
            await session.upsert_message(reply, parent_id=question.id)
    return reply


async def follow(turn: asyncio.Task[None], event: dict[str, Any] | Exception, events: Events) -> AsyncIterator[str]:
    """Yield what a turn reports; stop the turn when the client leaves."""
    try:
        while not isinstance(event, Exception):
            yield server_sent(event)
            if event["type"] == "end":
                return
            event = await events.get()
        logging.error("a turn failed", exc_info=event)
        yield server_sent({"type": "error"})
    finally:
        turn.cancel()  # without this line a turn goes on when its client leaves


# ── what a chat window shows ─────────────────────────────────────────────────


@app.get("/chats/{chat}/messages")
async def get_messages(session: Chat, limit: int = 50, before: str | None = None) -> dict[str, Any]:
    """Return the newest messages, or those above the message `before`, for scrolling up."""
    version = await session.get_version()  # before the messages are read, so that no change is missed
    messages = await session.get_raw_history(limit=limit, before=before)
    return {"version": version, "messages": [message.to_dict() for message in messages]}


@app.get("/chats/{chat}/changes")
async def get_changes(session: Chat, since: int) -> StreamingResponse:
    """Report every change after a version, made by any worker: for a second tab."""

    async def changes() -> AsyncIterator[str]:
        async for change in session.subscribe(since, messages=True):
            messages = [message.to_dict() for message in change.messages]
            yield server_sent({"version": change.version, "kind": change.kind, "messages": messages})

    return StreamingResponse(changes(), media_type="text/event-stream")


# ── errors ───────────────────────────────────────────────────────────────────

STATUS = {
    InvalidId: 400,
    MessageNotFound: 404,
    LeaseBusy: 409,
    LeaseLost: 409,
    TooLate: 410,
    MessageTooLarge: 413,
    StoreError: 503,
}


async def refuse(request: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status, headers={"Retry-After": "1"} if status in (409, 503) else None)


for kind in STATUS:
    app.add_exception_handler(kind, refuse)

if __name__ == "__main__":
    print(__doc__)
