"""Ranking: which matches come first, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core import ranking
from leafward.core.query import find, parse_query
from leafward.core.ranking import RANKED, SNIPPET, Candidate, SearchResult, excerpt, rank

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def message(text: str, n: int = 0, *, id: str | None = None, session_id: str = "s") -> Candidate:
    """Return a candidate that is `n` minutes older than noon."""
    return Candidate(session_id, id or f"m{n}", "user", NOON - timedelta(minutes=n), text)


def ranked(query: str, *texts: str) -> list[str]:
    results = rank(parse_query(query), [message(text, n) for n, text in enumerate(texts)], limit=100)
    return [result.content for result in results]


def shown(result: SearchResult) -> list[str]:
    return [result.snippet[start:end] for start, end in result.highlights]


def test_a_result_has_all_that_was_known_of_the_message() -> None:
    (result,) = rank(parse_query("black"), [Candidate("s1", "m1", "user", NOON, "Coffee, black.")], limit=20)

    assert result == SearchResult(
        session_id="s1",
        id="m1",
        role="user",
        content="Coffee, black.",
        snippet="Coffee, black.",
        highlights=[(8, 13)],
        created_at=NOON,
        score=0.454545,
    )


def test_what_does_not_match_is_left_out() -> None:
    assert ranked("black coffee", "black tea", "coffee, black", "coffee") == ["coffee, black"]


def test_a_query_without_words_has_no_results() -> None:
    assert ranked("…", "…", "text") == []


def test_more_occurrences_score_higher() -> None:
    assert ranked("pool", "pool of cars", "pool or pool") == ["pool or pool", "pool of cars"]


def test_shorter_texts_score_higher() -> None:
    assert ranked("pool", "pool " + "and other words " * 9, "a pool") == [
        "a pool",
        "pool " + "and other words " * 9,
    ]


def test_a_phrase_weighs_more_than_a_word() -> None:
    def score(query: str) -> float:
        return rank(parse_query(query), [message("a connection pool")], limit=1)[0].score

    assert score('"connection pool"') == pytest.approx(1.5 * score("connection"), abs=1e-5)
    assert score("connection pool") == pytest.approx(2 * score("connection"), abs=1e-5)


def test_among_equals_newer_ones_come_first_then_it_goes_by_id() -> None:
    candidates = [
        message("same", 0, id="b"),
        message("same", 0, id="a", session_id="t"),
        message("same", 0, id="a", session_id="s"),
        message("same", 1, id="A"),
    ]

    results = rank(parse_query("same"), candidates, limit=10)

    assert [(r.id, r.session_id) for r in results] == [("a", "s"), ("a", "t"), ("b", "s"), ("A", "s")]


@pytest.mark.parametrize(("limit", "read"), [(1, RANKED), (RANKED + 5, RANKED + 5)])
def test_no_more_is_read_than_is_ranked(limit: int, read: int) -> None:
    taken = 0

    def candidates() -> Iterator[Candidate]:
        nonlocal taken
        while True:
            taken += 1
            yield message("hit", taken)

    results = rank(parse_query("hit"), candidates(), limit=limit)

    assert len(results) == limit
    assert taken == read


def test_what_does_not_match_is_read_past() -> None:
    candidates = [message("hit" if n % 2 else "miss", n) for n in range(3 * RANKED)]

    assert len(rank(parse_query("hit"), candidates, limit=RANKED)) == RANKED


def test_what_was_not_remembered_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [message("hit or hit", n) for n in range(9)]
    expected = rank(parse_query("hit"), candidates, limit=9)

    monkeypatch.setattr(ranking, "_REMEMBERED", 5)

    assert rank(parse_query("hit"), candidates, limit=9) == expected


def test_a_limit_of_nothing_gives_nothing() -> None:
    assert rank(parse_query("hit"), [message("hit")], limit=0) == []


def test_a_short_text_is_shown_whole() -> None:
    text = "deploy " * 28

    (result,) = rank(parse_query("deploy"), [message(text)], limit=1)

    assert result.snippet == text
    assert shown(result) == ["deploy"] * 28


def test_a_long_text_is_cut_between_words_around_the_match() -> None:
    text = "before it all " * 40 + "the needle here " + "and after it " * 40

    (result,) = rank(parse_query("needle"), [message(text)], limit=1)

    assert shown(result) == ["needle"]
    assert result.snippet[0] == result.snippet[-1] == "…"
    assert f" {result.snippet[1:-1]} " in text
    assert SNIPPET - 60 < len(result.snippet) <= SNIPPET


def test_the_snippet_shows_where_most_terms_are() -> None:
    text = "alpha alpha alpha " + "filler " * 60 + "alpha then beta " + "filler " * 60 + "beta"

    (result,) = rank(parse_query("alpha beta"), [message(text)], limit=1)

    assert shown(result) == ["alpha", "beta"]


def test_the_snippet_starts_or_ends_with_the_text_where_the_match_is() -> None:
    filler = "filler " * 60

    (first,) = rank(parse_query("needle"), [message("needle " + filler)], limit=1)
    (last,) = rank(parse_query("needle"), [message(filler + "needle")], limit=1)

    assert first.snippet.startswith("needle filler")
    assert first.snippet.endswith("filler…")
    assert last.snippet.startswith("…filler")
    assert last.snippet.endswith("filler needle")


def test_chinese_text_is_cut_anywhere() -> None:
    text = "天气很好" * 100 + "数据库" + "天气很好" * 100

    (result,) = rank(parse_query("数据库"), [message(text)], limit=1)

    assert shown(result) == ["数据库"]
    assert len(result.snippet) == SNIPPET


def test_a_match_longer_than_the_snippet_is_shown_from_its_start() -> None:
    text = "see " + "f0" * 1000 + " there"

    (result,) = rank(parse_query("f0" * 1000), [message(text)], limit=1)

    assert len(result.snippet) <= SNIPPET
    assert shown(result) == [("f0" * 1000)[: SNIPPET - 2]]


def test_highlights_of_overlapping_terms_are_merged() -> None:
    (result,) = rank(parse_query('"connection pool" pool'), [message("connection pool, pool")], limit=1)

    assert shown(result) == ["connection pool", "pool"]


words = st.sampled_from(["alpha", "beta", "alphaBeta", "中文", "文", "x" * 70, "\n", "  ", "filler", "é", "，"])


@given(
    st.lists(words, max_size=120),
    st.sampled_from([" ", ""]),
    st.sampled_from(["alpha", "beta alpha", "文", "x" * 70]),
)
def test_every_snippet_is_a_piece_of_the_text_with_all_its_matches(
    parts: list[str], separator: str, asked: str
) -> None:
    text = separator.join(parts)
    query = parse_query(asked)
    spans = find(query, text)
    if spans is None:
        return

    snippet, highlights = excerpt(text, spans)

    assert len(snippet) <= SNIPPET
    assert highlights
    assert all(0 <= a < b <= len(snippet) for a, b in highlights)
    assert all(before[1] <= after[0] for before, after in pairwise(highlights))
    assert snippet.removeprefix("…").removesuffix("…") in text
    originals = {text[a:b] for term in spans for a, b in term}
    assert all(any(snippet[a:b] in original for original in originals) for a, b in highlights)
