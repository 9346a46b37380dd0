"""leafward with automatic compaction, through handles that are kept, as an agent keeps them."""

from __future__ import annotations

import sys

import traffic
from driver import serve
from ours import USERS, Leafward

from leafward import Session, create_compact_function

NEVER_REACHED = 10**12
REACHED = 16_000
TAIL = 4_000


async def _summarize(prompt: str) -> str:
    return traffic.summary()


class Kept(Leafward):
    """`threshold` is what `compact_after` is given; without one there is no compaction."""

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._handles: dict[int, Session] = {}

    def _session(self, session: int) -> Session:
        if session not in self._handles:
            handle = Session(self._store, f"s{session}", user_id=f"u{session % USERS}")
            if self._threshold is not None:
                handle.on_compaction(create_compact_function(summarize=_summarize, tail_token_budget=TAIL))
                handle.compact_after(self._threshold)
            self._handles[session] = handle
        return self._handles[session]

    async def summaries(self, session: int) -> int:
        """Return how often the session was compacted."""
        return len(await self._session(session).get_compactions())


THRESHOLDS = {"kept": None, "never": NEVER_REACHED, "reached": REACHED}

if __name__ == "__main__":
    serve(lambda: Kept(THRESHOLDS[sys.argv[1]]))
