"""The door between plain calls and the async objects behind them."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from io import IOBase
from typing import Any, cast

from leafward.core.errors import StoreError
from leafward.portal.iterator import BlockingIterator
from leafward.portal.loop import LoopThread
from leafward.portal.mirror import Mirror, behind, is_handle, make_mirror, mirror_class, portal_of
from leafward.portal.store import BlockingStore
from leafward.stores.contracts import Store


class Portal:
    """One open store on a loop thread, and the mirrors of what is reached from it.

    A portal that nobody holds any more closes its store in the background and warns.
    """

    def __init__(self, thread: LoopThread, store: Store) -> None:
        self._thread = thread
        self._store = store
        self._mirrors: weakref.WeakValueDictionary[int, Mirror] = weakref.WeakValueDictionary()
        self._dropped = weakref.finalize(self, _abandon, thread, store)
        # At the end of the program there is nothing to do: every finished write is durable.
        self._dropped.atexit = False

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call in the loop what belongs to it, and return the outcome for this side of the door.

        Mirrors among the arguments, also in a list or dict, stand for what is behind them. An iterator is read here,
        where it may wait. A coroutine is awaited, an async iterator becomes a plain one, a handle becomes its mirror.
        """
        given = [self._given(one) for one in args]
        named = {name: self._given(one) for name, one in kwargs.items()}

        async def work() -> Any:
            result = function(*given, **named)
            return await result if inspect.isawaitable(result) else result

        return self.mirror(self._thread.run(work))

    def mirror(self, value: object) -> Any:
        """Return the mirror of a handle, always the same while it is held; any other value as it is."""
        kind = type(value)
        if isinstance(value, AsyncIterator):
            return BlockingIterator(self._thread, cast(AsyncIterator[Any], value), self.mirror)
        if not is_handle(kind):
            return value
        known = self._mirrors.get(id(value))
        if known is None:
            base = BlockingStore if _unfenced(value) is self._store else Mirror
            known = self._mirrors[id(value)] = make_mirror(mirror_class(kind, base), self, value)
        return known

    @property
    def is_open(self) -> bool:
        """Whether the store can be used in this process."""
        return not self._thread.closed and not self._thread.forked

    def close(self) -> None:
        """Close the store and end the thread."""
        self._thread.close(self._store.close)
        self._dropped.detach()

    def _given(self, value: Any) -> Any:
        if isinstance(value, Mirror):
            if portal_of(value) is not self:
                raise StoreError(f"{value!r} belongs to another blocking store than {self._thread.what}")
            return behind(value)
        if isinstance(value, Iterator) and not isinstance(value, IOBase):
            value = list(cast(Iterator[Any], value))
        if isinstance(value, list | tuple):
            items = cast(Sequence[Any], value)
            return [self._given(one) for one in items] if _has_mirror(items) else items
        if isinstance(value, dict):
            entries = cast(dict[Any, Any], value)
            return {key: self._given(one) for key, one in entries.items()} if _has_mirror(entries.values()) else entries
        return value


def _unfenced(value: object) -> object:
    """Return the store that one with a lease was made from; any other value unchanged."""
    return getattr(value, "unfenced", value)


def _has_mirror(values: Iterable[Any]) -> bool:
    return any(isinstance(one, Mirror) for one in values)


def _abandon(thread: LoopThread, store: Store) -> None:
    if not thread.forked:
        thread.begin_closing(store.close)
        warnings.warn(f"{thread.what} was not closed", ResourceWarning, stacklevel=1)
