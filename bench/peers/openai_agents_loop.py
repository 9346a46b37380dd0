"""openai-agents `Runner.run` with its `SQLiteSession`: the input and what was made are written when the run ends."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from turns.loop import ANSWER, QUESTION, WRITTEN, Loop, serve


@function_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Script(Model):
    """A model that calls `add` as often as it is told, then answers."""

    def __init__(self) -> None:
        self.rounds = 0
        self._numbers = count()

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        done = 0
        for item in reversed(input if isinstance(input, list) else []):
            if item.get("role") == "user":
                break
            done += item.get("type") == "function_call_output"
        number = next(self._numbers)
        said: Any
        if done < self.rounds:
            said = ResponseFunctionToolCall(
                arguments=WRITTEN, call_id=f"call {number}", name="add", type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text=ANSWER, type="output_text")
            said = ResponseOutputMessage(
                id=f"m{number}", content=[text], role="assistant", status="completed", type="message"
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class OpenAIAgents(Loop):
    def __init__(self) -> None:
        # Traces would be sent to a server.
        set_tracing_disabled(True)
        self._script = Script()
        self._agent = Agent("adder", model=self._script, tools=[add])
        self._session: tuple[int, SQLiteSession] | None = None

    async def open(self, path: str) -> None:
        self._path = Path(path) / "sessions.db"

    async def call(self, session: int, rounds: int) -> str:
        if self._session is None or self._session[0] != session:
            await self.close()
            self._session = session, SQLiteSession(f"s{session}", self._path)
        self._script.rounds = rounds
        result = await Runner.run(self._agent, QUESTION, session=self._session[1], max_turns=100)
        return str(result.final_output)

    async def close(self) -> None:
        if self._session is not None:
            self._session[1].close()
            self._session = None


if __name__ == "__main__":
    serve(OpenAIAgents)
