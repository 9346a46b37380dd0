"""The steps of a turn that runs in another task or process, as they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from leafward.core.attached_state import TURN
from leafward.core.calls import Result, pair
from leafward.core.errors import SessionNotFound
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.recovery import open_calls
from leafward.engine.turn_note import TurnNote
from leafward.stores.contracts import NOT_THERE, Head, Revision, Store

LOOKS_EVERY_S = 1.0
"""How often the store is asked whether the turn still runs, while nothing is stored."""
_FIRST_PAGE = 32


class RunningTurn:
    """Reads what the turn of an agent stores, from any process that shares its store."""

    def __init__(self, store: Store, scope: Scope, *, label: str, name: str) -> None:
        self._store = store
        self._scope = scope
        self._label = label
        self._name = name

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield the steps that are stored, then each further one when it is stored, until the turn stops.

        Raises:
            SessionNotFound: the session was deleted meanwhile.
        """
        if not await self._runs():
            return
        head = await self._head()
        earlier, above = _note(head), head.leaf_id
        is_begun = earlier is not None and earlier.open == "running"
        turn = earlier if is_begun else await self._begun(earlier)
        if turn is None:
            return
        yield AgentEvent("AGENT_START", name=self._name)
        shown: set[str] = set()
        runs = True
        while runs:
            revision, runs, present = await self._look()
            if revision == NOT_THERE:
                raise SessionNotFound(self._scope.session_id)
            steps = await self._steps(turn, present, above)
            for message in steps:
                if message.id not in shown:
                    shown.add(message.id)
                    yield _step(message)
            own = present if present is not None and present.id == turn.id else None
            if own is None and present is not None and not _is_answered(steps):
                # A process was lost in that turn; the one that runs has begun only now.
                turn = present
                continue
            if own is None or own.open != "running":
                for event in _ending(steps, own):
                    yield event
                break
            if runs:
                await self._wait(revision)
        yield AgentEvent("AGENT_END", name=self._name)

    async def _begun(self, earlier: TurnNote | None) -> TurnNote | None:
        """Return the note of a turn that has stored nothing yet, as soon as it is stored; `None` if it never is."""
        while True:
            revision, runs, present = await self._look()
            if present is not None and present != earlier:
                return present
            if not runs:
                return None
            await self._wait(revision)

    async def _look(self) -> tuple[Revision, bool, TurnNote | None]:
        revision = await self._store.messages.revision(self._scope)
        # Asked before the note is read: then a turn that does not run any more stores no further steps.
        runs = await self._runs()
        return revision, runs, _note(await self._head())

    async def _wait(self, revision: Revision) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKS_EVERY_S):
                await self._store.messages.wait(self._scope, revision)

    async def _runs(self) -> bool:
        holder = await self._store.leases.holder(self._scope.session_id, self._scope.owner.user_id)
        return holder is not None and holder.label == self._label

    async def _head(self) -> Head:
        return await self._store.messages.head(self._scope, (TURN,))

    async def _steps(self, turn: TurnNote, present: TurnNote | None, above: str | None) -> list[Message]:
        """Return the stored messages of the turn: from its input, or below `above`, up to the next turn."""
        start = turn.input[0] if turn.input else above
        limit = _FIRST_PAGE
        while True:
            page = await self._store.messages.raw_page(self._scope, None, before=None, limit=limit)
            ids = [message.id for message in page]
            if start in ids or len(page) < limit:
                break
            limit *= 4
        first = ids.index(start) + (not turn.input) if start in ids else 0
        later = present.input if present is not None and present.id != turn.id else ()
        end = next((row for row, id in enumerate(ids) if id in later), len(ids))
        return page[first:end]


def _note(head: Head) -> TurnNote | None:
    found = head.states.get(TURN)
    return None if found is None else TurnNote.read(found)


def _step(message: Message) -> AgentEvent:
    """Return the event that shows a stored message of a turn."""
    results = [item for item in pair([message]).items[0] if isinstance(item, Result)]
    if message.role == "assistant":
        return AgentEvent("MODEL_CALL_END", message.id, message=message, committed=True)
    if results:
        result = results[0]
        return AgentEvent(
            "TOOL_RESULT_END",
            call_id=result.call_id,
            name=result.name or "",
            state=result.state,
            message=message,
            committed=True,
        )
    return AgentEvent("CUSTOM", name="input", message=message, committed=True)


def _is_answered(steps: Sequence[Message]) -> bool:
    """Tell whether the last message of a turn is a reply without calls."""
    return bool(steps) and steps[-1].role == "assistant" and not open_calls(steps)


def _ending(steps: Sequence[Message], note: TurnNote | None) -> list[AgentEvent]:
    """Return what shows how a turn stopped; `note` is what was last stored of it, if that is known."""
    replies = [message for message in steps if message.role == "assistant"]
    if not replies:
        return []
    if note is not None and note.open == "asking":
        calls = [call.part for call in open_calls(steps)]
        return [
            AgentEvent("REQUIRE_EXTERNAL_EXECUTION", replies[-1].id, message=replies[-1], data=calls, committed=True)
        ]
    if note is not None and (note.open == "paused" or note.failed is not None):
        return []
    return [AgentEvent("AGENT_RESULT", replies[-1].id, message=replies[-1], committed=True)]
