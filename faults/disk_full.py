"""A writer runs out of disk: a typed error, nothing acknowledged lost, and it goes on once there is room.

`RLIMIT_FSIZE` serves as the full disk: a write that would make any file larger than the limit fails.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.backends import Backend, Place
from faults.ledger import Violation
from faults.outcome import Control, Outcome, caught
from faults.worker import Pool, Say
from leafward import Message, Session, StorageFull, open_store, user

_SMALLEST = 4 << 10
_LARGEST = 1 << 20
_MOST_MESSAGES = 2000
_REFUSALS = 3
_SIZES = (50, 500, 3000, 20_000, 200_000)
_HOW_OFTEN = (30, 30, 25, 12, 3)
_AFTERWARDS = 20
_PATIENCE = 60.0


def message_number(number: int, seed: int) -> Message:
    """Return the message with that number, the same in every process."""
    size = random.Random(f"{seed} {number}").choices(_SIZES, _HOW_OFTEN)[0]
    return user(f"{number} " + "x" * size, id=f"m-{number}")


async def fill(job: Mapping[str, Any], say: Say) -> None:
    """Append until the disk is full, make room, go on (in the writer's process)."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], hard))
    await _fill(job, say, make_room=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


async def _fill(job: Mapping[str, Any], say: Say, *, make_room: Callable[[], None]) -> None:
    refused_to_open = False
    try:
        store = await open_store(job["url"])
    except StorageFull:
        say("o")
        refused_to_open = True
        make_room()
        store = await open_store(job["url"])
    async with store:
        session = Session(store, job["session"])
        refused = [] if refused_to_open else await _append_until_refused(session, job["seed"], say)
        say(f"r {json.dumps([message.id for message in await session.get_history()])}")
        make_room()
        later = range(_MOST_MESSAGES, _MOST_MESSAGES + _AFTERWARDS)
        for number in [*refused, *later]:
            await session.append_message(message_number(number, job["seed"]))
            say(f"a {number}")


async def _append_until_refused(session: Session, seed: int, say: Say) -> list[int]:
    refused: list[int] = []
    for number in range(_MOST_MESSAGES):
        try:
            await session.append_message(message_number(number, seed))
        except StorageFull:
            refused.append(number)
            say(f"f {number}")
            if len(refused) == _REFUSALS:
                break
        else:
            say(f"a {number}")
    return refused


@dataclass
class Account:
    """What a writer said about one full disk."""

    acked: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    read_while_full: list[str] = field(default_factory=list[str])
    acked_before_reading: list[str] = field(default_factory=list[str])
    open_refused: bool = False
    error: str | None = None

    @classmethod
    def read(cls, lines: list[str]) -> Account:
        """Read the lines of a writer."""
        account = cls()
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "a":
                account.acked.append(f"m-{rest}")
            elif word == "f":
                account.refused.append(f"m-{rest}")
            elif word == "o":
                account.open_refused = True
            elif word == "r":
                account.read_while_full = json.loads(rest)
                account.acked_before_reading = list(account.acked)
            elif word == "x":
                account.error = rest
        return account


def judge(account: Account, stored: list[Message], seed: int) -> list[Violation]:
    """Compare what a writer was told with what it read while full, and with what is stored at the end."""
    violations: list[Violation] = []
    if account.error is not None:
        violations.append(Violation("a typed error, then it goes on", account.error))
    if account.read_while_full != account.acked_before_reading:
        violations.append(
            Violation("readable while full", _differ(account.acked_before_reading, account.read_while_full))
        )
    ids = [message.id for message in stored]
    if ids != account.acked:
        violations.append(Violation("stored is what was acknowledged", _differ(account.acked, ids)))
    return violations + [
        Violation("content is exact", message.id)
        for message in stored
        if message.text != message_number(int(message.id.removeprefix("m-")), seed).text
    ]


def _differ(expected: list[str], found: list[str]) -> str:
    missing = [message_id for message_id in expected if message_id not in set(found)]
    extra = [message_id for message_id in found if message_id not in set(expected)]
    return f"missing {missing[:3]}, extra {extra[:3]}, {len(found)} instead of {len(expected)}"


def run(backend: Backend, *, points: int, seed: int, progress: Say) -> Outcome:
    """Fill a disk at `points` different sizes."""
    rng = random.Random(seed)
    accounts: list[Account] = []
    stored: list[Message] = []
    with Outcome.of("disk full", backend.name) as outcome, Pool() as pool:
        for point in range(points):
            limit = round(_SMALLEST * (_LARGEST / _SMALLEST) ** ((point + rng.random()) / points))
            place = backend.fresh()
            account = _one_disk(pool, place, limit, seed)
            stored = asyncio.run(_read(place))
            found = judge(account, stored, seed)
            # An error names its file; where this run kept it is of no use to a reader.
            directory = place.url.partition("://")[2].rpartition("/")[0]
            outcome.violations += [f"limit {limit}: {text}".replace(directory, "") for text in found]
            accounts.append(account)
            if (point + 1) % 10 == 0:
                progress(f"{backend.name}: {point + 1}/{points} full disks, {len(outcome.violations)} violations")
        outcome.figures = _figures(accounts)
        outcome.controls = _controls(accounts[-1], stored, seed)
    return outcome


def _one_disk(pool: Pool, place: Place, limit: int, seed: int) -> Account:
    with pool.take() as worker:
        worker.send(place.job("fill", limit=limit, seed=seed))
        return Account.read(worker.finish(deadline=time.monotonic() + _PATIENCE))


async def _read(place: Place) -> list[Message]:
    async with open_store(place.url) as store:
        return await place.session(store).get_history()


def _figures(accounts: list[Account]) -> dict[str, str]:
    return {
        "sizes tried": f"{len(accounts)}, from {_SMALLEST >> 10} KiB to {_LARGEST >> 10} KiB",
        "messages acknowledged": f"{sum(len(account.acked) for account in accounts):,}",
        "appends refused with StorageFull": f"{sum(len(account.refused) for account in accounts):,}",
        "opens refused with StorageFull": f"{sum(account.open_refused for account in accounts):,}",
    }


def _controls(account: Account, stored: list[Message], seed: int) -> list[Control]:
    spoiled = {
        "one acknowledged message missing": stored[:-2] + stored[-1:],
        "one message stored twice": [*stored, stored[-1]],
        "one message with other text": [*stored[:-1], user("other", id=stored[-1].id)] if stored else [],
    }
    return [caught(name, judge(account, messages, seed)) for name, messages in spoiled.items()]
