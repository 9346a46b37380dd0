"""A model on OpenAI's Responses, as a user would write it on the parts that ours are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openai

from leafward.engine import ModelEvent, ModelRequest, Stop
from leafward.engine.models.sdk_model import Price, SdkModel, StreamReader
from leafward.formats import to_openai_responses
from tests.engine.test_provider_streams import read_responses


class ResponsesModel(SdkModel):
    """A model of OpenAI's that is asked by `responses.create`."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        price: Price | None = None,
        **options: Any,
    ) -> None:
        def make() -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)

        super().__init__(name, openai, None, make, price, options)

    async def _ask(self, client: Any, options: dict[str, Any], request: ModelRequest) -> Any:
        tools = {"tools": request.tools.to_openai_responses()} if request.tools else {}
        system = {"instructions": request.system} if request.system else {}
        sent = to_openai_responses(request.messages)
        return await client.responses.create(
            model=self.name, input=sent, stream=True, store=False, **tools, **system, **options
        )

    def _reader(self) -> StreamReader:
        return _Reader(self.price)


class _Reader(StreamReader):
    def take(self, piece: Any) -> Sequence[ModelEvent]:
        if piece.type == "response.incomplete":
            self.is_whole = True
            return [Stop("length")]
        self.is_whole = self.is_whole or piece.type == "response.completed"
        return list(read_responses([piece.to_dict()]))
