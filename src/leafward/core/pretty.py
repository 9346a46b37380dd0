"""JSON as AgentScope for Java writes it: laid out for people in its state files, and with its escapes."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\{\}|\[\]|[][{},:]|[^][{},:"]+')
_ESCAPE = re.compile(r"\\(u[0-9a-f]{4}|.)")
_PLAIN = {"{}": "{ }", "[]": "[ ]", ":": " : "}
_NUMBER = "-0123456789"


def pretty(compact: str, *, depth: int = 0) -> str:
    """Lay out JSON that has no spaces: a line for each field of an object, and a list where it begins.

    With `depth`, it is one or more items of a list inside so many objects.
    """
    written: list[str] = []
    line = "\n" + "  " * depth
    between = [" "]
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
                written.append(_PLAIN.get(token) or (_spelled(token) if token[0] in _NUMBER else with_escapes(token)))
    return "".join(written)


def spelled(json: bytes) -> str:
    """Return JSON as a text with the escapes of Java; most has no escape at all, and bytes tell that fast."""
    return with_escapes(json.decode()) if b"\\" in json else json.decode()


def with_escapes(text: str) -> str:
    """Return JSON with its escapes as Java spells them: `\\u001F` in capitals."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\\u" + found[1][1:].upper() if len(found[1]) > 1 else found[0], text)


def _spelled(number: str) -> str:
    """Return a number as Java spells it: from ten million on, and below a thousandth, as `1.0E10`."""
    value = 0 if number.lstrip("-").isdigit() else float(number)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return number
    # Imported late: such numbers are rare.
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
