"""Models of OpenAI, and of every server that speaks its chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leafward.core.errors import ConfigurationError
from leafward.core.openai_messages import NAME, REASONING
from leafward.core.provider_extras import ORIGIN, with_rest
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import CallDelta, ModelEvent, Stop, TextDelta, ThinkingDelta, WholePart
from leafward.engine.models.sdk_model import Price, SdkModel, StreamReader, check_client, need_sdk
from leafward.formats import to_openai_chat

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_REASONS = {"content_filter": "filtered"}


class OpenAIChatModel(SdkModel):
    """A model of OpenAI's, or of a server that speaks its chat API (`base_url`).

        model = OpenAIChatModel("gpt-4.1", price=(2.0, 8.0), temperature=0)

    `client` is an `AsyncOpenAI` that exists already, and is not closed. Without it, `base_url` and `api_key` are those
    of the SDK, such as `OPENAI_API_KEY`. All other options go to `chat.completions.create`; those of a request win. The
    SDK does not ask again after an error, for the agent does. `price` is that of a million tokens of input and of
    output, tokens from the provider's cache included.

    Raises:
        ConfigurationError: the SDK is not installed, there is no key, or an option is wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        price: Price | None = None,
        **options: Any,
    ) -> None:
        sdk = need_sdk("openai", type(self).__name__)
        check_client(client, [sdk.AsyncOpenAI], base_url=base_url, api_key=api_key)

        def make() -> AsyncOpenAI:
            try:
                return sdk.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
            except sdk.OpenAIError as error:
                raise ConfigurationError(
                    f"no key for {name!r}: set OPENAI_API_KEY, or give api_key= (any text for a server without keys)"
                ) from error

        super().__init__(name, sdk, client, make, price, options)

    async def _ask(self, client: Any, options: dict[str, Any], request: ModelRequest) -> Any:
        asked: dict[str, Any] = {"model": self.name, "stream_options": {"include_usage": True}, **options}
        if asked["stream_options"] is None:
            # For servers that refuse it.
            del asked["stream_options"]
        tools = [*(asked.pop("tools", None) or ()), *request.tools.to_openai()]
        if tools:
            asked["tools"] = tools
        else:
            # A request without tools may not have them.
            asked.pop("tool_choice", None)
            asked.pop("parallel_tool_calls", None)
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, *to_openai_chat(request.messages)]
        return await client.chat.completions.create(**{**asked, "messages": messages, "stream": True})

    def _reader(self) -> StreamReader:
        return _ChatReader(self.price)


class _ChatReader(StreamReader):
    def __init__(self, price: Price | None) -> None:
        super().__init__(price)
        self._thinks_in = ""
        """The field that reasoning comes in; servers have two names for it."""
        self._refusal = ""

    def take(self, piece: Any) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        for choice in piece.choices or ():
            # Of several answers, the first.
            if not choice.index:
                if choice.delta is not None:
                    self._grow(choice.delta, events)
                if choice.finish_reason:
                    self._finish(choice.finish_reason, events)
        used = piece.usage
        if used is not None:
            details = used.prompt_tokens_details
            cached = (details and details.cached_tokens) or 0
            events.append(self.used(used.prompt_tokens or 0, used.completion_tokens or 0, cached))
        return events

    def _grow(self, delta: Any, events: list[ModelEvent]) -> None:
        if delta.model_extra:
            self._think(delta.model_extra, events)
        if delta.content:
            events.append(TextDelta(delta.content))
        if delta.refusal:
            self._refusal += delta.refusal
        for call in delta.tool_calls or ():
            named = call.function
            # What belongs to the call and is sent back with it, such as Gemini's signature.
            kept = {ORIGIN: {"name": NAME, "rest": {"fields": call.model_extra}}} if call.model_extra else None
            arguments, name = (named.arguments or "", named.name or "") if named is not None else ("", "")
            events.append(CallDelta(arguments, name, call.id or "", call.index, kept))

    def _think(self, extra: dict[str, Any], events: list[ModelEvent]) -> None:
        for field in (self._thinks_in,) if self._thinks_in else REASONING:
            text = extra.get(field)
            if isinstance(text, str) and text:
                kept = None if self._thinks_in else with_rest({}, NAME, {"field": field})
                self._thinks_in = field
                events.append(ThinkingDelta(text, fields=kept))
                return

    def _finish(self, reason: str, events: list[ModelEvent]) -> None:
        if self._refusal:
            part = with_rest({"type": "refusal", "refusal": self._refusal}, NAME, {"field": "refusal"})
            events.append(WholePart(part))
            self._refusal = ""
        events.append(Stop(_REASONS.get(reason, reason)))
        # Usage comes behind it, but not from every server.
        self.is_whole = True
