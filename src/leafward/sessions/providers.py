"""Where the content of context blocks comes from.

A provider is any object with some of these methods, plain or async. `get()` gives a block's content; with
`set(content)` it can be written; with `load(key)` it is a collection of skills and `set` takes `(key, content,
description)`; with `search(query)` it can be searched and `set` takes `(key, content)`. A collection may also have
`list_entries()`, `delete_entry(key)` and, where it is searched, `get_entry(key)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from leafward.core.errors import ConfigurationError, ContextError, LeafwardError
from leafward.core.ids import Scope, refusal
from leafward.core.prompt import ContextEntry
from leafward.sessions.user_functions import Turns, call
from leafward.stores.contracts import Store
from leafward.stores.entries import BLOCK, Edit, EntryIndex, Shelf

METHODS = ("get", "set", "load", "search", "init", "list_entries", "delete_entry", "get_entry")
RESULTS = 10
"""How many entries a search of stored entries gives."""


@runtime_checkable
class ContextProvider(Protocol):
    """Gives the content of a read-only block."""

    def get(self) -> Any: ...


@runtime_checkable
class WritableContextProvider(Protocol):
    """Gives and takes the content of a block."""

    def get(self) -> Any: ...
    def set(self, content: str, /) -> Any: ...


@runtime_checkable
class SkillProvider(Protocol):
    """Lists documents and gives them by key; a `set(key, content, description)` makes it writable."""

    def get(self) -> Any: ...
    def load(self, key: str, /) -> Any: ...


@runtime_checkable
class SearchProvider(Protocol):
    """Sums up a collection and searches it; a `set(key, content)` makes it writable."""

    def get(self) -> Any: ...
    def search(self, query: str, /) -> Any: ...


ProviderLike = str | ContextProvider | Mapping[str, Callable[..., Any]]
"""What a block takes: an object of one of these kinds, a mapping of such methods by their names, or a fixed text."""

PromptProviderLike = WritableContextProvider | Mapping[str, Callable[..., Any]]
"""What can keep a frozen prompt: an object with `get()` and `set(text)`, or a mapping of the two."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stored provider keeps what belongs to a block: the session's store and scope."""

    scope: Scope
    store: Store | None
    label: str
    shared: bool


