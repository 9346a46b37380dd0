"""Packages that load what they export when it is first used, so that a program pays only for what it touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazily(
    package: dict[str, object], homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package, given its globals and the names by the modules they live in."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value: object = getattr(import_module(home_of[name]), name)
        package[name] = value
        return value

    return load, lambda: sorted({*package, *home_of})
