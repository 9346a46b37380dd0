"""When an agent compacts a conversation, and how much of it stays."""

from __future__ import annotations

from dataclasses import dataclass

from leafward.core.compaction_plan import SMALLEST_THRESHOLD
from leafward.core.errors import ConfigurationError
from leafward.engine.agent_options import check_count, check_model
from leafward.engine.models.model import ChatModel


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """An agent lays a summary over the older messages of a conversation that has become too long.

    It is looked at before each request to the model: the conversation has `trigger_messages` messages or more, or takes
    `trigger_tokens` or more with the prompt and the tools. `None` switches a trigger off. The newest `keep_messages`
    stay, or with `keep_tokens` the newest that fit into it, at most half of `trigger_messages`. With `trigger_tokens`,
    what stays takes at most half of that, and large results of tools are shown shortened. The summary is written by
    `model`, by default the agent's own.

    Raises:
        ConfigurationError: an option is wrong.
    """

    trigger_messages: int | None = 50
    trigger_tokens: int | None = None
    keep_messages: int = 20
    keep_tokens: int | None = None
    model: ChatModel | None = None

    def __post_init__(self) -> None:
        if self.trigger_messages is None and self.trigger_tokens is None:
            raise ConfigurationError("a compaction has a trigger: give trigger_messages, trigger_tokens, or both")
        if self.trigger_messages is not None:
            check_count("trigger_messages", self.trigger_messages, "messages", least=3)
        if self.trigger_tokens is not None:
            check_count("trigger_tokens", self.trigger_tokens, "tokens", least=SMALLEST_THRESHOLD)
        check_count("keep_messages", self.keep_messages, "messages", least=1)
        if self.keep_tokens is not None:
            check_count("keep_tokens", self.keep_tokens, "tokens", least=1)
        elif self.trigger_messages is not None and self.keep_messages >= self.trigger_messages - 1:
            raise ConfigurationError(
                f"keep_messages={self.keep_messages} leaves nothing to summarise at "
                f"trigger_messages={self.trigger_messages}: keep at least two fewer"
            )
        if self.model is not None:
            check_model(self.model)
