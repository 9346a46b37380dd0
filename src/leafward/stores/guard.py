"""Who may use an open store: the event loop and the process that opened it, until it is closed."""

from __future__ import annotations

import asyncio
import os

from leafward.core.errors import StoreError


class Guard:
    """Refuses use after close, from another event loop and in a forked child."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._pid = os.getpid()

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"{self.what} was opened before this process was forked: open it again in the child")

    def check(self) -> None:
        """Raise unless the store may be used here and now.

        Raises:
            StoreError: it may not; the text says why and what to do.
        """
        self.check_process()
        if self.closed:
            raise StoreError(f"{self.what} is closed: open it again")
        if asyncio.get_running_loop() is not self.loop:
            raise StoreError(f"{self.what} was opened in another event loop: open it again in this one")
