"""Traces: which spans a call makes, how they hang together, and what they say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leafward import ConfigurationError, ReActAgent, RuntimeContext, open_store, tool
from leafward.engine import ModelError, ModelRequest, ModelUsage, Stop, Tracing
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


class Spans:
    """What was traced."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def tracing(self) -> Tracing:
        return Tracing(provider="openai", tracer_provider=self.provider)

    @property
    def ended(self) -> list[ReadableSpan]:
        """All spans in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def tree(self) -> list[str]:
        """Return the names of all spans, each below that of its parent."""
        names = {span.context.span_id: span.name for span in self.ended if span.context}
        return [
            f"{names.get(span.parent.span_id, '?')} > {span.name}" if span.parent else span.name for span in self.ended
        ]

    def __getitem__(self, name: str) -> ReadableSpan:
        return next(span for span in self.ended if span.name == name)


def agent(store: Store, spans: Spans, script: Any, tools: Any = (), name: str = "cook") -> ReActAgent:
    model = ScriptedModel(script)
    model.name = "gpt-test"  # pyright: ignore[reportAttributeAccessIssue]
    return ReActAgent(name, model, store=store, tools=tools, middlewares=[spans.tracing()])


async def test_a_call_makes_spans_of_itself_its_model_and_its_tools(store: Store) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    spans = Spans()
    cook = agent(
        store, spans, [[call("add", {"a": 1, "b": 2}, id="c1")], ["Three.", ModelUsage(30, 5, 20), Stop("stop")]], [add]
    )

    await cook.call("Add.", ALICE)

    above = "invoke_agent cook"
    assert spans.tree() == [
        above,
        *(f"{above} > {name}" for name in ("chat gpt-test", "execute_tool add", "chat gpt-test")),
    ]
    assert dict(spans[above].attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "cook",
        "gen_ai.agent.id": "cook",
        "gen_ai.request.model": "gpt-test",
        "gen_ai.response.finish_reasons": ("stop",),
    }
    chat = dict(spans.ended[-1].attributes or {})
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": "gpt-test",
        "gen_ai.output.type": "text",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 20,
    }
    assert spans.ended[-1].kind is trace.SpanKind.CLIENT
    assert dict(spans["execute_tool add"].attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "s1",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }


async def test_calls_of_one_agent_at_once_have_a_trace_each(store: Store) -> None:
    async def think(request: ModelRequest) -> str:
        await asyncio.sleep(0.01)
        return "Hi."

    spans = Spans()
    cook = agent(store, spans, think)
    # The same context object, as a program may keep one.
    await asyncio.gather(*(cook.call("Hi", RuntimeContext("alice", f"s{number}")) for number in range(5)))

    traces: dict[int, list[Any]] = {}
    for span in spans.ended:
        assert span.context is not None
        traces.setdefault(span.context.trace_id, []).append((span.attributes or {})["gen_ai.conversation.id"])
    assert sorted(traces.values()) == [[f"s{number}"] * 2 for number in range(5)]


async def test_what_a_tool_and_a_caller_trace_themselves_is_in_the_same_trace(store: Store) -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("program")
    helper = agent(store, spans, ["Found."], name="helper")

    @tool
    async def research(ctx: RuntimeContext) -> str:
        """Find out."""
        with tracer.start_as_current_span("look up"):
            return (await helper.call("Find out", ctx.child("research"))).text

    async def think(request: ModelRequest) -> Any:
        with tracer.start_as_current_span("http"):
            return [call("research", {}, id="c1")] if len(request.messages) == 1 else "Done."

    with tracer.start_as_current_span("request"):
        await agent(store, spans, think, [research]).call("Go.", ALICE)

    assert spans.tree() == [
        "request",
        "request > invoke_agent cook",
        "invoke_agent cook > chat gpt-test",
        "chat gpt-test > http",
        "invoke_agent cook > execute_tool research",
        "execute_tool research > look up",
        "look up > invoke_agent helper",
        "invoke_agent helper > chat gpt-test",
        "invoke_agent cook > chat gpt-test",
        "chat gpt-test > http",
    ]


async def test_failed_attempts_and_tools_are_marked_and_say_nothing_of_what_was_said(store: Store) -> None:
    @tool
    async def burn() -> None:
        """Burn."""
        raise ValueError("the secret recipe")

    spans = Spans()
    script = [ModelError("busy", temporary=True, retry_after=0), [call("burn", {}, id="c1")], ModelError("no power")]
    with pytest.raises(ModelError):
        await agent(store, spans, script, [burn]).call("Cook.", ALICE)

    failed = [(span.name, (span.attributes or {}).get("error.type")) for span in spans.ended]
    assert failed == [
        ("invoke_agent cook", "ModelError"),
        ("chat gpt-test", "ModelError"),
        ("chat gpt-test", None),
        ("execute_tool burn", "ValueError"),
        ("chat gpt-test", "ModelError"),
    ]
    assert [span.status.is_ok for span in spans.ended] == [False, False, True, False, False]
    assert not any(word in span.to_json() for span in spans.ended for word in ("secret", "Cook.", "no power"))


@pytest.mark.parametrize("how", ["interrupt", "cancel", "leave"])
async def test_a_call_that_is_stopped_ends_its_spans(store: Store, how: str) -> None:
    asked = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "late"

    spans = Spans()
    cook = agent(store, spans, [["Half ", think]])
    if how == "leave":
        events = cook.stream("Hi", ALICE)
        async for event in events:
            if event.type == "TEXT_BLOCK_DELTA":
                break
        await events.aclose()
    else:
        task = asyncio.create_task(cook.call("Hi", ALICE))
        await asked.wait()
        if how == "interrupt":
            await cook.interrupt("alice", "s1")
        else:
            task.cancel()
        await asyncio.wait((task,))

    assert spans.tree() == ["invoke_agent cook", "invoke_agent cook > chat gpt-test"]
    call_span, chat = spans.ended
    assert (chat.attributes or {})["error.type"] == "cancelled"
    if how == "interrupt":
        assert (call_span.attributes or {})["gen_ai.response.finish_reasons"] == ("interrupted",)
    assert all(span.status.is_unset for span in spans.ended)


def test_without_opentelemetry_tracing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'leafward\[otel\]'"):
        Tracing()
