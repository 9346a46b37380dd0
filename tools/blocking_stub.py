"""Write the types of `leafward.portal` from the async classes it mirrors.

python tools/blocking_stub.py            print the stub
python tools/blocking_stub.py --write    write it to src/leafward/portal/__init__.pyi
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache
from importlib import import_module
from pathlib import Path

from leafward.portal import BlockingStore
from leafward.portal.mirror import mirror_class
from leafward.portal.mirrored import MIRRORED, PREFIX, load
from leafward.stores import Store, SupportsBackup

STUB = Path(__file__).parent.parent / "src" / "leafward" / "portal" / "__init__.pyi"
HEAD = '''"""The one sync door. Written by tools/blocking_stub.py from the async classes: do not edit."""

from leafward.portal.iterator import BlockingIterator as BlockingIterator
'''
ITERATORS = {"AsyncGenerator", "AsyncIterator", "AsyncIterable"}
AWAITABLES = {"Awaitable": 0, "Coroutine": 2}
ENTRY = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
SPECIAL = {"__init__", "__enter__", "__exit__", "__call__", "__getitem__", "__iter__", "__len__", "__or__"}
DECORATORS = {
    "classmethod": "classmethod",
    "staticmethod": "staticmethod",
    "property": "property",
    "cached_property": "property",
    "overload": "overload",
}
INHERITED = {"keys", "items", "values", "get", "__contains__"}
"""What a mirror of a mapping has from `Mapping`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(module: str) -> ast.Module:
    """Return the source of a module as a tree."""
    return ast.parse(inspect.getsource(import_module(module)))


