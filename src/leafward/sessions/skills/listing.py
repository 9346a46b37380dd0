"""What a model reads of skills: a line for each, and the keys of the resources of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leafward.core.errors import ContextError
from leafward.core.json import Plain
from leafward.core.prompt import ContextEntry

SKILL_FILE = "SKILL.md"
"""The document of a skill, in its folder."""

DEFAULT_MAX_BYTES = 1024 * 1024
"""How large a document may be; one that is larger is no help to a model."""

MAX_DESCRIPTION_LENGTH = 1024
MAX_RESOURCES = 200

_BREAKS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Listed:
    """A skill in the list: its key and what it is for, or why it cannot be loaded."""

    key: str
    description: str | None = None
    problem: str | None = None

    @property
    def about(self) -> str:
        """What the list says of it, on one line."""
        if self.problem is not None:
            return f"[cannot be loaded: {one_line(self.problem)}]"
        return one_line(self.description or "")

    @property
    def line(self) -> str:
        key = one_line(self.key)
        return f"- {key}: {self.about}" if self.about else f"- {key}"

    @property
    def entry(self) -> ContextEntry:
        """The same for a program."""
        return ContextEntry(self.key, self.about or None)


def listing(skills: Iterable[Listed]) -> str | None:
    """Return the lines of the skills, in the order of their keys, or None when there are none."""
    lines = [skill.line for skill in sorted(skills, key=lambda skill: skill.key)]
    return "\n".join(lines) or None


def one_line(text: str) -> str:
    """Return text as it fits on a line of a list: breaks become spaces, what is too long ends with an ellipsis."""
    line = _BREAKS.sub(" ", Plain().text(text)).strip()
    return line if len(line) <= MAX_DESCRIPTION_LENGTH else line[: MAX_DESCRIPTION_LENGTH - 1] + "…"


def document(content: object) -> str:
    """Return the text of a document to be written; lone surrogates, which UTF-8 cannot hold, become U+FFFD.

    Raises:
        ContextError: it is not text.
    """
    if not isinstance(content, str):
        raise ContextError(f"the content of a skill is text, not {type(content).__name__}")
    return Plain().text(content)


def with_resources(body: str, keys: Sequence[str], *, more: bool = False) -> str:
    """Return a skill's document, followed by the keys its resources are loaded by, if it has any."""
    if not keys:
        return body
    lines = [f"- {key}" for key in sorted(keys)] + (["- … and more"] if more else [])
    return "\n".join([body.rstrip("\n"), "", "Resources of this skill, each loaded by its key:", *lines]) + "\n"
