"""What a model yields while it answers: pieces of text, thinking and calls, then usage and the reason it stopped.

A provider's stream is mapped onto these. Blocks of a reply may arrive one after the other or mixed; an index tells
them apart. Without an index, a piece continues the newest block if that is of its kind, and begins a block otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from leafward.core.parts import Part

# Structs of msgspec, because one is made for each piece: a frozen dataclass takes ten times as long. Fields are JSON
# values, which have no cycles, so the garbage collector need not look at the pieces.


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the text that the user sees.

    `fields` are further keys of the part, such as citations; later ones replace earlier ones of the same name.
    """

    text: str = ""
    index: int | None = None
    fields: Mapping[str, Any] | None = None


class ThinkingDelta(Struct, frozen=True, gc=False):
    """A piece of the model's thinking.

    `fields` are further keys of the part, such as `signature`, or what only the provider can read. They may come
    without text.
    """

    text: str = ""
    index: int | None = None
    fields: Mapping[str, Any] | None = None


class CallDelta(Struct, frozen=True, gc=False):
    """A piece of a tool call: `id` and `name` are whole and come first, `arguments` are pieces of a JSON text.

    Without an index, a name begins another call. With an index, so does another id. A call without an id is given
    one.
    """

    arguments: str = ""
    name: str = ""
    id: str = ""
    index: int | None = None
    fields: Mapping[str, Any] | None = None


class BlockEnd(Struct, frozen=True):
    """The end of a block: the one with this index, or the newest.

    It may be left out. A call that has ended is complete, also if its arguments are empty or not JSON.
    """

    index: int | None = None


class WholePart(Struct, frozen=True):
    """A part that does not come in pieces: an image, a refusal, or a block that only its provider can read."""

    part: Part


class ModelUsage(Struct, frozen=True):
    """What a call of a model used so far; the last one of a stream counts.

    `input_tokens` are all tokens of the request, and `cached_tokens` those of them that came from the provider's
    cache. `cost` is `None` where no price is known.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cost: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as a message keeps it, in AgentScope's words, and with its cost if that is known."""
        found: dict[str, Any] = {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cachedTokens": self.cached_tokens,
            "totalTokens": self.input_tokens + self.output_tokens,
        }
        return found if self.cost is None else {**found, "cost": self.cost}


class Stop(Struct, frozen=True):
    """Why the model stopped.

    `reason` is `stop` (it has finished), `tool_calls`, `length` (the reply is cut off), `filtered` (refused or cut off
    by the provider), `paused` (it goes on if it is sent the conversation again), or a provider's word for anything
    else. `fields` are further keys of the message, such as the id that the provider gave the reply.
    """

    reason: str
    fields: Mapping[str, Any] | None = None


Delta = TextDelta | ThinkingDelta | CallDelta
ModelEvent = Delta | BlockEnd | WholePart | ModelUsage | Stop
