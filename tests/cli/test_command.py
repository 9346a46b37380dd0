"""The command itself: help, version, mistakes, and a missing extra."""

from __future__ import annotations

from pathlib import Path

import pytest

import leafward as package
from tests.cli.command import leafward, python

BLOCKED = """
import sys
sys.modules[{missing!r}] = None
from leafward.cli import main
sys.exit(main())
"""


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    done = leafward("--version", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout == f"leafward, version {package.__version__}\n"


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("demo", "--help")])
def test_help_shows_a_real_use(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = leafward(*words, cwd=tmp_path)

    assert done.returncode == 0
    assert "\n  $ leafward demo" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("no-such-command",), ("demo", "--no-such-option"), ("demo", "extra")])
def test_a_wrong_word_ends_with_2_and_names_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = leafward(*words, cwd=tmp_path)

    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert done.stdout == ""


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = python("import runpy; runpy.run_module('leafward.cli', run_name='__main__')", "--version", cwd=tmp_path)

    assert done.stdout.endswith(f"version {package.__version__}\n")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_named_in_one_sentence(tmp_path: Path, missing: str) -> None:
    done = python(BLOCKED.format(missing=missing), "demo", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "The leafward command needs click and rich: run  pip install 'leafward[cli]'\n"


def test_another_missing_module_is_not_blamed_on_the_extra(tmp_path: Path) -> None:
    done = python(BLOCKED.format(missing="leafward.cli.screen"), "demo", cwd=tmp_path)

    assert done.returncode == 1
    assert "leafward.cli.screen" in done.stderr
    assert "pip install" not in done.stderr
