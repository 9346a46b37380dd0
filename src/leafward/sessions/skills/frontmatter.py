"""Reads and writes `SKILL.md`: YAML between two lines of three dashes, then Markdown."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leafward.core.errors import ConfigurationError, ContextError
from leafward.sessions.skills.listing import one_line

MAX_FRONT_MATTER = 16 * 1024

_OPENED = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSED = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_BLANK = re.compile(r"\r?\n")
_LINES = re.compile(r"^(?=\S)", re.MULTILINE)
"""Between the fields: before each line that is not indented."""
_TEXT = re.compile(r"""([A-Za-z_][\w-]*):[ \t]+([^\s"'\[{|>&*!#].*)""", re.DOTALL)
"""A field and its text, which begins with no character that gives a value another meaning in YAML."""
_MAP, _STRING, _NULL = (f"tag:yaml.org,2002:{name}" for name in ("map", "str", "null"))


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill as its file tells it; a file without front matter is all body."""

    description: str | None
    body: str


def yaml_module() -> Any:
    """Return PyYAML.

    Raises:
        ConfigurationError: it is not installed; the text says how to.
    """
    try:
        import yaml
    except ImportError as error:
        raise ConfigurationError(
            "reading SKILL.md needs PyYAML: install it with `pip install 'leafward[skills]'`"
        ) from error
    return yaml


def parse_skill(text: str, file: str) -> SkillText:
    """Return what `SKILL.md` says; `file` is how an error names it.

    Raises:
        ContextError: the front matter cannot be read.
    """
    fields, body = _divide(text, file)
    return SkillText(None if fields is None else _description(_compose(fields, file), file), body)


def render_skill(name: str, body: str, description: str | None, *, former: str | None, file: str) -> str:
    """Return a `SKILL.md` with this body.

    What the front matter of the `former` text says besides stays, and so does its description when none is given.

    Raises:
        ContextError: the former front matter cannot be read.
    """
    yaml = yaml_module()
    fields = None if former is None else _divide(former, file)[0]
    values: list[tuple[Any, Any]] = [] if fields is None else _compose(fields, file).value
    changes = {"name": name} if description is None else {"name": name, "description": one_line(description)}
    kept = [(key, value) for key, value in values if not (isinstance(key, yaml.ScalarNode) and key.value in changes)]
    changed = [(yaml.ScalarNode(_STRING, key), yaml.ScalarNode(_STRING, value)) for key, value in changes.items()]
    node = yaml.MappingNode(_MAP, [*changed, *kept], flow_style=False)
    front: str = yaml.serialize(node, Dumper=yaml.SafeDumper, allow_unicode=True, width=float("inf"))
    return f"---\n{front}---\n\n{body}"


def _divide(text: str, file: str) -> tuple[str | None, str]:
    opened = _OPENED.match(text)
    if opened is None:
        return None, text
    closed = _CLOSED.search(text, opened.end())
    if closed is None:
        raise ContextError(f"{file} has front matter that no line of three dashes closes")
    if closed.start() - opened.end() > MAX_FRONT_MATTER:
        raise ContextError(f"{file} has front matter of more than {MAX_FRONT_MATTER:,} characters")
    # One blank line belongs to the front matter, so that a body is read as it was written.
    blank = _BLANK.match(text, closed.end())
    return text[opened.end() : closed.start()], text[blank.end() if blank else closed.end() :]


def _compose(fields: str, file: str) -> Any:
    # Nodes, not values: a document that was made to grow when its merges and dates are worked out never does.
    yaml = yaml_module()
    try:
        node = _node_or_quoted(fields)
    except RecursionError as error:
        raise ContextError(f"{file} has front matter that nests values too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 2}" if mark is not None else ""
        raise ContextError(f"{file} has front matter that is not YAML{where}") from error
    if node is None:
        return yaml.MappingNode(_MAP, [])
    if not isinstance(node, yaml.MappingNode):
        raise ContextError(f"{file} has front matter that is not a list of fields such as `description: …`")
    return node


def _node_or_quoted(fields: str) -> Any:
    """Read fields, if need be with quotes where YAML needs them: around those that are not indented, then around all.

    Raises:
        YAMLError: they cannot be read in any of these ways; it is that of the fields as they are.
        RecursionError: they nest too deeply. Each further try would take as long as this one.
    """
    yaml = yaml_module()
    try:
        return _node(fields)
    except yaml.YAMLError:
        quoted = "".join(map(_quoted, _LINES.split(fields)))
        with suppress(yaml.YAMLError):
            return _node(quoted)
        with suppress(yaml.YAMLError):
            return _node("".join(map(_quoted_within, _LINES.split(quoted))))
        raise


def _node(text: str) -> Any:
    yaml = yaml_module()
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _quoted(field: str) -> str:
    """Put quotes around a text that is not YAML without them, such as `description: Use when: the user asks`."""
    found = _TEXT.fullmatch(field)
    if found is None:
        return field
    try:
        _node(field)
    except yaml_module().YAMLError:
        name, text = found.groups()
        # As YAML does with a text of several lines.
        line = " ".join(text.split()).replace("'", "''")
        return f"{name}: '{line}'\n"
    return field


def _quoted_within(field: str) -> str:
    """Do the same for the indented lines of a field that cannot be read, such as `  when: always: ask`."""
    try:
        _node(field)
    except yaml_module().YAMLError:
        return "".join(map(_quoted_line, field.splitlines(keepends=True)))
    return field


def _quoted_line(line: str) -> str:
    text = line.lstrip(" \t")
    return line[: len(line) - len(text)] + _quoted(text) if text != line else line


def _description(fields: Any, file: str) -> str | None:
    found = [value for key, value in fields.value if key.value == "description"]
    if not found or found[-1].tag == _NULL:
        return None
    if not isinstance(found[-1], yaml_module().ScalarNode):
        raise ContextError(f"{file} has a description that is not text")
    return str(found[-1].value)
