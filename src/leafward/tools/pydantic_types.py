"""Annotations that only pydantic reads: unions of its models, and its fields with limits and defaults."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

_ADAPTER = "_leafward_adapter"


def read_by_pydantic(hint: Any, default: Any) -> tuple[Any, Any, Callable[[], Any] | None]:
    """Return the type and the default of a parameter, and what makes this default, if the function does not know it.

    What only pydantic reads becomes a type that has it do so.
    """
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None:
        # A program that annotates with it has imported it.
        return hint, default, None
    make_default: Callable[[], Any] | None = None
    if isinstance(default, pydantic.fields.FieldInfo):
        described: Any = default
        hint = Annotated[hint, described]
        default = inspect.Parameter.empty
        if not described.is_required():
            make_default = partial(described.get_default, call_default_factory=True)
            default = make_default()
    return (_adapted(pydantic, hint) if _needs_it(pydantic, hint) else hint), default, make_default


def read_value(kind: Any, value: object) -> tuple[bool, Any]:
    """Return whether a type is one of pydantic's, and the value that it makes of a JSON value.

    Raises:
        msgspec.ValidationError: it does not fit.
    """
    adapter = getattr(kind, _ADAPTER, None)
    if adapter is None:
        return False, None
    try:
        return True, adapter.validate_json(msgspec.json.encode(value))
    except (ValueError, TypeError) as error:
        raise msgspec.ValidationError(str(error)) from error


def _needs_it(pydantic: Any, hint: Any) -> bool:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated and any(isinstance(one, pydantic.fields.FieldInfo) for one in arguments[1:]):
        return True
    if get_origin(hint) in (Union, types.UnionType):
        models = [one for one in arguments if isinstance(one, type) and issubclass(one, pydantic.BaseModel)]
        if len(models) > 1:
            return True
    return any(_needs_it(pydantic, one) for one in arguments)


def _adapted(pydantic: Any, hint: Any) -> type:
    adapter = pydantic.TypeAdapter(hint)
    text = getattr(hint, "__name__", None) or repr(hint)
    return type(text, (), {"model_json_schema": staticmethod(adapter.json_schema), _ADAPTER: adapter})
