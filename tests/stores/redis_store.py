"""What the tests of Redis share: a look at its keys, past the store, and processes that append."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from leafward.stores.redis.urls import read_url
from tests.stores import redis_appender


@contextmanager
def looking_at(url: str) -> Iterator[list[redis.Redis]]:
    """Give a blocking client for each server a URL names."""
    address = read_url(url)
    clients = [redis.Redis(host=host, port=port, password=address.password) for host, port in address.hosts]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def keys(url: str, prefix: str) -> list[bytes]:
    with looking_at(url) as clients:
        return [key for client in clients for key in client.scan_iter(f"{prefix}*", count=10_000)]


def forget(url: str, prefix: str) -> None:
    """Remove all keys below a prefix."""
    with looking_at(url) as clients:
        for client in clients:
            for key in client.scan_iter(f"{prefix}*", count=10_000):
                client.delete(key)


def command(url: str, *args: Any) -> Any:
    """Run a command on the first server."""
    with looking_at(url) as clients:
        return clients[0].execute_command(*args)


async def run_appenders(url: str, prefix: str, names: Sequence[str], *, tasks: int, each: int) -> None:
    """Let a process of each name append to the session `s`: one message per task, then all at the same time."""
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, str(redis_appender.__file__), url, prefix, name, str(tasks), str(each)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in names
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
    assert [await child.wait() for child in children] == [0] * len(children)
