"""Anthropic's Messages: system text apart, user and assistant in turn, results first in the user's answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from leafward.core.calls import Call, Item, Result
from leafward.core.fallback_text import as_text, output_as_text
from leafward.core.json_fields import json_object, message_list, string, typed_blocks
from leafward.core.media import Media, read_media
from leafward.core.message import Message
from leafward.core.parts import Part, is_thinking, plain_block_text, thinking_text
from leafward.core.provider_extras import ORIGIN, opaque, raw_of, rest_of, with_rest, without_origin
from leafward.formats.limits import function_name, plain_id
from leafward.formats.reading import Messages, build, checked_messages
from leafward.formats.turns import Answers, Entry, Turn, media_to_user, turns, with_ids

NAME = "anthropic"
OPENING = "[The conversation begins with the assistant.]"
"""The user's first message where there is none: the API wants one."""
CONTINUING = "[The assistant continues.]"
"""The user's message between a text of the assistant and a reply that begins with thinking."""

_LONGEST_NAME = 128
_FIELDS = {
    "text": {"text", "citations", "cache_control"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
    "search_result": {"source", "title", "content", "citations", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller", "cache_control"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control"},
}
"""The blocks that become parts as they are, and the fields the API knows in them: it refuses all others."""
_TEXTS = ("title", "context")
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_SERVER_RESULTS = frozenset(
    {
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_result",
    }
)
_NATIVE = _SERVER_CALLS | _SERVER_RESULTS
_NEVER_ASSISTANTS = frozenset({"tool_reference", "container_upload"})
_MOST_CACHE_MARKS = 4


# ── to Anthropic ─────────────────────────────────────────────────────────────


def to_anthropic(messages: Messages) -> dict[str, Any]:
    """Return `{"system", "messages"}` for `client.messages.create(...)`.

    `system` is a string, empty when there is none; it is a list of text blocks when there are several, or when one
    carries more than its text, such as `cache_control`. System messages go there wherever they stand. Messages of one
    side are merged, blank texts left out (the API refuses them), and ids of calls that the API refuses replaced.
    Thinking keeps its signature, and is not sent when nothing follows it; thinking without a signature is sent as text
    between `<thinking>` tags. Parts for a screen, parts of unknown types and fields the API does not know are not sent,
    and of more than four `cache_control` only the last four. A conversation of system messages alone gives an empty
    `messages`, which the API refuses: add what the user says.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = with_ids(turns(checked_messages(messages)), plain_id, everywhere=True)
    _drop_unpaired_server_tools(found)
    system: list[dict[str, Any]] = []
    system_as_list = False
    said: list[_Said] = []
    for entry in media_to_user(found, may_send=("user",), from_results=False):
        if isinstance(entry, Answers):
            said.append(_Said("user", [_tool_result(result) for _, result in entry.pairs]))
            continue
        kept = rest_of(entry.message.extra, NAME) if entry.first else {}
        if entry.role in ("system", "developer"):
            system += _blocks(entry)
            system_as_list = system_as_list or kept.get("form") == "list"
        else:
            said.append(_Said(entry.role, _blocks(entry), kept.get("fields", {}), kept.get("form") == "list"))
    written = _written(said)
    _keep_last_cache_marks([*system, *_blocks_within(written)])
    return {"system": _content(system, system_as_list) if system else "", "messages": written}


def _blocks_within(holders: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the blocks in the content of messages, those in results before the result that holds them."""
    for holder in holders:
        content: object = holder.get("content")
        for block in cast(list[object], content) if isinstance(content, list) else []:
            if isinstance(block, dict):
                found = cast(dict[str, Any], block)
                if found.get("type") == "tool_result":
                    yield from _blocks_within([found])
                yield found


def _keep_last_cache_marks(blocks: Sequence[dict[str, Any]]) -> None:
    """Take `cache_control` from all blocks but the last four that have it: the API refuses more."""
    marked = [block for block in blocks if "cache_control" in block]
    for block in marked[:-_MOST_CACHE_MARKS]:
        del block["cache_control"]


def _drop_unpaired_server_tools(entries: Sequence[Entry]) -> None:
    """Drop calls of the API's own tools that have no result, and results that have no call.

    A stream that broke off leaves them behind, and the API refuses them. A call at the end of a conversation stays: the
    API paused there, and continues with its result.
    """
    spoken = [entry for entry in entries if isinstance(entry, Turn) and entry.role == "assistant"]
    halves = [half for turn in spoken for item in turn.items if (half := _half(item)) is not None]
    whole = {half for half in halves if half.other in halves and half.id}
    for turn in spoken:
        kept = {half for half in halves if half.asks and half.id} | whole if turn is entries[-1] else whole
        turn.items = [item for item in turn.items if (half := _half(item)) is None or half in kept]


class _Half(NamedTuple):
    """A call of a tool that the API runs itself, or the result of one."""

    id: str
    asks: bool

    @property
    def other(self) -> _Half:
        return _Half(self.id, not self.asks)


def _half(item: Item) -> _Half | None:
    if not isinstance(item, dict):
        return None
    block = _item_of_api(item) or item
    asks = block["type"] in _SERVER_CALLS
    if not asks and block["type"] not in _SERVER_RESULTS:
        return None
    found: object = block.get("id" if asks else "tool_use_id")
    return _Half(found if isinstance(found, str) else "", asks)


@dataclass(frozen=True, slots=True)
class _Said:
    """A message of the payload."""

    role: str
    blocks: list[dict[str, Any]]
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    as_list: bool = False
    """Whether its content stays a list where a string would do."""


def _written(said: Sequence[_Said]) -> list[dict[str, Any]]:
    found = _begun_by_user(_joined(map(_without_last_thinking, _joined(said))))
    if found and found[-1].role == "assistant" and found[-1].blocks[-1]["type"] == "text":
        # A request may end with words for the model to go on from, but not with a space.
        found[-1].blocks[-1]["text"] = found[-1].blocks[-1]["text"].rstrip()
    return [{"role": one.role, "content": _content(one.blocks, one.as_list), **one.fields} for one in found]


def _joined(said: Iterable[_Said]) -> list[_Said]:
    """Join neighbours of one role, and leave out messages without content."""
    found: list[_Said] = []
    for one in said:
        if found and one.blocks and found[-1].role == one.role:
            last = found.pop()
            as_list = last.as_list or one.as_list
            found.append(_Said(one.role, last.blocks + one.blocks, {**one.fields, **last.fields}, as_list))
        elif one.blocks:
            found.append(one)
    return found


def _without_last_thinking(one: _Said) -> _Said:
    """Drop thinking that nothing follows, as a stream that broke off leaves it: the API refuses it."""
    length = len(one.blocks)
    while length and _is_thought(one.blocks[length - 1]):
        length -= 1
    return replace(one, blocks=one.blocks[:length])


def _begun_by_user(said: Sequence[_Said]) -> list[_Said]:
    """Put a text of the user where the API wants one: at the beginning, and between the assistant's text and thinking.

    The API refuses a message that holds thinking and begins with something else. Such a message was two: a summary
    and the reply below it. What the API's own tools returned may stand before thinking, for then it wrote both.
    """
    found: list[_Said] = []
    for one in said:
        if not found and one.role == "assistant":
            found.append(_Said("user", [{"type": "text", "text": OPENING}]))
        first = next((place for place, block in enumerate(one.blocks) if _is_thought(block)), 0)
        if one.role == "assistant" and first and one.blocks[first - 1]["type"] == "text":
            found += [replace(one, blocks=one.blocks[:first]), _Said("user", [{"type": "text", "text": CONTINUING}])]
            one = replace(one, blocks=one.blocks[first:])
        found.append(one)
    return found


def _is_thought(block: Mapping[str, Any]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _content(blocks: list[dict[str, Any]], as_list: bool) -> str | list[dict[str, Any]]:
    text = plain_block_text(blocks)
    return blocks if text is None or as_list else text


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    called = False
    for item in turn.items:
        if isinstance(item, Call):
            called = True
            blocks.append(_tool_use(item))
        elif isinstance(item, dict):
            # Thinking after a call is not in the order the API writes, and it refuses that: it is sent as text.
            block = _block(item, turn.role, may_think=not called)
            if block is not None:
                blocks.append(block)
    return blocks


def _block(part: Part, role: str, *, may_think: bool = False) -> dict[str, Any] | None:
    raw = _item_of_api(part)
    if _is_blank_document(part) or (part["type"] in _NEVER_ASSISTANTS and role == "assistant"):
        return None
    if raw is not None:
        return dict(raw)
    if part["type"] in _NATIVE and role == "assistant":
        return without_origin(part)
    if part["type"] == "text" and isinstance(part.get("text"), str):
        return _own(part) if part["text"].strip() else None
    if role in ("user", "tool") and _is_search_result(part):
        return _own(part)
    if may_think and is_thinking(part) and role == "assistant":
        thought = _thinking(part)
        if thought is not None:
            return thought
    file = _file(part) if role in ("user", "tool") else None
    if file is not None:
        return file
    words = output_as_text(part) if role == "tool" else as_text(part)
    return {"type": "text", "text": words} if words.strip() else None


def _item_of_api(part: Part) -> dict[str, Any] | None:
    """Return the whole block of the API that a part carries, if it can be one: a page may write anything there."""
    raw = raw_of(part, NAME)
    if raw is None or not isinstance(raw.get("type"), str):
        return None
    return raw if raw["type"] != "text" or isinstance(raw.get("text"), str) else None


def _own(part: Part) -> dict[str, Any]:
    """Return a part of a type the API has, with the fields it knows and those that came from it."""
    known = _FIELDS[part["type"]]
    kept = {key: value for key, value in part.items() if key in known and _is_accepted(key, value)}
    return {**rest_of(part, NAME), "type": part["type"], **kept}


def _is_accepted(key: str, value: object) -> bool:
    """Tell whether the API takes a value in a field that may be left out."""
    if key in _TEXTS:
        return isinstance(value, str) and value != ""
    if key == "is_error":
        return isinstance(value, bool)
    if key == "cache_control":
        return isinstance(value, dict)
    return key != "caller" or value is not None


def _thinking(part: Part) -> dict[str, Any] | None:
    """Return thinking as the API takes it back, or nothing when it was not Anthropic's."""
    if part["type"] == "redacted_thinking" and isinstance(part.get("data"), str):
        return _own(part)
    if part["type"] == "thinking" and isinstance(part.get("signature"), str) and part["signature"]:
        return _own(part)
    metadata: object = part.get("providerMetadata")
    own: object = cast(Part, metadata).get("anthropic") if isinstance(metadata, dict) else None
    if isinstance(own, dict):
        signed = cast(Part, own)
        if isinstance(signed.get("redactedData"), str):
            return {"type": "redacted_thinking", "data": signed["redactedData"]}
        if isinstance(signed.get("signature"), str):
            return {"type": "thinking", "thinking": thinking_text(part), "signature": signed["signature"]}
    return None


def _file(part: Part) -> dict[str, Any] | None:
    """Return an image or a document that the API takes, or nothing."""
    if _is_text_document(part):
        return _own(part)
    media = read_media(part)
    if media is None or media.text is not None or (media.file_id is not None and media.keeper != "anthropic"):
        return None
    if media.file_id is None and media.model_url is None:
        return None
    words = media.plain_text
    if media.is_usual_image:
        kind, usual = "image", "image/png"
    elif words is not None and words.strip():
        kind, usual = "document", "text/plain"
    elif media.kind == "file" and media.media_type in (None, "application/pdf"):
        kind, usual = "document", "application/pdf"
    else:
        return None
    made: dict[str, Any] = {"type": kind, "source": _source(media, media.media_type or usual)}
    if kind == "document" and media.name:
        made["title"] = media.name
    own = _own(part) if part["type"] == kind else _cache_mark(part)
    return {**own, **made}


def _cache_mark(part: Part) -> dict[str, Any]:
    return {"cache_control": part["cache_control"]} if isinstance(part.get("cache_control"), dict) else {}


def _is_search_result(part: Part) -> bool:
    """Tell a search result that says where it was found, and holds only text."""
    if part["type"] != "search_result" or not all(isinstance(part.get(key), str) for key in ("source", "title")):
        return False
    content: object = part.get("content")
    blocks = cast(list[object], content) if isinstance(content, list) else []
    return bool(part["source"] and part["title"] and blocks) and all(_is_text(block) for block in blocks)


def _is_blank_document(part: Part) -> bool:
    source: object = part.get("source") if part["type"] == "document" else None
    found = cast(Part, source) if isinstance(source, dict) else {}
    text: object = found.get("data")
    return found.get("type") == "text" and isinstance(text, str) and not text.strip()


def _is_text_document(part: Part) -> bool:
    """Tell whether a document has its words in itself, as text or as blocks."""
    if part["type"] != "document" or not isinstance(part.get("source"), dict):
        return False
    source = cast(dict[str, Any], part["source"])
    if source.get("type") == "text" and source.keys() <= {"type", "media_type", "data"}:
        return source.get("media_type") == "text/plain" and isinstance(source.get("data"), str)
    if source.get("type") != "content" or source.keys() != {"type", "content"}:
        return False
    content: object = source["content"]
    blocks = cast(list[object], content) if isinstance(content, list) else [{"type": "text", "text": content}]
    return bool(blocks) and all(_is_text(block) for block in blocks)


def _is_text(block: object) -> bool:
    found = cast(Part, block) if isinstance(block, dict) else {}
    text: object = found.get("text")
    return found.get("type") == "text" and isinstance(text, str) and text.strip() != ""


def _source(media: Media, media_type: str) -> dict[str, Any]:
    if media.plain_text is not None:
        return {"type": "text", "media_type": media_type, "data": media.plain_text}
    if media.data is not None:
        return {"type": "base64", "media_type": media_type, "data": media.data}
    return {"type": "url", "url": media.url} if media.url is not None else {"type": "file", "file_id": media.file_id}


def _tool_use(call: Call) -> dict[str, Any]:
    own = _own(call.part) if call.part["type"] == "tool_use" else {}
    name = function_name(call.name, _LONGEST_NAME)
    return {"type": "tool_use", **own, "id": call.id, "name": name, "input": call.object_input}


def _tool_result(result: Result) -> dict[str, Any]:
    own = _own(result.part) if "tool_use_id" in result.part else {}
    made: dict[str, Any] = {"type": "tool_result", **own, "tool_use_id": result.call_id}
    if result.failed:
        made["is_error"] = True
    if own and "output" not in result.part and isinstance(own.get("content", ""), str):
        return made
    blocks = [block for part in result.blocks if (block := _block(part, "tool")) is not None]
    made["content"] = _content(blocks, isinstance(own.get("content"), list)) if blocks else ""
    return made


# ── from Anthropic ───────────────────────────────────────────────────────────


def from_anthropic(payload: Mapping[str, Any] | Sequence[Any]) -> list[Message]:
    """Read `{"system", "messages"}`, or the list of messages alone.

    Blocks become parts as they are; the system text becomes one system message. Other keys of a request, such as its
    model, are not part of the conversation.

    Raises:
        ValueError: the payload has another shape; the text names the place.
    """
    whole: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {"messages": payload}
    if "role" in whole and "messages" not in whole:
        raise ValueError("the payload is one message: put it in a list, from_anthropic([message])")
    if "messages" not in whole:
        raise ValueError(f'the payload has "messages" and perhaps "system", not {sorted(map(str, whole))}')
    found: list[Message] = []
    system = whole.get("system")
    if system is not None and system != "":
        parts, as_list = _read_content(system, "system")
        found.append(build("system", "system", parts, **_kept({}, as_list)))
    for index, item in enumerate(message_list(whole["messages"])):
        where = f"messages[{index}]"
        role = string(item, "role", where)
        parts, as_list = _read_content(item.get("content"), f"{where}.content")
        fields = {key: value for key, value in item.items() if key not in ("role", "content")}
        found.append(build(where, role, parts, **_kept(fields, as_list, reply=item.get("type") == "message")))
    return found


def _kept(fields: dict[str, Any], as_list: bool, *, reply: bool = False) -> dict[str, Any]:
    # What a reply says of itself (its id, model, usage) is kept, but the API refuses it in a request.
    rest = ({"reply" if reply else "fields": fields} if fields else {}) | ({"form": "list"} if as_list else {})
    return {ORIGIN: {"name": NAME, "rest": rest}} if rest else {}


def _read_content(content: object, where: str) -> tuple[list[Part], bool]:
    """Return the parts of a content, and whether it is a list where a string would do."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}], False
    blocks = typed_blocks(content, where)
    parts = [_read_block(block, f"{where}[{index}]") for index, block in enumerate(blocks)]
    return parts, plain_block_text(blocks) is not None


def _read_block(block: dict[str, Any], where: str) -> Part:
    kind = block["type"]
    if ORIGIN in block or kind not in _FIELDS:
        return opaque(kind, NAME, block)
    if kind == "text":
        string(block, "text", where)
    elif kind == "tool_use":
        string(block, "id", where)
        string(block, "name", where)
        json_object(block.get("input"), f"{where}.input")
    elif kind == "tool_result":
        string(block, "tool_use_id", where)
    unknown = {key: value for key, value in block.items() if key != "type" and key not in _FIELDS[kind]}
    return with_rest({key: value for key, value in block.items() if key not in unknown}, NAME, unknown)
