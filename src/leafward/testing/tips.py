"""What the tip of a branch promises: the leaf below a message that was committed last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from leafward import Message, MessageNotFound, Session, SessionManager, assistant, user

if TYPE_CHECKING:
    from leafward.stores import Store


async def grow_family(session: Session) -> dict[str, Message]:
    """Store a small tree and return its messages by id.

    root ── a ── b ── c
            │    └─── d
            └─── e ── f        (the leaf)
    """
    await session.append_messages([user(name, id=name) for name in ("root", "a", "b", "c")])
    await session.append_message(assistant("d", id="d"), parent_id="b")
    await session.append_messages([assistant("e", id="e"), user("f", id="f")], parent_id="a")
    return {node.id: message for node in await session.get_tree() if (message := await session.get_message(node.id))}


async def leaf_id(session: Session) -> str | None:
    leaf = await session.get_latest_leaf()
    return leaf.id if leaf else None


class TipContract:
    """The newest leaf below a message is found and checked out. Part of `TreeContract`."""

    async def test_the_tip_of_a_message_is_the_newest_leaf_below_it(self, store: Store) -> None:
        session = Session(store, "s")
        family = await grow_family(session)

        tips = {name: (await session.get_tip(name)).id for name in family}

        wanted = {"root": "f", "a": "f", "b": "d", "c": "c", "d": "d", "e": "f", "f": "f"}
        assert tips == wanted
        assert await session.get_tip("b") == family["d"]

    async def test_the_newest_leaf_is_the_one_committed_last(self, store: Store) -> None:
        session = Session(store, "s")
        clock = datetime(2024, 1, 1, tzinfo=UTC)
        await session.append_message(user("q", id="q", created_at=clock))
        # Clocks and ids run backwards here, and the first answer is the one that was gone on with.
        for n in range(5, 0, -1):
            answer = assistant(f"{n}", id=f"answer {n}", created_at=clock + timedelta(minutes=n))
            await session.append_message(answer, parent_id="q")
        assert (await session.get_tip("q")).id == "answer 1"
        await session.append_messages([user("x", id="x"), user("y", id="y")], parent_id="answer 5")
        await session.update_message(assistant("changed", id="answer 3"))

        assert (await session.get_tip("q")).id == "y"
        assert (await session.get_tip("answer 5")).id == "y"
        assert (await session.get_tip("answer 3")).id == "answer 3"

    async def test_the_tip_is_found_below_deleted_messages(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.delete_messages(["f", "e", "b", "d"])

        tips = {name: (await session.get_tip(name)).id for name in ("root", "a", "c")}
        assert tips == {"root": "c", "a": "c", "c": "c"}
        for unknown in ("b", "nowhere", "", "compaction_1"):
            with pytest.raises(MessageNotFound):
                await session.get_tip(unknown)
            with pytest.raises(MessageNotFound):
                await session.checkout(unknown, tip=True)
        with pytest.raises(MessageNotFound):
            await Session(store, "empty").get_tip("a")

    async def test_checking_out_a_tip_goes_on_at_the_end_of_that_branch(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.checkout("b", tip=True)
        assert [m.id for m in await session.get_history()] == ["root", "a", "b", "d"]
        await session.checkout("c", tip=True)
        assert await leaf_id(session) == "c"
        version = await session.get_version()
        await session.checkout("c", tip=True)

        assert await session.get_version() == version
        await session.append_message(user("g", id="g"))
        assert [m.id for m in await session.get_history()] == ["root", "a", "b", "c", "g"]
        assert await session.get_raw_history() == await session.get_raw_history("g")

    async def test_checking_out_the_tip_of_none_goes_to_the_newest_leaf_of_all(self, store: Store) -> None:
        session = Session(store, "s")
        await session.checkout(None, tip=True)
        assert await session.get_latest_leaf() is None
        await grow_family(session)
        await session.append_message(user("another", id="root 2"), parent_id=None)
        await session.checkout("c")

        await session.checkout(None, tip=True)

        assert await leaf_id(session) == "root 2"
        await session.delete_messages(["root 2"])
        await session.checkout(None, tip=True)
        assert await leaf_id(session) == "f"

    async def test_the_tip_is_the_same_in_a_fork_and_after_an_import(self, store: Store) -> None:
        session, manager = Session(store, "s"), SessionManager(store)
        await grow_family(session)
        await session.checkout("c")
        await session.append_message(user("g", id="g"))
        fork = manager.get_session((await manager.fork("s", "f", "copy")).id)
        await manager.import_session(await manager.export_session("s"), session_id="imported")

        assert (await fork.get_tip("root")).id == "f"
        for one in (session, manager.get_session("imported")):
            assert [(await one.get_tip(name)).id for name in ("root", "e", "b")] == ["g", "f", "g"]
