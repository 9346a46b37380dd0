"""The terminal: `main` is the command `leafward`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leafward.cli.commands import main as main

_EXTRA = ("click", "rich")


def __getattr__(name: str) -> object:
    # Loaded at first use: the writer that the demo starts is in this room too, and needs neither click nor rich.
    if name != "main":
        raise AttributeError(f"module 'leafward.cli' has no attribute {name!r}")
    try:
        from leafward.cli.commands import main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        return _name_the_extra
    return main


def _name_the_extra() -> None:
    """End with the line that installs what the commands need."""
    print("The leafward command needs click and rich: run  pip install 'leafward[cli]'", file=sys.stderr)
    raise SystemExit(2)
