"""What a turn does before each request: it compacts what has become too long, and renews what the model is shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from leafward.core.compaction import CompactFunction, CompactionContext
from leafward.core.compaction_plan import SMALLEST_THRESHOLD
from leafward.core.errors import ConfigurationError
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.tokens import count_tokens, estimate_tokens
from leafward.engine.agent_compaction import AgentCompaction, ToCompact
from leafward.engine.events import AgentEvent
from leafward.engine.model_requests import ModelRequests
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.reply import Reply
from leafward.engine.turn_control import TurnControl, TurnStopped
from leafward.engine.turn_record import TurnRecord
from leafward.sessions.compactor import Size, takes_context
from leafward.sessions.path_compaction import Compacted
from leafward.sessions.user_functions import call
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext

_log = logging.getLogger("leafward.engine")

COMPACTION, COMPACTION_FAILED = "compaction", "compaction_failed"
"""The names of the events that show a compaction, and one that failed."""


class SessionOfTurn(Protocol):
    """What a turn needs of its session before a request."""

    async def renew_tools(self) -> None: ...
    def renew_prompt(self) -> None: ...


class ContextKeeper:
    """Keeps what the model of a turn is shown short enough, and up to date."""

    def __init__(
        self,
        compaction: AgentCompaction | None,
        session: SessionOfTurn | None,
        requests: ModelRequests,
        record: TurnRecord,
        control: TurnControl,
        ctx: RuntimeContext,
        offered: Callable[[], Mapping[str, Tool]],
    ) -> None:
        self._compaction = compaction
        self._session = session
        self._requests = requests
        self._record = record
        self._control = control
        self._ctx = ctx
        self._offered = offered
        self._is_cured = False
        """Whether this request was made shorter because the model refused it."""
        self._prompt: str | None = None
        """The system prompt of the request that comes, once it is made."""
        self._uncounted: ConfigurationError | None = None
        """Why a summary cannot be counted in the budget."""
        self._counts: dict[str, tuple[Message, int]] = {}
        """The tokens of messages, by their ids."""

    async def before_request(self) -> Sequence[AgentEvent]:
        """Compact the conversation if that is due, and return the events that show it.

        A compaction that fails changes nothing and is reported; it is tried again at a later request.

        Raises:
            TurnStopped: the turn was stopped while it compacted.
            BudgetExceeded: the summary has used up the budget.
        """
        self._is_cured, self._prompt = False, None
        shown: Sequence[AgentEvent] = ()
        compaction = self._compaction
        if compaction is not None and await self._is_due(compaction):
            shown = await self._compact(compaction, compaction.trigger_tokens)
        if self._session is not None:
            await self._session.renew_tools()
        return shown

    async def cure(self, error: ModelError) -> Sequence[AgentEvent]:
        """Make a conversation shorter that the model has refused, once for each request; return what shows it.

        Raises:
            ModelError: the error that was given: it says something else, or nothing can be done about it.
            Exception: as `before_request`.
        """
        compaction = self._compaction
        if compaction is None or not error.too_long or self._is_cured:
            raise error
        self._is_cured = True
        # The estimate may be wrong, so less than this is kept in any case.
        threshold = max(SMALLEST_THRESHOLD, (await self._size()).total // 2)
        if compaction.trigger_tokens is not None:
            threshold = min(threshold, compaction.trigger_tokens)
        shown = await self._compact(compaction, threshold, at_once=True)
        if not any(event.name == COMPACTION for event in shown):
            raise error
        if self._session is not None:
            await self._session.renew_tools()
        return shown

    async def _is_due(self, compaction: AgentCompaction) -> bool:
        most_messages, most_tokens = compaction.trigger_messages, compaction.trigger_tokens
        if most_messages is not None and len(self._record.context) >= most_messages:
            return True
        return most_tokens is not None and (await self._size()).total >= most_tokens

    async def prompt(self) -> str:
        """Return the system prompt of the request that comes, which is made once, unless a compaction changes it.

        Raises:
            TurnStopped: the turn was stopped while code of users made it.
        """
        if self._prompt is None:
            with self._control.endable():
                self._prompt = await self._requests.prompt(self._ctx)
        return self._prompt

    async def _size(self) -> Size:
        """Return what a request would take now."""
        tools = [[tool.name, tool.description, tool.input_schema] for tool in self._offered().values()]
        tokens = estimate_tokens(await self.prompt()) + (estimate_tokens(encode_text(tools)) if tools else 0)
        return Size(sum(map(self._count, self._record.context)), tokens)

    def _count(self, message: Message) -> int:
        known, tokens = self._counts.get(message.id, (None, 0))
        if known is not message:
            tokens = count_tokens(message)
            self._counts[message.id] = message, tokens
        return tokens

    async def _compact(
        self, compaction: AgentCompaction, threshold: int | None, *, at_once: bool = False
    ) -> Sequence[AgentEvent]:
        record = self._record
        asked = ToCompact(self._interruptible(compaction.function(self._take)), await self._size(), threshold)
        if not at_once and record.log.puts_off(asked):
            return ()
        await record.check_budget()
        # All of the context is stored first: a summary stands for stored messages.
        await record.store(at_boundary=True, open="running")
        self._uncounted = None
        try:
            done = await record.log.compact(asked)
        except asyncio.CancelledError:
            if self._control.was_ended():
                raise TurnStopped from None
            raise
        if self._uncounted is not None:
            raise self._uncounted
        # It may show the summary, or what was changed meanwhile.
        self._prompt = None
        if done.is_shorter:
            self._counts.clear()
            if self._session is not None:
                self._session.renew_prompt()
        await record.store(at_boundary=True, open="running")
        await record.check_budget()
        return self._events(done)

    def _take(self, reply: Reply) -> None:
        """Count what a summary used, which the next commit stores, whatever becomes of the summary."""
        try:
            self._record.check_usage(reply)
        except ConfigurationError as error:
            self._uncounted = error
        else:
            self._record.take(reply, None)

    def _interruptible(self, function: CompactFunction) -> CompactFunction:
        """Return a function during which the turn can be stopped."""

        async def compact(messages: Sequence[Message], context: CompactionContext) -> Any:
            arguments = (messages, context) if takes_context(function) else (messages,)
            self._control.begin_wait()
            try:
                result = await call(function, *arguments)
            except Exception:
                self._control.end_wait()
                raise
            self._control.end_wait()
            return result

        return compact

    def _events(self, done: Compacted) -> list[AgentEvent]:
        found: list[AgentEvent] = []
        if done.is_shorter:
            made = done.made
            data: dict[str, Any] = {"shortenedResults": done.shortened}
            if made is not None:
                data |= {"summary": made.summary, "from": made.from_message_id, "to": made.to_message_id}
            found.append(AgentEvent("CUSTOM", name=COMPACTION, data=data, committed=True))
        if done.error is not None:
            session_id = self._record.log.state.session_id
            _log.warning("the compaction of session %r failed: %s", session_id, done.error)
            found.append(AgentEvent("CUSTOM", name=COMPACTION_FAILED, data={"reason": str(done.error)}))
        return found
