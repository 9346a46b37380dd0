"""A context shows a path, and every change of it is stored so that it is shown again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.errors import StateDecodeError
from leafward.core.json import decode, encode
from leafward.core.message import Message, ids_of, user
from leafward.core.overlays import summary_message
from leafward.engine.context_view import NO_VIEW, Difference, Put, View, difference, render
from tests.engine.contexts import Maker, Stored, changed, edited, paths, said


def texts(*ids: str, role: str = "user") -> list[Message]:
    return [Message.stored(id, role, 0, {"parts": [{"type": "text", "text": f"text of {id}"}]}) for id in ids]


def reply(id: str, *calls: str) -> Message:
    parts = [{"type": "tool_use", "id": call, "name": "look", "input": {}} for call in calls]
    return Message.stored(id, "assistant", 0, {"parts": parts})


def result(id: str, call: str, *, role: str = "tool") -> Message:
    part = {"type": "tool_result", "id": call, "output": "found", "state": "success"}
    return Message.stored(id, role, 0, {"parts": [part]})


# ── showing ──────────────────────────────────────────────────────────────────


def test_a_path_of_plain_messages_is_shown_as_it_is() -> None:
    path = [*texts("u1"), *texts("a1", role="assistant"), *texts("u2")]

    shown = render(path)

    assert all(one is other for one, other in zip(shown, path, strict=True))
    assert shown is not path


@pytest.mark.parametrize("role", ["tool", "user"])
def test_results_of_a_reply_are_shown_in_the_order_of_its_calls(role: str) -> None:
    later = [reply("a2", "c2", "c1"), result("r3", "c2"), result("r4", "c1")]
    path = [*texts("u1"), reply("a1", "c1", "c2", "c3"), *(result(f"of {c}", c, role=role) for c in ("c3", "c1", "c2"))]

    assert ids_of(render([*path, *later])) == ["u1", "a1", "of c1", "of c2", "of c3", "a2", "r3", "r4"]


def test_a_message_between_results_keeps_its_place() -> None:
    path = [reply("a1", "c1", "c2"), result("r2", "c2"), *texts("u1"), result("r1", "c1")]

    assert ids_of(render(path)) == ["a1", "r1", "u1", "r2"]


def test_a_result_of_another_reply_keeps_its_place() -> None:
    path = [reply("a1", "c1", "c2"), result("r0", "c0"), result("r2", "c2"), result("r1", "c1")]

    assert ids_of(render(path)) == ["a1", "r0", "r1", "r2"]


def test_a_result_beside_other_words_keeps_its_place() -> None:
    both = [*result("r2", "c2").parts, {"type": "text", "text": "and go on"}]
    path = [reply("a1", "c1", "c2"), user(both, id="r2"), result("r1", "c1", role="user")]

    assert render(path) == path


def test_a_summary_is_shown_as_agentscope_does() -> None:
    shown = render([summary_message("7", "hello", 5), *texts("u1")])[0]

    assert shown == Message.stored(
        # In Java: UUID.nameUUIDFromBytes("hello".getBytes(UTF_8))
        "__compaction_summary__:5d41402a-bc4b-3a76-b971-9d911017c592",
        "user",
        5,
        {
            "parts": [{"type": "text", "text": "Here is a summary of the conversation to date:\n\nhello"}],
            "name": "__compaction_summary__",
        },
    )


def test_two_summaries_with_one_text_have_two_ids() -> None:
    path = [summary_message("7", "They met.", 5), *texts("u1"), summary_message("8", "They met.", 6)]

    first, _, second = ids_of(render(path))

    assert second == f"{first}#2"


def test_a_view_hides_ranges_and_puts_messages_before_others() -> None:
    path = texts("m1", "m2", "m3", "m4", "m5")
    first, second, third = texts("x1", "x2", "x3")
    view = View((("", "m2"), ("m4", "m4")), (Put("m3", first), Put("m3", second), Put("m4", third)))

    assert ids_of(render(path, view)) == ["x1", "x2", "m3", "x3", "m5"]


@pytest.mark.parametrize("drop", [("gone", "m2"), ("m2", "gone"), ("", "gone"), ("m3", "m1"), ("m2", "")])
def test_a_range_without_both_ends_in_order_hides_nothing(drop: tuple[str, str]) -> None:
    path = texts("m1", "m2", "m3")

    assert render(path, View((drop,))) == path


def test_a_put_before_a_message_that_is_gone_stands_at_the_front() -> None:
    x1, x2 = texts("x1", "x2")

    assert ids_of(render(texts("m1", "m2"), View((), (Put("gone", x1), Put("m2", x2))))) == ["x1", "m1", "x2", "m2"]


# ── what is stored ───────────────────────────────────────────────────────────


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[Message], View, list[Message], Maker]:
    """Draw a path, a view that an earlier change made, the context shown through it, and a maker of new messages."""
    maker = Maker()
    stored = Stored(draw(paths(maker)))
    found = difference(stored.path, NO_VIEW, draw(edited(render(stored.path), maker)))
    stored.apply(found)
    stored.path += draw(paths(maker))
    return stored.path, found.view, render(stored.path, found.view), maker


@given(changes(), st.data())
def test_a_changed_context_is_shown_again_after_its_difference_is_stored(
    change: tuple[list[Message], View, list[Message], Maker], data: st.DataObject
) -> None:
    path, view, shown, maker = change
    context = data.draw(edited(shown, maker))
    new = [id for id in ids_of(context) if id not in set(ids_of(path))]
    stored = Stored(list(path))

    found = difference(path, view, context, arrived=data.draw(st.permutations(new)))

    after = stored.apply(found)
    assert said(render(after, found.view)) == said(context)
    assert View.read(found.view.write()) == found.view
    again = difference(after, found.view, context)
    assert again.is_empty
    assert again.view == found.view


@given(changes())
def test_a_context_that_was_not_changed_needs_nothing_stored(
    change: tuple[list[Message], View, list[Message], Maker],
) -> None:
    path, view, shown, _ = change

    found = difference(path, view, shown)

    assert found == Difference([], [], view)
    assert found.view is view


@given(changes(), st.data())
def test_what_was_rendered_before_changes_nothing_but_the_time_it_takes(
    change: tuple[list[Message], View, list[Message], Maker], data: st.DataObject
) -> None:
    path, view, shown, maker = change
    context = data.draw(edited(shown, maker))

    assert difference(path, view, context, rendered=tuple(shown)) == difference(path, view, context)


def test_new_messages_at_the_end_are_appended() -> None:
    path = texts("m1", "m2")
    new = texts("m3", "m4")

    assert difference(path, NO_VIEW, [*path, *new]) == Difference(new, [], NO_VIEW)


def test_a_message_replaced_under_its_id_is_an_update() -> None:
    path = texts("m1", "m2", "m3")
    other = changed(path[1], "and more")

    assert difference(path, NO_VIEW, [path[0], other, path[2]]) == Difference([], [other], NO_VIEW)


def test_a_message_of_another_time_is_not_an_update() -> None:
    path = texts("m1")
    other = Message.stored("m1", "user", 99, {"parts": [{"type": "text", "text": "text of m1"}]})

    assert difference(path, NO_VIEW, [other]) == Difference([], [], NO_VIEW)


def test_a_cut_at_the_front_is_one_range_however_often_it_moves() -> None:
    path = texts(*(f"m{number}" for number in range(100)))
    view = NO_VIEW
    for size in range(10, 60):
        shown = render(path[:size], view)
        view = difference(path[:size], view, shown[-5:]).view

        assert view == View((("", f"m{size - 6}"),))


def test_what_is_put_in_front_leaves_the_stored_messages_alone() -> None:
    path = texts("m1", "m2")
    (note,) = texts("x")

    assert difference(path, NO_VIEW, [note, *path]) == Difference([], [], View((), (Put("m1", note),)))


def test_a_reordered_context_is_a_view_that_moves_as_little_as_possible() -> None:
    path = texts("m1", "m2", "m3", "m4")
    context = [path[0], path[2], path[1], path[3]]

    found = difference(path, NO_VIEW, context)

    assert found.is_empty
    assert found.view in (View((("m2", "m2"),), (Put("m4", path[1]),)), View((("m3", "m3"),), (Put("m2", path[2]),)))


def test_an_edited_summary_is_a_view() -> None:
    summary = summary_message("7", "They met.", 5)
    path = [summary, *texts("m1")]
    other = changed(render(path)[0], "They met often.")

    found = difference(path, NO_VIEW, [other, path[1]])

    assert found == Difference([], [], View((("", "compaction_7"),), (Put("m1", other),)))


def test_a_summary_as_a_history_has_it_is_the_summary() -> None:
    path = [summary_message("7", "They met.", 5), *texts("m1")]

    assert difference(path, NO_VIEW, path) == Difference([], [], NO_VIEW)


def test_results_are_appended_in_the_order_they_came() -> None:
    path = [*texts("u1"), reply("a1", "c1", "c2", "c3")]
    r1, r2, r3 = (result(f"r{number}", f"c{number}") for number in (1, 2, 3))
    context = [*path, r1, r2, r3, *texts("steer")]

    found = difference(path, NO_VIEW, context, arrived=["r3", "r1", "r2"])

    assert ids_of(found.appended) == ["r3", "r1", "r2", "steer"]
    assert render([*path, *found.appended]) == context


def test_a_result_that_came_later_than_one_of_a_later_call_is_appended() -> None:
    r1, r2 = result("r1", "c1"), result("r2", "c2")
    path = [*texts("u1"), reply("a1", "c1", "c2"), r2]

    assert difference(path, NO_VIEW, [*path[:2], r1, r2]) == Difference([r1], [], NO_VIEW)


def test_results_that_no_call_brings_back_into_order_are_appended_as_the_context_has_them() -> None:
    path = [reply("a1", "c1", "c2")]
    odd = [result("r9", "c9"), result("r8", "c8")]

    assert difference(path, NO_VIEW, [*path, *odd], arrived=["r8", "r9"]) == Difference(odd, [], NO_VIEW)


def test_a_message_the_view_hides_comes_back_at_its_end_without_being_stored_again() -> None:
    path = texts("m1", "m2")
    view = View((("", "m1"),))

    found = difference(path, view, [path[1], path[0]])

    assert found.is_empty
    assert render(path, found.view) == [path[1], path[0]]


def test_a_message_put_between_results_is_not_stored() -> None:
    path = [reply("a1", "c1", "c2"), result("r1", "c1"), result("r2", "c2")]
    (note,) = texts("x")

    assert difference(path, NO_VIEW, [*path[:2], note, path[2]]) == Difference([], [], View((), (Put("r2", note),)))


def test_a_view_about_messages_that_are_gone_stays_in_force() -> None:
    path = texts("m1", "m2")
    view = View((("gone", "m1"), ("m2", "late")), (Put("late", texts("x")[0]),))
    shown = render(path, view)

    assert difference(path, view, shown).view is view
    assert difference(path, view, [*shown, *texts("m3")]).view is view


def test_a_new_message_is_not_hidden_by_a_view_that_names_its_id() -> None:
    path = texts("m1", "m2")
    view = View((("m2", "late"),))
    context = [*render(path, view), *texts("late")]

    found = difference(path, view, context)

    assert render([*path, *found.appended], found.view) == context


def test_a_reply_replaced_by_a_message_of_the_user_moves_no_results() -> None:
    path = [reply("a1", "c1", "c2"), result("r2", "c2"), reply("a2", "c3"), result("r1", "c1")]
    context = [*path[:2], *texts("a2"), path[3]]

    found = difference(path, NO_VIEW, context)

    assert render([*path[:2], *found.updated, path[3]], found.view) == context


def test_two_messages_with_one_id_are_refused() -> None:
    path = texts("m1", "m2")

    for twice in ([*path, path[0]], [*path, *texts("x", "x")]):
        with pytest.raises(ValueError, match="two messages with the id"):
            difference(path, NO_VIEW, twice)


def test_a_new_system_message_is_refused_and_one_of_the_path_is_shown() -> None:
    path = texts("s1", role="system")

    assert difference(path, NO_VIEW, path).is_empty
    for context in ([*path, *texts("s2", role="system")], [*texts("s2", role="system"), *path]):
        with pytest.raises(ValueError, match="system_prompt"):
            difference(path, NO_VIEW, context)


def test_an_id_of_a_summary_is_refused_for_a_new_message() -> None:
    with pytest.raises(ValueError, match="belong to summaries"):
        difference([], NO_VIEW, texts("compaction_9"))


# ── the document ─────────────────────────────────────────────────────────────


def test_a_view_comes_back_from_its_document() -> None:
    (note,) = texts("x")
    view = View((("", "m2"),), (Put("m3", note),))

    document = view.write()

    assert document == {"drop": [["", "m2"]], "put": [{"before": "m3", "message": note.to_dict()}]}
    assert View.read(decode(encode(document))) == view
    assert View.read(None) == NO_VIEW
    assert NO_VIEW.write() is None


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"drop": [["a"]]}, "drop"),
        ({"put": [{"before": "a"}]}, "put"),
        ({"put": [{"before": "a", "message": {"role": "user"}}]}, "put"),
    ],
)
def test_a_document_that_is_not_a_view_is_refused(document: dict[str, Any], place: str) -> None:
    with pytest.raises(StateDecodeError, match=place):
        View.read(document)
