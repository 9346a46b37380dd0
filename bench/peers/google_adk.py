"""google-adk `SqliteSessionService`: one event per message, one connection per call; no branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driver import Driver, serve
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

KEY = {"app_name": "bench", "user_id": "u0"}


def _part(part: dict[str, Any]) -> types.Part:
    if part["type"] == "text":
        return types.Part(text=part["text"])
    if part["type"] == "tool_use":
        return types.Part(function_call=types.FunctionCall(id=part["id"], name=part["name"], args=part["input"]))
    response = types.FunctionResponse(id=part["id"], name=part["name"], response={"result": part["output"]})
    return types.Part(function_response=response)


class GoogleAdk(Driver):
    fill_batch = 50

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    async def open(self, path: str) -> None:
        self._service = SqliteSessionService(str(Path(path) / "adk.db"))

    async def prepare(self, message: dict[str, Any]) -> Event:
        author = "user" if message["role"] == "user" else "assistant"
        content = types.Content(
            role="model" if message["role"] == "assistant" else "user",
            parts=[_part(part) for part in message["parts"]],
        )
        return Event(author=author, content=content, invocation_id=f"turn-{message['id']}")

    async def append(self, session: int, message: Event) -> None:
        if session not in self._sessions:
            self._sessions[session] = await self._service.create_session(session_id=f"s{session}", **KEY)
        await self._service.append_event(self._sessions[session], message)

    async def history(self, session: int) -> int:
        found = await self._service.get_session(session_id=f"s{session}", **KEY)
        return len(found.events) if found else 0

    async def recent(self, session: int, count: int) -> int:
        config = GetSessionConfig(num_recent_events=count)
        found = await self._service.get_session(session_id=f"s{session}", config=config, **KEY)
        return len(found.events) if found else 0

    async def release(self, session: int) -> None:
        self._sessions.pop(session, None)

    async def close(self) -> None:
        await self._service.close()


if __name__ == "__main__":
    serve(GoogleAdk)
