"""Every error this library raises.

LeafwardError
├── NotFound (LookupError)
│   ├── SessionNotFound
│   ├── MessageNotFound
│   └── BlockNotFound
├── Conflict                          another writer was first
│   ├── SessionExists
│   ├── StaleSession                  the session is at another version than a write expected
│   ├── StaleState                    another process saved this slot first
│   ├── LeaseLost                     another holder has the lease; nothing was written
│   └── LeaseBusy                     the lease was not free within `wait` seconds, or 1,000 texts wait for its holder
├── InvalidId (ValueError)            an id that is refused, with the reason
├── ConfigurationError (ValueError)   a store, URL or handle is set up wrongly
├── ContextError (ValueError)         a context block cannot be read or written this way
├── MessageTooLarge (ValueError)
├── ToolError                         a tool refuses a call; its text is for the model
├── CompactionFailed                  a history was not compacted, or not enough; the text says why
├── StateDecodeError                  a stored state does not have the expected form
├── BudgetExceeded                    a turn or a session has used up its tokens or its money
├── AgentShuttingDown                 an agent takes no calls any more; send the same input to another process
└── StoreError                        the backend failed; the driver's error is __cause__
    ├── StorageFull                   nothing was written; free space and repeat the call
    ├── OutcomeUnknown                may or may not be written; repeat the call with the same ids
    ├── DirectoryRemoved              the directory of an open store was removed; not public
    └── CorruptStore                  the stored data cannot be read
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal


class LeafwardError(Exception):
    """The base of every error this library raises on purpose.

    Errors can be pickled and copied: text, attributes and notes are kept, in subclasses too, whatever arguments
    their `__init__` takes. Traceback and cause are not kept, as with every Python exception.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with `args`, which is the finished sentence and not what `__init__` takes.
        return _without_init, (type(self), self.args), self.__dict__


class NotFound(LeafwardError, LookupError):
    """No object has the given id."""


class SessionNotFound(NotFound):
    """No session of this scope has that id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r} for this agent and user")


class MessageNotFound(NotFound):
    """No message of this session has that id."""

    def __init__(self, message_id: object) -> None:
        self.message_id = message_id
        hint = "" if isinstance(message_id, str) else ": an id is text, such as message.id"
        super().__init__(f"no message {message_id!r} in this session{hint}")


class BlockNotFound(NotFound):
    """No context block of this session has that label."""

    def __init__(self, label: str, known: Iterable[str] = ()) -> None:
        self.label = label
        names = ", ".join(repr(one) for one in known)
        super().__init__(f"no context block {label!r} in this session" + (f"; there are {names}" if names else ""))


class Conflict(LeafwardError):
    """Another writer was first: read again, then redo the change."""


class StaleSession(Conflict):
    """A session is not at the version that a write expected: nothing was written; read it again, then redo the write.

    `expected` is the version that was asked for, `found` the one that the session is at.
    """

    def __init__(self, session_id: str, *, expected: int, found: int) -> None:
        self.session_id = session_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"session {session_id!r} is at version {found}, expected {expected}: nothing was written; "
            "read it again and redo the write"
        )


class SessionExists(Conflict):
    """A session of this scope already has that id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} already exists for this agent and user: use another id")


class LeaseLost(Conflict):
    """Another holder has the session's lease: nothing was written; acquire it again, then read again."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"the lease of session {session_id!r} is no longer held: nothing was written; "
            "acquire it again and read the session before writing"
        )


class LeaseBusy(Conflict):
    """The session's lease was not free within the time given by `wait`, or its holder has too many texts waiting."""

    def __init__(self, session_id: str, *, texts: int | None = None) -> None:
        self.session_id = session_id
        reason = "was not free in time" if texts is None else f"has {texts:,} texts that its holder did not receive"
        longer = "wait longer, or try again later" if texts is None else "try again later"
        super().__init__(f"the lease of session {session_id!r} {reason}: {longer}")


class StaleState(Conflict):
    """Another writer saved this state since it was read: nothing was written; read it again, then redo the change."""

    def __init__(self, user_id: str | None, session_id: str, name: str, expected: int) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self.name = name
        self.expected = expected
        super().__init__(
            f"{_slot(user_id, session_id, name)} is no longer at version {expected}: nothing was written; "
            "read it again and redo the change"
        )


class InvalidId(LeafwardError, ValueError):
    """An id that is refused, with the reason."""

    def __init__(self, kind: str, value: object, reason: str) -> None:
        self.kind = kind
        self.value = value
        shown = repr(value)
        super().__init__(f"{kind} {shown if len(shown) <= 80 else shown[:77] + '…'} is refused: {reason}")


