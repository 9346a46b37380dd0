"""Which messages were in tables that were let go of."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence


class KnownIds:
    """Stands for tables of which only the messages' ids are remembered, in eight bytes each."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._hashes = array("q", sorted(map(hash, ids)))

    @property
    def size(self) -> int:
        """How many bytes of memory it takes."""
        return len(self._hashes) * self._hashes.itemsize

    def knows(self, message_ids: Sequence[str]) -> bool:
        """Whether any of these messages may have been there; one that was is never denied."""
        return any(self._has(hash(one)) for one in message_ids)

    def _has(self, hashed: int) -> bool:
        place = bisect_left(self._hashes, hashed)
        return place < len(self._hashes) and self._hashes[place] == hashed

    def undo(self) -> None:
        """Nothing was tried."""

    def close(self) -> None:
        """There is nothing to let go of."""
