"""What a search string asks for, and where a text has it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from leafward.core.text import (
    GAP,
    Cutter,
    Token,
    ascii_words,
    count_beginnings,
    is_dense,
    is_plain,
    is_plain_dense,
    next_plain_token,
    plain_ends,
    plain_places,
    tokens,
)

MOST = 1000
"""A text is searched for a term up to its 1,000th occurrence, and no further."""

_MOST_IN_ALL = 20_000
"""Occurrences of all terms in a text; those of a query with more than 20 terms share them."""
_LONGEST = 32
"""Words and characters that a text has to have in a row; a longer phrase is asked for in pieces."""
_LONGEST_IN_ALL = 512
"""As much of a query is phrases; of what follows in it, each word is asked for by itself."""
_FEW = 16
"""Tokens looked for one by one; to look for more, a text is cut into its tokens once."""
_RARE = 16
"""In fewer than one of so many characters can what is looked for begin; else a text is better cut."""
_KEPT = 256
"""Places remembered while a phrase is followed: enough for 32 words of up to six parts, the whole and a gap."""

Phrase = tuple[str, ...]
"""Token texts at consecutive positions; an empty text is the gap between two dense runs."""
Term = tuple[Phrase, ...]
"""Alternatives: a text has the term when it has one of these phrases."""
Span = tuple[int, int]
"""Start and end, as character offsets."""
Place = tuple[str, int, int, int, int]
"""What a `Token` has."""
_Reached = tuple[int, Place, "_Reached | None"]
"""Bits of what ends at a position, the last token that does, and what ended there before it."""

# Straight, curly, and what Chinese and Japanese use; each opens or closes.
_QUOTES = re.compile('["“”„‟＂「」『』]')
# Chinese and Japanese write no space after these.
_BETWEEN_WORDS = re.compile(r"[\s，。、；：！？]+")


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed search: a text matches when it has every term. Without terms nothing matches."""

    terms: tuple[Term, ...]
    text: str = field(default="", compare=False)
    """What was parsed, for a search that has words of its own."""

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

    A phrase of more than 32 words or characters asks for pieces of at most 32, wherever in the text each of
    them is; after 512 words and characters in phrases, a phrase asks for each of its words.
    """
    outside_quotes = True
    terms: dict[Term, None] = {}
    room = _LONGEST_IN_ALL
    for section in _QUOTES.split(text):
        chunks = _BETWEEN_WORDS.split(section) if outside_quotes else [section]
        for term in (term for chunk in chunks for term in _terms(chunk, quoted=not outside_quotes)):
            size = sum(len(phrase) for phrase in term if len(phrase) > 1)
            if term not in terms and size > room:
                terms.update(dict.fromkeys(((token,),) for token in term[-1] if token))
            elif term not in terms:
                terms[term] = None
                room -= size
        outside_quotes = not outside_quotes
    return Query(tuple(terms), text)


def find(query: Query, text: str) -> list[list[Span]] | None:
    """Return where a text has each of the terms, in their order, or `None` when one is missing.

    The spans of a term are sorted and do not overlap. They are those of the first 1,000 occurrences, less if the
    query has more than 20 terms.
    """
    return Finder(query).find(text)


class Finder:
    """`find` for many texts: what depends on the query alone is prepared once."""

    def __init__(self, query: Query) -> None:
        phrases = list(dict.fromkeys(phrase for term in query.terms for phrase in term))
        self._terms = query.terms
        self._most = max(1, min(MOST, _MOST_IN_ALL // max(1, len(query.terms))))
        wanted = frozenset(token for phrase in phrases for token in phrase if token)
        self._has_words = any(token.isascii() for token in wanted)
        self._row = _Row(phrases)
        self._cutter = Cutter(wanted)
        self._plain = {phrase: _pieces(phrase) for phrase in phrases} if len(wanted) <= _FEW else {}
        # What to count in a plain text: a piece, how often the phrases have it, and whether all that match have it.
        times = Counter(piece for phrase in self._plain.values() for piece in phrase if piece)
        required = (_pieces(term[0]) or term[0] for term in query.terms if len(term) == 1)
        needed = list(islice((piece for phrase in required for piece in phrase if piece), _FEW))
        self._probes = [(piece, times[piece], piece in needed) for piece in dict.fromkeys([*needed, *times])]

    def find(self, text: str) -> list[list[Span]] | None:
        """Return where a text has each of the terms, or `None` when one is missing."""
        if is_plain(text):
            words = ascii_words(text) if self._has_words else b""
            # To follow the phrases takes about as many steps as the text has pieces of them.
            steps = 0
            for piece, times, needed in self._probes:
                count = count_beginnings(piece, text, words)
                if needed and not count:
                    return None
                steps += times * count
            if self._plain and steps <= len(text) // _RARE + _FEW:
                return self._places(lambda phrase: self._plain_spans(phrase, text, words))
        return self._places(_Walk(self._row, self._most).spans(self._cutter.tokens(text)).__getitem__)

    def _places(self, spans_of: Callable[[Phrase], list[Span]]) -> list[list[Span]] | None:
        places: list[list[Span]] = []
        for term in self._terms:
            spans = merge(span for phrase in term for span in spans_of(phrase))
            if not spans:
                return None
            places.append(spans[: self._most])
        return places or None

    def _plain_spans(self, phrase: Phrase, text: str, words: bytes) -> list[Span]:
        pieces = self._plain[phrase]
        if not pieces:
            return []
        found = plain_places(pieces[0], text, words)
        return list(islice(found if len(pieces) == 1 else _followed(found, pieces[1:], text, words), self._most))


class _Row:
    """Phrases to look for at once: their tokens, in a row, each with a bit of its own."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self.phrases = tuple(phrase for phrase in phrases if phrase)
        self.words = frozenset(phrase[0] for phrase in self.phrases if len(phrase) == 1)
        self.bits: defaultdict[str, int] = defaultdict(int)
        self.first = 0
        self.last: dict[int, Phrase] = {}
        bit = 1
        for phrase in (phrase for phrase in self.phrases if len(phrase) > 1):
            self.first |= bit
            for token in phrase:
                self.bits[token] |= bit
                bit <<= 1
            self.last[bit >> 1] = phrase