@cache
def homes_in(module: str) -> dict[str, str]:
    """Return the module each name at the top of `module` comes from; a module that is imported whole has none."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            homes |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            homes |= {alias.name: "" for alias in node.names}
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef):
            homes[node.name] = module
    return homes | dict.fromkeys(aliases_in(module), module)


@cache
def aliases_in(module: str) -> dict[str, ast.expr]:
    """Return the names that `module` gives to types, and what they stand for."""
    aliases: dict[str, ast.expr] = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            aliases[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            aliases[node.target.id] = node.value
    return aliases


def class_tree(cls: type) -> ast.ClassDef:
    """Return the source of a class as a tree."""
    return next(
        node
        for node in ast.walk(tree_of(cls.__module__))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )


def awaited_from(home: str, name: str) -> ast.expr | None:
    """Return what one gets who awaits an object of a class of ours, or nothing when it is not awaited."""
    cls = getattr(import_module(home), name, None) if home.startswith("leafward.") else None
    if not inspect.isclass(cls) or "__await__" not in vars(cls):
        return None
    method = next(node for node in class_tree(cls).body if isinstance(node, Function) and node.name == "__await__")
    assert isinstance(method.returns, ast.Subscript)
    assert isinstance(method.returns.slice, ast.Tuple)
    return ast.parse(ast.unparse(method.returns.slice.elts[AWAITABLES["Coroutine"]]), mode="eval").body


class Mirrored(ast.NodeTransformer):
    """Turns annotations of the async side into those of the sync side, and notes the names they need.

    What is `given` to a call stays as it is, because callables and iterables may be async; but handles are mirrors.
    """

    def __init__(self, module: str, imports: dict[str, str], *, given: bool) -> None:
        self._homes = homes_in(module)
        self._imports = imports
        self._given = given

    def need(self, name: str, home: str) -> None:
        known = self._imports.setdefault(name, home)
        if known != home and getattr(import_module(known), name) is not getattr(import_module(home), name):
            raise SystemExit(f"{name!r} means one thing in {known} and another in {home}: rename one")

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name == "Literal":
            self.need(name, "typing")
            return node
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in ITERATORS and not self._given:
            return ast.Subscript(ast.Name(PREFIX + "Iterator"), self.visit(arguments[0]))
        if name in AWAITABLES and not self._given:
            return self.visit(arguments[AWAITABLES[name]])
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "Store":
            return ast.Name(PREFIX + "Store")
        if node.id in MIRRORED and not self._given:
            return ast.Name(PREFIX + node.id)
        home = self._homes.get(node.id)
        awaited = None if self._given or home is None else awaited_from(home, node.id)
        if home is not None and awaited is not None:
            return Mirrored(home, self._imports, given=False).visit(awaited)
        if home is not None:
            meaning = aliases_in(home).get(node.id) if home.startswith("leafward.") else None
            if meaning is not None and not self._given and "Awaitable" in ast.unparse(meaning):
                return Mirrored(home, self._imports, given=False).visit(
                    ast.parse(ast.unparse(meaning), mode="eval").body
                )
            self.need(node.id, home)
        elif not hasattr(builtins, node.id):
            raise SystemExit(f"an annotation names {node.id!r}, and its module neither imports nor defines that")
        if node.id in MIRRORED:
            # What is handed in may be either: the portal takes the async one out of a mirror.
            return ast.BinOp(ast.Name(PREFIX + node.id), ast.BitOr(), node)
        return node


class StubWriter:
    """Collects the classes of the stub, and the imports they need."""

    def __init__(self) -> None:
        # Names the code below brings in itself; ruff takes out what is not used.
        self.imports: dict[str, str] = {"overload": "typing"}

    def annotation(self, node: ast.expr | None, module: str, *, given: bool) -> ast.expr | None:
        if node is None:
            return None
        again = ast.parse(ast.unparse(node), mode="eval").body
        return Mirrored(module, self.imports, given=given).visit(again)

    def arguments(self, given: ast.arguments, module: str) -> ast.arguments:
        """Return the same parameters with sync types; a default that is not a constant is not shown."""
        copy = ast.parse(f"def f({ast.unparse(given)}): ...").body[0]
        assert isinstance(copy, ast.FunctionDef)
        parameters = copy.args
        every = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs, parameters.vararg, parameters.kwarg]
        for one in every:
            if one is not None:
                one.annotation = self.annotation(one.annotation, module, given=True)
        parameters.defaults = [shown(default) for default in parameters.defaults]
        parameters.kw_defaults = [default and shown(default) for default in parameters.kw_defaults]
        return parameters

    def function(self, node: Function, module: str) -> ast.FunctionDef:
        return ast.FunctionDef(
            name=ENTRY.get(node.name, node.name),
            args=self.arguments(node.args, module),
            body=body_of(node),
            decorator_list=[ast.Name(DECORATORS[one]) for one in DECORATORS if has(node, one)],
            returns=self.annotation(node.returns, module, given=False),
            lineno=0,
        )

    def members(self, cls: type, hidden: Set[str] = frozenset()) -> Iterator[tuple[str, ast.stmt]]:
        """Yield what a class of ours offers, its own members before inherited ones that it does not override."""
        seen = set(hidden)
        for base in cls.__mro__:
            if base.__module__.partition(".")[0] != "leafward" or base.__module__ == "leafward.portal.mirror":
                continue
            mine = list(self.own_members(base, seen))
            yield from mine
            seen |= {name for name, _ in mine}

    def own_members(self, base: type, hidden: Set[str]) -> Iterator[tuple[str, ast.stmt]]:
        nodes = class_tree(base).body
        overloaded = {one.name for one in nodes if isinstance(one, Function) and has(one, "overload")}
        for node in nodes:
            if isinstance(node, Function):
                name = ENTRY.get(node.name, node.name)
                is_shown = name not in overloaded or has(node, "overload")
                if is_offered(name) and name not in hidden and not is_setter(node) and is_shown:
                    yield name, self.function(node, base.__module__)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                if is_offered(name) and name not in hidden:
                    yield name, self.field(name, node.annotation, base.__module__)

    def field(self, name: str, kind: ast.expr, module: str) -> ast.stmt:
        node = ast.parse(f"@property\ndef {name}(self): ...").body[0]
        assert isinstance(node, ast.FunctionDef)
        node.returns = self.annotation(kind, module, given=False)
        return node

    def sync_class(self, name: str, *sources: type, extra: list[ast.stmt], hidden: set[str]) -> ast.ClassDef:
        """Return the stub of one class; what an earlier source has, a later one does not add again."""
        body: list[ast.stmt] = [ast.Expr(ast.Constant(sources[0].__doc__))]
        seen = set(hidden)
        for source in sources:
            mine = list(self.members(source, seen))
            body += [node for _, node in mine]
            seen |= {member for member, _ in mine}
        return ast.ClassDef(name, bases=[], keywords=[], body=[*body, *extra], decorator_list=[])

    def mirror_of(self, name: str) -> ast.ClassDef:
        """Return the stub of a class of the table."""
        cls = load(name)
        bases = [base for base in mirror_class(cls).__mro__ if base.__module__ == "collections.abc"]
        mapping = any(base.__name__ == "Mapping" for base in bases)
        hidden = set(INHERITED) if mapping else set[str]()
        if MIRRORED[name].maker is None:
            hidden.add("__init__")
        made = self.sync_class(PREFIX + name, cls, extra=[], hidden=hidden)
        if mapping:
            made.bases = self.mapping_bases(cls)
        return made

    def mapping_bases(self, cls: type) -> list[ast.expr]:
        """Return `Mapping[...]` as the class itself says it."""
        found = next(base for base in class_tree(cls).bases if isinstance(base, ast.Subscript))
        self.imports["Mapping"] = "collections.abc"
        kinds = self.annotation(found.slice, cls.__module__, given=False)
        assert kinds is not None
        return [ast.Subscript(ast.Name("Mapping"), kinds)]

    def makers(self) -> Iterator[ast.stmt]:
        """Yield what a blocking store has from the table: its makers, and the classes they make."""
        for name, kind in MIRRORED.items():
            if kind.maker is None:
                continue
            made = dict(self.members(load(name)))["__init__"]
            assert isinstance(made, ast.FunctionDef)
            text = f'def {kind.maker}(self) -> {PREFIX}{name}:\n    """Make a {name} on this store."""'
            maker = ast.parse(text).body[0]
            assert isinstance(maker, ast.FunctionDef)
            maker.args = without_store(made.args)
            yield maker
            yield from ast.parse(f"{name}: type[{PREFIX}{name}]").body

    def text(self) -> str:
        """Return the whole stub, formatted."""
        hand = self.sync_class(
            PREFIX + "Store", BlockingStore, Store, SupportsBackup, extra=list(self.makers()), hidden={"__init__"}
        )
        classes = [hand, *(self.mirror_of(name) for name in MIRRORED)]
        entry = next(node for node in tree_of("leafward.portal.opening").body if isinstance(node, ast.FunctionDef))
        body = [*classes, self.function(entry, "leafward.portal.opening")]
        code = "\n\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body)
        made = {node.name for node in classes}
        imports = sorted((home, name) for name, home in self.imports.items() if name not in made)
        lines = [f"from {home} import {name}" if home else f"import {name}" for home, name in imports]
        exported = sorted([*made, PREFIX + "Iterator", entry.name])
        return formatted("\n".join([HEAD, *lines, "", f"__all__ = {exported}", "", code, ""]))


def shown(default: ast.expr) -> ast.expr:
    """Return a default as a stub shows it."""
    return default if isinstance(default, ast.Constant) else ast.Constant(...)


def without_store(given: ast.arguments) -> ast.arguments:
    """Return a constructor's parameters without the first, which is the store."""
    first = given.args[1].arg
    given.args = [one for one in given.args if one.arg != first]
    given.defaults = given.defaults[-(len(given.args) - 1) :] if len(given.args) > 1 else []
    return given


