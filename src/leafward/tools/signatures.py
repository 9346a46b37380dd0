"""Reads the parameters of a function from its signature, its annotations and its docstring."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, ForwardRef, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from leafward.core.callables import name_of, without_partial
from leafward.core.errors import ConfigurationError
from leafward.core.json import Plain
from leafward.tools.arguments import object_schema
from leafward.tools.parameters import REQUIRED, Parameter, Parameters
from leafward.tools.pydantic_types import read_by_pydantic
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.schemas import check_convertible, converted, per_type, schemas_of


def read_parameters(function: Callable[..., Any], described: Mapping[str, str]) -> tuple[Parameters, bool]:
    """Return how a model calls a function, and whether it is a method of no object, whose first parameter is left out.

    `described` has texts about its parameters, from its docstring.

    Raises:
        ConfigurationError: a parameter has a type that JSON cannot hold, or cannot be named.
    """
    parameters = list(_signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name in ("self", "cls") and parameters[0].annotation is REQUIRED
    parameters = parameters[is_method:]
    hints = _hints(function)
    bound = _given(function)
    shown: dict[str, Parameter] = {}
    others: Parameter | None = None
    contexts: list[str] = []
    for one in parameters:
        hint = hints.get(one.name, Any)
        if one.kind is one.VAR_POSITIONAL:
            raise _refused(function, one.name, "takes any number of values by position, which a model cannot name")
        if _is_context(hint):
            if one.kind is one.VAR_KEYWORD:
                raise _refused(function, one.name, "collects arguments and cannot be the context")
            contexts.append(one.name)
        elif one.kind is one.VAR_KEYWORD:
            others = Parameter(hint)
        elif one.name not in bound:
            kind, default, make_default = read_by_pydantic(hint, one.default)
            shown[one.name] = Parameter(kind, default, _takes_null(function, one.name, kind), make_default)
    found = Parameters(
        schema=_schema(function, shown, others, described, hints),
        shown=shown,
        others=others,
        contexts=frozenset(contexts),
        bound=bound,
        by_position=tuple(one.name for one in parameters if one.kind is one.POSITIONAL_ONLY),
    )
    return found, is_method


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name_of(function)} cannot be a tool: its parameters are not known") from error


def _given(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names that `functools.partial` has values for: what a program has decided, no model overrides."""
    names: set[str] = set()
    while isinstance(function, partial):
        call = cast("partial[Any]", function)
        names |= call.keywords.keys()
        function = call.func
    return frozenset(names)


# ── annotations ──────────────────────────────────────────────────────────────


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function as types."""
    plain: Any = without_partial(function)
    if inspect.isclass(plain):
        plain = plain.__init__
    elif not inspect.isroutine(plain):
        plain = type(plain).__call__
    written = {name: one for name, one in inspect.get_annotations(plain).items() if name != "return"}
    names: dict[str, Any] = getattr(inspect.unwrap(plain), "__globals__", {})
    try:
        return _evaluated(written, names)
    except Exception:  # noqa: BLE001  (an annotation may raise anything; it is read again alone)
        return _hints_one_by_one(function, written, names)


def _evaluated(written: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return annotations as types, also where they were written as text."""

    def annotated() -> None: ...

    # Many functions have the same few texts, which would be compiled again each time.
    annotated.__annotations__ = {
        name: _reference(one) if isinstance(one, str) else one for name, one in written.items()
    }
    # With locals of its own, a reference is evaluated for each function anew: names may mean something else there.
    return get_type_hints(annotated, globalns=names, localns={}, include_extras=True)


@lru_cache(maxsize=256)
def _reference(annotation: str) -> ForwardRef:
    return ForwardRef(annotation)


def _hints_one_by_one(
    function: Callable[..., Any], written: Mapping[str, Any], names: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the same where an annotation cannot be read, with the name of its parameter."""
    # The context is often imported for type checkers only.
    known: dict[str, Any] = {"RuntimeContext": RuntimeContext, **names}
    found: dict[str, Any] = {}
    for name, annotation in written.items():
        try:
            found |= _evaluated({name: annotation}, known)
        except Exception as error:
            what = (
                f"is annotated with {annotation!r}, which cannot be read ({error}): import or define it in the module"
            )
            raise _refused(function, name, what) from error
    return found


def _is_context(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        some = [one for one in get_args(hint) if one is not type(None)]
        return bool(some) and all(_is_context(one) for one in some)
    return isinstance(hint, type) and issubclass(hint, RuntimeContext)


def _takes_null(function: Callable[..., Any], name: str, hint: Any) -> bool:
    """Tell whether `None` is a value of a type.

    Raises:
        ConfigurationError: no JSON value can be converted to this type.
    """
    try:
        return _has_null(hint)
    except (TypeError, NotImplementedError) as error:
        raise _refused(function, name, _why_not(hint)) from error


@per_type
def _has_null(hint: Any) -> bool:
    check_convertible(hint)
    try:
        converted(None, hint)
    except msgspec.ValidationError:
        return False
    return True


def _why_not(hint: Any) -> str:
    return (
        f"has the type {inspect.formatannotation(hint)}, which JSON cannot hold: annotate another, or convert it inside"
    )


def _refused(function: Callable[..., Any], name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{name_of(function)} cannot be a tool: its parameter {name!r} {why}")


# ── the schema ───────────────────────────────────────────────────────────────


def _schema(
    function: Callable[..., Any],
    shown: Mapping[str, Parameter],
    others: Parameter | None,
    described: Mapping[str, str],
    hints: Mapping[str, Any],
) -> dict[str, Any]:
    kinds = {name: parameter.type for name, parameter in shown.items()}
    if others is not None:
        kinds["**"] = others.type
    try:
        schemas, definitions = schemas_of(list(kinds.values()))
    except Exception as error:
        raise _find_culprit(function, kinds, error) from error
    by_name = dict(zip(kinds, schemas, strict=True))
    rest = by_name.pop("**", False)
    for name, schema in by_name.items():
        text = _annotated_text(hints.get(name)) or described.get(name)
        if text:
            schema["description"] = text
        default = _plain_default(shown[name].default)
        if default is not None:
            schema["default"] = default
    made = object_schema(by_name, [name for name, parameter in shown.items() if parameter.is_required])
    made["additionalProperties"] = True if rest == {} else rest
    return {**made, "$defs": definitions} if definitions else made


def _find_culprit(function: Callable[..., Any], kinds: Mapping[str, Any], error: Exception) -> ConfigurationError:
    for name, kind in kinds.items():
        try:
            schemas_of([kind])
        except Exception:  # noqa: BLE001  (whatever it is, this is the parameter)
            return _refused(function, name, _why_not(kind))
    return ConfigurationError(f"{name_of(function)} cannot be a tool: {error}")


def _annotated_text(hint: Any) -> str | None:
    """Return what an annotation says in words: a string, or what has a description, such as `msgspec.Meta`."""
    if get_origin(hint) is not Annotated:
        return None
    for one in get_args(hint)[1:]:
        texts = (one, getattr(one, "description", None), getattr(one, "documentation", None))
        found = next((text for text in texts if isinstance(text, str) and text), None)
        if found is not None:
            return found
    return None


def _plain_default(default: object) -> Any:
    """Return a default as JSON; `None` where it has no JSON form, or is `None`."""
    if default is REQUIRED:
        return None
    try:
        return Plain().copy(msgspec.to_builtins(default, str_keys=True))
    except (TypeError, ValueError, RecursionError):
        return None
