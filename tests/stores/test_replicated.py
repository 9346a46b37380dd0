"""A copy of a session in memory is what its journal tells, by whichever way it got there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import LATEST_LEAF, LeafwardError, Message
from leafward.core.times import parse_micros
from leafward.stores.contracts import Appended
from leafward.stores.drafts import Draft
from leafward.stores.entries import Shelf
from leafward.stores.guard import Guard
from leafward.stores.journal.appends import Unsound, read_batches
from leafward.stores.journal.lines import encode, read
from leafward.stores.journal.records import header, record
from leafward.stores.journal.replaying import commands
from leafward.stores.leases import Fence, Slot
from leafward.stores.replicated import NOTHING, Journal, Listing, Mark, Outcome, Tail, Write, writing
from leafward.stores.replicated.running import ReplicatedRunner
from leafward.stores.replicated.tables import Tables
from leafward.stores.sql import commands as c
from leafward.stores.sql import overlays, reads
from leafward.stores.sql.scanning import NO_INDEX
from tests.stores.test_journal import OWNER, SCOPES, done, drafts, journalled

SCOPE = SCOPES[0]
many_ids = (st.integers(0, 9) | st.integers(10, 10**9)).map(lambda number: f"n{number}")


@st.composite
def plain_appends(draw: st.DrawFn) -> c.Append:
    """Draw messages that go below the leaf, most of them new."""
    ids = draw(st.lists(many_ids, min_size=1, max_size=3, unique=True))
    made = [draw(drafts()) for _ in ids]
    named = [Message.from_dict({**one.message.to_dict(), "id": id}) for one, id in zip(made, ids, strict=True)]
    new = [one._replace(message=message) for one, message in zip(made, named, strict=True)]
    return c.Append(SCOPE, new, LATEST_LEAF, draw(st.booleans()))


def here(step: Any) -> Any:
    """Return the same step for the one session; two journals do not say in which order their shelves came to be."""
    if isinstance(step, c.EditEntry):
        return replace(step, shelf=Shelf(SCOPE, step.shelf.label))
    if isinstance(step, (c.Remove, c.Fork, c.Split)):
        return c.Append(SCOPE, [], LATEST_LEAF)
    return replace(step, scope=SCOPE)


steps = st.lists(st.one_of(plain_appends(), plain_appends(), plain_appends(), done.map(here)), min_size=4, max_size=20)


def rows(tables: Tables) -> dict[str, list[Any]]:
    names: list[Any] = tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'", ())
    return {name: sorted(tables.execute(f"SELECT * FROM {name}", ()), key=repr) for (name,) in names}


def one_by_one(data: bytes) -> dict[str, list[Any]]:
    tables = Tables(SCOPE)
    with tables.changing():
        for command, at in commands(read(data).entries, SCOPE):
            tables.run(command.operation(NO_INDEX), at)
    return rows(tables)


def at_once(data: bytes, cuts: set[int]) -> dict[str, list[Any]]:
    """Replay a journal in parts, each ending after a batch."""
    tables = Tables(SCOPE)
    ends = [batch.end for number, batch in enumerate(read(data).batches) if number in cuts]
    crc = start = 0
    for end in (*ends, len(data)):
        if start < end:
            told, crc = read_batches([data[start : end - 1]], crc)
            with tables.changing():
                tables.replay(told)
            start = end
    return rows(tables)


@settings(max_examples=150)
@given(steps, st.sets(st.integers(0, 25)))
def test_appends_that_are_replayed_together_leave_the_rows_of_one_after_the_other(
    made: list[Any], cuts: set[int]
) -> None:
    data = journalled(made).journals.get(SCOPE.session_id, b"")

    assert at_once(data, cuts) == one_by_one(data)


@given(st.lists(plain_appends(), min_size=1, max_size=8), st.sets(st.integers(0, 8)))
def test_and_where_a_journal_tells_a_message_twice_as_well(made: list[c.Append], cuts: set[int]) -> None:
    data, crc = encode(header(SCOPE, 1), 0)
    for at, command in enumerate(made, start=2):
        told = record(
            command, Appended([one.message for one in command.drafts], len(command.drafts), None), at, "above"
        )
        written, crc = encode(told, crc)
        data += written

    assert at_once(data, cuts) == one_by_one(data)


@given(st.lists(plain_appends(), min_size=2, max_size=5), st.data())
def test_bytes_that_are_not_what_was_written_are_not_replayed(made: list[Any], chance: st.DataObject) -> None:
    data = journalled(made).journals[SCOPE.session_id][:-1]
    place = chance.draw(st.integers(0, len(data) - 1))
    harmed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    with pytest.raises(Unsound):
        read_batches([harmed], 0)


class FakeServer:
    """Keeps journals in this process."""

    def __init__(self) -> None:
        self.journals: dict[Journal, list[bytes]] = {}
        self.stand: dict[Journal, Mark] = {}
        self.listed: dict[str, Listing] = {}

    async def fetch(self, wanted: Sequence[tuple[Journal, Mark]]) -> list[Tail]:
        return [
            Tail(self.stand.get(journal, NOTHING), self.journals.get(journal, [])[mark.length :])
            for journal, mark in wanted
        ]

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        if any(self.stand.get(write.journal, NOTHING) != write.expected for write in writes):
            return Outcome.REFUSED
        for write in writes:
            if write.mark != write.expected:
                self.stand[write.journal] = write.mark
                self.journals.setdefault(write.journal, []).append(write.batch)
            if write.listing is not None:
                self.listed[write.listing.session_id] = write.listing
        return Outcome.DONE

    async def close(self) -> None:
        """There is nothing to let go of."""


async def carry_out(made: Sequence[Any]) -> tuple[FakeServer, dict[str, list[Any]], list[Any]]:
    """Carry out commands; return where they were written, the copy in memory, and what the callers were told."""
    server, told = FakeServer(), []
    runner = ReplicatedRunner(server, Guard("a store"))  # pyright: ignore[reportArgumentType]
    for command in made:
        try:
            told.append(await runner.write(command))
        except (LeafwardError, ValueError) as error:
            told.append(str(error))
    async with runner._replicas.using(SCOPE) as replica:
        found = rows(replica.tables)
    await runner.close()
    return server, found, told


async def loaded(server: FakeServer) -> tuple[dict[str, list[Any]], Any]:
    runner = ReplicatedRunner(server, Guard("a store"))  # pyright: ignore[reportArgumentType]
    weight = await runner.read(SCOPE, lambda: overlays.weigh(SCOPE))
    async with runner._replicas.using(SCOPE) as replica:
        found = rows(replica.tables)
    await runner.close()
    return found, weight


def without_window(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    # Only who asked for it has summed it up.
    return {**found, "session": [(*row[:8], *row[9:]) for row in found["session"]]}


@settings(max_examples=100)
@given(steps)
def test_the_copy_of_the_one_who_wrote_is_the_copy_of_the_one_who_reads_it(made: list[Any]) -> None:
    async def check() -> None:
        server, own, told = await carry_out(made)
        others, weight = await loaded(server)
        assert without_window(own) == without_window(others)
        if told and isinstance(told[-1], Appended) and told[-1].weight is not None:
            assert told[-1].weight == weight

    asyncio.run(check())


def told_lines(server: FakeServer) -> list[Any]:
    found: list[Any] = []
    for batch in server.journals.get(Journal(OWNER, SCOPE.session_id), []):
        for line in batch.split(b"\n"):
            told = json.loads(line)
            # What is made anew or by the clock each time.
            del told["crc"]
            for key in ("at", "incarnation"):
                told.get("leafward", {}).pop(key, None)
            if told["type"] not in ("message", "tool_use", "tool_result", "summary", "compaction"):
                del told["id"], told["timestamp"]
            found.append(told)
    return found


@settings(max_examples=100)
@given(steps)
def test_an_append_that_does_not_look_at_the_tables_is_told_as_one_that_does(made: list[Any]) -> None:
    async def check() -> None:
        quick, _, told = await carry_out(made)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writing, "ending_for", lambda *_: None)
            slow, _, told_slowly = await carry_out(made)
        assert told_lines(quick) == told_lines(slow)
        assert [_told(one) for one in told] == [_told(one) for one in told_slowly]
        for one, other in zip(quick.listed.values(), slow.listed.values(), strict=True):
            infos = [json.loads(listed.info) for listed in (one, other)]
            for info in infos:
                del info["created_at"], info["updated_at"]
            assert infos[0] == infos[1]

    asyncio.run(check())


def _told(result: Any) -> Any:
    return result if isinstance(result, (Appended, str, int, bool, Message)) else type(result)


async def test_the_list_of_sessions_has_the_time_of_the_last_append() -> None:
    server, _, _ = await carry_out(
        [c.Append(SCOPE, [Draft(*Message("user", "text", id=f"{n}").sealed(), 1)], LATEST_LEAF) for n in range(3)]
    )
    listed = server.listed[SCOPE.session_id]
    last = server.journals[Journal(OWNER, SCOPE.session_id)][-1]

    assert listed.updated_at == json.loads(last)["leafward"]["at"]
    assert parse_micros(json.loads(listed.info)["updated_at"]) == listed.updated_at


class SlowServer(FakeServer):
    """Answers a commit when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        outcome = await super().commit(writes, fence)
        self.asked.set()
        await self.answers.wait()
        return outcome


