"""Values of a user's own types, as JSON texts and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from leafward.core.agent_message_writer import write_message
from leafward.core.agent_messages import read_messages
from leafward.core.agent_records import Record, read_object, read_record
from leafward.core.agent_state import AgentState, text_of
from leafward.core.agent_texts import StateText, write_texts
from leafward.core.errors import StateDecodeError
from leafward.core.java_checks import AGENT_STATE, MESSAGE_LISTS, check_agent_state, check_messages
from leafward.core.java_limits import DEEPEST, SHORTEST, check_limits
from leafward.core.json import Plain, decode, decode_leniently, encode
from leafward.core.message import Message
from leafward.core.pretty import spelled, with_escapes
from leafward.core.untrusted import read

T = TypeVar("T")

Written = str | list[str]
"""A state as JSON: the text of a value, or the texts of a list's items."""
LONG = 100_000
"""The length of an agent's state that takes a few milliseconds to read; a thousand messages are longer."""


@runtime_checkable
class _Model(Protocol):
    """A model of pydantic's, or one that does as those do."""

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> dict[str, Any]: ...

    def model_dump_json(self, *, by_alias: bool, round_trip: bool) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Any: ...


def write_state(state: object, name: str = "", *, of_1x: bool = False) -> Written:
    """Return a list or tuple as `write_items` does, and anything else as `write_value` does."""
    if isinstance(state, (list, tuple)):
        return write_items(cast(Sequence[object], state), name, of_1x=of_1x)
    return write_value(state, name, of_1x=of_1x)


def write_for_store(state: object, name: str = "", *, of_1x: bool = False) -> Written | StateText:
    """Return the same, but an agent's state in parts that a store joins in the form in which it keeps them."""
    return text_of(state) if isinstance(state, AgentState) else write_state(state, name, of_1x=of_1x)


def write_value(value: object, name: str = "", *, of_1x: bool = False) -> str:
    """Return a dict, dataclass, msgspec Struct, pydantic model, `Message` or `AgentState` as compact JSON.

    Lone surrogates become U+FFFD. With `of_1x`, a message holds only what AgentScope 1.x reads. A value whose name says
    that it is an agent's state is checked as one.

    Raises:
        ValueError: it is something else, or holds what JSON or Java's reader cannot.
    """
    if isinstance(value, AgentState):
        return text_of(value).spelled()
    text = _write_value(value, of_1x)
    return check_agent_state(text) if name == AGENT_STATE and not of_1x else text


def _write_value(value: object, of_1x: bool) -> str:
    try:
        plain = write_message(value, of_1x=of_1x) if isinstance(value, Message) else _plain(value)
        return _exactly(plain) or spelled(encode(_copied(plain)))
    except TypeError as error:
        raise ValueError(f"a state cannot be written as JSON: {error}") from error


def _copied(value: object) -> object:
    plain = Plain("a state", any_integers=True).copy(value)
    check_limits(plain, "a state")
    return plain


def _exactly(value: object) -> str | None:
    """Return the JSON of a value that comes back from it as it is, as nearly all do, in a tenth of the time."""
    try:
        text = encode(value)
        if decode(text) != value:
            return None
    except RecursionError:
        raise ValueError(f"a state nests values too deeply: some {DEEPEST - 100} levels can be stored") from None
    except (TypeError, ValueError, OverflowError):
        return None
    if len(text) > SHORTEST:
        check_limits(value, "a state")
    return spelled(text)


def write_items(values: Iterable[object], name: str = "", *, of_1x: bool = False) -> list[str]:
    """Return the items of a list, each as `write_value` does; messages are written as AgentScope's `Msg`.

    In a list whose name says that it holds messages, so are the dicts that `Message.to_dict` returns; all others must
    be a `Msg`, and are changed only where Java could not read them.

    Raises:
        ValueError: an item cannot be written, or is not a message where it should be one; the text names the item.
    """
    items = list(values)
    if name in MESSAGE_LISTS:
        items = [_message(item) for item in items]
    if items and all(isinstance(item, Message) for item in items):
        written = write_texts(cast(list[Message], items), of_1x=of_1x)
        return [text for one in written for text in one.each()]
    texts = _each_exactly(items) or [write_value(item, of_1x=of_1x) for item in items]
    return check_messages(texts, of_1x=of_1x) if name in MESSAGE_LISTS else texts


def _message(item: object) -> object:
    """Return a dict that is the wire shape of a message as that message: a `Msg` has no parts."""
    if isinstance(item, dict) and "parts" not in item:
        return cast(object, item)
    given: Mapping[str, Any] = cast(Mapping[str, Any], item) if isinstance(item, Mapping) else {}
    try:
        if isinstance(given.get("role"), str) and isinstance(given.get("parts"), list) and "content" not in given:
            return Message.from_dict(given)
    except ValueError:
        # It is stored as the dict it is.
        pass
    return cast(object, item)


