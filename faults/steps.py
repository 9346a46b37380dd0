"""The writer of an agent's steps is killed again and again; each step is stored as a whole, or not at all.

A step is one commit: messages below the last one, two attached states and the usage of a model. After each kill the
newest stored message says which step was last, and states and usage must be those of that step. Then the last step is
done again with the same ids, which changes nothing, and the next writer goes on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from faults.backends import Backend, Place
from faults.outcome import Control, Outcome, caught
from faults.worker import Pool, Say, Worker
from leafward import LeafwardError, Message, Session, SessionManager, open_store, user
from leafward.core.attached_state import attach
from leafward.core.ids import Scope
from leafward.core.parent import LATEST_LEAF
from leafward.sessions.session import draft_of
from leafward.stores import DEFAULT_MAX_MESSAGE_BYTES, Store, Usage

_WINDOW_S = 0.02
_PATIENCE_S = 60.0
_PER_PLACE = 20
"""Kills that one session lives through."""
_LEASE_S = 0.4
"""How long the lease of a writer that was killed is waited for."""


class Step(NamedTuple):
    """What one commit holds, made of its number alone."""

    messages: list[Message]
    states: dict[str, dict[str, Any]]
    usage: Usage

    @classmethod
    def of(cls, number: int) -> Step:
        """Return the step of a number; the first is 1."""
        messages = [user("word " * (number % 7), id=f"{number}-{part}") for part in range(1 + number % 3)]
        # Every second usage has a name of its own; the others count with their messages.
        named = f"usage {number}" if number % 2 else None
        fourth = number - number % 4
        states = {"step": {"n": number}, "every fourth": {"n": fourth, "text": "语" * (fourth % 4000)}}
        return cls(messages, states, Usage(number, 1, 0.5, usage_id=named))


async def write_until_killed(job: Mapping[str, Any], say: Say) -> None:
    """Write one step after the other, from where the session stands."""
    async with open_store(job["url"]) as store:
        say("o")
        if job["leased"]:
            async with store.leases.acquire(job["session"], ttl=_LEASE_S) as lease:
                await _write(store.fenced(lease), job, say)
        else:
            await _write(store, job, say)


async def _write(store: Store, job: Mapping[str, Any], say: Say) -> None:
    number: int = job["from"]
    while True:
        number += 1
        if job["variant"] == "acks-early":
            say(f"a {number}")
        await _do(store, job["session"], number, splits=job["variant"] == "splits")
        if job["variant"] != "acks-early":
            say(f"a {number}")


async def _do(store: Store, session_id: str, number: int, *, splits: bool = False) -> None:
    """Store a step; every third names the message it goes below, as an agent does."""
    session = Session(store, session_id)
    step = Step.of(number)
    drafts = [draft_of(session, message) for message in step.messages]
    state = [attach(name, value, largest=DEFAULT_MAX_MESSAGE_BYTES) for name, value in step.states.items()]
    parent = LATEST_LEAF if number == 1 or number % 3 else Step.of(number - 1).messages[-1].id
    scope = Scope.of(session_id)
    if splits:
        # As one does who has a call for each.
        await store.messages.append(scope, drafts, parent)
        await store.messages.append(scope, [], LATEST_LEAF, state=state)
        await store.registry.add_usage(scope, step.usage)
    else:
        await store.messages.append(scope, drafts, parent, state=state, usage=step.usage)


def run(backend: Backend, *, kills: int, seed: int, progress: Say, control_kills: int = 40) -> Outcome:
    """Kill the writer `kills` times, then writers that are broken on purpose."""
    with Outcome.of("steps", backend.name) as outcome:
        found: Counter[str] = Counter()
        outcome.violations = asyncio.run(_kill_many(backend, kills, seed, "honest", found, progress))
        outcome.figures = {
            "kills": f"{kills}, {found['leased']} of them behind a lease",
            "steps acknowledged": f"{found['acked']:,}",
            "found as acknowledged": f"{found['as acknowledged']}",
            "found with the step that was being written": f"{found['the next']}",
            "last steps done again, with the same ids": f"{found['again']}",
        }
        if not control_kills:
            return outcome
        outcome.controls = [
            _control(
                "writes messages, states and usage in commits of their own", backend, control_kills, seed, "splits"
            ),
            _control("acknowledges a step before it is written", backend, control_kills, seed, "acks-early"),
        ]
    return outcome


def _control(name: str, backend: Backend, kills: int, seed: int, variant: str) -> Control:
    return caught(name, asyncio.run(_kill_many(backend, kills, seed + 1, variant, Counter(), lambda _: None)))


async def _kill_many(
    backend: Backend, kills: int, seed: int, variant: str, found: Counter[str], progress: Say
) -> list[str]:
    rng = random.Random(seed)
    violations: list[str] = []
    place, done, leased = backend.fresh(), 0, False
    with Pool(*backend.modules) as pool:
        for kill in range(kills):
            if kill % _PER_PLACE == 0:
                place, done, leased = backend.fresh(), 0, kill // _PER_PLACE % 3 == 2
            job = place.job("step", variant=variant, leased=leased, **{"from": done})
            with pool.take() as worker:
                acked = max(done, _write_and_kill(worker, job, rng))
            found["acked"] += acked - done
            found["leased"] += leased
            done, wrong = await _look(place, acked, found)
            violations += wrong
            if violations and variant != "honest":
                break
            if kill % 50 == 49:
                progress(f"  {kill + 1} kills of the writer of steps")
    return violations


def _write_and_kill(worker: Worker, job: Mapping[str, Any], rng: random.Random) -> int:
    """Let it write for a moment, kill it, and return the last step that was acknowledged."""
    worker.send(job)
    worker.wait_for("a " if rng.random() < 0.9 else "o", deadline=time.monotonic() + _PATIENCE_S)
    time.sleep(rng.random() * _WINDOW_S)
    worker.kill()
    for line in worker.said:
        if line.startswith("x "):
            raise AssertionError(line)
    return max((int(line[2:]) for line in worker.said if line.startswith("a ")), default=0)


async def _look(place: Place, acked: int, found: Counter[str]) -> tuple[int, list[str]]:
    """Compare what is stored with the steps that may be there; return the number of the last one."""
    try:
        async with open_store(place.url) as store:
            last, wrong = await _judge(store, place, acked)
            if last and not wrong:
                await _do(store, place.session_id, last)
                found["again"] += 1
                _, wrong = await _judge(store, place, last)
    except LeafwardError as error:
        return acked, [f"after step {acked} nothing can be read: {error}"]
    found["as acknowledged" if last == acked else "the next"] += 1
    return last, wrong


async def _judge(store: Store, place: Place, acked: int) -> tuple[int, list[str]]:
    session = place.session(store)
    ids = [message.id for message in await session.get_history()]
    last = int(ids[-1].partition("-")[0]) if ids else 0
    steps = [Step.of(number) for number in range(1, last + 1)]
    info = await SessionManager(store).get(place.session_id)
    used = (0, 0, 0.0) if info is None else (info.input_tokens, info.output_tokens, info.estimated_cost)
    usages = [step.usage for step in steps]
    checks: dict[str, tuple[object, object]] = {
        "messages": (ids, [message.id for step in steps for message in step.messages]),
        "states": (await session.get_states(), steps[-1].states if steps else {}),
        "usage": (used, tuple(sum(numbers) for numbers in zip(*(one[:3] for one in usages), strict=True)) or (0, 0, 0)),
    }
    wrong = [
        f"{what} are not those of step {last}: {seen!r}"[:300] for what, (seen, due) in checks.items() if seen != due
    ]
    if not acked <= last <= acked + 1:
        wrong.append(f"step {acked} was acknowledged, and the last one stored is {last}")
    return last, wrong
