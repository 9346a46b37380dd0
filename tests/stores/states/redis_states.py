"""What the tests of states on Redis share: a prefix of a test's own, and the other side: Java, by its commands."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1

import redis

from leafward.core.ids import new_id
from tests.stores.redis_store import forget


def own_prefix(url: str) -> Iterator[str]:
    """Give a prefix, and remove all keys below it afterwards."""
    prefix = f"{new_id()}:"
    yield prefix
    forget(url, prefix)
    # There are the leases, and what writes answered.
    forget(url, f"leafward:{prefix}")


def noted(version: int, payload: bytes, *, ver: int | None = None) -> bytes:
    """Return what stands beside a value that has a version."""
    return f"{version} {version if ver is None else ver} {sha1(payload).hexdigest()}".encode()


class Java:
    """Writes and reads as AgentScope does."""

    def __init__(self, client: redis.Redis, slot: str) -> None:
        self.client = client
        self.slot = slot

    def save(self, key: str, payload: bytes, *, versions: bool = True) -> None:
        """Do what its script does; before there were versions, it left them alone."""
        self.client.set(f"{self.slot}:{key}", payload)
        if versions:
            self.client.incr(f"{self.slot}:{key}:ver")
        self.client.sadd(f"{self.slot}:_keys", key)

    def save_list(self, key: str, items: list[bytes], hash: str) -> None:
        self.client.delete(f"{self.slot}:{key}:list")
        if items:
            self.client.rpush(f"{self.slot}:{key}:list", *items)
        self.client.set(f"{self.slot}:{key}:list:_hash", hash)
        self.client.sadd(f"{self.slot}:_keys", f"{key}:list")

    def all(self) -> dict[str, object]:
        """Return all that is in the slot, by what follows its name."""
        found: dict[str, object] = {}
        start = f"{self.slot}:".encode()
        escaped = "".join(f"\\{one}" if one in "*?[]\\" else one for one in self.slot)
        for key in self.client.scan_iter(f"{escaped}:*", count=10_000):
            name = key.removeprefix(start).decode()
            match self.client.type(key):
                case b"string":
                    found[name] = self.client.get(key)
                case b"list":
                    found[name] = self.client.lrange(key, 0, -1)
                case _:
                    found[name] = self.client.smembers(key)
        return found


class OldLeafward(Java):
    """Writes as leafward did before it named sessions as Java does."""

    def save(self, key: str, payload: bytes, *, versions: bool = True) -> None:
        super().save(key, payload, versions=True)

    def save_list(self, key: str, items: list[bytes], hash: str = "py:content") -> None:
        super().save_list(key, items, hash if items else "empty:0")
