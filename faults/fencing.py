"""Holders of a lease are stopped beyond its end, or killed: what a stale holder writes is refused.

Each message is named after the token under which it was written, so the order of tokens in the session tells whether
one came after its time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from faults.backends import Backend, Place
from faults.ledger import Observed, Violation
from faults.outcome import Outcome, caught
from faults.perform import observe
from faults.worker import Say, Worker, wait_for_any
from leafward import LeaseLost, Session, open_store, user
from leafward.stores import Lease

T = TypeVar("T")

_HOLDERS = 4
_TTL = 0.6
_BURST = 20
_BREATH = 0.01
_LATEST = 0.1
_SHARE_OF_KILLS = 0.25
_LONGEST_STOP = 5 * _TTL
_PATIENCE = 60.0


async def _breathe(_lease: Lease) -> None:
    await asyncio.sleep(_BREATH)


async def hold_and_write(
    job: Mapping[str, Any], say: Say, *, between: Callable[[Lease], Awaitable[None]] = _breathe
) -> None:
    """Take the lease, write a little, give it back, again and again (in the holder's process)."""
    async with open_store(job["url"]) as store:
        session = Session(store, job["session"])
        while True:
            async with store.leases.acquire(job["session"], ttl=_TTL) as lease:
                say(f"h {lease.token}")
                handle = session.with_lease(lease) if job["leased"] else session
                await _write(handle, lease, job["writer"], say, between)


async def _write(
    handle: Session, lease: Lease, writer: int, say: Say, between: Callable[[Lease], Awaitable[None]]
) -> None:
    for number in range(_BURST):
        message_id = f"{lease.token}-{writer}-{number}"
        say(f"i {message_id}")
        try:
            await handle.append_message(user(f"by {writer}", id=message_id))
        except LeaseLost:
            say(f"l {message_id}")
            return
        say(f"a {message_id}")
        await between(lease)
    say(f"r {lease.token}")


@dataclass
class Scene:
    """What holders said, and what was done to them."""

    said: list[list[str]] = field(default_factory=list[list[str]])
    done: Counter[str] = field(default_factory=Counter[str])

    def ids(self, word: str) -> list[str]:
        """Return what was said with `word`: `i` begun, `a` acknowledged, `l` refused."""
        return [line[2:] for lines in self.said for line in lines if line.startswith(f"{word} ")]


def run(backend: Backend, *, stops: int, seed: int, progress: Say, control_stops: int = 12) -> Outcome:
    """Stop or kill holders `stops` times, then do the same to holders whose writes do not carry the lease."""
    with Outcome.of("fencing", backend.name) as outcome:
        scene, observed = _play(backend, stops, seed, leased=True)
        found = judge(scene, observed)
        progress(f"{backend.name}: {stops} holders stopped or killed, {len(found)} violations")
        outcome.figures = _figures(scene, observed)
        outcome.violations = [str(violation) for violation in found]
        unfenced = [
            violation
            for violation in judge(*_play(backend, control_stops, seed + 1, leased=False))
            if violation.promise == "no stale write is stored"
        ]
        outcome.controls = [caught("writes do not carry the lease", unfenced)]
    return outcome


def judge(scene: Scene, observed: Observed) -> list[Violation]:
    """Compare what holders were told with what is stored."""
    stored = set(observed.wires)
    violations = [Violation("no errors", error) for error in scene.ids("x")]
    writers: dict[str, set[str]] = {}
    for message_id in scene.ids("i"):
        token, writer, _ = message_id.split("-")
        writers.setdefault(token, set()).add(writer)
    violations += [
        Violation("a token has one holder", f"token {token} had {sorted(names)}")
        for token, names in writers.items()
        if len(names) > 1
    ]
    highest = 0
    for message_id in observed.path:
        token = int(message_id.partition("-")[0])
        if token < highest:
            violations.append(Violation("no stale write is stored", f"{message_id} after a write of token {highest}"))
            break
        highest = token
    for promise, wrong in (
        ("nothing acknowledged is lost", set(scene.ids("a")) - stored),
        ("refused is not stored", set(scene.ids("l")) & stored),
        ("nothing unasked is stored", stored - set(scene.ids("i"))),
    ):
        if wrong:
            violations.append(Violation(promise, f"{len(wrong)}, such as {min(wrong)}"))
    if not len(observed.path) == len(observed.parents) == observed.path_length:
        violations.append(Violation("one chain", f"{len(observed.parents)} messages, {len(observed.path)} in history"))
    return violations


def _play(backend: Backend, stops: int, seed: int, *, leased: bool) -> tuple[Scene, Observed]:
    place = backend.fresh()
    if backend.name == "memory":
        return asyncio.run(_play_tasks(place, stops, seed, leased=leased))
    with _Trouble(backend, place, seed, leased=leased) as trouble:
        trouble.make(stops)
    return trouble.scene, asyncio.run(_read(place))


async def _read(place: Place) -> Observed:
    async with open_store(place.url) as store:
        return await observe(place.session(store))


class _Trouble:
    """Four holders in processes of their own, and what is done to them."""

    def __init__(self, backend: Backend, place: Place, seed: int, *, leased: bool) -> None:
        self.scene = Scene()
        self._backend = backend
        self._place = place
        self._rng = random.Random(seed)
        self._leased = leased
        self._workers: list[Worker] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Trouble:
        asyncio.run(_read(self._place))
        for _ in range(_HOLDERS):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make(self, stops: int) -> None:
        """Stop or kill whoever has the lease, until that was done `stops` times or one of them failed."""
        while self.scene.done["stopped"] + self.scene.done["killed"] < stops and not self.scene.ids("x"):
            worker, token = self._wait_for(self._holder)
            time.sleep(self._rng.uniform(0, _LATEST))
            if self._rng.random() < _SHARE_OF_KILLS:
                self.scene.done["killed"] += 1
                worker.kill()
                self._workers.remove(worker)
                self._start()
            else:
                self._stop(worker, token)

    def _stop(self, worker: Worker, token: int) -> None:
        self.scene.done["stopped"] += 1
        worker.stop()
        said = len(worker.heard())
        try:
            # A holder that was stopped inside a transaction may keep the others out until it goes on.
            self._wait_for(lambda: self._others_came(token), patience=_LONGEST_STOP)
            self.scene.done["followed"] += 1
        except TimeoutError:
            self.scene.done["kept others out"] += 1
        worker.go_on()
        self._wait_for(lambda: _last_word(worker.heard()[said:], "lrx"))

    def _holder(self) -> tuple[Worker, int] | None:
        lines = {worker: _last_word(worker.heard(), "hrlx") for worker in self._workers}
        holding = [(int(line[2:]), worker) for worker, line in lines.items() if line and line.startswith("h ")]
        token, worker = max(holding, key=lambda one: one[0], default=(0, None))
        return None if worker is None else (worker, token)

    def _others_came(self, token: int) -> bool:
        return any(int(later) > token for later in self.scene.ids("h"))

    def _wait_for(self, look: Callable[[], T | None], *, patience: float = _PATIENCE) -> T:
        deadline = time.monotonic() + patience
        while not (found := look()):
            wait_for_any(self._workers, deadline=deadline)
            for worker in self._workers:
                worker.heard()
        return found

    def _start(self) -> None:
        worker = self._stack.enter_context(Worker(*self._backend.modules))
        self._workers.append(worker)
        worker.send(self._place.job("hold", writer=len(self.scene.said), leased=self._leased))
        self.scene.said.append(worker.said)


def _last_word(lines: Sequence[str], words: str) -> str | None:
    return next((line for line in reversed(lines) if line[0] in words), None)


async def _play_tasks(place: Place, stops: int, seed: int, *, leased: bool) -> tuple[Scene, Observed]:
    """Let four tasks hold the lease in turn; one that is stopped no longer renews it, as a stopped process would."""
    rng = random.Random(seed)
    scene = Scene(said=[[] for _ in range(_HOLDERS)])
    all_done = asyncio.Event()
    newest = 0
    followed = asyncio.Condition()

    async def between(lease: Lease) -> None:
        nonlocal newest
        async with followed:
            newest = max(newest, lease.token)
            followed.notify_all()
        await asyncio.sleep(0)
        if rng.random() < 1 / _BURST and scene.done["stopped"] < stops:
            scene.done["stopped"] += 1
            lease._renewing.cancel()
            async with followed:
                await followed.wait_for(lambda: newest > lease.token)
            scene.done["followed"] += 1
            if scene.done["followed"] == stops:
                all_done.set()

    waiting = asyncio.create_task(all_done.wait())
    holders = [
        asyncio.create_task(
            hold_and_write(place.job("hold", writer=writer, leased=leased), said.append, between=between)
        )
        for writer, said in enumerate(scene.said)
    ]
    async with asyncio.timeout(_PATIENCE + stops * _LONGEST_STOP):
        ended, _ = await asyncio.wait({*holders, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()
    # The last one that was stopped is to find out.
    await asyncio.sleep(_BREATH)
    for holder in holders:
        holder.cancel()
    await asyncio.wait(holders)
    return scene, await _read(place)


def _figures(scene: Scene, observed: Observed) -> dict[str, str]:
    return {
        "holders": f"{_HOLDERS} at a time, a lease of {_TTL} s",
        "stopped beyond the end of their lease": f"{scene.done['stopped']}; "
        f"another holder came meanwhile: {scene.done['followed']}",
        "killed": f"{scene.done['killed']}",
        "tokens given": f"{len(set(scene.ids('h'))):,}",
        "appends acknowledged": f"{len(scene.ids('a')):,}, {len(observed.path):,} stored",
        "appends refused with LeaseLost": f"{len(scene.ids('l'))}",
    }
