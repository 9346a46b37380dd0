"""Queries: what a search string asks for, and where a text has it."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leafward.core import query as query_module
from leafward.core.query import MOST, Finder, Phrase, Query, Span, find, merge, parse_query
from leafward.core.text import GAP, index_tokens, is_plain, next_plain_token, tokens

CHARACTERS = (
    "abRunSé\u0301ßİ09½_-./'\"”「」 \n\u3000，中文字のｶﾞガー한국\u1100\u1161㈠ゟ葛\U000e0100"
    "กาแดีहिन्दीَﷺ\u200d\u00ad🙂\0\ud800"
)
texts = st.text(st.sampled_from(CHARACTERS) | st.characters(), max_size=40)
camels = st.lists(st.sampled_from(["user", "Name", "HTTP", "s", "S", "runs", "9", "中文", " ", "-", "é"])).map("".join)
# What plain texts are made of, and a little of what makes a text not plain.
PIECES = (
    "run Run RUN runs running RunS die dying Dying sky skies happy HAPPILY sensibility user Name userName username"
    " HTTP s S a A b 3 3d 3D 哈 哈哈 数据 库 한 국 カ ー 々 〇 よ より - _ · ， 。 “ ” ' ❤️ 🇨🇳 👨\u200d👩\u200d👧"
    " é ﬁ ｆ ＡＢ ① ½ ſ \u212a ｶﾞ ゟ 葛 й à 1️⃣ \u3099 \u0301 \u00ad \u200d \ufe0f"
)
pieces = st.lists(st.sampled_from([*PIECES.split(), *" " * 9, "\n", "\u3000", "x" * 65]), max_size=16).map("".join)
# It has no word to join, so it adds no token; it makes a text not plain.
LONE_ACCENT = " \u0301"
QUOTES = str.maketrans(dict.fromkeys('"“”„‟＂「」『』', " "))


def found(query: str, text: str) -> list[str] | None:
    """Return what is found of the first term, or `None` when the text does not match."""
    spans = find(parse_query(query), text)
    return None if spans is None else [text[start:end] for start, end in spans[0]]


def matches(query: str, text: str) -> bool:
    return find(parse_query(query), text) is not None


def find_simply(query: Query, text: str) -> list[list[Span]] | None:
    """Do what `find` does, without a limit and without haste."""
    everything = list(tokens(text))

    def spans(phrase: Phrase) -> set[Span]:
        reached = {(token.next_pos, token.start, token.end) for token in everything if token.text == phrase[0]}
        for wanted in phrase[1:]:
            if wanted:
                follow = [token for token in everything if token.text == wanted]
                reached = {(t.next_pos, start, t.end) for pos, start, _ in reached for t in follow if t.pos == pos}
            else:
                reached = {(pos + GAP, start, end) for pos, start, end in reached}
        return {(start, end) for _, start, end in reached}

    places = [merge(span for phrase in term for span in spans(phrase)) for term in query.terms]
    return places if places and all(places) else None


def holds(indexed: set[str], query: Query) -> bool:
    """Say what a backend's index says: does it hold what the query needs?"""
    return all(any(needed <= indexed for needed in term) for term in query.needs)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("deploy", "We deployed it."),
        ("deployments", "the deployment failed"),
        ("running", "It runs."),
        ("cafe", "Le café est fermé"),
        ("CAFÉ", "cafe\u0301"),
        ("failed deploy", "Deploying has failed"),
        ("userName", "the userName field"),
        ("userName", "user_name"),
        ("userName", "the username"),
        ("username", "userName"),
        ("user", "getUserName()"),
        ("name", "UserName"),
        ("HTTPServer", "http server"),
        ("API", "many APIs"),
        ("multi-agent", "a multi agent system"),
        ("multi-agent", "multi-agent"),
        ("core/text.py", "see core/text.py:12"),
        ("foo.userName", "foo.username"),
        ("数据库", "昨天数据库连接超时"),
        ("库", "昨天数据库连接超时"),
        ("東京", "私は東京に住んでいます"),
        ("サーバー", "ｻｰﾊﾞｰを再起動"),
        ("한국", "한국어를 배웁니다"),
        ("部署 失败", "失败的部署"),
        ("部署，失败", "失败的部署"),
        ("卡尔·马克思", "卡尔·马克思的书"),
        ("iPhone手机", "新的iPhone手机壳"),
        ("กาแฟ", "ฉันชอบกาแฟร้อน"),
        ('"connection pool"', "the connection pools"),
        ('"user name"', "userName"),
        ("“connection pool”", "the connection-pool"),
        ("「数据库 连接」", "数据库，连接"),
        ('"connection pool', "the connection pool"),
        ('deploy "', "deploy"),
        ('the "error code" deploy', "deploy: the error code is 7"),
    ],
)
def test_a_query_finds(query: str, text: str) -> None:
    assert matches(query, text)
    assert holds(index_tokens(text), parse_query(query))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("deploy", "employ"),
        ("failed deploy", "deployed"),
        ("foo/bar", "foo and bar"),
        ("multi-agent", "agent multi"),
        ('"connection pool"', "pool connection"),
        ('"connection pool"', "connection to a pool"),
        ('"connection pool', "pool of the connection"),
        ("数据库", "数据的库"),
        ("数库", "数据库"),
        ("人生", "好人，生活"),
        ("국사", "한국 사람"),
        ("「数据库 连接」", "数据库 x 连接"),
        ("「数据库 连接」", "连接，数据库"),
        ("「数据库 连接」", "数据库连接"),
        ("ゟ", "より"),
        ("привет", "hello"),
        ("", "anything"),
        (' "" - … ', "anything - …"),
    ],
)
def test_a_query_does_not_find(query: str, text: str) -> None:
    assert not matches(query, text)


