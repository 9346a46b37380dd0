"""What a search string asks for, and where a text has it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leafward.core.text import (
    GAP,
    Token,
    ascii_words,
    is_dense,
    is_plain,
    is_plain_dense,
    next_plain_token,
    plain_places,
    positions,
    tokens,
)

Phrase = tuple[str, ...]
"""Token texts at consecutive positions; an empty text is the gap between two dense runs."""
Term = tuple[Phrase, ...]
"""Alternatives: a text has the term when it has one of these phrases."""
Span = tuple[int, int]
"""Start and end, as character offsets."""

# Straight, curly, and what Chinese and Japanese use; each opens or closes.
_QUOTES = re.compile('["“”„‟＂「」『』]')
# Chinese and Japanese write no space after these.
_BETWEEN_WORDS = re.compile(r"[\s，。、；：！？]+")


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed search: a text matches when it has every term. Without terms nothing matches."""

    terms: tuple[Term, ...]

    @property
    def needs(self) -> tuple[tuple[frozenset[str], ...], ...]:
        """What the index holds for every text that matches: per term, alternative sets of index tokens.

        Necessary, not sufficient: a backend may use any of the terms to find candidates, and `find` decides.
        """
        return tuple(tuple(_indexed(phrase) for phrase in term) for term in self.terms)


def parse_query(text: str) -> Query:
    """Return what a search string asks for. Every string is a query; one without words asks for nothing.

    All words are required. Quotes make a phrase, up to the end of the string if nothing closes them. What
    stands together without a space is a phrase too: `multi-agent`, `core/text.py`, a Chinese word. A
    camelCase word is found by its parts, one after the other, and as a whole.
    """
    outside_quotes = True
    terms: list[Term] = []
    for section in _QUOTES.split(text):
        chunks = _BETWEEN_WORDS.split(section) if outside_quotes else [section]
        terms += [_term(chunk, quoted=not outside_quotes) for chunk in chunks]
        outside_quotes = not outside_quotes
    return Query(tuple(dict.fromkeys(term for term in terms if term)))


def find(query: Query, text: str) -> list[list[Span]] | None:
    """Return where a text has each of the terms, in their order, or `None` when one is missing.

    The spans of a term are sorted and do not overlap.
    """
    return Finder(query).find(text)


class Finder:
    """`find` for many texts: what depends on the query alone is prepared once."""

    def __init__(self, query: Query) -> None:
        self._terms = query.terms
        self._wanted = frozenset(token for term in query.terms for phrase in term for token in phrase)
        self._has_words = any(token.isascii() for token in self._wanted)
        self._pieces = [[pieces for phrase in term if (pieces := _pieces(phrase))] for term in query.terms]

    def find(self, text: str) -> list[list[Span]] | None:
        """Return where a text has each of the terms, or `None` when one is missing."""
        return self._plain_places(text) if is_plain(text) else self._places(tokens(text, self._wanted))

    def count(self, text: str) -> list[int] | None:
        """Return how often a text has each of the terms, or `None` when one is missing. Faster."""
        places = self._plain_places(text) if is_plain(text) else self._places(positions(text, self._wanted))
        return None if places is None else [len(spans) for spans in places]

    def _plain_places(self, text: str) -> list[list[Span]] | None:
        words = ascii_words(text) if self._has_words else b""
        places: list[list[Span]] = []
        for term in self._pieces:
            spans = [span for pieces in term for span in _plain_spans(pieces, text, words)]
            if not spans:
                return None
            places.append(merge(spans) if len(spans) > 1 else spans)
        return places or None

    def _places(self, found: Iterable[Token]) -> list[list[Span]] | None:
        by_text: defaultdict[str, list[Token]] = defaultdict(list)
        for token in found:
            by_text[token.text].append(token)
        places: list[list[Span]] = []
        for term in self._terms:
            spans = [span for phrase in term for span in _phrase_spans(phrase, by_text)]
            if not spans:
                return None
            places.append(merge(spans))
        return places or None


def merge(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted, with overlapping ones made one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _term(chunk: str, *, quoted: bool) -> Term:
    """Return the term for what stands between spaces or quotes; without anything searchable it is empty."""
    found = list(tokens(chunk))
    parts = _phrase(token for token in found if token.next_pos == token.pos + 1)
    if quoted or not parts:
        return (parts,) if parts else ()
    wholes: list[Token] = []
    for token in sorted(found, key=lambda token: (token.pos, -token.next_pos)):
        if not wholes or token.pos >= wholes[-1].next_pos:
            wholes.append(token)
    return tuple(dict.fromkeys((parts, _phrase(wholes))))


def _phrase(found: Iterable[Token]) -> Phrase:
    phrase: list[str] = []
    expected = 0
    for token in found:
        if token.pos != expected:
            phrase.append("")
        phrase.append(token.text)
        expected = token.next_pos
    return tuple(phrase)


def _indexed(phrase: Phrase) -> frozenset[str]:
    """Return the index tokens a phrase implies: pairs of dense neighbours, and every other token itself."""
    dense = [is_dense(token) for token in phrase]
    pairs = [n for n in range(1, len(phrase)) if dense[n - 1] and dense[n]]
    paired = {*pairs, *(n - 1 for n in pairs)}
    alone = (token for n, token in enumerate(phrase) if token and n not in paired)
    return frozenset((*alone, *(phrase[n - 1] + phrase[n] for n in pairs)))


def _phrase_spans(phrase: Phrase, by_text: Mapping[str, list[Token]]) -> list[Span]:
    # All beginnings go forward together, one token of the phrase at a time: (position reached, start, end).
    reached = [(token.next_pos, token.start, token.end) for token in by_text.get(phrase[0], ())]
    for text in phrase[1:]:
        if not reached:
            break
        if not text:
            reached = [(pos + GAP, start, end) for pos, start, end in reached]
            continue
        at: defaultdict[int, list[Token]] = defaultdict(list)
        for token in by_text.get(text, ()):
            at[token.pos].append(token)
        reached = [(t.next_pos, start, t.end) for pos, start, _ in reached for t in at.get(pos, ())]
    return [(start, end) for _, start, end in reached]


def _pieces(phrase: Phrase) -> list[str]:
    """Return what a plain text with the phrase has: words, and dense characters in a row; nothing if none has it."""
    pieces: list[str] = []
    before = ""
    for token in phrase:
        if not token.isascii() and not is_plain_dense(token):
            return []
        if not token.isascii() and not before.isascii():
            pieces[-1] += token
        elif token:
            pieces.append(token)
        before = token
    return pieces


def _plain_spans(pieces: Sequence[str], text: str, words: bytes) -> list[Span]:
    spans = plain_places(pieces[0], text, words)
    for before, piece in pairwise(pieces):
        if not spans:
            break
        ends: defaultdict[int, list[int]] = defaultdict(list)
        for start, end in plain_places(piece, text, words):
            ends[start].append(end)
        # Dense pieces that touch would be one piece: there is a gap between these.
        apart = not before.isascii() and not piece.isascii()
        follow = [(start, end, next_plain_token(text, end)) for start, end in spans]
        spans = [(start, last) for start, end, at in follow if at > end or not apart for last in ends.get(at, ())]
    return spans
