"""What becomes of states when messages go: they stay in force for those below, and go with the last of these."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Session, SessionManager, user

if TYPE_CHECKING:
    from leafward.stores import Store


async def plans(session: Session, *ids: str) -> list[Any]:
    """Return the step of the plan in force at each of these messages."""
    found = [await session.get_state("plan", id) for id in ids]
    return [None if plan is None else plan["at"] for plan in found]


async def kept(store: Store) -> list[tuple[str | None, Any]]:
    """Return the plans that an export holds, each with its message."""
    exported = await SessionManager(store).export_session("s")
    return [(one["message"], one["value"] and one["value"]["at"]) for one in exported["states"]]


async def grow(session: Session, *ids: str, parent_id: str | None = None) -> None:
    """Append messages one below the other, each with a plan of its own."""
    for id in ids:
        await session.append_message(user(id, id=id), parent_id, state={"plan": {"at": id}})
        parent_id = id


class AttachedDeletion:
    """States of messages that are deleted. Part of `AttachedStateContract`."""

    async def test_the_state_of_a_deleted_message_stays_in_force_below_it(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2")
        await session.append_messages([user("3", id="3"), user("4", id="4")], "2")
        await session.append_message(user("b", id="b"), "2")

        await session.delete_messages(["2"])

        assert await plans(session, "1", "3", "4", "b") == ["1", "2", "2", "2"]
        await session.append_message(user("c", id="c"), "1")
        assert await plans(session, "c") == ["1"]

    async def test_the_state_of_a_deleted_leaf_goes_with_it(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2", "3")

        await session.delete_messages(["3"])

        assert await session.get_state("plan") == {"at": "2"}
        assert await kept(store) == [("1", "1"), ("2", "2")]
        await session.delete_messages(["2", "1"])
        assert await session.get_states() == {}
        assert await kept(store) == []

    async def test_a_state_goes_with_the_last_message_it_was_in_force_for(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2")
        await session.append_messages([user("3", id="3"), user("4", id="4")], "2")
        await session.append_message(user("b", id="b"), "2")
        await session.append_message(user("c", id="c"), "b")
        for gone, left in (("2", "34bc"), ("3", "4bc"), ("b", "4c"), ("4", "c")):
            await session.delete_messages([gone])
            assert await plans(session, *left) == ["2"] * len(left)
        await session.delete_messages(["c"])

        assert await plans(session, "1") == ["1"]
        assert await kept(store) == [("1", "1")]

    async def test_of_the_states_of_deleted_messages_the_nearest_is_in_force(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, *"12345")
        await session.append_message(user("b", id="b"), "3")

        await session.delete_messages(["2", "4", "3"])

        assert await plans(session, *"15b") == ["1", "5", "3"]
        await session.delete_messages(["5", "1"])
        assert await plans(session, "b") == ["3"]
        assert await kept(store) == [("b", "3")]

    async def test_a_state_that_a_deleted_message_removed_stays_removed_below_it(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1")
        await session.append_message(user("2", id="2"), state={"plan": None})
        await session.append_message(user("3", id="3"))

        await session.delete_messages(["2"])

        assert await plans(session, "1", "3") == ["1", None]
        copied = await SessionManager(store).import_session(
            await SessionManager(store).export_session("s"), session_id="copy"
        )
        assert await plans(Session(store, copied.id), "1", "3") == ["1", None]

    async def test_the_state_of_a_deleted_root_stays_in_force_below_it(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1")
        await session.append_message(user("2", id="2"), "1")
        await session.append_message(user("b", id="b"), "1")

        await session.delete_messages(["1"])

        assert await plans(session, "2", "b") == ["1", "1"]
        await session.append_message(user("r", id="r"), parent_id=None)
        await session.checkout(None)
        assert await session.get_states() == {}
        assert await plans(session, "r") == [None]

    async def test_the_state_before_the_first_message_outlives_them_all(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("plan", {"at": "root"})
        await grow(session, "1", "2")

        await session.delete_messages(["1", "2"])

        assert await session.get_state("plan") == {"at": "root"}
        assert await kept(store) == [(None, "root")]

    async def test_a_message_never_has_the_state_of_deleted_ones_it_was_not_below(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2", "3")

        await session.delete_messages(["2", "3"])
        await session.append_message(user("4", id="4"))

        assert await plans(session, "1", "4") == ["1", "1"]

    async def test_nor_when_one_on_a_branch_still_has_it(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2", "3")
        await session.append_message(user("b", id="b"), "2")
        await session.append_message(user("c", id="c"), "3")

        await session.delete_messages(["2", "3"])
        await session.append_message(user("4", id="4"), "1")
        await session.append_messages([user("5", id="5"), user("6", id="6")])

        assert await plans(session, *"1bc456") == ["1", "2", "3", "1", "1", "1"]
        # The leaf went to a message whose followers are gone: the next one goes below it by itself.
        await session.checkout("c")
        await session.delete_messages(["c"])
        assert await session.get_state("plan") == {"at": "1"}
        await session.append_message(user("7", id="7"))
        assert await plans(session, *"1b7") == ["1", "2", "1"]

    async def test_nor_when_messages_are_appended_one_after_another(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2")
        await session.append_message(user("b", id="b"), "2")
        await session.checkout("2")
        await session.delete_messages(["2"])

        for n in range(5):
            await session.append_message(user("x", id=f"x{n}"))

        assert await plans(session, *(f"x{n}" for n in range(5)), "b") == ["1"] * 5 + ["2"]
        assert [m.id for m in await session.get_history()] == ["1", *(f"x{n}" for n in range(5))]

    async def test_a_deleted_id_that_is_used_again_has_no_state(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, "1", "2", "3")
        await session.delete_messages(["2"])

        await session.append_message(user("2", id="2"), "1")

        assert await plans(session, "2", "3") == ["1", "3"]

    async def test_a_session_whose_oldest_messages_go_keeps_one_state_of_each_name(self, store: Store) -> None:
        session = Session(store, "s")
        await grow(session, *(f"{n}" for n in range(12)))
        await session.append_message(user("end", id="end"), "11")

        for n in range(12):
            await session.delete_messages([f"{n}"])
            assert await plans(session, "end") == ["11"]

        assert await kept(store) == [("end", "11")]

    async def test_clearing_removes_states_with_the_messages(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("plan", {"at": "root"})
        await grow(session, "1", "2")

        await session.clear_messages()

        assert await session.get_states() == {}
        assert await kept(store) == []
        await session.append_message(user("1", id="1"))
        assert await session.get_states() == {}

    async def test_a_session_of_nothing_but_a_state_is_cleared(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("plan", {"at": "root"})
        version = await session.get_version()

        await session.clear_messages()

        assert await session.get_states() == {}
        assert await session.get_version() == version + 1
        await session.clear_messages()
        assert await session.get_version() == version + 1

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_an_ended_session_leaves_no_state_to_the_next(self, store: Store, how: str) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await session.set_state("plan", {"at": "root"})
        await grow(session, "1")

        await (manager.delete("s") if how == "delete" else manager.erase("s"))

        assert await session.get_states() == {}
        await session.append_message(user("1", id="1"))
        assert await Session(store, "s").get_states() == {}

    async def test_any_order_of_deletes_keeps_what_is_in_force(self, store: Store) -> None:
        session = Session(store, "s")
        chosen = random.Random(7)  # noqa: S311  (the same every time)
        parents: dict[str, str | None] = {}
        for n in range(24):
            parent = chosen.choice([None, *parents][-6:]) if parents else None
            state = {"plan": {"at": f"{n}"}} if chosen.random() < 0.5 else None
            await session.append_message(user("x", id=f"{n}"), parent, state=state)
            parents[f"{n}"] = parent
        before = {id: await session.get_states(id) for id in parents}
        left = list(parents)
        chosen.shuffle(left)
        while left:
            gone, left = left[:3], left[3:]

            await session.delete_messages(gone)

            assert {id: await session.get_states(id) for id in left} == {id: before[id] for id in left}
        assert await kept(store) == []
