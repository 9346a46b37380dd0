"""A tree drawn as lines."""

from __future__ import annotations

from leafward.cli.tree import MOST_IN_A_RUN, draw_tree
from leafward.core import TreeNode


def nodes(*edges: tuple[str, str | None]) -> list[TreeNode]:
    """Return a tree from pairs of an id and its parent's, in the order they were stored."""
    return [
        TreeNode(
            id=id,
            parent_id=parent,
            role="user",
            preview=id,
            children=[below for below, above in edges if above == id],
            label=None,
            on_path=False,
        )
        for id, parent in edges
    ]


def drawn(tree: list[TreeNode]) -> list[str]:
    return [f"{line.rails}{f'({line.hidden})' if line.hidden else line.node.id}" for line in draw_tree(tree)]


def test_an_empty_session_has_no_lines() -> None:
    assert drawn([]) == []


def test_a_run_is_drawn_straight_down() -> None:
    assert drawn(nodes(("a", None), ("b", "a"), ("c", "b"))) == ["a", "b", "c"]


def test_branches_are_drawn_one_after_the_other_with_rails() -> None:
    tree = nodes(("a", None), ("b", "a"), ("x", "a"), ("c", "b"), ("d", "b"), ("y", "x"))

    assert drawn(tree) == ["a", "├─ b", "│  ├─ c", "│  └─ d", "└─ x", "   y"]


def test_several_roots_stand_side_by_side() -> None:
    assert drawn(nodes(("a", None), ("b", None), ("c", "a"))) == ["├─ a", "│  c", "└─ b"]


def test_a_long_run_is_shown_by_its_ends() -> None:
    names = [f"m{number}" for number in range(MOST_IN_A_RUN + 1)]
    chain = nodes(*zip(names, [None, *names[:-1]], strict=True))

    assert drawn(chain) == ["m0", "m1", f"({MOST_IN_A_RUN - 2})", names[-1]]


def test_a_run_of_any_length_is_drawn() -> None:
    names = [f"m{number}" for number in range(3000)]
    chain = [
        TreeNode(id=one, parent_id=above, role="user", preview="", children=below, label=None, on_path=True)
        for one, above, below in zip(names, [None, *names], [*([name] for name in names[1:]), []], strict=False)
    ]

    assert len(list(draw_tree(chain))) == 4
