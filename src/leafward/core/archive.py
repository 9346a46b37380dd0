"""A whole session as one value, and as JSON that any store can take in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta, Struct
from msgspec import field as named

from leafward.core.attached_state import TURN
from leafward.core.ids import RESERVED_PREFIX, check_id
from leafward.core.info import SessionInfo
from leafward.core.json import Plain
from leafward.core.message import Message
from leafward.core.times import from_micros, parse_micros, to_micros, to_wire
from leafward.core.untrusted import read

T = TypeVar("T")

_LARGEST = 2**53 - 1
"""Beyond this, JSON of other languages does not hold every whole number, and sums could leave 64 bits."""
_Whole = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Cost = Annotated[float, Meta(ge=0, le=_LARGEST)]

FORMAT = "leafward.session"
VERSION = 2
READABLE = (1, VERSION)
"""Version 1 had no states and no usage by name."""


class ArchivedMessage(NamedTuple):
    """A message, the one above it, and the tokens it was stored with."""

    message: Message
    parent_id: str | None
    tokens: int


class ArchivedOverlay(NamedTuple):
    """A summary and the messages between which it stands."""

    id: str
    summary: str
    from_id: str
    to_id: str
    tokens: int
    at: int


class ArchivedEntry(NamedTuple):
    """A text of the session's own context."""

    label: str
    key: str
    content: str
    description: str | None
    searchable: bool


class Notice(NamedTuple):
    """A tool's result that the history shows as a notice."""

    message_id: str
    call_id: str
    notice: str


class ArchivedState(NamedTuple):
    """A state and the message it is attached to; `None` is the root, and a value of `None` removes it from there on."""

    message_id: str | None
    name: str
    value: dict[str, Any] | None


class ArchivedUsage(NamedTuple):
    """Usage that was counted under a name; it is part of what the session has used in all."""

    usage_id: str
    model: str | None
    input_tokens: int
    output_tokens: int
    cost: float
    at: int


class ArchivedPrompt(NamedTuple):
    """The frozen prompt."""

    text: str
    tokens: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Archive:
    """Everything a session consists of; parents stand before their children, siblings in the order they were stored."""

    info: SessionInfo
    messages: list[ArchivedMessage] = field(default_factory=list[ArchivedMessage])
    leaf_id: str | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])
    overlays: list[ArchivedOverlay] = field(default_factory=list[ArchivedOverlay])
    entries: list[ArchivedEntry] = field(default_factory=list[ArchivedEntry])
    skills: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notices: list[Notice] = field(default_factory=list[Notice])
    prompt: ArchivedPrompt | None = None
    states: list[ArchivedState] = field(default_factory=list[ArchivedState])
    usages: list[ArchivedUsage] = field(default_factory=list[ArchivedUsage])

    def to_json(self) -> dict[str, Any]:
        """Return the archive as plain JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "session": _info_json(self.info),
            "messages": [
                {"message": one.message.to_dict(), "parent": one.parent_id, "tokens": one.tokens}
                for one in self.messages
            ],
            "leaf": self.leaf_id,
            "labels": self.labels,
            "compactions": [
                {
                    "id": one.id,
                    "summary": one.summary,
                    "from": one.from_id,
                    "to": one.to_id,
                    "tokens": one.tokens,
                    "createdAt": to_wire(one.at),
                }
                for one in self.overlays
            ],
            "context": [one._asdict() for one in self.entries],
            "skills": [list(one) for one in self.skills],
            "notices": [one._asdict() for one in self.notices],
            "prompt": None if self.prompt is None else self.prompt._asdict(),
            "states": [{"message": one.message_id, "name": one.name, "value": one.value} for one in self.states],
            "usages": [
                {
                    "id": one.usage_id,
                    "model": one.model,
                    "inputTokens": one.input_tokens,
                    "outputTokens": one.output_tokens,
                    "cost": one.cost,
                    "createdAt": to_wire(one.at),
                }
                for one in self.usages
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Archive:
        """Read what `to_json` made.

        Raises:
            ValueError: it is something else, or its parts do not fit together.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("this is not an exported session: give the dict, which json.loads() makes of its text")
        if data.get("format") != FORMAT:
            raise ValueError(f"this is not an exported session: its format is not {FORMAT!r}")
        if data.get("version") not in READABLE:
            raise ValueError(
                f"this session was exported in version {data.get('version')!r} of the format, not {VERSION} or before"
            )
        try:
            archive = _read(data)
            _check(archive)
        except ValueError as error:
            raise ValueError(f"this exported session is damaged: {error}") from error
        return archive


def _info_json(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "name": info.name,
        "parentSessionId": info.parent_session_id,
        "model": info.model,
        "source": info.source,
        "inputTokens": info.input_tokens,
        "outputTokens": info.output_tokens,
        "estimatedCost": info.estimated_cost,
        "endReason": info.end_reason,
        "createdAt": to_wire(to_micros(info.created_at)),
        "updatedAt": to_wire(to_micros(info.updated_at)),
    }


# ── reading ──────────────────────────────────────────────────────────────────


class _Session(Struct, rename="camel"):
    id: str
    name: str
    parent_session_id: str | None
    model: str | None
    source: str | None
    input_tokens: _Whole
    output_tokens: _Whole
    estimated_cost: _Cost
    end_reason: str | None
    created_at: str
    updated_at: str


class _Message(Struct):
    message: Message
    parent: str | None
    tokens: _Whole


class _Overlay(Struct, rename="camel"):
    id: str
    summary: str
    from_id: str = named(name="from")
    to_id: str = named(name="to")
    tokens: _Whole
    created_at: str


