"""The public API is what its snapshot says, and importing it costs little."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import pytest

from tools.public_api import MODULES, SNAPSHOT, describe_module

DRIVERS_AND_EXTRAS = (
    "click",
    "rich",
    "snowballstemmer",
    "pydantic",
    "httpx",
    "aiohttp",
    "sqlalchemy",
    "pytest",
)


def loaded_after(statement: str, suspects: tuple[str, ...]) -> list[str]:
    """Return which of `suspects` a fresh interpreter has loaded after running `statement`."""
    program = f"{statement}\nimport sys\nprint(*(name for name in {suspects!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("name", MODULES)
def test_the_public_api_is_its_snapshot(name: str) -> None:
    accepted = json.loads(SNAPSHOT.read_text(encoding="utf-8"))

    assert describe_module(name) == accepted.get(name), (
        "the public API changed: if that is meant, run `make api` and say so in CHANGELOG.md"
    )


def test_the_snapshot_names_no_other_module() -> None:
    assert sorted(json.loads(SNAPSHOT.read_text(encoding="utf-8"))) == sorted(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_every_exported_name_resolves(name: str) -> None:
    module = importlib.import_module(name)

    assert [export for export in module.__all__ if not hasattr(module, export)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_every_exported_name_is_listed_by_dir(name: str) -> None:
    module = importlib.import_module(name)

    assert set(module.__all__) <= set(dir(module))


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    module = importlib.import_module("leafward")

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_every_exported_class_and_function_says_what_it_is() -> None:
    silent = [
        f"{name}.{export}"
        for name in MODULES
        for export in importlib.import_module(name).__all__
        if (inspect.isclass(value := getattr(importlib.import_module(name), export)) or inspect.isroutine(value))
        and not value.__doc__
    ]

    assert silent == []


def test_importing_the_package_alone_loads_next_to_nothing() -> None:
    assert loaded_after("import leafward", ("asyncio", "msgspec", "sqlite3", *DRIVERS_AND_EXTRAS)) == []


def test_the_first_days_import_loads_no_driver_and_no_extra() -> None:
    assert loaded_after("from leafward import Session, open_store", DRIVERS_AND_EXTRAS) == []
