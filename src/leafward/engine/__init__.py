"""Who talks: the agent, its models and events, and components that save and restore themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.engine.ag_ui_stream import AgUiEvents as AgUiEvents
    from leafward.engine.ag_ui_stream import to_ag_ui as to_ag_ui
    from leafward.engine.agent import ReActAgent as ReActAgent
    from leafward.engine.agent_calls import PartialReasoning as PartialReasoning
    from leafward.engine.agent_calls import ShutdownState as ShutdownState
    from leafward.engine.budget import Budget as Budget
    from leafward.engine.events import AgentEvent as AgentEvent
    from leafward.engine.events import EventType as EventType
    from leafward.engine.hooks import ActingChunkEvent as ActingChunkEvent
    from leafward.engine.hooks import ErrorEvent as ErrorEvent
    from leafward.engine.hooks import Hook as Hook
    from leafward.engine.hooks import HookEvent as HookEvent
    from leafward.engine.hooks import PostActingEvent as PostActingEvent
    from leafward.engine.hooks import PostCallEvent as PostCallEvent
    from leafward.engine.hooks import PostReasoningEvent as PostReasoningEvent
    from leafward.engine.hooks import PostSummaryEvent as PostSummaryEvent
    from leafward.engine.hooks import PreActingEvent as PreActingEvent
    from leafward.engine.hooks import PreCallEvent as PreCallEvent
    from leafward.engine.hooks import PreReasoningEvent as PreReasoningEvent
    from leafward.engine.hooks import PreSummaryEvent as PreSummaryEvent
    from leafward.engine.hooks import ReasoningChunkEvent as ReasoningChunkEvent
    from leafward.engine.hooks import SummaryChunkEvent as SummaryChunkEvent
    from leafward.engine.memory import InMemoryMemory as InMemoryMemory
    from leafward.engine.memory import Memory as Memory
    from leafward.engine.middleware import AgentRequest as AgentRequest
    from leafward.engine.middleware import CallNext as CallNext
    from leafward.engine.middleware import Middleware as Middleware
    from leafward.engine.middleware import ToolRequest as ToolRequest
    from leafward.engine.models.anthropic_model import AnthropicModel as AnthropicModel
    from leafward.engine.models.model import ChatModel as ChatModel
    from leafward.engine.models.model import ModelRequest as ModelRequest
    from leafward.engine.models.model_error import ModelError as ModelError
    from leafward.engine.models.model_events import BlockEnd as BlockEnd
    from leafward.engine.models.model_events import CallDelta as CallDelta
    from leafward.engine.models.model_events import ModelEvent as ModelEvent
    from leafward.engine.models.model_events import ModelUsage as ModelUsage
    from leafward.engine.models.model_events import Stop as Stop
    from leafward.engine.models.model_events import TextDelta as TextDelta
    from leafward.engine.models.model_events import ThinkingDelta as ThinkingDelta
    from leafward.engine.models.model_events import WholePart as WholePart
    from leafward.engine.models.openai_chat_model import OpenAIChatModel as OpenAIChatModel
    from leafward.engine.models.reply import Reply as Reply
    from leafward.engine.permissions import Opinion as Opinion
    from leafward.engine.plan import Plan as Plan
    from leafward.engine.plan import PlanNotebook as PlanNotebook
    from leafward.engine.plan import SubTask as SubTask
    from leafward.engine.plan_mode import PlanMode as PlanMode
    from leafward.engine.questions import Question as Question
    from leafward.engine.shutdown import ShutdownManager as ShutdownManager
    from leafward.engine.shutdown import ShutdownSignals as ShutdownSignals
    from leafward.engine.shutdown import install_shutdown_signals as install_shutdown_signals
    from leafward.engine.state_module import StateModule as StateModule
    from leafward.engine.toolkit import Toolkit as Toolkit
    from leafward.engine.tracing import Tracing as Tracing
    from leafward.engine.ui_stream import UIMessageChunks as UIMessageChunks
    from leafward.engine.ui_stream import to_ui_stream as to_ui_stream
    from leafward.tools.runner import Outcome as Outcome
    from leafward.tools.runtime_context import RuntimeContext as RuntimeContext
    from leafward.tools.toolkit import ToolGroup as ToolGroup

_HOMES = {
    "leafward.engine.ag_ui_stream": ("AgUiEvents", "to_ag_ui"),
    "leafward.engine.agent": ("ReActAgent",),
    "leafward.engine.agent_calls": ("PartialReasoning", "ShutdownState"),
    "leafward.engine.budget": ("Budget",),
    "leafward.engine.events": ("AgentEvent", "EventType"),
    "leafward.engine.hooks": (
        "ActingChunkEvent",
        "ErrorEvent",
        "Hook",
        "HookEvent",
        "PostActingEvent",
        "PostCallEvent",
        "PostReasoningEvent",
        "PostSummaryEvent",
        "PreActingEvent",
        "PreCallEvent",
        "PreReasoningEvent",
        "PreSummaryEvent",
        "ReasoningChunkEvent",
        "SummaryChunkEvent",
    ),
    "leafward.engine.memory": ("InMemoryMemory", "Memory"),
    "leafward.engine.middleware": (
        "AgentRequest",
        "CallNext",
        "Middleware",
        "ToolRequest",
    ),
    "leafward.engine.models.anthropic_model": ("AnthropicModel",),
    "leafward.engine.models.model": ("ChatModel", "ModelRequest"),
    "leafward.engine.models.model_error": ("ModelError",),
    "leafward.engine.models.model_events": (
        "BlockEnd",
        "CallDelta",
        "ModelEvent",
        "ModelUsage",
        "Stop",
        "TextDelta",
        "ThinkingDelta",
        "WholePart",
    ),
    "leafward.engine.models.openai_chat_model": ("OpenAIChatModel",),
    "leafward.engine.models.reply": ("Reply",),
    "leafward.engine.permissions": ("Opinion",),
    "leafward.engine.plan": ("Plan", "PlanNotebook", "SubTask"),
    "leafward.engine.plan_mode": ("PlanMode",),
    "leafward.engine.questions": ("Question",),
    "leafward.engine.shutdown": ("ShutdownManager", "ShutdownSignals", "install_shutdown_signals"),
    "leafward.engine.state_module": ("StateModule",),
    "leafward.engine.toolkit": ("Toolkit",),
    "leafward.engine.tracing": ("Tracing",),
    "leafward.tools.runner": ("Outcome",),
    "leafward.engine.ui_stream": ("UIMessageChunks", "to_ui_stream"),
    "leafward.tools.runtime_context": ("RuntimeContext",),
    "leafward.tools.toolkit": ("ToolGroup",),
}

__all__ = [
    "ActingChunkEvent",
    "AgUiEvents",
    "AgentEvent",
    "AgentRequest",
    "AnthropicModel",
    "BlockEnd",
    "Budget",
    "CallDelta",
    "CallNext",
    "ChatModel",
    "ErrorEvent",
    "EventType",
    "Hook",
    "HookEvent",
    "InMemoryMemory",
    "Memory",
    "Middleware",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "ModelUsage",
    "OpenAIChatModel",
    "Opinion",
    "Outcome",
    "Plan",
    "PlanMode",
    "PlanNotebook",
    "PostActingEvent",
    "PostCallEvent",
    "PostReasoningEvent",
    "PostSummaryEvent",
    "PreActingEvent",
    "PreCallEvent",
    "PreReasoningEvent",
    "PreSummaryEvent",
    "Question",
    "ReActAgent",
    "ReasoningChunkEvent",
    "Reply",
    "RuntimeContext",
    "ShutdownManager",
    "ShutdownSignals",
    "ShutdownState",
    "StateModule",
    "Stop",
    "SubTask",
    "SummaryChunkEvent",
    "TextDelta",
    "ThinkingDelta",
    "ToolGroup",
    "ToolRequest",
    "Toolkit",
    "Tracing",
    "UIMessageChunks",
    "WholePart",
    "install_shutdown_signals",
    "to_ag_ui",
    "to_ui_stream",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
