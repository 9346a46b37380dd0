"""An agent that remembers: python agent_anthropic.py SESSION QUESTION"""

import asyncio
import sys

from anthropic import AsyncAnthropic

from leafward import Session, open_store, tool_result, user
from leafward.formats import from_anthropic, to_anthropic


async def ask(client: AsyncAnthropic, session: Session, question: str) -> str:
    await session.append_message(user(question))
    while True:
        tools = await session.tools()
        reply = await client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=1024,
            system=await session.freeze_system_prompt(),
            messages=to_anthropic(await session.get_history())["messages"],
            tools=tools.to_anthropic(),
        )
        said = from_anthropic([{"role": reply.role, "content": reply.content}])
        await session.append_messages(said)
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return said[0].text
        for call in calls:
            answer = await tools.call(call.name, call.input)
            state = "error" if answer.startswith("Error:") else "success"
            await session.append_message(tool_result(call.id, answer, name=call.name, state=state))


async def main(session_id: str, question: str) -> None:
    async with open_store("sqlite:///agent.db") as store, AsyncAnthropic() as client:
        session = Session(store, session_id, user_id="alice").with_cached_prompt()
        session.with_context("soul", provider="You are a helpful assistant. Note in memory what you learn.")
        session.with_context("memory", description="What you know about the user", max_tokens=1100, shared=True)
        print(await ask(client, session, question))


if len(sys.argv) != 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
asyncio.run(main(*sys.argv[1:]))
