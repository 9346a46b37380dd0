"""Whatever a session went through, its copies say what it says."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import Message, Session, SessionManager, open_store, user
from leafward.testing.filled import manage, picture

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "batch", "branch", "delete", "update", "label", "summary", "checkout"]),
        st.integers(0, 40),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=40,
)


class Life:
    """Leads a session through steps that are chosen by numbers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made = 0
        self.alive: list[str] = []

    async def step(self, what: str, one: int, two: int) -> None:
        session, chosen = self._session, self._choose(one)
        if what == "append" or chosen is None:
            await session.append_message(self._message())
        elif what == "batch":
            await session.append_messages([self._message() for _ in range(two % 4 + 1)])
        elif what == "branch":
            await session.append_messages(
                [self._message() for _ in range(two % 3 + 1)], parent_id=chosen if one % 7 else None
            )
        elif what == "delete":
            gone = {chosen, self._choose(two) or chosen}
            assert await session.delete_messages(list(gone)) == len(gone)
            self.alive = [name for name in self.alive if name not in gone]
        elif what == "update":
            await session.update_message(user(f"changed {self._made}", id=chosen))
        elif what == "label":
            await session.label(chosen, f"label {two}" if two % 3 else None)
        elif what == "checkout":
            await session.checkout(chosen if two % 5 else None)
        else:
            await self._summarise(chosen, two)

    async def _summarise(self, last: str, two: int) -> None:
        path = await self._session.get_raw_history(last)
        first = path[two % len(path)].id
        try:
            await self._session.add_compaction(f"summary {self._made}", first, last)
        except ValueError as error:
            if "cross" not in str(error):
                raise

    def _choose(self, number: int) -> str | None:
        return self.alive[number % len(self.alive)] if self.alive else None

    def _message(self) -> Message:
        self._made += 1
        self.alive.append(f"m{self._made}")
        return user(f"walnut {self._made}", id=f"m{self._made}")


async def led(manager: SessionManager, steps: list[tuple[str, int, int]]) -> tuple[Session, list[str]]:
    session = manager.get_session("s")
    life = Life(session)
    for step in steps:
        await life.step(*step)
    return session, life.alive


@settings(max_examples=60)
@given(steps=STEPS, number=st.integers(0, 1000), more=STEPS)
async def test_a_fork_says_what_the_history_says_and_then_goes_its_own_way(
    steps: list[tuple[str, int, int]], number: int, more: list[tuple[str, int, int]]
) -> None:
    async with open_store("memory://") as store:
        manager = manage(store)
        session, alive = await led(manager, steps)
        if not alive:
            return
        at = alive[number % len(alive)]
        before = await picture(session)

        fork = manager.get_session((await manager.fork("s", at, "fork")).id)

        path = [message.id for message in await session.get_raw_history(at)]
        await same(fork, session, at, path)
        copied = await picture(fork)
        life = Life(fork)
        life.alive, life._made = list(path), 1000
        for step in more:
            await life.step(*step)
        assert await picture(session) == before
        again = manager.get_session((await manager.fork("s", at, "fork")).id)
        assert await picture(again) == copied


async def same(fork: Session, session: Session, at: str, path: list[str]) -> None:
    """See that a fork has what its source has on the path to `at`."""
    labels = await session.get_labels()
    inside = [
        one for one in await session.get_compactions() if one.from_message_id in path and one.to_message_id in path
    ]
    found = {one.id for one in await session.search("walnut", limit=999)}
    assert await fork.get_history() == await session.get_history(at)
    assert await fork.get_raw_history() == await session.get_raw_history(at)
    assert await fork.get_labels() == {name: labels[name] for name in path if name in labels}
    assert await fork.get_compactions() == inside
    assert {one.id for one in await fork.search("walnut", limit=999)} == found & set(path)
    leaf = await session.get_latest_leaf()
    await session.checkout(at)
    assert await fork.estimate_tokens() == await session.estimate_tokens()
    await session.checkout(None if leaf is None else leaf.id)


@settings(max_examples=40)
@given(steps=STEPS, more=STEPS)
async def test_an_imported_session_says_what_the_exported_one_says(
    steps: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    async with open_store("memory://") as store, open_store("memory://") as other:
        session, alive = await led(manage(store), steps)

        exported: dict[str, Any] = json.loads(json.dumps(await manage(store).export_session("s")))
        await manage(other).import_session(exported)

        copy = manage(other).get_session("s")
        assert await picture(copy) == await picture(session)
        lives = [Life(one) for one in (session, copy)]
        for life in lives:
            life.alive, life._made = list(alive), 1000
            for step in more:
                await life.step(*step)
        assert timeless(await picture(copy)) == timeless(await picture(session))


def timeless(told: dict[str, Any]) -> Any:
    """Return a picture without the ids and times that each session gives to what is new in it."""
    new = {"compactions", "history", "paths", "raw"}
    return {
        **{name: value for name, value in told.items() if name not in new},
        "shown": [[message.text for message in path] for path in [told["history"], *told["paths"], *told["raw"]]],
        "summaries": [(one.summary, one.from_message_id, one.to_message_id) for one in told["compactions"]],
    }
