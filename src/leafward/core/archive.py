"""A whole session as one value, and as JSON that any store can take in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leafward.core.ids import RESERVED_PREFIX
from leafward.core.info import SessionInfo
from leafward.core.message import Message
from leafward.core.times import from_micros, to_micros, to_wire
from leafward.core.unarchiving import Field

FORMAT = "leafward.session"
VERSION = 1


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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Archive:
        """Read what `to_json` made.

        Raises:
            ValueError: it is something else, or its parts do not fit together.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"this is not an exported session: its format is not {FORMAT!r}")
        if data.get("version") != VERSION:
            raise ValueError(
                f"this session was exported in version {data.get('version')!r} of the format, not {VERSION}"
            )
        try:
            archive = _read(Field(data))
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


def _read(data: Field) -> Archive:
    return Archive(
        _read_info(data["session"]),
        [
            ArchivedMessage(one["message"].message(), one["parent"].optional(Field.text), one["tokens"].whole())
            for one in data["messages"].items()
        ],
        data["leaf"].optional(Field.text),
        data["labels"].names(),
        [_read_overlay(one) for one in data["compactions"].items()],
        [_read_entry(one) for one in data["context"].items()],
        [_read_skill(one) for one in data["skills"].items()],
        [
            Notice(one["message_id"].text(), one["call_id"].text(), one["notice"].text())
            for one in data["notices"].items()
        ],
        data["prompt"].optional(_read_prompt),
    )


def _read_info(session: Field) -> SessionInfo:
    return SessionInfo(
        session["id"].id(),
        session["name"].written(),
        session["parentSessionId"].optional(Field.id),
        session["model"].optional(Field.text),
        session["source"].optional(Field.text),
        session["inputTokens"].whole(),
        session["outputTokens"].whole(),
        session["estimatedCost"].cost(),
        session["endReason"].optional(Field.text),
        from_micros(session["createdAt"].moment()),
        from_micros(session["updatedAt"].moment()),
    )


def _read_overlay(one: Field) -> ArchivedOverlay:
    return ArchivedOverlay(
        one["id"].id(),
        one["summary"].written(),
        one["from"].text(),
        one["to"].text(),
        one["tokens"].whole(),
        one["createdAt"].moment(),
    )


def _read_entry(one: Field) -> ArchivedEntry:
    return ArchivedEntry(
        one["label"].text(),
        one["key"].text(),
        one["content"].text(),
        one["description"].optional(Field.text),
        one["searchable"].flag(),
    )


def _read_skill(one: Field) -> tuple[str, str]:
    pair = [item.text() for item in one.items()]
    if len(pair) != 2:
        raise ValueError(f"a skill is a label and a key, not {pair!r}")
    return pair[0], pair[1]


def _read_prompt(prompt: Field) -> ArchivedPrompt:
    return ArchivedPrompt(prompt["text"].text(), prompt["tokens"].whole(), prompt["fingerprint"].text())


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
    if archive.leaf_id is not None:
        named.append(archive.leaf_id)
    for message_id in named:
        if message_id not in known:
            raise ValueError(f"the message {message_id!r} is referred to and not there")
    _check_unique("the id of a summary", (one.id for one in archive.overlays))
    _check_unique("an entry of the context", ((one.label, one.key) for one in archive.entries))
    _check_unique("a loaded skill", archive.skills)
    _check_unique("the call of a notice", ((one.message_id, one.call_id) for one in archive.notices))


def _check_unique(what: str, values: Iterable[object]) -> None:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{what} occurs twice: {value!r}")
