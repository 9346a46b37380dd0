"""An agent that streams: python streaming_openai.py SESSION QUESTION"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from openai import AsyncOpenAI

from leafward import Session, open_store, tool_result, user
from leafward.formats import to_openai_chat

Send = Callable[[str], None]


async def say(client: AsyncOpenAI, session: Session, send: Send, **request: Any) -> dict[str, Any]:
    """Send the model's next message piece by piece, store it, and return it."""
    said: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    try:
        async for chunk in await client.chat.completions.create(model="gpt-4.1", stream=True, **request):
            for choice in chunk.choices:
                if choice.delta.content:
                    said["content"] += choice.delta.content
                    send(choice.delta.content)
                for piece in choice.delta.tool_calls or ():
                    new = {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
                    function = calls.setdefault(piece.index, new)["function"]
                    function["name"] += piece.function.name or ""
                    function["arguments"] += piece.function.arguments or ""
        if calls:  # only now are they whole
            said["tool_calls"] = list(calls.values())
        return said
    finally:  # also when the reader left, or the model failed
        if said["content"] or "tool_calls" in said:
            await session.append_message(said)


async def ask(client: AsyncOpenAI, session: Session, question: str, send: Send) -> None:
    """Answer a question, and run the tools that the model asks for."""
    await session.append_message(user(question))
    while True:
        tools = await session.tools()
        prompt = {"role": "system", "content": await session.freeze_system_prompt()}
        messages = [prompt, *to_openai_chat(await session.get_history())]
        said = await say(client, session, send, messages=messages, tools=tools.to_openai())
        if "tool_calls" not in said:
            return
        for call in said["tool_calls"]:
            answer = await tools.call(call["function"]["name"], call["function"]["arguments"])
            state = "error" if answer.startswith("Error:") else "success"
            result = tool_result(call["id"], answer, name=call["function"]["name"], state=state)
            await session.append_message(result)


async def main(session_id: str, question: str) -> None:
    async with open_store("sqlite:///agent.db") as store, AsyncOpenAI() as client:
        session = Session(store, session_id, user_id="alice").with_cached_prompt()
        session.with_context("soul", provider="You are a helpful assistant. Note in memory what you learn.")
        session.with_context("memory", description="What you know about the user", max_tokens=1100, shared=True)
        await ask(client, session, question, send=lambda piece: print(piece, end="", flush=True))
        print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    asyncio.run(main(*sys.argv[1:]))
