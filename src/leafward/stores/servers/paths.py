"""The lanes of paths, which a process remembers: what a lane branched from never changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from leafward.core import lanes
from leafward.core.ids import Scope
from leafward.stores.contracts import Head
from leafward.stores.servers.heads import Found
from leafward.stores.sql.operations import scope_ids
from leafward.stores.sql.points import HeadOf, StatesOf

K = TypeVar("K")
T = TypeVar("T")

LANES = 4
"""How many lanes of a path a statement joins; where there are more, it has to be told which."""
MOST_LANES = 1000
"""How many it is told of."""
MOST_PATHS = 1000
_MOST_READ = 5000
"""How many lanes of a tree are read to find a path; in a larger tree the operation walks the path itself."""

_LANES = """
    SELECT {place}, l.lane_no, l.origin FROM {{p}}session s {leaf} JOIN {{p}}lane l ON l.tree_no = s.tree_no
    WHERE s.owner_no = (SELECT owner_no FROM {{p}}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?"""
_LIMIT = f" LIMIT {_MOST_READ}"
_TO_LEAF = _LANES.format(place="s.leaf", leaf="") + _LIMIT
_TO_MESSAGE = (
    _LANES.format(place="m.place", leaf="JOIN {p}message m ON m.tree_no = s.tree_no") + " AND m.id = ?" + _LIMIT
)


class Path(NamedTuple):
    """Where a path runs, for a statement that joins no lanes."""

    lane: int
    """That of its leaf."""
    above: tuple[int, ...]
    """The last places of the path in the other lanes, the nearest first."""


class Paths:
    """The paths that were looked at last: long ones, and those that have one lane."""

    def __init__(self, execute: Callable[[Any, str, tuple[Any, ...]], Awaitable[list[Any]]]) -> None:
        self._execute = execute
        self._known: dict[tuple[Scope, str | None], Path] = {}
        """Long paths, by their sessions, and by their leaves if those were named."""
        self._single: dict[Scope, Path] = {}
        """The paths that have one lane only, as most do: for these there is nothing to join."""

    async def head(
        self, connection: Any, question: HeadOf | StatesOf, look: Callable[[Path | None], Awaitable[Found | None]]
    ) -> Head | None:
        """Return the head that is found by looking along the path to the leaf, or to a message."""
        path = None if question.leaf_id is not None else self._single.pop(question.scope, None)
        found = None if path is None else await look(path)
        if found is None:
            found = await self.along(connection, question.scope, question.leaf_id, look)
        if found is None:
            return None
        if found.lane is not None and question.leaf_id is None:
            _keep(self._single, question.scope, Path(found.lane, ()))
        return found.head

    async def along(
        self, connection: Any, scope: Scope, leaf_id: str | None, work: Callable[[Path | None], Awaitable[T | None]]
    ) -> T | None:
        """Do some work that goes along the path to the leaf, or to a message, and return what it gives.

        It is given the path if that is long, and has to check its lane. It gives `None` when it could not be done.
        """
        path = self._known.pop((scope, leaf_id), None)
        done = await work(path)
        if done is None:
            found = await self._find(connection, scope, leaf_id)
            if found == path:
                # It is known, and something else is in the way.
                if path is not None:
                    _keep(self._known, (scope, leaf_id), path)
                return None
            path, done = found, await work(found)
        if done is not None and path is not None:
            _keep(self._known, (scope, leaf_id), path)
        return done

    async def _find(self, connection: Any, scope: Scope, leaf_id: str | None) -> Path | None:
        ids = scope_ids(scope)
        rows = await self._execute(
            connection,
            _TO_LEAF if leaf_id is None else _TO_MESSAGE,
            ids if leaf_id is None else (*ids, leaf_id),
        )
        leaf: int | None = rows[0][0] if rows else None
        if leaf is None or len(rows) == _MOST_READ:
            return None
        origins: dict[int, int | None] = {lane: origin for _, lane, origin in rows}
        above: list[int] = []
        end = origins.get(lanes.lane_of(leaf))
        while end is not None:
            above.append(end)
            end = origins.get(lanes.lane_of(end))
        return Path(lanes.lane_of(leaf), tuple(above)) if LANES <= len(above) < MOST_LANES else None


def _keep(paths: dict[K, Path], key: K, path: Path) -> None:
    if len(paths) >= MOST_PATHS:
        paths.pop(next(iter(paths)))
    paths[key] = path


def origins() -> list[str]:
    """Return the columns of the places that the last lanes of a path branched from, the nearest one first."""
    return [f"l{number}.origin" for number in range(1, LANES + 1)]


def joined_lanes(leaf: str) -> str:
    """Return the joins for these columns, upwards from the place of a leaf."""
    below = (leaf, *origins()[:-1])
    return " ".join(
        f"LEFT JOIN {{p}}lane l{number} ON l{number}.lane_no = {place} >> 32" for number, place in enumerate(below, 1)
    )
