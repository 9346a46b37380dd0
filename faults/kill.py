"""A writer, or the server it writes to, is killed again and again; nothing acknowledged may be missing.

One session lives through many kills. Each time the ledger of the writer is compared with what the session holds,
then everything without an acknowledgement is done again with the same ids, and compared once more. A writer whose
server is killed goes on by itself: it repeats what it was told failed, and nothing else.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Literal

from faults.backends import Backend, open_backend
from faults.ledger import Ledger, Violation, compare, judge
from faults.outcome import Control, Outcome
from faults.perform import observe, perform
from faults.plan import APPENDS, BATCHES, MIXED, Kind, Op, Planner, apply, word_of
from faults.tree import Tree
from faults.worker import Pool, Say, Worker, WorkerFailed, error_line
from leafward import Session, open_store

Phase = Literal["opening", "writing", "closing"]
_TRIGGER: Mapping[Phase, str] = {"opening": "o", "writing": "a ", "closing": "c"}
_WINDOW: Mapping[Phase, float] = {"opening": 0.030, "writing": 0.015, "closing": 0.010}
_PHASES: Mapping[str, Mapping[Phase, int]] = {
    "writer": {"writing": 80, "opening": 10, "closing": 10},
    "server": {"writing": 90, "opening": 10},
}
_PLAN: Mapping[str, int] = {"writer": 150, "server": 50}
_SHORT_PLAN = 4
_KILLS_PER_SESSION = 25
_WORDS_PER_KILL = 40
_OLD_WORDS_PER_KILL = 20
_WORDS_AT_THE_END = 400
_PATIENCE = 60.0

LOSES: Mapping[str, str] = {
    "postgres": "synchronous_commit = off",
    "mariadb": "innodb-flush-log-at-trx-commit = 0",
    "redis": "appendonly no",
}
"""Settings with which a server acknowledges what a crash takes away."""


@dataclass
class Tally:
    """What was counted over all kills."""

    kills: int = 0
    phases: Counter[str] = field(default_factory=Counter[str])
    acked_ops: int = 0
    acked_messages: int = 0
    open_ops: int = 0
    committed_unacked: int = 0
    retries: int = 0
    searches: int = 0
    sessions: int = 0
    largest: int = 0
    idle: int = 0
    told: Counter[str] = field(default_factory=Counter[str])
    """Errors that writers were told, and settled by doing the same again."""
    violations: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a run of kills is done; the controls change one thing each."""

    kills: int
    seed: int
    victim: Literal["writer", "server"] = "writer"
    variant: str = "honest"
    weights: Mapping[Kind, int] = field(default_factory=lambda: MIXED)
    fresh_ids: bool = False
    """Retry with new ids, as a caller without idempotency keys would."""
    stop_at_first: bool = False


def run(backend: Backend, *, kills: int, seed: int, progress: Say, control_kills: int = 60) -> Outcome:
    """Kill a writer `kills` times, then run the controls, each for at most `control_kills`; for 0 there are none."""
    honest = Setting(kills=control_kills, seed=seed + 1, stop_at_first=True)
    with Outcome.of("kill", backend.name) as outcome:
        tally = asyncio.run(_kill_many(backend, Setting(kills=kills, seed=seed), progress))
        outcome.figures = _figures(tally)
        outcome.violations = tally.violations
        if not control_kills:
            return outcome
        outcome.controls = [
            _control(
                "acknowledges an append before it is written",
                backend,
                replace(honest, variant="acks-early", weights=APPENDS),
                expected="nothing acknowledged is lost",
            ),
            _control(
                "stores a batch message by message",
                backend,
                replace(honest, variant="tears-batches", weights=BATCHES),
                expected="whole or absent",
            ),
            _control(
                "retries with new ids",
                backend,
                replace(honest, fresh_ids=True, weights=APPENDS),
                expected="nothing unasked is stored",
            ),
        ]
    return outcome


def run_server(backend: Backend, *, kills: int, seed: int, progress: Say, control_kills: int = 60) -> Outcome:
    """Kill the server `kills` times, then do the same to one that does not wait for its disk."""
    setting = Setting(kills=kills, seed=seed, victim="server")
    with Outcome.of("server kill", backend.name) as outcome:
        tally = asyncio.run(_kill_many(backend, setting, progress))
        outcome.figures = _figures(tally) | {
            "errors told to the writer, settled by the same call": ", ".join(
                f"{count} {name}" for name, count in tally.told.most_common()
            )
            or "none: the store went on by itself",
        }
        outcome.violations = tally.violations
        with open_backend(backend.name, settings=[LOSES[backend.name]]) as careless:
            asyncio.run(_settle_tables(careless))
            control = replace(setting, kills=control_kills, seed=seed + 1, stop_at_first=True, weights=APPENDS)
            name = f"`{LOSES[backend.name]}`"
            outcome.controls = [_control(name, careless, control, expected="nothing acknowledged is lost")]
    return outcome


