"""Compaction of a session: when it fires, what it applies, and the record of both."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from leafward.core.compaction import CompactionContext, CompactionResult, safe_range
from leafward.core.errors import ConfigurationError, MessageNotFound
from leafward.core.ids import Scope, new_id
from leafward.core.message import Message
from leafward.core.overlays import Compaction, summary_message
from leafward.core.times import from_micros, now_micros
from leafward.core.tokens import TokenCounter, checked_count, count_tokens
from leafward.sessions.calling import call
from leafward.sessions.conversation import check_size
from leafward.sessions.setup import Setup
from leafward.stores.contracts import MessageStore, NewOverlay, Unchanged, View, Weight

LONGEST_WAIT = 64
"""Appends after which an automatic compaction is tried again, however often it failed."""
_REMEMBERED = 50

_log = logging.getLogger("leafward.sessions")


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """Why a compaction was, or was not, made."""

    at: datetime
    automatic: bool
    reason: str
    tokens: int | None
    threshold: int | None
    compaction: Compaction | None = None
    error: Exception | None = None


class _Ledger:
    """What the handles of one session in this process share: whose turn it is, the back-off, the record."""

    def __init__(self) -> None:
        self._running = asyncio.Lock()
        self._wanted = 0
        self.fruitless = 0
        self.skip = 0
        self.blind = False
        """Whether the prompt could not be weighed when that was last tried."""
        self.records: deque[CompactionRecord] = deque(maxlen=_REMEMBERED)

    @property
    def busy(self) -> bool:
        """Whether a compaction is under way, or waits for its turn."""
        return self._wanted > 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Run one at a time, in the order they came."""
        self._wanted += 1
        try:
            async with self._running:
                yield
        finally:
            self._wanted -= 1

    def back_off(self) -> None:
        _backing_off.append(self)
        self.fruitless += 1
        self.skip = min(2**self.fruitless - 1, LONGEST_WAIT)

    def succeeded(self) -> None:
        self.fruitless = self.skip = 0


# Where each append has a handle of its own, this remembers that the last one came to nothing.
_backing_off: deque[_Ledger] = deque(maxlen=1024)

_ledgers: weakref.WeakKeyDictionary[object, weakref.WeakValueDictionary[Scope, _Ledger]] = weakref.WeakKeyDictionary()


def _ledger_of(storage: object, scope: Scope) -> _Ledger:
    ledgers = _ledgers.setdefault(storage, weakref.WeakValueDictionary())
    ledger = ledgers.get(scope)
    if ledger is None:
        ledger = ledgers[scope] = _Ledger()
    return ledger


_asking: ContextVar[tuple[_Ledger, ...]] = ContextVar("compactions whose function is running", default=())


