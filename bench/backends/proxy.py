"""Counts round trips between a driver and its server."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Stands before the server of a URL and counts how often it is asked something after it has answered.

    What a client sends at once is one round trip, however many packets it takes, and so is an answer.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._url = url
        self.trips = 0
        self.sent = 0
        """Bytes that clients have sent."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        """The URL by which the proxy is asked instead of the server."""
        port = self._server.sockets[0].getsockname()[1]
        return self._url.replace(f"@{self._host}:{self._port}", f"@127.0.0.1:{port}")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection(self._host, self._port)
        asking = False

        async def ask() -> None:
            nonlocal asking
            while data := await reader.read(1 << 16):
                self.trips += not asking
                self.sent += len(data)
                asking = True
                questions.write(data)
                await questions.drain()
            questions.close()

        async def answer() -> None:
            nonlocal asking
            while data := await answers.read(1 << 16):
                asking = False
                writer.write(data)
                await writer.drain()
            writer.close()

        await asyncio.gather(ask(), answer(), return_exceptions=True)
