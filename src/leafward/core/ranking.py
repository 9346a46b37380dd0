"""From texts that match to the results a person reads, best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leafward.core.query import Finder, Query, Span, Term

RANKED = 1000
"""How many of the newest matches compete, unless more results are asked for."""

SNIPPET = 200
"""The longest snippet, in characters."""

# Places remembered of all that match; those of the rest are looked for again when they are shown.
_REMEMBERED = 100_000
_ELLIPSIS = "…"
# How far a cut moves to fall between two words.
_REACH = 24
# BM25: how fast more occurrences stop to matter, and how much longer texts are discounted.
_SATURATION = 1.2
_LENGTH = 0.75
_PHRASE_WEIGHT = 1.5


class Candidate(NamedTuple):
    """A message that may match, with the text that is searched."""

    session_id: str
    id: str
    role: str
    created_at: datetime
    text: str


class _Match(NamedTuple):
    """A candidate that matches, how often it has each term, and where, unless there was no room to remember it."""

    candidate: Candidate
    counts: list[int]
    spans: list[list[Span]] | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A message that matches.

    `content` is the text that was searched, `snippet` the part of it to show, and `highlights` are the
    matches in the snippet, as sorted `(start, end)` offsets. A higher score is better, within one search. A text
    is searched up to the 1,000th occurrence of a term: more do not raise its score and are not shown.
    """

    session_id: str
    id: str
    role: str
    content: str
    snippet: str
    highlights: list[tuple[int, int]]
    created_at: datetime
    score: float


def rank(query: Query, candidates: Iterable[Candidate], *, limit: int) -> list[SearchResult]:
    """Return the best matches, best first; among equals newer ones first, then by id.

    `candidates` come newest first and may hold texts that do not match. They are read up to the 1,000th
    match, or up to the `limit`th if that is more, and no further.
    """
    # `SearchResult` is part of every program that imports leafward; the analyzer comes with the first search.
    from leafward.core.query import Finder

    finder = Finder(query)
    matches = _matches(finder, candidates, most=max(RANKED, limit))
    if not matches:
        return []
    average = sum(len(match.candidate.text) for match in matches) / len(matches)
    weights = [_weight(term) for term in query.terms]
    scored = [(_score(match.counts, weights, len(match.candidate.text) / average), match) for match in matches]
    scored.sort(key=lambda found: (found[1].candidate.id, found[1].candidate.session_id))
    scored.sort(key=lambda found: (found[0], found[1].candidate.created_at), reverse=True)
    return [_result(finder, match, score) for score, match in scored[: max(limit, 0)]]


def _matches(finder: Finder, candidates: Iterable[Candidate], *, most: int) -> list[_Match]:
    """Return the first candidates that match, with the number of times each term occurs."""
    matches: list[_Match] = []
    room = _REMEMBERED
    for candidate in candidates:
        spans = finder.find(candidate.text)
        if spans is not None:
            counts = [len(term) for term in spans]
            room -= sum(counts)
            matches.append(_Match(candidate, counts, spans if room >= 0 else None))
            if len(matches) == most:
                break
    return matches


def _weight(term: Term) -> float:
    return _PHRASE_WEIGHT if any(len(phrase) > 1 for phrase in term) else 1.0


def _score(counts: Sequence[int], weights: Sequence[float], relative_length: float) -> float:
    """Return the BM25 score of a text, without rarity: each match has every term, so rarity ranks nothing."""
    damping = _SATURATION * (1 - _LENGTH + _LENGTH * relative_length)
    score = sum(weight * count / (count + damping) for count, weight in zip(counts, weights, strict=True))
    # The same on every backend, whatever order the additions were done in.
    return round(score, 6)


def _result(finder: Finder, match: _Match, score: float) -> SearchResult:
    candidate = match.candidate
    spans = match.spans or finder.find(candidate.text)
    assert spans is not None
    snippet, highlights = excerpt(candidate.text, spans)
    return SearchResult(
        session_id=candidate.session_id,
        id=candidate.id,
        role=candidate.role,
        content=candidate.text,
        snippet=snippet,
        highlights=highlights,
        created_at=candidate.created_at,
        score=score,
    )


def excerpt(text: str, spans: Sequence[Sequence[Span]]) -> tuple[str, list[Span]]:
    """Return the part of a text where matches are densest, with their offsets in it.

    `spans` has the places of each term, at least one. A text of 200 characters or less is shown whole; a
    longer one is cut between words where that is possible, with "…" for what is left out.
    """
    from leafward.core.query import merge

    places = merge(span for term in spans for span in term)
    start, end = _window(text, _densest(spans)) if len(text) > SNIPPET else (0, len(text))
    before = _ELLIPSIS if start else ""
    after = _ELLIPSIS if end < len(text) else ""
    shift = len(before) - start
    shown = [(max(a, start) + shift, min(b, end) + shift) for a, b in places if a < end and b > start]
    return before + text[start:end] + after, shown


def _densest(spans: Sequence[Sequence[Span]]) -> Span:
    """Return the stretch, short enough to show, with most terms, then most matches, then the earliest."""
    places = sorted((start, end, term) for term, found in enumerate(spans) for start, end in found)
    inside: Counter[int] = Counter()
    best = (0, 0)
    stretch = places[0][:2]
    first = 0
    for last, (_, end, term) in enumerate(places):
        inside[term] += 1
        while first < last and end - places[first][0] > SNIPPET // 2:
            left = places[first][2]
            inside[left] -= 1
            if not inside[left]:
                del inside[left]
            first += 1
        density = (len(inside), last - first + 1)
        if density > best:
            best = density
            stretch = (places[first][0], end)
    return stretch


def _window(text: str, stretch: Span) -> Span:
    """Return where to cut a long text so that the stretch is in the middle of what is shown."""
    room = SNIPPET - 2 * len(_ELLIPSIS)
    first, last = stretch
    last = min(last, first + room)
    start = max(0, min(first - (room - (last - first)) // 2, len(text) - room))
    end = start + room
    if start:
        start = _after_space(text, start, min(first, start + _REACH))
    if end < len(text):
        end = _before_space(text, max(last, end - _REACH), end)
    return start, end


def _after_space(text: str, start: int, stop: int) -> int:
    """Return the first start of a word from `start` to `stop`, or `start` when there is none."""
    return next((n for n in range(start, stop + 1) if text[n - 1].isspace() and not text[n].isspace()), start)


def _before_space(text: str, stop: int, end: int) -> int:
    """Return the last end of a word from `end` back to `stop`, or `end` when there is none."""
    return next((n for n in range(end, stop - 1, -1) if text[n].isspace() and not text[n - 1].isspace()), end)
