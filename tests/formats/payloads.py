"""Valid payloads of each provider, with everything its own types allow and fields that nobody knows yet."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
unknown = st.dictionaries(st.sampled_from(["x_new", "x_other"]), st.integers(-9, 9) | words | st.none(), max_size=1)
objects = st.dictionaries(words, words | st.integers(-5, 5) | st.lists(st.booleans(), max_size=2), max_size=2)
PNG = "iVBORw0KGgo="


def arguments() -> st.SearchStrategy[str]:
    """Return arguments as models write them: tidy, spaced, with a key twice."""
    tidy = objects.map(lambda value: json.dumps(value, ensure_ascii=False))
    odd = [" {}", '{"a":1,"a":2}', '{"a": 1e5}']
    return tidy | objects.map(lambda value: json.dumps(value, indent=1)) | st.sampled_from(odd)


BROKEN_ARGUMENTS = [
    '{"a": 1',
    "",
    "null",
    "5",
    '"x"',
    "plain words",
    "[1]",
    "1e999",
    "9" * 40,
    '{"a": "\\ud800"}',
    "NaN",
]
"""What models write when they fail: no JSON, or no object."""


def mixed(*choices: Any) -> st.SearchStrategy[Any]:
    return st.one_of(*(choice if isinstance(choice, st.SearchStrategy) else st.just(choice) for choice in choices))


def with_unknown(block: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(block, unknown).map(lambda both: {**both[0], **both[1]})


# ── OpenAI chat ──────────────────────────────────────────────────────────────

chat_text = with_unknown(words.map(lambda text: {"type": "text", "text": text}))
chat_user_block = mixed(
    chat_text,
    with_unknown(st.just({"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}})),
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "a.pdf"}},
)
chat_refusal = words.map(lambda text: {"type": "refusal", "refusal": text})


@st.composite
def chat_payloads(draw: st.DrawFn, *, strict: bool = False) -> list[dict[str, Any]]:
    """Return a chat request; `strict` leaves out what OpenAI's own types do not name."""
    more = st.just({}) if strict else unknown
    payload: list[dict[str, Any]] = []
    numbers = itertools.count()
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["system", "developer", "user", "assistant", "calls", "legacy"]))
        if kind in ("calls", "legacy"):
            payload += draw(_chat_exchange(numbers, legacy=kind == "legacy", strict=strict))
            continue
        block = {"user": chat_user_block, "assistant": chat_text | chat_refusal}.get(kind, chat_text)
        content = draw(words | st.just("") | st.lists(block, min_size=1, max_size=3))
        message = {"role": kind, "content": content, **draw(more)}
        if kind == "assistant":
            message |= draw(st.sampled_from([{}, {"refusal": None}, {"refusal": "no"}, {"audio": {"id": "a1"}}]))
            if not strict:
                message |= draw(st.sampled_from([{}, {"reasoning_content": "hm"}, {"reasoning": None}]))
        payload.append(message | draw(st.sampled_from([{}, {"name": "alice"}])))
    return payload


@st.composite
def _chat_exchange(draw: st.DrawFn, numbers: Iterator[int], *, legacy: bool, strict: bool) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", **draw(st.sampled_from([{}, {"content": None}, {"content": "so"}]))}
    more = st.just({}) if strict else unknown
    if legacy:
        name = f"tool{next(numbers)}"
        call = {"name": name, "arguments": draw(arguments())}
        return [{**message, "function_call": call}, {"role": "function", "name": name, "content": draw(words)}]
    calls: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        head = {"id": f"call_{next(numbers)}", **draw(more)}
        if draw(st.booleans()):
            calls.append({**head, "type": "function", "function": {"name": "f", "arguments": draw(arguments())}})
        else:
            calls.append({**head, "type": "custom", "custom": {"name": "c", "input": draw(words | arguments())}})
    results = [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": draw(words | st.just("") | st.lists(chat_text, min_size=1, max_size=2)),
            **draw(more),
        }
        for call in draw(st.permutations(calls))
    ]
    return [{**message, "tool_calls": calls}, *results]


