"""Synthetic agent traffic: the same messages for every contender, on every run.

A turn is four messages: user, assistant with a tool call, tool result, assistant. Their mean is about one
kilobyte of JSON. Words follow a Zipf-like law over a few thousand English forms; every fifth turn is Chinese
or Japanese. Message `n` depends on `n` alone, so contenders in different processes write the same bytes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SEED = 20_260_701
TURNS = 2_000
RARE_EVERY = 997
PHRASE_EVERY = 211

RARE_WORD = "kestrel"
PHRASE = ("copper", "lantern")
CHINESE_WORD = "合同"


def _listed(name: str) -> list[str]:
    return (Path(__file__).parent / "words" / f"{name}.txt").read_text(encoding="utf-8").split()


_ROOTS = _listed("english")
_ENDINGS = ("", "s", "ed", "ing", "er", "able", "ment", "less", "ful", "ness")
_BEGINNINGS = ("", "re", "un")
_SMALL = _listed("small")

_CHINESE = _listed("chinese")
_JAPANESE = _listed("japanese")
_TOOLS = ("search_orders", "readFile", "run_query", "fetch_page", "create_ticket", "list_events")
_SENTENCE_ENDS = {"english": ". ", "chinese": "。", "japanese": "。"}


@cache
def vocabulary() -> list[str]:
    """Return the English words, the most frequent first."""
    forms = [b + root + e for b, e in itertools.product(_BEGINNINGS, _ENDINGS) for root in _ROOTS]
    rng = random.Random(SEED)
    frequent, others = forms[: len(_ROOTS)], forms[len(_ROOTS) :]
    rng.shuffle(frequent)
    rng.shuffle(others)
    return _SMALL + frequent + others


def common_word() -> str:
    """Return a content word that a good part of all messages hold."""
    return vocabulary()[len(_SMALL)]


def two_words() -> tuple[str, str]:
    """Return two words of middling frequency."""
    return vocabulary()[len(_SMALL) + 12], vocabulary()[len(_SMALL) + 40]


@cache
def _weights(count: int) -> list[float]:
    return list(itertools.accumulate(1 / (rank + 3) for rank in range(count)))


def _words(rng: random.Random, language: str, count: int) -> list[str]:
    pool = {"english": vocabulary(), "chinese": _CHINESE, "japanese": _JAPANESE}[language]
    return rng.choices(pool, cum_weights=_weights(len(pool)), k=count)


def _text(rng: random.Random, language: str, size: int) -> str:
    """Return about `size` bytes of sentences."""
    gap, word_bytes = (" ", 7) if language == "english" else ("", 6)
    sentences: list[str] = []
    left = max(2, size // word_bytes)
    while left > 0:
        count = min(left, rng.randint(6, 16))
        left -= count
        sentence = gap.join(_words(rng, language, count))
        sentences.append(sentence[0].upper() + sentence[1:])
    return _SENTENCE_ENDS[language].join(sentences) + _SENTENCE_ENDS[language].strip()


def _size(rng: random.Random, mean: int) -> int:
    return int(min(rng.lognormvariate(0, 0.5), 3.0) * mean * 0.9)


@cache
def _turns() -> list[tuple[str, str, str, str, str]]:
    """Return the texts of the turns: question, remark before the call, tool name, tool output, answer."""
    rng = random.Random(SEED + 1)
    turns: list[tuple[str, str, str, str, str]] = []
    for number in range(TURNS):
        language = "english" if number % 5 else rng.choice(("chinese", "chinese", "japanese"))
        turns.append(
            (
                _text(rng, language, _size(rng, 420)),
                _text(rng, language, _size(rng, 180)),
                rng.choice(_TOOLS),
                _text(rng, language, _size(rng, 1_400)),
                _text(rng, language, _size(rng, 860)),
            )
        )
    rng.shuffle(turns)
    return turns


def _planted(number: int) -> str:
    text = f" Reference {number}."
    if number % RARE_EVERY == 0:
        text += f" A {RARE_WORD} was seen."
    if number % PHRASE_EVERY == 0:
        text += f" Bring the {' '.join(PHRASE)} back."
    return text


def message(number: int, *, session: int = 0) -> dict[str, Any]:
    """Return message `number` of a session in leafward's wire shape."""
    question, remark, tool, output, answer = _turns()[(number // 4 + session * 37) % TURNS]
    mark = _planted(number)
    call = f"call_{session:05d}_{number // 4:07d}"
    kind = number % 4
    if kind == 0:
        role, parts = "user", [{"type": "text", "text": question + mark}]
    elif kind == 1:
        use = {"type": "tool_use", "id": call, "name": tool, "input": {"query": question[:60], "limit": 20}}
        role, parts = "assistant", [{"type": "text", "text": remark + mark}, use]
    elif kind == 2:
        result = {
            "type": "tool_result",
            "id": call,
            "name": tool,
            "output": output + mark,
            "state": "success",
        }
        role, parts = "tool", [result]
    else:
        role, parts = "assistant", [{"type": "text", "text": answer + mark}]
    seconds = number % 86_400
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return {
        "id": f"msg_{session:05d}_{number:09d}",
        "role": role,
        "parts": parts,
        "createdAt": f"2026-03-{1 + number // 86_400 % 28:02d}T{clock}.000000Z",
    }


def messages(start: int, stop: int, *, session: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the messages `start` to `stop - 1` of a session."""
    return (message(number, session=session) for number in range(start, stop))


def searched_text(value: dict[str, Any]) -> str:
    """Return the text of a message that a full-text index would hold."""
    pieces: list[str] = []
    for part in value["parts"]:
        pieces.extend(str(part[key]) for key in ("text", "name", "output") if key in part)
        if "input" in part:
            pieces.append(part["input"]["query"])
    return "\n".join(pieces)


def summary() -> str:
    """Return a text as long as a message, to stand for others."""
    return _turns()[0][4]


MARKS = {1: "albatross", 10: "barnacle", 100: "cormorant", 1_000: "dragonfly"}
"""Words that so many of a block's entries hold; the English vocabulary has none of them."""
UNUSED_WORD = "zeppelin"


def entry(number: int, *, of: int) -> str:
    """Return entry `number` of a block of `of` entries."""
    marks = [word for count, word in MARKS.items() if number % max(1, of // count) == 0]
    return " ".join([message(number * 4)["parts"][0]["text"], *marks])
