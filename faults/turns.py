"""A process that runs an agent's turns is killed again and again, and the next one takes up what it left.

The agent cooks one dinner after the other in one conversation (`faults.kitchen`). After each kill the next process
sends the same input again, nothing, or something else. Some holders are stopped beyond the end of their lease instead,
and go on while another process has the session. In the end the conversation is compared with what tools wrote down and
with what the user was told.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from faults.backends import Backend, Place
from faults.broken_turns import BROKEN, UNFENCED, broken
from faults.kitchen import Kitchen, other_input, steps, undisturbed
from faults.outcome import Control, Outcome, caught
from faults.turn_judge import Ledger, Stored, differences, judge, judge_stop, told
from faults.worker import Pool, Say, Worker, WorkerFailed
from leafward import Message, RuntimeContext, open_store, user

_USER = "alice"
_TTL = 0.6
_PATIENCE_S = 60.0
_PER_PLACE = 10
"""Kills that one conversation lives through."""
_WINDOW_S: Mapping[str, float] = {"i ": 0.15, "a ": 0.1, "o": 0.05}
_COOKING_S = 0.01
_SHARE_OF_STOPS = 0.2
_LONGEST_STOP_S = 5 * _TTL

_BEGINS = re.compile(r"([0-9]+)-(?:q|n[0-9]+)")
"""The ids of messages that begin a dinner, or give it up."""

Sending = list[Any]
"""What the user sends: `["step", dinner, number]`, `["other", dinner, number]`, or `["nothing"]`."""


# The process that is killed.


async def cook_until_killed(job: Mapping[str, Any], say: Say) -> None:
    """Send what is given, then go on with dinners; with `last`, until that one is done."""
    ledger: str = job["ledger"]
    with broken(job["variant"]):
        async with open_store(job["url"]) as store:
            kitchen = Kitchen(
                lambda line: _write_down(ledger, line),
                lambda: Path(ledger).read_text().splitlines(),
                pace=lambda: asyncio.sleep(_COOKING_S),
            )
            agent = kitchen.agent(store, lease_ttl=_TTL)
            ctx = RuntimeContext(_USER, job["session"])
            say("o")
            sending: Sending = []
            given: list[Sending] = job["given"]
            while job["last"] is None or given or sending != ["step", job["last"], 2]:
                sending = given.pop(0) if given else _following(sending)
                say(f"i {json.dumps(sending)}")
                message = _message(sending)
                try:
                    reply = await agent.call(message, ctx)
                except ValueError:
                    if message is not None:
                        raise
                    # No turn was open.
                    continue
                ids = [one.id for one in (message, reply) if one is not None and one.parts]
                say(f"a {json.dumps([sending, ids])}")


def _write_down(path: str, line: str) -> None:
    # In one write, so that a kill cannot tear a line, nor mix it with those of others.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def _message(sending: Sending) -> Message | None:
    match sending:
        case ["step", dinner, number]:
            return steps(str(dinner))[number]
        case ["other", dinner, number]:
            return other_input(str(dinner), number)
        case ["greet"]:
            return user("Hello", id="hello")
        case _:
            return None


def _following(sending: Sending) -> Sending:
    match sending:
        case ["step", dinner, 0 | 1 as number]:
            return ["step", dinner, number + 1]
        case ["step" | "other", dinner, _]:
            return ["step", dinner + 1, 0]
        case _:
            return ["step", 1, 0]


# The ones who kill and judge.


def run(backend: Backend, *, kills: int, seed: int, progress: Say, control_kills: int = 60) -> Outcome:
    """Kill the process `kills` times, then processes whose turns are broken on purpose, unless `control_kills` is 0."""
    with Outcome.of("turns", backend.name) as outcome:
        found: Counter[str] = Counter()
        outcome.violations = asyncio.run(_kill_many(backend, kills, seed, None, found, progress))
        outcome.figures = {
            "kills": f"{found['kills']}, taken up by the same input {found['same']} times, by none {found['nothing']}, "
            f"by another {found['other']}",
            "holders stopped beyond the end of their lease": f"{found['stopped']}; refused with LeaseLost: "
            f"{found['LeaseLost']}",
            "dinners": f"{found['dinners']} in {found['places']} conversations, {found['left']} of them left for "
            "something else",
            "messages acknowledged": f"{found['acked']:,}",
            "tools run": f"{found['ran']:,}, {found['again']} of them again, as they allow it",
            "results reported as unknown": f"{found['unknown']}",
        }
        outcome.controls = [_control(name, backend, control_kills, seed) for name in BROKEN if control_kills]
    return outcome


def _control(name: str, backend: Backend, kills: int, seed: int) -> Control:
    return caught(name, asyncio.run(_kill_many(backend, kills, seed + 1, name, Counter(), lambda _: None)))


async def _kill_many(
    backend: Backend, kills: int, seed: int, variant: str | None, found: Counter[str], progress: Say
) -> list[str]:
    rng = random.Random(seed)
    reference = told(await undisturbed("1"))[2:]
    violations: list[str] = []
    with TemporaryDirectory(prefix="turns-") as directory, Pool(*backend.modules) as pool:
        while found["kills"] < kills and not (violations and variant):
            ledger = Path(directory) / f"{found['places']}"
            life = _Life(backend.fresh(), ledger, variant, rng, found, pool)
            violations += await life.live_through(min(_PER_PLACE, kills - found["kills"]), reference)
            found["places"] += 1
            progress(f"{backend.name}: {found['kills']}/{kills} kills of turns, {len(violations)} violations")
    return violations


class _Life:
    """One conversation that lives through many kills."""

    def __init__(
        self, place: Place, ledger: Path, variant: str | None, rng: random.Random, found: Counter[str], pool: Pool
    ) -> None:
        self._place = place
        self._file = ledger
        self._variant = variant
        self._rng = rng
        self._found = found
        self._pool = pool
        self._ledger = Ledger()
        self._next: Sending = ["greet"]
        """What was not acknowledged, or not sent yet."""
        self._left: set[int] = set()
        """Dinners that the user gave up."""
        self._kills = 0

    async def live_through(self, kills: int, reference: Sequence[str]) -> list[str]:
        """Kill so often, let one more process finish, and return what is wrong."""
        for _ in range(kills):
            self._kills += 1
            self._found["kills"] += 1
            violations = self._write_and_kill()
            violations += judge_stop(await self._stored())
            if violations:
                return [f"kill {self._kills}: {text}" for text in violations]
        return [f"after {kills} kills: {text}" for text in await self._finish(reference)]

    async def _stored(self) -> Stored:
        async with open_store(self._place.url) as store:
            return await Stored.read(store, _USER, self._place.session_id)

    def _write_and_kill(self) -> list[str]:
        with self._pool.take() as worker:
            worker.send(self._job(self._given()))
            trigger = self._rng.choices(list(_WINDOW_S), [6, 3, 1])[0]
            worker.wait_for(trigger, deadline=time.monotonic() + _PATIENCE_S)
            time.sleep(self._rng.uniform(0, _WINDOW_S[trigger]))
            if self._variant == UNFENCED or self._rng.random() < _SHARE_OF_STOPS:
                return self._stop_and_follow(worker)
            worker.kill()
            return self._absorb(worker)

    def _stop_and_follow(self, sleeper: Worker) -> list[str]:
        """Let another one follow a holder that is stopped; the sleeper goes on while that has the session."""
        self._found["stopped"] += 1
        sleeper.stop()
        violations = self._absorb(sleeper)
        seen = len(sleeper.heard())
        with self._pool.take() as follower:
            follower.send(self._job([self._next]))
            # One that is stopped inside a transaction may keep all others out until it goes on.
            with suppress(WorkerFailed):
                follower.wait_for("a ", deadline=time.monotonic() + _LONGEST_STOP_S)
            sleeper.go_on()
            time.sleep(self._rng.uniform(0.05, 0.3))
            sleeper.kill()
            follower.kill()
            violations += self._absorb(sleeper, seen) + self._absorb(follower)
        return violations

    def _given(self) -> list[Sending]:
        """Return what the next process sends first."""
        kind, *_ = self._next
        ways = ["same", "nothing", "other"] if kind == "step" else ["same", "nothing"]
        way = self._rng.choice(ways)
        self._found[way] += 1
        if way == "other":
            dinner: int = self._next[1]
            self._left.add(dinner)
            self._next = ["other", dinner, self._kills]
        return [["nothing"], self._next] if way == "nothing" else [self._next]

    def _job(self, given: list[Sending], *, last: int | None = None) -> dict[str, Any]:
        return self._place.job("turn", given=given, last=last, ledger=str(self._file), variant=self._variant)

    def _absorb(self, worker: Worker, since: int = 0) -> list[str]:
        """Take note of what a process said, and return what it should not have said."""
        violations: list[str] = []
        for line in worker.heard()[since:]:
            if line.startswith("a "):
                sending, ids = json.loads(line[2:])
                self._ledger.acked += ids
                if sending != ["nothing"]:
                    self._next = max(self._next, _following(sending), key=_place_of)
            elif line.startswith("x LeaseLost"):
                self._found["LeaseLost"] += 1
            elif line.startswith("x "):
                violations.append(line)
        return violations

    async def _finish(self, reference: Sequence[str]) -> list[str]:
        """Have the present dinner cooked to its end, and judge the whole conversation."""
        dinner: int = _place_of(self._next)[0] or 1
        last = dinner + 1 if self._next[0] == "other" else dinner
        with self._pool.take() as worker:
            worker.send(self._job([self._next], last=last))
            said = worker.finish(deadline=time.monotonic() + _PATIENCE_S)
            violations = [line for line in said if line.startswith("x ")]
            self._absorb(worker)
        self._ledger.lines = self._file.read_text().splitlines()
        stored = await self._stored()
        violations += judge(stored, self._ledger, deaths=self._kills)
        violations += _conversation_faults(stored.history, last, self._left, reference)
        self._count(stored, last)
        return violations

    def _count(self, stored: Stored, dinners: int) -> None:
        ran = Counter(self._ledger.ran())
        lines = told(stored.history)
        self._found.update(
            dinners=dinners,
            left=len(self._left),
            acked=len(set(self._ledger.acked)),
            ran=ran.total(),
            again=ran.total() - len(ran),
            unknown=sum(line.endswith(" unknown") for line in lines),
        )


def _place_of(sending: Sending) -> tuple[int, int]:
    """Return how far a conversation is with what is sent."""
    match sending:
        case ["step", dinner, number]:
            return dinner, number
        case ["other", dinner, number]:
            return dinner, 10 + number
        case _:
            return 0, 0


def _conversation_faults(
    history: Sequence[Message], dinners: int, left: set[int], reference: Sequence[str]
) -> list[str]:
    """Compare every dinner that was not given up with an undisturbed one."""
    starts = {message.id: row for row, message in enumerate(history)}
    begins = [(row, int(match[1])) for id, row in starts.items() if (match := _BEGINS.fullmatch(id))]
    found: list[str] = []
    for dinner in sorted(set(range(1, dinners + 1)) - left):
        start = starts.get(f"{dinner}-q")
        if start is None:
            found.append(f"dinner {dinner} is lost")
            continue
        end = min((row for row, other in begins if other > dinner), default=len(history))
        if any(line.endswith("stop unknown") for line in told(history[start:end])):
            # Its process was lost three times while the turn was to be interrupted.
            continue
        own = [re.sub(rf"\b{dinner}\b", "1", line) for line in told(history[start:end])]
        found += [f"dinner {dinner}: {text}" for text in differences(own, reference)]
    return found