@st.composite
def odd_chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return replies and requests as servers and frameworks write them: content that is null, `[]` or absent."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    audio = {"id": "a1", "transcript": "", "expires_at": 1}
    empty = st.sampled_from([{"content": None}, {"content": []}, {"content": ""}, {}])
    more = st.sampled_from([{}, {"refusal": None}, {"refusal": "no"}, {"audio": audio}, {"tool_calls": [call]}])
    kinds = draw(st.lists(st.sampled_from(["system", "user", "assistant", "assistant", "tool"]), max_size=5))
    heads = {"tool": {"role": "tool", "tool_call_id": "c"}}
    return [
        {**heads.get(kind, {"role": kind}), **draw(empty), **(draw(more) if kind == "assistant" else {})}
        for kind in kinds
    ]


# ── OpenAI Responses ─────────────────────────────────────────────────────────

input_block = mixed(
    with_unknown(words.map(lambda text: {"type": "input_text", "text": text})),
    {"type": "input_image", "detail": "auto", "image_url": "https://x.test/a.png"},
    {"type": "input_image", "detail": "high", "file_id": "file-1"},
    {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"},
)
output_block = mixed(
    with_unknown(words.map(lambda text: {"type": "output_text", "text": text, "annotations": []})),
    words.map(lambda text: {"type": "refusal", "refusal": text}),
)


@st.composite
def responses_payloads(draw: st.DrawFn) -> list[dict[str, Any]]:
    payload: list[dict[str, Any]] = []
    numbers = itertools.count()
    kinds = ["easy", "input", "output", "calls", "reasoning", "search", "reference", "shell"]
    for _ in range(draw(st.integers(0, 5))):
        payload += draw(_items(draw(st.sampled_from(kinds)), numbers))
    return payload


@st.composite
def _items(draw: st.DrawFn, kind: str, numbers: Iterator[int]) -> list[dict[str, Any]]:
    number = next(numbers)
    if kind == "easy":
        role = draw(st.sampled_from(["user", "assistant", "system", "developer"]))
        head = draw(st.sampled_from([{}, {"type": "message"}]))
        return [{**head, "role": role, "content": draw(words)}]
    if kind == "input":
        head = {"type": "message", "role": draw(st.sampled_from(["user", "system", "developer"]))}
        return [{**head, "content": draw(st.lists(input_block, min_size=1, max_size=3)), **draw(unknown)}]
    if kind == "output":
        head = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        return [{**head, "content": draw(st.lists(output_block, max_size=3))}]
    if kind == "calls":
        return draw(_call_items(numbers))
    if kind == "reasoning":
        summary = draw(st.lists(words.map(lambda text: {"type": "summary_text", "text": text}), max_size=2))
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "gAAAA=="}
        return [thought, *draw(_items(draw(st.sampled_from(["reasoning", "output", "calls", "search"])), numbers))]
    if kind == "search":
        action = {"type": "search", "query": draw(words)}
        return [{"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": action}]
    if kind == "shell":
        return [{"type": "local_shell_call_output", "id": f"sh_{number}", "output": draw(words)}]
    return [{"type": "item_reference", "id": f"ref_{number}"}]


@st.composite
def _call_items(draw: st.DrawFn, numbers: Iterator[int]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        number = next(numbers)
        head = {"call_id": f"call_{number}", "name": "f", **draw(st.sampled_from([{}, {"id": f"fc_{number}"}]))}
        if draw(st.booleans()):
            calls.append({**head, "type": "function_call", "arguments": draw(arguments()), "status": "completed"})
        else:
            calls.append({**head, "type": "custom_tool_call", "input": draw(words | arguments())})
    between = draw(st.sampled_from([[], [{"role": "assistant", "content": "so"}]]))
    results = [
        {
            "type": f"{call['type'].removesuffix('_call')}_call_output",
            "call_id": call["call_id"],
            "output": draw(words | st.lists(input_block, max_size=2)),
        }
        for call in draw(st.permutations(calls))
    ]
    return [*calls, *between, *results]


# ── Anthropic ────────────────────────────────────────────────────────────────

cached = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])
claude_text = st.tuples(words.map(str.strip), cached, unknown).map(
    lambda each: {"type": "text", "text": each[0], **each[1], **each[2]}
)
claude_words = {"type": "text", "text": "x"}
claude_image = mixed(
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}, "title": "n"},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
)
claude_thought = mixed(
    words.map(lambda text: {"type": "thinking", "thinking": text, "signature": "sig=="}),
    {"type": "redacted_thinking", "data": "opaque=="},
)
_claude_reply = st.tuples(
    st.lists(claude_thought, max_size=2), claude_text, st.lists(claude_thought | claude_text, max_size=2)
).map(lambda each: [*each[0], each[1], *(each[2] if each[0] else []), claude_words])
"""What Claude says: a reply that holds thinking begins with it, and ends with something else."""


