"""What a person sees: colours in a terminal, plain text anywhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.text import Text

from leafward import SearchResult

# Control characters could move the cursor or set the title of a terminal; the marks that turn the direction of
# writing could make a line read as something else.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_INDENT = "   "


def printable(text: str) -> str:
    """Return a text on one line, with a stand-in for each character that a terminal might obey."""
    return _UNSAFE.sub("\ufffd", re.sub(r"[\t\r\n]+", " ", text))


class Screen:
    """Prints to standard output; with `quiet` it prints nothing.

    Without a terminal, or with NO_COLOR set, there are no escape codes, and matches are marked with brackets.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(highlight=False, quiet=quiet)
        self._plain = not console.is_terminal or console.is_dumb_terminal or bool(os.environ.get("NO_COLOR"))
        if self._plain:
            console = Console(highlight=False, quiet=quiet, color_system=None, force_terminal=False)
        self._console = console

    def title(self, number: int, title: str, proves: str) -> None:
        """Begin a step: what happens, and what it proves."""
        self._print(Text(""))
        self._print(Text(f"{number}. {title}", style="bold cyan"))
        self._print(Text(f"{_INDENT}{proves}", style="dim"))

    def say(self, *pieces: str | tuple[str, str]) -> None:
        """Print a line of pieces; a pair is a text and its style."""
        shown = [printable(piece) if isinstance(piece, str) else (printable(piece[0]), piece[1]) for piece in pieces]
        self._print(Text.assemble(_INDENT, *shown))

    def code(self, lines: Iterable[str]) -> None:
        """Print lines that are meant to be copied, from the first column on."""
        for line in lines:
            self._print(Text(line, style="green"))

    def match(self, result: SearchResult) -> None:
        """Print a search result with its matches marked."""
        line = Text.assemble(_INDENT, "  ", (f"{result.role:<10}", "dim"))
        line.append_text(self._marked(result.snippet, result.highlights))
        self._print(line)

    def working(self, what: str) -> AbstractContextManager[object]:
        """Show that something goes on, for as long as the context lasts."""
        return nullcontext() if self._plain or self._console.quiet else self._console.status(what)

    def _marked(self, snippet: str, highlights: Sequence[tuple[int, int]]) -> Text:
        marked = Text()
        end = 0
        for start, stop in highlights:
            marked.append(printable(snippet[end:start]))
            found = printable(snippet[start:stop])
            marked.append(f"[{found}]" if self._plain else found, style="bold black on yellow")
            end = stop
        return marked.append(printable(snippet[end:]))

    def _print(self, line: Text) -> None:
        line.rstrip()
        # A line that is cut by us cannot be copied, and a pipe has no width.
        self._console.print(line, soft_wrap=True)
