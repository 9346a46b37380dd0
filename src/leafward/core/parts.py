"""What the parts of a message mean: text, thinking, tool calls and their results, media."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from leafward.core.json import encode_text

Part = dict[str, Any]

CALLS = frozenset({"tool_use", "tool_call"})
"""The types of a part that asks for a tool and holds no result; `tool_call` is AgentScope for Python's."""

FAILED = frozenset({"error", "denied", "interrupted"})
"""The states of a tool that did not do what it was asked."""

SUSPENDED = "agentscope_suspended"
"""The key by which a result says in its metadata that it is still to come."""
RESULT_STATES = ("success", "error", "denied", "interrupted", "running")
"""The states of a result, in AgentScope's words; stored ones may have others."""

DENIED = "The user denied this call."
"""The result of a call that was denied without a reason."""

_TEXTS = ("text", "input_text", "output_text")
_THINKING = frozenset({"thinking", "reasoning", "redacted_thinking"})
# A tuple, because a stored part may have anything as its state, and a set asks for its hash.
_SETTLED = ("output-available", "output-error", "output-denied")
_MEDIA = frozenset(
    {"image", "audio", "video", "file", "data", "image_url", "input_audio", "input_image", "input_file", "document"}
)


def is_thinking(part: Part) -> bool:
    return part["type"] in _THINKING


def is_media(value: object) -> bool:
    """Tell a part, or a block in a tool's output, that carries an image, a recording or a file."""
    kind = cast(Part, value).get("type") if isinstance(value, dict) else None
    # Inside a tool's input or output it may be anything: a schema's is often a list.
    return isinstance(kind, str) and kind in _MEDIA


def is_ui_tool(part: Part) -> bool:
    """Tell AI SDK's tool parts, which hold call and result in one."""
    return "toolCallId" in part and (part["type"].startswith("tool-") or part["type"] == "dynamic-tool")


def is_ui_only(part: Part) -> bool:
    """Tell AI SDK's parts that are for a screen and go to no model."""
    return part["type"].startswith(("data-", "source-")) or part["type"] == "step-start"


def thinking_text(part: Part) -> str:
    """Return what a thinking part thinks, under whichever key its maker put it."""
    for key in ("text", "thinking", "reasoning"):
        if isinstance(part.get(key), str):
            return cast(str, part[key])
    return ""


def tool_name(part: Part) -> str:
    """Return the name of the tool a call or result belongs to, or nothing when it does not say."""
    for key in ("toolName", "name"):
        if isinstance(part.get(key), str):
            return cast(str, part[key])
    kind: str = part["type"]
    return kind.removeprefix("tool-") if is_ui_tool(part) and kind.startswith("tool-") else ""


def tool_input(part: Part) -> object:
    """Return the arguments of a call, `None` for other parts."""
    if _is_call(part):
        return part.get("input")
    return None


def tool_output(part: Part) -> object:
    """Return the result a part carries: what the tool gave, its error, or why it was denied; `None` for other parts."""
    if not holds_result(part):
        return None
    output = part.get(output_key(part))
    if output is None and tool_state(part) == "denied" and is_ui_tool(part):
        approval: object = part.get("approval")
        reason = cast(Part, approval).get("reason") if isinstance(approval, dict) else None
        return reason if isinstance(reason, str) and reason else DENIED
    return output


def output_key(part: Part) -> str:
    """Return the key under which a part holds its result, or would."""
    if part["type"] == "tool_result":
        # AgentScope says "output", Anthropic says "content".
        return "output" if "output" in part else "content"
    keys = ("output", "result", "errorText")
    if part.get("state") == "output-error":
        keys = ("errorText", "output", "result")
    return next((key for key in keys if part.get(key) is not None), "output")


def tool_state(part: Part) -> str:
    """Return how a tool ended, in AgentScope's words: `success`, `error`, `denied`, `interrupted` or `running`.

    Anthropic's `is_error` makes an error of whatever is not called a failure.
    """
    state = part.get("state")
    if is_ui_tool(part):
        if state == "output-denied":
            return "denied"
        return "error" if state == "output-error" or output_key(part) == "errorText" else "success"
    known = state if isinstance(state, str) else "success"
    return "error" if part.get("is_error") is True and known not in FAILED else known


def is_suspended(part: Part) -> bool:
    """Tell AgentScope's placeholder for a result that is still to come.

    The state `running` alone says less: AgentScope's reader gives it to every result of 1.x, which has no state.
    """
    metadata = part.get("metadata")
    return (
        part.get("state") == "running"
        and isinstance(metadata, dict)
        and cast(dict[str, object], metadata).get(SUSPENDED) is True
    )


