"""An agent that remembers: python agent_openai.py SESSION QUESTION"""

import asyncio
import sys

from openai import AsyncOpenAI

from leafward import Session, open_store, tool_result, user
from leafward.formats import to_openai_chat


async def ask(client: AsyncOpenAI, session: Session, question: str) -> str | None:
    await session.append_message(user(question))
    while True:
        tools = await session.tools()
        prompt = {"role": "system", "content": await session.freeze_system_prompt()}
        messages = [prompt, *to_openai_chat(await session.get_history())]
        reply = await client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools.to_openai())
        said = reply.choices[0].message
        await session.append_message(said)
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            answer = await tools.call(call.function.name, call.function.arguments)
            state = "error" if answer.startswith("Error:") else "success"
            await session.append_message(tool_result(call.id, answer, name=call.function.name, state=state))


async def main(session_id: str, question: str) -> None:
    async with open_store("sqlite:///agent.db") as store, AsyncOpenAI() as client:
        session = Session(store, session_id, user_id="alice").with_cached_prompt()
        session.with_context("soul", provider="You are a helpful assistant. Note in memory what you learn.")
        session.with_context("memory", description="What you know about the user", max_tokens=1100, shared=True)
        print(await ask(client, session, question))


if len(sys.argv) != 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
asyncio.run(main(*sys.argv[1:]))
