"""A stand-in for a model's endpoint: it gives scripted replies, keeps requests, and refuses what the API would refuse.

It speaks OpenAI's chat completions, also streamed, and Anthropic's messages, as far as a loop with tools needs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple


class Call(NamedTuple):
    """The model asks for a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


Reply = str | list[Call]


@dataclass
class Stub:
    """The scripted replies that are left, and the requests so far."""

    url: str = ""
    script: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    breaks_after: int | None = None
    """How many chunks of a stream are sent before the connection breaks; `None` sends all."""


@contextmanager
def stub_endpoint() -> Generator[Stub]:
    """Serve on a free port for as long as the context lasts."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            serve = {"/v1/chat/completions": _openai, "/v1/messages": _anthropic}[self.path]
            stub.requests.append(request)
            try:
                status, body = 200, serve(request, stub.script.pop(0))
            except Refused as error:
                status, body = 400, {"error": {"type": "invalid_request_error", "message": str(error)}}
            if status == 200 and request.get("stream"):
                self._stream(_openai_chunks(body))
                return
            written = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def _stream(self, chunks: list[dict[str, Any]]) -> None:
            """Send chunks as events; one that breaks promised more bytes than it sends."""
            written = b"".join(
                b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks[: stub.breaks_after]
            )
            if stub.breaks_after is None:
                written += b"data: [DONE]\n\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(written) + (stub.breaks_after is not None)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


class Refused(ValueError):
    """The API would answer this request with an error."""


def _openai(request: dict[str, Any], reply: Reply) -> dict[str, Any]:
    _check_keys("request", request, {"model", "messages", "tools", "stream", "stream_options"})
    open_calls: list[str] = []
    for message in request["messages"]:
        keys = {"role", "content", *(("tool_call_id",) if message["role"] == "tool" else ("tool_calls", "name"))}
        _check_keys("message", message, keys | {"refusal", "annotations"})
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                raise Refused("a tool message answers a call of the message before it")
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            raise Refused(f"calls without a result: {open_calls}")
        open_calls += [call["id"] for call in message.get("tool_calls", [])]
    said: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    if isinstance(reply, str):
        said["content"] = reply
    else:
        said["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in reply
        ]
    finish = "stop" if isinstance(reply, str) else "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": said, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _openai_chunks(completion: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a completion in pieces: a text by word, a call by its name and then its arguments in two parts."""
    choice = completion["choices"][0]
    said = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", said["content"] or "")]
    for index, call in enumerate(said.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        first = {"name": call["function"]["name"], "arguments": arguments[:7]}
        deltas.append({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": first}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[7:]}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    return [completion | {"object": "chat.completion.chunk", "choices": [one], "usage": None} for one in choices]


def _anthropic(request: dict[str, Any], reply: Reply) -> dict[str, Any]:
    _check_keys("request", request, {"model", "max_tokens", "system", "messages", "tools"})
    asked: set[str] = set()
    for index, message in enumerate(request["messages"]):
        _check_keys("message", message, {"role", "content"})
        if message["role"] != ("user", "assistant")[index % 2]:
            raise Refused("user and assistant take turns, the user first")
        blocks: Sequence[dict[str, Any]] = [] if isinstance(message["content"], str) else message["content"]
        if {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"} != asked:
            raise Refused("every tool_use has its tool_result in the next message")
        asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if isinstance(reply, str):
        content: list[dict[str, Any]] = [{"type": "text", "text": reply, "citations": None}]
    else:
        content = [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in reply]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": "end_turn" if isinstance(reply, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _check_keys(what: str, given: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(given.keys() - known)
    if unknown:
        raise Refused(f"{what}: extra inputs are not permitted: {unknown}")
