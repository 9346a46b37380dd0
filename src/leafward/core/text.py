"""How a text is cut into searchable tokens, the same for every backend, for indexing and for queries.

A text is a sequence of words and dense runs. A *word* is a run of letters, digits and combining marks; it is
folded (case, accents, compatibility forms) and, when that leaves a-z only, reduced to its English stem. A
*dense run* is text in a script where words are not set apart (Chinese, Japanese, Korean, Thai, ...); each of
its characters is a token. Offsets point into the original text, which is never normalised as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from itertools import pairwise, repeat
from operator import add
from typing import NamedTuple, Protocol

MAX_WORD = 64
"""Longer words are known by their first 64 characters."""

MAX_PARTS = 6
"""A word with more camelCase parts is data (base64, a hash), not a name: it is indexed as a whole only."""

GAP = 1 << 32
"""Positions left empty between two dense runs: a word does not reach across what separates them."""

# More tokens than these are not told apart by how their words begin.
_FEW = 16
_FEW_LETTERS = 40
# Words that a `Cutter` remembers.
_KNOWN = 16384
# Raise this when the cut changes: stored indexes are then rebuilt.
_CUT = "2"

# Scripts without spaces between words. Korean has spaces, but its particles hang on the word.
_DENSE = (
    "\u1100-\u11ff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\u3131-\u318e\uffa0-\uffdc"  # Hangul
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003fffd"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d"  # kana
    "\U0001aff0-\U0001b16f"
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u0e01-\u0e33\u0e40-\u0e46\u0e81-\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\u1780-\u17d3"  # Burmese, Khmer
)
# What belongs to the character before it: kana voicing, Hangul vowels and finals, vowel signs, variants.
_JOINING = (
    "\u1160-\u11ff\ud7b0-\ud7fb\u302a-\u302f\u3099\u309a\uff9e\uff9f\ufe00-\ufe0f\U000e0100-\U000e01ef"
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u109a-\u109d"
    "\u17b4-\u17d3\u200c\u200d"
)
# Every dense script comes after these in Unicode: a comparison spares most words the test.
_BEFORE_DENSE = "\u0e00"
# To `re`, a combining mark is no word character; this is where those of living scripts are.
_MARK_BLOCKS = ((0x0300, 0x1DFF), (0x20D0, 0x20FF), (0xA66F, 0xABFF), (0xFE20, 0xFE2F))
# Soft hyphen, joiners and variation selectors are invisible inside a word.
_INVISIBLE = "\u00ad\u200c\u200d\u2060\ufe00-\ufe0f"
# Enclosed, squared and annotating forms unfold to several words, brackets or Han, so they separate.
_SEPARATING = "\u3190-\u319f\u3200-\u33ff"

# Dense characters that fold to themselves, alone and next to each other.
_PLAIN_DENSE = "\u3005-\u3007\u3041-\u3096\u309d\u309e\u30a1-\u30fa\u30fc-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
# Punctuation, symbols and emoji that are in no word: all that are common, not all there are.
_PLAIN_SEPARATORS = (
    "\u00a0-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
    "\u2000-\u200b\u2010-\u205f\u20a0-\u20c0\u2122\u2190-\u245f\u2500-\u2775\u2794-\u2bff"
    "\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30a0\u30fb"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\ufffd\U0001f1e6-\U0001faff"
)

_ASCII_WORD = re.compile("[A-Za-z0-9]+")
_SPACE = ord(" ")
# For `bytes.translate`.
_ASCII_WORDS = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else _SPACE for byte in range(256))
# In a plain text every letter and digit belongs to a token.
_PLAIN_TOKEN = re.compile(r"[^\W_]")
# How a stem may end that its words do not begin with: happi(y), relate(ing), sensibl(ility), sky(ies), die(ying).
_STEM_ENDING = re.compile("(?:[il]?e|[ily])$")
_VARIATION = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Accents of Latin, Greek and Cyrillic, points of Hebrew, vowel marks and the stretch of Arabic, and the like.
_ACCENT = re.compile("[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0640\u064b-\u0652\u0670\u20d0-\u20ff\ufe00-\ufe0f]")


class Token(NamedTuple):
    """One searchable token and its place.

    `pos` counts words and dense characters; the next token of a phrase starts at `next_pos`. `start` and
    `end` are character offsets into the original text.
    """

    text: str
    pos: int
    next_pos: int
    start: int
    end: int


class _Patterns(NamedTuple):
    word: re.Pattern[str]
    dense_run: re.Pattern[str]
    either: re.Pattern[str]
    dense_character: re.Pattern[str]
    joining: re.Pattern[str]
    plain: re.Pattern[str]
    plain_dense: re.Pattern[str]


@lru_cache(maxsize=1)
def _patterns() -> _Patterns:
    # At the first text beyond ASCII, because compiling takes as long as importing the rest of leafward.
    joining = re.compile(f"[{_JOINING}]")
    marks = "".join(
        character
        for first, last in _MARK_BLOCKS
        for character in map(chr, range(first, last + 1))
        if unicodedata.category(character)[0] == "M" and not joining.match(character)
    )
    letter = f"(?:[A-Za-z0-9]++|[^\\W\x00-\x7f{_DENSE}{_JOINING}{_SEPARATING}])"
    word = f"{letter}(?:{letter}|[{marks}{_INVISIBLE}])*+"
    dense_run = f"[{_DENSE}][{_DENSE}{_JOINING}]*+"
    return _Patterns(
        word=re.compile(word),
        dense_run=re.compile(dense_run),
        either=re.compile(f"{dense_run}|{word}"),
        dense_character=re.compile(f"[{_DENSE}][{_JOINING}]*+"),
        joining=joining,
        # After a separator, what makes an emoji of a symbol or one emoji of two joins to nothing else.
        plain=re.compile(f"(?:[\x00-\x7f{_PLAIN_DENSE}]++|[{_PLAIN_SEPARATORS}]++[\u200d\ufe0f]*+)*+"),
        plain_dense=re.compile(f"[{_PLAIN_DENSE}]"),
    )


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802


@lru_cache(maxsize=1)
def analyzer_version() -> str:
    """Return the version of the cut; an index made by another version has to be rebuilt."""
    # A slow import, and not every process that imports leafward searches.
    from importlib.metadata import version

    # A character's category and folding may change with Unicode, a word's stem with the stemmer.
    return f"{_CUT}+snowball{version('snowballstemmer')}+unicode{unicodedata.unidata_version}"


def index_tokens(text: str) -> set[str]:
    """Return all a backend's index stores for a text.

    That is the stem of every word, the parts and the whole of camelCase words, the characters of dense runs
    and the pairs of neighbours in them. Tokens are made of letters, digits and marks only.
    """
    if text.isascii():
        words: list[str] = _ASCII_WORD.findall(text)
        runs: list[str] = []
    else:
        words = _patterns().word.findall(text)
        runs = _patterns().dense_run.findall(text)
    found = {_stemmed(part.text) for word in set(words) for part in _cut(word)}
    for run in runs:
        characters = run if _is_folded(run) else [character for character, _ in _characters(run)]
        found.update(characters)
        found.update(map(add, characters, characters[1:]))
    return found


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text in order.

    The whole of a camelCase word comes after its parts, at the position of the first of them. Dense runs with
    no word between them are `GAP` positions apart.
    """
    return map(Token._make, Cutter(None).tokens(text))