def searched(number: int) -> list[dict[str, Any]]:
    """Return what Claude asked a tool of the API's own, and what that found."""
    page = {"type": "web_search_result", "title": "t", "url": "https://x.test", "encrypted_content": "E=="}
    return [
        {"type": "server_tool_use", "id": f"srv_{number}", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": f"srv_{number}", "content": [page]},
    ]


@st.composite
def anthropic_payloads(draw: st.DrawFn) -> dict[str, Any]:
    """Return a request, at times with a block that the API may have one day."""
    numbers = itertools.count()
    waiting: list[str] = []
    messages: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, 5))):
        if index % 2 == 0:
            messages.append(draw(_claude_user(waiting)))
            waiting = []
        else:
            content: Any = draw(words.map(str.strip) | _claude_reply)
            if isinstance(content, list):
                content += searched(next(numbers)) if draw(st.booleans()) else []
                calls = [
                    {"type": "tool_use", "id": f"toolu_{next(numbers)}", "name": "f", "input": draw(objects)}
                    for _ in range(draw(st.integers(0, 3)))
                ]
                waiting = [call["id"] for call in calls]
                content = [*content, *calls]
                content += draw(st.sampled_from([[], [{"type": "hologram", "leafward_provider": {"name": "x"}}]]))
            messages.append({"role": "assistant", "content": content, **draw(unknown)})
    if waiting:
        messages.append(draw(_claude_user(waiting)))
    system = draw(st.just("") | words | st.lists(claude_text, min_size=1, max_size=2))
    return {"system": system, "messages": messages}


@st.composite
def _claude_user(draw: st.DrawFn, waiting: list[str]) -> dict[str, Any]:
    if not waiting:
        content = draw(words | st.lists(claude_text | claude_image, min_size=1, max_size=3))
        return {"role": "user", "content": content}
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call_id,
            **draw(
                st.sampled_from(
                    [{}, {"content": "18C"}, {"content": [{"type": "text", "text": "x"}], "is_error": True}]
                )
            ),
            **draw(cached),
        }
        for call_id in draw(st.permutations(waiting))
    ]
    return {"role": "user", "content": [*results, *draw(st.lists(claude_text, max_size=2))]}


# ── AI SDK ───────────────────────────────────────────────────────────────────


@st.composite
def ui_payloads(draw: st.DrawFn) -> list[dict[str, Any]]:
    numbers = itertools.count()
    return [draw(_ui_message(index, numbers)) for index in range(draw(st.integers(0, 4)))]


@st.composite
def _ui_message(draw: st.DrawFn, index: int, numbers: Iterator[int]) -> dict[str, Any]:
    plain = mixed(
        with_unknown(words.map(lambda text: {"type": "text", "text": text, "state": "done"})),
        words.map(lambda text: {"type": "reasoning", "text": text, "providerMetadata": {"x": {"y": 1}}}),
        {"type": "step-start"},
        {"type": "source-url", "sourceId": "s1", "url": "https://x.test"},
        {"type": "source-document", "sourceId": "s2", "mediaType": "application/pdf", "title": "t"},
        {"type": "file", "mediaType": "image/png", "url": "https://x.test/a.png", "filename": "a.png"},
        {"type": "data-weather", "id": "w", "data": {"c": 18}},
    )
    outcome = st.sampled_from(
        [
            {"state": "output-available", "output": {"c": 18}},
            {"state": "output-available", "output": None},
            {"state": "output-available", "output": "x", "preliminary": True},
            {"state": "output-error", "errorText": "no"},
            {"state": "output-denied", "approval": {"id": "a", "approved": False, "reason": "never"}},
            {"state": "approval-responded", "approval": {"id": "a", "approved": True}},
        ]
    )
    tool = st.tuples(objects, outcome, st.booleans()).map(
        lambda each: {
            **({"type": "dynamic-tool", "toolName": "f"} if each[2] else {"type": "tool-f"}),
            "toolCallId": f"call_{next(numbers)}",
            "input": each[0],
            **each[1],
        }
    )
    role = draw(st.sampled_from(["user", "assistant", "system"]))
    parts = draw(st.lists(plain | tool if role == "assistant" else plain, max_size=4))
    when = draw(
        st.sampled_from(
            [
                {},
                {"createdAt": "2026-11-15T12:00:00.000Z"},
                {"createdAt": "2026-11-15T12:00:00.000000Z"},
                {"createdAt": None},
            ]
        )
    )
    more = draw(st.sampled_from([{}, {"metadata": {"a": 1}}, {"metadata": None}, {"leafward_provider": 1}]))
    return {"id": f"m{index}", "role": role, "parts": parts, **when, **more, **draw(unknown)}


