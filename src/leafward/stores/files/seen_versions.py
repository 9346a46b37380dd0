"""The versions that one open store has reported and that no file holds."""

from __future__ import annotations

import threading

from leafward.stores.files.folder import Parts

MOST = 100_000
"""Values whose versions are remembered; beyond that, the first ones are not."""


class SeenVersions:
    """Remembers which content of a value had which version, where that cannot be noted in a file.

    A content that differs from the remembered one is at the next version, as beside a file that notes another.
    """

    def __init__(self) -> None:
        self._seen: dict[Parts, tuple[int, str]] = {}
        # Reads run on several threads.
        self._lock = threading.Lock()

    def version(self, parts: Parts, digest: str, noted: int) -> int:
        """Return the version of a content that is at `noted` by its files alone."""
        version, known = self._seen.get(parts, (0, digest))
        return max(noted, version + (known != digest))

    def note(self, parts: Parts, digest: str, noted: int) -> int:
        """Return the same, remembered."""
        with self._lock:
            version = self.version(parts, digest, noted)
            self._seen.pop(parts, None)
            self._seen[parts] = version, digest
            if len(self._seen) > MOST:
                del self._seen[next(iter(self._seen))]
        return version

    def evict(self, *values: Parts) -> None:
        """Remove values whose versions are in files now, or that were deleted."""
        with self._lock:
            for parts in values if self._seen else ():
                self._seen.pop(parts, None)