async def _settle_tables(backend: Backend) -> None:
    """Have the tables on disk, so that only messages can be lost."""
    async with open_store(backend.fresh().url):
        pass
    if backend.server is not None:
        await asyncio.to_thread(backend.server.stop)
        await asyncio.to_thread(backend.server.start)


def _control(name: str, backend: Backend, setting: Setting, *, expected: str) -> Control:
    tally = asyncio.run(_kill_many(backend, setting, lambda _line: None))
    caught = [text for text in tally.violations if expected in text]
    if caught:
        detail = f"caught at kill {tally.kills}: {caught[0].partition(': ')[2][:160]}"
    else:
        detail = f"not caught in {tally.kills} kills; other findings: {tally.violations[:1]}"
    return Control(name=name, caught=bool(caught), detail=detail)


async def _kill_many(backend: Backend, setting: Setting, progress: Say) -> Tally:
    tally = Tally()
    rng = random.Random(setting.seed)
    with Pool(*backend.modules) as pool:
        while tally.kills < setting.kills:
            tally.sessions += 1
            life = _Life(backend, setting, tally, rng)
            healthy = await life.live_through(min(_KILLS_PER_SESSION, setting.kills - tally.kills), pool)
            progress(
                f"{backend.name}: {tally.kills}/{setting.kills} kills of the {setting.victim}, "
                f"{tally.acked_messages} messages acknowledged, {len(tally.violations)} violations"
            )
            if not healthy and setting.stop_at_first:
                break
    return tally


