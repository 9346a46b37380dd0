"""`open_store`: from a URL to a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, cast

from leafward.core.errors import ConfigurationError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Store
from leafward.stores.urls import without_secrets

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Opener = Callable[..., Awaitable[Store]]
ENTRY_POINT_GROUP = "leafward.stores"

_REDIS = "leafward.stores.redis.opening:open_redis"
_OURS = {
    "memory": "leafward.stores.memory:open_memory",
    "sqlite": "leafward.stores.sqlite:open_sqlite",
    "file": "leafward.stores.files:open_files",
    "postgresql": "leafward.stores.servers.postgres:open_postgres",
    "mysql": "leafward.stores.servers.mysql:open_mysql",
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+cluster": _REDIS,
    "redis+sentinel": _REDIS,
}


_DEFAULTS: dict[str, Any] = {
    "durability": "power",
    "max_message_bytes": DEFAULT_MAX_MESSAGE_BYTES,
    "table_prefix": None,
    "key_prefix": None,
    "client": None,
}
"""What `open_store` goes by where nothing else is asked for; `None` leaves it to the store."""


class Opening:
    """A store about to be opened: await it, or enter it to have it closed as well."""

    def __init__(self, opener: Opener, url: str, options: dict[str, Any]) -> None:
        self._opener = opener
        self._url = url
        self._options = options
        self._store: Store | None = None

    async def _open(self) -> Store:
        return await self._opener(self._url, **self._options)

    def __await__(self) -> Generator[Any, Any, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


def open_store(
    url: str,
    *,
    durability: Literal["power", "process"] = "power",
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    table_prefix: str | None = None,
    key_prefix: str | None = None,
    client: object = None,
    options: Mapping[str, Any] | None = None,
) -> Opening:
    """Open the store a URL names: `async with open_store("sqlite:///chat.db") as store`, or `await` it.

    `memory://` keeps sessions in this process, `memory://name` shares them inside it; `sqlite:///relative.db` and
    `sqlite:////absolute.db` keep them in a file, `file:///absolute/dir` and `file://./relative/dir` in journals that a
    person can read; `postgresql://`, `mysql://`, `redis://`, `rediss://`, `redis+cluster://host1,host2` and
    `redis+sentinel://host1,host2/<master>` on a server.

    Args:
        url: Where the sessions are.
        durability: What a finished write to a file survives: a power cut, or only the end of the process. A server has
            settings of its own; `store.durability()` returns what was found.
        max_message_bytes: The largest message that is taken, in bytes of JSON.
        table_prefix: What the names of tables begin with, in SQL.
        key_prefix: What keys begin with, in Redis.
        client: A pool or client of the server's driver, which is used and never closed.
        options: What a scheme of another package takes besides these.

    Raises:
        ConfigurationError: an unknown scheme, or an option that it does not take; it is a `ValueError`.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a store's URL is a string, not {type(url).__name__}")
    scheme, separator, _ = url.partition("://")
    opener = _find_opener(scheme) if separator else None
    if opener is None:
        known = ", ".join(f"{name}://" for name in _known_schemes())
        raise ConfigurationError(f"{without_secrets(url)!r} is not a store's URL; known are {known}")
    keywords = {
        "durability": durability,
        "max_message_bytes": max_message_bytes,
        "table_prefix": table_prefix,
        "key_prefix": key_prefix,
        "client": client,
    }
    return Opening(opener, url, _accepted(opener, scheme, keywords, options or {}))


def _accepted(opener: Opener, scheme: str, keywords: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an opener is called with: all that was asked for, and those defaults of ours that it takes."""
    both = keywords.keys() & options.keys()
    if both:
        raise ConfigurationError(f"open_store takes {', '.join(sorted(both))} as a keyword, not in options")
    parameters = signature(opener).parameters
    takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    accepted: dict[str, Any] = {}
    refused: list[str] = []
    for name, value in {**keywords, **options}.items():
        asked = name in options or value != _DEFAULTS[name]
        if takes_any or name in parameters:
            if asked or value is not None:
                accepted[name] = value
        elif asked:
            refused.append(name)
    if refused:
        raise ConfigurationError(f"{scheme}:// does not take {', '.join(refused)}")
    return accepted


def _foreign(scheme: str | None = None) -> list[EntryPoint]:
    # Imported late: only a URL that is not ours pays for it.
    from importlib.metadata import entry_points

    return [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if scheme in (None, entry.name)]


def _find_opener(scheme: str) -> Opener | None:
    if scheme in _OURS:
        module, _, name = _OURS[scheme].partition(":")
        return cast(Opener, getattr(import_module(module), name))
    for entry in _foreign(scheme):
        return cast(Opener, entry.load())
    return None


def _known_schemes() -> list[str]:
    return sorted({*_OURS, *(entry.name for entry in _foreign())})