@pytest.mark.parametrize("text", ["", " ", '"', '""""', "“”", "-- ;", "()*^:", "\0", "\ud800", "🙂", "\u0301", "「」"])
def test_a_query_without_words_asks_for_nothing(text: str) -> None:
    assert parse_query(text) == Query(())
    assert parse_query(text).needs == ()


def test_a_repeated_term_counts_once() -> None:
    assert parse_query('run running RUNS "run"').terms == ((("run",),),)


def test_operators_of_search_engines_are_plain_words() -> None:
    assert parse_query("a OR NOT b NEAR c*").terms == tuple(((t,),) for t in ("a", "or", "not", "b", "near", "c"))


def test_what_is_found_is_the_original_text() -> None:
    assert found("cafe", "Cafés, CAFÉ cafe\u0301!") == ["Cafés", "CAFÉ", "cafe\u0301"]
    assert found("userName", "userName user_name username") == ["userName", "user_name", "username"]
    assert found("ガツ", "ｶﾞﾂ") == ["ｶﾞﾂ"]
    assert found("数据", "数据，数据库") == ["数据", "数据"]
    assert found("ha", "ha ha") == ["ha", "ha"]


def test_the_parts_and_the_whole_of_a_word_are_found_once() -> None:
    assert found("userName", "userName") == ["userName"]
    assert found("run", "RunS") == ["RunS"]


def test_spans_come_in_the_order_of_the_terms() -> None:
    assert find(parse_query("b a"), "a b a") == [[(2, 3)], [(0, 1), (4, 5)]]


def test_an_index_is_asked_for_pairs_of_characters_and_for_those_that_stand_alone() -> None:
    assert parse_query("数据库").needs == ((frozenset({"数据", "据库"}),),)
    assert parse_query("库").needs == ((frozenset({"库"}),),)
    assert parse_query("userName").needs == ((frozenset({"user", "name"}), frozenset({"usernam"})),)
    assert parse_query("卡尔·马").needs == ((frozenset({"卡尔", "马"}),),)


def test_overlapping_spans_are_merged_and_touching_ones_are_kept() -> None:
    assert merge([(4, 6), (0, 2), (2, 3), (5, 9), (5, 6)]) == [(0, 2), (2, 3), (4, 9)]


@given(st.text())
def test_any_string_is_a_query(text: str) -> None:
    query = parse_query(text)

    assert hash(query) == hash(parse_query(text))
    assert len(query.needs) == len(query.terms)


@given(texts | camels, st.data())
@example("RunS中文", None)
def test_what_is_found_is_in_the_index(text: str, data: st.DataObject | None) -> None:
    start, end = (0, len(text)) if data is None else sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    asked = text[start:end]
    if data is not None:
        asked = data.draw(st.sampled_from([asked, f'"{asked}"', asked[::-1], asked.swapcase(), f"{asked} {asked}"]))
    query = parse_query(asked)

    spans = find(query, text)

    if spans is not None:
        assert holds(index_tokens(text), query)
        assert all(0 <= start < end <= len(text) for term in spans for start, end in term)
        assert all(term == merge(term) != [] for term in spans)


@given(texts | camels)
def test_a_text_is_found_by_each_of_its_words(text: str) -> None:
    for word in text.split():
        query = parse_query(word)
        assert query == Query(()) or find(query, text) is not None


@given(texts | camels)
def test_a_text_is_found_by_all_of_itself_as_a_phrase(text: str) -> None:
    query = parse_query(f'"{text.translate(QUOTES)}"')

    assert query == Query(()) or find(query, text) is not None


def test_touching_and_overlapping_words_are_found_as_often_as_they_are_read() -> None:
    assert found("哈哈", "哈哈哈哈，哈哈") == ["哈哈哈哈", "哈哈"]
    assert found("run", "RunS runRun PruneRUNS") == ["RunS", "run", "Run", "RUNS"]
    assert found("run 数据", "run") is None