# ── AgentScope ───────────────────────────────────────────────────────────────


@st.composite
def agentscope_payloads(draw: st.DrawFn) -> list[dict[str, Any]]:
    numbers = itertools.count()
    payload: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, 4))):
        role = draw(st.sampled_from(["USER", "ASSISTANT", "SYSTEM"]))
        text = words.map(lambda text: {"type": "text", "text": text})
        media = st.sampled_from(
            [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}, "minPixels": 4},
                {"type": "audio", "source": {"type": "url", "url": "https://x.test/a.mp3", "mime_type": "audio/mpeg"}},
                {"type": "data", "source": {"type": "url", "url": "https://x.test/f.pdf"}, "id": "d1", "name": "f"},
            ]
        )
        thought = words.map(lambda text: {"type": "thinking", "thinking": text, "metadata": None})
        hint = st.just({"type": "hint", "id": "h1", "hint": "do it", "source": None})
        odd = st.just({"type": "zzz", "leafward_provider": 7})
        block = {"USER": text | media, "SYSTEM": text}.get(role, text | media | thought | hint | odd)
        content = draw(st.lists(block, max_size=3))
        calls: list[dict[str, Any]] = []
        if role == "ASSISTANT":
            calls = [draw(_scope_call(f"call_{next(numbers)}")) for _ in range(draw(st.integers(0, 2)))]
        inside, results = (
            draw(st.booleans()),
            [draw(_scope_result(call["id"])) for call in draw(st.permutations(calls))],
        )
        content += [*calls, *(results if inside else [])]
        payload.append(_msg(f"m{index}", role, content, draw(unknown)))
        if results and not inside and draw(st.booleans()):
            payload.append(_msg(f"t{index}", "TOOL", [*results, *draw(st.lists(text, max_size=1))], {}))
        elif results and not inside:
            payload += [_msg(f"t{index}_{place}", "TOOL", [result], {}) for place, result in enumerate(results)]
    return payload


def _msg(message_id: str, role: str, content: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": message_id,
        "name": "Assistant",
        "role": role,
        "content": content,
        "metadata": {"agentscope_generate_reason": "MODEL_STOP"},
        "timestamp": "2026-08-22 23:15:57.000",
        "usage": {"inputTokens": 10, "outputTokens": 5, "cachedTokens": 2, "time": 1.5, "totalTokens": 15},
        **more,
    }


@st.composite
def _scope_call(draw: st.DrawFn, call_id: str) -> dict[str, Any]:
    made = draw(objects)
    state = draw(st.sampled_from(["pending", "allowed", "finished"]))
    content = draw(st.sampled_from([None, json.dumps(made), '{"cut']))
    return {
        "type": "tool_use",
        "id": call_id,
        "name": "f",
        "input": {} if content == '{"cut' else made,
        "content": content,
        "metadata": {},
        "state": state,
    }


@st.composite
def _scope_result(draw: st.DrawFn, call_id: str) -> dict[str, Any]:
    output = draw(st.lists(words.map(lambda text: {"type": "text", "text": text}), max_size=2))
    state = draw(st.sampled_from(["success", "error", "denied", "interrupted"]))
    return {"type": "tool_result", "id": call_id, "name": None, "output": output, "metadata": {}, "state": state}
