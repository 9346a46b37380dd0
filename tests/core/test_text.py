"""The analyzer: how a text is cut into searchable tokens."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from importlib.metadata import version
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.text import (
    GAP,
    MAX_WORD,
    Cutter,
    analyzer_version,
    ascii_words,
    count_beginnings,
    index_tokens,
    is_dense,
    is_plain,
    is_plain_dense,
    next_plain_token,
    plain_ends,
    plain_places,
    tokens,
)

# Whatever has a rule of its own, so that random texts meet the rules next to each other.
CHARACTERS = (
    "abcdeRSTUé\u0301\u0308ßİıǅøΣςйЙ09²½Ⅷ_-./'\"“「」 \n\t\u3000，。"
    "中文字日本語々〇のカﾊﾞﾟ゙ーｶ한국어\u1100\u1161\u11a8ㅋㄅ㈠㍿ゟ葛\ufe00\U000e0100\U00020000"
    "กาแฟดีລາວမြန်ខ្មែរहिन्दीعَلَيـﷺשָ\u200c\u200d\u00ad\u20e3🙂\0\ud800\udfff\uffff"
)
texts = st.text(st.sampled_from(CHARACTERS) | st.characters(), max_size=40)


def cut(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


def wanted_tokens(text: str, wanted: frozenset[str]) -> list[tuple[str, int, int, int, int]]:
    return list(Cutter(wanted).tokens(text))


def places(token: str, text: str) -> list[tuple[int, int]]:
    return list(plain_places(token, text, ascii_words(text)))


@pytest.mark.parametrize(
    "family",
    [
        ["deploy", "deploys", "deployed", "deploying", "deployment", "Deployments"],
        ["run", "runs", "running", "RUNNING"],
        ["cafe", "café", "cafe\u0301", "CAFÉ", "Cafés"],
        ["strasse", "Straße", "STRASSE"],
        ["istanbul", "İstanbul"],
        ["file", "ﬁle", "ｆｉｌｅ"],
        ["Ελλάδα", "ελλαδα", "ΕΛΛΆΔΑ"],
        ["ёлка", "елка", "ЁЛКА"],
        ["soft", "so\u00adft"],
        ["می‌خواهم", "میخواهم"],
        ["سَلَام", "سلام"],
        ["ガ", "ｶﾞ", "カ\u3099"],
        ["각", "\u1100\u1161\u11a8"],
        ["葛", "葛\U000e0100"],
        ["1", "1\ufe0f\u20e3", "①"],
    ],
)
def test_forms_of_a_word_are_one_token(family: list[str]) -> None:
    assert len({tuple(cut(form)) for form in family}) == 1
    assert len(cut(family[0])) == 1


def test_words_are_separated_by_everything_that_is_no_letter_digit_or_mark() -> None:
    assert cut("user_name multi-agent core/text.py") == [
        "user",
        "name",
        "multi",
        "agent",
        "core",
        "text",
        "py",
    ]


@pytest.mark.parametrize(
    ("word", "parts", "whole"),
    [
        ("userName", ["user", "name"], "usernam"),
        ("HTTPServer", ["http", "server"], "httpserver"),
        ("parseJSONFast", ["pars", "json", "fast"], "parsejsonfast"),
        ("S3Bucket", ["s3", "bucket"], "s3bucket"),
        ("имяПользователя", ["имя", "пользователя"], "имяпользователя"),
        ("cafe\u0301Menu", ["cafe", "menu"], "cafemenu"),
    ],
)
def test_a_camel_case_word_is_its_parts_then_the_whole(word: str, parts: list[str], whole: str) -> None:
    found = list(tokens(word))

    assert [token.text for token in found] == [*parts, whole]
    assert [token.pos for token in found] == [*range(len(parts)), 0]
    assert [token.next_pos for token in found] == [*range(1, len(parts) + 1), len(parts)]
    assert "".join(word[token.start : token.end] for token in found[:-1]) == word
    assert (found[-1].start, found[-1].end) == (0, len(word))


@pytest.mark.parametrize("word", ["server", "Server", "SERVER", "sha256", "B2B", "utf8", "42nd"])
def test_other_words_are_one_token(word: str) -> None:
    assert len(cut(word)) == 1


def test_a_word_of_many_humps_is_only_its_whole() -> None:
    assert cut("AaBbCcDdEeFf")[:-1] == ["aa", "bb", "cc", "dd", "ee", "ff"]
    assert cut("AaBbCcDdEeFfGg") == ["aabbccddeeffgg"]


def test_a_long_word_is_known_by_its_beginning() -> None:
    word = "1x" * 500_000

    (token,) = tokens(word)

    assert token == (word[:MAX_WORD], 0, 1, 0, len(word))
    assert index_tokens(word) == {word[:MAX_WORD]}


def test_chinese_japanese_and_korean_are_cut_into_characters_and_pairs() -> None:
    assert cut("数据库") == ["数", "据", "库"]
    assert index_tokens("数据库") == {"数", "据", "库", "数据", "据库"}
    assert index_tokens("日本語") == {"日", "本", "語", "日本", "本語"}
    assert index_tokens("한국어") == {"한", "국", "어", "한국", "국어"}


def test_half_width_kana_keep_their_place_in_the_original() -> None:
    assert list(tokens("xｶﾞﾂ")) == [("x", 0, 1, 0, 1), ("ガ", 1, 2, 1, 3), ("ツ", 2, 3, 3, 4)]


def test_pairs_do_not_reach_across_what_separates() -> None:
    assert index_tokens("好人，生活") == {"好", "人", "好人", "生", "活", "生活"}
    assert [token.pos for token in tokens("好人，生活")] == [0, 1, 2 + GAP, 3 + GAP]


def test_a_word_of_which_nothing_is_left_separates_and_takes_no_position() -> None:
    stretch = "\u0640"

    assert cut(stretch) == cut(stretch * 100) == []
    assert [token.pos for token in tokens(f"a {stretch} b中{stretch}文")] == [0, 1, 2, 3 + GAP]
    assert [pos for _, pos, *_ in wanted_tokens(f"a {stretch} b", frozenset("ab"))] == [0, 1]


def test_a_word_next_to_chinese_takes_the_next_position() -> None:
    assert [(t.text, t.pos) for t in tokens("用Redis缓存")] == [("用", 0), ("redi", 1), ("缓", 2), ("存", 3)]


def test_thai_words_are_indexed_inside_sentences() -> None:
    assert index_tokens("กาแฟดี") >= index_tokens("กาแฟ")


def test_an_indic_word_is_one_token() -> None:
    assert cut("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


def test_only_wanted_tokens_come_with_the_places_they_have_among_all() -> None:
    text = "The userName of 数据库 is running，库"

    for wanted in (frozenset({"name", "据", "run"}), frozenset({"run", "x"}), frozenset[str]()):
        assert wanted_tokens(text, wanted) == [token for token in tokens(text) if token.text in wanted]


def test_signs_without_end_join_one_character_in_no_time() -> None:
    text = "\u0e14" + "\u0e48\u0e38" * 100_000

    (token,) = tokens(text)

    assert (token.start, token.end) == (0, len(text))
    assert index_tokens(text) == {token.text}


def test_more_words_than_are_remembered_are_cut_alike() -> None:
    text = " ".join(f"runs w{n}" for n in range(20_000))

    assert [pos for _, pos, *_ in wanted_tokens(f"{text} {text}", frozenset({"w19999"}))] == [39999, 79999]


def test_the_version_names_the_stemmer() -> None:
    assert f"+snowball{version('snowballstemmer')}+" in analyzer_version()


def test_importing_the_analyzer_does_not_import_the_stemmer() -> None:
    program = "import sys, leafward.core.text; print('snowballstemmer' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_every_character_folds_to_letters_digits_and_marks_or_to_nothing() -> None:
    everything = " ".join(map(chr, range(sys.maxunicode + 1)))

    for token in tokens(everything):
        character = everything[token.start : token.end]
        assert len(character) == 1
        assert is_dense(token.text) == is_dense(character), ascii(character)
        # A character that this Python does not know yet is taken for what its block is made for.
        kinds = {unicodedata.category(c) for c in token.text}
        assert all(kind[0] in "LMN" or kind == "Cn" for kind in kinds), ascii(character)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user_name (userName)",
        "用Redis缓存，快。",
        "サーバーを再起動",
        "한국어 공부",
        "“so” – 5 €…",
        "👍🏽 ❤️‍🔥 ⚠️中",
        "🇨🇳",
    ],
)
def test_most_texts_are_plain(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize("text", ["café", "é", "ﬁle", "ｆ", "²", "①", "so­ft", "a‍b", "ｶﾞ", "ガ", "葛︀", "1️⃣", "ไทย", "й"])
def test_a_text_is_not_plain_when_what_it_shows_is_not_what_is_searched(text: str) -> None:
    assert not is_plain(text)


def test_every_plain_character_is_a_token_of_its_own_or_separates() -> None:
    for character in filter(is_plain, map(chr, range(128, sys.maxunicode + 1))):
        dense = is_plain_dense(character)
        text = f"x{character}y中{character}文" + ("" if dense else f"{character}\ufe0f\u200dz")
        expected = [*"xy中文"] if not dense else ["x", character, "y", "中", character, "文"]
        expected += [] if dense else ["z"]

        found = list(tokens(text))

        assert [token.text for token in found] == expected == [text[t.start : t.end] for t in found], ascii(character)
        assert (next_plain_token(character, 0) == 0) == dense, ascii(character)


WORDS = "d t sk y by sky sin hop hopp plan use ear univers gener commun sens rel bl at iz ab ski out inn past"
DERIVED = (
    " able ably al ally alism ality ability ation ational ator ancy e ee eed ement ency ent ently er est ful fulness i"
    " ibility ible icate ical icity ing ion ist ive iveness ivity ization izer l less lessly ll ly ment ness ogist ogy"
    " ous ously ousness tional y"
)
INFLECTED = " s es ies ied ed edly ing ingly ly y"


def test_words_are_found_by_their_stem_without_cutting_the_others() -> None:
    for word in map("".join, product(WORDS.split(), DERIVED.split(" "), INFLECTED.split(" "))):
        (token,) = cut(word)
        assert places(token, f"中{word}") == [(1, 1 + len(word))]


@given(st.text("abdegilnstyz", min_size=1, max_size=8))
def test_any_letters_are_found_by_their_stem(word: str) -> None:
    (token,) = cut(word)

    assert places(token, f"x {word.upper()}") == [(2, 2 + len(word))]


def test_overlapping_places_in_a_plain_text_are_all_found() -> None:
    assert places("哈哈", "哈哈哈，哈哈") == [(0, 2), (1, 3), (4, 6)]
    assert places("run", "RunS run RUNNING prune reRun 中runs") == [
        (0, 3), (0, 4), (5, 8), (9, 16), (25, 28), (30, 34)
    ]  # fmt: skip


def test_what_follows_in_a_plain_text_is_found_where_it_starts() -> None:
    text = "a RunS 数据 runs"
    words = ascii_words(text)

    assert [next_plain_token(text, end) for end in (1, 5, 6, 9, len(text))] == [2, 5, 7, 10, len(text)]
    assert plain_ends("run", text, words, 2) == [5, 6]
    assert plain_ends("s", text, words, 5) == [6]
    assert plain_ends("run", text, words, 5) == plain_ends("run", text, words, len(text)) == []
    assert plain_ends("数据", text, words, 7) == [9]
    assert plain_ends("数据", text, words, 10) == plain_ends("数", text, words, len(text)) == []


def test_the_beginning_of_a_long_word_is_found_and_nothing_inside() -> None:
    word = "needleHay" * 10

    assert places(cut(word)[0], f"- {word}") == [(2, 92)]
    assert places("hay", word) == []


@given(texts)
def test_tokens_are_indexed_and_have_a_place_in_the_text(text: str) -> None:
    indexed = index_tokens(text)
    for token in tokens(text):
        assert token.text in indexed
        assert token.pos < token.next_pos
        assert 0 <= token.start < token.end <= len(text)


@given(texts)
def test_neighbouring_dense_tokens_are_indexed_as_pairs(text: str) -> None:
    indexed = index_tokens(text)
    dense = {token.pos: token.text for token in tokens(text) if is_dense(token.text)}
    for pos, first in dense.items():
        if pos + 1 in dense:
            assert first + dense[pos + 1] in indexed


@given(texts, st.data())
def test_wanted_tokens_are_those_of_all_that_are_wanted(text: str, data: st.DataObject) -> None:
    everything = sorted({token.text for token in tokens(text)})
    wanted = data.draw(st.frozensets(st.sampled_from(everything))) if everything else frozenset("a")

    cutter = Cutter(wanted)
    for _ in ("new words", "known words"):
        assert list(cutter.tokens(text)) == [token for token in tokens(text) if token.text in wanted]
    # So many that they are not told apart by more than their first letter, or not even by that.
    for others in (frozenset(f"9{n}" for n in range(17)), frozenset(map(chr, range(0x400, 0x440)))):
        found = [token for token in wanted_tokens(text, wanted | others) if token[0] in wanted]
        assert found == wanted_tokens(text, wanted)


def test_no_more_places_are_found_than_words_begin_alike() -> None:
    text = "Running RUNS prune 中文中"

    assert count_beginnings("run", text, ascii_words(text)) == 3
    assert count_beginnings("中", text, b"") == 2


@given(st.text(st.sampled_from("aEéÉöñńσΣй 中が각")))
def test_composed_and_decomposed_text_have_the_same_tokens(text: str) -> None:
    assert cut(unicodedata.normalize("NFD", text)) == cut(unicodedata.normalize("NFC", text))
