"""The web service of the guide: its very program, run by uvicorn with two workers, asked by a real HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from leafward import Session, open_store
from tests.examples.service import WORKERS, client_of, events_of, running

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "examples" / "web_service.py"
SHORT, LONG = "one two three", " ".join(f"word{n}" for n in range(200))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service that these tests share; each uses other chats."""
    with running(PROGRAM, tmp_path_factory.mktemp("service")) as address:
        yield address


@pytest.fixture
async def client(service: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(service) as client:
        yield client


async def ask(client: httpx.AsyncClient, chat: str, text: str, **fields: str) -> list[dict[str, Any]]:
    """Take a turn to its end, as soon as the chat is free, and return what was sent."""
    while True:
        async with client.stream("POST", f"/chats/{chat}/turns", json={"text": text, **fields}) as response:
            if response.status_code != 409:
                assert response.status_code == 200, await response.aread()
                return [event async for event in events_of(response)]


async def messages_of(client: httpx.AsyncClient, chat: str, **query: Any) -> list[dict[str, Any]]:
    return (await client.get(f"/chats/{chat}/messages", params=query)).json()["messages"]


async def test_a_reply_is_streamed_and_stored(client: httpx.AsyncClient) -> None:
    begin, *pieces, end = await ask(client, "trip", SHORT)

    assert begin["type"] == "begin"
    assert [event["text"] for event in pieces] == ["one ", "two ", "three "]
    stored = await messages_of(client, "trip")
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert end["reply"] == stored[1]
    assert stored[1]["metadata"] == {"state": "complete"}


async def test_two_workers_share_one_conversation(client: httpx.AsyncClient) -> None:
    workers: set[int] = set()
    turns = 0
    while len(workers) < WORKERS:
        begin, *_ = await ask(client, "shared", f"turn {turns}")
        workers.add(begin["worker"])
        turns += 1
        assert turns < 200

    stored = await messages_of(client, "shared", limit=1000)

    assert [message["role"] for message in stored] == ["user", "assistant"] * turns


async def test_a_chat_that_is_busy_says_so_and_others_go_on(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/chats/busy/turns", json={"text": LONG}) as response:
        events = events_of(response)
        await anext(events)

        refused = await client.post("/chats/busy/turns", json={"text": SHORT})
        assert (refused.status_code, refused.headers["Retry-After"]) == (409, "1")
        assert (await ask(client, "free", SHORT))[-1]["type"] == "end"


async def test_a_client_that_leaves_stops_the_turn_and_what_it_saw_is_stored(client: httpx.AsyncClient) -> None:
    seen = ""
    async with client.stream("POST", "/chats/left/turns", json={"text": LONG}) as response:
        async for event in events_of(response):
            seen += event.get("text", "")
            if len(seen) > 20:
                break

    # The lease is free again: the next turn begins.
    assert (await ask(client, "left", SHORT))[-1]["type"] == "end"
    _, partial, *_ = await messages_of(client, "left")
    assert partial["metadata"] == {"state": "stopped"}
    assert partial["parts"][0]["text"].startswith(seen)
    assert len(partial["parts"][0]["text"]) < len(LONG)


async def test_a_question_that_is_sent_again_is_answered_once(client: httpx.AsyncClient) -> None:
    first = await ask(client, "retry", SHORT, id="question-1")
    again = await ask(client, "retry", SHORT, id="question-1")

    assert again[-1] == first[-1]
    assert [event["type"] for event in again] == ["begin", "end"]
    assert len(await messages_of(client, "retry")) == 2


async def test_an_older_question_without_a_reply_is_not_taken_again(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/chats/older/turns", json={"text": LONG, "id": "q1"}) as response:
        async for event in events_of(response):
            if event["type"] == "text":
                break
    await ask(client, "older", SHORT, id="q2")
    before = await messages_of(client, "older")

    again = await client.post("/chats/older/turns", json={"text": LONG, "id": "q1"})

    assert again.status_code == 410
    assert await messages_of(client, "older") == before
    assert [message["id"] for message in before if message["role"] == "user"] == ["q1", "q2"]


async def test_a_second_tab_sees_what_the_first_one_does(client: httpx.AsyncClient) -> None:
    await ask(client, "tabs", "hello")
    version = (await client.get("/chats/tabs/messages")).json()["version"]

    async def second_tab() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        async with client.stream("GET", "/chats/tabs/changes", params={"since": version}) as response:
            async for event in events_of(response):
                seen += event["messages"]
                if len(seen) == 2:
                    break
        return seen

    watching = asyncio.create_task(second_tab())
    await ask(client, "tabs", SHORT)

    assert [message["parts"][0]["text"].strip() for message in await watching] == [SHORT, SHORT]


async def test_messages_come_a_page_at_a_time(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await ask(client, "pages", f"{number}")

    newest = await messages_of(client, "pages", limit=2)
    older = await messages_of(client, "pages", limit=2, before=newest[0]["id"])

    assert [message["parts"][0]["text"].strip() for message in [*older, *newest]] == ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chats/%01/turns", {"text": SHORT}, 400),
        ("/chats/large/turns", {"text": "x" * 9_000_000}, 413),
    ],
)
async def test_what_is_wrong_has_a_status_code(
    client: httpx.AsyncClient, path: str, body: dict[str, str], status: int
) -> None:
    refused = await client.post(path, json=body)

    assert refused.status_code == status
    assert refused.json()["error"]


async def test_a_page_before_an_unknown_message_is_not_found(client: httpx.AsyncClient) -> None:
    await ask(client, "unknown", SHORT)

    assert (await client.get("/chats/unknown/messages", params={"before": "nothing"})).status_code == 404


async def test_a_service_that_is_stopped_stores_what_its_turns_have(tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path) as address:
        client = client_of(address)
        response = await client.send(
            client.build_request("POST", "/chats/long/turns", json={"text": LONG}), stream=True
        )
        events = events_of(response)
        await anext(events)
        seen = (await anext(events))["text"]
    await response.aclose()
    await client.aclose()

    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        _, partial = await Session(store, "long", user_id="alice").get_history()
    assert partial.metadata == {"state": "stopped"}
    assert partial.text.startswith(seen)


def test_the_guide_shows_the_program_that_is_run() -> None:
    guide = (ROOT / "docs" / "guides" / "web-service.md").read_text(encoding="utf-8")

    assert PROGRAM.read_text(encoding="utf-8") in guide
