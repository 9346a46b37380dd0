"""Cuts, in slices, the words of entries that were copied without theirs."""

from __future__ import annotations

import time
from typing import NamedTuple

from leafward.core.text import analyzer_version, index_tokens
from leafward.stores.sql.operations import Operation
from leafward.stores.sql.statements import ADD_WORD
from leafward.stores.sqlite.index import that_fit

SLICE = 128
LARGEST = 128_000
"""Characters in one slice, unless a single entry has more."""

LIST_UNCUT = "SELECT entry_no, length(content) FROM {p}entry WHERE analyzer = '' LIMIT ?"
READ_CONTENT = "SELECT content FROM {p}entry WHERE entry_no = ?"
MARK_CUT = "UPDATE {p}entry SET analyzer = ? WHERE entry_no = ? AND analyzer = '' RETURNING shelf_no"


class Cut(NamedTuple):
    """The words of an entry."""

    entry_no: int
    words: list[str]


def prepare() -> Operation[list[Cut]]:
    """Read the next entries without words and cut these, outside any transaction."""
    found: list[Cut] = []
    for entry_no in that_fit((yield LIST_UNCUT, (SLICE,)), LARGEST):
        for (content,) in (yield READ_CONTENT, (entry_no,)):
            found.append(Cut(entry_no, sorted(index_tokens(content))))
            # Cutting words holds the interpreter: let a write that waits for it go first.
            time.sleep(0)
    return found


def apply(cut: list[Cut]) -> Operation[None]:
    """Write the words of those entries that still have none."""
    version = analyzer_version()
    for entry_no, words in cut:
        # Whoever changes the text cuts its words at once, so what has none still has the text that was read.
        for (shelf_no,) in (yield MARK_CUT, (version, entry_no)):
            for word in words:
                yield ADD_WORD, (shelf_no, word, entry_no)
