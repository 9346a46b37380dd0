"""A durable agent on OpenAI's SDK: python react_openai.py SESSION QUESTION"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from httpx import TransportError
from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from leafward import ReActAgent, RuntimeContext, tool
from leafward.engine import CallDelta, ModelError, ModelEvent, ModelRequest, Stop, TextDelta
from leafward.formats import to_openai_chat


class OpenAIModel:
    """Asks a model of OpenAI's, or of a server that speaks its chat API."""

    def __init__(self, client: AsyncOpenAI, name: str) -> None:
        self.client = client
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        asked = {"model": self.name, "messages": [*system, *to_openai_chat(request.messages)]}
        if request.tools:
            asked["tools"] = request.tools.to_openai()
        try:
            async with await self.client.chat.completions.create(**asked, stream=True) as chunks:
                async for chunk in chunks:
                    for choice in chunk.choices:
                        for event in events_of(choice):
                            yield event
        except APIStatusError as error:
            temporary = error.status_code in (408, 409, 429) or error.status_code >= 500
            raise ModelError(error.message, temporary=temporary, status=error.status_code) from error
        except (APIConnectionError, TransportError) as error:  # also a stream that breaks off
            raise ModelError(str(error), temporary=True) from error


def events_of(choice: Any) -> Iterator[ModelEvent]:
    """Yield what one chunk of a stream brings."""
    if choice.delta.content:
        yield TextDelta(choice.delta.content)
    for piece in choice.delta.tool_calls or ():
        called = piece.function
        yield CallDelta(called.arguments or "", called.name or "", piece.id or "", index=piece.index)
    if choice.finish_reason:
        yield Stop(choice.finish_reason)


@tool(read_only=True)
async def forecast(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


async def main(session_id: str, question: str) -> None:
    async with AsyncOpenAI(max_retries=0) as client:  # the agent asks again itself
        model = OpenAIModel(client, "gpt-4.1")
        async with ReActAgent("helper", model, tools=[forecast], store="sqlite:///agent.db") as agent:
            async for event in agent.stream(question, RuntimeContext("alice", session_id)):
                if event.type == "TEXT_BLOCK_DELTA":
                    print(event.text, end="", flush=True)
        print()


if len(sys.argv) != 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
asyncio.run(main(*sys.argv[1:]))