@given(texts | camels | pieces, texts | camels | pieces, st.tuples(st.integers(0, 40), st.integers(1, 6)))
@example("数据库，连接 数据库连接", "「数据库 连接」", (0, 1))
def test_a_plain_text_has_what_it_would_have_if_it_were_not_plain(text: str, asked: str, cut: tuple[int, int]) -> None:
    inside = text[cut[0] : sum(cut)]
    assert not is_plain(LONE_ACCENT)
    for query in map(parse_query, (asked, text, inside, f'"{inside}"', f"{inside} {asked}", *asked.split())):
        finder = Finder(query)
        assert finder.find(text) == finder.find(text + LONE_ACCENT)
        assert finder.find(text) == find_simply(query, text)
        with patch.object(query_module, "MOST", 2):
            first = Finder(query)
        assert first.find(text) == first.find(text + LONE_ACCENT)


few = st.lists(st.sampled_from(["a", "b", "RunS", "run", "s", "中", "文", "，", "é"]), min_size=1, max_size=40)


@given(few, few, st.sampled_from(["", " "]))
@example(["a"] * 40, ["a"] * 40, " ")
@example(["b", *["a"] * 31] * 2, ["a"] * 32, " ")
@example(["RunS"] * 20, ["run", "run", "s", "run"], " ")
def test_texts_that_repeat_have_the_phrases_they_should_have(text: list[str], asked: list[str], space: str) -> None:
    query = parse_query(f'"{space.join(asked)}" {" ".join(asked)}')

    assert find(query, space.join(text)) == find_simply(query, space.join(text))


def test_a_text_is_searched_up_to_the_thousandth_occurrence() -> None:
    for text in ("run b " * 2 * MOST, "run b é " * 2 * MOST, "run b " * 2 * MOST + "many other words " * 9 * MOST):
        spans = find(parse_query('run "run b" running'), text)
        assert spans is not None
        assert [len(term) for term in spans] == [MOST, MOST]
        assert spans[0][-1] == (text.index("run", 1) * (MOST - 1), text.index("run", 1) * (MOST - 1) + 3)


def test_many_terms_share_what_is_found() -> None:
    words = " ".join(f"w{n}" for n in range(200))

    spans = find(parse_query(words), f"{words} " * 150)

    assert spans is not None
    assert {len(term) for term in spans} == {100}


def test_a_long_phrase_is_asked_for_in_pieces() -> None:
    words = [f"w{n}" for n in range(70)]

    query = parse_query(f'"{" ".join(words)}"')

    assert query.terms == ((tuple(words[:32]),), (tuple(words[32:64]),), (tuple(words[64:]),))
    assert parse_query("中，" * 40).terms == ((("中",),),)
    assert [len(term[0]) for term in parse_query("中·" * 40).terms] == [63, 15]
    assert matches('"' + " ".join(words) + '"', " ".join(words[32:] + words[:32]))
    assert not matches('"' + " ".join(words) + '"', " ".join(words[10:] + words[:10]))


def test_a_name_is_in_one_piece_of_a_long_phrase() -> None:
    query = parse_query("/".join(["a"] * 31 + ["userName", "b"]))

    assert query.terms == ((("a",) * 31,), (("user", "name", "b"), ("usernam", "b")))


def test_a_long_query_asks_for_words_in_the_end() -> None:
    phrases = [f"a-b{n}" for n in range(300)]

    terms = parse_query(" ".join(phrases)).terms

    assert terms[:256] == tuple((("a", f"b{n}"),) for n in range(256))
    assert terms[256:] == tuple(((word,),) for word in ["a", *(f"b{n}" for n in range(256, 300))])
    assert matches(" ".join(phrases), " ".join(phrases))
    assert parse_query(" ".join(phrases + phrases[:5])).terms == terms


def test_a_text_made_to_be_slow_is_searched_in_no_time() -> None:
    for word, other in (("a ", "b "), ("é ", "ö "), ("哈", "嘿")):
        text = (word * 15 + other * 15) * 5000
        assert not matches(f'"{word * 16}{other * 16}"', text)
        assert matches(f'"{word * 15}{other * 15}"', text)


def test_a_phrase_that_is_everywhere_takes_the_memory_of_a_few_copies_of_the_text() -> None:
    for rest in (" of the database, which was restarted", "，数据库昨天重启了，所以连接超时"):
        text = f"the connection pool{rest}. " * 20_000
        finder = Finder(parse_query('"connection pool"'))
        finder.find(rest)
        tracemalloc.start()
        spans = finder.find(text)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert spans is not None
        assert len(spans[0]) == MOST
        assert peak < 4 * len(text)


def test_what_separates_two_words_is_read_once_however_many_phrases_overlap() -> None:
    text = "a " * 30 + " " * 100_000 + "a"

    with patch.object(query_module, "next_plain_token", wraps=next_plain_token) as reading:
        assert matches(f'"{"a " * 31}"', text)

    assert reading.call_count == 31
