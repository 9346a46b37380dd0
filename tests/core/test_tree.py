from __future__ import annotations

from leafward import Message
from leafward.core.lanes import before_first
from leafward.core.tree import PREVIEW_LENGTH, Branch, Outline, build_tree, preview


def branch(place: int, seq: int) -> Branch:
    return Branch(place, seq, Message("user", f"text {seq}", id=f"m{seq}"))


def test_children_of_an_emptied_lane_hang_on_the_nearest_message_above() -> None:
    # Lane 2 branched from m1 and lost all it had; lane 3 branched from there.
    one, two, three = before_first(1), before_first(2), before_first(3)
    outline = Outline(
        [branch(one + 1, 1), branch(one + 2, 2), branch(three + 1, 5)],
        {1: None, 2: one + 1, 3: two + 1},
        {"m5": "here"},
        three + 1,
    )
    nodes = {node.id: node for node in build_tree(outline)}
    assert nodes["m5"].parent_id == "m1"
    assert nodes["m1"].children == ["m2", "m5"]
    assert [node for node in nodes if nodes[node].on_path] == ["m1", "m5"]
    assert (nodes["m5"].label, nodes["m2"].label) == ("here", None)


def test_a_preview_is_one_short_line() -> None:
    assert preview(Message("user", "a\n  b")) == "a b"
    assert len(preview(Message("user", "long " * 100))) == PREVIEW_LENGTH
    assert preview(Message("assistant", [{"type": "tool_use", "id": "1", "name": "weather", "input": {}}])) == "weather"
