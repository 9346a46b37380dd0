"""The limit on a file: one line appended, one `fsync`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from driver import Driver, serve


class FileLog(Driver):
    """One file per store, shared by the sessions: the limit has no business with them. It is only written."""

    async def open(self, path: str) -> None:
        self._file = os.open(Path(path) / "log.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    async def prepare(self, message: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message) + b"\n"

    async def append(self, session: int, message: bytes) -> None:
        os.write(self._file, message)
        os.fsync(self._file)

    async def extend(self, session: int, messages: list[bytes]) -> None:
        os.write(self._file, b"".join(messages))
        os.fsync(self._file)

    async def close(self) -> None:
        os.close(self._file)


if __name__ == "__main__":
    serve(FileLog)
