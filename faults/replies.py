"""Requests and replies are lost between a client and its server: each call still has one effect.

The proxy loses them at chosen pieces of the traffic, and the store goes on by itself. Once it also stays away for
longer than the store waits: then callers are told that the outcome is unknown, and settle it by the same call.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from faults.backends import Backend, Place
from faults.ledger import Violation, compare
from faults.outcome import Control, Outcome, caught
from faults.perform import observe, perform
from faults.plan import Op, Planner, apply, word_of
from faults.proxy import FAULTS, Proxy
from faults.tree import Tree
from faults.worker import Say
from leafward import Message, OutcomeUnknown, Session, StoreError, open_store, user

T = TypeVar("T")

_HOW_OFTEN = 0.6
_HOW_LATE = (0, 0, 0, 1, 2, 4, 8)
_CALLS_AT_ONCE = 8
_WARM_ROUNDS = 3
_WORDS = 60
_WEDGED_AFTER = 30.0


@dataclass
class Tally:
    """What was counted, and what was wrong."""

    calls: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    told: Counter[str] = field(default_factory=Counter[str])
    unknown: int = 0
    settled: int = 0
    committed: int = 0
    violations: list[Violation] = field(default_factory=list[Violation])


def run(backend: Backend, *, calls: int, seed: int, progress: Say) -> Outcome:
    """Make `calls` calls while more than half of them lose bytes on the way, then stay away for a while."""
    with Outcome.of("lost replies", backend.name) as outcome:
        tally = Tally()
        asyncio.run(_lose_many(backend, calls, seed, tally))
        progress(f"{backend.name}: {tally.lost.total()} losses in {calls} calls, {len(tally.violations)} violations")
        twice = asyncio.run(_stay_away(backend, tally))
        progress(f"{backend.name}: {tally.unknown} unknown outcomes, {len(tally.violations)} violations")
        outcome.figures = _figures(tally)
        outcome.violations = [str(violation) for violation in tally.violations]
        outcome.controls = [caught("repeats an unknown append with a new id", twice)]
        if backend.name == "redis":
            outcome.controls.append(asyncio.run(_plain_push(backend)))
    return outcome


async def _lose_many(backend: Backend, calls: int, seed: int, tally: Tally) -> None:
    """Carry out a plan through the proxy, and compare its result as seen without it."""
    rng = random.Random(seed)
    tree = Tree()
    place = backend.fresh()
    ops = Planner(rng).plan(tree, calls)
    async with Proxy(place.url) as proxy:
        async with await _settle(lambda: open_store(proxy.url), tally) as store:
            for op in ops:
                if rng.random() < _HOW_OFTEN:
                    proxy.arm(rng.choice(FAULTS), after=rng.choice(_HOW_LATE))
                await _call(place.session(store), op, tally)
        tally.lost = proxy.done
    async with open_store(place.url) as store:
        words = rng.sample([word_of(wire) for op in ops for wire in op.messages], _WORDS)
        observed = await observe(place.session(store), words=words)
    for op in ops:
        apply(tree, op, ranks=observed.ranks())
    tally.violations += compare(tree, observed)


async def _call(session: Session, op: Op, tally: Tally) -> None:
    tally.calls += 1
    try:
        returned = await _settle(lambda: perform(session, op), tally)
    except TimeoutError:
        tally.violations.append(Violation("every call ends", f"{op.kind} {op.ids()}"))
        return
    if op.kind in ("append", "branch", "batch", "update") and _wires(returned) != list(op.messages):
        tally.violations.append(Violation("the stored message comes back", f"{op.kind} {op.ids()}: {returned}"))


def _wires(returned: object) -> list[object]:
    messages = returned if isinstance(returned, list) else [returned]
    return [message.to_dict() if isinstance(message, Message) else message for message in messages]


async def _settle(step: Callable[[], Awaitable[T]], tally: Tally) -> T:
    async with asyncio.timeout(_WEDGED_AFTER):
        while True:
            try:
                return await step()
            except StoreError as error:
                tally.told[type(error).__name__] += 1


async def _stay_away(backend: Backend, tally: Tally) -> list[str]:
    """Lose the replies to some appends and stay away; return what those who then took new ids have twice."""
    places = [backend.fresh() for _ in range(2 * _CALLS_AT_ONCE)]
    last = user("the last one", id="last")
    async with Proxy(places[0].url) as proxy, open_store(proxy.url) as store:
        sessions = [place.session(store) for place in places]
        for number in range(_WARM_ROUNDS):
            await asyncio.gather(*(session.append_message(user("before", id=f"{number}")) for session in sessions))
        proxy.is_deaf = True
        writing = [asyncio.create_task(session.append_message(last)) for session in sessions]
        # As many as the store has connections are under way; more than a second is not needed for that.
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                for _ in writing:
                    await proxy.swallowed.acquire()
        proxy.is_away = True
        proxy.cut_all()
        results = await asyncio.gather(*writing, return_exceptions=True)
        proxy.is_away = proxy.is_deaf = False
        _judge_errors(results, tally)
        # A store that shares connections sent few of them, and what was not sent is not stored: both have some of each.
        dealt = sorted(range(len(places)), key=lambda one: not isinstance(results[one], OutcomeUnknown))
        careful, careless = dealt[::2], dealt[1::2]
        for session in (sessions[one] for one in careful):
            tally.committed += await session.get_message(last.id) is not None
            tally.settled += 1
            if await session.append_message(last) != last:
                tally.violations.append(Violation("the stored message comes back", "after an unknown outcome"))
        for session in (sessions[one] for one in careless):
            await session.append_message(user(last.text, id="again"))
    found = [await _twice(place, last.text) for place in places]
    tally.violations += [
        Violation("one effect", f"{found[one]} of one append are stored") for one in careful if found[one] != 1
    ]
    return [f"{found[one]} of one append are stored" for one in careless if found[one] != 1]


def _judge_errors(results: Sequence[object], tally: Tally) -> None:
    tally.unknown = sum(isinstance(result, OutcomeUnknown) for result in results)
    others = [result for result in results if not isinstance(result, StoreError)]
    if others:
        tally.violations.append(Violation("an unreachable server is told", f"{others[0]!r}"))
    if not tally.unknown:
        tally.violations.append(Violation("an unknown outcome is told", f"{results[0]!r}"))


async def _twice(place: Place, text: str) -> int:
    async with open_store(place.url) as store:
        return [message.text for message in await place.session(store).get_history()].count(text)


async def _plain_push(backend: Backend) -> Control:
    """Push to a list with the driver as it comes, which repeats what was not answered."""
    import redis.asyncio

    place = backend.fresh()
    async with Proxy(place.url) as proxy:
        url = urlsplit(proxy.url)
        # Retries come with a client made so, not with one made from a URL.
        client = redis.asyncio.Redis(host=url.hostname or "", port=url.port or 0, password=url.password)
        async with client:
            await client.execute_command("PING")
            proxy.arm("reply lost")
            await client.execute_command("RPUSH", place.session_id, "once")
            length = await client.execute_command("LLEN", place.session_id)
    return caught(
        "a plain RPUSH with redis-py's own retries",
        [f"one push, {length} in the list"] if length != 1 else [],
    )


def _figures(tally: Tally) -> dict[str, str]:
    return {
        "calls": f"{tally.calls:,}",
        "losses": f"{tally.lost.total():,} ({', '.join(f'{tally.lost[fault]} {fault}' for fault in FAULTS)})",
        "errors told meanwhile, settled by the same call": ", ".join(
            f"{count} {name}" for name, count in tally.told.most_common()
        )
        or "none: the store went on by itself",
        "appends told `OutcomeUnknown` while the server stayed away": f"{tally.unknown}",
        "of them repeated with the same id": f"{tally.settled}; {tally.committed} had been stored",
    }
