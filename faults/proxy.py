"""A loopback proxy that loses bytes where it is told to, between a client and its server."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit, urlunsplit

Fault = Literal["request lost", "request torn", "reply not awaited", "reply lost", "reply torn"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
_CHUNK = 1 << 16


class Proxy:
    """Passes bytes on until a fault is due; each fault ends its connection.

    async with Proxy(url) as proxy:
        proxy.arm("reply lost", after=2)    # the third request from now is carried out, and never answered
        await open_store(proxy.url)
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._armed: tuple[Fault, int] | None = None
        self._links: dict[_Link, asyncio.Task[Any] | None] = {}
        self._server: asyncio.Server | None = None
        self.is_away = False
        """Whether new connections are refused."""
        self.is_deaf = False
        """Whether replies are swallowed; what clients ask for is still carried out."""
        self.done: Counter[str] = Counter()
        """How often each fault happened."""
        self.swallowed = asyncio.Semaphore(0)
        """Released for each reply that was swallowed."""

    @property
    def url(self) -> str:
        """The server's URL, by way of this proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def arm(self, fault: Fault, *, after: int = 0) -> None:
        """Let a fault happen once `after` more pieces of requests went through."""
        self._armed = (fault, after)

    def cut_all(self) -> None:
        """End every connection."""
        for link in list(self._links):
            link.cut()

    def due(self) -> Fault | None:
        """Return the fault for the request that has just come, if one is due."""
        if self._armed is None:
            return None
        fault, after = self._armed
        self._armed = (fault, after - 1) if after else None
        return None if after else fault

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await self._server.wait_closed()
        passing = [task for task in self._links.values() if task is not None]
        if passing:
            await asyncio.wait(passing)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_away:
            writer.transport.abort()
            return
        there = await asyncio.open_connection(self._target.hostname, self._target.port)
        link = _Link(self, (reader, writer), there)
        self._links[link] = asyncio.current_task()
        try:
            await link.run()
        finally:
            del self._links[link]


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection of a client, and ours to the server."""

    def __init__(self, proxy: Proxy, client: _Stream, server: _Stream) -> None:
        self._proxy = proxy
        self._requests, self._to_client = client
        self._replies, self._to_server = server
        self._lose_reply: Fault | None = None

    async def run(self) -> None:
        """Pass on until one side has ended, or a fault ends both."""
        try:
            await asyncio.gather(self._pass_requests(), self._pass_replies())
        finally:
            self.cut()
            for writer in (self._to_client, self._to_server):
                with suppress(OSError):
                    await writer.wait_closed()

    def cut(self) -> None:
        # What the server was sent stays sent: it is told of the end, not reset.
        self._to_client.transport.abort()
        self._to_server.close()

    async def _pass_requests(self) -> None:
        with suppress(OSError):
            while data := await self._requests.read(_CHUNK):
                fault = self._proxy.due()
                if fault is not None:
                    self._proxy.done[fault] += 1
                if fault == "request lost":
                    break
                if fault in ("reply lost", "reply torn"):
                    self._lose_reply = fault
                self._to_server.write(data[: len(data) // 2] if fault == "request torn" else data)
                await self._to_server.drain()
                if fault in ("request torn", "reply not awaited"):
                    break
        self.cut()

    async def _pass_replies(self) -> None:
        with suppress(OSError):
            while data := await self._replies.read(_CHUNK):
                if self._proxy.is_deaf:
                    self._proxy.swallowed.release()
                    continue
                if self._lose_reply == "reply lost":
                    break
                self._to_client.write(data[: len(data) // 2] if self._lose_reply else data)
                await self._to_client.drain()
                if self._lose_reply:
                    break
        self.cut()
