"""A durable agent on a model of OpenAI's: python react_openai.py SESSION QUESTION"""

import asyncio
import sys

from leafward import ReActAgent, RuntimeContext, tool
from leafward.engine import OpenAIChatModel


@tool(read_only=True)
async def forecast(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


async def main(session_id: str, question: str) -> None:
    async with OpenAIChatModel("gpt-4.1") as model:
        async with ReActAgent("helper", model, tools=[forecast], store="sqlite:///agent.db") as agent:
            async for event in agent.stream(question, RuntimeContext("alice", session_id)):
                if event.type == "TEXT_BLOCK_DELTA":
                    print(event.text, end="", flush=True)
        print()


if len(sys.argv) != 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
asyncio.run(main(*sys.argv[1:]))