class StaticContext:
    """A block whose text is fixed in the program."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"a StaticContext holds text, not {type(text).__name__}")
        self.text = text

    def get(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"StaticContext({self.text!r})"


def writing_an_entry(label: str) -> str:
    """Return the call that writes an entry of a keyed block, for errors that must say what works."""
    entry = f'{{"label": {label}, "content": ..., "metadata": {{"title": ...}}}}'
    return f'(await session.tools()).call("set_context", {entry})'


class _Stored:
    """What is kept in a store, under the label of the block and the scope of the session it is given to."""

    _written_with: ClassVar[str]
    """The call by which a program writes what this keeps."""

    def __init__(self, store: Store | None = None, label: str | None = None) -> None:
        self._given_store = store
        self._given_label = label
        self._place: Place | None = None

    def bind(self, place: Place) -> _Stored:
        """Return a provider of the same kind for one session; unset arguments come from the session."""
        store = place.store if _is_or_unset(self._given_store, place.store) else self._given_store
        if store is None:
            raise ConfigurationError(
                f"block {place.label!r} has no provider, and this session's storage keeps no context: give it one"
            )
        bound = type(self)(self._given_store, self._given_label)
        bound._place = replace(place, store=store, label=self._given_label or place.label)
        return bound

    @property
    def where(self) -> tuple[EntryIndex, Shelf]:
        """Which store it is in, and where there."""
        place = self._place
        if place is None or place.store is None:
            raise ConfigurationError(
                f"this {type(self).__name__} was not given to a session: call session.with_context(label, "
                f"provider=...) and write with {self._written_with}"
            )
        return place.store.entries, Shelf(place.scope, place.label, place.shared)


class StoredContextProvider(_Stored):
    """A writable block kept in the store: the default.

    `store` and `label` are those of `StoredSearchProvider`.
    """

    _written_with = "session.replace_context_block(label, content)"

    async def get(self) -> str | None:
        entries, shelf = self.where
        entry = await entries.get(shelf, BLOCK)
        return None if entry is None else entry.content

    async def set(self, content: str) -> None:
        await self.edit(lambda _: content)

    async def edit(self, change: Edit) -> str | None:
        """Change the content in one atomic step."""
        entries, shelf = self.where
        return await entries.edit(shelf, BLOCK, change)


class StoredSearchProvider(_Stored):
    """Entries kept in the store, found by their words.

    Give it to `with_context(label, provider=StoredSearchProvider())`; it works through the session it was given to.
    Your program writes an entry with the tool that a model uses:
    `(await session.tools()).call("set_context", {"label": ..., "content": ..., "metadata": {"title": ...}})`.

    Args:
        store: keeps the entries in this store and not in the session's.
        label: keeps the entries under this label and not under the block's, so that a block can be renamed, or two
            blocks can have the same entries.
    """

    _written_with = writing_an_entry("label")

    async def get(self) -> str | None:
        entries, shelf = self.where
        found = await entries.count(shelf)
        return f"{found} entries indexed." if found else None

    async def search(self, query: str) -> str | None:
        return write_entries(await self.find(query)) or None

    async def find(self, query: str) -> dict[str, str]:
        """Return the texts of the entries that a search gives, by key, the best first."""
        from leafward.core.query import parse_query

        entries, shelf = self.where
        return {one.id: one.content for one in await entries.search(shelf, parse_query(query), limit=RESULTS)}

    async def set(self, key: str, content: str) -> None:
        await self.edit(key, lambda _: content)

    async def edit(self, key: str, change: Edit, description: str | None = None) -> str | None:
        """Change an entry in one atomic step."""
        entries, shelf = self.where
        return await entries.edit(shelf, key, change, description=description, searchable=True)

    async def get_entry(self, key: str) -> str | None:
        if refusal(key) is not None:
            return None
        entries, shelf = self.where
        entry = await entries.get(shelf, key)
        return None if entry is None else entry.content

    async def list_entries(self) -> list[ContextEntry]:
        entries, shelf = self.where
        return [ContextEntry(one.key, one.description, one.content) for one in await entries.list_entries(shelf)]

    async def delete_entry(self, key: str) -> bool:
        if await self.get_entry(key) is None:
            return False
        await self.edit(key, lambda _: None)
        return True


def write_entries(found: Mapping[str, str]) -> str:
    """Return entries as a model reads them."""
    return "\n\n".join(f"[{key}]\n{content}" for key, content in found.items())


class _Queues:
    """Who calls one provider, and who changes what it holds: one at a time, whichever session they come from."""

    def __init__(self) -> None:
        self.calls = Turns()
        self.changes = Turns()


# Who has the queues of a provider has the provider too, so while they live its id is no other's.
_queues: WeakValueDictionary[int, _Queues] = WeakValueDictionary()


def is_kept_in(store: Store | None, provider: object) -> bool:
    """Tell whether what a provider keeps for a session of a store is kept in that store."""
    if not isinstance(provider, StoredContextProvider) or store is None:
        return False
    given = provider._given_store  # pyright: ignore[reportPrivateUsage]
    return _is_or_unset(given, store)


def _is_or_unset(given: Store | None, store: Store | None) -> bool:
    # A session behind a lease has a view of the store that was given.
    return given is None or given is store or given is getattr(store, "unfenced", None)


class Source:
    """A provider as a block uses it: its methods found, its answers checked, its failures told with the label."""

    def __init__(self, label: str, provider: object, timeout: float) -> None:
        self.label = label
        self.provider = provider
        self._timeout = timeout
        self._methods = find_methods(provider, f"the provider of block {label!r}")
        self._queues = _queues.setdefault(id(_holder(provider, self._methods)), _Queues())
        self._fixed = fixed_text(provider)
        self._begun = "init" not in self._methods
        self._beginning = Turns()

    def bind(self, place: Place) -> Source:
        """Return the source as one session uses it."""
        if not isinstance(self.provider, _Stored):
            return self
        return Source(self.label, self.provider.bind(place), self._timeout)

    def has(self, method: str) -> bool:
        """Tell whether the provider has a method."""
        return method in self._methods

    @property
    def is_skill(self) -> bool:
        return self.has("load")

    @property
    def is_searchable(self) -> bool:
        return self.has("search")

    @property
    def is_keyed(self) -> bool:
        return self.is_skill or self.is_searchable

    @property
    def writable(self) -> bool:
        return self.has("set")

    @property
    def is_readable_by_key(self) -> bool:
        return self.is_skill or self.has("get_entry")

    def changing(self) -> AbstractAsyncContextManager[None]:
        """Return what to hold from reading the content to writing what follows from it."""
        return self._queues.changes.alone()

    async def get(self) -> str:
        return await self.get_or_none() or ""

    async def get_or_none(self) -> str | None:
        return await self._text("get") if self._fixed is None else self._fixed

    async def load(self, key: str) -> str | None:
        return await self._text("load", key)

    async def read(self, key: str) -> str | None:
        """Return an entry as it is now."""
        return await self._text("load" if self.is_skill else "get_entry", key)

    async def search(self, query: str) -> str | None:
        return await self._text("search", query)

    async def list_entries(self) -> list[ContextEntry]:
        found = await self._call("list_entries")
        if found is None or isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise self._wrong(found, "list_entries", "a list of entries")
        return [self._entry(one) for one in cast(Iterable[object], found)]

    def _entry(self, given: object) -> ContextEntry:
        try:
            return msgspec.convert({"key": given} if isinstance(given, str) else given, ContextEntry)
        except msgspec.ValidationError as error:
            raise ContextError(
                f"the provider of block {self.label!r} gave from list_entries() what is not an entry: {error}"
            ) from None

    async def delete_entry(self, key: str) -> bool:
        deleted = await self._call("delete_entry", key)
        if not isinstance(deleted, bool):
            raise self._wrong(deleted, "delete_entry", "True or False")
        return deleted

    async def set(self, *arguments: str | None) -> None:
        await self._call("set", *arguments)

    async def _text(self, method: str, *arguments: str) -> str | None:
        found = await self._call(method, *arguments)
        if found is not None and not isinstance(found, str):
            raise self._wrong(found, method, "text")
        return found

    def _wrong(self, given: object, method: str, wanted: str) -> ContextError:
        return ContextError(
            f"the provider of block {self.label!r} gave {type(given).__name__} from {method}(), not {wanted}"
        )

    async def _call(self, method: str, *arguments: str | None) -> object:
        if not self._begun:
            async with self._beginning.alone():
                if not self._begun:
                    await self._run("init", self.label)
                    self._begun = True
        return await self._run(method, *arguments)

    async def _run(self, method: str, *arguments: str | None) -> object:
        try:
            return await call(self._methods[method], *arguments, timeout=self._timeout, turns=self._queues.calls)
        except LeafwardError:
            raise
        except TimeoutError as error:
            raise ContextError(
                f"the provider of block {self.label!r} did not answer {method}() within {self._timeout:g} s"
            ) from error
        except Exception as error:
            raise ContextError(
                f"the provider of block {self.label!r} failed in {method}(): {type(error).__name__}: {error}"
            ) from error


def _holder(provider: object, methods: Mapping[str, Callable[..., Any]]) -> object:
    """Return what stands behind a provider: mappings made anew for each handle may share one."""
    return getattr(methods["get"], "__self__", methods["get"]) if isinstance(provider, Mapping) else provider


def fixed_text(provider: object) -> str | None:
    """Return the text of a provider that is one, or holds one that never changes."""
    if isinstance(provider, StaticContext):
        return provider.text
    return provider if isinstance(provider, str) else None


def find_methods(provider: object, what: str) -> dict[str, Callable[..., Any]]:
    """Return the methods of a provider by name; a plain text and a mapping of callables are providers too.

    Raises:
        ConfigurationError: it is not a provider; the text says what it lacks.
    """
    if isinstance(provider, type):
        raise ConfigurationError(f"{what} is a class: give an object of it, {provider.__name__}(...)")
    if isinstance(provider, str):
        provider = StaticContext(provider)
    if isinstance(provider, Mapping):
        given = dict(cast(Mapping[str, Any], provider))
        unknown = [str(name) for name in given if name not in METHODS]
        if unknown:
            raise ConfigurationError(f"{what} has {', '.join(unknown)}; known are {', '.join(METHODS)}")
    else:
        given = {name: getattr(provider, name) for name in METHODS if hasattr(provider, name)}
    wrong = [name for name, method in given.items() if not callable(method)]
    if wrong:
        raise ConfigurationError(f"{what} has a {wrong[0]} that cannot be called")
    if "get" not in given:
        raise ConfigurationError(
            f"{what} is a {type(cast(object, provider)).__name__} without get(): give text, or an object with get()"
        )
    return given
