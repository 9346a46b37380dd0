"""The events of an agent's stream, in AgentScope's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert

from leafward.core.json import Plain
from leafward.core.message import Message, own_copy
from leafward.engine.models.model_events import ModelUsage

EventType = Literal[
    "AGENT_START",
    "AGENT_RESULT",
    "AGENT_END",
    "MODEL_CALL_START",
    "MODEL_CALL_END",
    "TEXT_BLOCK_START",
    "TEXT_BLOCK_DELTA",
    "TEXT_BLOCK_END",
    "THINKING_BLOCK_START",
    "THINKING_BLOCK_DELTA",
    "THINKING_BLOCK_END",
    "DATA_BLOCK_START",
    "DATA_BLOCK_DELTA",
    "DATA_BLOCK_END",
    "TOOL_CALL_START",
    "TOOL_CALL_DELTA",
    "TOOL_CALL_END",
    "TOOL_RESULT_START",
    "TOOL_RESULT_TEXT_DELTA",
    "TOOL_RESULT_DATA_DELTA",
    "TOOL_RESULT_END",
    "EXCEED_MAX_ITERS",
    "REQUIRE_USER_CONFIRM",
    "USER_CONFIRM_RESULT",
    "REQUIRE_EXTERNAL_EXECUTION",
    "EXTERNAL_EXECUTION_RESULT",
    "REQUEST_STOP",
    "SUBAGENT_EXPOSED",
    "HINT_BLOCK",
    "ALL_TOOLS_DENIED",
    "CUSTOM",
]
"""AgentScope's types of events."""

_KEYS = (
    ("reply_id", "replyId"),
    ("block_id", "blockId"),
    ("call_id", "toolCallId"),
    ("stop_reason", "finishReason"),
    ("state", "state"),
    ("discarded", "discarded"),
    ("committed", "committed"),
)
"""Fields that are written as they are, and AgentScope's names of them."""
_USAGE = (
    ("input_tokens", "inputTokens"),
    ("output_tokens", "outputTokens"),
    ("cached_tokens", "cachedTokens"),
    ("cost", "cost"),
)


# A Struct of msgspec, because one is made for each piece: a frozen dataclass takes ten times as long. What it holds are
# JSON values and messages, which lead to no cycle, so the garbage collector need not look at it.
class AgentEvent(Struct, frozen=True, gc=False):
    """Something that happened in a turn; which fields are set depends on `type`.

    What a model or a tool sends while it works is provisional: a failed attempt is followed by `MODEL_CALL_END` with
    `discarded`, and nothing of it is stored. An event with `committed` shows what is stored.
    """

    type: EventType
    reply_id: str = ""
    """The id of the assistant's message that this is about, also before that is stored."""
    block_id: str = ""
    """Which block of that message."""
    text: str = ""
    """The piece that a delta brings: of text, of thinking, of a call's arguments, of a tool's result."""
    call_id: str = ""
    name: str = ""
    """The name of the tool, or of the agent."""
    message: Message | None = None
    usage: ModelUsage | None = None
    stop_reason: str = ""
    state: str = ""
    """How a tool ended: `success`, `error`, `denied`, `interrupted`."""
    data: Any = None
    """A JSON value that has no other field: a whole part, the calls that are asked about, what `CUSTOM` brings."""
    discarded: bool = False
    """Whether all that was streamed of this reply counts for nothing."""
    committed: bool = False
    """Whether what the event shows is stored."""

    @property
    def provisional(self) -> bool:
        """Whether what the event shows may still be discarded."""
        return not self.committed

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values, under AgentScope's names; fields that are not set are left out."""
        found: dict[str, Any] = {"type": self.type}
        for field, key in _KEYS:
            value: object = getattr(self, field)
            if value:
                found[key] = value
        if self.text:
            # A provider may cut a text in the middle of a character.
            found["delta"] = Plain().text(self.text)
        if self.name:
            found["toolCallName" if self.type.startswith("TOOL_") else "name"] = self.name
        if self.message is not None:
            found["message"] = self.message.to_dict()
        if self.usage is not None:
            found["usage"] = self.usage.to_dict()
        if self.data is not None:
            found["data"] = self.data
        return found

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> AgentEvent:
        """Return the event that `to_dict` wrote; keys that it does not write are left out.

        Raises:
            ValueError: it is not an event.
        """
        found = {field: value[key] for field, key in _KEYS if key in value}
        found["type"] = value.get("type")
        found["text"] = value.get("delta", "")
        found["name"] = value.get("toolCallName", value.get("name", ""))
        found["data"] = value.get("data")
        try:
            if "message" in value:
                found["message"] = Message.from_dict(value["message"])
            if "usage" in value:
                found["usage"] = {field: value["usage"][key] for field, key in _USAGE if key in value["usage"]}
            return convert(found, cls)
        except (TypeError, ValueError, ValidationError) as error:
            raise ValueError(f"it is not an event of an agent: {error}") from error


def input_event(message: Message) -> AgentEvent:
    """Return the event of a message that joined a turn, and is stored."""
    return AgentEvent("CUSTOM", name="input", message=own_copy(message), committed=True)
