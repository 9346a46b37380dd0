"""The rules by which providers refuse a request, as far as they depend on its messages.

Each function raises `AssertionError` with the place of what would be answered with an error.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import msgspec

Payload = list[dict[str, Any]]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CLAUDE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
SPEAKER = re.compile(r"[^\s<|\\/>]+")


def is_json_object(text: object) -> bool:
    """Tell JSON as the standard has it, without NaN and infinities."""
    if not isinstance(text, str):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def check_url(url: object, where: str) -> None:
    assert isinstance(url, str), where
    assert url.startswith(("https://", "http://", "data:")), f"{where}: {url[:40]}"
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        assert head.endswith(";base64"), where
        assert base64.b64decode(data, validate=True), f"{where}: no bytes"


def check_image_url(url: object, where: str) -> None:
    check_url(url, where)
    head = str(url).partition(";")[0]
    assert not head.startswith("data:") or head.removeprefix("data:") in IMAGES, f"{where}: {head[:40]}"


def check_file_data(file: dict[str, Any], where: str) -> None:
    """Check a file of OpenAI's: an id, an address, or bytes with a name."""
    assert all(value is None or (isinstance(value, str) and value) for value in file.values()), f"{where}: {file}"
    assert file.get("file_id") or file.get("file_url") or file.get("file_data"), f"{where}: an empty file"
    if file.get("file_data"):
        assert file.get("filename"), f"{where}: a file without a name"
        assert base64.b64decode(file["file_data"].rpartition(",")[2], validate=True), f"{where}: no bytes"


# ── OpenAI chat ──────────────────────────────────────────────────────────────

_CHAT_BLOCKS = {
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
}


def check_openai_chat(payload: Payload) -> None:
    waiting: list[str] = []
    for index, message in enumerate(payload):
        where = f"messages[{index}]"
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in waiting, f"{where} answers nothing"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, f"{where} comes while {waiting} wait"
        _check_chat_content(message, where)
        if "name" in message:
            assert SPEAKER.fullmatch(message["name"]), where
            assert len(message["name"]) <= 64, where
        waiting += _chat_calls(message, where)
    assert not waiting, f"{waiting} have no result"


def _check_chat_content(message: dict[str, Any], where: str) -> None:
    content, role = message.get("content"), message["role"]
    assert role in _CHAT_BLOCKS, where
    if content is None:
        assert role == "assistant", where
        assert message.get("tool_calls") or message.get("refusal"), f"{where} says nothing"
        return
    if isinstance(content, str):
        return
    assert content, f"{where} has an empty list"
    for block in content:
        kind = block["type"]
        assert kind in _CHAT_BLOCKS[role], f"{where}: a {kind} of {role}"
        assert block.keys() <= {"type", kind}, f"{where}: {sorted(block)}"
        if kind in ("text", "refusal"):
            assert isinstance(block[kind], str), where
        elif kind == "image_url":
            check_image_url(block[kind]["url"], where)
            assert block[kind].get("detail", "auto") in ("auto", "low", "high"), where
        elif kind == "file":
            check_file_data(block[kind], where)
            assert block[kind].keys() <= {"file_id", "file_data", "filename"}, where
            data = block[kind].get("file_data") or "data:application/pdf;"
            assert data.startswith("data:application/pdf;") or not data.startswith("data:"), f"{where}: {data[:40]}"


def _chat_calls(message: dict[str, Any], where: str) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    assert calls, f"{where} has an empty list of calls"
    assert message["role"] == "assistant", where
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == len(ids), f"{where} uses an id twice"
    for call in calls:
        assert 0 < len(call["id"]) <= 40, where
        assert NAME.fullmatch(call["function"]["name"]), f"{where}: {call['function']['name']!r}"
        assert is_json_object(call["function"]["arguments"]), f"{where}: {call['function']['arguments']!r}"
    return ids


# ── OpenAI Responses ─────────────────────────────────────────────────────────

_RESPONSE_BLOCKS = {"user": {"input_text", "input_image", "input_file"}}


def check_openai_responses(payload: Payload) -> None:
    called: set[str] = set()
    answered: set[str] = set()
    for index, item in enumerate(payload):
        where = f"input[{index}]"
        kind = item.get("type", "message")
        if kind == "message":
            _check_response_message(item, where)
        elif kind == "reasoning":
            follows = payload[index + 1] if index + 1 < len(payload) else {}
            _check_reasoning(item, follows, where)
        elif kind == "function_call":
            assert item["call_id"] not in called, f"{where} uses an id again"
            assert 0 < len(item["call_id"]) <= 64, where
            assert NAME.fullmatch(item["name"]), f"{where}: {item['name']!r}"
            assert is_json_object(item["arguments"]), f"{where}: {item['arguments']!r}"
            called.add(item["call_id"])
        else:
            assert kind == "function_call_output", f"{where}: {kind}"
            assert item["call_id"] in called - answered, f"{where} answers nothing"
            assert isinstance(item["output"], (str, list)), where
            for block in item["output"] if isinstance(item["output"], list) else []:
                _check_response_block(block, where)
            answered.add(item["call_id"])
    assert called == answered, f"{called - answered} have no result"


def _check_reasoning(item: dict[str, Any], follows: dict[str, Any], where: str) -> None:
    assert isinstance(item["summary"], list), where
    own = follows.get("role") == "assistant" or follows.get("type") in ("reasoning", "function_call")
    assert own, f"{where}: reasoning without its following item"