def holds_result(part: Part) -> bool:
    """Tell a part that holds the result of a call."""
    return part["type"] == "tool_result" or (is_ui_tool(part) and is_settled(part))


def is_settled(part: Part) -> bool:
    """Tell whether an AI SDK tool part is finished: it holds a result, an error or a refusal."""
    if part.get("state") in _SETTLED or "output" in part or "result" in part:
        return True
    return part.get("errorText") is not None


def parts_of(body: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a message's body, with calls and results that stand in OpenAI's own keys read as parts.

    Messages stored by earlier versions keep `tool_calls` and `tool_call_id` in keys beside their parts.
    """
    parts: list[Part] = body["parts"]
    if "tool_calls" not in body and "tool_call_id" not in body:
        return parts
    if isinstance(body.get("tool_calls"), list):
        known = _call_ids(parts)
        calls = [_openai_call(call) for call in cast(list[object], body["tool_calls"])]
        parts = [*parts, *(call for call in calls if call is not None and call["id"] not in known)]
    answered = body.get("tool_call_id")
    if isinstance(answered, str) and all(part["type"] != "tool_result" for part in parts):
        name = body.get("name")
        parts = [{"type": "tool_result", "id": answered, "name": name, "output": parts, "state": "success"}]
    return parts


def keys_beside_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `tool_calls` and `tool_call_id` of a body hold that its parts, as `parts_of` reads them, do not."""
    left = {key: body[key] for key in ("tool_calls", "tool_call_id") if key in body}
    if isinstance(left.get("tool_calls"), list):
        known = _call_ids(body["parts"])
        calls = [call for call in cast(list[object], left["tool_calls"]) if not _is_said_by_part(call, known)]
        left = {**left, "tool_calls": calls} if calls else {key: left[key] for key in left if key != "tool_calls"}
    answered = [part.get("tool_use_id") or part.get("id") for part in parts_of(body) if part["type"] == "tool_result"]
    return {key: left[key] for key in left if not (key == "tool_call_id" and left[key] in answered)}


def _call_ids(parts: Sequence[Part]) -> list[object]:
    return [part["toolCallId"] if is_ui_tool(part) else part.get("id") for part in parts if _is_call(part)]


def _is_call(part: Part) -> bool:
    return part["type"] in CALLS or is_ui_tool(part)


def _is_said_by_part(call: object, known: list[object]) -> bool:
    """Tell whether the part that `parts_of` makes of a call of OpenAI's holds all of it."""
    made = _openai_call(call)
    if made is None or made["id"] in known:
        return False
    function = {"name": made["name"], "arguments": made["input"]}
    return call in (
        {"id": made["id"], "function": function},
        {"id": made["id"], "type": "function", "function": function},
    )


def _openai_call(call: object) -> Part | None:
    made = cast(Part, call) if isinstance(call, dict) else {}
    for kind, given in (("function", "arguments"), ("custom", "input")):
        inner: object = made.get(kind)
        if isinstance(inner, dict) and isinstance(made.get("id"), str):
            asked = cast(Part, inner)
            if isinstance(asked.get("name"), str):
                return {"type": "tool_use", "id": made["id"], "name": asked["name"], "input": asked.get(given)}
    return None


def plain_block_text(blocks: Sequence[Part]) -> str | None:
    """Return the text of a list that is one block of text and nothing else, `None` for any other list."""
    if len(blocks) != 1 or blocks[0].keys() != {"type", "text"} or blocks[0]["type"] not in _TEXTS:
        return None
    text: object = blocks[0]["text"]
    return text if isinstance(text, str) else None


def plain_text(value: object) -> str:
    """Return a tool's value as text a person can read: keys and values, a line each."""
    return "\n".join(_lines(value))


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        mapping = cast(Mapping[str, object], value)
        if mapping.get("type") == "text" and isinstance(mapping.get("text"), str):
            yield cast(str, mapping["text"])
        elif is_media(mapping):
            return
        else:
            for key, item in mapping.items():
                yield f"{key}: {plain_text(item)}"
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from _lines(item)
    elif value is not None:
        yield encode_text(value)


def search_text(body: Mapping[str, Any]) -> str:
    """Return what search looks at in a message's body: text, tool calls and tool results; not thinking, not media."""
    found: list[str] = []
    for part in parts_of(body):
        if part["type"] == "text":
            if isinstance(part.get("text"), str):
                found.append(part["text"])
        elif _is_call(part) or part["type"] == "tool_result":
            found.extend(
                text for text in (tool_name(part), plain_text(tool_input(part)), plain_text(tool_output(part))) if text
            )
    return "\n".join(found)
