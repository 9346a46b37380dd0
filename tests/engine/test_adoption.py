"""A context that another writer left in the slot is taken into the tree, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.message import Message, assistant, ids_of, tool_result, user
from leafward.engine.adoption import Adoption, NewSummary, adopt
from leafward.engine.context_view import NO_VIEW, Put, View
from leafward.engine.java_equality import says_the_same
from leafward.engine.summary_messages import shown_id
from tests.engine.contexts import Maker, edited, paths, rounds
from tests.engine.slots import Tree, read_from_slot, seen_by_java, through_java, written_by_java
from tests.formats.sample_parts import PARTS


def texts(*ids: str) -> list[Message]:
    return [user(f"text of {id}", id=id) for id in ids]


def tree_of(messages: Sequence[Message]) -> Tree:
    tree = Tree()
    tree.append(messages, None)
    return tree


def adopted(tree: Tree, slot: Sequence[Message], slot_leaf: str | None = None) -> Adoption:
    """Adopt a slot, and see that this was all there is to do."""
    plan = tree.plan(slot, slot_leaf)
    assert plan == tree.plan(slot, slot_leaf)
    before = dict(tree.messages)
    tree.apply(plan)
    assert before.keys() <= tree.messages.keys()
    again = tree.plan(slot, slot_leaf)
    assert not again.is_needed
    assert again == Adoption(tree.leaf, [], [], tree.view(), is_needed=False)
    return plan


# ── the law ──────────────────────────────────────────────────────────────────


@st.composite
def trees(draw: st.DrawFn, maker: Maker) -> Tree:
    """Draw a tree whose path may have summaries, a view, and messages below the point that the slot shows."""
    tree = tree_of([message for message in draw(paths(maker)) if not message.id.startswith("compaction_")])
    for text in draw(st.lists(st.sampled_from(["They met.", "They met and talked."]), max_size=1)):
        ids = ids_of(tree.path())
        if ids:
            start = draw(st.integers(0, len(ids) - 1))
            tree.summarise(text, ids[start], ids[draw(st.integers(start, len(ids) - 1))])
    if draw(st.booleans()):
        tree.apply(tree.plan(draw(edited(tree.context(), maker))))
    return tree


@given(st.data())
def test_any_context_is_adopted_once_and_then_shown(data: st.DataObject) -> None:
    maker = Maker()
    tree = data.draw(trees(maker))
    slot_leaf = tree.leaf
    slot = tree.context()
    if data.draw(st.booleans()):
        # The tree went on.
        tree.append(data.draw(rounds(maker, whole=True)), tree.leaf)
    if data.draw(st.booleans()):
        slot = through_java(slot)
    slot = data.draw(edited(slot, maker))
    if data.draw(st.booleans()):
        slot = through_java(slot)

    adopted(tree, slot, data.draw(st.sampled_from([None, slot_leaf, tree.leaf])))

    assert seen_by_java(tree.context()) == seen_by_java(slot)


@given(st.data())
def test_what_java_only_read_and_saved_needs_nothing(data: st.DataObject) -> None:
    tree = data.draw(trees(Maker()))

    plan = tree.plan(through_java(tree.context()))

    assert plan == Adoption(tree.leaf, [], [], tree.view(), is_needed=False)


@given(st.data())
def test_a_slot_of_another_branch_is_shown_again(data: st.DataObject) -> None:
    maker = Maker()
    tree = data.draw(trees(maker))
    slot = through_java(tree.context())
    tree.leaf = data.draw(st.sampled_from([None, *tree.raw()]))
    tree.append(data.draw(rounds(maker, whole=True)), tree.leaf)
    slot += texts("new")

    for _ in range(2):
        tree.apply(tree.plan(slot))

    assert not tree.plan(slot).is_needed
    assert seen_by_java(tree.context()) == seen_by_java(slot)


# ── case by case ─────────────────────────────────────────────────────────────


def test_new_messages_go_below_the_leaf() -> None:
    tree, new = tree_of(texts("m1", "m2")), texts("n1", "n2")

    assert adopted(tree, [*tree.context(), *new]) == Adoption("m2", new, [], NO_VIEW)


def test_an_empty_tree_takes_all_of_a_slot() -> None:
    slot = texts("m1", "m2")

    assert adopted(Tree(), slot) == Adoption(None, slot, [], NO_VIEW)


def test_a_tree_that_went_on_keeps_that_as_a_branch() -> None:
    tree, new = tree_of(texts("m1", "m2", "m3")), texts("n1")

    plan = adopted(tree, [*texts("m1", "m2"), *new], "m2")

    assert plan == Adoption("m2", new, [], NO_VIEW)
    assert tree.raw() == ["m1", "m2", "n1"]


def test_a_slot_that_was_cut_at_its_end_moves_the_leaf() -> None:
    tree = tree_of(texts("m1", "m2", "m3"))

    assert adopted(tree, texts("m1")) == Adoption("m1", [], [], NO_VIEW, checkout=True)


def test_a_slot_with_nothing_of_the_tree_begins_at_the_root() -> None:
    tree, new = tree_of(texts("m1")), texts("n1")

    assert adopted(tree, new) == Adoption(None, new, [], NO_VIEW)
    assert adopted(tree, []) == Adoption(None, [], [], NO_VIEW, checkout=True)


def test_a_slot_that_was_cut_at_its_front_is_one_range() -> None:
    tree, new = tree_of(texts("m1", "m2", "m3", "m4")), texts("n1")

    plan = adopted(tree, [*texts("m3", "m4"), *new])

    assert plan == Adoption("m4", new, [], View((("", "m2"),)))


def test_an_edit_is_an_update_that_keeps_what_java_does_not_know() -> None:
    tree = tree_of([user("hello", id="m1", metadata={"a": 1}, mood="good"), *texts("m2")])
    items = written_by_java(tree.context())
    items[0]["content"][0]["text"] = "good bye"

    plan = adopted(tree, read_from_slot(items))

    (changed,) = plan.updated
    assert (plan.parent, plan.appended, plan.view) == ("m2", [], NO_VIEW)
    assert (changed.text, changed.metadata, changed.extra) == ("good bye", {"a": 1}, {"mood": "good"})
    assert changed.at == tree.messages["m1"].at


def test_a_question_that_java_answered_is_an_update() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "rm", "input": {}, "state": "asking"}
    tree = tree_of([*texts("m1"), assistant([call], id="a1")])
    items = written_by_java(tree.context())
    items[1]["content"][0]["state"] = "allowed"

    (changed,) = adopted(tree, read_from_slot(items)).updated

    assert changed.parts == [{**call, "state": "allowed", "content": None, "metadata": {}}]


def test_results_that_came_in_another_order_are_no_rewriting() -> None:
    calls = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ("c1", "c2")]
    rows = [assistant(calls, id="a1"), tool_result("c2", "two", id="r2"), tool_result("c1", "one", id="r1")]
    tree = tree_of([*texts("m1"), *rows])
    new = assistant("done", id="a2")

    plan = adopted(tree, through_java([*tree.context(), new]))

    assert (plan.parent, ids_of(plan.appended), plan.updated, plan.view) == ("r1", ["a2"], [], NO_VIEW)


def test_messages_between_ours_are_a_view() -> None:
    tree = tree_of(texts("m1", "m2"))
    (other,) = texts("n1")

    plan = adopted(tree, [*texts("m1"), other, *texts("m2")])

    assert plan == Adoption("m2", [], [], View((), (Put("m2", other),)))


def test_a_view_of_the_tree_stays_in_force() -> None:
    tree, new = tree_of(texts("m1", "m2")), texts("n1")
    tree.views["m2"] = View((("", "m1"),))

    assert adopted(tree, [*texts("m2"), *new]) == Adoption("m2", new, [], View((("", "m1"),)))


def test_new_messages_go_below_the_leaf_that_the_slot_names_if_it_shows_the_same() -> None:
    tree, new = tree_of(texts("m1", "m2", "m3")), texts("n1")
    tree.views["m3"] = View((("m3", "m3"),))

    plan = tree.plan([*texts("m1", "m2"), *new], "m2")

    assert plan == Adoption("m2", new, [], NO_VIEW)


SHORT = "Here is a summary of the conversation to date:\n\nThey met."
LONG = (
    "You are in the middle of a conversation that has been summarized.\n\nThe full conversation history has been saved "
    "to /ws/log should you need to refer back to it for details.\n\nA condensed summary follows:\n\n"
    "<summary>\nThey met.\n</summary>"
)


def java_summary(text: str, id: str = "__compaction_summary__:8d0f5fb1-8a5e-33cf-a1cb-0f0bfb4d7f20") -> Message:
    return user(text, id=id, name="__compaction_summary__")


@pytest.mark.parametrize("text", [SHORT, LONG])
@pytest.mark.parametrize("id", ["__compaction_summary__:8d0f5fb1-8a5e-33cf-a1cb-0f0bfb4d7f20", "any-other-id"])
def test_a_summary_that_java_made_becomes_an_overlay(text: str, id: str) -> None:
    tree, new = tree_of(texts("m1", "m2", "m3", "m4")), texts("n1")

    plan = adopted(tree, [java_summary(text, id), *texts("m3", "m4"), *new])

    assert plan == Adoption("m4", new, [], NO_VIEW, NewSummary("They met.", "m1", "m2"))
    assert tree.context()[0].text == SHORT


def test_a_summary_of_a_summary_covers_that_too() -> None:
    tree = tree_of(texts("m1", "m2", "m3", "m4"))
    tree.summarise("Earlier.", "m1", "m2")

    plan = adopted(tree, [java_summary(SHORT), *texts("m4")])

    assert plan.overlay == NewSummary("They met.", "compaction_o0", "m3")


def test_a_summary_is_no_overlay_where_another_message_has_its_id() -> None:
    tree = tree_of(texts("m1", "m2"))
    other = user("no summary", id=shown_id("They met."))

    plan = adopted(tree, [java_summary(SHORT, "any"), *texts("m2"), other])

    assert (plan.overlay, plan.appended) == (None, [other])


def test_a_known_summary_under_another_id_takes_no_id_of_another_message() -> None:
    tree = tree_of(texts("m1", "m2"))
    tree.summarise("They met.", "m1", "m1")
    other = user("no summary", id=shown_id("They met."))

    plan = adopted(tree, [java_summary(SHORT, "any"), *texts("m2"), other])

    assert [(one.text, one.id == other.id) for one in plan.appended] == [("no summary", False)]


def test_new_messages_go_below_the_leaf_that_a_summary_covers() -> None:
    tree, new = tree_of(texts("m1", "m2")), texts("n1")
    tree.summarise("They met.", "m1", "m2")

    assert adopted(tree, [*tree.context(), *new]) == Adoption("m2", new, [], NO_VIEW)


def test_a_summary_whose_tail_is_not_known_is_a_message_below_all_that_it_hides() -> None:
    tree = tree_of(texts("m1", "m2"))
    slot = [java_summary(SHORT), *texts("n1")]

    assert adopted(tree, slot) == Adoption("m2", slot, [], View((("", "m2"),)))


def test_a_summary_that_parts_a_call_from_its_result_is_a_view() -> None:
    call = assistant([{"type": "tool_use", "id": "c1", "name": "look", "input": {}}], id="a1")
    tree = tree_of([*texts("m1"), call, tool_result("c1", "x", id="r1")])
    summary = java_summary(SHORT)

    plan = adopted(tree, [summary, tree.messages["r1"]])

    assert plan == Adoption("r1", [], [], View((("", "a1"),), (Put("r1", summary),)))


def test_messages_without_an_id_are_stored_once() -> None:
    tree = tree_of(texts("m1"))
    items = [*written_by_java(tree.context()), {"role": "ASSISTANT", "content": [{"type": "text", "text": "hi"}]}]

    (new,) = adopted(tree, read_from_slot(items)).appended

    assert new.text == "hi"
    assert not tree.plan(read_from_slot([*written_by_java(tree.context()[:1]), *items[1:]])).is_needed


def test_a_second_message_with_one_id_is_kept_under_another() -> None:
    tree = Tree()
    slot = [*texts("m1"), user("another", id="m1")]

    first, second = adopted(tree, slot).appended

    assert (first.id, second.text) == ("m1", "another")
    assert second.id != "m1"


def test_messages_that_a_context_may_not_get_are_adopted() -> None:
    slot = [Message.system("be brief", id="s1"), user("a summary of another tree", id="compaction_9")]

    first, second = adopted(Tree(), slot).appended

    assert (first.role, second.text) == ("system", "a summary of another tree")


# ── what is no edit ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "critic"])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part["type"])
def test_no_kind_of_part_is_edited_by_being_read_and_saved_by_java(part: dict[str, Any], role: str) -> None:
    inside = {"type": "tool_result", "id": "c", "name": "n", "output": [part], "state": "success"}
    usage = {"inputTokens": 3, "outputTokens": 4}
    tree = tree_of(
        [
            Message(role, [part], id="m1", metadata={"a": None, "b": 1}, usage=usage, more="x"),
            Message(role, [inside], id="m2"),
        ]
    )

    assert not tree.plan(through_java(tree.context())).is_needed


@pytest.mark.parametrize(
    "other",
    [
        assistant("hello", id="m"),
        user("hello!", id="m"),
        user("hello", id="m", name="bob"),
        user("hello", id="m", metadata={"a": 1}),
        user("hello", id="m", usage={"inputTokens": 1}),
        user([{"type": "text", "text": "hello"}, {"type": "text", "text": ""}], id="m"),
    ],
)
def test_what_java_keeps_is_compared(other: Message) -> None:
    ours = user("hello", id="m")

    assert says_the_same(ours, through_java([ours])[0])
    assert not says_the_same(ours, other)
    assert adopt([ours], NO_VIEW, "m", [other]).updated != []
