"""A session's tree as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from leafward.core import TreeNode

MOST_IN_A_RUN = 5
"""A longer run of messages without a branch is shown by its ends."""


class TreeLine(NamedTuple):
    """One line of a drawn tree: `rails` lead to it, and a gap stands for `hidden` messages."""

    rails: str
    node: TreeNode
    hidden: int = 0


def draw_tree(nodes: Sequence[TreeNode]) -> Iterator[TreeLine]:
    """Yield the lines of a tree, each branch drawn as far as it goes before the next."""
    known = {node.id: node for node in nodes}
    roots = [node.id for node in nodes if node.parent_id is None]
    # Runs still to be drawn, the next one last: rails of the first line, rails of those after it, and where it starts.
    waiting = _beside("", roots)
    while waiting:
        first_rails, rails, head = waiting.pop()
        run = _run_from(known, head)
        for index, line in enumerate(_shortened(run)):
            yield line._replace(rails=rails if index else first_rails)
        waiting.extend(_beside(rails, run[-1].children))


def _beside(rails: str, heads: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the runs that start side by side below `rails`, the first one last."""
    if len(heads) == 1:
        return [(rails, rails, heads[0])]
    runs = [(f"{rails}├─ ", f"{rails}│  ", head) for head in heads[:-1]]
    runs += [(f"{rails}└─ ", f"{rails}   ", head) for head in heads[-1:]]
    return runs[::-1]


def _run_from(known: Mapping[str, TreeNode], head: str) -> list[TreeNode]:
    run = [known[head]]
    while len(run[-1].children) == 1:
        run.append(known[run[-1].children[0]])
    return run


def _shortened(run: Sequence[TreeNode]) -> list[TreeLine]:
    if len(run) <= MOST_IN_A_RUN:
        return [TreeLine("", node) for node in run]
    shown = [TreeLine("", node) for node in (*run[:2], run[-1])]
    return [*shown[:2], TreeLine("", run[2], hidden=len(run) - 3), shown[2]]
