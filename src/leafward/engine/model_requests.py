"""What a model is asked in one round of a turn: conversation, prompt and tools, and words that are never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable

from leafward.core.agent_state import AgentState
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message, user
from leafward.engine.middleware_chain import name_of
from leafward.engine.models.model import ModelRequest
from leafward.engine.paired_requests import paired
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext

PromptPart = Callable[[RuntimeContext], str | Awaitable[str]]
"""Returns a part of the system prompt for one request; empty for none."""
PromptStep = Callable[[RuntimeContext, str], str | Awaitable[str]]
"""Returns the system prompt of one request, made of the one it is given."""
Reminder = Callable[[AgentState], str | None]
"""Returns words that a model is shown behind the conversation, in one request only."""

_CUT_OFF = "Your reply was cut off. Go on where it ended."


@dataclass(frozen=True, slots=True)
class ModelRequests:
    """Makes the requests of an agent's turns."""

    system_prompt: str = ""
    parts: Sequence[PromptPart] = ()
    """What is added below the system prompt, in this order."""
    reminders: Sequence[Reminder] = ()
    prompts: Sequence[PromptStep] = ()
    """What makes of the whole prompt another one, in this order."""

    def make(
        self,
        context: Sequence[Message],
        ctx: RuntimeContext,
        *,
        prompt: str,
        tools: Mapping[str, Tool],
        reminder: str | None = None,
        is_paused: bool = False,
    ) -> ModelRequest:
        """Return the request of one round, with the prompt that was made for it; `reminder` comes last.

        With `is_paused` the provider paused in the last reply. It goes on with that reply only if nothing comes behind.
        """
        messages = paired(context)
        if reminder is None and messages and messages[-1].role == "assistant":
            if is_paused:
                return ModelRequest(messages, list(tools.values()), prompt)
            reminder = _CUT_OFF
        shown = (words for one in self.reminders if (words := one(ctx.agent_state)))
        messages += map(user, shown)
        if reminder is not None:
            messages.append(user(reminder))
        return ModelRequest(messages, list(tools.values()), prompt)

    async def prompt(self, ctx: RuntimeContext) -> str:
        """Return the system prompt with its parts."""
        said = [self.system_prompt]
        for part in self.parts:
            found = part(ctx)
            said.append(await found if isawaitable(found) else found)
        prompt = "\n\n".join(words for words in said if words)
        for step in self.prompts:
            changed = step(ctx, prompt)
            prompt = await changed if isawaitable(changed) else changed
            if not isinstance(prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (users write it)
                raise ConfigurationError(f"{name_of(step)} returned {prompt!r}: return the system prompt, a text")
        return prompt
