"""Context blocks, and the system prompt they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SEPARATOR = "═" * 46

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_SHORTEST_LINE = 3


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A labelled section of the system prompt, with its content as of one moment."""

    label: str
    description: str | None
    content: str
    tokens: int
    max_tokens: int | None
    writable: bool
    is_skill: bool
    is_searchable: bool


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One entry of a keyed block; `content` is `None` where a list of entries comes without their texts."""

    key: str
    description: str | None = None
    content: str | None = None


def usage_percent(tokens: int, max_tokens: int) -> int:
    """Return how full a block is, halves rounded up."""
    return (200 * tokens + max_tokens) // (2 * max_tokens)


def render_prompt(blocks: Iterable[ContextBlock], *, writable_tag: bool = True) -> str:
    """Return the system prompt: each block under a header that says what it is and how full.

    A block that is empty and that nobody can fill, load from or search is left out. What a block holds can look like
    no header: a line that is all `═`, or has as many as a header's, is shown with `=`. Without `writable_tag` a
    writable block's header ends after its usage.
    """
    return "\n\n".join(_section(block, writable_tag) for block in blocks if _shows(block))


def _shows(block: ContextBlock) -> bool:
    return bool(block.content) or block.writable or block.is_skill or block.is_searchable


def _section(block: ContextBlock, writable_tag: bool) -> str:
    header = harmless(" ".join(block.label.upper().splitlines()))
    if block.description:
        header += f" ({' '.join(harmless(block.description).split())})"
    if block.max_tokens:
        percent = usage_percent(block.tokens, block.max_tokens)
        header += f" [{percent}% — {block.tokens}/{block.max_tokens} tokens]"
    tag = _tag(block)
    if writable_tag or tag != "writable":
        header += f" [{tag}]"
    return "\n".join((SEPARATOR, header, SEPARATOR, harmless(block.content)))


def _tag(block: ContextBlock) -> str:
    if block.is_searchable:
        return "searchable"
    if block.is_skill:
        return "loadable"
    return "writable" if block.writable else "readonly"


def harmless(text: str) -> str:
    """Return a text in which no line can be taken for the separator of two blocks."""
    if "═" not in text:
        return text
    return "".join(_harmless_line(line) for line in text.splitlines(keepends=True))


def _harmless_line(line: str) -> str:
    drawn = line.count("═")
    forged = drawn >= len(SEPARATOR) or (drawn >= _SHORTEST_LINE and all(c == "═" or _is_unseen(c) for c in line))
    return line.replace("═", "=") if forged else line


def _is_unseen(character: str) -> bool:
    """Tell spaces, controls, marks and other characters that do not make a line look different."""
    # Loaded when it is first needed: hardly any block draws such lines.
    import unicodedata

    return unicodedata.category(character)[0] in "CMZ" or character in _BLANK_LETTERS
