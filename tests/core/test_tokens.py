from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from leafward import Message, user
from leafward.core.tokens import MEDIA_TOKENS, MESSAGE_OVERHEAD, count_tokens, estimate_tokens
from leafward.formats import from_openai_responses, to_anthropic


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("hello world", 3), ("a" * 400, 100), ("word " * 50, 65), ("é" * 8, 2), ("🦊", 2), (" ", 1)],
)
def test_without_cjk_it_is_a_quarter_of_the_characters_or_more_for_short_words(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"), [("用户喜欢咖啡", 6), ("hello 世界", 4), ("한국어", 3), ("カタカナ", 4), ("𠀀", 1), ("a世b", 4)]
)
def test_cjk_counts_by_character(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_message_costs_four_and_its_parts() -> None:
    assert count_tokens(user("hello world")) == 7
    parts = [
        {"type": "thinking", "thinking": "hello world"},
        {"type": "reasoning", "text": "hello world"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "tool_use", "id": "1", "name": "n", "input": {"a": "b"}},
        {"type": "tool-x", "toolCallId": "2", "input": "hello world", "output": {"a": "b"}},
        {"type": "tool_result", "id": "1", "output": "hello world"},
        {"type": "hint", "hint": "hello world"},
        {"type": "step-start"},
    ]
    assert count_tokens(Message("assistant", parts)) == 4 + 3 + 3 + 2 + 3 + (3 + 3) + 3 + 3 + 0


def test_media_costs_the_same_whatever_its_bytes() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 100_000}}
    assert count_tokens(Message("user", [image])) == 4 + MEDIA_TOKENS
    shown = {"type": "tool_result", "id": "1", "output": [image, {"type": "text", "text": "x"}]}
    assert MEDIA_TOKENS < count_tokens(Message("tool", [shown])) < MEDIA_TOKENS + 50


@pytest.mark.parametrize("kind", ["data-chart", "source-url", "source-document", "step-start", "hologram"])
def test_what_no_model_is_sent_costs_no_tokens(kind: str) -> None:
    assert count_tokens(user([{"type": kind, "data": {"points": "1 2 3 " * 1000}}])) == 4


def test_what_goes_back_to_its_provider_whole_is_counted() -> None:
    search = {"type": "web_search_call", "id": "ws", "action": {"query": "the weather in Paris " * 50}}
    screen = {"type": "computer_call_output", "output": {"image_url": "data:image/png;base64," + "A" * 1_000_000}}
    said, seen = from_openai_responses([search, screen])

    assert count_tokens(said) > 250
    assert 1000 <= count_tokens(seen) < 1100


@pytest.mark.parametrize(
    "part",
    [
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "w " * 500}]},
        {"type": "redacted_thinking", "data": "x" * 2000},
        {"type": "server_tool_use", "id": "s", "name": "search", "input": {"query": "w " * 500}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "w " * 500}]}},
    ],
)
def test_what_anthropic_is_sent_is_counted(part: dict[str, Any]) -> None:
    assert count_tokens(Message("assistant", [part])) >= 250


def test_a_tokenizer_counts_texts_arguments_and_results_and_no_files() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA" * 100}}
    call = {"type": "tool_use", "id": "c", "name": "look", "input": {"q": "wind"}}
    result = {"type": "tool_result", "id": "c", "output": [{"type": "text", "text": "west"}, image]}
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 7

    message = Message("assistant", [{"type": "text", "text": "hello"}, call, result, image])

    assert count_tokens(message, count) == MESSAGE_OVERHEAD + 3 * 7 + 2 * MEDIA_TOKENS
    assert counted[:2] == ["hello", '{"q":"wind"}']
    assert "west" in counted[2]
    assert "AAAA" not in "".join(counted)


def test_a_text_document_in_a_result_is_counted_as_its_text() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}
    result = {"type": "tool_result", "id": "c", "output": [document]}

    assert count_tokens(Message("tool", [result])) < 20


WORDS = "hello world, this is text. " * 4_000
BASE64 = b64encode(WORDS.encode()).decode()
TEXT_FILES: list[dict[str, Any]] = [
    {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{BASE64}"},
    {"type": "file", "mediaType": "text/plain", "url": f"data:application/octet-stream;base64,{BASE64}"},
    {"type": "file", "mediaType": "text/plain", "url": f"data:;base64,{BASE64}"},
    {"type": "file", "url": f"data:TEXT/plain;base64,{BASE64}"},
    {"type": "file", "file": {"file_data": f"data:text/plain;base64,{BASE64}", "filename": "a.txt"}},
    {"type": "input_file", "file_data": f"data:text/plain;base64,{BASE64}", "filename": "a.txt"},
    {"type": "document", "source": {"type": "base64", "media_type": "text/plain; charset=utf-8", "data": BASE64}},
    {"type": "data", "source": {"type": "base64", "mime_type": "text/plain", "data": BASE64}},
    {"type": "document", "source": {"type": "url", "url": f"data:text/plain;base64,{BASE64}"}},
]


@pytest.mark.parametrize("part", TEXT_FILES, ids=lambda part: str(part)[:60])
def test_a_text_file_is_counted_as_its_text_in_every_dialect(part: dict[str, Any]) -> None:
    assert to_anthropic([Message("user", [part])])["messages"][0]["content"][0]["source"]["data"] == WORDS

    counted = count_tokens(Message("user", [part]))

    assert estimate_tokens(WORDS) * 0.98 < counted < estimate_tokens(WORDS) * 1.02


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "mediaType": "application/pdf", "url": f"data:text/plain;base64,{BASE64}"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain," + "a%20" * 40_000},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,a" + BASE64[:8]},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,"},
        {"type": "file", "mediaType": "text/plain", "url": "https://example.com/a.txt"},
    ],
    ids=lambda part: str(part)[:80],
)
def test_a_file_that_is_not_sent_as_text_is_counted_as_a_file(part: dict[str, Any]) -> None:
    assert count_tokens(Message("user", [part])) == MESSAGE_OVERHEAD + MEDIA_TOKENS


def test_a_text_file_in_chinese_is_counted_as_its_text() -> None:
    words = "你好世界" * 5_000
    url = f"data:text/plain;base64,{b64encode(words.encode()).decode()}"

    counted = count_tokens(Message("user", [{"type": "file", "mediaType": "text/plain", "url": url}]))

    assert estimate_tokens(words) * 0.98 < counted < estimate_tokens(words) * 1.02


def test_arguments_that_were_not_parsed_are_counted() -> None:
    call = {"type": "tool_call", "id": "c", "name": "look", "input": {}, "content": '{"q": "' + "wind " * 200}

    assert count_tokens(Message("assistant", [call])) > 200