async def test_one_who_is_cancelled_is_told_so_when_the_server_has_decided_and_the_next_one_sees_what_was() -> None:
    server = SlowServer()
    runner = ReplicatedRunner(server, Guard("a store"))  # pyright: ignore[reportArgumentType]
    for n in range(3):
        server.asked.clear()
        server.answers.clear()
        appended = c.Append(SCOPE, [Draft(*Message("user", "text", id=f"{n}").sealed(), 1)], LATEST_LEAF)
        writing = asyncio.ensure_future(runner.write(appended))
        await server.asked.wait()
        writing.cancel()
        await asyncio.wait((writing,), timeout=0.05)
        assert not writing.done()
        server.answers.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        history = await runner.read(SCOPE, lambda: reads.path(SCOPE, None, False))
        assert [one.id for one in history] == ["0", "1", "2"][: n + 1]
    await runner.close()


async def test_a_lease_that_was_asked_for_is_left_only_when_the_server_has_answered() -> None:
    server = SlowServer()
    runner = ReplicatedRunner(server, Guard("a store"))  # pyright: ignore[reportArgumentType]

    async def take(*_: object) -> int:
        server.asked.set()
        await server.answers.wait()
        return 1

    server.take = take  # pyright: ignore[reportAttributeAccessIssue]
    taking = asyncio.ensure_future(runner.take(Slot(None, "s"), "holder", 30))
    await server.asked.wait()
    taking.cancel()
    await asyncio.wait((taking,), timeout=0.05)
    assert not taking.done()
    server.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
