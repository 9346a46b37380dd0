"""A loopback TCP proxy that loses replies and cuts connections where a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Self

CHUNK = 1 << 16


class Fault(Enum):
    """What becomes of a packet from the client."""

    CUT_BEFORE = "the connection ends before the packet reaches the server"
    CUT_AFTER = "the packet reaches the server; the connection ends without waiting for the reply"
    LOSE_REPLY = "the packet reaches the server; the connection ends when the server has replied"
    SILENCE = "the packet reaches the server; nothing comes back, and the connection stays"


class Proxy:
    """Stands between clients and a server, on a port of its own.

        async with Proxy("127.0.0.1", 5432) as proxy:
            proxy.strike(Fault.LOSE_REPLY, b"COMMIT")

    A packet is what the client sent at once; drivers send a command and then wait, so it is a command.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._fault: Fault | None = None
        self._matches: Callable[[bytes], bool] = bool
        self._and_then_unreachable = False
        self._left = 0
        self.unreachable = False
        """Whether new connections are ended at once, without a word."""
        self.silent = False
        """Whether new connections are taken and never answered."""
        self._struck = asyncio.Event()
        self.packets = 0
        """How many came from clients; from a driver that waits for each reply, as many as there were round trips."""
        self.delay = 0.0
        """Seconds that each reply takes."""
        self.trips = 0
        """How often a client began to wait. What is asked before the first reply, on any connection, is one trip."""
        self._asking: set[_Link] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def struck(self) -> bool:
        """Whether the fault that was asked for has happened."""
        return self._struck.is_set()

    async def wait_until_struck(self) -> None:
        """Return once the fault that was asked for has happened."""
        await self._struck.wait()

    def strike(
        self, fault: Fault, pattern: bytes = b"", *, packet: int = 1, and_then_unreachable: bool = False
    ) -> None:
        """Let one fault happen, to the n-th packet from now that holds these bytes."""
        self._fault, self._left = fault, packet
        self._struck.clear()
        self._matches = lambda data: pattern in data
        self._and_then_unreachable = and_then_unreachable

    def spare(self) -> None:
        """Let no more faults happen, and clients come through."""
        self._fault = None
        self.unreachable = self.silent = False

    def cut(self) -> None:
        """End all connections."""
        for link in list(self._links):
            link.cut()

    def judge(self, data: bytes) -> Fault | None:
        """Return what is to become of a packet."""
        self.packets += 1
        if self._fault is None or not self._matches(data):
            return None
        self._left -= 1
        if self._left:
            return None
        fault, self._fault = self._fault, None
        self._struck.set()
        self.unreachable = self.unreachable or self._and_then_unreachable
        return fault

    def asks(self, link: _Link) -> None:
        """Take note that a connection waits for a reply."""
        self.trips += not self._asking
        self._asking.add(link)

    def is_answered(self, link: _Link) -> None:
        """Take note that it waits no longer."""
        self._asking.discard(link)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.unreachable:
            writer.transport.abort()
            return
        if self.silent:
            link = _Link(self, reader, writer, None, None)
        else:
            try:
                link = _Link(self, reader, writer, *await asyncio.open_connection(*self._target))
            except OSError:
                writer.transport.abort()
                return
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            self.is_answered(link)


class _Link:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader | None,
        far_writer: asyncio.StreamWriter | None,
    ) -> None:
        self._proxy = proxy
        self._near = reader, writer
        self._far = far_reader, far_writer
        self._replies_are: Fault | None = None

    def cut(self) -> None:
        for writer in (self._near[1], self._far[1]):
            if writer is not None:
                writer.transport.abort()

    async def run(self) -> None:
        both = {asyncio.ensure_future(self._there()), asyncio.ensure_future(self._back())}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _there(self) -> None:
        reader, (_, server) = self._near[0], self._far
        while data := await _read(reader):
            self._proxy.asks(self)
            fault = self._proxy.judge(data)
            if fault is Fault.CUT_BEFORE:
                return
            self._replies_are = self._replies_are or fault
            if server is not None:
                server.write(data)
                await server.drain()
            if fault is Fault.CUT_AFTER:
                # Closed, not aborted, or the packet might never leave.
                assert server is not None
                server.close()
                return

    async def _back(self) -> None:
        (server, _), client = self._far, self._near[1]
        if server is None:
            await asyncio.get_running_loop().create_future()
            return
        while data := await _read(server):
            if self._replies_are is Fault.LOSE_REPLY:
                return
            if self._proxy.delay:
                await asyncio.sleep(self._proxy.delay)
            self._proxy.is_answered(self)
            if self._replies_are is None:
                client.write(data)
                await client.drain()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except OSError:
        return b""
