"""The pages that compare us with the seeds name no call and no test that is not there."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

import pytest

import leafward.testing
from tests.stores.states.test_embedded import TestSQLite as States
from tests.stores.test_memory import TestMemory as Memory
from tests.stores.test_sqlite_contract import TestSQLite as SQLite

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "seed-coverage.md"
DIFFERENCES = ROOT / "docs" / "differences.md"
CONTRACTS = "src/leafward/testing"

HEADINGS = """\
Sessions
Experimental
Quick start
Creating a session
Builder API
Direct construction
Builder methods
Messages
Reading history
Branching
Search
Context blocks
Provider types
Built-in providers
Adding and removing context at run time
Reading and writing context
System prompt
AI tools
set_context
load_context
unload_context
search_context
session_search
Compaction
Setup
How compaction works
Manual compaction
Automatic compaction
SessionManager
Creating a SessionManager
SessionManager builder methods
Session lifecycle
Accessing sessions
Message convenience methods
Forking
Usage tracking
Cross-session search
Custom providers
Storage tables
Acknowledgements
Related
Session management
Features of a session
A first session
Session implementations
JsonSession
InMemorySession
Saving, loading and managing
Saving
Loading
Managing sessions
A complete example
A session of one's own
Data formats and migration
Old and new formats
The old format
The new format
Moving data
Starting anew
Converting file by file
Both side by side
Databases
The MySQL table
Redis keys
More resources
A stateless engine
What that means
AgentState
Saved and restored by itself
Stores of states
Going on elsewhere
Users kept apart
Reading and writing a state directly
Interrupts of one session
Concurrent use
RuntimeContext
Permissions
Middleware, hooks and events
Compaction of an agent
Not there yet""".splitlines()
"""The headings of seeds 002, 001 and 003, in their order and in our words; the last four are our own."""
WITHOUT_STATEMENTS = {
    *("Creating a session", "Session implementations", "Saving, loading and managing"),
    *("Data formats and migration", "Moving data", "Databases"),
    "Not there yet",
}
"""Their parts have them; what is not there has none."""

SPAN = re.compile(r"`([^`]+)`")
DIFFERENCE_TEST = re.compile(r"`((?:tests|src)/[^`]+)`")


class Row(NamedTuple):
    """A statement of the seed, with the calls that keep it and the tests that prove it."""

    chapter: str
    heading: str
    statement: str
    calls: list[str]
    tests: list[str]


def rows() -> Iterator[Row]:
    chapter = heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
            chapter = heading if line.startswith("## ") else chapter
        elif line.startswith("| ") and not line.startswith("| what"):
            statement, calls, tests = line.strip("| ").split(" | ")
            yield Row(chapter, heading, statement, SPAN.findall(calls), SPAN.findall(tests))


ROWS = list(rows())
CALLS = sorted({call for row in ROWS for call in row.calls})
TESTS = sorted({test for row in ROWS for test in row.tests})
DIFFERENCE_TESTS = sorted(set(DIFFERENCE_TEST.findall(DIFFERENCES.read_text(encoding="utf-8"))))


def is_defined(name: str) -> bool:
    """Tell whether `path::[Class::]test` is a test that pytest collects."""
    path, *names = name.split("::")
    if not names[-1].startswith("test_"):
        return False
    if path == CONTRACTS:
        contract = getattr(leafward.testing, names[0], object)
        return hasattr(contract, names[1]) and any(issubclass(one, contract) for one in (Memory, SQLite, States))
    if not (ROOT / path).is_file() or not Path(path).name.startswith("test_"):
        return False
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for one in names:
        found = [node for node in body if getattr(node, "name", None) == one]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def test_every_heading_of_the_seed_is_on_the_page_in_its_order() -> None:
    found = re.findall(r"^##+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert found == HEADINGS


def test_every_heading_has_statements_except_where_its_parts_have_them() -> None:
    assert set(HEADINGS) - {row.heading for row in ROWS} == WITHOUT_STATEMENTS


def test_every_statement_has_a_call_and_a_test() -> None:
    assert [row.statement for row in ROWS if not row.calls or not row.tests] == []


@pytest.mark.parametrize("name", sorted({*TESTS, *DIFFERENCE_TESTS}))
def test_a_test_on_a_page_is_one_that_runs(name: str) -> None:
    assert is_defined(name)


@pytest.mark.parametrize(
    "name",
    [
        "tests/core/test_tokens.py::test_nothing_of_the_kind",
        "tests/core/test_gone.py::test_cjk_counts_by_character",
        "tests/core/histories.py::histories",
        f"{CONTRACTS}::MessageContract::test_nothing_of_the_kind",
        f"{CONTRACTS}::NoContract::test_appending_twice_stores_once",
        f"{CONTRACTS}::SearchContract::test_appending_twice_stores_once",
    ],
)
def test_a_test_that_does_not_run_would_be_noticed(name: str) -> None:
    assert not is_defined(name)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_the_page_exists_with_its_parameters(call: str) -> None:
    path, _, given = call.rstrip(")").partition("(")
    target: object = resolve_name(path if path.startswith("leafward.") else f"leafward.{path}")

    wanted = re.findall(r"(\w+)=", given)

    assert callable(target) or not wanted
    assert not wanted or set(wanted) <= set(inspect.signature(target).parameters)  # pyright: ignore[reportArgumentType]


def test_every_difference_is_proved() -> None:
    lines = DIFFERENCES.read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith("| ") and not line.startswith("| seed ")]

    assert found
    assert [line for line in found if not DIFFERENCE_TEST.search(line.split(" | ")[-1])] == []


def test_a_row_that_differs_has_a_section_that_tells_how() -> None:
    differences = re.findall(r"^## (.+)$", DIFFERENCES.read_text(encoding="utf-8"), flags=re.MULTILINE)

    marked = {row.chapter for row in ROWS if row.statement.endswith("→")}

    assert [chapter for chapter in HEADINGS if chapter in marked] == differences
