"""What writing promises: append, update, upsert, delete and clear, alone and in batches."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, MessageNotFound, Session, assistant, user
from leafward.testing.content import ContentContract

if TYPE_CHECKING:
    from leafward.stores import Store


class _ForeignMessage:
    """A message of another library: all we know about it is `model_dump()`."""

    def model_dump(self, **_options: object) -> dict[str, Any]:
        return {
            "id": "foreign",
            "role": "user",
            "parts": [{"type": "text", "text": "from elsewhere"}],
            "colour": 7,
        }


class _Appending:
    """One message at a time."""

    async def test_append_returns_what_is_stored(self, store: Store) -> None:
        session = Session(store, "s")

        stored = await session.append_message(user("hello"))

        assert stored == await session.get_message(stored.id)
        assert await session.get_history() == [stored]
        assert (stored.role, stored.text) == ("user", "hello")
        assert stored.created_at.utcoffset() == timedelta(0)

    async def test_append_without_a_parent_continues_from_the_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        first = await session.append_message(user("one"))

        second = await session.append_message(assistant("two"))

        assert await session.get_parent(second.id) == first
        assert await session.get_latest_leaf() == second

    async def test_append_with_no_parent_at_all_makes_a_new_root(self, store: Store) -> None:
        session = Session(store, "s")
        first = await session.append_message(user("one"))

        root = await session.append_message(user("another start"), parent_id=None)

        assert await session.get_parent(root.id) is None
        assert await session.get_branches(None) == [first, root]
        assert await session.get_history() == [root]

    async def test_append_under_an_unknown_parent_raises_and_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        first = await session.append_message(user("one"))
        version = await session.get_version()

        with pytest.raises(MessageNotFound):
            await session.append_message(user("orphan", id="orphan"), parent_id="nowhere")

        assert await session.get_message("orphan") is None
        assert await session.get_history() == [first]
        assert await session.get_version() == version

    async def test_appending_twice_stores_once(self, store: Store) -> None:
        session = Session(store, "s")
        first = await session.append_message(user("original", id="a"))
        await session.append_message(user("later", id="b"))
        version = await session.get_version()

        again = [
            await session.append_message(user("original", id="a")),
            await session.append_message(assistant("other content", id="a")),
            await session.append_message(user("other parent", id="a"), parent_id=None),
            await session.append_message(user("unknown parent", id="a"), parent_id="nowhere"),
        ]

        assert again == [first] * 4
        assert [m.id for m in await session.get_history()] == ["a", "b"]
        assert await session.get_version() == version

    async def test_appending_one_id_at_the_same_time_stores_once(self, store: Store) -> None:
        session = Session(store, "s")

        stored = await asyncio.gather(*(session.append_message(user(f"try {n}", id="a")) for n in range(20)))

        assert len({m.text for m in stored}) == 1
        assert await session.get_history() == [stored[0]]

    async def test_a_deleted_id_is_free_again(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("old", id="a"))
        await session.append_message(user("kept", id="b"))
        await session.delete_messages(["a"])

        new = await session.append_message(user("new", id="a"))

        assert new.text == "new"
        assert [m.text for m in await session.get_history()] == ["kept", "new"]

    async def test_ids_are_unique_per_session_only(self, store: Store) -> None:
        one, two = Session(store, "one"), Session(store, "two")

        await one.append_message(user("in one", id="same"))
        await two.append_message(user("in two", id="same"))

        assert [m.text for m in await one.get_history()] == ["in one"]
        assert [m.text for m in await two.get_history()] == ["in two"]

    async def test_the_prefix_of_summaries_is_refused(self, store: Store) -> None:
        session = Session(store, "s")

        for write in (session.append_message, session.upsert_message):
            with pytest.raises(InvalidId):
                await write(user("mine", id="compaction_1"))
        with pytest.raises(InvalidId):
            await session.append_messages([user("fine"), user("mine", id="compaction_1")])

        assert await session.get_history() == []

    async def test_a_dict_and_a_foreign_object_are_messages_too(self, store: Store) -> None:
        session = Session(store, "s")

        await session.append_message({"id": "d", "role": "user", "parts": [{"type": "text", "text": "a dict"}]})
        await session.append_messages([_ForeignMessage()])

        dictionary, foreign = await session.get_history()
        assert (dictionary.id, dictionary.text) == ("d", "a dict")
        assert (foreign.id, foreign.text) == ("foreign", "from elsewhere")
        assert foreign.to_dict()["colour"] == 7

    async def test_concurrent_appends_form_one_chain_in_the_order_of_the_calls(self, store: Store) -> None:
        handles = [Session(store, "s"), Session(store, "s")]

        await asyncio.gather(*(handles[n % 2].append_message(user(f"m{n}")) for n in range(50)))

        history = await handles[0].get_history()
        assert [m.text for m in history] == [f"m{n}" for n in range(50)]
        assert [await handles[1].get_parent(m.id) for m in history] == [None, *history[:-1]]

    async def test_writes_of_one_session_keep_the_order_of_the_calls(self, store: Store) -> None:
        session = Session(store, "s")
        calls = [session.append_message(user(f"m{n}", id=f"m{n}")) for n in range(6)]
        renames = [session.update_message(user(f"changed {n}", id=f"m{n}")) for n in range(6)]

        await asyncio.gather(*calls, *renames, session.delete_messages(["m0"]), session.append_message(user("last")))

        texts = [message.text for message in await session.get_history()]
        assert texts == [*(f"changed {n}" for n in range(1, 6)), "last"]

    async def test_a_refused_append_fails_alone(self, store: Store) -> None:
        session = Session(store, "s")
        root = await session.append_message(user("root"))
        writes = [session.append_message(user(f"m{n}", id=f"m{n}")) for n in range(10)]
        bad = [session.append_message(user("bad"), parent_id="nowhere") for _ in range(3)]

        results = await asyncio.gather(*writes[:5], *bad, *writes[5:], return_exceptions=True)

        assert [type(r) for r in results if isinstance(r, Exception)] == [MessageNotFound] * 3
        history = await session.get_history()
        assert history[0] == root
        assert {m.id for m in history[1:]} == {f"m{n}" for n in range(10)}


class _Batches:
    """Several messages in one write."""

    async def test_a_batch_is_one_chain_in_its_order(self, store: Store) -> None:
        session = Session(store, "s")
        root = await session.append_message(user("root"))

        stored = await session.append_messages([user("one"), assistant("two"), user("three")])

        assert [m.text for m in stored] == ["one", "two", "three"]
        assert await session.get_history() == [root, *stored]
        assert await session.get_latest_leaf() == stored[-1]

    async def test_a_batch_can_start_at_any_message_or_at_none(self, store: Store) -> None:
        session = Session(store, "s")
        root, _ = await session.append_messages([user("root"), user("middle")])

        under_root = await session.append_messages([user("one"), user("two")], parent_id=root.id)
        as_root = await session.append_messages([user("three"), user("four")], parent_id=None)

        assert await session.get_history(under_root[-1].id) == [root, *under_root]
        assert await session.get_history() == as_root

    async def test_a_batch_is_stored_whole_or_not_at_all(self, store: Store) -> None:
        session = Session(store, "s")
        root = await session.append_message(user("root"))
        version = await session.get_version()

        with pytest.raises(MessageNotFound):
            await session.append_messages([user("one"), user("two")], parent_id="nowhere")
        with pytest.raises(InvalidId):
            await session.append_messages([user("one"), user("two", id="compaction_x")])
        with pytest.raises(ValueError, match=r"."):
            await session.append_messages(
                [user("one"), {"role": "user", "parts": [{"type": "data", "value": float("nan")}]}]
            )

        assert await session.get_leaves() == [root]
        assert await session.get_version() == version

    async def test_a_known_id_in_a_batch_is_kept_and_parents_the_next(self, store: Store) -> None:
        session = Session(store, "s")
        known = await session.append_message(user("known", id="k"))
        await session.append_message(user("tail", id="t"))

        batch = await session.append_messages([user("a", id="a"), user("changed?", id="k"), user("b", id="b")])

        assert [m.id for m in batch] == ["a", "k", "b"]
        assert batch[1] == known
        assert [m.id for m in await session.get_history("a")] == ["k", "t", "a"]
        assert [m.id for m in await session.get_history("b")] == ["k", "b"]
        assert await session.get_latest_leaf() == batch[2]

    async def test_a_repeated_batch_stores_once(self, store: Store) -> None:
        session = Session(store, "s")
        batch = [user("one", id="1"), assistant("two", id="2")]
        first = await session.append_messages(batch)
        await session.append_message(user("later"))
        version, leaf = await session.get_version(), await session.get_latest_leaf()

        again = await session.append_messages(batch)

        assert again == first
        assert await session.get_version() == version
        assert await session.get_latest_leaf() == leaf

    async def test_an_interrupted_batch_continues_when_it_is_sent_again(self, store: Store) -> None:
        session = Session(store, "s")
        batch = [user("one", id="1"), assistant("two", id="2"), user("three", id="3")]
        await session.append_messages(batch[:2])

        await session.append_messages(batch)

        assert [m.id for m in await session.get_history()] == ["1", "2", "3"]

    async def test_the_leaf_is_the_last_message_a_batch_inserted(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("k", id="k"), user("t", id="t")])

        await session.append_messages([user("new", id="new"), user("k", id="k")])

        leaf = await session.get_latest_leaf()
        assert leaf is not None
        assert leaf.id == "new"

    async def test_an_id_twice_in_one_batch_raises_and_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(ValueError, match="twin"):
            await session.append_messages([user("one", id="twin"), user("two", id="twin")])

        assert await session.get_history() == []

    async def test_an_empty_batch_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        root = await session.append_message(user("root"))
        version = await session.get_version()

        assert await session.append_messages([]) == []

        assert await session.get_history() == [root]
        assert await session.get_version() == version


class _Changing:
    """Update, upsert, delete, clear."""

    async def test_update_keeps_parent_place_and_creation_time(self, store: Store) -> None:
        session = Session(store, "s")
        a, b, c = await session.append_messages([user("a", id="a"), user("b", id="b"), user("c", id="c")])

        updated = await session.update_message(assistant("b2", id="b", created_at=datetime(2001, 1, 1, tzinfo=UTC)))

        assert (updated.role, updated.text, updated.created_at) == ("assistant", "b2", b.created_at)
        assert await session.get_history() == [a, updated, c]
        assert await session.get_parent("b") == a
        assert await session.get_latest_leaf() == c

    async def test_update_of_an_unknown_id_raises_and_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(MessageNotFound):
            await session.update_message(user("nobody", id="nobody"))

        assert await session.get_message("nobody") is None
        assert await session.get_version() == 0

    async def test_upsert_inserts_what_is_unknown(self, store: Store) -> None:
        session = Session(store, "s")
        a, b = await session.append_messages([user("a"), user("b")])

        under_leaf = await session.upsert_message(user("c", id="c"))
        under_a = await session.upsert_message(user("d", id="d"), parent_id=a.id)
        root = await session.upsert_message(user("e", id="e"), parent_id=None)

        assert await session.get_history("c") == [a, b, under_leaf]
        assert await session.get_history("d") == [a, under_a]
        assert await session.get_history() == [root]
        with pytest.raises(MessageNotFound):
            await session.upsert_message(user("f", id="f"), parent_id="nowhere")
        assert await session.get_message("f") is None

    async def test_upsert_replaces_what_is_known_and_leaves_it_in_place(self, store: Store) -> None:
        session = Session(store, "s")
        a, b, c = await session.append_messages([user("a", id="a"), user("b", id="b"), user("c", id="c")])

        replaced = await session.upsert_message(assistant("b2", id="b"), parent_id=c.id)

        assert (replaced.role, replaced.text, replaced.created_at) == ("assistant", "b2", b.created_at)
        assert await session.get_history() == [a, replaced, c]
        assert await session.get_latest_leaf() == c

    async def test_delete_says_how_many_were_there(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b"), user("c", id="c")])

        assert await session.delete_messages(["a", "nowhere", "b", "a"]) == 2
        assert await session.delete_messages(["a"]) == 0
        assert await session.delete_messages([]) == 0

        assert [m.id for m in await session.get_history()] == ["c"]
        assert await session.get_message("a") is None

    async def test_many_messages_are_deleted_at_once(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}") for n in range(2500)])

        assert await session.delete_messages([m.id for m in stored[:-1]]) == 2499

        assert await session.get_history() == [stored[-1]]
        assert await session.get_path_length() == 1

    async def test_clear_removes_messages_labels_and_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        await session.append_message(user("branch"), parent_id="a")
        await session.label("a", "start")

        await session.clear_messages()

        assert await session.get_history() == []
        assert await session.get_latest_leaf() is None
        assert await session.get_leaves() == []
        assert await session.get_tree() == []
        assert await session.get_labels() == {}
        assert await session.get_message("a") is None

    async def test_a_cleared_session_starts_anew(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("old", id="a"), user("b", id="b")])
        await session.clear_messages()

        root = await session.append_message(user("new", id="a"))

        assert await session.get_history() == [root]
        assert await session.get_parent("a") is None
        assert await session.get_labels() == {}


@pytest.mark.asyncio
class MessageContract(_Appending, _Batches, _Changing, ContentContract):
    """Writes store exactly what was given, once, whole or not at all.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
