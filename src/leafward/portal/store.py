"""The sync mirror of a store, where a script begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, cast
from weakref import ref

from leafward.core.errors import ConfigurationError
from leafward.portal.mirror import Mirror, mirror_class
from leafward.portal.mirrored import MIRRORED, load
from leafward.stores.contracts import Store

if TYPE_CHECKING:
    from leafward.engine.agent import ReActAgent


class _Closes(Protocol):
    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


class BlockingStore(Mirror):
    """An open store for code that does not await: entered or not, until it is closed.

    It has what the async store has. `store.session("chat-1", user_id="alice")` makes a session on it; the classes are
    there too, as in `store.Session.create(store)`.
    """

    __slots__ = ()

    @property
    def store(self) -> Self:
        """This store."""
        return self

    def agent(self, agent: ReActAgent) -> ReActAgent:
        """Return an agent for code that does not await: `reply = agent.call("Hi")`, `for event in agent.stream("Hi")`.

        An agent that was made without a store keeps its conversations in this one; any other agent in its own, which
        it closes where it is entered, or by `close()`. The session that `load_if_exists` loads belongs to the calling
        thread.

        Raises:
            ConfigurationError: it is not an agent, or keeps its conversations in another blocking store that is open.
        """
        # The agent does not keep this store open.
        portal = ref(cast(_Closes, self._portal))

        def is_open() -> bool:
            found = portal()
            return found is not None and found.is_open

        return self._portal.call(_kept, (agent, self, is_open), {})

    def close(self) -> None:
        """Finish what was begun, close the store and end its thread; a second call does nothing."""
        cast(_Closes, self._portal).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _kept(agent: object, store: Store, is_open: Callable[[], bool]) -> ReActAgent:
    from leafward.engine.agent import ReActAgent, keep_in

    if not isinstance(agent, ReActAgent):
        raise ConfigurationError(f"an agent is a ReActAgent(…), not {agent!r}")
    keep_in(agent, store, is_open)
    return agent


def _maker(name: str, maker: str) -> Callable[..., Any]:
    def make(self: BlockingStore, *args: Any, **kwargs: Any) -> Any:
        return mirror_class(load(name))(self, *args, **kwargs)

    make.__name__ = maker
    make.__qualname__ = f"{BlockingStore.__name__}.{maker}"
    make.__doc__ = f"Make a {name} on this store; the arguments are those of `{name}` after its first."
    return make


def _class_of(name: str) -> property:
    return property(lambda _: mirror_class(load(name)), doc=f"The class of what mirrors a {name}.")


for _name, _kind in MIRRORED.items():
    if _kind.maker is not None:
        setattr(BlockingStore, _name, _class_of(_name))
        setattr(BlockingStore, _kind.maker, _maker(_name, _kind.maker))