class Compactor:
    """Compacts one session, on demand and when it outgrows its threshold, one compaction at a time."""

    def __init__(
        self,
        setup: Setup,
        messages: MessageStore,
        scope: Scope,
        *,
        largest: int,
        prompt_tokens: Callable[[int | None], Awaitable[int]],
        applied: Callable[[], Awaitable[None]],
    ) -> None:
        self._setup = setup
        self._messages = messages
        self._scope = scope
        self._largest = largest
        self._prompt_tokens = prompt_tokens
        self._applied = applied
        # Handles on one storage of a user's own have different messages, and this in common.
        self._ledger = _ledger_of(getattr(messages, "kept", messages), scope)
        self._miscounted: list[Exception] = []

    @property
    def records(self) -> list[CompactionRecord]:
        """The last compactions that were made, tried or left undone, oldest first."""
        return list(self._ledger.records)

    def count(self, message: Message) -> int:
        """Count a message with the session's counter; a counter that fails is told of, and the estimate taken."""
        counter = self._setup.token_counter
        if counter is None:
            return count_tokens(message)
        try:
            return checked_count(counter, message)
        except Exception as error:  # noqa: BLE001  (a message is not lost for a counter that fails)
            self._miscounted.append(error)
            return count_tokens(message)

    async def compact(self, leaf_id: str | None) -> Compaction | None:
        """Summarise now; waits for a compaction that is under way."""
        if self._setup.on_compaction is None:
            raise ConfigurationError(
                "this session has no compaction function: add .on_compaction(create_compact_function(summarize=...))"
            )
        if self._ledger in _asking.get():
            raise ConfigurationError("a compaction function cannot compact the session that it is asked to summarise")
        async with self._ledger.turn():
            try:
                made, reason = await self._run(leaf_id)
            except Exception as error:
                self._record("it failed", automatic=False, error=error)
                raise
        self._record(reason, automatic=False, compaction=made)
        if made is not None:
            self._ledger.succeeded()
            await self._tell_prompt()
        return made

    async def after_append(self, weight: Weight | None) -> None:
        """Compact if the session now weighs more than its threshold; whatever goes wrong is told, never raised."""
        while self._miscounted:
            await self._report(self._miscounted.pop())
        threshold = self._setup.compact_after
        if weight is None or threshold is None:
            return
        if self._ledger.blind and self._skips():
            return
        try:
            tokens = await self._weigh(weight)
            if tokens > threshold:
                await self._compact_for(tokens)
        except Exception as error:  # noqa: BLE001  (the message is stored, and its append must not seem to have failed)
            self._ledger.back_off()
            self._record("it failed", automatic=True, tokens=weight.window, error=error)
            await self._report(error)

    async def _weigh(self, weight: Weight) -> int:
        self._ledger.blind = True
        tokens = weight.window + await self._prompt_tokens(weight.prompt)
        self._ledger.blind = False
        return tokens

    def _skips(self, tokens: int | None = None) -> bool:
        """Count an append that is let pass after a failure, if it is."""
        if self._ledger.skip == 0:
            return False
        self._ledger.skip -= 1
        self._record("an earlier one came to nothing: waiting for more messages", automatic=True, tokens=tokens)
        return True

    async def _compact_for(self, tokens: int) -> None:
        if self._ledger.busy:
            self._record("another compaction is under way", automatic=True, tokens=tokens)
            return
        if self._skips(tokens):
            return
        async with self._ledger.turn():
            made, reason = await self._run(None)
        self._record(reason, automatic=True, tokens=tokens, compaction=made)
        if made is not None:
            await self._tell_prompt()
        if made is None or await self._is_still_over():
            self._ledger.back_off()
        else:
            self._ledger.succeeded()

    async def _is_still_over(self) -> bool:
        """Tell whether a compaction left more than the threshold: then each append would ask for another one."""
        threshold = self._setup.compact_after
        weight = await self._messages.weigh(self._scope)
        return threshold is not None and weight.window + await self._prompt_tokens(weight.prompt) > threshold

    async def _tell_prompt(self) -> None:
        try:
            await self._applied()
        except Exception as error:  # noqa: BLE001  (the summary is stored; that the prompt was not renewed is told)
            await self._report(error)

    async def _run(self, leaf_id: str | None) -> tuple[Compaction | None, str]:
        """Have the function summarise the history and lay the summary over it; say what came of it."""
        view = await self._messages.view(self._scope, leaf_id)
        if not view.messages:
            return None, "there is no history"
        result = await self._ask(view)
        if result is None:
            return None, "the compaction function found nothing to summarise"
        covered = _covered(view.messages, result)
        if not covered:
            return None, "the range holds calls that wait for their results, or would part a call from its result"
        overlay = new_overlay(result.summary, covered[0].id, covered[-1].id, count=self.count, largest=self._largest)
        unchanged = Unchanged(view.version, frozenset(message.id for message in covered), view.tree)
        try:
            made = await self._messages.add_overlay(self._scope, overlay, unchanged=unchanged)
        except MessageNotFound:
            made = None
        if made is None:
            return None, "what was summarised has changed meanwhile"
        return made, f"{len(covered)} messages became one summary"

    async def _ask(self, view: View) -> CompactionResult | None:
        function = self._setup.on_compaction
        assert function is not None
        known = {message.id: tokens for message, tokens in zip(view.messages, view.tokens, strict=True)}

        def count(message: Message) -> int:
            return known[message.id] if message.id in known else self.count(message)

        arguments: list[object] = [list(view.messages)]
        if _takes_context(function):
            arguments.append(CompactionContext(count, self._scope.session_id))
        asking = _asking.set((*_asking.get(), self._ledger))
        try:
            answer = await call(function, *arguments)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something the function waited for was cancelled, not whoever waits for the function.
            raise RuntimeError("the compaction function was cancelled from within") from error
        finally:
            _asking.reset(asking)
        return _as_result(answer)

    def _record(
        self,
        reason: str,
        *,
        automatic: bool,
        tokens: int | None = None,
        compaction: Compaction | None = None,
        error: Exception | None = None,
    ) -> None:
        threshold = self._setup.compact_after
        if error is not None:
            # Or each record would keep the history that its frames held.
            traceback.clear_frames(error.__traceback__)
        self._ledger.records.append(
            CompactionRecord(from_micros(now_micros()), automatic, reason, tokens, threshold, compaction, error)
        )

    async def _report(self, error: Exception) -> None:
        """Tell of a failure that is not raised."""
        handler = self._setup.on_compaction_error
        if handler is None:
            _log.warning("compaction of session %r failed", self._scope.session_id, exc_info=error)
            return
        try:
            await call(handler, error)
        except Exception as failure:  # noqa: BLE001  (nothing is left that could be told)
            _log.warning("on_compaction_error of session %r failed", self._scope.session_id, exc_info=failure)