class ConfigurationError(LeafwardError, ValueError):
    """A store, URL or handle is set up wrongly; the text says what to change."""


class ContextError(LeafwardError, ValueError):
    """A context block cannot be read or written this way; the text says what to do."""


class MessageTooLarge(LeafwardError, ValueError):
    """A message, or a state that is attached to one, is larger than the store accepts.

    `message_id` is the id of the message, or the name of the state.
    """

    def __init__(self, message_id: str, *, size: int, limit: int, what: str = "message") -> None:
        self.message_id = message_id
        self.size = size
        self.limit = limit
        super().__init__(
            f"{what} {message_id!r} is {size:,} bytes of JSON, the store accepts {limit:,}: "
            "keep large data elsewhere and refer to it, or open the store with a larger max_message_bytes"
        )


class ToolError(LeafwardError):
    """A tool refuses a call. Raise it in a tool: the model gets its text, which says what to do."""


class CompactionFailed(LeafwardError):
    """A history was not compacted, or is still above its threshold; every message is stored unchanged.

    `tokens` and `threshold` are those of prompt and history together, `None` where no threshold is concerned.
    """

    def __init__(
        self, session_id: str | None, reason: str, *, tokens: int | None = None, threshold: int | None = None
    ) -> None:
        self.session_id = session_id
        self.reason = reason
        self.tokens = tokens
        self.threshold = threshold
        what = "the history" if session_id is None else f"session {session_id!r}"
        if tokens is None or threshold is None:
            super().__init__(f"{what} was not compacted: {reason}")
        else:
            super().__init__(f"{what} takes {tokens:,} tokens, its threshold is {threshold:,}: {reason}")


class BudgetExceeded(LeafwardError):
    """A turn, or a session, has used up what its agent's budget allows: the model was not asked again.

    What the turn stored stays. With a larger budget the same input goes on with it.
    """

    def __init__(
        self,
        session_id: str,
        *,
        kind: Literal["tokens", "cost"],
        per: Literal["turn", "session"],
        limit: float,
        used: float,
    ) -> None:
        self.session_id = session_id
        self.kind: Literal["tokens", "cost"] = kind
        self.per: Literal["turn", "session"] = per
        self.limit = limit
        self.used = used
        what = f"session {session_id!r}" if per == "session" else f"the turn of session {session_id!r}"
        amount = f"{used:,} of {limit:,} tokens" if kind == "tokens" else f"{used:.6g} of a cost of {limit:.6g}"
        super().__init__(
            f"{what} has used {amount}, so the model was not asked: give the agent a larger budget and send the same "
            "input again"
        )


class AgentShuttingDown(LeafwardError):
    """The agent takes no calls any more, or has paused this one; any process that shares the store can go on."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the agent {name!r} is shutting down: send the same input again, to it or to any process that shares "
            "its store"
        )


class StateDecodeError(LeafwardError):
    """A stored state does not have the expected form: the text says where, and nothing was changed.

    `user_id`, `session_id` and `name` are `None` for a state that was not read from a store.
    """

    def __init__(self, user_id: str | None, session_id: str | None, name: str | None, reason: str) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self.name = name
        self.reason = reason
        super().__init__(f"{_slot(user_id, session_id, name)} cannot be read: {reason}")


class StoreError(LeafwardError):
    """The store could not do what was asked; the text says what to do."""


class StorageFull(StoreError):
    """No space is left: nothing was written, earlier data is intact."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"no space left to write {where}: nothing was written; free space and repeat the call")


class OutcomeUnknown(StoreError):
    """The write may or may not have happened: repeat the call with the same ids, which stores it once."""

    def __init__(self, where: str, *, unanswered: bool = False) -> None:
        self.where = where
        happened = "was not answered" if unanswered else "failed while it was being made durable"
        then = "repeat" if unanswered else "close the store, open it again and repeat"
        super().__init__(f"writing {where} {happened}: it may or may not be stored; {then} the call with the same ids")


class DirectoryRemoved(StoreError):
    """The directory of an open store was removed."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} was removed while it was open: close the store and open it again")


class CorruptStore(StoreError):
    """The stored data cannot be read, and was not changed: restore a backup."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        super().__init__(f"{where} {reason}; it was not changed: use another path or restore a backup")


def _slot(user_id: str | None, session_id: str | None, name: str | None) -> str:
    """Name a state, with its session and user if it has them."""
    state = "the state" if name is None else f"the state {name!r}"
    if session_id is None:
        return state
    whose = "the anonymous user" if user_id is None else f"user {user_id!r}"
    return f"{state} of session {session_id!r} of {whose}"


def _without_init(kind: type[LeafwardError], args: tuple[object, ...]) -> LeafwardError:
    return kind.__new__(kind, *args)
