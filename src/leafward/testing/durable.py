"""What persistence promises: another handle, now or after a restart, finds everything as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from leafward import LATEST_LEAF, Message, Session, SessionManager, assistant, user
from leafward.core.ids import Scope
from leafward.stores import NOT_THERE, AttachedState, Draft, Usage
from leafward.testing.changes import changes_until
from leafward.testing.content import EXACT_TEXTS
from leafward.testing.ids import HOSTILE_IDS

if TYPE_CHECKING:
    from leafward.stores import Store

Reopen = Callable[[], "Awaitable[Store]"]
PATIENCE = 20.0


async def _picture(session: Session) -> dict[str, Any]:
    """All that the reading calls say about a session."""
    return {
        "history": await session.get_history(),
        "leaf": await session.get_latest_leaf(),
        "roots": await session.get_branches(None),
        "leaves": await session.get_leaves(),
        "paths": {leaf.id: await session.get_history(leaf.id) for leaf in await session.get_leaves()},
        "tree": await session.get_tree(),
        "labels": await session.get_labels(),
        "states": {node.id: await session.get_states(node.id) for node in await session.get_tree()},
        "in force": await session.get_states(),
        "found": await session.search("walnut", limit=100),
        "version": await session.get_version(),
        "changes": await changes_until(session, await session.get_version()),
    }


async def _grow(session: Session) -> None:
    """Make a session with branches, gaps, labels, states and a leaf that has children."""
    await session.set_state("plan", {"at": "root"})
    await session.append_messages([user(f"walnut {n}", id=f"{n}") for n in range(8)], state={"plan": {"at": "7"}})
    await session.append_messages([assistant("walnut x", id="x"), user("y", id="y")], parent_id="3")
    await session.append_message(user("other walnut", id="root 2"), parent_id=None)
    await session.update_message(user("walnut changed", id="5"))
    await session.append_messages([user("z", id="z"), user("known", id="4")], "y", state={"plan": {"at": "4"}})
    await session.append_message(user("known", id="3"), state={"漢字": {"🦊": [1.5, None]}, "plan": {"at": "3"}})
    await session.delete_messages(["0", "4", "y"])
    await session.append_message(user("below the gap", id="w"), "3", state={"plan": None})
    await session.label("x", "a label")
    await session.checkout("2")


@pytest.mark.asyncio
class DurableContract:
    """What is stored outlives the handle that stored it, and many handles share it.

    Subclasses define two async fixtures: `store` yields an empty, open store, and `reopen` yields a
    coroutine function that opens one more store on the same data each time it is called. A test may
    close `store` before or after; the `reopen` fixture closes what it opened.
    """

    async def test_everything_is_the_same_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        session = Session(store, "s", user_id="alice")
        await _grow(session)
        before = await _picture(session)
        await store.close()

        again = Session(await reopen(), "s", user_id="alice")

        assert await _picture(again) == before

    async def test_a_step_is_known_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        scope = Scope.of("s")
        step = [Draft(*user("one", id="1").sealed(), 3), Draft(*user("two", id="2").sealed(), 3)]
        states = [AttachedState("plan", '{"at":"2"}'), AttachedState("leafward.turn", '{"open":true}')]
        usage = Usage(1, 2, 0.5, "a-model", "call 1")
        first = await store.messages.append(scope, step, LATEST_LEAF, state=states, usage=usage)
        assert (first.inserted, first.counted) == (2, True)
        await store.messages.append(scope, [], "1", usage=Usage(1, 2, 0.5, "a-model"))
        names, ids = ["plan", "leafward.turn", "mood"], ["1", "2", "3"]
        before = await store.messages.head(scope, names, ids=ids), await SessionManager(store).get("s")
        exported = await SessionManager(store).export_session("s")
        await store.close()

        again = await reopen()
        head = await again.messages.head(scope, names, ids=ids)
        assert (head, await SessionManager(again).get("s")) == before
        assert await SessionManager(again).export_session("s") == exported
        retried = await again.messages.append(scope, step, LATEST_LEAF, state=states, usage=usage, expected_version=0)
        assert (retried.inserted, retried.states, retried.counted, retried.version) == (0, [], False, 1)
        assert (await again.messages.head(scope, names, ids=ids), await SessionManager(again).get("s")) == before

    async def test_text_is_exactly_the_same_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        session = Session(store, "s")
        messages = [
            Message(
                "user",
                [{"type": "text", "text": text, "k": [text]}],
                id=f"{n}",
                metadata={"t": text},
                extra=text,
            )
            for n, text in enumerate(EXACT_TEXTS)
        ]
        stored = await session.append_messages(messages)
        await store.close()

        again = await Session(await reopen(), "s").get_history()

        assert again == stored == messages

    async def test_hostile_ids_stay_apart_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        for name in HOSTILE_IDS:
            await Session(store, name, user_id=name, agent_id=name).append_message(user(f"of {name}", id=name))
        await store.close()

        again = await reopen()

        for name in HOSTILE_IDS:
            session = Session(again, name, user_id=name, agent_id=name)
            assert [(m.id, m.text) for m in await session.get_history()] == [(name, f"of {name}")]

    async def test_the_conversation_goes_on_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        await _grow(Session(store, "s"))
        await store.close()
        session = Session(await reopen(), "s")

        await session.append_message(user("next walnut", id="next"))

        assert [m.id for m in await session.get_history()] == ["1", "2", "next"]
        assert [m.id for m in await session.get_branches("2")] == ["3", "next"]
        assert "next" in {result.id for result in await session.search("walnut", limit=100)}

    async def test_standing_before_the_first_message_survives_a_restart(self, store: Store, reopen: Reopen) -> None:
        first = Session(store, "s")
        await _grow(first)
        await first.checkout(None)
        await store.close()
        session = Session(await reopen(), "s")

        assert await session.get_latest_leaf() is None
        assert await session.get_history() == []
        root = await session.append_message(user("start"))
        assert await session.get_parent(root.id) is None

    async def test_appending_twice_stores_once_across_a_restart(self, store: Store, reopen: Reopen) -> None:
        batch = [user("one", id="1"), user("two", id="2")]
        first = await Session(store, "s").append_messages(batch)
        await store.close()
        session = Session(await reopen(), "s")
        version = await session.get_version()

        assert await session.append_messages(batch) == first

        assert await session.get_history() == first
        assert await session.get_version() == version

    async def test_a_branch_off_a_deleted_tail_gains_no_ancestor_across_a_restart(
        self, store: Store, reopen: Reopen
    ) -> None:
        first = Session(store, "s")
        await first.append_messages([user(name, id=name) for name in ("a", "b", "c")])
        await first.append_message(user("x", id="x"), parent_id="c")
        await first.append_message(user("y", id="y"), parent_id="c")
        await first.delete_messages(["x", "c"])
        await first.checkout("b")
        await store.close()
        session = Session(await reopen(), "s")

        await session.append_message(user("d", id="d"))

        assert [m.id for m in await session.get_history("y")] == ["a", "b", "y"]

    async def test_what_is_gone_stays_gone_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        first, cleared = Session(store, "s"), Session(store, "cleared")
        await first.append_messages([user("old walnut", id="1"), user("deleted walnut", id="2")])
        await first.update_message(user("maple", id="1"))
        await first.delete_messages(["2"])
        await cleared.append_messages([user("walnut", id="1"), user("walnut", id="2")])
        await cleared.clear_messages()
        await store.close()
        again = await reopen()

        for name in ("s", "cleared"):
            assert await Session(again, name).search("walnut") == []
        assert [m.id for m in await Session(again, "s").get_history()] == ["1"]
        assert await Session(again, "cleared").get_tree() == []

    async def test_versions_go_on_after_a_clear_and_a_restart(self, store: Store, reopen: Reopen) -> None:
        first = Session(store, "s")
        await first.append_messages([user("a", id="a"), user("b", id="b")])
        await first.clear_messages()
        version = await first.get_version()
        await store.close()
        session = Session(await reopen(), "s")

        await session.append_message(user("c", id="c"))

        assert await session.get_version() > version
        told = await changes_until(session, await session.get_version(), since=version)
        assert [(change.kind, list(change.message_ids)) for change in told] == [("append", ["c"])]

    async def test_another_handle_sees_each_write_at_once(self, store: Store, reopen: Reopen) -> None:
        here, there = Session(store, "s"), Session(await reopen(), "s")

        await here.append_messages([user("walnut", id="a"), user("b", id="b")])
        assert [m.id for m in await there.get_history()] == ["a", "b"]
        assert [result.id for result in await there.search("walnut")] == ["a"]
        await there.update_message(user("maple", id="a"))
        assert await here.search("walnut") == []
        await here.checkout("a")
        await there.append_message(user("c", id="c"))
        assert [m.id for m in await here.get_history()] == ["a", "c"]
        await there.label("c", "theirs")
        assert await here.get_labels() == {"c": "theirs"}
        await here.delete_messages(["c"])
        assert [m.id for m in await there.get_history()] == ["a"]
        assert await _picture(here) == await _picture(there)

    async def test_two_handles_write_one_chain(self, store: Store, reopen: Reopen) -> None:
        handles = [Session(store, "s"), Session(await reopen(), "s")]

        async def write(number: int) -> None:
            for n in range(25):
                await handles[number].append_message(user("text", id=f"{number}.{n}"))

        await asyncio.gather(write(0), write(1))

        history = await handles[0].get_history()
        assert [m.id for m in await handles[1].get_history()] == [m.id for m in history]
        assert sorted(m.id for m in history) == sorted(f"{h}.{n}" for h in (0, 1) for n in range(25))
        for number in (0, 1):
            own = [m.id for m in history if m.id.startswith(f"{number}.")]
            assert own == [f"{number}.{n}" for n in range(25)]

    async def test_a_subscriber_hears_writes_of_another_handle(self, store: Store, reopen: Reopen) -> None:
        here, there = Session(store, "s"), Session(await reopen(), "s")
        await here.append_message(user("before", id="before"))
        since = await here.get_version()

        async with (
            asyncio.timeout(PATIENCE),
            aclosing(here.subscribe(since)) as changes,
        ):
            for n in range(3):
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)
                await there.append_message(user("text", id=f"{n}"))
                change = await waiting
                assert (change.kind, list(change.message_ids)) == ("append", [f"{n}"])

    async def test_a_subscriber_hears_of_a_session_that_another_handle_made_again(
        self, store: Store, reopen: Reopen
    ) -> None:
        other = await reopen()
        here, there = Session(store, "s"), Session(other, "s")
        await there.append_messages([user("a", id="a"), user("b", id="b")])
        await there.append_message(user("c", id="c"))

        async with asyncio.timeout(PATIENCE), aclosing(here.subscribe(since=1, messages=True)) as changes:
            assert (await anext(changes)).message_ids == ["c"]
            waiting = asyncio.ensure_future(anext(changes))
            await SessionManager(other).delete("s")
            for name in ("d", "e"):
                await there.append_message(user(name, id=name))
            found = [await waiting, await anext(changes), await anext(changes)]

        assert [(change.version, change.kind, change.message_ids) for change in found] == [
            (0, "clear", []),
            (1, "append", ["d"]),
            (2, "append", ["e"]),
        ]
        assert [message for change in found for message in change.messages] == await there.get_history()

    async def test_a_session_is_the_same_one_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        session, scope = Session(store, "s"), Scope.of("s")
        await session.append_message(user("a"))
        before = await store.messages.revision(scope)
        await store.close()

        again = await reopen()
        assert await again.messages.revision(scope) == before
        await SessionManager(again).delete("s")
        assert await again.messages.revision(scope) == NOT_THERE
        await Session(again, "s").append_message(user("a"))
        after = await again.messages.revision(scope)

        assert after.version == before.version
        assert after.incarnation not in ("", before.incarnation)

    async def test_a_store_opens_while_another_is_in_use(self, store: Store, reopen: Reopen) -> None:
        session = Session(store, "s")
        writing = asyncio.ensure_future(session.append_messages([user(f"m{n}") for n in range(300)]))

        stores = await asyncio.gather(*(reopen() for _ in range(4)))
        await writing

        lengths = [await Session(other, "s").get_path_length() for other in stores]
        assert lengths == [300] * 4
