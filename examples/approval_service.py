"""Questions and outside work behind HTTP: uvicorn approval_service:app --workers 2"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from leafward import Message, ReActAgent, RuntimeContext, StoreError, tool, tool_result, user
from leafward.engine import ModelEvent, ModelRequest, Stop, TextDelta, WholePart


@tool(check=lambda arguments, ctx: "ask" if arguments["amount"] > 50 else "allow")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(external=True)
def print_label(text: str) -> str:
    """Print a label in the warehouse, where another program does it."""
    return ""


class BuyingModel:
    """A stand-in for your model: it pays the number that it is sent, then has a label printed."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        said = [part["output"][0]["text"] for part in last.parts if part["type"] == "tool_result"]
        if last.role == "user" and last.text.isdecimal():
            yield WholePart({"type": "tool_use", "id": "pay-1", "name": "pay", "input": {"amount": int(last.text)}})
        elif said and said[0].startswith("paid"):
            yield WholePart({"type": "tool_use", "id": "label-1", "name": "print_label", "input": {"text": "Box"}})
        else:
            yield TextDelta(said[0] if said else "Send me an amount.")
        yield Stop("stop")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    store = os.environ.get("LEAFWARD_STORE", "sqlite:///chat.db")
    async with ReActAgent("buyer", BuyingModel(), store=store, tools=[pay, print_label]) as agent:
        app.state.agent = agent
        yield


app = FastAPI(lifespan=lifespan)


def agent_of(request: Request) -> ReActAgent:
    return request.app.state.agent


def whose(chat: str, x_user: Annotated[str, Header()]) -> RuntimeContext:
    """Return whose call it is; take the user from your authentication instead of a header."""
    return RuntimeContext(x_user, chat)


Agent = Annotated[ReActAgent, Depends(agent_of)]
Context = Annotated[RuntimeContext, Depends(whose)]


class Question(BaseModel):
    text: str
    id: str


class Answer(BaseModel):
    """What the user says about a call, which may be edited, and rules for calls like it."""

    confirmed: bool
    call: dict[str, Any] = Field(alias="toolCall")
    reply: str | None = Field(default=None, alias="replyId")
    rules: list[dict[str, Any]] = []


class Result(BaseModel):
    call_id: str
    output: str


@app.post("/chats/{chat}/turns")
async def post_turn(asked: Question, agent: Agent, ctx: Context) -> dict[str, Any]:
    return shown(await agent.call(user(asked.text, id=asked.id), ctx))


@app.get("/chats/{chat}/questions")
async def get_questions(agent: Agent, ctx: Context) -> list[dict[str, Any]]:
    """Return the calls that wait for the user, whichever worker has asked, and may be gone since."""
    return [question.to_dict() for question in await agent.questions(ctx.user_id, ctx.session_id)]


@app.post("/chats/{chat}/answers")
async def post_answers(answers: list[Answer], agent: Agent, ctx: Context) -> dict[str, Any]:
    return shown(
        await agent.answer(ctx.user_id, ctx.session_id, [answer.model_dump(by_alias=True) for answer in answers])
    )


@app.post("/chats/{chat}/results")
async def post_result(result: Result, agent: Agent, ctx: Context) -> dict[str, Any]:
    """Take the result of work that another program has done."""
    return shown(await agent.call(tool_result(result.call_id, result.output), ctx))


def shown(reply: Message) -> dict[str, Any]:
    """Return the reply, and why the turn waits: `PERMISSION_ASKING`, `TOOL_SUSPENDED`, or nothing."""
    return {"text": reply.text, "waits": (reply.metadata or {}).get("agentscope_generate_reason"), "parts": reply.parts}


async def refuse(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, ValueError) else 503)


for kind in (ValueError, StoreError):
    app.add_exception_handler(kind, refuse)

if __name__ == "__main__":
    print(__doc__)
