"""JSON laid out for people, as AgentScope for Java lays out its state files."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\{\}|\[\]|[][{},:]|[^][{},:"]+')
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")
_PLAIN = {"{}": "{ }", "[]": "[ ]", ":": " : "}


def pretty(compact: str) -> str:
    """Lay out JSON that has no spaces: a line for each field of an object, and a list where it begins."""
    written: list[str] = []
    line = "\n"
    between: list[str] = []
    """What follows a comma in each object or list that is open."""
    for token in _TOKEN.findall(compact):
        match token:
            case "{":
                line += "  "
                between.append(line)
                written += token, line
            case "}":
                between.pop()
                line = line[:-2]
                written += line, token
            case "[":
                between.append(" ")
                written += token, " "
            case "]":
                between.pop()
                written += " ", token
            case ",":
                written += token, between[-1]
            case _:
                written.append(_PLAIN.get(token) or (_escaped(token) if "\\u" in token else token))
    return "".join(written)


def _escaped(text: str) -> str:
    """Return a string with its escapes as Java spells them."""
    return _ESCAPE.sub(lambda found: "\\u" + found[1][1:].upper() if len(found[1]) > 1 else found[0], text)
