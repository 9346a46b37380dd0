"""The workloads on each backend: both versions on one server, each with its own database and process.

Two versions of a package cannot be in one process, so they take turns round by round, not call by call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from backends.arena import SERVERS, place
from backends.duel import ALONE, BATCH, BEHIND, OURS
from backends.workload import FIRST_AT_ONCE, LEASED, WARM, WARM_APPENDS
from contenders import Missing, Process, running
from measure import Measured, Series

from against.match import Match
from against.versions import NEW, OLD

PER_SECOND = 1_000_000_000
SHARED_DATABASE = "leafward"
OTHER_DATABASE = "leafward_other"


class Pair:
    """The processes of both versions on one backend."""

    def __init__(self, match: Match, kind: str, members: Mapping[str, Process]) -> None:
        self.match = match
        self.kind = kind
        self.members = dict(members)
        self.profile = match.setting.profile.backends
        self.lengths = {size: 2 * n + 1 for n, size in enumerate(sorted({*self.profile.sizes, *self.profile.reads}))}
        """The session of each size; sessions with odd numbers are of one user."""

    def both(self, do: str, **arguments: Any) -> dict[str, dict[str, Any]]:
        """Ask each in turn what is not timed, and return the answers of those who can do it."""
        found: dict[str, dict[str, Any]] = {}
        for title, process in self.members.items():
            try:
                found[title] = process.ask(do, **arguments)
            except Missing:
                self.match.log(f"  {title} cannot {do} on {self.kind}")
        return found

    def turns(
        self, rounds: int, do: str, read: Callable[[dict[str, Any]], list[int]] | None = None, **arguments: Any
    ) -> Measured:
        """Ask each in turn, `rounds` times, the first one last in the next round."""
        measured: Measured = {}
        order = list(self.members)
        for number in range(rounds):
            for title in list(order):
                try:
                    reply = self.members[title].ask(do, **arguments)
                    self.members[title].ask("settle")
                except Missing:
                    order.remove(title)
                    continue
                spent = reply["ns"][OURS] if read is None else read(reply)
                measured.setdefault(title, Series()).add(number, spent)
            order = order[1:] + order[:1]
        return measured

    def timed(self, name: str, measured: Measured, *, judged: bool) -> None:
        """Add a row of this backend."""
        self.match.timed(self.kind, name, measured, judged=judged)


def run(match: Match, kinds: Sequence[str]) -> None:
    """Measure both versions on one backend after the other."""
    for kind in kinds:
        with _pair(match, kind) as pair:
            # Messages on SQLite are what the other workloads measure.
            if kind != "sqlite":
                match.log(f"{kind}: messages")
                _messages(pair)
            match.log(f"{kind}: states")
            _states(pair)
            pair.both("close")


@contextmanager
def _pair(match: Match, kind: str) -> Iterator[Pair]:
    log = match.setting.work / "stderr.log"
    match.log(f"{kind}: starting")
    with ExitStack() as stack:
        paths = _two(kind, stack.enter_context(place(match.setting, kind)))
        members: dict[str, Process] = {}
        for contender in match.versions.contenders("backends.duel", kind, ALONE):
            process = stack.enter_context(running(contender, log))
            process.ask("open", path=paths[contender.title])
            members[contender.title] = process
        yield Pair(match, kind, members)


def _two(kind: str, path: str) -> dict[str, str]:
    """Return a database or directory for each version on one backend."""
    if kind == "redis":
        return {NEW: path, OLD: path.removesuffix("/0") + "/1"}
    if kind in SERVERS:
        asyncio.run({"postgresql": _create_on_postgres, "mysql": _create_on_mysql}[kind](path))
        return {NEW: path, OLD: path.removesuffix(SHARED_DATABASE) + OTHER_DATABASE}
    both = {NEW: f"{path}/new", OLD: f"{path}/old"}
    for directory in both.values():
        Path(directory).mkdir()
    return both


async def _create_on_postgres(url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {OTHER_DATABASE}")
    await connection.close()


async def _create_on_mysql(url: str) -> None:
    from urllib.parse import unquote, urlsplit

    import asyncmy

    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=unquote(parts.password or "")
    )
    async with connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE {OTHER_DATABASE}")
    connection.close()


def _messages(pair: Pair) -> None:
    """Append, append a batch, read, write at once, hold a lease. Only servers have targets for these."""
    profile = pair.profile
    judged = pair.kind in SERVERS
    for size, session in pair.lengths.items():
        pair.both("fill", session=session, upto=size)
    pair.both("settle")
    pair.both("write", session=WARM, size=1, times=WARM_APPENDS)
    for size in profile.sizes:
        asked = {"session": pair.lengths[size], "size": 1, "times": profile.calls}
        pair.timed(f"append, N = {size:,}", pair.turns(profile.rounds, "write", **asked), judged=judged)
    asked = {"session": pair.lengths[max(profile.sizes)], "size": BATCH, "times": profile.calls}
    pair.timed(f"append {BATCH} as a batch", pair.turns(profile.rounds, "write", **asked), judged=judged)
    for size in profile.reads:
        asked = {"session": pair.lengths[size], "times": max(1, 3_000 // size)}
        pair.timed(f"history of {size:,}", pair.turns(profile.read_rounds, "read", **asked), judged=judged)
    if judged:
        _trips(pair)
    _at_once(pair, judged=judged)
    leases = pair.turns(profile.rounds, "lease", session=LEASED, times=profile.calls)
    pair.timed("lease: acquire and release", leases, judged=False)
    asked = {"session": LEASED, "times": profile.calls}
    fenced = pair.turns(profile.rounds, "write_behind", lambda reply: reply["ns"][BEHIND], **asked)
    pair.timed("lease: append behind it", fenced, judged=False)


def _trips(pair: Pair) -> None:
    histories = {str(size): pair.lengths[size] for size in pair.profile.reads}
    found = pair.both("trips", session=WARM, histories=histories)
    names = {"1": "an append", str(BATCH): "a batch", **{size: f"a history of {int(size):,}" for size in histories}}
    for key, name in names.items():
        trips = {title: reply["trips"][key] for title, reply in found.items()}
        pair.match.counted(pair.kind, f"round trips of {name}", trips)


def _at_once(pair: Pair, *, judged: bool) -> None:
    profile = pair.profile
    sessions = [FIRST_AT_ONCE + 2 * n for n in range(profile.tasks)]
    pair.both("widen", sessions=sessions)

    def a_message(reply: dict[str, Any]) -> list[int]:
        return [round(PER_SECOND / reply["rates"][OURS])]

    measured = pair.turns(profile.rounds, "at_once", a_message, sessions=sessions, each=profile.each)
    pair.timed(f"{profile.tasks} sessions at once, a message", measured, judged=judged)


def _states(pair: Pair) -> None:
    """Save and get a value, and let lists grow."""
    profile = pair.profile
    pair.both("states", sizes=list(profile.lists))
    # The first round warms up.
    pair.turns(1, "save_state", times=profile.calls)
    pair.timed("state: save 100 KB", pair.turns(profile.rounds, "save_state", times=profile.calls), judged=True)
    pair.timed("state: get it", pair.turns(profile.rounds, "get_state", times=profile.calls), judged=True)
    for size in profile.lists:
        grown = pair.turns(profile.rounds, "grow_list", size=size, times=profile.calls)
        pair.timed(f"state: list of {size:,} with one more item", grown, judged=True)
        if pair.kind in SERVERS:
            found = pair.both("list_bytes", size=size)
            sent = {title: reply["bytes"] for title, reply in found.items()}
            pair.match.counted(pair.kind, f"bytes sent for one more item of {size:,}", sent, unit="bytes")