def _check_response_message(item: dict[str, Any], where: str) -> None:
    content, role = item["content"], item["role"]
    assert role in ("user", "assistant", "system", "developer"), where
    if isinstance(content, str):
        return
    allowed = {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"}
    for block in content:
        assert block["type"] in allowed, f"{where}: a {block['type']} of {role}"
        _check_response_block(block, where)


def _check_response_block(block: dict[str, Any], where: str) -> None:
    fields = {key: value for key, value in block.items() if key != "type"}
    if block["type"] == "input_image":
        assert fields.get("image_url") or fields.get("file_id"), f"{where}: an empty image"
        assert fields.get("detail") in ("auto", "low", "high", "original", None), where
        if fields.get("image_url") is not None:
            check_image_url(fields["image_url"], where)
    elif block["type"] == "input_file":
        check_file_data(fields, where)


# ── Anthropic ────────────────────────────────────────────────────────────────

_CLAUDE_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "search_result": {"type", "source", "title", "content", "citations", "cache_control"},
    "server_tool_use": {"type", "id", "name", "input"},
    "web_search_tool_result": {"type", "tool_use_id", "content"},
}
_CLAUDE_BLOCKS = {
    "user": {"text", "image", "document", "tool_result", "search_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result"},
}


def check_anthropic(payload: dict[str, Any]) -> None:
    messages: Payload = payload["messages"]
    assert json.dumps(payload).count('"cache_control": ') <= 4, "more than four blocks with cache_control"
    if messages:
        assert messages[0]["role"] == "user", "the first message is the user's"
    calls: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        assert message.keys() == {"role", "content"}, where
        assert index == 0 or messages[index - 1]["role"] != message["role"], f"{where}: {message['role']} again"
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks, f"{where} is empty"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(calls), f"{where} answers {results}, {calls} wait"
        assert [block["type"] for block in blocks[: len(results)]] == ["tool_result"] * len(results), where
        for block in blocks:
            _check_claude_block(block, message["role"], where)
        _check_claude_thinking([block["type"] for block in blocks], where)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not seen & set(calls), f"{where} uses an id again"
        assert len(set(calls)) == len(calls), f"{where} uses an id twice"
        seen |= set(calls)
    assert not calls, f"{calls} have no result"
    _check_server_tools(messages)
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"]
        text = last if isinstance(last, str) else last[-1].get("text", "")
        assert text == text.rstrip(), "the last message ends with a space"


def _check_claude_thinking(kinds: list[str], where: str) -> None:
    thoughts = [place for place, kind in enumerate(kinds) if kind in ("thinking", "redacted_thinking")]
    assert not thoughts or thoughts[-1] < len(kinds) - 1, f"{where} ends with thinking"
    if thoughts and thoughts[0] > 0:
        # The API writes thinking after the result of a tool of its own, and takes it back there.
        assert kinds[thoughts[0] - 1] == "web_search_tool_result", f"{where} holds thinking and begins with {kinds[0]}"


def _check_server_tools(messages: Payload) -> None:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    asked = {block["id"] for block in blocks if block["type"] == "server_tool_use"}
    answered = {block["tool_use_id"] for block in blocks if block["type"] == "web_search_tool_result"}
    assert answered <= asked, "a result of a server tool that was not called"
    if messages[-1:] and messages[-1]["role"] != "assistant":
        assert asked <= answered, "a call of a server tool has no result"


def _check_claude_block(block: dict[str, Any], role: str, where: str) -> None:
    kind = block["type"]
    assert kind in _CLAUDE_BLOCKS[role], f"{where}: a {kind} of {role}"
    assert block.keys() <= _CLAUDE_FIELDS[kind], f"{where}: {sorted(block)}"
    assert isinstance(block.get("cache_control", {}), dict), where
    assert isinstance(block.get("is_error", False), bool), where
    if kind == "text":
        assert block["text"].strip(), f"{where} has a blank text"
    elif kind == "tool_use":
        assert CLAUDE_ID.fullmatch(block["id"]), f"{where}: {block['id']!r}"
        assert CLAUDE_NAME.fullmatch(block["name"]), f"{where}: {block['name']!r}"
        assert isinstance(block["input"], dict), where
    elif kind == "tool_result" and not isinstance(block.get("content", ""), str):
        assert block["content"], f"{where} has an empty list"
        for inner in block["content"]:
            assert inner["type"] in ("text", "image", "document", "search_result"), where
            _check_claude_block(inner, "user", where)
    elif kind in ("image", "document"):
        _check_claude_source(block["source"], kind, where)
        assert isinstance(block.get("title", "x"), str), where
        assert block.get("title", "x"), f"{where} has an empty title"
        assert isinstance(block.get("context", ""), str), where
    elif kind == "search_result":
        assert all(isinstance(block[key], str) and block[key] for key in ("source", "title")), where
        assert block["content"], f"{where} found nothing"
        assert all(inner["type"] == "text" and inner["text"].strip() for inner in block["content"]), where


def _check_claude_source(source: dict[str, Any], kind: str, where: str) -> None:
    if source["type"] == "url":
        check_url(source["url"], where)
    elif source["type"] == "base64":
        assert base64.b64decode(source["data"], validate=True), f"{where}: no bytes"
        assert source["media_type"] in (IMAGES if kind == "image" else ("application/pdf",)), where
    elif source["type"] == "text":
        assert kind == "document", where
        assert source["data"].strip(), f"{where} is a blank document"
        assert source["media_type"] == "text/plain", where
    elif source["type"] == "content":
        assert kind == "document", where
        assert source["content"], where
    else:
        assert source["type"] == "file", where
        assert isinstance(source["file_id"], str), where


CHECKS = {
    "openai_chat": check_openai_chat,
    "openai_responses": check_openai_responses,
    "anthropic": check_anthropic,
}
