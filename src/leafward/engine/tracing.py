"""Traces of calls, questions to the model and tools, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from leafward.core.errors import ConfigurationError
from leafward.engine.events import AgentEvent
from leafward.engine.middleware import AgentRequest, CallNext, Middleware, ToolRequest
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import ModelEvent, ModelUsage, Stop
from leafward.engine.reply_reason import REASON
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider


class Tracing(Middleware):
    """Makes spans of calls (`invoke_agent`), of attempts to ask the model (`chat`) and of tools (`execute_tool`).

    It needs `opentelemetry-api`, by `leafward[otel]`; where the spans go is up to OpenTelemetry's SDK, as the program
    has set it up, or to `tracer_provider`. `provider` is the name of the model's provider, such as `openai`. Spans have
    names, ids, usage and errors, and nothing of what was said. Put it first among the middlewares: then the time of the
    others counts, too.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, *, provider: str | None = None, tracer_provider: TracerProvider | None = None) -> None:
        try:
            self._otel: Any = import_module("opentelemetry.trace")
            self._contexts: Any = import_module("opentelemetry.context")
        except ImportError as error:
            raise ConfigurationError(
                "Tracing needs opentelemetry, which is not installed: pip install 'leafward[otel]'"
            ) from error
        self._provider = provider
        self._tracer = self._otel.get_tracer("leafward", tracer_provider=tracer_provider)
        self._calls: dict[int, tuple[Span, AgentRequest]] = {}
        """The spans of the calls that run, by the identity of their states."""

    async def on_agent(
        self, ctx: RuntimeContext, request: AgentRequest, call_next: CallNext[AgentRequest, AgentEvent]
    ) -> AsyncGenerator[AgentEvent]:
        span = self._start(
            f"invoke_agent {request.agent_name}",
            "invoke_agent",
            ctx,
            {
                "gen_ai.agent.name": request.agent_name,
                "gen_ai.agent.id": request.agent_id,
                "gen_ai.request.model": request.model_name,
            },
        )
        key = id(ctx.agent_state)
        self._calls[key] = (span, request)
        try:
            async for event in call_next(request):
                if event.type == "AGENT_RESULT" and event.message is not None:
                    reason = (event.message.metadata or {}).get(REASON)
                    _set(span, "gen_ai.response.finish_reasons", [str(reason).lower() if reason else "stop"])
                yield event
        except BaseException as error:
            self._fail(span, error)
            raise
        finally:
            del self._calls[key]
            span.end()

    async def on_model_call(
        self, ctx: RuntimeContext, request: ModelRequest, call_next: CallNext[ModelRequest, ModelEvent]
    ) -> AsyncGenerator[ModelEvent]:
        call = self._calls.get(id(ctx.agent_state))
        model = str(request.options.get("model") or (call[1].model_name if call else ""))
        attributes = {"gen_ai.request.model": model, "gen_ai.output.type": "text"}
        span = self._start(f"chat {model}".strip(), "chat", ctx, attributes, is_client=True)
        usage: ModelUsage | None = None
        try:
            events = call_next(request)
            # What the model's own client traces while it sends the request belongs to this span.
            token = self._contexts.attach(self._otel.set_span_in_context(span))
            try:
                event: ModelEvent | None = await anext(events, None)
            finally:
                self._contexts.detach(token)
            if event is not None:
                usage = _seen(span, event) or usage
                yield event
            async for event in events:
                if isinstance(event, ModelUsage | Stop):
                    usage = _seen(span, event) or usage
                yield event
        except BaseException as error:
            self._fail(span, error)
            raise
        finally:
            if usage is not None:
                _set(span, "gen_ai.usage.input_tokens", usage.input_tokens)
                _set(span, "gen_ai.usage.output_tokens", usage.output_tokens)
                _set(span, "gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
            span.end()

    async def on_acting(
        self, ctx: RuntimeContext, request: ToolRequest, call_next: CallNext[ToolRequest, Outcome]
    ) -> AsyncGenerator[Outcome]:
        attributes = {
            "gen_ai.tool.name": request.name,
            "gen_ai.tool.call.id": request.call_id,
            "gen_ai.tool.type": "function",
        }
        span = self._start(f"execute_tool {request.name}", "execute_tool", ctx, attributes)
        # In the task of this call alone: what the tool traces belongs to this span, a sub-agent's call as well.
        token = self._contexts.attach(self._otel.set_span_in_context(span))
        try:
            async for outcome in call_next(request):
                if outcome.state == "error":
                    self._fail(span, outcome.error)
                yield outcome
        except BaseException as error:
            self._fail(span, error)
            raise
        finally:
            self._contexts.detach(token)
            span.end()

    def _start(
        self, name: str, operation: str, ctx: RuntimeContext, attributes: dict[str, str], *, is_client: bool = False
    ) -> Span:
        call = self._calls.get(id(ctx.agent_state))
        # Pieces of a call may be read by several tasks, so its span is not the current one of any.
        parent: Context | None = None if call is None else self._otel.set_span_in_context(call[0])
        kind = self._otel.SpanKind.CLIENT if is_client else self._otel.SpanKind.INTERNAL
        span: Span = self._tracer.start_span(name, context=parent, kind=kind)
        given = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._provider,
            "gen_ai.conversation.id": ctx.session_id,
            **attributes,
        }
        for key, value in given.items():
            if value:
                span.set_attribute(key, value)
        return span

    def _fail(self, span: Span, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Exception):
            # Stopped, cancelled or left: that is no error of the work.
            _set(span, "error.type", "cancelled")
            return
        kind = "tool_error" if error is None else type(error).__qualname__
        _set(span, "error.type", kind)
        # The text of an error may repeat what was said.
        span.set_status(self._otel.Status(self._otel.StatusCode.ERROR, kind))


def _set(span: Span, key: str, value: Any) -> None:
    span.set_attribute(key, value)


def _seen(span: Span, event: ModelEvent) -> ModelUsage | None:
    """Return the usage that an event brings; why the model stopped is put into the span."""
    if isinstance(event, Stop):
        _set(span, "gen_ai.response.finish_reasons", [event.reason])
    return event if isinstance(event, ModelUsage) else None
