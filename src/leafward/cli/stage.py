"""What the steps of the demo share: where it writes, and what it learned so far."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from leafward import Session, StoreError, open_store
from leafward.cli.screen import Screen

AGENT = "demo"
"""The demo's sessions are this agent's, so they meet no others in a file that holds some."""

Facts = dict[str, Any]


@dataclass
class Demo:
    """One run: where it writes, and what it learned so far."""

    path: Path
    number: int = 0
    acknowledged: list[str] = field(default_factory=list[str])
    fork_id: str = ""

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def where(self) -> str:
        """The file's name for someone in another directory."""
        return str(self.path.absolute())

    @property
    def session_id(self) -> str:
        return f"demo-{self.number}"

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """The conversation of this run, in a store that is open as long as the context lasts."""
        async with open_store(self.url) as store:
            yield Session(store, self.session_id, agent_id=AGENT)


class Step(NamedTuple):
    """Something the demo shows, and what that proves."""

    name: str
    title: str
    proves: str
    show: Callable[[Demo, Screen], Awaitable[Facts]]


def check(demo: Demo, held: bool, otherwise: str) -> None:
    """Stop the demo if something it promised does not hold.

    Raises:
        StoreError: it does not; the text says what.
    """
    if not held:
        raise StoreError(f"{demo.path}: {otherwise}: please report this")
