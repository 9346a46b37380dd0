"""What an agent knows of one session between two calls, as AgentScope for Java stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from leafward.core.agent_contexts import (
    PermissionContext,
    PlanModeContext,
    TasksContext,
    ToolContext,
    hex_id,
)
from leafward.core.agent_messages import read_messages
from leafward.core.agent_records import (
    Int32,
    Record,
    read_as,
    read_object,
    read_record,
    refuse,
    stored,
    write_record,
)
from leafward.core.agent_texts import KeepsTexts, StateText, write_texts
from leafward.core.errors import StateDecodeError
from leafward.core.java_limits import check_limits
from leafward.core.json import Plain, decode, decode_leniently, encode, encode_text
from leafward.core.message import Message


class InterruptControl:
    """Asks a running call to stop at its next safe point; it lives in this process and is never stored."""

    __slots__ = ("_interrupted",)

    def __init__(self) -> None:
        self._interrupted = False

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted

    def interrupt(self) -> None:
        self._interrupted = True

    def clear(self) -> None:
        self._interrupted = False


def _read_context(value: object, where: str) -> list[Message]:
    items = read_as(list[Any], value, where)
    placed = [(item, f"{where}[{index}]") for index, item in enumerate(items)]
    return read_messages(placed, on_usual=KeepsTexts())


@dataclass(slots=True, kw_only=True)
class AgentState(Record):
    """The state of one session, compared by what is stored of it.

    `extra` holds the top-level fields that this library does not know; they are written after the others.
    """

    session_id: str = field(default_factory=hex_id)
    user_id: str | None = None
    summary: str = ""
    context: list[Message] = field(default_factory=list[Message], metadata=stored(read=_read_context))
    reply_id: str = field(default_factory=hex_id)
    cur_iter: Int32 = 0
    shutdown_interrupted: bool = False
    permission_context: PermissionContext = field(default_factory=PermissionContext)
    tool_context: ToolContext = field(default_factory=ToolContext)
    tasks_context: TasksContext = field(default_factory=TasksContext)
    plan_mode_context: PlanModeContext = field(default_factory=PlanModeContext)
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    interrupt_control: InterruptControl = field(default_factory=InterruptControl, compare=False, repr=False)

    def to_json(self) -> str:
        """Return the state as AgentScope's JSON, every key written, without spaces: layout means nothing to a reader,
        and a state is stored at every step.

        Lone surrogates become U+FFFD.

        Raises:
            ValueError: the state holds what its format cannot; the text names the place.
        """
        return self._text().compact()

    def _text(self) -> StateText:
        rest = write_record(replace(self, context=[]))
        if not _is_exact(rest) or not _is_known(rest, self.extra):
            rest = _checked(rest, self.extra)
            _know(rest, self.extra)
        items = iter(rest.items())
        head = dict(takewhile(lambda item: item[0] != "context", items))
        # A key stands on both sides.
        return StateText(
            f'{encode_text(head)[:-1]},"context":[', write_texts(self.context), f"],{encode_text(dict(items))[1:]}"
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> AgentState:
        """Read a state that AgentScope for Java or `to_json` wrote; `{}` is a fresh one.

        Raises:
            StateDecodeError: the text is not such a document; the reason names the place.
        """
        given = read_object(_decoded(text), "")
        try:
            # Messages check themselves; of the remainder, what could not be written again is refused now.
            Plain("a state", any_integers=True).copy({key: value for key, value in given.items() if key != "context"})
        except ValueError as error:
            refuse("", f"holds what cannot be kept: {error}")
        return read_record(AgentState, given)


def text_of(state: AgentState) -> StateText:
    """Return what `to_json` does, for stores to join in the form in which they keep it.

    Raises:
        ValueError: as `to_json`.
    """
    return state._text()  # pyright: ignore[reportPrivateUsage]


def from_legacy(
    messages: Iterable[Message | Mapping[str, Any]],
    active_groups: Iterable[str] | None,
    *,
    session_id: str,
    user_id: str | None,
) -> AgentState:
    """Return the state that a 1.x session's `memory_messages` and `toolkit_activeGroups` amount to.

    `active_groups` is `None` where that key is missing; no group is active in either case, and who has groups of its
    own to start with sets them then, and only then.

    Raises:
        StateDecodeError: one of the messages is not a `Msg`.
    """
    items: list[tuple[object, str]] = [(item, f"memory_messages[{index}]") for index, item in enumerate(messages)]
    return AgentState(
        session_id=session_id,
        user_id=user_id,
        context=read_messages(items, roles=False),
        tool_context=ToolContext(activated_groups=list(active_groups or ())),
    )


_OF_A_SESSION = ("session_id", "user_id", "summary", "reply_id")
"""Texts that differ from session to session."""
_MOST_KNOWN = 256
_known: dict[bytes, None] = {}
"""What was found to be sound of states, apart from those texts and what `extra` holds, as JSON: mostly defaults."""


def _is_exact(rest: dict[str, Any]) -> bool:
    """Tell whether values are plain, so that they come back from JSON as they are."""
    try:
        return decode(encode(rest)) == rest
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _is_known(rest: dict[str, Any], extra: Mapping[str, Any]) -> bool:
    """Tell whether plain values are known to be sound, but for what is to be looked at each time.

    Raises:
        ValueError: Java could not read them.
    """
    texts = [rest[key] for key in _OF_A_SESSION]
    if not all(isinstance(text, str) for text in texts if text is not None) or None in (texts[0], texts[2], texts[3]):
        return False
    if _shared(rest, extra) not in _known:
        return False
    check_limits([[*texts, extra]], "a state")
    return True


def _know(rest: dict[str, Any], extra: Mapping[str, Any]) -> None:
    if len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[_shared(rest, extra)] = None


def _shared(rest: dict[str, Any], extra: Mapping[str, Any]) -> bytes:
    return encode({key: value for key, value in rest.items() if key not in _OF_A_SESSION and key not in extra})


def _checked(rest: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without its messages, as plain values.

    Raises:
        ValueError: it could not be read again, by us or by Java.
    """
    key_of = Plain("a state").key
    plain = {key_of(key): _plain(value, f"extra[{key!r}]" if key in extra else key) for key, value in rest.items()}
    try:
        read_back = write_record(read_record(AgentState, plain))
    except StateDecodeError as error:
        raise ValueError(f"this state cannot be written: {error.reason}") from error
    if read_back != plain:
        raise ValueError(f"this state cannot be written: {_difference(plain, read_back)} is not as its type says")
    check_limits(plain, "a state")
    return plain


def _plain(value: object, where: str) -> Any:
    return Plain(where, any_integers=True).copy(value, 1)


def _difference(written: dict[str, Any], read: dict[str, Any]) -> str:
    return next(key for key in written if written[key] != read.get(key))


def _decoded(text: str | bytes) -> object:
    try:
        return decode_leniently(text)
    except ValueError as error:
        refuse("", str(error))
