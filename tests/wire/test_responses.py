"""OpenAI's Responses: what `leafward.formats` writes for it, and its stream as events of a model, by the real SDK."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI

from leafward import ToolSet, tool, tool_result, user
from leafward.engine import ModelUsage, Reply
from leafward.formats import to_openai_responses
from tests.engine.test_provider_streams import read_responses
from tests.wire.server import WireServer, says
from tests.wire.streams import Thought, call, text


@tool
async def forecast(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


async def test_a_conversation_with_calls_goes_back_and_forth(wire: WireServer) -> None:
    wire.script += [
        says(Thought("Kyoto?"), text("Let me ", "look."), call("c1", "forecast", '{"city":', '"Kyoto"}')),
        says("Sunny."),
    ]
    messages = [user("How is Kyoto?")]
    tools: Any = ToolSet([forecast])
    reply = Reply()
    async with AsyncOpenAI(base_url=f"{wire.url}/v1", api_key="none", max_retries=0) as client:
        for _ in range(2):
            asked: Any = to_openai_responses(messages)
            stream = await client.responses.create(
                model="m", input=asked, tools=tools.to_openai_responses(), stream=True, store=False
            )
            events = [event.to_dict() async for event in stream]
            reply = Reply()
            for event in read_responses(events):
                reply.add(event)
            messages += [
                reply.message(),
                *([tool_result("c1", "sunny", name="forecast")] if len(messages) == 1 else []),
            ]

    assert [part["type"] for part in messages[1].parts] == ["thinking", "text", "tool_use"]
    assert messages[1].parts[2]["input"] == {"city": "Kyoto"}
    assert (messages[3].text, reply.usage) == ("Sunny.", ModelUsage(90, 20, 64))
    sent = wire.asked[1].body["input"]
    assert [item.get("type", item.get("role")) for item in sent][1] == "reasoning"
    assert sent[1]["encrypted_content"] == "c2lnbmVk"
    assert sent[-1]["type"] == "function_call_output"
