"""Ports of 127.0.0.1 that nobody else takes while we hold them."""

from __future__ import annotations

import os
import random
import socket
from contextlib import closing

# Below the range from which Linux gives ports to clients: in that range a client that keeps calling a killed
# server can be given the server's own port, and talk to itself.
_RANGE = range(15_000, 32_000)


class Port:
    """A free port, kept for us from other test processes until it is released, whether or not a server listens."""

    def __init__(self) -> None:
        while True:
            number = random.SystemRandom().choice(_RANGE)
            with closing(socket.socket(socket.AF_UNIX)) as claim, closing(socket.socket()) as trial:
                try:
                    # A name that only one process on this machine can have, and that ends with it.
                    claim.bind(f"\0leafward-test-port-{number}")
                    trial.bind(("127.0.0.1", number))
                except OSError:
                    continue
                self.number = number
                self._claim = claim.detach()
                return

    def release(self) -> None:
        """Let others have it."""
        os.close(self._claim)
