"""Appends are cancelled at every moment of their life: each is stored or absent, and the session goes on.

An append that returned must be there. One that raised `CancelledError` may be there, but that is settled
when the error arrives: it never appears later.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from faults.backends import Backend, Place
from faults.broken import variant
from faults.ledger import Violation
from faults.outcome import Control, Outcome, caught
from faults.perform import Writable
from faults.worker import Say, Worker
from leafward import Message, Session, open_store, user

_WEDGED_AFTER = 20.0
_READS_EVERY = 10


def message_number(number: int) -> Message:
    """Return the message with that number, the same in every process."""
    return user(f"message {number}", id=f"m-{number}")


async def cancel_many(job: Mapping[str, Any], say: Say) -> None:
    """Append and cancel until enough appends were cancelled (in the writer's process)."""
    async with open_store(job["url"]) as store:
        session = Session(store, job["session"])
        await _Canceller(session, variant(job["variant"], session), job["seed"], say).run(job["cancels"])


class _Canceller:
    """Starts appends, cancels some of them at a random moment, and says how each ended."""

    def __init__(self, session: Session, writer: Writable, seed: int, say: Say) -> None:
        self._session = session
        self._writer = writer
        self._rng = random.Random(seed)
        self._say = say
        self._number = 0
        self._cancelled = 0

    async def run(self, cancels: int) -> None:
        """Go on until `cancels` appends were asked to stop before they had ended."""
        rounds = 0
        while self._cancelled < cancels:
            rounds += 1
            await self._round()
            if rounds % _READS_EVERY == 0:
                await self._cancel_reads()
            await self._append_plainly()

    async def _round(self) -> None:
        tasks: dict[asyncio.Task[object], list[str]] = {}
        for _ in range(self._rng.choice((1, 1, 1, 3, 8))):
            ids, writing = self._write()
            tasks[asyncio.create_task(writing)] = ids
        await self._wait_a_little()
        chosen = self._rng.sample(list(tasks), self._rng.randint(1, len(tasks)))
        for task in chosen:
            self._cancelled += task.cancel()
        if self._rng.random() < 0.2:
            await self._wait_a_little()
            for task in chosen:
                task.cancel()
        await self._settle(tasks)
        for task, ids in tasks.items():
            await self._report(task, ids)

    def _write(self) -> tuple[list[str], Coroutine[Any, Any, object]]:
        size = self._rng.choice((1, 1, 1, 1, 3))
        messages = [message_number(self._number + offset) for offset in range(size)]
        self._number += size
        wires = [message.to_dict() for message in messages]
        writing = self._writer.append_message(wires[0]) if size == 1 else self._writer.append_messages(wires)
        return [message.id for message in messages], writing

    async def _wait_a_little(self) -> None:
        if self._rng.random() < 0.5:
            for _ in range(self._rng.randint(0, 8)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._rng.uniform(0, 0.003))

    async def _settle(self, tasks: Iterable[asyncio.Task[object]]) -> None:
        _, pending = await asyncio.wait(list(tasks), timeout=_WEDGED_AFTER)
        if pending:
            raise TimeoutError(f"{len(pending)} appends never ended")

    async def _report(self, task: asyncio.Task[object], ids: list[str]) -> None:
        if not task.cancelled():
            task.result()
            self._say(f"a {' '.join(ids)}")
            return
        present = [await self._session.get_message(message_id) is not None for message_id in ids]
        self._say(f"c {sum(present)} {' '.join(ids)}")

    async def _cancel_reads(self) -> None:
        reads: list[asyncio.Task[object]] = [
            asyncio.create_task(self._session.get_history()),
            asyncio.create_task(self._session.search("message")),
            asyncio.create_task(self._session.get_tree()),
        ]
        await self._wait_a_little()
        for read in reads:
            read.cancel()
        await self._settle(reads)
        for read in reads:
            if not read.cancelled():
                read.result()

    async def _append_plainly(self) -> None:
        message = message_number(self._number)
        self._number += 1
        async with asyncio.timeout(_WEDGED_AFTER):
            await self._session.append_message(message)
        self._say(f"a {message.id}")


@dataclass
class Account:
    """How each append ended, as its caller saw it."""

    returned: list[str] = field(default_factory=list[str])
    there_at_cancel: list[str] = field(default_factory=list[str])
    absent_at_cancel: list[str] = field(default_factory=list[str])
    torn: list[str] = field(default_factory=list[str])
    cancels: int = 0
    error: str | None = None

    @classmethod
    def read(cls, lines: list[str]) -> Account:
        """Read the lines of a writer."""
        account = cls()
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "a":
                account.returned += rest.split(" ")
            elif word == "c":
                present, *ids = rest.split(" ")
                account._note_cancel(int(present), ids)
            elif word == "x":
                account.error = rest
        return account

    def _note_cancel(self, present: int, ids: list[str]) -> None:
        self.cancels += 1
        if present == 0:
            self.absent_at_cancel += ids
        elif present == len(ids):
            self.there_at_cancel += ids
        else:
            self.torn += ids


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What the session held: ids in order of the chain, and the text of each."""

    ids: list[str]
    texts: list[str]
    chained: bool


def judge(account: Account, stored: Stored) -> list[Violation]:
    """Compare how the appends ended with what is stored."""
    violations: list[Violation] = []
    if account.error is not None:
        violations.append(Violation("nothing wedges", account.error))
    if account.torn:
        violations.append(Violation("whole or absent", f"{account.torn[:3]}"))
    there = set(stored.ids)
    for promise, lost in (
        ("returned means stored", [message_id for message_id in account.returned if message_id not in there]),
        (
            "settled at the error",
            [message_id for message_id in account.there_at_cancel if message_id not in there],
        ),
        (
            "settled at the error",
            [message_id for message_id in account.absent_at_cancel if message_id in there],
        ),
    ):
        if lost:
            violations.append(Violation(promise, f"{len(lost)} not so: {lost[:3]}"))
    return violations + judge_whole(stored, [*account.returned, *account.there_at_cancel], violations)


def judge_whole(stored: Stored, expected: list[str], known: list[Violation]) -> list[Violation]:
    """Check that the session is one chain of the `expected` messages, each once, with its own text."""
    violations: list[Violation] = []
    if len(set(stored.ids)) != len(stored.ids):
        violations.append(Violation("stored once", "an id is there twice"))
    if not stored.chained:
        violations.append(Violation("one chain", "a message does not follow the one before it"))
    if not known and set(stored.ids) != set(expected):
        violations.append(Violation("nothing unasked is stored", f"{len(stored.ids)}, not {len(expected)}"))
    for message_id, text in zip(stored.ids, stored.texts, strict=True):
        if text != message_number(int(message_id.removeprefix("m-"))).text:
            violations.append(Violation("content is exact", message_id))
    return violations


def run(backend: Backend, *, cancels: int, seed: int, progress: Say, control_cancels: int = 100) -> Outcome:
    """Cancel `cancels` appends, then run the controls."""
    with Outcome.of("cancel", backend.name) as outcome:
        account, stored, found = _play(backend, cancels, seed, "honest")
        progress(f"{backend.name}: {account.cancels} appends cancelled, {len(found)} violations")
        outcome.violations = [str(violation) for violation in found]
        outcome.figures = {
            "appends cancelled": f"{account.cancels:,}",
            "messages of cancelled appends": f"{len(account.there_at_cancel):,} stored, "
            f"{len(account.absent_at_cancel):,} absent",
            "messages of appends that returned": f"{len(account.returned):,}",
            "messages in the chain after every cancelled append was done again": f"{len(stored.ids):,}",
        }
        if not control_cancels:
            return outcome
        outcome.controls = [
            _control("a cancelled write goes on unseen", backend, "writes-after-cancel", control_cancels, seed),
            _control("a cancelled write is reported as done", backend, "hides-cancel", control_cancels, seed),
        ]
    return outcome


def _control(name: str, backend: Backend, broken: str, cancels: int, seed: int) -> Control:
    return caught(name, _play(backend, cancels, seed, broken)[2])


def _play(backend: Backend, cancels: int, seed: int, broken: str) -> tuple[Account, Stored, list[Violation]]:
    place = backend.fresh()
    with Worker(*backend.modules) as worker:
        worker.send(place.job("cancel", cancels=cancels, seed=seed, variant=broken))
        account = Account.read(worker.finish(deadline=time.monotonic() + 60 + cancels / 10))
    return asyncio.run(_judge_and_retry(place, account))


async def _judge_and_retry(place: Place, account: Account) -> tuple[Account, Stored, list[Violation]]:
    async with open_store(place.url) as store:
        session = place.session(store)
        stored = await _read(session)
        violations = judge(account, stored)
        if violations:
            return account, stored, violations
        cancelled = [*account.there_at_cancel, *account.absent_at_cancel]
        for message_id in cancelled:
            await session.append_message(message_number(int(message_id.removeprefix("m-"))))
        stored = await _read(session)
        return account, stored, judge_whole(stored, [*account.returned, *cancelled], [])


async def _read(session: Session) -> Stored:
    history = await session.get_history()
    parents = {node.id: node.parent_id for node in await session.get_tree()}
    ids = [message.id for message in history]
    follows = all(parents.get(str(later), "nothing") == earlier for earlier, later in pairwise([None, *ids]))
    return Stored(
        ids=ids,
        texts=[message.text for message in history],
        chained=follows and len(parents) == len(ids) == await session.get_path_length(),
    )
