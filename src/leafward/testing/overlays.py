"""What summaries laid over a path promise: they hide nothing for good, and they keep to their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, MessageNotFound, Session, user
from leafward.testing.overlay_reading import OverlayReadingContract
from leafward.testing.speaking import said, spoken, texts

if TYPE_CHECKING:
    from leafward.stores import Store


class _Covering:
    """Which messages a summary stands for."""

    async def test_a_summary_stands_where_its_messages_were(self, store: Store) -> None:
        session = await spoken(store, 6)
        raw, tree = await session.get_history(), await session.get_tree()

        made = await session.add_compaction("in short", "1", "3")

        assert texts(await session.get_history()) == ["m0", "in short", "m4", "m5"]
        assert (made.summary, made.from_message_id, made.to_message_id) == ("in short", "1", "3")
        assert await session.get_raw_history() == raw
        assert await session.get_tree() == tree
        assert await session.get_path_length() == 6
        assert await session.get_message("2") == raw[2]

    async def test_covered_messages_are_found_and_summaries_are_not(self, store: Store) -> None:
        session = await spoken(store, 4)
        await session.add_compaction("elephants", "1", "2")

        assert [result.id for result in await session.search("m1")] == ["1"]
        assert await session.search("elephants") == []

    async def test_a_summary_is_one_assistant_message_the_same_to_the_byte(self, store: Store) -> None:
        session = await spoken(store, 3)
        made = await session.add_compaction("🦊 in short\n\x00", "0", "1")

        summary, _ = await session.get_history()
        again, _ = await Session(store, "s").get_history()

        assert summary.id == f"compaction_{made.id}"
        assert (summary.role, summary.parts) == ("assistant", [{"type": "text", "text": "🦊 in short\n\x00"}])
        assert summary.created_at == made.created_at
        assert list(again.to_dict().items()) == list(summary.to_dict().items())

    async def test_compactions_are_listed_in_the_order_they_were_made(self, store: Store) -> None:
        session = await spoken(store, 8)
        assert await session.get_compactions() == []

        made = [
            await session.add_compaction("late", "5", "6"),
            await session.add_compaction("early", "1", "2"),
            await session.add_compaction("all", "1", "6"),
        ]

        assert await Session(store, "s").get_compactions() == made
        assert len({one.id for one in made}) == 3

    async def test_one_message_may_have_a_summary_of_its_own(self, store: Store) -> None:
        session = await spoken(store, 3)

        await session.add_compaction("the middle", "1", "1")

        assert texts(await session.get_history()) == ["m0", "the middle", "m2"]

    async def test_a_wider_summary_takes_the_place_of_those_inside_it(self, store: Store) -> None:
        session = await spoken(store, 9)
        await session.add_compaction("a", "1", "2")
        await session.add_compaction("b", "4", "5")

        await session.add_compaction("a and b", "1", "6")

        assert texts(await session.get_history()) == ["m0", "a and b", "m7", "m8"]
        assert len(await session.get_compactions()) == 3

    async def test_a_later_summary_of_the_same_messages_shows(self, store: Store) -> None:
        session = await spoken(store, 4)
        for summary in ("first", "second", "third"):
            await session.add_compaction(summary, "1", "2")

        assert texts(await session.get_history()) == ["m0", "third", "m3"]

    async def test_an_end_that_is_a_summary_means_what_that_covers(self, store: Store) -> None:
        session = await spoken(store, 9)
        first = await session.add_compaction("a", "1", "3")
        last = await session.add_compaction("b", "5", "6")

        both = await session.add_compaction("all", f"compaction_{first.id}", f"compaction_{last.id}")

        assert (both.from_message_id, both.to_message_id) == ("1", "6")
        assert texts(await session.get_history()) == ["m0", "all", "m7", "m8"]
        again = await session.add_compaction("again", f"compaction_{first.id}", "7")
        assert (again.from_message_id, again.to_message_id) == ("1", "7")

    async def test_a_summary_contains_or_avoids_each_earlier_one(self, store: Store) -> None:
        session = await spoken(store, 9)
        earlier = await session.add_compaction("earlier", "2", "5")
        version = await session.get_version()

        for first, last in (("1", "3"), ("4", "7"), ("3", "4"), ("2", "4"), ("3", "5"), ("1", "2"), ("5", "8")):
            with pytest.raises(ValueError, match="cross"):
                await session.add_compaction("no", first, last)

        assert await session.get_compactions() == [earlier]
        assert await session.get_version() == version
        for first, last in (("0", "1"), ("6", "8"), ("2", "5"), ("0", "8")):
            await session.add_compaction("yes", first, last)

    async def test_ends_are_messages_of_one_path_in_their_order(self, store: Store) -> None:
        session = await spoken(store, 4)
        await session.append_message(user("aside", id="aside"), parent_id="1")
        await Session(store, "other").append_message(user("elsewhere", id="elsewhere"))

        for missing in ("nowhere", "elsewhere", "compaction_nowhere", "compaction_", "", "\x00"):
            with pytest.raises(MessageNotFound):
                await session.add_compaction("no", "0", missing)
            with pytest.raises(MessageNotFound):
                await session.add_compaction("no", missing, "2")
        for first, last in (("2", "1"), ("2", "aside"), ("aside", "3")):
            with pytest.raises(ValueError, match="path"):
                await session.add_compaction("no", first, last)
        assert await session.get_compactions() == []
        with pytest.raises(MessageNotFound):
            await Session(store, "empty").add_compaction("no", "0", "1")

    @pytest.mark.parametrize("summary", ["", " \n", None, 7, ["text"]])
    async def test_a_summary_is_a_text_that_says_something(self, store: Store, summary: Any) -> None:
        session = await spoken(store, 3)

        with pytest.raises(ValueError, match="summary"):
            await session.add_compaction(summary, "0", "1")

        assert texts(await session.get_history()) == ["m0", "m1", "m2"]

    async def test_a_summary_of_any_text_is_listed_as_it_is_shown(self, store: Store) -> None:
        session = await spoken(store, 3)

        made = await session.add_compaction("odd \ud800 \x00 '; -- 京", "0", "1")

        assert made.summary == "odd \ufffd \x00 '; -- 京"
        assert texts(await session.get_history()) == [made.summary, "m2"]
        assert await session.get_compactions() == [made]

    async def test_a_client_cannot_store_a_summary_as_a_message(self, store: Store) -> None:
        session = await spoken(store, 3)
        await session.add_compaction("in short", "0", "1")
        echoed, _ = await session.get_history()

        for write in (session.append_message, session.upsert_message, session.update_message):
            with pytest.raises(InvalidId):
                await write(echoed)
        with pytest.raises(InvalidId):
            await session.append_messages([user("fine"), echoed.to_dict()])
        with pytest.raises(MessageNotFound):
            await session.append_message(user("below it"), parent_id=echoed.id)

        assert await session.get_message(echoed.id) is None
        assert await session.delete_messages([echoed.id]) == 0
        assert texts(await session.get_history()) == ["in short", "m2"]


class _Branches:
    """On which paths a summary applies."""

    async def test_a_summary_applies_wherever_both_its_ends_are_on_the_path(self, store: Store) -> None:
        session = await spoken(store, 5)
        await session.append_message(user("inside", id="inside"), parent_id="2")
        await session.append_message(user("after", id="after"), parent_id="3")
        await session.add_compaction("in short", "1", "3")

        assert texts(await session.get_history("4")) == ["m0", "in short", "m4"]
        assert texts(await session.get_history("3")) == ["m0", "in short"]
        assert texts(await session.get_history("after")) == ["m0", "in short", "after"]
        assert texts(await session.get_history("inside")) == ["m0", "m1", "m2", "inside"]
        assert texts(await session.get_history("2")) == ["m0", "m1", "m2"]

    async def test_summaries_of_sibling_branches_leave_each_other_alone(self, store: Store) -> None:
        session = await spoken(store, 2)
        for branch in ("a", "b"):
            await session.append_messages([user(f"{branch}{n}", id=f"{branch}{n}") for n in range(3)], parent_id="0")
            await session.add_compaction(f"{branch} in short", "0", f"{branch}1")

        assert texts(await session.get_history("a2")) == ["a in short", "a2"]
        assert texts(await session.get_history("b2")) == ["b in short", "b2"]
        assert texts(await session.get_history("1")) == ["m0", "m1"]

    async def test_leaf_and_labels_stay_where_they_are(self, store: Store) -> None:
        session = await spoken(store, 5)
        await session.label("2", "here")
        await session.checkout("3")

        await session.add_compaction("in short", "1", "2")

        leaf = await session.get_latest_leaf()
        assert leaf is not None
        assert leaf.id == "3"
        assert await session.get_labels() == {"2": "here"}
        await session.label("1", "covered")
        await session.append_message(user("branch"))
        assert texts(await session.get_history()) == ["m0", "in short", "m3", "branch"]
        await session.checkout("1")
        assert texts(await session.get_history()) == ["m0", "m1"]

    async def test_summaries_that_come_to_cross_both_show_and_cover_the_union(self, store: Store) -> None:
        session = await spoken(store, 5)
        await session.append_messages([user("x", id="x"), user("y", id="y")], parent_id="3")
        one = await session.add_compaction("one", "1", "4")
        two = await session.add_compaction("two", "3", "x")

        # Without "4" the first ends at "3", which the second covers too, on the path to "y".
        await session.delete_messages(["4"])

        assert texts(await session.get_history("y")) == ["m0", "one", "two", "y"]
        assert [m.text async for m in session.iter_history("y", newest_first=True)] == ["y", "two", "one", "m0"]
        for end in (one, two):
            with pytest.raises(ValueError, match="cross"):
                await session.add_compaction("half", f"compaction_{end.id}", f"compaction_{end.id}")
        await session.add_compaction("both", f"compaction_{one.id}", f"compaction_{two.id}")
        assert texts(await session.get_history("y")) == ["m0", "both", "y"]


class _Changing:
    """What becomes of a summary when messages change or go."""

    async def test_changing_or_deleting_a_covered_message_leaves_the_summary(self, store: Store) -> None:
        session = await spoken(store, 6)
        made = await session.add_compaction("in short", "1", "4")

        await session.update_message(user("new", id="2"))
        await session.delete_messages(["3"])

        assert texts(await session.get_history()) == ["m0", "in short", "m5"]
        assert texts(await session.get_raw_history()) == ["m0", "m1", "new", "m4", "m5"]
        assert await session.get_compactions() == [made]

    async def test_a_deleted_end_moves_inward_to_the_nearest_survivor(self, store: Store) -> None:
        session = await spoken(store, 8)
        await session.add_compaction("in short", "1", "6")
        ends: list[tuple[str, str]] = []
        shown: list[list[str]] = []

        for gone in (["1"], ["6", "5"], ["2", "4"]):
            await session.delete_messages(gone)
            (one,) = await session.get_compactions()
            ends.append((one.from_message_id, one.to_message_id))
            shown.append(texts(await session.get_history()))

        assert ends == [("2", "6"), ("2", "4"), ("3", "3")]
        assert shown == [["m0", "in short", "m7"]] * 3

    async def test_a_summary_of_nothing_goes(self, store: Store) -> None:
        session = await spoken(store, 6)
        await session.add_compaction("in short", "1", "3")
        await session.delete_messages(["1", "2"])
        assert texts(await session.get_history()) == ["m0", "in short", "m4", "m5"]

        await session.delete_messages(["3"])

        assert texts(await session.get_history()) == ["m0", "m4", "m5"]
        assert await session.get_compactions() == []

    async def test_a_message_stored_again_is_not_covered_by_the_old_summary(self, store: Store) -> None:
        session = await spoken(store, 3)
        await session.add_compaction("in short", "1", "2")
        await session.delete_messages(["2"])

        await session.append_message(user("again", id="2"))

        assert texts(await session.get_history()) == ["m0", "in short", "again"]

    async def test_what_lay_below_a_deleted_end_stays_in_sight(self, store: Store) -> None:
        session = await spoken(store, 5)
        await session.append_message(user("branch", id="branch"), parent_id="3")
        await session.add_compaction("in short", "1", "3")

        await session.delete_messages(["3"])

        assert texts(await session.get_history("4")) == ["m0", "in short", "m4"]
        assert texts(await session.get_history("branch")) == ["m0", "in short", "branch"]
        assert texts(await session.get_history("2")) == ["m0", "in short"]

    async def test_clearing_takes_the_summaries_along(self, store: Store) -> None:
        session = await spoken(store, 3)
        made = await session.add_compaction("in short", "0", "1")

        await session.clear_messages()
        await session.append_messages(said(3))

        assert await session.get_compactions() == []
        assert texts(await session.get_history()) == ["m0", "m1", "m2"]
        with pytest.raises(MessageNotFound):
            await session.add_compaction("no", f"compaction_{made.id}", "1")


class OverlayContract(_Covering, _Branches, _Changing, OverlayReadingContract):
    """Summaries laid over a path by hand. Part of `CompactionContract`."""