def body_of(node: Function) -> list[ast.stmt]:
    """Return the docstring, or nothing."""
    text = ast.get_docstring(node, clean=False)
    return [ast.Expr(ast.Constant(text or ...))]


def has(node: Function, decorator: str) -> bool:
    """Tell whether a function is decorated so."""
    return any(isinstance(one, ast.Name) and one.id == decorator for one in node.decorator_list)


def is_setter(node: Function) -> bool:
    """Tell whether a function is the other half of a property: mirrors are read, not set."""
    return any(isinstance(one, ast.Attribute) and one.attr in {"setter", "deleter"} for one in node.decorator_list)


def is_offered(name: str) -> bool:
    """Tell whether a mirror has a member of this name."""
    return not name.startswith("_") or name in SPECIAL


def formatted(code: str) -> str:
    """Return code as ruff would leave it in the tree."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    options = ["--stdin-filename", str(STUB), "-"]
    for command in (["check", "--quiet", "--select", "I,F401", "--fix"], ["format", "--quiet"]):
        done = subprocess.run([ruff, *command, *options], input=code, capture_output=True, text=True, check=True)
        code = done.stdout
    return code


if __name__ == "__main__":
    stub = StubWriter().text()
    if "--write" in sys.argv[1:]:
        STUB.write_text(stub, encoding="utf-8")
    else:
        sys.stdout.write(stub)
