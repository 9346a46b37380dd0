"""The models on the SDKs of providers, for tests that hold for each of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from leafward.engine import AnthropicModel, ModelEvent, ModelRequest, OpenAIChatModel
from tests.wire.responses_model import ResponsesModel
from tests.wire.server import Rendered, WireServer
from tests.wire.streams import Said, Used, chat, messages, responses

AnyModel = OpenAIChatModel | AnthropicModel | ResponsesModel


@dataclass(frozen=True)
class Provider:
    """A model's class, and how its provider writes."""

    name: str
    model: type[AnyModel]
    path: str
    render: Rendered
    cut_off: str
    """Its word for a reply that is too long."""

    @asynccontextmanager
    async def on(self, wire: WireServer, **options: Any) -> AsyncGenerator[AnyModel]:
        """Have a model that asks a server of ours."""
        async with self.model("m", base_url=wire.url + self.path, api_key="none", **options) as model:
            yield model

    def body(self, said: Sequence[Said]) -> bytes:
        """Return the whole stream of a reply."""
        return b"".join(self.render(said, Used(), None))


OPENAI = Provider("openai", OpenAIChatModel, "/v1", chat, "length")
ANTHROPIC = Provider("anthropic", AnthropicModel, "", messages, "max_tokens")
RESPONSES = Provider("responses", ResponsesModel, "/v1", responses, "max_output_tokens")
OURS = (OPENAI, ANTHROPIC)
"""Those whose models the library has."""
PROVIDERS = (*OURS, RESPONSES)


async def events_of(model: AnyModel, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]