class Cutter:
    """Cuts many texts into `tokens`, those that are wanted, or all; what a word has of them is remembered."""

    def __init__(self, wanted: frozenset[str] | None) -> None:
        self._wanted = wanted
        self._beginnings = ("",) if wanted is None else _beginnings(wanted)
        self._known: dict[str, tuple[tuple[Token, ...], int]] = {}

    def tokens(self, text: str) -> Iterator[tuple[str, int, int, int, int]]:
        """Yield the tokens of a text as bare tuples, which are quicker made."""
        wanted, known = self._wanted, self._known
        pos = 0
        after_dense = False
        for match in (_ASCII_WORD if text.isascii() else _patterns().either).finditer(text):
            run = match[0]
            if run > _BEFORE_DENSE and is_dense(run):
                pos += GAP if after_dense else 0
                after_dense = True
                if wanted and _is_folded(run) and wanted.isdisjoint(run):
                    pos += len(run)
                    continue
                start = match.start()
                for character, length in _characters(run):
                    if wanted is None or character in wanted:
                        yield character, pos, pos + 1, start, start + length
                    pos += 1
                    start += length
                continue
            parts, width = known.get(run) or self._learn(run)
            if parts:
                start = match.start()
                for token, first, last, begin, end in parts:
                    yield token, pos + first, pos + last, start + begin, start + end
            if width:
                after_dense = False
                pos += width

    def _learn(self, word: str) -> tuple[tuple[Token, ...], int]:
        """Return the tokens of a word that are wanted, placed within it, and how many positions it takes."""
        parts = _cut(word)
        # Finding a stem takes long, so only of what can have one that is wanted.
        stemmed = (part._replace(text=_stemmed(part.text)) for part in parts if part.text.startswith(self._beginnings))
        kept = tuple(part for part in stemmed if self._wanted is None or part.text in self._wanted)
        learnt = kept, parts[-1].next_pos if parts else 0
        if len(self._known) < _KNOWN and len(word) <= MAX_WORD:
            self._known[word] = learnt
        return learnt


