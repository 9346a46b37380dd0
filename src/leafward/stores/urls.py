"""What may be said of a store's URL."""

from __future__ import annotations


def without_secrets(url: str) -> str:
    """Return a URL, or what was meant as one, without what stands before an `@`."""
    before, at, after = url.rpartition("@")
    return f"{before.partition(':')[0]}:…@{after}" if at else url
