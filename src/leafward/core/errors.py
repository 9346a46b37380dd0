"""Every error this library raises.

LeafwardError
├── NotFound (LookupError)
│   ├── SessionNotFound
│   ├── MessageNotFound
│   └── BlockNotFound
├── Conflict                          another writer was first
│   ├── SessionExists
│   ├── StaleState                    another process saved this slot first
│   ├── LeaseLost                     another holder came; what it wrote is not overwritten
│   └── LeaseBusy                     it was not one's turn in the time one would wait
├── InvalidId (ValueError)            an id that could not be kept apart from others
├── ConfigurationError (ValueError)   a store, URL or handle that was set up wrongly
├── ContextError (ValueError)         a context block that cannot be read or written so
├── MessageTooLarge (ValueError)
├── CompactionFailed                  a history was not compacted, or not enough; the text says why
├── StateDecodeError                  a stored state is not what its format says
└── StoreError                        the backend failed; the driver's error is __cause__
    ├── StorageFull                   nothing was written; free space and repeat the call
    ├── OutcomeUnknown                written or not; repeating the call settles it
    ├── DirectoryRemoved              the directory of an open store is gone; not public
    └── CorruptStore                  what is stored cannot be read
"""

from __future__ import annotations

from collections.abc import Iterable


class LeafwardError(Exception):
    """The base of every error this library raises on purpose."""


class NotFound(LeafwardError, LookupError):
    """Something named by its id is not there."""


class SessionNotFound(NotFound):
    """No session of this scope has that id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r} for this agent and user")


class MessageNotFound(NotFound):
    """No message of this session has that id."""

    def __init__(self, message_id: object) -> None:
        self.message_id = message_id
        super().__init__(f"no message {message_id!r} in this session")


class BlockNotFound(NotFound):
    """No context block of this session has that label."""

    def __init__(self, label: str, known: Iterable[str] = ()) -> None:
        self.label = label
        names = ", ".join(repr(one) for one in known)
        super().__init__(f"no context block {label!r} in this session" + (f"; there are {names}" if names else ""))


class Conflict(LeafwardError):
    """Another writer was first: read again, then redo the change."""


class SessionExists(Conflict):
    """A session of this scope has that id already."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"there is a session {session_id!r} already for this agent and user: give another id")


class LeaseLost(Conflict):
    """The lease of a session went to another holder: nothing was written; acquire it again, then read again."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"the lease of session {session_id!r} is no longer held: nothing was written; "
            "acquire it again and read the session before writing"
        )


class LeaseBusy(Conflict):
    """Others hold a session's lease, or wait for it, for longer than one would wait."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"the lease of session {session_id!r} did not come free in time: wait longer, or try later")


class StaleState(Conflict):
    """A state was saved by someone else since it was read: nothing was written; read it again, then redo the change."""

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
    """A store, URL or handle was set up wrongly; the text says how to set it up."""


class ContextError(LeafwardError, ValueError):
    """A context block cannot be read or written so; the text says what to do."""


class MessageTooLarge(LeafwardError, ValueError):
    """A message is larger than the store takes."""

    def __init__(self, message_id: str, *, size: int, limit: int) -> None:
        self.message_id = message_id
        self.size = size
        self.limit = limit
        super().__init__(
            f"message {message_id!r} is {size:,} bytes of JSON, the store takes {limit:,}: "
            "keep large data elsewhere and refer to it, or open the store with a larger max_message_bytes"
        )


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


class StateDecodeError(LeafwardError):
    """A stored state is not what its format says; the text names the place, and nothing was changed.

    A state that was read by itself, outside a store, has no user, session or name.
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
    """There is no room left: nothing was written, what was stored before is intact."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"no space left to write {where}: nothing was written; free space and repeat the call")


class OutcomeUnknown(StoreError):
    """The write may or may not have happened: repeat it with the same ids, which settles it."""

    def __init__(self, where: str, *, unanswered: bool = False) -> None:
        self.where = where
        happened = "was not answered" if unanswered else "failed while it was being made durable"
        then = "repeat" if unanswered else "close the store, open it again and repeat"
        super().__init__(f"writing {where} {happened}: it may or may not be stored; {then} the call with the same ids")


class DirectoryRemoved(StoreError):
    """The directory of an open store is gone."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} was removed while it was open: close the store and open it again")


class CorruptStore(StoreError):
    """What is stored cannot be read: restore a backup; nothing was changed."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        super().__init__(f"{where} {reason}; it was left as it is: give another path or restore a backup")


def _slot(user_id: str | None, session_id: str | None, name: str | None) -> str:
    """Say which state is meant; one without a session stands by itself."""
    state = "the state" if name is None else f"the state {name!r}"
    if session_id is None:
        return state
    whose = "the anonymous user" if user_id is None else f"user {user_id!r}"
    return f"{state} of session {session_id!r} of {whose}"
