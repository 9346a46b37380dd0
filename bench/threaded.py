"""What an event loop costs: the raw limit behind one hop to a writer thread and back, as any async library has it."""

from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path

from driver import serve
from raw import INSERT, Raw, connect


class Threaded(Raw):
    async def open(self, path: str) -> None:
        await super().open(path)
        self._queue: queue.SimpleQueue[tuple[asyncio.Future[None], tuple[int, str]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, args=(path,), daemon=True)
        self._thread.start()

    def _write(self, path: str) -> None:
        connection = connect(Path(path) / "raw.db")
        while (item := self._queue.get()) is not None:
            future, row = item
            connection.execute(INSERT, row)
            self._loop.call_soon_threadsafe(future.set_result, None)
        connection.close()

    async def append(self, session: int, message: str) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((future, (self._key(session), message)))
        await future

    async def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        await super().close()


if __name__ == "__main__":
    serve(Threaded)
