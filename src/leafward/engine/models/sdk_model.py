"""What the models on a provider's SDK share: its clients, options and prices, and how a stream of it is read."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Self, cast

from leafward.core.errors import ConfigurationError
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.model_events import ModelEvent, ModelUsage
from leafward.engine.models.sdk_errors import model_error

Price = tuple[float, float]
"""The prices of a million tokens of input and of output."""


class StreamReader(ABC):
    """Reads the pieces of one stream."""

    is_whole = False
    """Whether the provider has said that the reply is complete."""

    def __init__(self, price: Price | None) -> None:
        self._price = price

    @abstractmethod
    def take(self, piece: Any) -> Sequence[ModelEvent]:
        """Return what one piece of the stream brings."""

    def used(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> ModelUsage:
        """Return the usage with its cost, if a price is known."""
        price = self._price
        cost = None if price is None else (input_tokens * price[0] + output_tokens * price[1]) / 1_000_000
        return ModelUsage(input_tokens, output_tokens, cached_tokens, cost)


class SdkModel(ABC):
    """A model that is asked by a provider's SDK.

    Of a client that was given, only the retries are changed, in a copy. Otherwise there is one for each event loop.
    """

    def __init__(
        self,
        name: str,
        sdk: Any,
        client: object,
        make: Callable[[], Any],
        price: Price | None,
        options: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.price = checked_price(price)
        self._sdk = sdk
        self._options = dict(options)
        self._make = make
        # The agent asks again itself.
        self._given: Any = None if client is None else cast(Any, client).with_options(max_retries=0)
        # Made at once, so that a missing key is found where the model is set up.
        self._spare: Any = make() if client is None else None
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask the model, and yield its answer.

        Raises:
            ModelError: the provider refused the request, failed, or broke off; the SDK's error is its cause.
        """
        await self._leave_ended_loops()
        reader = self._reader()
        take = reader.take
        try:
            async with await self._ask(self._client(), {**self._options, **request.options}, request) as pieces:
                async for piece in pieces:
                    # A piece that is `null` brings nothing, and does not end the stream.
                    for event in () if piece is None else take(piece):
                        yield event
        except Exception as error:
            found = model_error(error, self._sdk)
            if found is None:
                raise
            raise found from error
        if not reader.is_whole:
            raise ModelError("its stream ended before the reply was complete", temporary=True)

    @abstractmethod
    async def _ask(self, client: Any, options: dict[str, Any], request: ModelRequest) -> Any:
        """Send the request, and return the SDK's stream."""

    @abstractmethod
    def _reader(self) -> StreamReader: ...

    def _client(self) -> Any:
        if self._given is not None:
            return self._given
        # Connections belong to the event loop that opened them.
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._make() if self._spare is None else self._spare
            self._spare, self._clients[loop] = None, client
        return client

    async def _leave_ended_loops(self) -> None:
        """Close the clients of event loops that have ended: they keep their loops and their sockets."""
        for loop, client in list(self._clients.items()):
            if loop.is_closed() and self._clients.pop(loop, None) is not None:
                # Closing fails, as their loop is gone. Otherwise the SDK would try it later, and log the error.
                with suppress(RuntimeError):
                    await client.close()

    async def close(self) -> None:
        """Close the connections that this model opened in this event loop; a client that was given stays open."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def need_sdk(module: str, wanted_by: str) -> Any:
    """Return a provider's SDK, or say what to install.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{wanted_by} needs {module}, which is not installed: pip install 'leafward[{module}]'"
        ) from error


def check_client(client: object, wanted: Sequence[type], **others: object) -> None:
    """Check a client that was given: one of the classes in `wanted`, of which the first is named in the error.

    Raises:
        ConfigurationError: it is something else, or options were given that belong to it.
    """
    if client is None:
        return
    if not isinstance(client, tuple(wanted)):
        raise ConfigurationError(f"client= is an {wanted[0].__name__}(…), not {client!r}")
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ConfigurationError(f"{' and '.join(given)} belong to the client: set them there, or leave out client=")


def checked_price(price: object) -> Price | None:
    """Return the prices of input and output as numbers.

    Raises:
        ConfigurationError: they are something else.
    """
    if price is None:
        return None
    found = list(cast(Sequence[object], price)) if isinstance(price, (tuple, list)) else []
    numbers = [float(one) for one in found if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if len(found) != 2 or len(numbers) != 2 or not all(math.isfinite(one) and one >= 0 for one in numbers):
        raise ConfigurationError(f"price= is (input, output), each for a million tokens, not {price!r}")
    return numbers[0], numbers[1]
