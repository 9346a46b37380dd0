"""One part of every kind that we understand, and a few more."""

from __future__ import annotations

from typing import Any

Part = dict[str, Any]
PARTS: list[Part] = [
    {"type": "text", "text": "hello", "annotations": [{"type": "url_citation"}]},
    {"type": "refusal", "refusal": "no"},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "reasoning", "text": "hm", "id": "rs_1", "encrypted_content": "x", "summary": [{"text": "s"}]},
    {"type": "tool_use", "id": "c1", "name": "look", "input": {"w": 1}, "state": "asking"},
    {"type": "tool_call", "id": "c1", "name": "look", "input": {"w": 1}},
    {"type": "tool_result", "id": "c1", "name": "look", "output": [{"type": "text", "text": "x"}], "state": "success"},
    {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": True},
    {"type": "tool-look", "toolCallId": "c1", "state": "output-available", "input": {"w": 1}, "output": {"x": 1}},
    {"type": "tool-look", "toolCallId": "c1", "state": "output-error", "input": {"w": 1}, "errorText": "bad"},
    {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c1", "state": "input-available", "input": {"w": 1}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    {"type": "audio", "source": {"type": "base64", "media_type": "audio/wav", "data": "aGk="}},
    {
        "type": "file",
        "file": {"file_id": "file_1", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
    },
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk="}},
    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
    {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,aGk=", "detail": "sharp"}},
    {"type": "input_image", "image_url": "data:image/svg+xml;base64,aGk=", "detail": "high"},
    {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high"},
    {"type": "input_file", "file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"},
    {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,", "filename": "a.txt"},
    {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,aGk="}},
    {"type": "input_image", "image_url": "data:IMAGE/PNG;base64,aGk="},
    {"type": "image", "source": {"type": "base64", "media_type": "image/jpg", "data": "aGk="}},
    {"type": "file", "mediaType": "text/csv", "url": "data:text/csv;base64,aGk=", "filename": "a.csv"},
    {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "t"},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "hi"}]}},
    {"type": "document", "source": {"type": "content", "content": "hi"}},
    {"type": "search_result", "source": "https://x.test", "title": "t", "content": [{"type": "text", "text": "hi"}]},
    {"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}},
    {"type": "tool_reference", "tool_name": "look"},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "data", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
    {"type": "video", "source": {"type": "url", "url": "https://example.com/a.mp4"}},
    {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []},
]
