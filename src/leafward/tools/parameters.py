"""The parameters of a function: the schema that a model sees, and how its arguments become the function's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from leafward.core.transcript import shortened
from leafward.tools.arguments import Mistake, find_mistake, find_wrong_value, parsed, without_nulls
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.schemas import converted

REQUIRED = inspect.Parameter.empty

_MISTAKE_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a model fills."""

    type: Any
    default: Any = REQUIRED
    takes_null: bool = True
    make_default: Callable[[], Any] | None = None
    """Makes the default that the function itself does not know: what it has is a description of it."""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function; `schema` is what a model sees of them."""

    schema: dict[str, Any]
    shown: dict[str, Parameter]
    others: Parameter | None
    """What stands for all arguments of other names, if the function takes any."""
    contexts: frozenset[str]
    """The names of the parameters that get the context."""
    bound: frozenset[str]
    """The names of arguments that are given already."""
    by_position: tuple[str, ...]
    """The names of parameters that are given by position only, in their order."""

    def bind(self, function: Callable[..., Any], arguments: object, ctx: RuntimeContext) -> partial[Any]:
        """Return the call of `function` with what a model sent, each argument as a value of its annotated type.

        Raises:
            Mistake: the arguments do not fit.
        """
        given = self._without_nulls(without_nulls(self.schema, parsed(arguments)))
        self._check_names(given)
        values = {name: self._converted(name, value) for name, value in given.items()}
        for name, parameter in self.shown.items():
            if parameter.make_default is not None and name not in values:
                values[name] = parameter.make_default()
        values |= dict.fromkeys(self.contexts, ctx)
        positional = [values.pop(name) if name in values else self.shown[name].default for name in self.by_position]
        return partial(function, *positional, **values)

    def _without_nulls(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if value is not None or self._may_be_null(name)}

    def _may_be_null(self, name: str) -> bool:
        parameter = self.shown.get(name)
        return parameter is None or parameter.is_required or parameter.takes_null

    def _check_names(self, given: Mapping[str, Any]) -> None:
        taken = given.keys() & (self.contexts | self.bound)
        unknown = taken if self.others is not None else given.keys() - self.shown.keys()
        missing = any(parameter.is_required and name not in given for name, parameter in self.shown.items())
        if unknown or missing:
            names = dict.fromkeys(name for name in given if name in unknown)
            closed: dict[str, Any] = {**self.schema, "additionalProperties": False, "required": []}
            raise Mistake(find_mistake(closed, names) or find_mistake(self.schema, given) or "")

    def _converted(self, name: str, value: object) -> Any:
        parameter = self.shown.get(name, self.others)
        if parameter is None or parameter.type is Any:
            return value
        try:
            return converted(value, parameter.type)
        except RecursionError:
            raise Mistake(f"the argument {name!r} nests values too deeply. Send less nested ones.") from None
        except msgspec.ValidationError as error:
            schema = self.schema["properties"].get(name, {})
            raise Mistake(find_wrong_value(name, schema, value) or _sentence(name, error)) from error


def _sentence(name: str, error: Exception) -> str:
    """Say to a model what does not fit; the place is given as in Python, such as `[0].city`."""
    what, _, place = str(error).partition(" - at `$")
    inner = f" at {place.rstrip('`').lstrip('.')}" if place else ""
    text = shortened(" ".join(what.split()), _MISTAKE_CHARACTERS).rstrip(".")
    return f"the argument {name!r} does not fit{inner}: {text[:1].lower()}{text[1:]}."
