"""What the tree of a session promises: branches, the leaf, checkout, labels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from leafward import MessageNotFound, Session, user
from leafward.testing.history import HistoryContract
from leafward.testing.tips import TipContract, grow_family, leaf_id

if TYPE_CHECKING:
    from leafward.stores import Store


class _Branches:
    """Who descends from whom."""

    async def test_an_empty_session_has_nothing_and_says_so(self, store: Store) -> None:
        session = Session(store, "s")

        assert await session.get_history() == []
        assert await session.get_raw_history() == []
        assert [m async for m in session.iter_history()] == []
        assert await session.get_latest_leaf() is None
        assert await session.get_path_length() == 0
        assert await session.get_branches(None) == []
        assert await session.get_leaves() == []
        assert await session.get_tree() == []
        assert await session.get_labels() == {}
        assert await session.get_message("nobody") is None
        assert await session.search("anything") == []
        assert await session.get_version() == 0

    async def test_each_branch_is_read_by_its_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        paths = {leaf: [m.id for m in await session.get_history(leaf)] for leaf in ("root", "c", "d", "f")}

        assert paths == {
            "root": ["root"],
            "c": ["root", "a", "b", "c"],
            "d": ["root", "a", "b", "d"],
            "f": ["root", "a", "e", "f"],
        }
        assert [await session.get_path_length(leaf) for leaf in paths] == [1, 4, 4, 4]
        assert await session.get_path_length() == 4

    async def test_branches_are_children_in_the_order_they_were_stored(self, store: Store) -> None:
        session = Session(store, "s")
        clock = datetime(2024, 1, 1, tzinfo=UTC)
        await session.append_message(user("parent", id="parent", created_at=clock))
        # Neither clocks nor ids say what came first: both run backwards here.
        for n in range(9, 0, -1):
            child = user(f"{n}", id=f"child {n}", created_at=clock + timedelta(minutes=n))
            await session.append_message(child, parent_id="parent")
        await session.update_message(user("updated", id="child 5"))

        children = [m.id for m in await session.get_branches("parent")]

        assert children == [f"child {n}" for n in range(9, 0, -1)]

    async def test_roots_are_the_branches_of_none(self, store: Store) -> None:
        session = Session(store, "s")
        for name in ("z", "a", "m"):
            await session.append_message(user(name, id=name), parent_id=None)
        await session.append_message(user("child", id="child"), parent_id="a")

        assert [m.id for m in await session.get_branches(None)] == ["z", "a", "m"]
        assert [await session.get_parent(root) for root in ("z", "a", "m")] == [None] * 3

    async def test_parents_are_the_messages_appended_to(self, store: Store) -> None:
        session = Session(store, "s")
        family = await grow_family(session)

        parents = {name: await session.get_parent(name) for name in family}

        wanted = {"root": None, "a": "root", "b": "a", "c": "b", "d": "b", "e": "a", "f": "e"}
        assert parents == {name: family[parent] if parent else None for name, parent in wanted.items()}

    async def test_leaves_are_the_messages_without_children(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        assert [m.id for m in await session.get_leaves()] == ["c", "d", "f"]

        await session.delete_messages(["c", "d"])

        assert [m.id for m in await session.get_leaves()] == ["b", "f"]

    async def test_unknown_ids_raise_except_in_get_message(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.delete_messages(["d"])
        version = await session.get_version()

        for unknown in ("nowhere", "d", "ROOT", "", "compaction_1"):
            assert await session.get_message(unknown) is None
            for call in (
                session.get_history,
                session.get_raw_history,
                session.get_parent,
                session.get_branches,
                session.get_path_length,
                session.checkout,
            ):
                with pytest.raises(MessageNotFound):
                    await call(unknown)
            with pytest.raises(MessageNotFound):
                await session.label(unknown, "name")
            for newest_first in (False, True):
                with pytest.raises(MessageNotFound):
                    [m async for m in session.iter_history(unknown, newest_first=newest_first)]

        assert await session.get_version() == version
        assert await leaf_id(session) == "f"

    async def test_children_of_a_deleted_message_attach_to_its_nearest_surviving_ancestor(self, store: Store) -> None:
        session = Session(store, "s")
        family = await grow_family(session)

        await session.delete_messages(["b", "a"])

        assert [m.id for m in await session.get_branches("root")] == ["c", "d", "e"]
        assert await session.get_parent("c") == family["root"]
        assert [m.id for m in await session.get_history("d")] == ["root", "d"]
        assert await session.get_path_length("f") == 3

    async def test_children_of_a_deleted_root_become_roots(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.delete_messages(["root", "a"])

        assert [m.id for m in await session.get_branches(None)] == ["b", "e"]
        assert await session.get_parent("e") is None
        assert [m.id for m in await session.get_history()] == ["e", "f"]

    async def test_a_branch_off_a_deleted_tail_gains_no_foreign_ancestor(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(name, id=name) for name in ("a", "b", "c")])
        await session.append_message(user("x", id="x"), parent_id="c")
        await session.append_message(user("y", id="y"), parent_id="c")
        await session.delete_messages(["x", "c"])
        await session.checkout("b")

        await session.append_messages([user(name, id=name) for name in ("d", "e")])

        assert [m.id for m in await session.get_history("y")] == ["a", "b", "y"]
        assert [m.id for m in await session.get_history("e")] == ["a", "b", "d", "e"]
        assert [m.id for m in await session.get_branches("b")] == ["y", "d"]

    async def test_tree_lists_parents_before_children_and_names_them(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.append_message(user("another", id="root 2"), parent_id=None)
        await session.checkout("b")
        await session.label("e", "the other way")

        tree = await session.get_tree()

        nodes = {node.id: node for node in tree}
        seen: set[str | None] = {None}
        for node in tree:
            assert node.parent_id in seen
            seen.add(node.id)
        assert len(tree) == len(nodes) == 8
        assert {name: list(node.children) for name, node in nodes.items()} == {
            "root": ["a"],
            "a": ["b", "e"],
            "b": ["c", "d"],
            "c": [],
            "d": [],
            "e": ["f"],
            "f": [],
            "root 2": [],
        }
        assert {name for name, node in nodes.items() if node.parent_id is None} == {"root", "root 2"}
        assert {name for name, node in nodes.items() if node.on_path} == {"root", "a", "b"}
        assert {name: node.label for name, node in nodes.items() if node.label} == {"e": "the other way"}
        assert (nodes["d"].role, nodes["a"].role) == ("assistant", "user")
        assert "another" in nodes["root 2"].preview

    async def test_a_path_through_many_branches_is_whole(self, store: Store) -> None:
        session = Session(store, "s")
        path = [await session.append_message(user("0", id="0"))]
        for n in range(1, 200):
            await session.append_message(user("aside", id=f"aside {n}"), parent_id=path[-1].id)
            path.append(await session.append_message(user(f"{n}", id=f"{n}"), parent_id=path[-1].id))

        assert await session.get_history() == path
        assert [m async for m in session.iter_history(newest_first=True)] == path[::-1]
        assert await session.get_path_length() == 200
        assert await session.get_path_length("aside 150") == 151
        assert len(await session.get_leaves()) == 200


class _Leaf:
    """The stored pointer to where the conversation goes on."""

    async def test_every_append_that_inserts_moves_the_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        assert await leaf_id(session) == "f"

        await session.append_message(user("g", id="g"), parent_id="root")
        assert await leaf_id(session) == "g"
        await session.append_message(user("h", id="h"), parent_id=None)
        assert await leaf_id(session) == "h"
        await session.upsert_message(user("i", id="i"), parent_id="c")
        assert await leaf_id(session) == "i"

    async def test_what_inserts_nothing_leaves_the_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.checkout("b")

        await session.update_message(user("new words", id="f"))
        await session.upsert_message(user("new words", id="c"))
        await session.append_message(user("known", id="d"))
        await session.append_messages([user("known", id="root"), user("known", id="f")])
        await session.label("f", "end")
        await session.delete_messages(["f", "nowhere"])

        assert await leaf_id(session) == "b"

    async def test_checkout_goes_on_from_any_message(self, store: Store) -> None:
        session = Session(store, "s")
        family = await grow_family(session)

        await session.checkout("b")

        assert await session.get_latest_leaf() == family["b"]
        assert [m.id for m in await session.get_history()] == ["root", "a", "b"]
        assert await session.get_path_length() == 3
        again = await session.append_message(user("again", id="again"))
        assert await session.get_parent("again") == family["b"]
        assert await session.get_latest_leaf() == again

    async def test_checkout_of_none_stands_before_the_first_message(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.checkout(None)

        assert await session.get_latest_leaf() is None
        assert await session.get_history() == []
        assert await session.get_path_length() == 0
        assert not any(node.on_path for node in await session.get_tree())
        start = await session.append_message(user("start"))
        assert await session.get_history() == [start]
        assert [m.id for m in await session.get_branches(None)] == ["root", start.id]

    async def test_a_deleted_leaf_becomes_its_nearest_surviving_ancestor(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.delete_messages(["f"])
        assert await leaf_id(session) == "e"
        await session.delete_messages(["a", "e"])
        assert await leaf_id(session) == "root"
        await session.delete_messages(["root"])
        assert await session.get_latest_leaf() is None
        assert await session.get_history() == []

        root = await session.append_message(user("new root"))
        assert await session.get_parent(root.id) is None

    async def test_a_deleted_checkout_becomes_its_nearest_surviving_ancestor(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.checkout("b")

        await session.delete_messages(["b"])

        assert await leaf_id(session) == "a"
        await session.append_message(user("next", id="next"))
        assert [m.id for m in await session.get_branches("a")] == ["c", "d", "e", "next"]

    async def test_two_handles_share_one_leaf(self, store: Store) -> None:
        one, two = Session(store, "s"), Session(store, "s")
        await grow_family(one)

        await two.checkout("c")
        await one.append_message(user("g", id="g"))

        assert [m.id for m in await two.get_history()] == ["root", "a", "b", "c", "g"]


class _Labels:
    """Names people give to messages."""

    async def test_a_label_names_a_message_until_it_is_cleared(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)

        await session.label("b", "before the change")
        await session.label("e", "同じ名前 🦊 e\u0301 '\"")
        await session.label("f", "同じ名前 🦊 e\u0301 '\"")
        await session.label("b", "renamed")
        await session.label("a", None)

        assert await session.get_labels() == {
            "b": "renamed",
            "e": "同じ名前 🦊 e\u0301 '\"",
            "f": "同じ名前 🦊 e\u0301 '\"",
        }
        await session.label("b", None)
        assert sorted(await session.get_labels()) == ["e", "f"]

    async def test_a_label_goes_with_its_message(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.label("b", "gone soon")
        await session.label("c", "stays")

        await session.delete_messages(["b"])
        await session.append_message(user("b again", id="b"))

        assert await session.get_labels() == {"c": "stays"}

    async def test_an_update_keeps_the_label(self, store: Store) -> None:
        session = Session(store, "s")
        await grow_family(session)
        await session.label("b", "kept")

        await session.update_message(user("new words", id="b"))

        assert await session.get_labels() == {"b": "kept"}


@pytest.mark.asyncio
class TreeContract(_Branches, _Leaf, _Labels, TipContract, HistoryContract):
    """A session is a tree with one stored leaf, read by paths of any length.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
