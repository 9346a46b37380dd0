"""What belongs to one call of an agent: whose it is, and what the caller hands to tools, hooks and middleware."""

from __future__ import annotations

from copy import copy
from hashlib import sha256
from typing import Any, Protocol, Self, TypeVar, overload

from leafward.core.errors import ConfigurationError
from leafward.core.ids import check_id
from leafward.core.session_key import AnyKey, key_of

T = TypeVar("T")

_LONGEST_PARENT = 200
"""How much of its parent's id the id of a child begins with."""


class KnowsStates(Protocol):
    """What is needed of an agent to find the state of a session."""

    async def get_agent_state(
        self, user_id: str | None = None, session_id: str | None = None, *, session: Any = None
    ) -> Any: ...


class RuntimeContext:
    """The user, the session and the attributes of one call. It is never stored.

    Attributes are named by a string, or found by their type: `ctx.put(Database, database)`, then `ctx.get(Database)`.
    A tool gets the context through a parameter that is annotated with this class.

    Raises:
        InvalidId: an id is refused.
        ConfigurationError: an attribute has a name that the context itself uses.
    """

    __slots__ = (
        "__weakref__",
        "_agent_state",
        "_attributes",
        "_child_name",
        "_fencing_token",
        "_idempotency_key",
        "_parent_session_id",
        "_session",
        "_session_id",
        "_session_key",
        "_typed",
        "_user_id",
    )

    def __init__(
        self,
        user_id: str | None = None,
        session_id: str | None = None,
        *,
        session: Any = None,
        session_key: AnyKey | None = None,
        **attributes: Any,
    ) -> None:
        if user_id is not None:
            check_id("user id", user_id)
        if session_id is not None:
            check_id("session id", session_id)
        if session_key is not None:
            key_of(session_key)
        for name in attributes:
            _check_name(name)
        self._user_id = user_id
        self._session_id = session_id
        self._session = session
        self._session_key = session_key
        self._attributes: dict[str, Any] = {name: value for name, value in attributes.items() if value is not None}
        self._typed: dict[tuple[str | None, type], Any] = {}
        self._agent_state: Any = None
        self._idempotency_key: str | None = None
        self._fencing_token: int | None = None
        self._parent_session_id: str | None = None
        self._child_name = ""

    @classmethod
    def empty(cls) -> Self:
        """Return a context of its own for a call without user, session and attributes."""
        return cls()

    @staticmethod
    async def resolve_agent_state(ctx: RuntimeContext | None, agent: KnowsStates) -> Any:
        """Return the state of the call that `ctx` belongs to; outside a call, what a call with it would find stored."""
        if ctx is None:
            return await agent.get_agent_state()
        if ctx.agent_state is not None:
            return ctx.agent_state
        user_id, session_id = ctx.user_id, ctx.session_id
        if ctx.session_key is not None:
            user_id, session_id = (key := key_of(ctx.session_key)).user_id, key.session_id
        return await agent.get_agent_state(user_id, session_id, session=ctx.session)

    @property
    def user_id(self) -> str | None:
        """Whose call it is; `None` is the anonymous user."""
        return self._user_id

    @property
    def session_id(self) -> str | None:
        """The session; `None` outside a call means the agent's default session."""
        return self._session_id

    @property
    def session(self) -> Any:
        """The state store of this call, in place of the agent's."""
        return self._session

    @property
    def session_key(self) -> AnyKey | None:
        """The key of the state in that store, in place of user and session."""
        return self._session_key

    @property
    def agent_state(self) -> Any:
        """The state of the running call, which is stored with it; `None` outside a call."""
        return self._agent_state

    @property
    def idempotency_key(self) -> str | None:
        """In a tool: a key of this tool call, the same when the call runs again after a crash."""
        return self._idempotency_key

    @property
    def fencing_token(self) -> int | None:
        """In a tool: the fencing token of the turn, for systems that refuse a holder that was followed by another."""
        return self._fencing_token

    @property
    def parent_session_id(self) -> str | None:
        """The session whose tool has made this context by `child`; `None` for any other context."""
        return self._parent_session_id

    def child(self, name: str) -> Self:
        """In a tool: return a context for a sub-agent, with a session of its own that is a child of this one.

        The session is made of this tool call and the name: it is the same one when the call runs again after a crash,
        and another for each further call. User, attributes and the store of states are those of this context. An agent
        that is called with it is interrupted with the turn that this tool belongs to.

        Raises:
            ConfigurationError: this is not a tool of an agent.
            InvalidId: the name is refused.
        """
        check_id("child name", name)
        if self._idempotency_key is None or self._session_id is None:
            raise ConfigurationError(
                "child() belongs to a tool call: use the RuntimeContext that an agent's tool is given"
            )
        made = copy(self)
        made._session_id = f"{self._session_id[:_LONGEST_PARENT]}~{_digest(self._idempotency_key, name)}"
        made._parent_session_id = self._session_id
        made._child_name = name
        made._session_key = made._agent_state = made._idempotency_key = made._fencing_token = None
        return made

    @property
    def extra(self) -> dict[str, Any]:
        """The attributes that are named by a string; changes of this dict are changes of the context."""
        return self._attributes

    @overload
    def get(self, key: type[T]) -> T | None: ...
    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, kind: type[T]) -> T | None: ...
    def get(self, key: str | type[Any], kind: type[Any] | None = None) -> Any:
        """Return an attribute by its name, by its type, or by both; `None` where there is none.

        For a type without a value, the value of its most specific subtype is found. A value that was put under its
        name alone is found by name and type if it is of that type.
        """
        if not isinstance(key, str):
            return self if issubclass(key, RuntimeContext) and isinstance(self, key) else self._find(None, key)
        if kind is None:
            return self._attributes.get(key)
        found = self._find(key, kind)
        if found is None:
            found = self._attributes.get(key)
        return found if isinstance(found, kind) else None

    def put(self, key: str | type[Any], value: Any, kind: type[Any] | None = None) -> Self:
        """Set an attribute by its name, by its type, or by both, and return this context; `None` removes it.

        Raises:
            ConfigurationError: the context itself uses the name.
        """
        if isinstance(key, str):
            _check_name(key)
        if isinstance(key, str) and kind is None:
            _set(self._attributes, key, value)
        elif isinstance(key, str):
            _set(self._typed, (key, kind), value)
        else:
            _set(self._typed, (None, key), value)
        return self

    def __repr__(self) -> str:
        # Attributes may hold secrets, and a context ends up in logs.
        return f"RuntimeContext(user_id={self._user_id!r}, session_id={self._session_id!r})"

    def _find(self, name: str | None, kind: type[Any]) -> Any:
        if (name, kind) in self._typed:
            return self._typed[name, kind]
        below = [one for known, one in self._typed if known == name and issubclass(one, kind)]
        return self._typed[name, max(below, key=lambda one: len(one.__mro__))] if below else None

    # A copy shares the attributes: what a tool puts there, the next one and the caller find.

    def _for_call(self, user_id: str | None, session_id: str, agent_state: Any) -> Self:
        made = copy(self)
        made._user_id = user_id
        made._session_id = session_id
        made._agent_state = agent_state
        return made

    def _for_tool(self, idempotency_key: str, fencing_token: int | None) -> Self:
        made = copy(self)
        made._idempotency_key = idempotency_key
        made._fencing_token = fencing_token
        return made


