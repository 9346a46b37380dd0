"""Words that no other message of a run holds, so that a search has exactly one right answer."""

from __future__ import annotations

# Without vowels the English stemmer leaves a word alone, so two numbers never share a stem.
_LETTERS = "bcdfghjkmnpqrtvw"
_CHINESE_START = 0x5000
_CHINESE_STEP = 0x800
_CHINESE_BASE = 512


def english_word(number: int) -> str:
    """Return the English-looking word of `number`."""
    digits = (number >> shift & 15 for shift in (16, 12, 8, 4, 0))
    return "zx" + "".join(_LETTERS[digit] for digit in digits)


def chinese_word(number: int) -> str:
    """Return the Chinese word of `number`: four characters, each from an alphabet of its own place.

    Because the alphabets differ, all three pairs of neighbours together name the number, whether
    a search compares characters, pairs or whole phrases.
    """
    digits = (number // _CHINESE_BASE**place % _CHINESE_BASE for place in range(4))
    return "".join(chr(_CHINESE_START + place * _CHINESE_STEP + digit) for place, digit in enumerate(digits))


def unique_word(number: int) -> str:
    """Return the word of `number`: every third one is Chinese."""
    return chinese_word(number) if number % 3 == 0 else english_word(number)


def sentence(word: str) -> str:
    """Return a sentence that holds `word`; a Chinese word stands between other characters without a gap."""
    if word.isascii():
        return f"Please remember {word} for the next time we talk."
    return f"我们昨天讨论了{word}的问题，还没有结论。"
