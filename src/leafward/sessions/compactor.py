"""Compaction of a session: when it runs, how its result is checked and applied, and the record of both."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from leafward.core.calls import KnownPairs
from leafward.core.compaction import (
    CompactionContext,
    CompactionResult,
    covered_range,
    explain_weight,
    read_result,
    refuse_summary,
)
from leafward.core.cuts import Cuts
from leafward.core.errors import CompactionFailed, ConfigurationError, MessageNotFound
from leafward.core.ids import Scope, new_id
from leafward.core.message import Message, check_size
from leafward.core.notices import Reclaimed
from leafward.core.overlays import Compaction, summary_message
from leafward.core.times import from_micros, now_micros
from leafward.core.tokens import TokenCounter
from leafward.sessions.compaction_state import ANOTHER, BACKING_OFF, CompactionRecord, CompactionState, state_of
from leafward.sessions.setup import Setup
from leafward.sessions.token_counts import SessionCounter
from leafward.sessions.user_functions import call
from leafward.stores.background import background_of
from leafward.stores.contracts import MessageStore, NewOverlay, Store, Unchanged, View, Weight

_log = logging.getLogger("leafward.sessions")

CANCELLED = "it was cancelled"
_UNLIMITED = 1 << 62


class Size(NamedTuple):
    """The tokens that a session's history and its prompt take."""

    window: int
    prompt: int

    @property
    def total(self) -> int:
        return self.window + self.prompt


_asking: ContextVar[tuple[CompactionState, ...]] = ContextVar("compactions whose function is running", default=())


@dataclass(slots=True)
class _Attempt:
    """What one compaction has done so far, and to which history."""

    view: View
    streamed: frozenset[str] = frozenset()
    """Messages that may still be written."""
    growing: str | None = None
    """The one of them that alone keeps the session above its threshold."""
    made: Compaction | None = None
    shortened: int = 0
    reason: str = ""
    error: Exception | None = None
    waits: bool = False
    """Whether the history ends with calls that wait for their results."""


