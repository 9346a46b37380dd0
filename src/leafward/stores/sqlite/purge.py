"""Removes, in slices, what a cleared session left behind."""

from __future__ import annotations

from typing import NamedTuple

from leafward.core import lanes
from leafward.stores.sql.operations import Operation
from leafward.stores.sql.statements import DROP_MESSAGE, LIST_LANES
from leafward.stores.sqlite import index

SLICE = 24

LARGEST = 16_000
"""Tokens of text, about, in one slice."""

FIRST_DISCARDED = "SELECT tree_no, owner_no FROM {p}tree WHERE discarded = 1 LIMIT 1"
LIST_MESSAGES = "SELECT place, tokens FROM {p}message WHERE tree_no = ? LIMIT ?"
DROP_RANGES = "DELETE FROM {p}unindexed WHERE low BETWEEN ? AND ?"
DROP_TREE = (
    "DELETE FROM {p}label WHERE tree_no = ?",
    "DELETE FROM {p}overlay WHERE tree_no = ?",
    "DELETE FROM {p}reclaimed WHERE tree_no = ?",
    "DELETE FROM {p}lane WHERE tree_no = ?",
    "DELETE FROM {p}tree WHERE tree_no = ?",
)


class Discarded(NamedTuple):
    """Some messages of a tree that no session has any more, with the tokens the index may hold for them."""

    tree_no: int
    messages: list[tuple[int, str]]


def is_over() -> Operation[bool]:
    """Tell whether nothing of a cleared or deleted session is left."""
    return not (yield FIRST_DISCARDED, ())


def prepare() -> Operation[Discarded | None]:
    """Read the next messages to remove and make their tokens, outside any transaction."""
    for tree_no, owner_no in (yield FIRST_DISCARDED, ()):
        messages: list[tuple[int, str]] = []
        for place in index.that_fit((yield LIST_MESSAGES, (tree_no, SLICE)), LARGEST):
            for (body,) in (yield index.READ_BODY, (place,)):
                messages.append((place, index.tokens_for(tree_no, owner_no, body)))
        return Discarded(tree_no, messages)
    return None


def apply(discarded: Discarded) -> Operation[None]:
    """Remove these messages; when there were none left, remove the tree."""
    tree_no, messages = discarded
    for place, tokens in messages:
        if (yield index.READ_BODY, (place,)):
            yield from index.forget(place, tokens)
            yield DROP_MESSAGE, (place,)
    if not messages:
        for lane, _ in (yield LIST_LANES, (tree_no,)):
            yield DROP_RANGES, (lanes.before_first(lane), lanes.last_of(lane))
        for statement in DROP_TREE:
            yield statement, (tree_no,)
