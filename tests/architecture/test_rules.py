"""Rules about our own files that no tool we use can state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
MAX_LINES = 600

UNSAFE_MODULES = {"dill", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load"}
RECURSIVE_SQL = re.compile(r"with\s+recursive", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:tmp|work|root|home)/")

SOURCE_FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def our_files(*suffixes: str) -> list[Path]:
    """Return the files we wrote, tests left out, nothing from hidden or generated directories."""
    folders = ["src", "docs", "tools", "faults", "bench", ".ci"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    written = [path for path in (*ROOT.iterdir(), *inside) if path.is_file() and not is_generated(path)]
    return sorted(path for path in written if not suffixes or path.suffix in suffixes)


def is_generated(path: Path) -> bool:
    hidden = [part for part in path.relative_to(ROOT).parts[:-1] if part.startswith(".") and part != ".ci"]
    # In a worktree of git, `.git` is a file.
    named = path.name == ".git" or path.name.startswith(".coverage")
    return bool(hidden) or "__pycache__" in path.parts or named


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def called_names(tree: ast.AST) -> Iterator[str]:
    yield from (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def breaches(path: Path) -> Iterator[str]:
    """Yield what is wrong with a source file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from (f"imports {name}" for name in sorted(UNSAFE_MODULES & set(imported_modules(tree))))
    calls = set(called_names(tree))
    yield from (f"calls {name}" for name in sorted(UNSAFE_CALLS & calls))
    if "print" in calls and path.relative_to(SOURCE).parts[1:2] != ("cli",):
        yield "prints outside the terminal's room"
    if any(RECURSIVE_SQL.search(text) for text in strings(tree)):
        yield "has recursive SQL: a path is a few range scans over lanes"
    if any(isinstance(node, ast.ExceptHandler) and node.type is None for node in ast.walk(tree)):
        yield "has a bare except"


def test_there_is_source_to_look_at() -> None:
    assert SOURCE_FILES


@pytest.mark.parametrize("path", SOURCE_FILES, ids=name_of)
def test_a_source_file_keeps_the_rules(path: Path) -> None:
    assert list(breaches(path)) == []


@pytest.mark.parametrize(
    ("code", "breach"),
    [
        ("import pickle", "imports pickle"),
        ("from marshal import loads", "imports marshal"),
        ("import shelve as s", "imports shelve"),
        ("eval('1')", "calls eval"),
        ("exec('1')", "calls exec"),
        ("yaml.load(text)", "calls yaml.load"),
        ("print(1)", "prints outside the terminal's room"),
        (
            "SQL = 'with  recursive p as (select 1)'",
            "has recursive SQL: a path is a few range scans over lanes",
        ),
        ("try:\n    pass\nexcept:\n    pass", "has a bare except"),
    ],
)
def test_the_rules_see_what_they_forbid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, breach: str
) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    path = tmp_path / "leafward" / "sample.py"
    path.parent.mkdir()
    path.write_text(code, encoding="utf-8")

    assert list(breaches(path)) == [breach]


def test_no_file_is_longer_than_one_can_hold_in_the_head() -> None:
    python = [*our_files(".py"), *(ROOT / "tests").rglob("*.py")]

    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python}

    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}


def test_no_file_names_a_place_on_someones_machine() -> None:
    found = [name_of(path) for path in our_files() if MACHINE_PATH.search(readable(path))]

    assert found == []


def readable(path: Path) -> str:
    """Return a file's text; what is not text, such as a picture, has no words to check."""
    return path.read_bytes().decode("utf-8", errors="replace")
