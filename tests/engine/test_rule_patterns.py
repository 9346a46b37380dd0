"""Patterns of rules, compared with Python's own matching, one pattern after the other."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from leafward.engine.rule_patterns import Patterns

PIECES = st.lists(st.sampled_from(["a", "b", "/", "*", "?", "[ab]", "[!a]", ".", "\n", "é"]), max_size=6).map("".join)
TEXTS = st.lists(st.sampled_from(["a", "b", "/", ".", "\n", "é", "*", "["]), max_size=8).map("".join)


@given(patterns=st.lists(PIECES, max_size=5), text=TEXTS, times=st.sampled_from([1, 400]))
def test_a_text_fits_some_patterns_if_it_fits_one_of_them(patterns: list[str], text: str, times: int) -> None:
    text = text * times  # also as a long one

    assert Patterns(patterns).fit(text) == any(fnmatchcase(text, pattern) for pattern in patterns)
