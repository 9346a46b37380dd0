"""Describe the public API as data, so that a change of it is a decision and not an accident.

python tools/public_api.py            print it
python tools/public_api.py --write    accept it as it is now
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

MODULES = (
    "leafward",
    "leafward.core",
    "leafward.stores",
    "leafward.tools",
    "leafward.sessions",
    "leafward.engine",
    "leafward.testing",
)
SNAPSHOT = Path(__file__).parent.parent / "tests" / "architecture" / "public_api.json"


class _Bare(str):
    """An annotation that is printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def describe_api() -> dict[str, dict[str, Any]]:
    """Return every exported name of every public module, with its shape."""
    return {name: describe_module(name) for name in MODULES}


def describe_module(name: str) -> dict[str, Any]:
    """Return the names in the module's `__all__`, each with its shape."""
    module = importlib.import_module(name)
    return {export: describe(getattr(module, export)) for export in sorted(module.__all__)}


def describe(value: object) -> Any:
    """Return a function's signature, a class's constructor, fields and methods, or a value's type."""
    if inspect.isclass(value):
        return describe_class(value)
    if inspect.isroutine(value):
        return signature(value)
    return f"value of type {type(value).__name__}"


def describe_class(cls: type) -> dict[str, Any]:
    """Return the bases, constructor and public members that we wrote, inherited ones included."""
    ours = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "leafward"]
    fields: dict[str, str] = {}
    methods: dict[str, str] = {}
    for base in reversed(ours):
        fields |= {name: str(kind) for name, kind in inspect.get_annotations(base).items() if public(name)}
        methods |= {name: member(item) for name, item in vars(base).items() if public(name) and is_method(item)}
    shape: dict[str, Any] = {"bases": [base.__name__ for base in cls.__bases__]}
    if not getattr(cls, "_is_protocol", False):
        shape["call"] = signature(cls)
    if fields:
        shape["fields"] = dict(sorted(fields.items()))
    if methods:
        shape["methods"] = dict(sorted(methods.items()))
    return shape


def public(name: str) -> bool:
    """Tell whether users may rely on an attribute of this name."""
    return not name.startswith("_")


def is_method(item: object) -> bool:
    """Tell whether a class attribute is behaviour: a method of any kind, or a property."""
    return isinstance(item, property | classmethod | staticmethod) or inspect.isroutine(item)


def member(item: object) -> str:
    """Return the shape of a method or property."""
    if isinstance(item, property):
        returns = inspect.get_annotations(item.fget).get("return", "?") if item.fget else "?"
        return f"property -> {returns}"
    if isinstance(item, classmethod | staticmethod):
        return f"{type(item).__name__} {signature(item.__func__)}"
    return signature(item)


def signature(item: Any) -> str:
    """Return how `item` is called, written as in its source."""
    if inspect.isclass(item) and issubclass(item, BaseException) and not inspect.isfunction(item.__init__):
        return "(*args)"
    found = inspect.signature(item)
    parameters = [p.replace(annotation=bare(p.annotation)) for p in found.parameters.values()]
    text = str(found.replace(parameters=parameters, return_annotation=bare(found.return_annotation)))
    kind = "async " if inspect.iscoroutinefunction(item) else ""
    return kind + re.sub(r" at 0x[0-9a-f]+", "", text)


def bare(annotation: object) -> object:
    """Return a textual annotation so that it prints without quotes."""
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def as_text(api: dict[str, dict[str, Any]]) -> str:
    """Return the snapshot's text."""
    return json.dumps(api, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    text = as_text(describe_api())
    if "--write" in sys.argv[1:]:
        SNAPSHOT.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
