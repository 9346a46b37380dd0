"""Who saves lists of states is killed again and again; each is then the one before or the next, never a mixture."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from faults.backends import Backend, Place
from faults.outcome import Control, Outcome, caught
from faults.worker import Pool, Say, Worker
from leafward import LeafwardError, open_store

List = list[dict[str, Any]]

_WINDOW_S = 0.06
_PATIENCE_S = 60.0
_PER_PLACE = 20
"""Kills that one slot lives through."""


class Lists:
    """A list that changes in all ways, at every step, the same for everyone who begins with the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.items: List = []
        self._count = 0

    def __iter__(self) -> Iterator[List]:
        while True:
            yield list(self.items)
            self._step()

    def _step(self) -> None:
        match self._rng.choices(("one", "many", "edit", "cut", "clear"), (40, 35, 12, 8, 5))[0]:
            case "many":
                self.items += [self._item() for _ in range(self._rng.randint(2, 8))]
            case "edit" if self.items:
                self.items[self._rng.randrange(len(self.items))] = self._item()
            case "cut" if self.items:
                del self.items[self._rng.randrange(len(self.items)) :]
            case "clear" if self.items:
                self.items.clear()
            case _:
                self.items.append(self._item())

    def _item(self) -> dict[str, Any]:
        self._count += 1
        return {"n": self._count, "text": "语" * self._rng.choice((0, 3, 900, 9000))}


async def save_until_killed(job: Mapping[str, Any], say: Say) -> None:
    """Save each list of the sequence from where it stands, and a value that counts them."""
    async with open_store(job["url"]) as store:
        say("o")
        for number, items in enumerate(Lists(job["seed"])):
            if number <= job["from"]:
                continue
            if job["variant"] == "acks-early":
                say(f"a {number}")
            if job["variant"] == "tears":
                # As one does who appends line by line.
                await store.states.save_list(job["session"], "list", items[: len(items) // 2])
            await store.states.save_list(job["session"], "list", items)
            await store.states.save(job["session"], "count", {"n": number})
            if job["variant"] != "acks-early":
                say(f"a {number}")


def run(backend: Backend, *, kills: int, seed: int, progress: Say, control_kills: int = 40) -> Outcome:
    """Kill who saves `kills` times, then who saves in a careless way."""
    with Outcome.of("states", backend.name) as outcome:
        found: Counter[str] = Counter()
        outcome.violations = asyncio.run(_kill_many(backend, kills, seed, "honest", found, progress))
        outcome.figures = {
            "kills": f"{kills}",
            "lists saved and acknowledged": f"{found['acked']:,}",
            "found as acknowledged": f"{found['as acknowledged']}",
            "found as it was being saved": f"{found['the next']}",
        }
        if not control_kills:
            return outcome
        outcome.controls = [
            _control("saves a list in two steps", backend, control_kills, seed, "tears"),
            _control("acknowledges before it saves", backend, control_kills, seed, "acks-early"),
        ]
    return outcome


def _control(name: str, backend: Backend, kills: int, seed: int, variant: str) -> Control:
    return caught(name, asyncio.run(_kill_many(backend, kills, seed + 1, variant, Counter(), lambda _: None)))


async def _kill_many(
    backend: Backend, kills: int, seed: int, variant: str, found: Counter[str], progress: Say
) -> list[str]:
    rng = random.Random(seed)
    violations: list[str] = []
    place, sequence, done, acked = backend.fresh(), seed, 0, 0
    with Pool(*backend.modules) as pool:
        for kill in range(kills):
            if kill % _PER_PLACE == 0:
                place, sequence, done, acked = backend.fresh(), rng.randrange(1 << 30), 0, 0
            job = place.job("save", seed=sequence, variant=variant, **{"from": done})
            with pool.take() as worker:
                newest = _save_and_kill(worker, job, rng)
            found["acked"] += max(0, newest - done)
            acked = max(newest, acked)
            done, wrong = await _look(place, sequence, max(done, acked), acked, found)
            violations += wrong
            if violations and variant != "honest":
                break
            if kill % 50 == 49:
                progress(f"  {kill + 1} kills of who saves states")
    return violations


def _save_and_kill(worker: Worker, job: Mapping[str, Any], rng: random.Random) -> int:
    """Let it save for a moment, kill it, and return the last list that it said is saved."""
    deadline = time.monotonic() + _PATIENCE_S
    worker.send(job)
    worker.wait_for("a " if rng.random() < 0.9 else "o", deadline=deadline)
    time.sleep(rng.random() * _WINDOW_S)
    worker.kill()
    for line in worker.said:
        if line.startswith("x "):
            raise AssertionError(line)
    return max((int(line[2:]) for line in worker.said if line.startswith("a ")), default=0)


async def _look(place: Place, seed: int, done: int, acked: int, found: Counter[str]) -> tuple[int, list[str]]:
    """Compare what is stored with the lists that may be, the one that was last seen or said to be saved, and the next;
    return the number of the one that is."""
    wanted = dict(zip(range(done + 2), Lists(seed), strict=False))
    try:
        async with open_store(place.url) as store:
            items = await store.states.get_list(place.session_id, "list")
            count = await store.states.get_versioned(place.session_id, "count")
    except LeafwardError as error:
        return done, [f"after list {done} nothing can be read: {error}"]
    for number, name in ((done, "as acknowledged"), (done + 1, "the next")):
        if items == wanted[number]:
            found[name] += 1
            counted = 0 if count.value is None else count.value["n"]
            return number, [] if acked <= counted <= number else [f"at list {number} the count is {counted}"]
    return done, [f"after list {done} there is neither it nor the next, but one of {len(items)} items"]
