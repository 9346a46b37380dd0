"""One piece of a stream by OpenAI's SDK alone, and through `OpenAIChatModel`, without a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
from openai import AsyncOpenAI

from leafward import user
from leafward.engine import ModelRequest, OpenAIChatModel

_PIECE = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n'
)


class Streams:
    """The same stream, read in both ways."""

    def __init__(self, pieces: int) -> None:
        transport = httpx2.MockTransport(self._answer)
        self._pieces = pieces
        self._client = AsyncOpenAI(api_key="none", max_retries=0, http_client=httpx2.AsyncClient(transport=transport))
        self._model = OpenAIChatModel("m", client=self._client)

    async def by_sdk(self) -> AsyncGenerator[Any]:
        """Yield the chunks of the SDK's stream."""
        asked: Any = [{"role": "user", "content": "Speak."}]
        async with await self._client.chat.completions.create(model="m", messages=asked, stream=True) as chunks:
            async for chunk in chunks:
                yield chunk

    def by_model(self) -> AsyncIterator[Any]:
        """Return the events of the model's stream."""
        return self._model.stream(ModelRequest([user("Speak.")]))

    async def close(self) -> None:
        await self._client.close()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self._body())

    async def _body(self) -> AsyncGenerator[bytes]:
        for _ in range(self._pieces):
            yield _PIECE % (b'{"content":"word "}', b"null")
        yield _PIECE % (b"{}", b'"stop"')
        yield b"data: [DONE]\n\n"
