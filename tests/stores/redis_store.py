"""What the tests of Redis share: a look at its keys, past the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from leafward.stores.redis.urls import read_url


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
