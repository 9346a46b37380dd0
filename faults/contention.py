"""Four writers append to one session, a fifth party listens: one chain, and each change heard once.

They are processes, but in memory they are tasks.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from faults.backends import ON_DISK, Backend, Place
from faults.ledger import Violation
from faults.outcome import Control, Outcome, caught
from faults.worker import Say, Worker, begin_together, error_line
from leafward import Session, open_store, user

_WRITERS = 4
_IDLE_SECONDS = 30.0
_AFTERMATH_SECONDS = 0.5
_SMALLEST_SHARE = 1 / 4
_ENOUGH_TO_SHARE = 50
"""Messages by each; of fewer, who was first says more about the scheduler than about the store."""


async def _wait_for_parent(say: Say) -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)


async def append_many(
    job: Mapping[str, Any], say: Say, *, begin: Callable[[Say], Awaitable[object]] = _wait_for_parent
) -> None:
    """Append messages one after the other and say how long each took (in a writer's process)."""
    times: list[tuple[int, int]] = []
    async with open_store(job["url"]) as store:
        session = Session(store, job["session"])
        await session.get_version()
        await begin(say)
        for number in range(job["count"]):
            message = user(f"writer {job['writer']} says {number}", id=f"{job['writer']}-{number}")
            begun = time.monotonic_ns()
            try:
                await session.append_message(message)
            except Exception as error:
                say(error_line(error))
            else:
                times.append((begun, time.monotonic_ns()))
                if job["live"]:
                    say(f"a {number}")
            # In memory nothing is waited for, and other tasks would not get a turn.
            await asyncio.sleep(0)
    for begun, ended in times:
        say(f"t {begun} {ended}")


async def watch(job: Mapping[str, Any], say: Say) -> None:
    """Listen until all messages were heard and a little longer, then say what came (in its own process)."""
    heard: list[tuple[int, str, list[str]]] = []
    async with open_store(job["url"]) as store:
        changes = aiter(Session(store, job["session"]).subscribe(since=0))
        say("ready")
        count = 0
        while True:
            patience = _IDLE_SECONDS if count < job["count"] else _AFTERMATH_SECONDS
            try:
                change = await asyncio.wait_for(anext(changes), patience)
            except TimeoutError:
                break
            heard.append((change.version, change.kind, list(change.message_ids)))
            count += len(change.message_ids)
    for version, kind, message_ids in heard:
        say(f"h {version} {kind} {' '.join(message_ids)}")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change as the listener heard it."""

    version: int
    kind: str
    message_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that was said and stored in one run."""

    writers: int
    count: int
    history: Sequence[str]
    parents: Mapping[str, str | None]
    path_length: int
    times: Sequence[Sequence[tuple[int, int]]]
    errors: Sequence[str]
    heard: Sequence[Change]
    killed_after: int | None = None
    """How many appends were acknowledged to the first writer when it was killed, if it was."""


def run(backend: Backend, *, count: int, progress: Say) -> Outcome:
    """Let four writers append `count` messages each."""
    with Outcome.of("contention", backend.name) as outcome:
        scene = _play(backend, count)
        progress(f"{backend.name}: {len(scene.history)} messages by {_WRITERS} writers, {len(scene.errors)} errors")
        outcome.figures = _figures(scene)
        outcome.violations = [str(violation) for violation in judge_scene(scene)]
        if backend.name != "memory":
            survived = _play_with_a_death(backend, count)
            progress(f"{backend.name}: one of {_WRITERS} killed, {len(survived.history)} messages stored")
            outcome.figures["longest wait of the others when one of them is killed"] = _longest_wait(survived)
            outcome.violations += [f"one killed: {found}" for found in judge_chain(survived.history, survived)]
            outcome.violations += [f"one killed: {error}" for error in survived.errors]
        outcome.controls = judge_controls(scene)
        if backend.name in ON_DISK:
            outcome.controls.append(_without_lock(backend, count))
    return outcome


def judge_scene(scene: Scene) -> list[Violation]:
    """Return every broken promise of a run."""
    return [
        *(Violation("no errors", error) for error in scene.errors),
        *judge_chain(scene.history, scene),
        *judge_shares(scene.history, scene),
        *judge_heard(scene.heard, scene),
    ]


def judge_chain(history: Sequence[str], scene: Scene) -> list[Violation]:
    """Check that `history` is one chain that holds every message once, each writer's in order."""
    violations: list[Violation] = []
    if scene.path_length != len(history):
        violations.append(Violation("path length agrees", f"{scene.path_length}, history {len(history)}"))
    if len(scene.parents) != len(history):
        violations.append(Violation("one chain", f"{len(scene.parents)} in the tree, {len(history)} in history"))
    for before, message_id in pairwise([None, *history]):
        if scene.parents.get(str(message_id), "nothing") != before:
            violations.append(Violation("one chain", f"{message_id} does not follow {before}"))
            break
    for writer in range(scene.writers):
        found = [message_id for message_id in history if message_id.startswith(f"{writer}-")]
        counts = _counts_allowed(scene, writer)
        if len(found) not in counts or found != [f"{writer}-{number}" for number in range(len(found))]:
            violations.append(Violation("each writer's order", f"writer {writer}: not all there in order"))
    return violations


def _counts_allowed(scene: Scene, writer: int) -> tuple[int, ...]:
    """Return how many messages of a writer may be stored: a killed one may have had one open append."""
    if writer == 0 and scene.killed_after is not None:
        return scene.killed_after, scene.killed_after + 1
    return (scene.count,)


def judge_shares(history: Sequence[str], scene: Scene) -> list[Violation]:
    """Check that nobody was starved while all wrote."""
    together = _while_all_wrote(history)
    shares = Counter(together)
    fair = len(together) / scene.writers
    smallest = min(shares[writer] for writer in range(scene.writers))
    if fair < _ENOUGH_TO_SHARE or smallest >= fair * _SMALLEST_SHARE:
        return []
    return [Violation("nobody is starved", f"{smallest} while all wrote {len(together)}")]


def judge_heard(heard: Sequence[Change], scene: Scene) -> list[Violation]:
    """Check that the listener heard exactly the history, once and in order."""
    violations: list[Violation] = []
    if any(change.kind != "append" for change in heard):
        violations.append(Violation("heard as appended", str(Counter(change.kind for change in heard))))
    if any(later.version <= earlier.version for earlier, later in pairwise(heard)):
        violations.append(Violation("versions grow", "a version came twice or went back"))
    ids = [message_id for change in heard for message_id in change.message_ids]
    if ids != list(scene.history):
        violations.append(
            Violation("each change heard once, in order", f"{len(ids)} heard, {len(scene.history)} stored")
        )
    return violations


def judge_controls(scene: Scene) -> list[Control]:
    """Show the judge the same run with one message dropped, doubled or swapped."""
    middle = len(scene.history) // 2
    history = list(scene.history)
    heard = list(scene.heard)
    spoiled = [
        caught(f"one {thing} {how}", findings)
        for how in _SPOIL
        for thing, findings in (
            ("stored message", judge_chain(_SPOIL[how](history, middle), scene)),
            ("heard change", judge_heard(_SPOIL[how](heard, middle), scene)),
        )
    ]
    return [*spoiled, caught("one writer waits for all others", judge_shares(_starved(history), scene))]


def _starved(history: list[str]) -> list[str]:
    own = [message_id for message_id in history if message_id.startswith("0-")]
    return [*own[:1], *(message_id for message_id in history if not message_id.startswith("0-")), *own[1:]]


def _drop(items: list[Any], place: int) -> list[Any]:
    return items[:place] + items[place + 1 :]


def _double(items: list[Any], place: int) -> list[Any]:
    return items[:place] + items[place : place + 1] + items[place:]


def _swap(items: list[Any], place: int) -> list[Any]:
    return items[:place] + items[place : place + 2][::-1] + items[place + 2 :]


_SPOIL: Mapping[str, Callable[[list[Any], int], list[Any]]] = {
    "dropped": _drop,
    "doubled": _double,
    "swapped": _swap,
}


def _without_lock(backend: Backend, count: int) -> Control:
    scene = _play(backend, count, without_lock=True)
    figures = _figures(scene)
    detail = "; ".join(f"{name}: {figures[name]}" for name in ("errors", "longest wait", "shares while all wrote"))
    return Control(
        name="the writers' file lock switched off",
        caught=bool(judge_scene(scene)),
        detail=f"{detail}; longest run by one writer: {figures['longest run by one writer']}",
        must_fail=False,
    )


def _play(backend: Backend, count: int, *, without_lock: bool = False) -> Scene:
    place = backend.fresh()
    if backend.name == "memory":
        return asyncio.run(_play_tasks(place, count))
    options = (*backend.modules, *(("--without-lock",) if without_lock else ()))
    with ExitStack() as stack:
        asyncio.run(_create(place))
        workers = [stack.enter_context(Worker(*options)) for _ in range(_WRITERS)]
        listener = stack.enter_context(Worker(*backend.modules))
        jobs = [*_writing(place, count), place.job("watch", count=_WRITERS * count)]
        deadline = _deadline(count)
        begin_together([*workers, listener], jobs, deadline=deadline)
        said = [worker.finish(deadline=deadline) for worker in (*workers, listener)]
        return asyncio.run(_read(place, said, count))


def _play_with_a_death(backend: Backend, count: int) -> Scene:
    """Kill the first writer when a third of its appends are acknowledged; nobody listens."""
    place = backend.fresh()
    with ExitStack() as stack:
        asyncio.run(_create(place))
        workers = [stack.enter_context(Worker(*backend.modules)) for _ in range(_WRITERS)]
        deadline = _deadline(count)
        begin_together(workers, _writing(place, count), deadline=deadline)
        workers[0].wait_for(f"a {count // 3}", deadline=deadline)
        workers[0].kill()
        said = [worker.finish(deadline=deadline) for worker in workers]
        acked = sum(line.startswith("a ") for line in said[0])
        return replace(asyncio.run(_read(place, [*said, []], count)), killed_after=acked)


async def _play_tasks(place: Place, count: int) -> Scene:
    said: list[list[str]] = [[] for _ in range(_WRITERS + 1)]
    barrier = asyncio.Barrier(_WRITERS)
    await asyncio.gather(
        *(
            append_many(job, lines.append, begin=lambda _say: barrier.wait())
            for job, lines in zip(_writing(place, count), said[:-1], strict=True)
        ),
        watch(place.job("watch", count=_WRITERS * count), said[-1].append),
    )
    return await _read(place, said, count)


def _writing(place: Place, count: int) -> list[dict[str, Any]]:
    return [place.job("append", writer=writer, count=count, live=writer == 0) for writer in range(_WRITERS)]


def _deadline(count: int) -> float:
    return time.monotonic() + 120 + count * _WRITERS / 20


async def _create(place: Place) -> None:
    async with open_store(place.url):
        pass


async def _read(place: Place, said: list[list[str]], count: int) -> Scene:
    *writers, listener = [[line.split(" ") for line in lines] for lines in said]
    async with open_store(place.url) as store:
        session = place.session(store)
        history = await session.get_history()
        tree = await session.get_tree()
        return Scene(
            writers=_WRITERS,
            count=count,
            history=[message.id for message in history],
            parents={node.id: node.parent_id for node in tree},
            path_length=await session.get_path_length(),
            times=[[(int(line[1]), int(line[2])) for line in lines if line[0] == "t"] for lines in writers],
            errors=[" ".join(line[1:]) for lines in (*writers, listener) for line in lines if line[0] == "x"],
            heard=[
                Change(version=int(line[1]), kind=line[2], message_ids=tuple(line[3:]))
                for line in listener
                if line[0] == "h"
            ],
        )


def _figures(scene: Scene) -> dict[str, str]:
    waits = sorted(ended - begun for times in scene.times for begun, ended in times)
    if not waits:
        return dict.fromkeys(
            ("errors", "longest wait", "shares while all wrote", "longest run by one writer"),
            "no append succeeded",
        )
    spans = [time for times in scene.times for pair in times for time in pair]
    together = _while_all_wrote(scene.history)
    shares = Counter(together)
    shown = " : ".join(str(shares[writer]) for writer in range(scene.writers))
    runs = [len(list(group)) for _, group in groupby(together)]
    return {
        "appends": f"{scene.writers} writers × {scene.count:,} to one session",
        "errors": f"{len(scene.errors)}",
        "appends per second, all together": f"{len(waits) / ((max(spans) - min(spans)) / 1e9):,.0f}",
        "middle wait": f"{waits[len(waits) // 2] / 1e6:.1f} ms",
        "99 % waited at most": f"{waits[len(waits) * 99 // 100] / 1e6:.1f} ms",
        "longest wait": _longest_wait(scene),
        "shares while all wrote": shown if together else "they never wrote all at once",
        "longest run by one writer": f"{max(runs, default=scene.count)}",
        "changes heard by the listener": f"{len(scene.heard):,}",
    }


def _longest_wait(scene: Scene) -> str:
    waits = [ended - begun for times in scene.times for begun, ended in times]
    return f"{max(waits, default=0) / 1e6:.1f} ms"


def _while_all_wrote(history: Sequence[str]) -> list[int]:
    """Return who wrote each message between the last writer's first and the first writer's last."""
    order = [int(message_id.partition("-")[0]) for message_id in history]
    first = max((order.index(writer) for writer in set(order)), default=0)
    last = min((len(order) - 1 - order[::-1].index(writer) for writer in set(order)), default=-1)
    return order[first : last + 1]