class _Entry(Struct):
    label: str
    key: str
    content: str
    description: str | None
    searchable: bool


class _Notice(Struct):
    message_id: str
    call_id: str
    notice: str


class _Prompt(Struct):
    text: str
    tokens: _Whole
    fingerprint: str


class _State(Struct):
    message: str | None
    name: str
    value: dict[str, Any] | None


class _Usage(Struct, rename="camel"):
    id: str
    model: str | None
    input_tokens: _Whole
    output_tokens: _Whole
    cost: _Cost
    created_at: str


class _Document(Struct):
    session: _Session
    messages: list[_Message]
    leaf: str | None
    labels: dict[str, Annotated[str, Meta(min_length=1)]]
    compactions: list[_Overlay]
    context: list[_Entry]
    skills: list[tuple[str, str]]
    notices: list[_Notice]
    prompt: _Prompt | None
    states: list[_State] = []
    usages: list[_Usage] = []


def _read(data: Mapping[str, Any]) -> Archive:
    found = read(data, _Document, hook=_make)
    prompt = found.prompt
    return Archive(
        _read_info(found.session),
        [ArchivedMessage(one.message, _optional(one.parent), one.tokens) for one in found.messages],
        _optional(found.leaf),
        {_text(message_id): _text(name) for message_id, name in found.labels.items()},
        [_read_overlay(one, f"compactions[{index}]") for index, one in enumerate(found.compactions)],
        [
            ArchivedEntry(
                _text(one.label), _text(one.key), _text(one.content), _optional(one.description), one.searchable
            )
            for one in found.context
        ],
        [(_text(label), _text(key)) for label, key in found.skills],
        [Notice(_text(one.message_id), _text(one.call_id), _text(one.notice)) for one in found.notices],
        None if prompt is None else ArchivedPrompt(_text(prompt.text), prompt.tokens, _text(prompt.fingerprint)),
        [_read_state(one, f"states[{index}]") for index, one in enumerate(found.states)],
        [_read_usage(one, f"usages[{index}]") for index, one in enumerate(found.usages)],
    )


def _read_state(one: _State, where: str) -> ArchivedState:
    name = _checked(_state_name, one.name, f"{where}.name")
    value = None if one.value is None else Plain(f"{where}.value").copy(one.value)
    return ArchivedState(_optional(one.message), name, value)


def _read_usage(one: _Usage, where: str) -> ArchivedUsage:
    return ArchivedUsage(
        _checked(_id, one.id, f"{where}.id"),
        _optional(one.model),
        one.input_tokens,
        one.output_tokens,
        one.cost,
        _checked(parse_micros, one.created_at, f"{where}.createdAt"),
    )


def _make(_: type[Message], value: Any) -> Message:
    return Message.from_dict(value)


def _text(text: str) -> str:
    """Return a text that any store can keep."""
    return Plain().text(text)


def _optional(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _read_info(session: _Session) -> SessionInfo:
    return SessionInfo(
        _checked(_id, session.id, "session.id"),
        _checked(_written, session.name, "session.name"),
        None
        if session.parent_session_id is None
        else _checked(_id, session.parent_session_id, "session.parentSessionId"),
        _optional(session.model),
        _optional(session.source),
        session.input_tokens,
        session.output_tokens,
        session.estimated_cost,
        _optional(session.end_reason),
        from_micros(_checked(parse_micros, session.created_at, "session.createdAt")),
        from_micros(_checked(parse_micros, session.updated_at, "session.updatedAt")),
    )


def _read_overlay(one: _Overlay, where: str) -> ArchivedOverlay:
    return ArchivedOverlay(
        _checked(_id, one.id, f"{where}.id"),
        _checked(_written, one.summary, f"{where}.summary"),
        _text(one.from_id),
        _text(one.to_id),
        one.tokens,
        _checked(parse_micros, one.created_at, f"{where}.createdAt"),
    )


def _checked(check: Callable[[str], T], value: str, where: str) -> T:
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{where} is refused: {error}") from error


def _id(value: str) -> str:
    return check_id("id", value)


def _state_name(name: str) -> str:
    if name == TURN:
        raise ValueError("a copy of a session has no open turn")
    return _id(name)


def _written(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is blank")
    return _text(text)


def _check(archive: Archive) -> None:
    known: set[str] = set()
    for message, parent_id, _ in archive.messages:
        if message.id.startswith(RESERVED_PREFIX) or message.id in known:
            raise ValueError(f"the message id {message.id!r} occurs twice or belongs to a summary")
        if parent_id is not None and parent_id not in known:
            raise ValueError(f"message {message.id!r} stands before its parent {parent_id!r}, or without it")
        known.add(message.id)
    ends = [end for one in archive.overlays for end in (one.from_id, one.to_id)]
    named = [*archive.labels, *ends, *(one.message_id for one in archive.notices)]
    named += [one.message_id for one in archive.states if one.message_id is not None]
    if archive.leaf_id is not None:
        named.append(archive.leaf_id)
    for message_id in named:
        if message_id not in known:
            raise ValueError(f"the message {message_id!r} is referred to and not there")
    _check_unique("the id of a summary", (one.id for one in archive.overlays))
    _check_unique("an entry of the context", ((one.label, one.key) for one in archive.entries))
    _check_unique("a loaded skill", archive.skills)
    _check_unique("the call of a notice", ((one.message_id, one.call_id) for one in archive.notices))
    _check_unique("a state of a message", ((one.message_id, one.name) for one in archive.states))
    _check_unique("the id of a usage", (one.usage_id for one in archive.usages))


def _check_unique(what: str, values: Iterable[object]) -> None:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{what} occurs twice: {value!r}")
