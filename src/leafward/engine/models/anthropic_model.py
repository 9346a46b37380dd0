"""Models of Anthropic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leafward.core.errors import ConfigurationError
from leafward.core.json import try_parse
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import (
    BlockEnd,
    CallDelta,
    ModelEvent,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)
from leafward.engine.models.sdk_model import Price, SdkModel, StreamReader, check_client, need_sdk
from leafward.formats import to_anthropic

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
    "pause_turn": "paused",
}


_KEYS = frozenset({"authorization", "x-api-key"})
"""The headers that a key is sent in."""


class AnthropicModel(SdkModel):
    """A model of Anthropic's.

        model = AnthropicModel("claude-sonnet-4-5", max_tokens=4_000, price=(3.0, 15.0))

    `client` is an `AsyncAnthropic` that exists already, and is not closed. Without it, `base_url` and `api_key` are
    those of the SDK, such as `ANTHROPIC_API_KEY`. `max_tokens` is the longest reply, which the API wants to know. All
    other options go to `messages.create`; those of a request win. The SDK does not ask again after an error, for the
    agent does. `price` is that of a million tokens of input and of output, tokens of the provider's cache included.

    Raises:
        ConfigurationError: the SDK is not installed, there is no key, or an option is wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        client: AsyncAnthropic | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        max_tokens: int = 8_192,
        price: Price | None = None,
        **options: Any,
    ) -> None:
        sdk = need_sdk("anthropic", type(self).__name__)
        # Those of the clouds are not derived from the first.
        clouds = (sdk.AsyncAnthropicBedrock, sdk.AsyncAnthropicBedrockMantle, sdk.AsyncAnthropicVertex)
        check_client(client, [sdk.AsyncAnthropic, *clouds], base_url=base_url, api_key=api_key)
        headers: Mapping[str, Any] = options.get("extra_headers") or {}

        def make() -> AsyncAnthropic:
            try:
                made: AsyncAnthropic = sdk.AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0)
            except sdk.AnthropicError as error:
                raise ConfigurationError(f"no key for {name!r}: {error}") from error
            if made.credentials is None and not _KEYS & {one.lower() for one in (*made.default_headers, *headers)}:
                # The SDK finds it out at the first call.
                raise ConfigurationError(
                    f"no key for {name!r}: set ANTHROPIC_API_KEY, or give api_key= (any text for a server without keys)"
                )
            return made

        super().__init__(name, sdk, client, make, price, {"max_tokens": max_tokens, **options})

    async def _ask(self, client: Any, options: dict[str, Any], request: ModelRequest) -> Any:
        asked: dict[str, Any] = {"model": self.name, **options}
        written = to_anthropic(request.messages)
        system = _system(request.system, written["system"])
        if system:
            asked["system"] = system
        tools = [*(asked.pop("tools", None) or ()), *request.tools.to_anthropic()]
        if tools:
            asked["tools"] = tools
        else:
            asked.pop("tool_choice", None)
            if known := _called(written["messages"]):
                # Calls in a conversation need their tools, also where the model may call none.
                asked |= {"tools": known, "tool_choice": {"type": "none"}}
        return await client.messages.create(**{**asked, "messages": written["messages"], "stream": True})

    def _reader(self) -> StreamReader:
        return _MessageReader(self.price)


def _system(prompt: str, said: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the prompt with what system messages say below it."""
    if isinstance(said, str):
        return "\n\n".join(text for text in (prompt, said) if text)
    return [{"type": "text", "text": prompt}, *said] if prompt else said


def _called(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a tool for each name that is called in a conversation."""
    blocks = [
        block
        for message in messages
        if isinstance(message["content"], list)
        for block in cast(list[dict[str, Any]], message["content"])
    ]
    names = dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


class _MessageReader(StreamReader):
    def __init__(self, price: Price | None) -> None:
        super().__init__(price)
        self._asked = self._cached = 0
        self._citations: dict[int, list[dict[str, Any]]] = {}
        self._inputs: dict[int, tuple[dict[str, Any], list[str]]] = {}
        """Calls of the API's own tools, with the pieces of their input."""

    def take(self, piece: Any) -> Sequence[ModelEvent]:
        match piece.type:
            case "content_block_delta":
                return self._grow(piece.index, piece.delta)
            case "content_block_start":
                return self._begin(piece.index, piece.content_block)
            case "content_block_stop":
                return self._end(piece.index)
            case "message_start":
                return [self._count(piece.message.usage)]
            case "message_delta":
                events: list[ModelEvent] = [] if piece.usage is None else [self._count(piece.usage)]
                reason: str = piece.delta.stop_reason or ""
                return [*events, Stop(_REASONS.get(reason, reason))] if reason else events
            case "message_stop":
                self.is_whole = True
            case _:
                pass
        return ()

    def _begin(self, index: int, block: Any) -> Sequence[ModelEvent]:
        if block.type == "text":
            return [TextDelta(block.text, index)] if block.text else ()
        if block.type == "thinking":
            return [ThinkingDelta(block.thinking or "", index)]
        fields: dict[str, Any] = block.model_dump(mode="json", exclude_unset=True)
        if block.type == "tool_use":
            kept = {key: value for key, value in fields.items() if key not in ("type", "id", "name", "input")}
            return [CallDelta("", block.name, block.id, index, kept or None)]
        if "input" in fields:
            self._inputs[index] = (fields, [])
            return ()
        return [WholePart(fields)]

    def _grow(self, index: int, delta: Any) -> Sequence[ModelEvent]:
        match delta.type:
            case "text_delta":
                return [TextDelta(delta.text, index)]
            case "input_json_delta":
                if index not in self._inputs:
                    return [CallDelta(delta.partial_json, index=index)]
                self._inputs[index][1].append(delta.partial_json)
            case "thinking_delta":
                return [ThinkingDelta(delta.thinking, index)]
            case "signature_delta":
                return [ThinkingDelta("", index, {"signature": delta.signature})]
            case "citations_delta":
                found = self._citations.setdefault(index, [])
                found.append(delta.citation.model_dump(mode="json", exclude_unset=True))
                return [TextDelta("", index, {"citations": list(found)})]
            case _:
                pass
        return ()

    def _end(self, index: int) -> Sequence[ModelEvent]:
        if index not in self._inputs:
            return [BlockEnd(index)]
        block, pieces = self._inputs.pop(index)
        read = try_parse("".join(pieces)) if pieces else None
        return [WholePart(block if read is None else {**block, "input": read[0]})]

    def _count(self, used: Any) -> ModelEvent:
        """Count tokens: what is sent at the end counts from the beginning, and may leave out the request."""
        if used.input_tokens is not None:
            self._cached = used.cache_read_input_tokens or 0
            self._asked = used.input_tokens + (used.cache_creation_input_tokens or 0) + self._cached
        return self.used(self._asked, used.output_tokens or 0, self._cached)
