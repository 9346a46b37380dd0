"""Sync classes made from async ones: same names, same parameters, no `await`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, new_class
from typing import Any, Protocol, TypeVar, cast

from leafward.core.errors import ConfigurationError
from leafward.portal.mirrored import MIRRORED, PREFIX

M = TypeVar("M", bound="Mirror")

_OPERATORS = frozenset({"__bool__", "__call__", "__contains__", "__getitem__", "__iter__", "__len__", "__or__"})
_ENTRY = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
_OF_A_MAPPING = frozenset(name for name in dir(Mapping) if name not in dir(object)) - {
    "__getitem__",
    "__iter__",
    "__len__",
}


class Calls(Protocol):
    """What a mirror needs of its portal."""

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of an async object in the portal's loop, and return its outcome for this side."""
        ...

    def mirror(self, value: Any) -> Any:
        """Return the mirror of a handle; any other value as it is."""
        ...


class Mirror:
    """A handle whose calls wait for the async handle behind it."""

    __slots__ = ("__weakref__", "_behind", "_portal")

    _portal: Calls
    _behind: Any
    _mirrored: type

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _portal_among(cls, args, kwargs).call(cls._mirrored, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(self._behind, name)
        if callable(value) and not isinstance(value, type) and not is_handle(type(value)):
            return functools.partial(_call, self._portal, value)
        return self._portal.mirror(value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._behind) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return f"<blocking {self._behind!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mirror) and self._behind == other._behind

    def __hash__(self) -> int:
        return hash(self._behind)


def make_mirror(cls: type[M], portal: Calls, behind: Any) -> M:
    """Return a mirror of an object that exists."""
    mirror = object.__new__(cls)
    mirror._portal = portal  # pyright: ignore[reportPrivateUsage]
    mirror._behind = behind  # pyright: ignore[reportPrivateUsage]
    return mirror


def behind(mirror: Mirror) -> Any:
    """Return the async object of a mirror."""
    return mirror._behind  # pyright: ignore[reportPrivateUsage]


def portal_of(mirror: Mirror) -> Calls:
    """Return the portal a mirror calls through."""
    return mirror._portal  # pyright: ignore[reportPrivateUsage]


@functools.cache
def is_handle(cls: type) -> bool:
    """Tell whether objects of this class do something that is awaited, and so need a mirror."""
    if any(base.__name__ in MIRRORED and base.__module__.startswith("leafward.") for base in cls.__mro__):
        return True
    members = (inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_"))
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in members)


_made: dict[tuple[type, type[Mirror]], type[Any]] = {}


def mirror_class(cls: type, base: type[M] = Mirror) -> type[M]:
    """Return the sync class of an async one, always the same, with its docstrings and parameters."""
    return _made.get((cls, base)) or _made.setdefault((cls, base), _make_class(cls, base))


def _make_class(cls: type, base: type[Mirror]) -> type[Mirror]:
    members: dict[str, Any] = {
        "__slots__": (),
        "__module__": "leafward.portal",
        "__doc__": cls.__doc__,
        "_mirrored": cls,
    }
    bases: tuple[type, ...] = (base,)
    taken = {name for one in base.__mro__[:-1] if one is not Mirror for name in vars(one)}
    if issubclass(cast(Any, cls), Mapping):
        # Its views then come from the mirror, and give mirrors.
        bases = (base, Mapping)
        taken |= _OF_A_MAPPING
    for name in dir(cls):
        mirrored = _ENTRY.get(name, name)
        if mirrored not in taken and (not name.startswith("_") or name in _OPERATORS or name in _ENTRY):
            member = _member(name, f"{PREFIX}{cls.__name__}.{mirrored}", inspect.getattr_static(cls, name))
            if member is not None:
                members[mirrored] = member
    return new_class(PREFIX + cls.__name__, bases, exec_body=lambda namespace: namespace.update(members))


def _member(name: str, qualname: str, item: Any) -> object | None:
    if isinstance(item, classmethod | staticmethod):
        return classmethod(_described(_class_call(name), qualname, cast(Any, item).__func__))
    if inspect.isroutine(item):
        return _described(_method(name), qualname, item)
    if isinstance(item, property):
        return property(lambda mirror: mirror.__getattr__(name), doc=item.__doc__)
    return None


def _described(function: FunctionType, qualname: str, original: object) -> FunctionType:
    if isinstance(original, FunctionType):
        functools.update_wrapper(function, original)
    function.__qualname__ = qualname
    function.__name__ = qualname.rpartition(".")[2]
    return function


def _method(name: str) -> Any:
    def method(self: Mirror, *args: Any, **kwargs: Any) -> Any:
        return portal_of(self).call(getattr(behind(self), name), args, kwargs)

    return method


def _class_call(name: str) -> Any:
    def class_call(cls: type[Mirror], *args: Any, **kwargs: Any) -> Any:
        original = getattr(cls._mirrored, name)  # pyright: ignore[reportPrivateUsage]
        return _portal_among(cls, args, kwargs).call(original, args, kwargs)

    return class_call


def _call(portal: Calls, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return portal.call(function, args, kwargs)


def _portal_among(cls: type[Mirror], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Calls:
    for given in (*args, *kwargs.values()):
        if isinstance(given, Mirror):
            return portal_of(given)
    raise ConfigurationError(f"{cls.__name__} takes an open blocking store: with leafward.blocking(url) as store")
