"""The writer of `faults.kill`, in a process of its own: it does a plan and tells a pipe how far it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from faults.broken import variant
from faults.perform import perform
from faults.plan import Op
from faults.worker import Say
from leafward import Session, StoreError, open_store

T = TypeVar("T")

_PAUSE = 0.02
_GIVES_UP_AFTER = 15.0


async def write_until_killed(job: Mapping[str, Any], say: Say) -> None:
    """Do a plan, saying what begins and what is acknowledged (in the writer's process)."""
    ops = [Op.from_json(data) for data in job["ops"]]
    repeat = partial(_repeat, say) if job["settles"] else _once
    say("o")
    async with await repeat(lambda: open_store(job["url"])) as store:
        session = variant(job["variant"], Session(store, job["session"]))
        for number, op in enumerate(ops):
            say(f"i {number}")
            tell = partial(_tell_member, say, number)
            await repeat(lambda op=op, tell=tell: perform(session, op, on_member=tell))
            say(f"a {number}")
        say("c")
    say("d")
    if not job["settles"]:
        await asyncio.Event().wait()


def _tell_member(say: Say, of: int, member: int) -> None:
    say(f"m {of} {member}")


async def _once(step: Callable[[], Awaitable[T]]) -> T:
    return await step()


async def _repeat(say: Say, step: Callable[[], Awaitable[T]]) -> T:
    """Do a step until it is done, as a caller does whose server went away; one that stays away is given up."""
    deadline = time.monotonic() + _GIVES_UP_AFTER
    while True:
        try:
            return await step()
        except StoreError as error:
            if time.monotonic() > deadline:
                raise
            say(f"u {type(error).__name__}")
            await asyncio.sleep(_PAUSE)