class _Walk:
    """A way through the tokens of one text, up to where enough of every phrase was found.

    What ends at a position is a number: its bits are the tokens of the row that ended there with all that stand
    before them in their phrase. A token of the text takes a shift and an AND, however many phrases have begun.
    """

    def __init__(self, row: _Row, most: int) -> None:
        self._row = row
        self._most = most
        self._last = sum(row.last)
        self._reached: dict[int, _Reached] = {}
        self._spans: dict[Phrase, list[Span]] = {phrase: [] for phrase in row.phrases}

    def spans(self, found: Iterable[Place]) -> dict[Phrase, list[Span]]:
        """Return the first spans of each phrase, in the order in which they end."""
        reached, bits_of, first, gap = self._reached, self._row.bits, self._row.first, self._row.bits.get("", 0)
        words = {word: self._spans[word,] for word in self._row.words}
        for token in found:
            text, pos, next_pos, start, end = token
            if text in words:
                words[text].append((start, end))
                if len(words[text]) == self._most:
                    del words[text]
            if text in bits_of:
                before = reached.get(pos)
                if before is not None:
                    bits = (before[0] << 1 | first) & bits_of[text]
                elif gap and pos - GAP in reached:
                    bits = ((reached[pos - GAP][0] << 1 & gap) << 1 | first) & bits_of[text]
                else:
                    bits = first & bits_of[text]
                if bits:
                    self._reach(next_pos, bits, token)
            if not words and not self._last:
                break
        return self._spans

    def _reach(self, pos: int, bits: int, token: Place) -> None:
        reached = self._reached
        others = reached.get(pos)
        reached[pos] = (bits, token, None) if others is None else (bits | others[0], token, others)
        if len(reached) > 2 * _KEPT:
            for passed in list(islice(reached, _KEPT)):
                del reached[passed]
        ends = bits & self._last
        while ends:
            bit = ends & -ends
            ends ^= bit
            phrase = self._row.last[bit]
            spans = self._spans[phrase]
            spans += [(start, token[4]) for start in self._starts(phrase, token)]
            if len(spans) >= self._most:
                del spans[self._most :]
                self._last ^= bit

    def _starts(self, phrase: Phrase, token: Place) -> list[int]:
        """Return where a phrase that ends with this token starts, going back."""
        at = {token[1]: token[3]}
        for text in reversed(phrase[:-1]):
            if text:
                found = (place for pos in at for place in self._ended(pos) if place[0] == text)
                at = {pos: start for _, pos, _, start, _ in found}
            else:
                at = {pos - GAP: start for pos, start in at.items()}
        return sorted(at.values())

    def _ended(self, pos: int) -> Iterator[Place]:
        reached = self._reached.get(pos)
        while reached is not None:
            _, token, reached = reached
            yield token


def merge(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted, with overlapping ones made one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _terms(chunk: str, *, quoted: bool) -> Iterator[Term]:
    """Yield the terms for what stands between spaces or quotes: one, unless it is long or has nothing searchable."""
    found = sorted(tokens(chunk), key=lambda token: (token.pos, -token.next_pos))
    wholes: list[Token] = []
    parts: list[Token] = []
    for token in found:
        is_whole = not wholes or token.pos >= wholes[-1].next_pos
        if is_whole and len(parts) + token.next_pos - token.pos > _LONGEST:
            yield _term(parts, wholes, quoted=quoted)
            wholes, parts = [], []
        if is_whole:
            wholes.append(token)
        if token.next_pos == token.pos + 1:
            parts.append(token)
    if parts:
        yield _term(parts, wholes, quoted=quoted)


def _term(parts: Sequence[Token], wholes: Sequence[Token], *, quoted: bool) -> Term:
    return (_phrase(parts),) if quoted else tuple(dict.fromkeys((_phrase(parts), _phrase(wholes))))


def _phrase(found: Sequence[Token]) -> Phrase:
    phrase: list[str] = []
    expected = found[0].pos
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


def _pieces(phrase: Phrase) -> Phrase:
    """Return what a plain text with the phrase has: words, and dense characters in a row; nothing if none has it."""
    pieces: list[str] = []
    before = ""
    for token in phrase:
        if not token.isascii() and not is_plain_dense(token):
            return ()
        if not token.isascii() and not before.isascii():
            pieces[-1] += token
        else:
            pieces.append(token)
        before = token
    return tuple(pieces)


def _followed(places: Iterable[Span], pieces: Phrase, text: str, words: bytes) -> Iterator[Span]:
    """Yield those places of a plain text that these pieces follow, one after the other, with the end of the last."""
    # Where phrases overlap the same is asked again, and what separates two tokens may be long.
    after: dict[int, int] = {}
    for start, end in places:
        if len(after) > _KEPT:
            after.clear()
        ends = [end]
        for piece in pieces:
            after.update((end, next_plain_token(text, end)) for end in ends if end not in after)
            if piece:
                ends = [last for end in ends for last in plain_ends(piece, text, words, after[end])]
            else:
                ends = [end for end in ends if after[end] > end]
            if not ends:
                break
        for end in ends:
            yield start, end
