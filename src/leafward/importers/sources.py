"""From what a user names to where AgentScope's data is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol, cast

from leafward.core.errors import ConfigurationError
from leafward.stores.states.older import Older, Reading
from leafward.stores.urls import need_driver, without_secrets

Named = str | os.PathLike[str]

_REDIS = ("redis", "rediss", "redis+cluster", "redis+sentinel")


def scheme_of(named: str) -> str:
    """Return the scheme of a URL; a path has none."""
    scheme, separator, _ = named.partition("://")
    return scheme if separator else ""


def directory_of(named: str) -> str | None:
    """Return the path that a path or a `file://` URL names; `None` for what is on a server."""
    if scheme_of(named) not in ("", "file"):
        return None
    return os.path.realpath(os.path.expanduser(named.removeprefix("file://")))


def is_redis(named: str) -> bool:
    return scheme_of(named) in _REDIS


def text_of(named: Named, what: str) -> str:
    """Return what names a source or a target."""
    text = os.fspath(named)
    if not isinstance(text, str) or not text or "\0" in text:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a {what} is named by a directory or a URL, and this is neither")
    return text


def check_source(source: Named) -> str:
    """Return what names a source, if there can be data of AgentScope's.

    Raises:
        ConfigurationError: it is of another kind, or a directory that is not there.
    """
    if not isinstance(source, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a source is a directory or a URL, not a {type(source).__name__}")
    named = text_of(source, "source")
    directory = directory_of(named)
    if scheme_of(named) == "postgresql":
        raise ConfigurationError(
            "AgentScope keeps sessions in PostgreSQL only in the layout of 2.x, so there is nothing to move: open them "
            "with PostgresAgentStateStore"
        )
    if directory is None and scheme_of(named) != "mysql" and not is_redis(named):
        raise ConfigurationError(
            f"AgentScope keeps nothing at {without_secrets(named)!r}: name a directory, or a URL that begins with "
            "mysql:// or redis://"
        )
    if directory is not None and not os.path.isdir(directory):
        what = "is a file" if os.path.exists(directory) else "does not exist"
        shown = without_secrets(named)
        raise ConfigurationError(f"{shown} {what}: name the directory in which AgentScope keeps its sessions")
    return named


def check_reading(names: str) -> Reading:
    """Return how names are to be taken, if there is such a way."""
    if names == "guess" or names == "literal" or names == "encoded":
        return names
    raise ConfigurationError(f"names is 'guess', 'literal' or 'encoded', not {names!r}")


class _OnServer(Older, Protocol):
    async def of_2x(self) -> int: ...


async def count_of_2x(named: str, older: Older) -> int:
    """Return how many sessions of an open source are in the layout of 2.x."""
    directory = directory_of(named)
    if directory is not None:
        return await asyncio.to_thread(_of_2x_in, Path(directory))
    return await cast(_OnServer, older).of_2x()


def _of_2x_in(directory: Path) -> int:
    users = _directories(directory)
    return sum(_holds_states(session) for user in users for session in _directories(user))


def _directories(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as found:
            return [Path(one.path) for one in found if one.is_dir(follow_symlinks=False)]
    except OSError:
        # It is reported where its sessions are read.
        return []


def _holds_states(directory: Path) -> bool:
    try:
        return any(name.endswith((".json", ".jsonl")) for name in os.listdir(directory))
    except OSError:
        return False


async def open_source(named: str, *, rename: bool, names: Reading) -> Older:
    """Open a source that was checked; with `rename`, an old table of MySQL makes way for the new one."""
    directory = directory_of(named)
    if directory is not None:
        from leafward.stores.files.legacy import open_older_files

        return await open_older_files(directory, names)
    if is_redis(named):
        need_driver("redis", "redis", named)
        from leafward.stores.redis.legacy import open_older_keys

        return await open_older_keys(named)
    from leafward.stores.servers.legacy import open_older_rows

    return await open_older_rows(named, rename=rename)