def new_overlay(summary: str, from_id: str, to_id: str, *, count: TokenCounter, largest: int) -> NewOverlay:
    """Return a summary as a store takes it.

    Raises:
        MessageTooLarge: it is larger than a message may be.
    """
    overlay_id, at = new_id(), now_micros()
    message, body = summary_message(overlay_id, summary, at).sealed()
    check_size(message, body, largest)
    return NewOverlay(overlay_id, message.text, count(message), at, from_id, to_id)


def _takes_context(function: Callable[..., Any]) -> bool:
    """Tell whether a function has a second parameter that is meant for the context."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return False  # A built-in tells no signature.
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1:
        return positional[1].default is inspect.Parameter.empty or positional[1].name == "context"
    return any(one.kind is one.VAR_POSITIONAL for one in parameters)


def _as_result(given: object) -> CompactionResult | None:
    """Read what a compaction function returned.

    Raises:
        ConfigurationError: it is neither nothing nor a summary with its two ends.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        fields = cast(Mapping[str, object], given)
        found = [fields.get(name) for name in ("summary", "from_message_id", "to_message_id")]
    else:
        found = [getattr(given, name, None) for name in ("summary", "from_message_id", "to_message_id")]
    summary, from_id, to_id = found
    if not isinstance(summary, str) or not isinstance(from_id, str) or not isinstance(to_id, str):
        raise ConfigurationError(
            "a compaction function returns None, or summary, from_message_id and to_message_id, all texts; "
            f"this one returned {type(cast(object, given)).__name__}"
        )
    return CompactionResult(summary, from_id, to_id) if summary.strip() else None


def _covered(messages: Sequence[Message], result: CompactionResult) -> Sequence[Message]:
    """Return the visible messages a result stands for, shrunk where it would part a call from its result."""
    places = {message.id: index for index, message in enumerate(messages)}
    for end in (result.from_message_id, result.to_message_id):
        if end not in places:
            raise ValueError(f"the compaction function named {end!r}, which is not in the history it was given")
    start, end = places[result.from_message_id], places[result.to_message_id] + 1
    if start >= end:
        raise ValueError(f"{result.from_message_id!r} does not come before {result.to_message_id!r}")
    start, end = safe_range(messages, start, end)
    return messages[start:end]
