"""Whether a text fits one of many patterns such as `/etc/*`, in a time that does not grow with each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

_SPECIAL = re.compile(r"[*?\[]")
_LONG = 1_000
"""From this length on, one search for each word is faster than one for all."""


class Patterns:
    """Some patterns, by what they look for: a whole text, its beginning, a word in it, or something else."""

    def __init__(self, patterns: Sequence[str]) -> None:
        whole: set[str] = set()
        starts: list[str] = []
        words: list[str] = []
        others: list[str] = []
        for one in patterns:
            if not _SPECIAL.search(one):
                whole.add(one)
            elif one.endswith("*") and not _SPECIAL.search(one[:-1]):
                starts.append(one[:-1])
            elif len(one) > 2 and one[0] == one[-1] == "*" and not _SPECIAL.search(one[1:-1]):
                words.append(one[1:-1])
            else:
                others.append(one)
        self._whole = whole
        self._starts = tuple(starts)
        self._words = words
        self._any_word = re.compile("|".join(map(re.escape, words))) if words else None
        self._others = re.compile("|".join(map(translate, others))) if others else None

    def fit(self, text: str) -> bool:
        """Tell whether a text fits one of them."""
        return (
            text in self._whole
            or text.startswith(self._starts)
            or (self._any_word is not None and self._has_word(self._any_word, text))
            or (self._others is not None and self._others.match(text) is not None)
        )

    def _has_word(self, any_word: re.Pattern[str], text: str) -> bool:
        return any(word in text for word in self._words) if len(text) > _LONG else any_word.search(text) is not None