def _each_exactly(items: list[object]) -> list[str] | None:
    """Return what `_exactly` does of each, if all are plain."""
    if not all(isinstance(item, dict) for item in items):
        return None
    try:
        texts = [encode(item) for item in items]
        joined = b"[%b]" % b",".join(texts)
        if decode(joined) != items:
            return None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if len(joined) > SHORTEST:
        for text, item in zip(texts, items, strict=True):
            if len(text) > SHORTEST:
                check_limits(item, "a state")
    written = list(map(bytes.decode, texts))
    return list(map(with_escapes, written)) if b"\\" in joined else written


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return cast(Mapping[object, object], value)
        case msgspec.Struct():
            return _object(msgspec.to_builtins(value, str_keys=True))
        case _Model() if not isinstance(value, type):
            return _object(_from_model(value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _object(msgspec.to_builtins(value, str_keys=True))
        case _:
            raise ValueError(
                f"a state is a dict, a dataclass, a msgspec Struct or a pydantic model, not a {type(value).__name__}"
            )


def _from_model(model: _Model) -> object:
    """Return what a model consists of, from which it comes back as it is, but for what it says is no part of it."""
    problem = "it comes back as something else"
    for by_alias in (True, False):
        plain = _dumped(model, by_alias)
        try:
            if _are_alike(model, type(model).model_validate_json(encode(plain))):
                return plain
        except ValueError as error:
            problem = _in_a_sentence(error)
    raise ValueError(f"a {type(model).__name__} cannot be read again from its JSON: {problem}")


def _dumped(model: _Model, by_alias: bool) -> object:
    try:
        return decode(model.model_dump_json(by_alias=by_alias, round_trip=True))
    except ValueError:
        # Half a surrogate pair, say.
        return _copied(model.model_dump(mode="json", by_alias=by_alias, round_trip=True))


def _are_alike(one: Any, other: Any) -> bool:
    """Tell whether two values are the same, but for text that had to be mended, and what models leave out."""
    match one, other:
        case str(), str():
            return one == other or Plain().text(one) == other
        case dict(), dict():
            some, others = cast(dict[object, object], one), cast(dict[object, object], other)
            return some.keys() == others.keys() and all(_are_alike(some[key], others[key]) for key in some)
        case (list(), list()) | (tuple(), tuple()):
            items, more = cast(Sequence[object], one), cast(Sequence[object], other)
            return len(items) == len(more) and all(map(_are_alike, items, more))
        case _Model(), _Model() if hasattr(type(one), "model_fields"):
            return type(one) is type(other) and _are_alike(_parts(one), _parts(other))
        case _:
            return one == other


def _parts(model: Any) -> dict[str, object]:
    kind: Any = cast(object, type(model))
    fields: dict[str, Any] = kind.model_fields
    parts: dict[str, object] = {name: getattr(model, name) for name in fields if not fields[name].exclude}
    return parts | (model.model_extra or {})


def _in_a_sentence(error: ValueError) -> str:
    """Return what is wrong with a model, without the values that are."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first, *others = errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def _object(value: object) -> object:
    # One that is written as an array could not be told from a list.
    if not isinstance(value, dict):
        raise ValueError("a state is written as a JSON object: leave out array_like=True")
    return cast(object, value)


def takes_long(text: str | bytes, type: type[object]) -> bool:
    """Tell whether reading a text as one of `type` takes so long that others should not wait for it."""
    return type is AgentState and len(text) > LONG


def read_value(text: str | bytes, type: type[T]) -> T:
    """Return what a JSON text says, as a value of `type`.

    Raises:
        ValueError: it is not JSON, or not of this type; the text says where.
    """
    try:
        if type is AgentState:
            return cast(T, AgentState.from_json(text))
        value = decode_leniently(text)
        return cast(T, _read_model(value, type) if isinstance(type, _Model) else _read(value, type))
    except StateDecodeError as error:
        raise ValueError(error.reason) from error


def _read_model(value: Any, type: Any) -> object:
    try:
        # By its JSON, in which a strict model takes a date for a date.
        return type.model_validate_json(encode(value))
    except ValueError as error:
        raise ValueError(f"is not a {type.__name__}: {_in_a_sentence(error)}") from error


def read_items(texts: Sequence[str | bytes], type: type[T]) -> list[T]:
    """Return the items of a list, each as `read_value` does.

    Raises:
        ValueError: one of them is not of this type; the text says which.
    """
    if type is not Message:
        return [_read_item(index, text, type) for index, text in enumerate(texts)]
    found = [(_decoded(index, text), f"item {index}") for index, text in enumerate(texts)]
    try:
        return cast(list[T], read_messages(found, roles=False))
    except StateDecodeError as error:
        raise ValueError(error.reason) from error


def _decoded(index: int, text: str | bytes) -> object:
    try:
        return decode_leniently(text)
    except ValueError as error:
        raise ValueError(f"item {index}: {error}") from error


def _read_item(index: int, text: str | bytes, type: type[T]) -> T:
    try:
        return read_value(text, type)
    except ValueError as error:
        raise ValueError(f"item {index}: {error}") from error


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _read(value: object, type: Any) -> Any:
    if type is Message:
        # Null is not a message, although a list of messages may hold it.
        return read_messages([(read_object(value, ""), "it")], roles=False)[0]
    if _is_record(type):
        return read_record(type, value)
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    if type is dict:
        return cast(object, value)
    try:
        return read(cast(object, value), type)
    except (ValueError, TypeError) as error:
        # A TypeError where msgspec does not know how to read such a type.
        raise ValueError(f"is not a {getattr(type, '__name__', type)}: {error}") from error
