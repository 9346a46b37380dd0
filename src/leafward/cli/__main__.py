"""`python -m leafward.cli` is the command `leafward`."""

from __future__ import annotations

from leafward.cli import main

if __name__ == "__main__":
    main()
