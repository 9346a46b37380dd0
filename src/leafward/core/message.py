"""A message: who said it, when, and its parts, kept exactly as they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol, Self, cast

from leafward.core.errors import MessageTooLarge
from leafward.core.ids import check_id, new_id
from leafward.core.json import Plain, decode_body, encode
from leafward.core.message_shapes import check_shape, from_openai, is_openai
from leafward.core.parts import RESULT_STATES, Part
from leafward.core.times import from_micros, now_micros, parse_local, parse_micros, to_wire

MENDED_MARK = "leafward_surrogates_replaced"
"""The metadata key that says a lone surrogate in this message became U+FFFD."""

_ENVELOPE = frozenset({"id", "role", "createdAt"})
_ENVELOPE_SIZE = len('"id":"","role":"","createdAt":"2026-11-15T12:00:00.000000Z",')


class Dumpable(Protocol):
    """A foreign message object, such as a pydantic model."""

    def model_dump(self) -> dict[str, Any]: ...


class Message:
    """One message of a conversation, compared by value.

    `parts` is a list of JSON objects, each with a `"type"`; a plain string means one text part. Whatever else a
    provider puts into a message or a part is kept and comes back exactly.

    Raises:
        InvalidId: `id` is refused.
        ValueError: a part is not a JSON object with a type, a value is not JSON, or `created_at` has no time zone.
    """

    __slots__ = ("_at", "_body", "_id", "_is_id_made", "_is_lent", "_json", "_kept", "_kept_before", "_role")

    _id: str
    _role: str
    _at: int
    _body: dict[str, Any]
    _is_id_made: bool
    """Whether the id was made here because none was given; set on messages that were made, not on stored ones."""
    _is_lent: bool
    """Whether others have something of the body, and may change it. As long as they have not, it is what it was."""
    _json: bytes | None
    """The body as it was when it was checked; left out where there is `_kept`."""
    _kept: object | None
    """What was made of the body, which was checked and is not lent."""
    _kept_before: object | None
    """What was made of the body as it is in `_json`, if it is lent."""

    def __init__(
        self,
        role: str,
        parts: str | Sequence[Mapping[str, Any]],
        *,
        id: str | None = None,
        name: str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        clash = _ENVELOPE & extra.keys()
        if clash:
            raise ValueError(f"{sorted(clash)} cannot be extra keys: createdAt is given as created_at")
        at = now_micros() if created_at is None else parse_micros(created_at)
        self._fill(role, parts, id, at, {"name": name, "metadata": metadata, **extra})

    def _fill(self, role: object, parts: object, id: str | None, at: int, rest: Mapping[str, Any]) -> None:
        plain = Plain()
        if not isinstance(role, str) or not role.strip():
            raise ValueError(f"a message's role is a non-empty string, not {role!r}")
        body: dict[str, Any] = {"parts": _checked_parts(plain, parts)}
        for key, value in rest.items():
            if key in _ENVELOPE:
                raise ValueError(f"a message has no second {key!r}")
            if key not in ("name", "metadata"):
                body[plain.key(key)] = plain.copy(value)
            elif value is not None:
                body[key] = plain.copy(value)
        if not isinstance(body.get("name", ""), str):
            raise ValueError(f"a message's name is a string, not {body['name']!r}")
        if not isinstance(body.get("metadata", {}), dict):
            raise ValueError("a message's metadata is an object")
        self._role = plain.text(role)
        self._id = new_id() if id is None else check_id("message id", id)
        self._is_id_made = id is None
        self._at = at
        if plain.mended:
            body["metadata"] = {**body.get("metadata", {}), MENDED_MARK: True}
        self._body = body
        self._json = encode(body)
        self._is_lent = False
        self._kept = self._kept_before = None

    def sealed(self) -> tuple[Self, bytes]:
        """Return the message and its body as JSON; what was changed since it was made is checked again.

        Raises:
            ValueError: it was made unsound.
        """
        json = self._checked_json()
        if json is not None:
            return self, json
        rest = {key: value for key, value in self._body.items() if key != "parts"}
        fresh = type(self).__new__(type(self))
        fresh._fill(self._role, self._body.get("parts"), self._id, self._at, rest)
        fresh._is_id_made = has_made_id(self)
        assert fresh._json is not None
        return fresh, fresh._json

    def _checked_json(self) -> bytes | None:
        """Return the body as JSON if it was checked and is what it was then."""
        if not self._is_lent:
            return encode(self._body) if self._json is None and self._kept is not None else self._json
        json = self._encoded()
        return json if json is not None and json == self._json else None

    def _encoded(self) -> bytes | None:
        """Return the body as JSON, if it has become nothing that JSON cannot hold."""
        try:
            return encode(self._body)
        except (TypeError, ValueError, RecursionError):
            return None

    def _lend(self) -> None:
        """Take note that others get something of the body."""
        if self._kept is not None:
            # Before they have it: this is the last moment at which it is known to be what it was.
            self._json = encode(self._body)
            self._kept_before, self._kept = self._kept, None
        self._is_lent = True

    def _watch(self) -> None:
        if self._json is not None or self._kept is not None:
            return
        if not self._is_lent:
            self._json = encode(self._body)
            return
        # What is not sound is refused when it is stored.
        with suppress(ValueError):
            json = self.sealed()[1]
            self._json = json if json == self._encoded() else None

    def _changed(self) -> bytes | None:
        if not self._is_lent or self._json is None or self._encoded() == self._json:
            return None
        return self._json

    def _keep(self, made: object, checked: bytes) -> None:
        if (self._checked_json() or self._encoded()) != checked:
            return
        if self._is_lent:
            self._json = checked
            self._kept_before = made
            return
        self._json = None
        self._kept = made
        if self._is_lent:
            # Another thread was given something of it in between.
            self._kept = None

    def _kept_if_unchanged(self) -> object | None:
        if not self._is_lent:
            return self._kept
        is_unchanged = self._kept_before is not None and self._checked_json() is not None
        return self._kept_before if is_unchanged else None

    @classmethod
    def stored(cls, id: str, role: str, at: int, body: dict[str, Any]) -> Self:
        """Make a message of what a store gave back, without checking it again."""
        message = cls.__new__(cls)
        message._id = id
        message._role = role
        message._at = at
        message._body = body
        message._is_lent = False
        message._json = None
        message._kept = message._kept_before = None
        return message

    @property
    def id(self) -> str:
        return self._id

    @property
    def role(self) -> str:
        return self._role

    @property
    def parts(self) -> list[Part]:
        if not self._is_lent:
            self._lend()
        return self._body["parts"]

    @property
    def name(self) -> str | None:
        return self._body.get("name")

    @property
    def metadata(self) -> dict[str, Any] | None:
        if self._body.get("metadata") is not None:
            self._lend()
        return self._body.get("metadata")

    @property
    def created_at(self) -> datetime:
        return from_micros(self._at)

    @property
    def at(self) -> int:
        """`created_at` as microseconds since 1970."""
        return self._at

    @property
    def body(self) -> dict[str, Any]:
        """Everything but id, role and time, as it is stored."""
        if not self._is_lent:
            self._lend()
        return self._body

    @property
    def extra(self) -> dict[str, Any]:
        """The top-level keys that this library does not know."""
        if not self._body.keys() <= {"parts", "name", "metadata"}:
            self._lend()
        return {key: value for key, value in self._body.items() if key not in ("parts", "name", "metadata")}

    @property
    def text(self) -> str:
        """The text parts, joined with a newline; empty for a message that has none, such as a tool result."""
        parts: list[Part] = self._body["parts"]
        return "\n".join(part["text"] for part in parts if part["type"] == "text" and isinstance(part.get("text"), str))

    def to_dict(self) -> dict[str, Any]:
        """Return the wire shape: `id`, `role`, `parts`, `createdAt`, then what else there is.

        The dict is the caller's: changing it, or a part in it, does not change the message.
        """
        return {
            "id": self._id,
            "role": self._role,
            "parts": json_copy(self._body["parts"]),
            "createdAt": to_wire(self._at),
            **{key: json_copy(value) for key, value in self._body.items() if key != "parts"},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the wire shape, AI SDK's `UIMessage`, an AgentScope `Msg`, or an OpenAI chat message.

        Raises:
            InvalidId, ValueError: as the constructor; a dict of another shape is refused with the converter to use.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a message's dict is needed, not {type(data).__name__}")
        if is_openai(data):
            data = from_openai(data)
        check_shape(data)
        rest = {key: value for key, value in data.items() if key not in ("id", "role", "parts", "createdAt")}
        role, created = data.get("role"), data.get("createdAt")
        at = None if created is None else parse_micros(created)
        parts = data.get("parts")
        if parts is None and "content" in rest:
            parts = rest.pop("content")
            role = role.lower() if isinstance(role, str) and role.isupper() else role
            if isinstance(parts, list):
                parts = [block for block in cast(list[object], parts) if block is not None]
            if at is None and isinstance(rest.get("timestamp"), str):
                at = parse_local(rest["timestamp"])
            parts = [] if parts is None else parts
        message = cls.__new__(cls)
        message._fill(role, parts, data.get("id"), now_micros() if at is None else at, rest)
        return message

    @classmethod
    def user(cls, text: str | Sequence[Mapping[str, Any]], **fields: Any) -> Self:
        """Make what the user said; `fields` are those of the constructor."""
        return cls("user", text, **fields)

    @classmethod
    def assistant(cls, text: str | Sequence[Mapping[str, Any]], **fields: Any) -> Self:
        """Make what the model said; `fields` are those of the constructor."""
        return cls("assistant", text, **fields)

    @classmethod
    def system(cls, text: str | Sequence[Mapping[str, Any]], **fields: Any) -> Self:
        """Make an instruction to the model; `fields` are those of the constructor."""
        return cls("system", text, **fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self._id, self._role, self._at, self._body) == (
            other._id,
            other._role,
            other._at,
            other._body,
        )

    def __getstate__(self) -> object:
        # `copy.copy` shares the body. What was made of it is made again where it is needed.
        self._lend()
        others, slots = cast(tuple[object, dict[str, Any]], object.__getstate__(self))
        return others, {**slots, "_is_lent": True, "_kept_before": None}

    __hash__ = None  # pyright: ignore[reportAssignmentType]  (equal by value, and the parts can change)

    def __repr__(self) -> str:
        text = self.text
        return f"Message({self._role!r}, {text if len(text) <= 60 else text[:59] + '…'!r}, id={self._id!r})"

    @classmethod
    def tool_result(
        cls, call_id: str, output: object, name: str | None = None, *, state: str = "success", **fields: Any
    ) -> Self:
        """Answer a tool call, as AgentScope writes it: role `tool`, one `tool_result` part.

        A text is stored as it is, a list of text and media blocks as such, anything else as JSON text: dicts, lists,
        numbers, `None`, dataclasses, msgspec Structs, pydantic models.

        `state` is one of AgentScope's words: `success`, `error`, `denied` (the call was not allowed), `interrupted`,
        or `running` for an output that is not final.

        Raises:
            ValueError: JSON cannot hold the output, or `state` is another word.
        """
        if state not in RESULT_STATES:
            raise ValueError(f"a result's state is one of {', '.join(RESULT_STATES)}, not {state!r}")
        # Loaded when it is first needed, as is what reads the messages of others: importing leafward stays fast.
        from leafward.core.tool_output import output_blocks

        part = {"type": "tool_result", "id": call_id, "name": name, "output": output_blocks(output), "state": state}
        return cls("tool", [part], **fields)


class _Copy(Message):
    """A message that has the body of another until others get something of it."""

    __slots__ = ()

    def _lend(self) -> None:
        if not self._is_lent:
            self._body = json_copy(self._body)
        super()._lend()


def message_copy(message: Message) -> Message:
    """Return a message that can be changed without changing this one; its body is copied when it is first asked for."""
    return _Copy.stored(message.id, message.role, message.at, body_to_read(message))


def own_copy(message: Message) -> Message:
    """Return a message that shares nothing with this one: what is changed in one of them does not change the other.

    Raises:
        ValueError: it was made unsound.
    """
    checked, json = message.sealed()
    copy = Message.stored(message.id, message.role, message.at, json_copy(body_to_read(checked)))
    copy._json = json  # pyright: ignore[reportPrivateUsage]
    return copy


def watch_for_changes(messages: Iterable[Message]) -> None:
    """Have `changed_in_place` notice what is changed in place from now on."""
    for message in messages:
        message._watch()  # pyright: ignore[reportPrivateUsage]


def changed_in_place(messages: Iterable[Message]) -> list[Message]:
    """Return those of some messages that were changed since they were checked, or are watched."""
    # Only what others have something of can have changed.
    lent = [message for message in messages if message._is_lent]  # pyright: ignore[reportPrivateUsage]
    return [message for message in lent if message._changed() is not None]  # pyright: ignore[reportPrivateUsage]


def as_before(message: Message) -> Message:
    """Return a message that was changed in place as it was before."""
    before = message._changed()  # pyright: ignore[reportPrivateUsage]
    return message if before is None else Message.stored(message.id, message.role, message.at, decode_body(before))


def body_to_read(message: Message) -> dict[str, Any]:
    """Return what `message.body` does, to code that neither changes anything in it nor gives anything of it out."""
    return message._body  # pyright: ignore[reportPrivateUsage]


def has_made_id(message: Message) -> bool:
    """Tell whether a message got its id because its maker gave none: another one with the same words is the same."""
    return getattr(message, "_is_id_made", False)


def message_sharing(id: str, role: str, at: int, body: dict[str, Any]) -> Message:
    """Make a message as `Message.stored` does, of a body that others have something of."""
    message = Message.stored(id, role, at, body)
    message._lend()  # pyright: ignore[reportPrivateUsage]
    return message


def make_message(id: str, role: str, at: int, body: Mapping[str, Any]) -> Message:
    """Make a message of what was read elsewhere, checked as the constructor does; `at` is microseconds since 1970.

    Raises:
        InvalidId, ValueError: as the constructor.
        OverflowError: no datetime can hold the time.
    """
    from_micros(at)
    message = Message.__new__(Message)
    rest = {key: value for key, value in body.items() if key != "parts"}
    message._fill(role, body["parts"], id, at, rest)  # pyright: ignore[reportPrivateUsage]
    return message


def keep_with(message: Message, made: object, checked: bytes) -> None:
    """Keep with a message what was made of its body, which was `checked` as this JSON, until the body is changed.

    Nothing is kept with a message whose body is not sound as it is.
    """
    message._keep(made, checked)  # pyright: ignore[reportPrivateUsage]


def kept_with(message: Message) -> object | None:
    """Return what was last kept with a message, if its body is still what that was made of."""
    return message._kept_if_unchanged()  # pyright: ignore[reportPrivateUsage]


def ids_of(messages: Iterable[Message]) -> list[str]:
    """Return the ids of messages, in a third of the time that asking each for it takes."""
    return [message._id for message in messages]  # pyright: ignore[reportPrivateUsage]


def roles_of(messages: Iterable[Message]) -> list[str]:
    """Return the roles of messages, in a third of the time that asking each for it takes."""
    return [message._role for message in messages]  # pyright: ignore[reportPrivateUsage]


kept_of_unlent = attrgetter("_kept")
"""Returns the same in less time, and `None` for a message of which others have something."""


def wire_size(message_id: str, role: str, body_size: int) -> int:
    """Return the bytes of a message's wire shape, given those of its stored body."""
    return body_size + len(message_id.encode()) + len(role.encode()) + _ENVELOPE_SIZE


