"""A turn whose store stops for good after any of its commits is taken up by another process without a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from faults.broken_turns import broken
from faults.kitchen import MOST_RUNS, Kitchen, other_input, steps, undisturbed
from faults.turn_judge import Ledger, Stored, differences, judge, judge_stop, told
from leafward import LeaseLost, Message, RuntimeContext
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.stores.memory import MemoryStore
from tests.engine.dying_store import Died, DyingStore, SleepingStore
from tests.engine.two_handles import KINDS, Handles, on, opened

Resumed = Literal["same input", "no input", "other input"]
DINNER = "1"


class Case:
    """One conversation that is cut off, and what happened in it."""

    def __init__(self, session_id: str, *, hurries: bool = False) -> None:
        self.ledger = Ledger()
        self.ctx = RuntimeContext("alice", session_id)
        self.done = 0
        """How many of its steps the user knows to be done."""
        self.hurries = hurries
        """Whether the tool that cooks does not wait until the results of others are stored."""

    def agent(self, store: Any, pace: Callable[[], Awaitable[None]] | None = None) -> ReActAgent:
        return Kitchen(self.ledger.lines.append, lambda: self.ledger.lines, pace=pace).agent(store)

    async def greet(self, store: Store) -> None:
        """Have something before the dinner that can be summed up."""
        await self.agent(store).call("Hello", self.ctx)

    async def go_on(self, agent: ReActAgent, given: Sequence[Message | None] = ()) -> None:
        """Send what is given, then the steps that are not done."""
        for message in given:
            with suppress(ValueError):
                self.acknowledge(message, await agent.call(message, self.ctx))
        for step in steps(DINNER)[self.done :]:
            self.acknowledge(step, await agent.call(step, self.ctx))
            self.done += 1

    def acknowledge(self, sent: Message | None, reply: Message) -> None:
        self.ledger.acked += [one.id for one in (sent, reply) if one is not None and one.parts]

    async def stored(self, store: Store) -> Stored:
        return await Stored.read(store, self.ctx.user_id, str(self.ctx.session_id))

    async def stop(self, store: Store, commits: int, *, at_once: bool) -> bool:
        """Let a process go on until its store stops, and bury it; False when it was done before."""
        dying = DyingStore(store, commits, at_once=at_once)
        # In a task of its own, as all that it holds is held by that task.
        pace = None if self.hurries else dying.next_commit
        task = asyncio.create_task(self.go_on(self.agent(dying, pace)))
        with suppress(Died):
            await task
        await dying.bury(str(self.ctx.session_id), self.ctx.user_id)
        return dying.is_dead


async def take_up(case: Case, store: Store, resumed: Resumed) -> None:
    """Go on in a new agent."""
    agent = case.agent(store)
    if resumed == "other input":
        message = other_input(DINNER)
        case.acknowledge(message, await agent.call(message, case.ctx))
    else:
        await case.go_on(agent, [None] if resumed == "no input" else ())


async def faults_after(
    first: Store, second: Store, case: Case, resumed: Resumed, reference: Sequence[str]
) -> list[str]:
    """Take up what a lost process left, and return what is wrong then."""
    found = judge_stop(await case.stored(second))
    try:
        await take_up(case, second, resumed)
    except Exception as error:
        return [*found, f"it cannot go on: {error!r}"]
    stored = await case.stored(second)
    # The process before never saw this.
    assert [one.id for one in (await case.stored(first)).view] == [one.id for one in stored.view]
    # Other input leaves calls behind that could have run again.
    found += judge(stored, case.ledger, deaths=MOST_RUNS if resumed == "other input" else 1)
    return found if resumed == "other input" else found + differences(told(stored.history), reference)


async def all_faults(
    handles: Handles, resumed: Resumed, moments: Sequence[bool] = (False, True), *, hurries: bool = False
) -> list[str]:
    """Stop the store after each commit of the dinner, and return all that is wrong.

    `moments` says whether what follows a commit, such as a tool, is not done any more.
    """
    first, second = handles
    reference = told(await undisturbed(DINNER))
    found: list[str] = []
    for at_once in moments:
        commits = 0
        for commits in count(1 if at_once else 0):
            case = Case(f"{at_once} {commits}", hurries=hurries)
            await case.greet(first)
            if not await case.stop(first, commits, at_once=at_once):
                break
            where = f"{'right ' if at_once else ''}after commit {commits}, {resumed}"
            found += [f"{where}: {fault}" for fault in await faults_after(first, second, case, resumed, reference)]
        assert commits > 12, "the dinner is shorter than expected"
    return found


async def faults_of_sleepers(handles: Handles, moments: Sequence[bool] = (False, True)) -> list[str]:
    """Put a process to sleep at each of its commits, beyond the end of its lease, and return all that is wrong.

    `moments` says whether it sleeps after the commit, or before it.
    """
    first, second = handles
    found: list[str] = []
    for at_once in moments:
        commits = 0
        for commits in count(1 if at_once else 0):
            case = Case(f"asleep {at_once} {commits}")
            await case.greet(first)
            sleeping = SleepingStore(first, commits, at_once=at_once)
            task = asyncio.create_task(case.go_on(case.agent(sleeping, sleeping.next_commit)))
            asleep = asyncio.create_task(sleeping.fell_asleep())
            await asyncio.wait((task, asleep), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                asleep.cancel()
                break
            faults = await faults_of_sleeper(case, second, task, sleeping)
            found += [f"asleep {'after' if at_once else 'before'} commit {commits}: {fault}" for fault in faults]
        assert commits > 12, "the dinner is shorter than expected"
    return found


async def faults_of_sleeper(case: Case, store: Store, task: asyncio.Task[None], sleeping: SleepingStore) -> list[str]:
    await sleeping.bury(str(case.ctx.session_id), case.ctx.user_id)
    # It never learns of this.
    done = Case(str(case.ctx.session_id))
    done.ledger, done.done = case.ledger, case.done
    await take_up(done, store, "same input")
    before, ran = await case.stored(store), len(case.ledger.lines)
    found = judge(before, case.ledger)
    sleeping.wake()
    try:
        await task
    except LeaseLost:
        pass
    except Exception as error:
        found.append(f"it woke and raised {error!r}")
    if len(case.ledger.lines) > ran:
        found.append(f"it woke and went on to work: {case.ledger.lines[ran:]}")
    after = await case.stored(store)
    return found if after == before else [*found, f"it woke and wrote: {after}, not {before}"]


async def test_a_dinner_is_what_its_script_says() -> None:
    lines = told(await undisturbed(DINNER))

    assert [line.partition(":")[0] for line in lines] == [
        *("user", "assistant"),
        *("user", "assistant", "tool", "tool", "tool"),
        *("assistant", "tool", "tool", "tool"),
        *("assistant", "tool", "tool", "tool"),
        *("assistant", "tool", "user"),
        *("user", "assistant"),
    ]


@on(*KINDS)
@pytest.mark.parametrize("resumed", ["same input", "no input", "other input"])
async def test_a_turn_that_is_cut_off_after_any_commit_goes_on_without_a_loss(
    handles: Handles, resumed: Resumed
) -> None:
    # What differs between the moments is the same on all stores, so two ways to go on share them elsewhere.
    in_memory = isinstance(handles[0], MemoryStore)
    moments = {"same input": (False, True), "no input": (True,), "other input": (False,)}
    assert await all_faults(handles, resumed, (False, True) if in_memory else moments[resumed]) == []


@on(*KINDS)
async def test_a_holder_that_slept_at_any_commit_stores_nothing_and_starts_no_tool(handles: Handles) -> None:
    # After a commit it is the turn that finds out, before one it is the store.
    moments = (False, True) if isinstance(handles[0], MemoryStore) else (False,)
    assert await faults_of_sleepers(handles, moments) == []


@on("memory")
async def test_an_intent_that_is_stored_after_the_tool_ran_is_noticed(handles: Handles) -> None:
    with broken("stores the intent after the tool ran"):
        found = await all_faults(handles, "same input", (False,), hurries=True)

    assert any("cook '1 soup' ran 2 times" in fault for fault in found)


@on("memory")
async def test_writes_without_the_lease_are_noticed(handles: Handles) -> None:
    with broken("writes without the lease"):
        found = await faults_of_sleepers(handles, (False,))

    assert any("it woke and wrote" in fault for fault in found)


async def test_a_slot_that_is_written_before_the_tree_is_noticed(tmp_path: Path) -> None:
    # Only one of the commits is that of the slot. Results that go together make the dinner one commit shorter, so that
    # a run may miss it on a busy machine.
    for _ in range(5):
        async with opened("memory", tmp_path, "") as handles:
            with broken("writes the slot before the tree"):
                found = await all_faults(handles, "same input", (False,))
        if any("the slot shows what the tree has not" in fault for fault in found):
            return
    pytest.fail("it was not noticed")
