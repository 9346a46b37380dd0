"""What attached state promises: in force at a message is the nearest state at or above it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import MessageNotFound, Session, SessionManager, assistant, user
from leafward.testing.attached_copies import AttachedCopies
from leafward.testing.attached_deletion import AttachedDeletion
from leafward.testing.attached_values import AttachedValues
from leafward.testing.changes import changes_until
from leafward.testing.ids import HOSTILE_IDS

if TYPE_CHECKING:
    from leafward.stores import Store

DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 0}, {"a": False}),
    ({"a": [0, 1]}, {"a": [1, 0]}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "c": 1}}),
    ({"a": None}, {}),
    ({"é": 1}, {"e\u0301": 1}),
    ({"a": "漢"}, {"a": "字"}),
]
"""Values that are easily taken for the same."""


class _InForce:
    """Where a state holds."""

    async def test_a_state_is_in_force_at_its_message_and_below(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"))
        await session.append_message(user("two", id="2"))
        await session.set_state("plan", {"step": 2})
        await session.append_messages([user("three", id="3"), user("four", id="4")])
        await session.set_state("plan", {"step": 4})
        await session.set_state("mood", {"is": "good"})
        await session.append_message(user("five", id="5"))

        seen = {id: await session.get_states(id) for id in "12345"}

        now = {"plan": {"step": 4}, "mood": {"is": "good"}}
        assert seen == {"1": {}, "2": {"plan": {"step": 2}}, "3": {"plan": {"step": 2}}, "4": now, "5": now}
        assert await session.get_states() == now
        assert await session.get_state("plan") == {"step": 4}
        assert await session.get_state("plan", "3") == {"step": 2}
        assert await session.get_state("mood", "3") is None
        assert await session.get_state("Plan") is None

    async def test_a_session_that_was_never_written_to_has_no_state(self, store: Store) -> None:
        session = Session(store, "s")

        assert await session.get_state("plan") is None
        assert await session.get_states() == {}
        await session.set_state("plan", None)

        assert await session.get_version() == 0
        assert await SessionManager(store).get("s") is None

    async def test_a_state_set_before_the_first_message_is_in_force_below_every_root(self, store: Store) -> None:
        session = Session(store, "s")

        await session.set_state("plan", {"step": 0})

        assert await session.get_state("plan") == {"step": 0}
        assert await session.get_history() == []
        await session.append_message(user("one", id="1"))
        await session.append_message(user("another start", id="r"), parent_id=None)
        assert [await session.get_state("plan", id) for id in ("1", "r")] == [{"step": 0}] * 2
        await session.set_state("plan", {"step": 1})
        assert [await session.get_state("plan", id) for id in ("1", "r")] == [{"step": 0}, {"step": 1}]
        await session.checkout(None)
        assert await session.get_state("plan") == {"step": 0}
        await session.set_state("plan", {"step": 9})
        assert [await session.get_state("plan", id) for id in (None, "1", "r")] == [
            {"step": 9},
            {"step": 9},
            {"step": 1},
        ]

    async def test_none_removes_a_state_from_there_on(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"), state={"plan": {"step": 1}, "mood": {}})
        await session.append_message(user("two", id="2"))
        await session.set_state("plan", None)
        await session.append_message(user("three", id="3"))
        await session.append_message(user("four", id="4"), state={"plan": {"step": 4}})
        await session.append_message(user("aside", id="a"), parent_id="1")

        assert [await session.get_state("plan", id) for id in "1234a"] == [
            {"step": 1},
            None,
            None,
            {"step": 4},
            {"step": 1},
        ]
        assert await session.get_states("3") == {"mood": {}}

    async def test_what_is_in_force_already_is_not_written(self, store: Store) -> None:
        session = Session(store, "s")
        manager = SessionManager(store)
        value: dict[str, Any] = {"a": 1, "漢": {"c": [1, 2], "b": "é🦊"}}
        reordered = {"漢": {"b": "é🦊", "c": [1, 2]}, "a": 1}
        await session.append_message(user("one", id="1"), state={"plan": value})
        await session.append_message(user("two", id="2"))
        before = await manager.get("s"), await session.get_version()

        for same in (value, reordered):
            await session.set_state("plan", same)
            await session.append_message(user("one", id="1"), state={"plan": same, "never": None})
        await session.set_state("never", None)

        assert (await manager.get("s"), await session.get_version()) == before
        # Nothing was attached to the second message: it goes on having what the first one has.
        await session.checkout("1")
        await session.set_state("plan", {"a": 2})
        assert await session.get_state("plan", "2") == {"a": 2}

    async def test_a_state_that_only_resembles_the_one_in_force_is_written(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one"))
        for one, other in [*DIFFERENT, *((second, first) for first, second in DIFFERENT)]:
            await session.set_state("plan", None)
            await session.set_state("plan", one)
            version = await session.get_version()

            await session.set_state("plan", other)

            assert repr(await session.get_state("plan")) == repr(other)
            assert await session.get_version() == version + 1

    async def test_a_state_is_replaced_where_it_was_set(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"))
        for step in range(20):
            await session.set_state("plan", {"step": step})
            assert await session.get_state("plan") == {"step": step}
        await session.set_state("plan", None)

        assert await session.get_states() == {}
        exported = await SessionManager(store).export_session("s")
        assert len(exported["states"]) <= 1

    async def test_checkout_brings_the_state_of_that_point(self, store: Store) -> None:
        session = Session(store, "s")
        for step in range(8):
            await session.append_message(user("x", id=f"{step}"), state={"plan": {"step": step}})

        for step in (3, 7, 0, 5):
            await session.checkout(f"{step}")
            assert await session.get_state("plan") == {"step": step}
            assert await Session(store, "s").get_states() == {"plan": {"step": step}}
        await session.checkout(None)
        assert await session.get_states() == {}
        await session.checkout("2", tip=True)
        assert await session.get_state("plan") == {"step": 7}

    async def test_branches_have_the_state_of_the_point_they_left_and_then_their_own(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"), state={"plan": {"step": 1}})
        await session.append_message(assistant("two", id="2"), state={"plan": {"step": 2}})
        await session.append_message(assistant("other", id="b1"), parent_id="1")
        assert await session.get_state("plan") == {"step": 1}
        await session.set_state("plan", {"step": "b1"})
        await session.append_message(assistant("other", id="b2"))
        await session.append_message(assistant("third", id="c1"), parent_id="1")
        await session.append_message(assistant("deep", id="d1"), parent_id="b1")
        await session.append_message(assistant("deeper", id="d2"), state={"mood": {}})

        assert {id: await session.get_state("plan", id) for id in ("1", "2", "b1", "b2", "c1", "d1", "d2")} == {
            "1": {"step": 1},
            "2": {"step": 2},
            "b1": {"step": "b1"},
            "b2": {"step": "b1"},
            "c1": {"step": 1},
            "d1": {"step": "b1"},
            "d2": {"step": "b1"},
        }
        assert await session.get_states("d1") == {"plan": {"step": "b1"}}

    async def test_a_state_is_found_through_many_branches(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("root", {"is": "root"})
        await session.append_message(user("x", id="0"), state={"first": {"is": "first"}})
        for n in range(1, 60):
            # Twice below the same message, so that each goes on in a lane of its own.
            await session.append_message(user("lost", id=f"lost {n}"), parent_id=f"{n - 1}", state={"first": {"n": n}})
            await session.append_message(user("x", id=f"{n}"), parent_id=f"{n - 1}")

        assert await session.get_states() == {"root": {"is": "root"}, "first": {"is": "first"}}
        assert await session.get_states("lost 59") == {"root": {"is": "root"}, "first": {"n": 59}}

    async def test_the_state_at_an_unknown_message_is_an_error(self, store: Store) -> None:
        for session in (Session(store, "s"), Session(store, "new")):
            if session.session_id == "s":
                await session.append_message(user("one", id="1"), state={"plan": {}})
            for unknown in ("nowhere", *HOSTILE_IDS[:8], "", "\ud800", "x" * 300):
                with pytest.raises(MessageNotFound):
                    await session.get_state("plan", unknown)
                with pytest.raises(MessageNotFound):
                    await session.get_states(unknown)

    async def test_states_belong_to_one_session_of_one_owner(self, store: Store) -> None:
        mine = Session(store, "s", user_id="alice")
        others = [Session(store, "s"), Session(store, "s", user_id="alice", agent_id="x"), Session(store, "t")]
        for session in (mine, *others):
            await session.append_message(user("one", id="1"))

        await mine.set_state("plan", {"of": "alice"})

        for other in others:
            assert await other.get_states() == {}
            await other.set_state("plan", {"of": "another"})
        assert await mine.get_states() == {"plan": {"of": "alice"}}


class _WithMessages:
    """States that come with messages."""

    async def test_a_state_comes_with_its_message_in_one_change(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"))
        version = await session.get_version()

        stored = await session.append_message(user("two", id="2"), state={"plan": {"step": 2}, "mood": {}})

        assert stored == await session.get_message("2")
        assert await session.get_states() == {"plan": {"step": 2}, "mood": {}}
        assert await session.get_states("1") == {}
        assert await session.get_version() == version + 1

    async def test_the_states_of_a_batch_go_to_its_last_message(self, store: Store) -> None:
        session = Session(store, "s")

        await session.append_messages([user(f"{n}", id=f"{n}") for n in range(4)], state={"plan": {"n": 3}})
        await session.append_messages([user("x", id="x"), user("y", id="y")], "1", state={"plan": {"n": "y"}})
        await session.append_messages([user("r", id="r")], parent_id=None, state={"plan": {"n": "r"}})

        assert [await session.get_state("plan", id) for id in ("0", "2", "3", "x", "y", "r")] == [
            None,
            None,
            {"n": 3},
            None,
            {"n": "y"},
            {"n": "r"},
        ]

    async def test_a_known_message_is_given_the_state_too(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"{n}", id=f"{n}") for n in range(4)])

        await session.append_message(user("1", id="1"), state={"plan": {"n": 1}})
        # The last of a batch is given it, whether or not another one is new.
        await session.append_messages([user("new", id="new"), user("2", id="2")], "3", state={"plan": {"n": 2}})

        assert [await session.get_state("plan", id) for id in ("0", "1", "2", "3", "new")] == [
            None,
            {"n": 1},
            {"n": 2},
            {"n": 2},
            {"n": 2},
        ]
        assert (await session.get_latest_leaf() or user("")).id == "new"
        assert [m.id for m in await session.get_history("new")] == ["0", "1", "2", "3", "new"]

    async def test_a_retry_of_an_append_with_a_state_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        for _ in range(3):
            await session.append_message(user("one", id="1"), state={"plan": {"step": 1}})
            assert await session.get_version() == 1
            assert await session.get_states() == {"plan": {"step": 1}}

    async def test_without_a_message_there_is_nothing_to_attach_to(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(ValueError, match="set_state"):
            await session.append_messages([], state={"plan": {}})
        assert await session.append_messages([], state={}) == []

        assert await session.get_version() == 0

    async def test_an_append_that_is_refused_attaches_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one", id="1"))

        with pytest.raises(MessageNotFound):
            await session.append_message(user("two", id="2"), "nowhere", state={"plan": {}})

        assert await session.get_states() == {}
        assert await session.get_version() == 1

    async def test_concurrent_appends_keep_each_its_own_state(self, store: Store) -> None:
        session = Session(store, "s")

        await asyncio.gather(
            *(session.append_message(user("x", id=f"{n}"), state={"plan": {"n": n}}) for n in range(30))
        )

        assert [await session.get_state("plan", f"{n}") for n in range(30)] == [{"n": n} for n in range(30)]
        assert await session.get_path_length() == 30

    async def test_of_concurrent_sets_one_is_in_force_in_the_end(self, store: Store) -> None:
        sessions = [Session(store, "s") for _ in range(4)]
        await sessions[0].append_message(user("one"))

        await asyncio.gather(*(sessions[n % 4].set_state("plan", {"n": n}) for n in range(20)))

        seen = [await session.get_state("plan") for session in sessions]
        assert seen[0] in [{"n": n} for n in range(20)]
        assert seen == [seen[0]] * 4


class _Changes:
    """What followers see."""

    async def test_a_state_is_a_change_of_its_message(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("plan", {"step": 0})
        await session.append_message(user("one", id="1"), state={"plan": {"step": 1}})
        await session.append_message(user("two", id="2"))
        await session.set_state("plan", {"step": 2})
        await session.set_state("plan", {"step": 2})
        await session.append_message(user("one", id="1"), state={"mood": {}})
        await session.set_state("plan", None)

        changes = await changes_until(session, await session.get_version(), messages=True)

        assert [(change.kind, change.message_ids) for change in changes] == [
            ("state", []),
            ("append", ["1"]),
            ("append", ["2"]),
            ("state", ["2"]),
            ("state", ["1"]),
            ("state", ["2"]),
        ]
        assert [change.version for change in changes] == [1, 2, 3, 4, 5, 6]
        assert [[m.text for m in change.messages] for change in changes[3:]] == [["two"], ["one"], ["two"]]

    async def test_setting_a_state_moves_neither_the_leaf_nor_a_message(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("one", id="1"), user("two", id="2")])
        await session.checkout("1")
        before = await session.get_tree(), await session.get_latest_leaf(), await session.estimate_tokens()
        info = await SessionManager(store).get("s")

        await session.set_state("plan", {"step": 1})

        assert (await session.get_tree(), await session.get_latest_leaf(), await session.estimate_tokens()) == before
        after = await SessionManager(store).get("s")
        assert info is not None
        assert after is not None
        assert after.updated_at > info.updated_at


@pytest.mark.asyncio
class AttachedStateContract(_InForce, _WithMessages, _Changes, AttachedValues, AttachedDeletion, AttachedCopies):
    """A state is attached to a message and holds from there on, in every copy of the session too.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