class _Life:
    """One session that lives through many kills, and the model of what it must hold."""

    def __init__(self, backend: Backend, setting: Setting, tally: Tally, rng: random.Random) -> None:
        self._backend = backend
        self._place = backend.fresh()
        self._setting = setting
        self._tally = tally
        self._rng = rng
        self._planner = Planner(rng, setting.weights)
        self._tree = Tree()
        # A reader that stays open sees the deaths of others; one that reopens recovers the store itself.
        self._stays_open = tally.sessions % 2 == 0
        self._readers = AsyncExitStack()
        self._session: Session | None = None

    async def live_through(self, kills: int, pool: Pool) -> bool:
        """Kill `kills` times; False when a promise was broken, after which the session is given up."""
        try:
            for _ in range(kills):
                violations = await self._one_kill(pool)
                if violations:
                    return False
            return not await self._final_check()
        finally:
            await self._readers.aclose()

    async def _one_kill(self, pool: Pool) -> list[Violation]:
        phases = _PHASES[self._setting.victim]
        phase = self._rng.choices(list(phases), list(phases.values()))[0]
        ops = self._planner.plan(self._tree, _SHORT_PLAN if phase == "closing" else _PLAN[self._setting.victim])
        delay = self._rng.uniform(0, _WINDOW[phase])
        lines = await asyncio.to_thread(self._write_and_kill, pool, ops, phase, delay)
        ledger = Ledger.read(ops, lines)
        self._count(ledger, phase, lines)
        async with asyncio.timeout(_PATIENCE):
            violations = await self._judge_and_retry(ledger)
        self._note(violations)
        return violations

    def _write_and_kill(self, pool: Pool, ops: list[Op], phase: Phase, delay: float) -> list[str]:
        job = self._place.job(
            "kill",
            variant=self._setting.variant,
            settles=self._setting.victim == "server",
            ops=[op.to_json() for op in ops],
        )
        deadline = time.monotonic() + _PATIENCE
        with pool.take() as worker:
            worker.send(job)
            try:
                worker.wait_for(_TRIGGER[phase], deadline=deadline)
            except WorkerFailed as error:
                worker.kill()
                return [*worker.said, error_line(error)]
            time.sleep(delay)
            return self._kill(worker, deadline)

    def _kill(self, worker: Worker, deadline: float) -> list[str]:
        server = self._backend.server
        if self._setting.victim == "writer" or server is None:
            worker.kill()
            return worker.said
        server.kill()
        self._tally.idle += "d" in worker.heard()
        server.start()
        return worker.finish(deadline=deadline)

    async def _judge_and_retry(self, ledger: Ledger) -> list[Violation]:
        async with self._reader() as session:
            words = self._words_of(ledger)
            self._tally.searches += len(words)
            judgement = judge(self._tree, ledger, await observe(session, words=words))
            self._tally.committed_unacked += judgement.committed
            self._tree = judgement.tree
            if judgement.violations:
                return judgement.violations
            if self._setting.fresh_ids:
                return await self._retry_with_fresh_ids(session, ledger, committed=judgement.committed)
            return await self._retry(session, ledger)

    async def _retry(self, session: Session, ledger: Ledger) -> list[Violation]:
        """Do again what has no acknowledgement, and for good measure something that has one."""
        again = _last_append(ledger, self._tree)
        if ledger.open_op is not None:
            again.append(ledger.open_op)
        for op in again:
            self._tally.retries += 1
            await perform(session, op)
        words = [word_of(wire) for op in again for wire in op.messages]
        observed = await observe(session, words=words)
        for op in again:
            apply(self._tree, op, ranks=observed.ranks())
        return compare(self._tree, observed)

    async def _retry_with_fresh_ids(self, session: Session, ledger: Ledger, *, committed: bool) -> list[Violation]:
        """Do the open operation again under new ids, though it may have been stored already."""
        if ledger.open_op is None:
            return []
        op = _with_fresh_ids(ledger.open_op)
        await perform(session, op)
        if not committed:
            apply(self._tree, op)
        return compare(self._tree, await observe(session, words=[word_of(wire) for wire in op.messages]))

    async def _final_check(self) -> list[Violation]:
        """Search for words of all times, and let the backend check itself."""
        async with self._reader() as session:
            every = [word_of(wire) for wire in self._tree.wires.values()] + self._tree.gone
            words = self._some(every, _WORDS_AT_THE_END)
            self._tally.searches += len(words)
            violations = compare(self._tree, await observe(session, words=words))
        await self._readers.aclose()
        damage = await asyncio.to_thread(self._backend.damage, self._place)
        if damage is not None:
            violations.append(Violation("the file is sound", damage))
        self._tally.largest = max(self._tally.largest, len(self._tree.wires))
        self._note(violations)
        return violations

    def _words_of(self, ledger: Ledger) -> list[str]:
        """Return words of this plan, of what it took away, and some old ones."""
        begun = ledger.ops[: ledger.begun]
        words = {word_of(wire) for op in begun for wire in op.messages}
        touched = {message_id for op in begun for message_id in (*op.targets, *op.ids())}
        words |= {word_of(self._tree.wires[message_id]) for message_id in touched & self._tree.wires.keys()}
        old = [word_of(wire) for wire in self._tree.wires.values()] + self._tree.gone
        return sorted({*self._some(sorted(words), _WORDS_PER_KILL), *self._some(old, _OLD_WORDS_PER_KILL)})

    def _some(self, words: list[str], most: int) -> list[str]:
        return self._rng.sample(words, min(most, len(words)))

    def _reader(self) -> _Reader:
        return _Reader(self)

    async def open_session(self) -> Session:
        """Return the session to judge by, opening the store unless it stayed open."""
        if self._session is None:
            store = await self._readers.enter_async_context(open_store(self._place.url))
            self._session = self._place.session(store)
        return self._session

    async def release(self) -> None:
        """Close the store unless it is to stay open."""
        if not self._stays_open:
            await self._readers.aclose()
            self._session = None

    def _count(self, ledger: Ledger, phase: Phase, lines: list[str]) -> None:
        tally = self._tally
        tally.kills += 1
        tally.phases[phase] += 1
        tally.acked_ops += ledger.acked
        tally.acked_messages += ledger.acked_messages()
        tally.open_ops += ledger.open_op is not None
        tally.idle += self._setting.victim == "writer" and "d" in lines
        tally.told.update(line[2:] for line in lines if line.startswith("u "))

    def _note(self, violations: list[Violation]) -> None:
        # An error names its store; where this run kept it is of no use to a reader.
        texts = [str(violation).replace(self._place.url, "the store") for violation in violations]
        self._tally.violations += [f"kill {self._tally.kills}: {text}" for text in texts]


class _Reader:
    """The session that judges, open for the length of the context or for the life of its session."""

    def __init__(self, life: _Life) -> None:
        self._life = life

    async def __aenter__(self) -> Session:
        return await self._life.open_session()

    async def __aexit__(self, *_error: object) -> None:
        await self._life.release()


def _last_append(ledger: Ledger, tree: Tree) -> list[Op]:
    """Return the newest acknowledged append that still stands: doing it again must change nothing."""
    for op in reversed(ledger.acked_ops()):
        if op.kind in ("append", "batch") and all(message_id in tree.wires for message_id in op.ids()):
            return [op]
    return []


def _with_fresh_ids(op: Op) -> Op:
    return replace(op, messages=tuple(wire | {"id": f"{wire['id']}-again"} for wire in op.messages))


def _figures(tally: Tally) -> dict[str, str]:
    phases = ", ".join(f"{count} while {phase}" for phase, count in tally.phases.most_common())
    return {
        "kills": f"{tally.kills} ({phases})",
        "operations acknowledged": f"{tally.acked_ops:,}",
        "messages acknowledged": f"{tally.acked_messages:,}",
        "operations open at the kill": f"{tally.open_ops:,}; {tally.committed_unacked:,} found committed",
        "operations done again with the same ids": f"{tally.retries:,}",
        "searches for one word": f"{tally.searches:,}",
        "sessions": f"{tally.sessions}, up to {tally.largest:,} messages in one",
        "kills that came after the plan was done": f"{tally.idle}",
    }
