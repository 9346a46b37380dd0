"""Removes, in slices, what a cleared or deleted session left behind."""

from __future__ import annotations

from typing import NamedTuple

from leafward.core import lanes
from leafward.stores.sql.operations import Operation
from leafward.stores.sql.statements import DROP_ENTRY, DROP_MESSAGE, DROP_SHELF, DROP_STATE, DROP_TREE, LIST_LANES
from leafward.stores.sqlite import index

SLICE = 24

LARGEST = 16_000
"""Tokens of text, about, in one slice."""

WORDS = 20_000
"""Words of entries in one slice."""

ENTRIES = STATES = 400
LARGEST_TEXTS = 1_000_000
"""Characters of entries or states in one slice, unless a single one has more."""

FIRST_DISCARDED = "SELECT tree_no, owner_no FROM {p}tree WHERE discarded = 1 LIMIT 1"
LIST_MESSAGES = "SELECT place, tokens FROM {p}message WHERE tree_no = ? LIMIT ?"
LIST_STATES = "SELECT name, place, coalesce(length(text), 0) FROM {p}point WHERE tree_no = ? LIMIT ?"
DROP_RANGES = "DELETE FROM {p}unindexed WHERE low BETWEEN ? AND ?"
FIRST_DISCARDED_SHELF = "SELECT shelf_no FROM {p}shelf WHERE session_no < 0 LIMIT 1"
HAS_WORDS = "SELECT 1 FROM {p}entry_word WHERE shelf_no = ? LIMIT 1"
WORD_AFTER = "SELECT word, entry_no FROM {p}entry_word WHERE shelf_no = ? ORDER BY word, entry_no LIMIT 1 OFFSET ?"
DROP_WORDS_BEFORE = "DELETE FROM {p}entry_word WHERE shelf_no = ? AND (word, entry_no) < (?, ?)"
DROP_SHELF_WORDS = "DELETE FROM {p}entry_word WHERE shelf_no = ?"
LIST_SIZES = "SELECT entry_no, length(content) FROM {p}entry WHERE shelf_no = ? LIMIT ?"


class DiscardedTree(NamedTuple):
    """Some messages of a tree that no session has any more, with the tokens the index may hold for them."""

    tree_no: int
    messages: list[tuple[int, str]]


class DiscardedShelf(NamedTuple):
    """Some entries of a shelf that no session has any more; while it has words, these go first."""

    shelf_no: int
    entries: list[int]


Discarded = DiscardedTree | DiscardedShelf


def is_over() -> Operation[bool]:
    """Tell whether nothing of a cleared or deleted session is left."""
    return not (yield FIRST_DISCARDED, ()) and not (yield FIRST_DISCARDED_SHELF, ())


def prepare() -> Operation[Discarded | None]:
    """Read the next messages or entries to remove and make their tokens, outside any transaction."""
    for tree_no, owner_no in (yield FIRST_DISCARDED, ()):
        messages: list[tuple[int, str]] = []
        for place in index.that_fit((yield LIST_MESSAGES, (tree_no, SLICE)), LARGEST):
            for (body,) in (yield index.READ_BODY, (place,)):
                messages.append((place, index.tokens_for(tree_no, owner_no, body)))
        return DiscardedTree(tree_no, messages)
    for (shelf_no,) in (yield FIRST_DISCARDED_SHELF, ()):
        sizes = [] if (yield HAS_WORDS, (shelf_no,)) else (yield LIST_SIZES, (shelf_no, ENTRIES))
        return DiscardedShelf(shelf_no, index.that_fit(sizes, LARGEST_TEXTS))
    return None


def apply(discarded: Discarded) -> Operation[None]:
    """Remove these messages or entries; when there were none left, remove the tree or the shelf."""
    if isinstance(discarded, DiscardedTree):
        yield from _apply_to_tree(*discarded)
    else:
        yield from _apply_to_shelf(*discarded)


def _apply_to_tree(tree_no: int, messages: list[tuple[int, str]]) -> Operation[None]:
    for place, tokens in messages:
        if (yield index.READ_BODY, (place,)):
            yield from index.forget(place, tokens)
            yield DROP_MESSAGE, (place,)
    # Asked again: what was read may be gone because another process is at the same tree, and not the last of it.
    if not (yield LIST_MESSAGES, (tree_no, 1)) and not (yield from _drop_some_states(tree_no)):
        for lane, _ in (yield LIST_LANES, (tree_no,)):
            yield DROP_RANGES, (lanes.before_first(lane), lanes.last_of(lane))
        for statement in DROP_TREE:
            yield statement, (tree_no,)


def _drop_some_states(tree_no: int) -> Operation[bool]:
    """Remove some of the states of a tree; tell whether there are more: an agent attaches one at every step."""
    states = yield LIST_STATES, (tree_no, STATES + 1)
    sizes = [(number, size) for number, (_, _, size) in enumerate(states[:STATES])]
    dropped = index.that_fit(sizes, LARGEST_TEXTS)
    for number in dropped:
        yield DROP_STATE, (tree_no, *states[number][:2])
    return len(dropped) < len(states)


def _apply_to_shelf(shelf_no: int, entries: list[int]) -> Operation[None]:
    # Asked again: another process may have cut words since, and an entry that goes must have none.
    if (yield HAS_WORDS, (shelf_no,)):
        yield from _drop_some_words(shelf_no)
        return
    for entry_no in entries:
        yield DROP_ENTRY, (entry_no,)
    if not (yield LIST_SIZES, (shelf_no, 1)):
        yield DROP_SHELF, (shelf_no,)


def _drop_some_words(shelf_no: int) -> Operation[None]:
    # A range: rows picked by a subquery would each be looked for among all words of the shelf.
    after = yield WORD_AFTER, (shelf_no, WORDS)
    if after:
        yield DROP_WORDS_BEFORE, (shelf_no, *after[0])
    else:
        yield DROP_SHELF_WORDS, (shelf_no,)