def check_size(message: Message, body: bytes, largest: int) -> None:
    """Raise `MessageTooLarge` when a store would not take a message."""
    size = wire_size(message.id, message.role, len(body))
    if size > largest:
        raise MessageTooLarge(message.id, size=size, limit=largest)


def as_message(value: Message | Mapping[str, Any] | Dumpable) -> Message:
    """Return a message, a dict that `Message.from_dict` reads, or an object with `model_dump()` as a message."""
    if isinstance(value, Message):
        return value
    if isinstance(value, Mapping):
        return Message.from_dict(value)
    if callable(getattr(value, "model_dump", None)):
        return Message.from_dict(_dumped(value))
    remedy = ': user("hello") makes a message of a text' if isinstance(value, str) else ""
    raise ValueError(
        f"a message, its dict, or an object with model_dump() is needed, not {type(value).__name__}{remedy}"
    )


def _dumped(value: Dumpable) -> dict[str, Any]:
    data = value.model_dump()
    if not is_openai(data):
        return data
    from leafward.core.json_fields import json_object

    try:
        # OpenAI's objects fill in every field they know; sent back to the API, only what it had set is accepted.
        return json_object(value, "the message")
    except ValueError:
        # Not pydantic's: it knows no such options.
        return data


def json_copy(value: Any) -> Any:
    """Return a value whose lists and dicts are copies."""
    if isinstance(value, dict):
        return {key: json_copy(item) for key, item in cast(dict[str, Any], value).items()}
    return [json_copy(item) for item in cast(list[Any], value)] if isinstance(value, list) else value


def _checked_parts(plain: Plain, parts: object) -> list[Part]:
    if isinstance(parts, str):
        return [{"type": "text", "text": plain.text(parts)}]
    if not isinstance(parts, Sequence) or isinstance(parts, (bytes, bytearray)):
        raise ValueError(f"parts are a list of JSON objects or a string, not {type(parts).__name__}")
    found: list[Part] = []
    for part in cast(Sequence[object], parts):
        if not isinstance(part, Mapping):
            raise ValueError(f"a part is a JSON object with a type, not {type(part).__name__}")
        copy = plain.copy(dict(cast(Mapping[Any, Any], part)))
        if not isinstance(copy.get("type"), str):
            raise ValueError(
                f"a part is a JSON object with a type, which {sorted(copy)!r} lacks: "
                "leafward.formats has a from_... function for each provider's messages"
            )
        found.append(copy)
    return found


user = Message.user
assistant = Message.assistant
system = Message.system
tool_result = Message.tool_result
