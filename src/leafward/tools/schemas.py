"""JSON schemas of Python types, with every type written where it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from leafward.core.json import copy_plain
from leafward.tools.pydantic_types import read_value

PREFIX = "#/$defs/"
Schema = dict[str, Any]
T = TypeVar("T")

_ANY = {"leafward-any": True}
_DROPPED = frozenset({"$ref", "discriminator", *_ANY})
"""Keys that say nothing once definitions stand in the place of references to them."""
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})


def per_type(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Have a function of a type remember what it returned: the parameters of many functions have few types."""
    remembered = lru_cache(maxsize=256)(function)

    def look_up(kind: Any) -> T:
        try:
            hash(kind)
        except TypeError:
            # What it is annotated with has no hash.
            return function(kind)
        return remembered(kind)

    return look_up


def schemas_of(types: Sequence[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schema of each type, and the definitions they refer to: only types that contain themselves have one.

    Raises:
        TypeError: a type has no JSON form.
    """
    made = [_schema_of(kind) for kind in types]
    if any(definitions for _, definitions in made):
        # Two types may have one name.
        return _schemas_of(types)
    return [copy_plain(schema) for schema, _ in made], {}


@per_type
def _schema_of(kind: Any) -> tuple[Schema, dict[str, Schema]]:
    """Return what `schemas_of` does for one type."""
    (schema,), definitions = _schemas_of([kind])
    return schema, definitions


def _schemas_of(types: Sequence[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    hoisted: dict[str, Schema] = {}

    def hook(kind: type) -> Schema:
        if kind is object:
            # An empty schema would count as none.
            return dict(_ANY)
        describe = getattr(kind, "model_json_schema", None)
        if describe is None:
            raise NotImplementedError
        described: Schema = describe()
        inner: dict[str, Schema] = described.pop("$defs", {})
        return _Inliner(inner, hoisted).inline(described)

    schemas, components = msgspec.json.schema_components(types, schema_hook=hook, ref_template=PREFIX + "{name}")
    inliner = _Inliner(components, hoisted)
    return [inliner.inline(schema) for schema in schemas], hoisted


class _Inliner:
    """Puts definitions in the place of references; those that refer to themselves go to `hoisted`."""

    def __init__(self, definitions: Mapping[str, Schema], hoisted: dict[str, Schema]) -> None:
        self._definitions = definitions
        self._hoisted = hoisted
        self._open: list[str] = []

    def inline(self, schema: Schema) -> Schema:
        plain = {key: self._value(key, value) for key, value in schema.items() if key not in _DROPPED}
        name = str(schema.get("$ref", "")).removeprefix(PREFIX)
        return {**self._definition(name), **plain} if name else _typed(plain)

    def _value(self, key: str, value: Any) -> Any:
        if key in _NAMED:
            return {name: self.inline(schema) for name, schema in cast(dict[str, Schema], value).items()}
        if key in _LISTED:
            return [self.inline(schema) for schema in cast(list[Schema], value)]
        return self.inline(cast(Schema, value)) if key in _SINGLE and isinstance(value, dict) else value

    def _definition(self, name: str) -> Schema:
        if name in self._open:
            self._hoist(name)
        # What is not defined here was hoisted from a model of pydantic's.
        if name in self._open or name not in self._definitions:
            return {"$ref": PREFIX + name}
        self._open.append(name)
        try:
            return self.inline(self._definitions[name])
        finally:
            self._open.pop()

    def _hoist(self, name: str) -> None:
        if name not in self._hoisted:
            self._hoisted[name] = {}
            outer, self._open = self._open, [name]
            self._hoisted[name] = self.inline(self._definitions[name])
            self._open = outer


def _typed(schema: Schema) -> Schema:
    """Give choices their type, which some providers ask for."""
    choices: object = schema.get("enum")
    if isinstance(choices, list) and choices and "type" not in schema:
        for kind, name in ((str, "string"), (int, "integer")):
            if all(type(one) is kind for one in cast(list[object], choices)):
                return {"type": name, **schema}
    return schema


def converted(value: object, kind: Any) -> Any:
    """Return a JSON value as a value of a type. A number without a fraction, such as 5.0, is an integer, too.

    Raises:
        msgspec.ValidationError: it does not fit.
    """
    try:
        return _convert(value, kind)
    except msgspec.ValidationError:
        whole, changed = _with_integers(value)
        if not changed:
            raise
        return _convert(whole, kind)


def check_convertible(kind: Any) -> None:
    """Raise `TypeError` if no JSON value can be converted to this type."""
    msgspec.json.Decoder(kind, dec_hook=_validated)


def _convert(value: object, kind: Any) -> Any:
    is_read, found = read_value(kind, value)
    if is_read:
        return found
    return msgspec.convert(value, kind, str_keys=True, dec_hook=_validated)


def _validated(kind: type, value: object) -> object:
    """Read a model of pydantic's, or one that does as those do."""
    validate = getattr(kind, "model_validate", None)
    if kind is object:
        return value
    if validate is None:
        raise NotImplementedError
    return validate(value)


def _with_integers(value: object) -> tuple[Any, bool]:
    """Return a JSON value with its whole numbers as integers, and whether any were not."""
    if isinstance(value, float):
        return (int(value), True) if value.is_integer() else (value, False)
    if isinstance(value, list):
        items = [_with_integers(item) for item in cast(list[object], value)]
        return [item for item, _ in items], any(changed for _, changed in items)
    if isinstance(value, dict):
        pairs = {key: _with_integers(item) for key, item in cast(dict[str, object], value).items()}
        return {key: item for key, (item, _) in pairs.items()}, any(changed for _, changed in pairs.values())
    return value, False