def for_call(ctx: RuntimeContext, *, user_id: str | None, session_id: str, agent_state: Any) -> RuntimeContext:
    """Return the context as a call of an agent sees it: with its session and state, and the attributes of `ctx`."""
    return ctx._for_call(user_id, session_id, agent_state)  # pyright: ignore[reportPrivateUsage]


def for_tool(ctx: RuntimeContext, *, idempotency_key: str, fencing_token: int | None = None) -> RuntimeContext:
    """Return the context as one tool call sees it: with the key of that call and the fencing token of the turn."""
    return ctx._for_tool(idempotency_key, fencing_token)  # pyright: ignore[reportPrivateUsage]


def child_name(ctx: RuntimeContext) -> str:
    """Return the name that `child` was given; empty for a context that it did not make."""
    return ctx._child_name  # pyright: ignore[reportPrivateUsage]


RESERVED = frozenset(name for name in dir(RuntimeContext) if not name.startswith("_"))
"""The names that no attribute may have: those of the context itself."""


def _check_name(name: str) -> None:
    if name in RESERVED or name.startswith("__"):
        raise ConfigurationError(f"no attribute can be named {name!r}: a RuntimeContext uses the name; choose another")


def _digest(call_key: str, name: str) -> str:
    # Neither is empty, and a key holds no line break.
    return sha256(f"{call_key}\n{name}".encode()).hexdigest()[:16]


def _set(values: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