def is_plain(text: str) -> bool:
    """Return whether all tokens of a text are ASCII words or dense characters that stand in it as they are.

    Most texts are plain, and in them `plain_places` finds what `tokens` would, without cutting the whole text.
    """
    return text.isascii() or _patterns().plain.fullmatch(text) is not None


def is_plain_dense(token: str) -> bool:
    """Return whether a token is a dense character that a plain text may hold."""
    return _patterns().plain_dense.fullmatch(token) is not None


def ascii_words(text: str) -> bytes:
    """Return a byte for each character, ASCII letters and digits in lower case, the rest spaces, and a last space."""
    return text.encode("ascii", "replace").translate(_ASCII_WORDS) + b" "


def plain_places(wanted: str, text: str, words: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of everything in a plain text that is `wanted`, overlapping or not, as `tokens` does.

    `wanted` is the token of an ASCII word, or dense characters in a row; `words` are the `ascii_words` of the text.
    """
    return _plain_words(wanted, text, words) if wanted.isascii() else _plain_dense(wanted, text)


def count_beginnings(wanted: str, text: str, words: bytes) -> int:
    """Return how often `plain_places` has to look closer, at most, to yield all."""
    return words.count(_beginning(wanted).encode()) if wanted.isascii() else text.count(wanted)


def next_plain_token(text: str, end: int) -> int:
    """Return where the first token of a plain text from `end` on starts, or the length of the text."""
    match = _PLAIN_TOKEN.search(text, end)
    return match.start() if match else len(text)


def plain_ends(wanted: str, text: str, words: bytes, start: int) -> list[int]:
    """Return the ends of those `plain_places` that start at `start`, where a token does: `RunS` has two for `run`."""
    if not wanted.isascii():
        return [start + len(wanted)] if text.startswith(wanted, start) else []
    beginning = _beginning(wanted)
    if not words.startswith(beginning.encode(), start):
        return []
    return [end for first, end in _in_plain_word(wanted, beginning, text, words, start) if first == start]


def _plain_dense(wanted: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(wanted)
    while start >= 0:
        yield start, start + len(wanted)
        start = text.find(wanted, start + 1)


def _plain_words(wanted: str, text: str, words: bytes) -> Iterator[tuple[int, int]]:
    beginning = _beginning(wanted)
    sought = beginning.encode()
    found = words.find(sought)
    while found >= 0:
        end = found + 1
        # A token starts with its word or, inside of it, with a capital letter; then the word is cut to see.
        # The space after the last character is, at index -1, also before the first.
        if words[found - 1] == _SPACE or text[found].isupper():
            yield from _in_plain_word(wanted, beginning, text, words, found)
            end = words.find(b" ", found)
        found = words.find(sought, end)


def _in_plain_word(wanted: str, beginning: str, text: str, words: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of what is wanted, and so begins, in the word around a place."""
    start = words.rfind(b" ", 0, place) + 1
    for letters, _, _, first, last in _cut(text[start : words.find(b" ", place)]):
        if letters.startswith(beginning) and _stemmed(letters) == wanted:
            yield start + first, start + last


@lru_cache(maxsize=256)
def _beginning(token: str) -> str:
    """Return what all words with this token begin with, in lower case."""
    return _STEM_ENDING.sub("", token) or token[0]


def _beginnings(wanted: frozenset[str]) -> tuple[str, ...]:
    """Return what a word that has one of these tokens begins with: a few short strings, for `startswith`."""
    if len(wanted) <= _FEW:
        return tuple({_beginning(token) for token in wanted})
    letters = {token[0] for token in wanted}
    return tuple(letters) if len(letters) <= _FEW_LETTERS else ("",)


def is_dense(token: str) -> bool:
    """Return whether a token is a character of a dense run, so that its pairs with neighbours are indexed."""
    patterns = _patterns()
    # The folded form of a Thai vowel may begin with a sign.
    return bool(patterns.dense_character.match(token) or patterns.joining.match(token))


def _is_folded(run: str) -> bool:
    """Return whether the characters of a dense run are its tokens as they stand."""
    # In this order: normalising takes a time quadratic in the number of signs that join.
    return not _patterns().joining.search(run) and unicodedata.is_normalized("NFKC", run)


def _characters(run: str) -> Iterable[tuple[str, int]]:
    """Return the folded characters of a dense run, each with the length it has in the run."""
    if _is_folded(run):
        return zip(run, repeat(1))
    found = (match[0] for match in _patterns().dense_character.finditer(run))
    return ((_fold_dense(one[:MAX_WORD]), len(one)) for one in found)


@lru_cache(maxsize=4096)
def _fold_dense(character: str) -> str:
    return _VARIATION.sub("", unicodedata.normalize("NFKC", character))


def _cut(word: str) -> tuple[Token, ...]:
    """Return the tokens of a word, not yet stemmed: its camelCase parts if it has some, then the whole."""
    if len(word) <= MAX_WORD:
        return _parts(word)
    # Not cached as it is: a megabyte of base64 is one word.
    whole = _fold(word[:MAX_WORD])
    return (Token(whole, 0, 1, 0, len(word)),) if whole else ()


@lru_cache(maxsize=16384)
def _parts(word: str) -> tuple[Token, ...]:
    whole = _fold(word)
    if not whole:
        return ()
    cuts = [0, *_humps(word), len(word)]
    if not 2 < len(cuts) <= MAX_PARTS + 1:
        return (Token(whole, 0, 1, 0, len(word)),)
    parts = [Token(_fold(word[a:b]), n, n + 1, a, b) for n, (a, b) in enumerate(pairwise(cuts))]
    return (*parts, Token(whole, 0, len(parts), 0, len(word)))


def _humps(word: str) -> list[int]:
    """Return where the camelCase parts after the first start: in `HTTPServer` at 4, in `server` nowhere."""
    if word.islower() or word.isupper() or word[1:].islower():
        return []
    letters = [(place, letter) for place, letter in enumerate(word) if unicodedata.category(letter)[0] in "LN"]
    return [
        place
        for (_, before), (place, letter), (_, after) in zip(letters, letters[1:], [*letters[2:], (0, "")], strict=False)
        if letter.isupper() and (before.islower() or (after.islower() and (before.isupper() or before.isdigit())))
    ]


def _fold(word: str) -> str:
    """Return a word, or a part of one, without what does not matter; empty when nothing of it is left."""
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", word).casefold())
    composed = unicodedata.normalize("NFC", _ACCENT.sub("", plain))
    # Some letters unfold to several words with spaces or slashes between.
    return "".join(letter for letter in composed if unicodedata.category(letter)[0] in "LMN")[:MAX_WORD]


@lru_cache(maxsize=16384)
def _stemmed(letters: str) -> str:
    """Return the form under which a folded word is indexed."""
    # A stemmer holds the word it works on, and one thread may index while another searches.
    return _stemmer()().stemWord(letters) if letters.isascii() and letters.isalpha() else letters


@lru_cache(maxsize=1)
def _stemmer() -> Callable[[], _Stemmer]:
    # By name, for the package has no types; `stemmer()` there takes another implementation if it finds one.
    return import_module("snowballstemmer.english_stemmer").EnglishStemmer