class Compactor:
    """Compacts one session, on demand and when it exceeds its threshold, one compaction at a time."""

    def __init__(
        self,
        setup: Setup,
        messages: MessageStore,
        scope: Scope,
        store: Store | None,
        *,
        count: SessionCounter,
        largest: int,
        prompt_tokens: Callable[..., Awaitable[int]],
        applied: Callable[[], Awaitable[None]],
        without_lease: Callable[[], Compactor],
    ) -> None:
        self._setup = setup
        self._messages = messages
        self._scope = scope
        self._store = store
        self._count = count
        self._largest = largest
        self._prompt_tokens = prompt_tokens
        self._applied = applied
        self._without_lease = without_lease
        # Handles on one custom storage have different messages, and this in common.
        self._state = state_of(getattr(messages, "kept", messages), scope)

    @property
    def records(self) -> list[CompactionRecord]:
        """The last compactions that were made, tried or left undone, oldest first."""
        return list(self._state.records)

    async def weigh(self, weight: Weight | None = None, *, exact: bool = False) -> Size:
        """Return what the session takes, given what its store says of it if that is known."""
        found = await self._messages.weigh(self._scope) if weight is None else weight
        return Size(found.window, await self._prompt_tokens(found.prompt, exact=exact))

    async def compact(self, leaf_id: str | None) -> Compaction | None:
        """Summarise now; waits for a compaction that runs."""
        if self._setup.on_compaction is None:
            raise ConfigurationError(
                "this session has no compaction function: add .on_compaction(create_compact_function(summarize=...))"
            )
        if self._state in _asking.get():
            raise ConfigurationError("a compaction function cannot compact the session that it is asked to summarise")
        # Counted before the queue: an error handler that compacts, too, would otherwise wait for itself.
        prompt_tokens = await self._known_prompt()
        async with self._state.alone():
            try:
                attempt = await self._run(leaf_id, prompt_tokens)
            except asyncio.CancelledError:
                self._record(CANCELLED, automatic=False)
                raise
            except Exception as error:
                self._record("it failed", automatic=False, error=error)
                raise
        self._record(attempt.reason, automatic=False, compaction=attempt.made, error=attempt.error)
        if attempt.made is not None:
            self._state.succeeded()
            await self._renew_prompt()
        if attempt.error is not None:
            raise attempt.error
        return attempt.made

    async def after_write(self, weight: Weight | None, *, streamed: str | None = None, is_new: bool = True) -> None:
        """Compact if the session now exceeds its threshold; what goes wrong is reported, never raised.

        More may come of the message `streamed`, which was upserted: a summary of it would miss the remainder.
        """
        self._state.note_streamed(streamed, is_new=is_new)
        for error in self._count.take_failures():
            await self._report(error)
        threshold = self._setup.compact_after
        if weight is None or threshold is None:
            return
        if self._state.prompt_unknown and self._skips(weight.window):
            return
        try:
            size = await self.weigh(weight)
        except Exception as error:  # noqa: BLE001  (the message is stored, and its append must not seem to have failed)
            self._state.prompt_unknown = True
            await self._failed(error, Size(weight.window, 0))
            return
        except asyncio.CancelledError:
            self._state.prompt_unknown = True
            raise
        self._state.prompt_unknown = False
        if size.total <= threshold:
            return
        if self._state.busy:
            self._state.tokens_seen = size.total
            self._record(f"{ANOTHER} is running", automatic=True, tokens=size.total)
        elif not self._skips(size.total):
            if self._setup.compact_in_background:
                self._start(size)
            else:
                try:
                    await self._compact_now(size)
                except asyncio.CancelledError:
                    self._record(CANCELLED, automatic=True, tokens=size.total)
                    raise

    def _start(self, size: Size) -> None:
        # The lease of the append may end before the summary is ready. None is needed: the summary is stored only if the
        # messages that it covers have not changed.
        task = background_of(self._store).start(self._without_lease()._compact_later(size))
        if task is None:
            self._record("the store is closing", automatic=True, tokens=size.total)
            return
        self._state.runs_in(task)
        task.add_done_callback(partial(self._record_cancelled, size))

    def _record_cancelled(self, size: Size, task: asyncio.Task[None]) -> None:
        # Here, because a task that is cancelled before its first step runs nothing of its own.
        if task.cancelled():
            self._record(CANCELLED, automatic=True, tokens=size.total)

    def _skips(self, tokens: int) -> bool:
        if not self._state.skips(tokens, self._setup.compact_after or _UNLIMITED):
            return False
        failed, left = self._state.failures, self._state.appends_to_skip + 1
        self._record(f"{BACKING_OFF}: {failed} failed in a row, next in {left} appends", automatic=True, tokens=tokens)
        return True

    async def _compact_later(self, size: Size) -> None:
        # The task has the context of the append, which a compaction function of another session may have made.
        _asking.set(())
        await self._compact_now(size)

    async def _compact_now(self, size: Size) -> None:
        try:
            async with self._state.alone():
                attempt = await self._run(None, size.prompt)
            if attempt.made is not None:
                await self._renew_prompt()
            left = await self.weigh()
            too_large = await self._too_large(attempt, left, None)
        except Exception as failure:  # noqa: BLE001  (as above)
            await self._failed(failure, size)
            return
        error = attempt.error or too_large
        self._record(attempt.reason, automatic=True, tokens=size.total, compaction=attempt.made, error=error)
        if error is None:
            self._state.succeeded()
            return
        # What is left may be a call without its result, or what came meanwhile: the next append can change that.
        retry = attempt.error is None and (attempt.made is not None or attempt.waits)
        self._state.back_off(left.total, attempt.growing, retry_at_once=retry)
        await self._report(error)

    async def _too_large(self, attempt: _Attempt, size: Size, leaf_id: str | None) -> CompactionFailed | None:
        """Return an error that says why the session is still above its threshold, if it is."""
        threshold = self._setup.compact_after
        if threshold is None or size.total <= threshold:
            return None
        view = await self._messages.view(self._scope, leaf_id)
        attempt.waits = Cuts.of(view.messages).pending < len(view.messages)
        for message, tokens in zip(view.messages, view.tokens, strict=True):
            if message.id in attempt.streamed and size.total - tokens <= threshold:
                attempt.growing = message.id
        context = self._context(_Attempt(view), size.prompt)
        why = explain_weight(view.messages, view.tokens, context, growing=attempt.growing)
        reason = "; ".join(filter(None, (attempt.reason, why)))
        return CompactionFailed(self._scope.session_id, reason, tokens=size.total, threshold=threshold)

    async def _failed(self, error: Exception, size: Size) -> None:
        self._state.back_off(size.total)
        self._record("it failed", automatic=True, tokens=size.total, error=error)
        # Tool results may have been shortened before it failed. A store that cannot say so has failed in the same way.
        with suppress(Exception):
            left = (await self._messages.weigh(self._scope)).window + size.prompt
            self._state.tokens_left = self._state.tokens_seen = left
        await self._report(error)

    async def _known_prompt(self) -> int:
        """Return the tokens of the prompt if a threshold makes them matter."""
        if self._setup.compact_after is None:
            return 0
        try:
            return (await self.weigh()).prompt
        except Exception as error:  # noqa: BLE001  (a summary can be made without; the block's error is reported)
            await self._report(error)
            return 0

    async def _renew_prompt(self) -> None:
        try:
            await self._applied()
        except Exception as error:  # noqa: BLE001  (the summary is stored; that the prompt was not renewed is reported)
            await self._report(error)

    async def _run(self, leaf_id: str | None, prompt_tokens: int) -> _Attempt:
        """Have the function summarise the history and lay the summary over it; say what was done.

        Raises:
            CompactionFailed: the summary is refused.
            Exception: whatever the function raises.
        """
        attempt = _Attempt(await self._messages.view(self._scope, leaf_id), frozenset(self._state.streamed))
        if not attempt.view.messages:
            attempt.reason = "there is no history"
            return attempt
        context = self._context(attempt, prompt_tokens)
        result = await self._ask(context, attempt.view)
        if result is not None:
            attempt.error = result.error
            await self._apply(attempt, result, context)
        elif not attempt.shortened:
            attempt.reason = "the compaction function found nothing to summarise"
        if attempt.shortened:
            results = "1 tool result was" if attempt.shortened == 1 else f"{attempt.shortened} tool results were"
            attempt.reason = "; ".join(filter(None, (f"{results} shortened", attempt.reason)))
        return attempt

    async def _apply(self, attempt: _Attempt, result: CompactionResult, context: CompactionContext) -> None:
        view = attempt.view
        start, end = covered_range(view.messages, result, context)
        if start == end:
            attempt.reason = (
                "the range begins with a message that is still being written"
                if any(message.id in attempt.streamed for message in view.messages[start : start + 1])
                else "the range holds calls that wait for their results, or would part a call from its result or cross "
                "an earlier summary"
            )
            return
        covered = view.messages[start:end]
        overlay = self._checked(result.summary, covered, sum(view.tokens[start:end]))
        unchanged = Unchanged(view.version, frozenset(message.id for message in covered), view.tree)
        try:
            attempt.made = await self._messages.add_overlay(self._scope, overlay, unchanged=unchanged)
        except MessageNotFound:
            attempt.made = None
        if attempt.made is None:
            attempt.reason = "the messages that were summarised have changed meanwhile"
        else:
            attempt.reason = "1 message" if len(covered) == 1 else f"{len(covered)} messages"
            attempt.reason += " became one summary"

    def _checked(self, summary: str, covered: Sequence[Message], tokens: int) -> NewOverlay:
        """Return a summary as a store takes it.

        Raises:
            CompactionFailed: it is blank, or longer than the messages it is to replace.
        """
        overlay = new_overlay(summary, covered[0].id, covered[-1].id, count=self._count, largest=self._largest)
        reason = refuse_summary(overlay.summary, overlay.tokens, messages=len(covered), replaced=tokens)
        if reason is not None:
            raise CompactionFailed(self._scope.session_id, reason)
        return overlay

    def _context(self, attempt: _Attempt, prompt_tokens: int) -> CompactionContext:
        view = attempt.view
        known = {message.id: (message, tokens) for message, tokens in zip(view.messages, view.tokens, strict=True)}

        def count(message: Message) -> int:
            seen, tokens = known.get(message.id, (None, 0))
            return tokens if message is seen or message == seen else self._count(message)

        async def shorten(results: Sequence[Reclaimed]) -> None:
            await self._messages.reclaim(self._scope, results)
            attempt.shortened += len(results)

        return CompactionContext(
            count,
            self._scope.session_id,
            self._setup.compact_after,
            prompt_tokens,
            view.no_end_at,
            # A custom storage keeps no notices.
            None if self._store is None else shorten,
            estimates=self._setup.token_counter is None,
            pair=KnownPairs(view.messages),
            being_written=attempt.streamed,
        )

    async def _ask(self, context: CompactionContext, view: View) -> CompactionResult | None:
        function = self._setup.on_compaction
        assert function is not None
        arguments: list[object] = [list(view.messages)]
        if self._gives_context:
            arguments.append(context)
        asking = _asking.set((*_asking.get(), self._state))
        try:
            answer = await call(function, *arguments)
        finally:
            _asking.reset(asking)
        return read_result(answer)

    @cached_property
    def _gives_context(self) -> bool:
        function = self._setup.on_compaction
        return function is not None and takes_context(function)

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
            # The frames of a traceback refer to the whole history, which a record must not keep in memory.
            traceback.clear_frames(error.__traceback__)
        self._state.remember(
            CompactionRecord(from_micros(now_micros()), automatic, reason, tokens, threshold, compaction, error)
        )

    async def _report(self, error: Exception) -> None:
        """Give an error to its handler, else to the log."""
        handler = self._setup.on_compaction_error
        if handler is None:
            _log.warning("compaction of session %r failed", self._scope.session_id, exc_info=error)
            return
        try:
            await call(handler, error)
        except Exception as failure:  # noqa: BLE001  (no other place is left to report it to)
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


def takes_context(function: Callable[..., Any]) -> bool:
    """Tell whether a function has a second parameter that is meant for the context."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return False  # A built-in has no signature to look at.
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1:
        return positional[1].default is inspect.Parameter.empty or positional[1].name == "context"
    return any(one.kind is one.VAR_POSITIONAL for one in parameters)
