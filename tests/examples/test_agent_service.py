"""The agent service of the guide: its very program, run by uvicorn with two workers, asked by a real HTTP client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.examples.service import client_of, events_of, running

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "examples" / "agent_service.py"
SHORT, LONG = "one two three", " ".join(f"word{n}" for n in range(60))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service that these tests share; each uses other chats."""
    with running(PROGRAM, tmp_path_factory.mktemp("agent-service")) as address:
        yield address


@pytest.fixture
async def client(service: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(service) as client:
        yield client


async def ask(client: httpx.AsyncClient, chat: str, text: str, *, leaves: bool = False) -> list[dict[str, Any]]:
    """Send a question whose id is its text, and return what was sent; with `leaves`, up to the first text."""
    found: list[dict[str, Any]] = []
    async with client.stream("POST", f"/chats/{chat}/turns", json={"text": text, "id": text[:20]}) as response:
        assert response.status_code == 200, await response.aread()
        async for event in events_of(response):
            found.append(event)
            if leaves and "delta" in event:
                break
    return found


async def texts(client: httpx.AsyncClient, chat: str) -> list[str]:
    messages = (await client.get(f"/chats/{chat}/messages")).json()
    return [part["text"] for message in messages for part in message["parts"]]


async def test_a_reply_is_streamed_and_a_question_that_is_sent_again_is_answered_once(
    client: httpx.AsyncClient,
) -> None:
    first = await ask(client, "trip", SHORT)
    again = await ask(client, "trip", SHORT)

    assert "".join(event.get("delta", "") for event in first) == "one two three "
    assert [event["type"] for event in again] == ["AGENT_START", "AGENT_RESULT", "AGENT_END"]
    assert again[1]["message"] == next(event["message"] for event in first if event["type"] == "AGENT_RESULT")
    assert await texts(client, "trip") == [SHORT, "one two three "]


async def test_a_turn_goes_on_when_its_client_leaves_and_can_be_followed_again(client: httpx.AsyncClient) -> None:
    await ask(client, "left", LONG, leaves=True)

    async with client.stream("GET", "/chats/left/turn") as response:
        followed = [event async for event in events_of(response)]

    assert [event["type"] for event in followed[:2]] == ["AGENT_START", "CUSTOM"]
    assert [event["type"] for event in followed[-2:]] == ["AGENT_RESULT", "AGENT_END"]
    assert await texts(client, "left") == [LONG, f"{LONG} "]


async def test_a_turn_is_stopped_by_a_request_to_any_worker(client: httpx.AsyncClient) -> None:
    await ask(client, "stopped", LONG, leaves=True)

    assert (await client.post("/chats/stopped/stop")).json() == {"stopped": True}
    async with client.stream("GET", "/chats/stopped/turn") as response:
        assert response.status_code == 200
        await response.aread()  # until the turn has ended

    assert (await client.post("/chats/stopped/stop")).json() == {"stopped": False}
    question, partial = await texts(client, "stopped")
    assert question == LONG
    assert len(partial) < len(LONG)
    assert LONG.startswith(partial.strip())


async def test_a_deploy_pauses_a_turn_and_the_next_process_goes_on(tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path) as address:
        async with client_of(address) as client:
            await ask(client, "deploy", LONG, leaves=True)

    with running(PROGRAM, tmp_path) as address:
        async with client_of(address) as client:
            question, partial = await texts(client, "deploy")
            assert question == LONG
            assert LONG.startswith(partial.strip())

            await ask(client, "deploy", LONG)
            assert (await texts(client, "deploy"))[:2] == [LONG, partial]


def test_the_guide_shows_the_program_that_is_run() -> None:
    guide = (ROOT / "docs" / "guides" / "agent-service.md").read_text(encoding="utf-8")

    assert PROGRAM.read_text(encoding="utf-8") in guide
