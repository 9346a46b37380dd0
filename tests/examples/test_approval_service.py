"""The approval service of the guide: its very program, run by uvicorn with two workers, asked by a real HTTP client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.examples.service import client_of, running

PROGRAM = Path(__file__).parent.parent.parent / "examples" / "approval_service.py"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service that these tests share; each uses other chats."""
    with running(PROGRAM, tmp_path_factory.mktemp("approval-service")) as address:
        yield address


@pytest.fixture
async def client(service: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(service) as client:
        yield client


async def post(client: httpx.AsyncClient, path: str, body: Any, *, status: int = 200) -> dict[str, Any]:
    response = await client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


async def test_a_payment_is_asked_about_edited_and_paid_and_a_label_is_printed_elsewhere(
    client: httpx.AsyncClient,
) -> None:
    asked = await post(client, "/chats/big/turns", {"text": "90", "id": "q1"})
    assert asked["waits"] == "PERMISSION_ASKING"
    (question,) = (await client.get("/chats/big/questions")).json()
    edited = {**question["toolCall"], "input": {"amount": 60}}

    waiting = await post(client, "/chats/big/answers", [{"confirmed": True, "toolCall": edited}])
    again = await post(client, "/chats/big/answers", [{"confirmed": True, "toolCall": edited}])

    assert waiting["waits"] == again["waits"] == "TOOL_SUSPENDED"
    assert (await client.get("/chats/big/questions")).json() == []
    done = await post(client, "/chats/big/results", {"call_id": "label-1", "output": "printed"})
    assert (done["text"], done["waits"]) == ("printed", None)
    repeated = await post(client, "/chats/big/turns", {"text": "90", "id": "q1"})
    assert repeated["text"] == "printed"


async def test_a_small_payment_is_not_asked_about_and_a_refused_one_is_not_paid(client: httpx.AsyncClient) -> None:
    assert (await post(client, "/chats/small/turns", {"text": "20", "id": "q1"}))["waits"] == "TOOL_SUSPENDED"
    await post(client, "/chats/no/turns", {"text": "90", "id": "q1"})

    refused = await post(client, "/chats/no/answers", [{"confirmed": False, "toolCall": {"id": "pay-1"}}])

    assert (refused["text"], refused["waits"]) == ("Permission denied by user", None)


async def test_answers_and_results_that_nothing_waits_for_are_refused(client: httpx.AsyncClient) -> None:
    await post(client, "/chats/none/turns", {"text": "hello", "id": "q1"})

    answer = [{"confirmed": True, "toolCall": {"id": "pay-1"}}]
    assert "no question is open" in (await post(client, "/chats/none/answers", answer, status=400))["error"]
    result = {"call_id": "label-1", "output": "printed"}
    assert "waits for a result" in (await post(client, "/chats/none/results", result, status=400))["error"]
