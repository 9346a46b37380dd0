"""pydantic-ai's `Agent.run`: with `StepPersistence` on SQLite, or with one row of messages for each run.

The library itself keeps no sessions. `StepPersistence`, of pydantic-ai-harness, is its own way to store steps; a row of
`new_messages_json()` for each run, written when that has ended, is one way of a user to keep it.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness import StepPersistence
from pydantic_ai_harness.step_persistence import SqliteStepStore, continue_run
from turns.loop import ANSWER, ARGUMENTS, QUESTION, Loop, serve


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class PydanticAI(Loop):
    def __init__(self) -> None:
        self._rounds = 0

    def _answer(self, messages: list[ModelMessage], _: Any) -> ModelResponse:
        done = 0
        for message in reversed(messages):
            if isinstance(message, ModelRequest):
                if any(isinstance(part, UserPromptPart) for part in message.parts):
                    break
                done += 1
        if done < self._rounds:
            return ModelResponse(parts=[ToolCallPart("add", ARGUMENTS, tool_call_id=f"call {len(messages)}")])
        return ModelResponse(parts=[TextPart(ANSWER)])


class WithSteps(PydanticAI):
    async def open(self, path: str) -> None:
        self._steps = SqliteStepStore(database=Path(path) / "steps.db")
        kept = StepPersistence(store=self._steps, agent_name="adder")
        self._agent = Agent(FunctionModel(self._answer), tools=[add], capabilities=[kept])

    async def call(self, session: int, rounds: int) -> str:
        self._rounds = rounds
        runs = await self._steps.list_runs(conversation_id=f"s{session}")
        history = await continue_run(self._steps, run_id=runs[-1].run_id) if runs else None
        result = await self._agent.run(QUESTION, message_history=history, conversation_id=f"s{session}")
        return result.output


class WithRows(PydanticAI):
    async def open(self, path: str) -> None:
        self._connection = sqlite3.connect(Path(path) / "rows.db")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE run (n INTEGER PRIMARY KEY, session TEXT, messages BLOB)")
        self._connection.execute("CREATE INDEX run_session ON run (session)")
        self._connection.commit()
        self._agent = Agent(FunctionModel(self._answer), tools=[add])

    async def call(self, session: int, rounds: int) -> str:
        self._rounds = rounds
        found = self._connection.execute("SELECT messages FROM run WHERE session = ? ORDER BY n", (session,))
        history = [message for (text,) in found for message in ModelMessagesTypeAdapter.validate_json(text)]
        result = await self._agent.run(QUESTION, message_history=history)
        self._connection.execute(
            "INSERT INTO run (session, messages) VALUES (?, ?)", (session, result.new_messages_json())
        )
        self._connection.commit()
        return result.output

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    serve({"steps": WithSteps, "rows": WithRows}[sys.argv[1]])
