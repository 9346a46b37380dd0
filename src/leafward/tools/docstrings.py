"""What a docstring says about a function and its parameters, in the styles of Google, NumPy and reST."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
_OTHERS = frozenset(
    {
        *("returns", "return", "yields", "yield", "raises", "raise", "except", "exceptions", "warns"),
        *("example", "examples", "attributes", "references", "see also"),
    }
)
_GOOGLE = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\((?P<type>.*?)\))?\s*:(?:\s+(?P<text>.*))?$")
_NUMPY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"[:@](?P<kind>\w+)(?:\s+(?P<what>[^:]*))?:(?:\s+(?P<text>.*))?$")
_RULE = re.compile(r"-{3,}\s*$")


class Documentation(NamedTuple):
    """The text for the function, and a text for each parameter that is described."""

    text: str
    parameters: dict[str, str]


class _Section(NamedTuple):
    """Lines below one header; without a header, prose or fields of reST."""

    header: str
    lines: list[str]
    is_numpy: bool = False


def read_docstring(docstring: str) -> Documentation:
    """Return what a docstring, indented as `inspect.cleandoc` leaves it, says.

    Sections about results, errors and examples are left out: they are for the reader of the code.
    """
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _sections(docstring.splitlines()):
        if not section.header:
            prose += _without_fields(section.lines, parameters)
        elif section.header in _PARAMETERS:
            pattern = _NUMPY if section.is_numpy else _GOOGLE
            parameters |= _entries(section.lines, pattern)
    return Documentation(re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), parameters)


def _sections(lines: list[str]) -> Iterator[_Section]:
    """Cut a docstring at its headers, and where the text below a Google header is no longer indented."""
    section = _Section("", [])
    skip = False
    for number, line in enumerate(lines):
        if skip:
            skip = False
            continue
        title = line.strip().rstrip(":").lower()
        known = title in _PARAMETERS or title in _OTHERS
        indented = line[:1].isspace()
        if known and not indented and number + 1 < len(lines) and _RULE.match(lines[number + 1]):
            yield section
            section, skip = _Section(title, [], is_numpy=True), True
        elif known and not indented and line.rstrip().endswith(":"):
            yield section
            section = _Section(title, [])
        elif section.header and not section.is_numpy and line.strip() and not indented:
            yield section
            section = _Section("", [line])
        else:
            section.lines.append(line)
    yield section


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Return the text for each name: what stands on its line, and on the lines that are indented below it."""
    found: dict[str, list[str]] = {}
    filled = [line for line in lines if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    current: list[str] = []
    for line in filled:
        entry = pattern.match(line.strip()) if len(line) - len(line.lstrip()) == margin else None
        if entry is None:
            current.append(line.strip())
            continue
        current = [(entry.groupdict().get("text") or "").strip()]
        found |= dict.fromkeys(_names(entry["names"]), current)
    return _joined(found)


def _without_fields(lines: list[str], parameters: dict[str, str]) -> list[str]:
    """Move the fields of reST, such as `:param city: The city.`, from the lines to `parameters`; return the others."""
    prose: list[str] = []
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        entry = _FIELD.match(line)
        if entry is not None and entry["kind"] in _FIELDS:
            current = [(entry["text"] or "").strip()]
            if entry["kind"] in ("param", "parameter", "arg", "argument", "key", "keyword") and entry["what"]:
                found[entry["what"].split()[-1].lstrip("*\\")] = current
        elif current is not None and line[:1].isspace():
            current.append(line.strip())
        else:
            current = None
            prose.append(line)
    parameters |= _joined(found)
    return prose


_FIELDS = frozenset(
    {
        *("param", "parameter", "arg", "argument", "key", "keyword", "type"),
        *("return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields", "meta"),
    }
)


def _names(text: str) -> list[str]:
    return [name.strip().lstrip("*") for name in text.split(",")]


def _joined(found: dict[str, list[str]]) -> dict[str, str]:
    texts = {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}
    return {name: text for name, text in texts.items() if text}
