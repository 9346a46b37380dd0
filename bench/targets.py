"""The targets, and whether the run met them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backends.arena import SERVERS
from backends.steps import FOUND, HEAD, HOLD, SEND, SET, STEP
from tables import times
from turns.costs import TABLE as COSTS

Facts = Mapping[str, float]


@dataclass(frozen=True)
class Target:
    """One promise: the fact it is judged by, how that is written, and the bound."""

    workload: str
    promise: str
    fact: str
    met: Callable[[float], bool]
    text: Callable[[float], str]


def _at_most(bound: float) -> Callable[[float], bool]:
    return lambda value: value <= bound


def _at_least(bound: float) -> Callable[[float], bool]:
    return lambda value: value >= bound


def _plain(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:,.2f}{unit}" if value % 1 else f"{value:,.0f}{unit}"


# Rounds differ by this much on a quiet machine, so a smaller change with N is no growth.
FLAT = 0.05
EVEN = 1.25


def _on_server(kind: str) -> tuple[Target, ...]:
    return (
        Target(
            kind,
            "must: append at most 1.3x one call of the driver, at every N",
            f"{kind} append ratio",
            _at_most(1.3),
            times,
        ),
        Target(kind, "the same of a batch", f"{kind} batch ratio", _at_most(1.3), times),
        Target(
            kind,
            f"an append at the largest N costs what it costs at 100: at most {EVEN}x",
            f"{kind} append long over short",
            _at_most(EVEN),
            times,
        ),
        Target(kind, "an append is one round trip", f"{kind} append trips", _at_most(1), _plain("")),
        Target(
            kind, "full history at most 1.15x the driver's, at every N", f"{kind} history ratio", _at_most(1.15), times
        ),
        Target(
            kind, "a history is one round trip per 1,000 messages", f"{kind} history trips", _at_most(1), _plain("")
        ),
        Target(
            kind,
            "32 sessions at once: at least 0.7x of the driver's rate",
            f"{kind} at once ratio",
            _at_least(0.7),
            times,
        ),
    )


def _of_states(kind: str) -> tuple[Target, ...]:
    return (
        Target(
            kind, "ours: save a state of 100 KB at most 2x the driver", f"{kind} state save ratio", _at_most(2), times
        ),
        Target(kind, "ours: get it at most 1.5x the driver", f"{kind} state get ratio", _at_most(1.5), times),
        Target(
            kind,
            "ours: a list with one more item at most 2x reading, encoding, comparing and one row by the driver",
            f"{kind} list ratio",
            _at_most(2),
            times,
        ),
        Target(
            kind,
            "one more item sends the bytes to a long list that it sends to a short one, but for their numbers",
            f"{kind} list bytes",
            _at_most(64),
            _plain(" more"),
        ),
    )


def _of_turns(kind: str) -> tuple[Target, ...]:
    call, first, more = COSTS[kind]
    what = "round trips" if kind in SERVERS else "flushes"
    return (
        Target("turns", f"{kind}: a call is {call} {what}", f"turns {kind} call", _at_most(call), _plain("")),
        Target("turns", f"{kind}: a session's first is {first}", f"turns {kind} first", _at_most(first), _plain("")),
        Target("turns", f"{kind}: a round of tools is {more} more", f"turns {kind} round", _at_most(more), _plain("")),
    )


def _of_agents(kind: str) -> tuple[Target, ...]:
    bounds = {
        STEP: (1.15, "an append with two states and usage at most 1.15x the same append without, at every N"),
        HEAD: (1.3, "the head of a session at most 1.3x `messages.get` of one id, at every N"),
        SET: (EVEN, "flat: set_state in a session of many states costs what it costs in one without"),
        FOUND: (EVEN, "flat: so does get_state"),
        SEND: (3, "a text sent to the holder and received: at most 3x one label and one get"),
        HOLD: (2.5, "acquire and release at most 2.5x one append"),
    }
    return tuple(
        Target(kind, promise, f"{kind} agent {what}", _at_most(bound), times)
        for what, (bound, promise) in bounds.items()
    )


TARGETS = (
    Target("W1", "must: append at most 1.6x raw", "append ratio", _at_most(1.6), times),
    Target("W1", "aim: append at most 1.3x raw", "append ratio", _at_most(1.3), times),
    Target("W1", "ours: at most 1.6x raw behind a bare thread hop", "append over a hop", _at_most(1.6), times),
    Target("W1", "must, at every N: at most 1.6x raw", "append worst ratio", _at_most(1.6), times),
    Target("W1", f"flat from N = 100 on: growth at most {FLAT}", "append growth", _at_most(FLAT), _plain("")),
    Target(
        "W1",
        f"flat: ratio at the largest N over that at 100, at most {EVEN}x",
        "append last to first",
        _at_most(EVEN),
        times,
    ),
    Target("W1", "at most 0.7x of the best durable peer, at every N", "append to best peer", _at_most(0.7), times),
    Target("W1", "must: 8 tasks at least 1.6x the raw rate", "together ratio", _at_least(1.6), times),
    Target("W1", "aim: 8 tasks at least 3x the raw rate", "together ratio", _at_least(3), times),
    Target(
        "W1c",
        "with `compact_after`, what it costs without: at most 1.1x",
        "compacting append ratio",
        _at_most(1.1),
        times,
    ),
    Target(
        "W1c",
        f"an append at the largest N costs what it costs at 100: at most {EVEN}x",
        "compacting long over short",
        _at_most(EVEN),
        times,
    ),
    Target(
        "W1c",
        f"also with the compactions counted in: at most {EVEN}x",
        "compacted mean long over short",
        _at_most(EVEN),
        times,
    ),
    Target("W2", "full history at most 1.15x raw, at every N", "history ratio", _at_most(1.15), times),
    Target(
        "W2c",
        f"a compacted history costs its window: at most {EVEN}x, one summary",
        "compacted history ratio",
        _at_most(EVEN),
        times,
    ),
    Target(
        "W2c",
        f"the same, whatever the number of summaries: at most {EVEN}x",
        "compacted history worst ratio",
        _at_most(EVEN),
        times,
    ),
    Target("W3", "cold resume at most 1.3x raw, at every N", "resume ratio", _at_most(1.3), times),
    Target(
        "W3",
        f"flat: ratio at the largest N over that at 1,000, at most {EVEN}x",
        "resume last to first",
        _at_most(EVEN),
        times,
    ),
    Target("W4", "no errors", "writers errors", _at_most(0), _plain("")),
    Target(
        "W4",
        "no writer below a quarter of the fair share",
        "writers least share",
        _at_least(0.25),
        _plain(""),
    ),
    Target("W4", "at least the rate of every durable peer", "writers over best peer", _at_least(1), times),
    Target("W5", "first page at most 2x FTS5, every query and scope", "search worst ratio", _at_most(2), times),
    Target("W5", "nothing missed right after an import", "pending missed", _at_most(0), _plain("")),
    Target("W5", "then the time of one scan: at most 2x raw read of it", "pending ratio", _at_most(2), times),
    Target(
        "W5",
        "the index delays 99 of 100 appends by at most 5 ms",
        "index hold ms",
        _at_most(5),
        _plain(" ms"),
    ),
    Target("W5", "nor the longest by more than 10 ms", "index longest ms", _at_most(10), _plain(" ms")),
    Target("W6", "a branch is one row: at most 2x one raw append", "branch ratio", _at_most(2), times),
    Target(
        "W6",
        f"O(1): ratio at 10,000 over that at 1,000, at most {EVEN}x",
        "branch last to first",
        _at_most(EVEN),
        times,
    ),
    Target("W6f", "fork at most 2x one raw INSERT … SELECT", "fork ratio", _at_most(2), times),
    Target("W7", "import at most 60 ms over asyncio", "import ms", _at_most(60), _plain(" ms")),
    Target("W7", "no driver, HTTP or pydantic loaded", "import heavy", _at_most(0), _plain("")),
    Target(
        "W8",
        "at most 1,700 bytes per message, index included, at every N",
        "bytes per message",
        _at_most(1_700),
        _plain(""),
    ),
    Target(
        "W9",
        f"a block answers in the time of its matches: at most {EVEN}x of a small block with as many",
        "block over small",
        _at_most(EVEN),
        times,
    ),
    Target(
        "W9",
        f"and in proportion to them: ten times as many take at most {10 * EVEN}x",
        "block tenfold matches",
        _at_most(10 * EVEN),
        times,
    ),
    Target("W10", "an erasure holds no append longer than 1 s", "erase longest s", _at_most(1), _plain(" s")),
    Target("W10", "and leaves nothing in the store's files", "erase left", _at_most(0), _plain("")),
    Target(
        "W11",
        "`to_json` with all but 2 messages known at most 3x joining their texts",
        "state join ratio",
        _at_most(3),
        times,
    ),
    *(
        Target(
            "W11",
            f"ours: saving it on {kind} at most 2x the driver with a ready text",
            f"{kind} state known save ratio",
            _at_most(2),
            times,
        )
        for kind in ("sqlite", "file")
    ),
    Target("turns", "a call takes less than that of any peer", "turns call over peers", _at_most(1), times),
    Target("turns", "so does a round of tools", "turns round over peers", _at_most(1), times),
    Target(
        "turns", "one piece of a stream at most 2x a bare chain of generators", "turns chunk ratio", _at_most(2), times
    ),
    Target(
        "turns",
        "one piece through OpenAIChatModel at most 1.3x the SDK's own stream",
        "turns SDK chunk ratio",
        _at_most(1.3),
        times,
    ),
    Target(
        "turns",
        "five middlewares and three hooks add at most a tenth to a call",
        "turns call with layers",
        _at_most(1.1),
        times,
    ),
    Target("turns", "a middleware adds at most 1 µs to a piece", "turns middleware us", _at_most(1), _plain(" µs")),
    Target("turns", "so does a hook", "turns hook us", _at_most(1), _plain(" µs")),
    Target("turns", "a turn of the local queue below 20 µs", "turns queue us", _at_most(20), _plain(" µs")),
    Target(
        "turns",
        "sessions at once have at least the rate of calls one after the other",
        "turns crowd over alone",
        _at_least(1),
        times,
    ),
    Target(
        "turns",
        "ten tools at once at most 1.2x the slowest and the commits",
        "turns ten tools",
        _at_most(1.2),
        times,
    ),
    Target("turns", "a result of 100 MB is at most three times in memory", "turns large result", _at_most(3), times),
    Target("turns", "100 functions become tools within 20 ms", "turns schemas ms", _at_most(20), _plain(" ms")),
    Target("turns", "a call is decided by 1,000 rules within 50 µs", "turns rules us", _at_most(50), _plain(" µs")),
    Target("turns", "10,000 idle sessions cost less than 1 MB", "turns idle MB", _at_most(1), _plain(" MB")),
    *(target for kind in COSTS for target in _of_turns(kind)),
    Target(
        "turns",
        "a step writes at N = 10,000 what it writes at N = 10, but for numbers",
        "turns file bytes",
        _at_most(64),
        _plain(" bytes more"),
    ),
    *(target for kind in ("postgresql", "mysql", "redis") for target in _on_server(kind)),
    *(target for kind in ("postgresql", "mysql", "redis", "file", "sqlite", "memory") for target in _of_states(kind)),
    *(target for kind in ("postgresql", "mysql", "redis", "file", "sqlite", "memory") for target in _of_agents(kind)),
    Target("1M", "append at most 1.6x raw in the large store", "million append ratio", _at_most(1.6), times),
    Target("1M", f"append at most {EVEN}x of the small store's", "million W1 over small", _at_most(EVEN), times),
    Target(
        "1M",
        f"cold resume at most {EVEN}x of the small store's",
        "million W3 over small",
        _at_most(EVEN),
        times,
    ),
)


def judged(facts: Facts) -> list[tuple[str, str, str, str]]:
    """Return workload, promise, measured value and verdict of every target the run has a fact for."""
    rows: list[tuple[str, str, str, str]] = []
    for target in TARGETS:
        if target.fact in facts:
            value = facts[target.fact]
            verdict = "met" if target.met(value) else "**MISSED**"
            rows.append((target.workload, target.promise, target.text(value), verdict))
    return rows
