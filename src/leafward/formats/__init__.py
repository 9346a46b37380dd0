"""Messages as other systems write them: OpenAI chat and Responses, Anthropic, AI SDK's `UIMessage`, AgentScope's `Msg`.

`to_*` takes messages, or what stands for one, and returns a payload: a list, or Anthropic's `{"system", "messages"}`.
`from_*` reads such a payload back. Nothing here changes what it is given, and nothing reads or writes anything.

Every call in a payload has exactly one result, where its reader looks for it. A call that was never answered gets a
stand-in that says so; a result whose call is missing becomes text. What a format has no place for is sent as text.
Two things are kept but not sent to others: reasoning that is encrypted for one provider, and bookkeeping that is not
content (states, signatures, metadata, times, where a format has no field for them).
"""

from leafward.formats.agentscope import from_agentscope, to_agentscope
from leafward.formats.anthropic import from_anthropic, to_anthropic
from leafward.formats.openai_chat import from_openai_chat, to_openai_chat
from leafward.formats.openai_responses import from_openai_responses, to_openai_responses
from leafward.formats.ui_messages import from_ui_messages, to_ui_messages

__all__ = [
    "from_agentscope",
    "from_anthropic",
    "from_openai_chat",
    "from_openai_responses",
    "from_ui_messages",
    "to_agentscope",
    "to_anthropic",
    "to_openai_chat",
    "to_openai_responses",
    "to_ui_messages",
]
