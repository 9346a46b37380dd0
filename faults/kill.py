"""A writer is killed with SIGKILL again and again; nothing it was told is stored may be missing.

One file lives through many kills. Each time the ledger of the dead writer is compared with what the file
holds, then everything without an acknowledgement is done again with the same ids, and compared once more.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from faults.broken import variant
from faults.ledger import Ledger, Violation, compare, judge
from faults.outcome import Control, Outcome
from faults.perform import observe, perform
from faults.plan import APPENDS, BATCHES, MIXED, Kind, Op, Planner, apply, word_of
from faults.tree import Tree
from faults.worker import Pool, Say, WorkerFailed, error_line
from leafward import Session, open_store

Phase = Literal["opening", "writing", "closing"]
_TRIGGER: Mapping[Phase, str] = {"opening": "o", "writing": "a ", "closing": "c"}
_WINDOW: Mapping[Phase, float] = {"opening": 0.030, "writing": 0.015, "closing": 0.010}
_PHASES: Mapping[Phase, int] = {"writing": 80, "opening": 10, "closing": 10}
_LONG_PLAN = 150
_SHORT_PLAN = 4
_KILLS_PER_FILE = 25
_OLD_WORDS_PER_KILL = 20
_PATIENCE = 60.0


async def write_until_killed(job: Mapping[str, Any], say: Say) -> None:
    """Do a plan, saying what begins and what is acknowledged (in the writer's process)."""
    ops = [Op.from_json(data) for data in job["ops"]]
    say("o")
    try:
        async with open_store(job["url"]) as store:
            session = variant(job["variant"], Session(store, "torture", user_id="kill"))
            for number, op in enumerate(ops):
                say(f"i {number}")
                await perform(session, op, on_member=lambda member, of=number: say(f"m {of} {member}"))
                say(f"a {number}")
            say("c")
    except Exception as error:
        say(error_line(error))
        raise
    say("d")
    await asyncio.Event().wait()


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
    files: int = 0
    largest: int = 0
    idle: int = 0
    violations: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a run of kills is done; the controls change one thing each."""

    kills: int
    seed: int
    variant: str = "honest"
    weights: Mapping[Kind, int] = field(default_factory=lambda: MIXED)
    fresh_ids: bool = False
    """Retry with new ids, as a caller without idempotency keys would."""
    stop_at_first: bool = False


def run(*, kills: int, seed: int, progress: Callable[[str], None], control_kills: int = 60) -> Outcome:
    """Kill a writer `kills` times, then run the controls, each for at most `control_kills`."""
    started = time.monotonic()
    outcome = Outcome(
        "kill",
        "After SIGKILL every acknowledged message is there, exact, in its place and found by search; "
        "a retry with the same ids stores nothing twice.",
    )
    tally = asyncio.run(_kill_many(Setting(kills=kills, seed=seed), progress))
    outcome.figures = _figures(tally)
    outcome.violations = tally.violations
    honest = Setting(kills=control_kills, seed=seed + 1, stop_at_first=True)
    outcome.controls = [
        _control(
            "acknowledges an append before it is written",
            replace(honest, variant="acks-early", weights=APPENDS),
            expected="nothing acknowledged is lost",
        ),
        _control(
            "stores a batch message by message",
            replace(honest, variant="tears-batches", weights=BATCHES),
            expected="whole or absent",
        ),
        _control(
            "retries with new ids",
            replace(honest, fresh_ids=True, weights=APPENDS),
            expected="nothing unasked is stored",
        ),
    ]
    outcome.seconds = time.monotonic() - started
    return outcome


def _control(name: str, setting: Setting, *, expected: str) -> Control:
    tally = asyncio.run(_kill_many(setting, lambda _line: None))
    caught = [text for text in tally.violations if expected in text]
    if caught:
        detail = f"caught at kill {tally.kills}: {caught[0].partition(': ')[2][:160]}"
    else:
        detail = f"not caught in {tally.kills} kills; other findings: {tally.violations[:1]}"
    return Control(name=name, caught=bool(caught), detail=detail)


async def _kill_many(setting: Setting, progress: Callable[[str], None]) -> Tally:
    tally = Tally()
    rng = random.Random(setting.seed)
    with Pool() as pool, TemporaryDirectory(prefix="faults-") as directory:
        while tally.kills < setting.kills:
            tally.files += 1
            file = _File(Path(directory) / f"kill-{tally.files}.db", setting, tally, rng)
            kills = min(_KILLS_PER_FILE, setting.kills - tally.kills)
            healthy = await file.live_through(kills, pool)
            progress(
                f"kill: {tally.kills}/{setting.kills} kills, {tally.acked_messages} messages acknowledged, "
                f"{len(tally.violations)} violations"
            )
            if not healthy and setting.stop_at_first:
                break
    return tally


class _File:
    """One database file, and the model of what it must hold."""

    def __init__(self, path: Path, setting: Setting, tally: Tally, rng: random.Random) -> None:
        self._path = path
        self._url = f"sqlite:///{path}"
        self._setting = setting
        self._tally = tally
        self._rng = rng
        self._planner = Planner(rng, setting.weights)
        self._tree = Tree()
        # A reader that stays open sees the deaths of others; one that reopens recovers the file itself.
        self._stays_open = tally.files % 2 == 0
        self._readers = AsyncExitStack()
        self._session: Session | None = None

    async def live_through(self, kills: int, pool: Pool) -> bool:
        """Kill a writer `kills` times; False when a promise was broken, after which the file is given up."""
        try:
            for _ in range(kills):
                violations = await self._one_kill(pool)
                if violations:
                    return False
            return not await self._final_check()
        finally:
            await self._readers.aclose()

    async def _one_kill(self, pool: Pool) -> list[Violation]:
        phase = self._rng.choices(list(_PHASES), list(_PHASES.values()))[0]
        ops = self._planner.plan(self._tree, _SHORT_PLAN if phase == "closing" else _LONG_PLAN)
        delay = self._rng.uniform(0, _WINDOW[phase])
        lines = await asyncio.to_thread(self._write_and_kill, pool, ops, phase, delay)
        ledger = Ledger.read(ops, lines)
        self._count(ledger, phase, finished="d" in lines)
        async with asyncio.timeout(_PATIENCE):
            violations = await self._judge_and_retry(ledger)
        self._note(violations)
        return violations

    def _write_and_kill(self, pool: Pool, ops: list[Op], phase: Phase, delay: float) -> list[str]:
        job = {
            "do": "kill",
            "url": self._url,
            "variant": self._setting.variant,
            "ops": [op.to_json() for op in ops],
        }
        deadline = time.monotonic() + _PATIENCE
        with pool.take() as worker:
            worker.send(job)
            try:
                worker.wait_for(_TRIGGER[phase], deadline=deadline)
            except WorkerFailed as error:
                worker.kill()
                return [*worker.said, error_line(error)]
            time.sleep(delay)
            worker.kill()
            return worker.said

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
        """Search for every word the file ever held, and let SQLite check its own pages."""
        async with self._reader() as session:
            words = [word_of(wire) for wire in self._tree.wires.values()] + self._tree.gone
            self._tally.searches += len(words)
            violations = compare(self._tree, await observe(session, words=words))
        await self._readers.aclose()
        answer = await asyncio.to_thread(_integrity, self._path)
        if answer != "ok":
            violations.append(Violation("the file is sound", answer))
        self._tally.largest = max(self._tally.largest, len(self._tree.wires))
        self._note(violations)
        return violations

    def _words_of(self, ledger: Ledger) -> list[str]:
        """Return the words of this plan, those it took away, and some old ones."""
        begun = ledger.ops[: ledger.begun]
        words = {word_of(wire) for op in begun for wire in op.messages}
        touched = {message_id for op in begun for message_id in (*op.targets, *op.ids())}
        words |= {word_of(self._tree.wires[message_id]) for message_id in touched & self._tree.wires.keys()}
        old = [word_of(wire) for wire in self._tree.wires.values()] + self._tree.gone
        words |= set(self._rng.sample(old, min(_OLD_WORDS_PER_KILL, len(old))))
        return sorted(words)

    def _reader(self) -> _Reader:
        return _Reader(self)

    async def open_session(self) -> Session:
        """Return the session to judge by, opening the file unless it stayed open."""
        if self._session is None:
            store = await self._readers.enter_async_context(open_store(self._url))
            self._session = Session(store, "torture", user_id="kill")
        return self._session

    async def release(self) -> None:
        """Close the file unless it is to stay open."""
        if not self._stays_open:
            await self._readers.aclose()
            self._session = None

    def _count(self, ledger: Ledger, phase: Phase, *, finished: bool) -> None:
        tally = self._tally
        tally.kills += 1
        tally.phases[phase] += 1
        tally.acked_ops += ledger.acked
        tally.acked_messages += ledger.acked_messages()
        tally.open_ops += ledger.open_op is not None
        tally.idle += finished

    def _note(self, violations: list[Violation]) -> None:
        # An error names its file; where this run kept it is of no use to a reader.
        texts = [str(violation).replace(f"{self._path.parent}/", "") for violation in violations]
        self._tally.violations += [f"kill {self._tally.kills}: {text}" for text in texts]


class _Reader:
    """The session that judges, open for the length of the context or for the life of its file."""

    def __init__(self, file: _File) -> None:
        self._file = file

    async def __aenter__(self) -> Session:
        return await self._file.open_session()

    async def __aexit__(self, *_error: object) -> None:
        await self._file.release()


def _last_append(ledger: Ledger, tree: Tree) -> list[Op]:
    """Return the newest acknowledged append that still stands: doing it again must change nothing."""
    for op in reversed(ledger.acked_ops()):
        if op.kind in ("append", "batch") and all(message_id in tree.wires for message_id in op.ids()):
            return [op]
    return []


def _with_fresh_ids(op: Op) -> Op:
    return replace(op, messages=tuple(wire | {"id": f"{wire['id']}-again"} for wire in op.messages))


def _integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def _figures(tally: Tally) -> dict[str, str]:
    phases = ", ".join(f"{count} while {phase}" for phase, count in tally.phases.most_common())
    return {
        "kills": f"{tally.kills} ({phases})",
        "operations acknowledged": f"{tally.acked_ops:,}",
        "messages acknowledged": f"{tally.acked_messages:,}",
        "operations open at the kill": f"{tally.open_ops:,}; {tally.committed_unacked:,} found committed",
        "operations done again with the same ids": f"{tally.retries:,}",
        "searches for one word": f"{tally.searches:,}",
        "files": f"{tally.files}, up to {tally.largest:,} messages in one",
        "kills that came after the plan was done": f"{tally.idle}",
    }
