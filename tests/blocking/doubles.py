"""Async objects a portal can mirror, and a way to run a program of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, cast

from leafward.portal.loop import LoopThread
from leafward.portal.portal import Portal
from leafward.stores import Store

PATIENCE = 30
CURRENT: ContextVar[str] = ContextVar("CURRENT", default="nobody")


class Drawer(Mapping[str, "Desk"]):
    """A mapping of handles, like a set of tools."""

    def __init__(self, desks: dict[str, Desk]) -> None:
        self._desks = desks

    def __getitem__(self, key: str) -> Desk:
        return self._desks[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._desks)

    def __len__(self) -> int:
        return len(self._desks)

    def __or__(self, other: Drawer) -> Drawer:
        return Drawer({**self, **other})

    async def call(self, name: str) -> str:
        return await self[name].who()


class Desk:
    """A handle with one of everything a handle can have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.execute = self._execute
        self.began = threading.Event()
        self.log: list[str] = []

    @classmethod
    def create(cls, beside: Desk, name: str) -> Desk:
        return cls(f"{name} beside {beside.name}")

    @property
    def title(self) -> str:
        return self.name.title()

    def named(self, name: str) -> Self:
        self.name = name
        return self

    def neighbour(self) -> Desk:
        return Desk(f"next to {self.name}")

    async def who(self) -> str:
        """Return the name."""
        await asyncio.sleep(0)
        return self.name

    async def compare(self, other: Desk, *, items: list[int]) -> tuple[str, str, list[int]]:
        return self.name, other.name, items

    async def names_of(self, desks: list[Desk] | dict[str, Desk]) -> list[str]:
        found = list(desks.values()) if isinstance(desks, dict) else desks
        return [desk.name for desk in found if isinstance(desk, Desk)]

    async def enter_as(self, name: str) -> None:
        CURRENT.set(name)

    async def current(self) -> str:
        return CURRENT.get()

    async def ask(self, question: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(question)

    async def ask_here(self, question: Callable[[], Any]) -> Any:
        return question()

    async def write_for_long(self) -> None:
        """Begin a write that is finished when it is cancelled."""
        self.began.set()
        try:
            await asyncio.sleep(PATIENCE * 2)
        finally:
            self.log.append("finished")

    async def leave(self) -> None:
        raise SystemExit(3)

    async def count(self) -> AsyncGenerator[int]:
        try:
            for number in range(1_000_000):
                yield number
        finally:
            self.log.append("stopped")

    async def wait_for_ever(self) -> AsyncGenerator[int]:
        self.began.set()
        try:
            await asyncio.sleep(PATIENCE * 2)
            yield 1
        finally:
            self.log.append("stopped")

    async def _execute(self, arguments: dict[str, int]) -> int:
        return sum(arguments.values())


class Room:
    """A store with a desk in it."""

    def __init__(self) -> None:
        self.desk = Desk("desk")
        self.drawer = Drawer({"a": Desk("anna"), "b": Desk("ben")})
        self.closed_times = 0

    async def close(self) -> None:
        self.closed_times += 1


@contextmanager
def mirrored_room() -> Iterator[tuple[Any, Room]]:
    """Give the mirror of a room, and the room."""
    room = Room()
    store = Portal(LoopThread("the room"), cast(Store, room)).mirror(room)
    try:
        yield store, room
    finally:
        store.close()


def run_program(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter that can import the tests."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        env=environment,
        check=False,
    )


def portal_threads() -> set[threading.Thread]:
    """Return the threads that portals and their stores have."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("leafward")}


def threads_left(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return those of the threads begun since `before` that do not end, however long they are given."""
    # Not joined: one that is only about to start cannot be.
    deadline = time.monotonic() + PATIENCE
    while (left := portal_threads() - before) and time.monotonic() < deadline:
        time.sleep(0.001)
    return left
