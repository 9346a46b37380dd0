"""A server on this machine that speaks as providers do: real sockets, for their real SDKs.

It answers from a script, keeps what it was asked, and refuses what the provider would refuse. It can fail in all the
ways a provider fails: a status with headers, an error within a stream, a stream that ends at any byte, or never.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.formats.validators import check_anthropic, check_openai_chat, check_openai_responses
from tests.wire import streams
from tests.wire.streams import USUAL, Said, Used

Rendered = Callable[[Sequence[Said], Used, str | None], Iterator[bytes]]


@dataclass(frozen=True)
class Answer:
    """One reply of a model.

    With `bytes_sent`, the stream ends there: `reset` breaks its chunked form off, `closed` is an end that looks like
    any other, and `hang` keeps the connection open until the server ends.
    """

    said: tuple[Said, ...]
    used: Used = USUAL
    stop: str | None = None
    """The provider's word for why the model stopped, if not the usual one."""
    bytes_sent: int | None = None
    ending: Literal["reset", "closed", "hang"] = "reset"


@dataclass(frozen=True)
class Failure:
    """A status other than 200, with an error as providers write it."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    kind: str = "server_error"
    code: str | None = None


@dataclass(frozen=True)
class Raw:
    """Bytes as they are, as the body of a stream."""

    body: bytes


Scripted = Answer | Failure | Raw


def says(*said: Said | str, **fields: Any) -> Answer:
    """Make an answer; a string is a text that comes in one piece."""
    return Answer(tuple(streams.text(one) if isinstance(one, str) else one for one in said), **fields)


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class WireServer:
    """A provider: its address, the answers that are left, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.script: list[Scripted] = []
        self.asked: list[Asked] = []
        self.hanging = asyncio.Event()
        """Set when a stream hangs."""
        self.left = asyncio.Event()
        """Set when the client of a stream that hangs has left."""
        self._ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            stays = True
            while stays:
                asked = await _read(reader)
                self.asked.append(asked)
                stays = await self._answer(asked, reader, writer)
        writer.close()

    def end(self) -> None:
        """End the streams that hang."""
        self._ended.set()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send an answer, and tell whether the connection stays."""
        check, render = _PROTOCOLS[asked.path]
        try:
            check(asked.body)
        except AssertionError as refused:
            await _send(writer, 400, {}, _error(Failure(400, kind="invalid_request_error"), str(refused)))
            return True
        answer = self.script.pop(0)
        if isinstance(answer, Failure):
            await _send(writer, answer.status, answer.headers, _error(answer, "it failed"))
            return True
        body = answer.body if isinstance(answer, Raw) else b"".join(render(answer.said, answer.used, answer.stop))
        if isinstance(answer, Raw) or answer.bytes_sent is None:
            await _stream(writer, body, chunked=True)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        await _stream(writer, body[: answer.bytes_sent], chunked=answer.ending != "closed")
        if answer.ending == "hang":
            self.hanging.set()
            await _first(reader.read(), self._ended.wait())
            self.left.set()
        return False


@asynccontextmanager
async def wire_server() -> AsyncGenerator[WireServer]:
    """Serve on a free port of this machine for as long as the context lasts."""
    wire = WireServer()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await wire.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**24)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        wire.end()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ── what a provider refuses ──────────────────────────────────────────────────


def _check_chat(body: dict[str, Any]) -> None:
    check_openai_chat(body["messages"])
    assert body["stream"] is True
    assert body.get("tools", True), "tools: an empty list"
    assert "tools" in body or not {"tool_choice", "parallel_tool_calls"} & body.keys(), "tool_choice without tools"


def _check_responses(body: dict[str, Any]) -> None:
    check_openai_responses(body["input"])
    assert all("name" in tool and "parameters" in tool for tool in body.get("tools", ())), "tools: no name"


def _check_messages(body: dict[str, Any]) -> None:
    check_anthropic({"system": body.get("system", ""), "messages": body["messages"]})
    assert isinstance(body["max_tokens"], int), "max_tokens"
    assert "tools" in body or '"tool_use"' not in json.dumps(body["messages"]), "calls without tools"
    assert all("input_schema" in tool for tool in body.get("tools", ())), "tools: no schema"


_PROTOCOLS: dict[str, tuple[Callable[[dict[str, Any]], None], Rendered]] = {
    "/v1/chat/completions": (_check_chat, streams.chat),
    "/v1/responses": (_check_responses, streams.responses),
    "/v1/messages": (_check_messages, streams.messages),
}


def _error(failure: Failure, message: str) -> bytes:
    said = {"type": failure.kind, "code": failure.code, "message": message}
    return json.dumps({"type": "error", "error": said}).encode()


# ── HTTP ─────────────────────────────────────────────────────────────────────


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(first.split()[1], headers, json.loads(body))


async def _send(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str], body: bytes) -> None:
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode() + body)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, body: bytes, *, chunked: bool) -> None:
    """Send the beginning of a stream; in chunks, its end is told from a connection that breaks."""
    framing = "Transfer-Encoding: chunked" if chunked else "Connection: close"
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n".encode())
    if body:
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n" if chunked else body)
    await writer.drain()


async def _first(*waits: Any) -> None:
    """Wait until one of several has come."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
