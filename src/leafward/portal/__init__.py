"""The one sync door: a loop thread, and mirrors of the async objects made at run time.

Their types are in `__init__.pyi`, which `tools/blocking_stub.py` writes from the async classes.
"""

from __future__ import annotations

from leafward.portal.iterator import BlockingIterator
from leafward.portal.mirror import mirror_class
from leafward.portal.mirrored import MIRRORED, PREFIX, load
from leafward.portal.opening import blocking
from leafward.portal.store import BlockingStore

__all__ = ["BlockingIterator", "BlockingStore", "blocking"]
__all__ += [PREFIX + _name for _name in MIRRORED]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in MIRRORED:
        return mirror_class(load(name.removeprefix(PREFIX)))
    raise AttributeError(f"module 'leafward.portal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
