"""Everything the documentation shows is run, and what it links to exists."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

import leafward
from leafward import Session, open_store, user
from leafward.cli import main
from leafward.cli.demo import STEPS
from leafward.stores.sqlite import SqliteStore
from tools.doc_steps import Step, UnexplainedSkip, steps_of

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
RUNNER = ROOT / "tools" / "doc_steps.py"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def is_run(path: Path) -> bool:
    return path.name == "README.md" or path.is_relative_to(DOCS)


@pytest.mark.parametrize("page", [page for page in PAGES if is_run(page)], ids=name_of)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    steps = steps_of(page.read_text(encoding="utf-8"))
    binaries = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEAFWARD_")}
    environment |= {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, str(RUNNER), str(page)],
        input=json.dumps(steps),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, f"{name_of(page)} does not run as written\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_links_to_what_exists(page: Path) -> None:
    targets = (target.partition("#")[0] for target in LINK.findall(page.read_text(encoding="utf-8")))
    local = [target for target in targets if target and "://" not in target]

    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")

    decisions = [path.name for path in (DOCS / "decisions").glob("*.md") if path.name != "README.md"]

    assert [name for name in decisions if f"({name})" not in index] == []


def commands(group: click.Group, path: str = "leafward") -> Iterator[tuple[str, click.Command]]:
    """Yield every command below `group` with the words that call it."""
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_every_command_is_in_the_manual_and_explains_itself() -> None:
    manual = (DOCS / "cli.md").read_text(encoding="utf-8")
    found = dict(commands(main))

    assert found
    assert [words for words in found if words not in manual] == []
    assert [words for words, command in found.items() if not (command.help or "").strip()] == []


def test_the_manual_lists_every_step_of_the_demo() -> None:
    manual = (DOCS / "cli.md").read_text(encoding="utf-8")
    section = manual.partition("## leafward demo\n")[2].partition("\n## ")[0]

    numbers = re.findall(r"^(\d+)\. ", re.sub("```.*?```", "", section, flags=re.DOTALL), re.MULTILINE)

    assert numbers == [str(number) for number in range(1, len(STEPS) + 1)]


def test_every_guide_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")

    assert [path.name for path in (DOCS / "guides").glob("*.md") if f"(guides/{path.name})" not in index] == []


def test_every_room_is_named_to_those_who_change_it() -> None:
    rooms = {path.name for path in (ROOT / "src" / "leafward").iterdir() if (path / "__init__.py").exists()}

    for page in ("AGENTS.md", "CONTRIBUTING.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {room for room in rooms if not re.search(rf"\b{room}\b", text)} == set(), page


def test_every_option_explains_itself() -> None:
    silent = [
        f"{words} {option.opts[0]}"
        for words, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]

    assert silent == []


def test_python_and_commands_are_found_in_order() -> None:
    page = "```python\nx = 1\n```\n\n```console\n$ leafward show a\nuser  hi\n$ make test\n```\n"

    assert steps_of(page) == [
        Step(kind="python", line=2, text="x = 1\n"),
        Step(kind="command", line=6, text="leafward show a"),
    ]


def test_a_shell_block_needs_no_prompt_and_may_continue_a_line() -> None:
    page = "```bash\nexport LEAFWARD_STORE=sqlite:///a.db\nleafward show \\\n  a\n```\n"

    assert [step["text"] for step in steps_of(page)] == [
        "export LEAFWARD_STORE=sqlite:///a.db",
        "leafward show    a",
    ]


def test_a_block_in_a_list_is_found() -> None:
    assert [step["text"] for step in steps_of("1. Do:\n\n   ```python\n   x = 1\n   ```\n")] == ["x = 1\n"]


def test_a_block_is_left_out_only_for_a_reason() -> None:
    block = "```python\nraise SystemExit(1)\n```\n"

    assert steps_of(f"<!-- not run: needs a model -->\n\n{block}") == []
    with pytest.raises(UnexplainedSkip):
        steps_of(f"<!-- not run: -->\n{block}")


def test_the_runner_reports_a_block_that_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\nx = 1\nraise KeyError('gone')\n```\n", encoding="utf-8")
    steps = json.dumps(steps_of(page.read_text(encoding="utf-8")))

    command = [sys.executable, str(RUNNER), str(page)]
    done = subprocess.run(command, input=steps, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert f'"{page}", line 5' in done.stderr


def test_the_page_about_errors_names_every_error_that_is_raised() -> None:
    table = (
        (DOCS / "guides" / "errors.md").read_text(encoding="utf-8").partition("## The table")[2].partition("\n## ")[0]
    )
    public = [getattr(leafward, name) for name in leafward.__all__]
    errors = {one for one in public if isinstance(one, type) and issubclass(one, leafward.LeafwardError)}
    raised = {error for error in errors if error is leafward.StoreError or not error.__subclasses__()}

    assert {error.__name__ for error in raised if f"`{error.__name__}`" not in table} == set()


def logged(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the logger and the level of every line that a source file logs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [ast.unparse(node.args[0]) for function, node in calls if function.endswith("getLogger")]
    if not names:
        return
    (name,) = names
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    logger = module if name == "__name__" else ast.literal_eval(name)
    yield from ((logger, function.removeprefix("_log.")) for function, _ in calls if function.startswith("_log."))


def test_the_page_about_logging_names_every_logger_with_its_levels() -> None:
    page = (DOCS / "guides" / "logging.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(leafward[\w.]*)` \| (\w+) \| \S", page, re.MULTILINE)
    uses = {use for path in (ROOT / "src").rglob("*.py") for use in logged(path)}

    assert uses
    assert len(rows) == len(set(rows))
    assert set(rows) == {(logger, level.upper()) for logger, level in uses}


def test_the_format_page_names_every_table_and_column(tmp_path: Path) -> None:
    page = (ROOT / "docs/formats/sqlite.md").read_text(encoding="utf-8")

    async def make() -> None:
        async with open_store(f"sqlite:///{tmp_path}/x.db") as store:
            assert isinstance(store, SqliteStore)
            await Session(store).append_message(user("hi"))
            await store.settle()

    asyncio.run(make())
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name.startswith("leafward_") and not name.startswith("leafward_search_")
        ]
        missing = [
            f"{table}.{column[1]}"
            for table in tables
            for column in database.execute(f"PRAGMA table_info({table})")
            if f"`{column[1]}`"
            not in page.partition(f"**`{table.removeprefix('leafward_')}`**")[2].partition("\n**`")[0]
        ]
    assert missing == []
