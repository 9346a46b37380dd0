"""An agent that talks until its conversation is summed up."""

from __future__ import annotations

from typing import Any

from leafward import CompactionConfig, ReActAgent, user
from leafward.engine import AgentEvent, ModelRequest
from leafward.testing import ScriptedModel
from tests.engine.bakery import ALICE

SMALL = CompactionConfig(trigger_messages=6, keep_messages=2)


class Talker:
    """A model that answers each message, and sums up when it is asked to."""

    def __init__(self, *, summary: str = "They greeted each other.") -> None:
        self.summary = summary
        self.asked: list[ModelRequest] = []
        self.to_sum_up: list[str] = []

    def model(self) -> ScriptedModel:
        return ScriptedModel(self.reply)

    async def reply(self, request: ModelRequest) -> Any:
        last = request.messages[-1].text
        if is_prompt_for_summary(request):
            self.to_sum_up.append(last)
            return self.summary
        self.asked.append(request)
        return f"You said: {last}"


def is_prompt_for_summary(request: ModelRequest) -> bool:
    return "CONVERSATION TO SUMMARIZE" in request.messages[0].text or "PREVIOUS SUMMARY" in request.messages[0].text


def agent(store: Any, model: Any, **options: Any) -> ReActAgent:
    return ReActAgent("cook", model, store=store, **{"compaction": SMALL, **options})


def said(messages: Any) -> list[str]:
    return [message.text for message in messages]


async def talk(of: ReActAgent, count: int, *, first: int = 1) -> None:
    for number in range(first, first + count):
        await of.call(user(f"m{number}", id=f"m{number}"), ALICE)


async def events_of(of: ReActAgent, given: Any = "hello") -> list[AgentEvent]:
    return [event async for event in of.stream(given, ALICE)]
