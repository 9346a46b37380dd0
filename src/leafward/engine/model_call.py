"""One question to the model: its stream as events, asked again after a temporary error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from leafward.core.message import Message, message_copy, own_copy
from leafward.engine.events import AgentEvent
from leafward.engine.models.model import ChatModel, ModelRequest, open_stream
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.model_events import ModelEvent, Stop
from leafward.engine.models.reply import Reply
from leafward.engine.turn_control import TurnControl, TurnStopped

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


def pause_before(error: ModelError, attempt: int) -> float:
    """Return the seconds to wait after an error before a model is asked again."""
    return min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S) if error.retry_after is None else error.retry_after


class OpenStream:
    """The stream of a model that is answering, for the reader of a turn's events to read itself.

    So a piece is passed on once, not by every generator of a turn. The reader reads as long as `more` shows what comes,
    and leaves here what ended that: another event in `others`, or an error.
    """

    __slots__ = ("error", "events", "more", "others")

    def __init__(self, events: AsyncIterator[ModelEvent], reply: Reply) -> None:
        self.events = events
        self.more = reply.more
        self.others: list[ModelEvent] = []
        self.error: BaseException | None = None

    def take(self) -> list[ModelEvent]:
        """Return the event that the reader came to, in a list that is empty at the end of the stream.

        Raises:
            BaseException: what the reader met instead.
        """
        error, self.error = self.error, None
        others, self.others = self.others, []
        try:
            if error is not None:
                raise error
            return others
        finally:
            # Its traceback leads here.
            del error


async def pieces(
    events: AsyncGenerator[AgentEvent | OpenStream], control: TurnControl, *, lends: bool = False
) -> AsyncGenerator[AgentEvent]:
    """Yield a turn's events, and read the streams of its models here.

    With `lends`, it is code of users that gets an event: until it comes for the next one, its waits can be ended.
    """
    loop = asyncio.get_running_loop()
    begin, end = (control.begin_foreign_wait, control.end_wait) if lends else (_nothing, _nothing)
    end()
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, AgentEvent):
                    begin()
                    try:
                        yield event
                    finally:
                        end()
                    continue
                more, is_lent = event.more, False
                try:
                    async for sent in event.events:
                        shown = more(sent)
                        if shown is None:
                            event.others.append(sent)
                            break
                        is_lent = True
                        begin()
                        try:
                            yield shown
                        finally:
                            end()
                        is_lent = False
                        if control.stop is not None:
                            raise TurnStopped
                        control.waiting = asyncio.current_task(loop)
                except BaseException as error:
                    if is_lent:
                        raise
                    event.error = error
    finally:
        begin()


def _nothing() -> None:
    pass


class ModelCall:
    """Asks a model once, and again after temporary errors; `reply` is what it answered, or has answered so far."""

    def __init__(self, model: ChatModel, request: ModelRequest, control: TurnControl, *, retries: int) -> None:
        self.reply = Reply()
        self.has_ended = False
        """Whether the reply is whole."""
        self._is_shown = False
        """Whether the reader was shown something of this reply."""
        self._model = model
        self._request = request
        self._control = control
        self._retries = retries

    async def events(self) -> AsyncGenerator[AgentEvent | OpenStream]:
        """Yield what shows the call, and the model's stream wherever the reader is to read on in it.

        Raises:
            TurnStopped: the turn was interrupted or paused; `reply` holds what came before.
            ModelError: the model failed, also when it was asked again.
        """
        control = self._control
        for attempt in range(self._retries + 1):
            self.reply, self._is_shown = Reply(), True
            yield self.reply.begin()
            try:
                async with self._asked() as stream:
                    opened = OpenStream(stream, self.reply)
                    yield opened
                    while others := opened.take():
                        for event in self.reply.add(others[0]):
                            yield event
                        control.begin_wait()
                        yield opened
                    control.end_wait()
            except ModelError as error:
                # Of the attempt that failed nothing is kept, also if the turn is stopped or left now.
                for event in self.discard():
                    yield event
                if not error.temporary or attempt == self._retries:
                    raise
                await self._rest(error, attempt)
            else:
                self.has_ended = True
                # Of an empty reply nothing is stored.
                for event in self.reply.end(discarded=self.reply.is_empty):
                    yield event
                return

    def discard(self) -> Sequence[AgentEvent]:
        """Keep nothing of the reply, and return what says so to a reader who was shown some of it."""
        discarded, is_shown = self.reply, self._is_shown
        self.reply, self._is_shown, self.has_ended = Reply(), False, False
        return discarded.end(discarded=True) if is_shown else ()

    def answer(self, message: Message, *, name: str, stop_reason: str = "") -> AgentEvent:
        """Have what a message says as the reply, under an id of its own, and return the event that shows it."""
        self.reply, self._is_shown, self.has_ended = Reply(given=message), True, True
        if stop_reason:
            self.reply.add(Stop(stop_reason))
        shown = own_copy(self.reply.message(name=name))
        return AgentEvent("MODEL_CALL_END", self.reply.id, message=shown, stop_reason=self.reply.stop_reason)

    @asynccontextmanager
    async def _asked(self) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Have the model's stream for the length of the block, in which a wait for it can be ended."""
        control = self._control
        try:
            control.begin_wait()
            # Of the conversation a model gets copies, at each attempt: what it does with them changes nothing.
            messages = [message_copy(message) for message in self._request.messages]
            async with open_stream(self._model, replace(self._request, messages=messages)) as stream:
                yield stream
        except (asyncio.CancelledError, TurnStopped, Exception) as error:
            # A model may turn its cancellation into an error of its provider.
            if control.was_ended():
                raise TurnStopped from None
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
                raise ModelError("it cancelled itself") from error
            raise

    async def _rest(self, error: ModelError, attempt: int) -> None:
        """Wait before the model is asked again, as long as it wishes, or twice as long each time."""
        try:
            self._control.begin_wait()
            await asyncio.sleep(pause_before(error, attempt))
            self._control.end_wait()
        except asyncio.CancelledError:
            if self._control.was_ended():
                raise TurnStopped from None
            raise
