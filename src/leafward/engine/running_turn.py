"""The steps of a turn that runs in another task or process, as they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from leafward.core.attached_state import TURN
from leafward.core.calls import Result, is_question, pair
from leafward.core.errors import SessionNotFound
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.engine.events import AgentEvent, EventType, input_event
from leafward.engine.questions import is_asked
from leafward.engine.recovery import open_calls
from leafward.engine.reply_reason import with_reason
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
        token = await self._token()
        if token is None:
            return
        head = await self._head()
        earlier, above = _note(head), head.leaf_id
        is_begun = earlier is not None and earlier.open == "running"
        turn = earlier if is_begun else await self._begun(earlier)
        if turn is None:
            return
        yield AgentEvent("AGENT_START", name=self._name)
        shown: set[str] = set()
        last: str | None = None
        runs = True
        while runs:
            revision, now, head = await self._look(last, is_begun=True)
            runs = now is not None
            is_elsewhere = last is not None and head.known.get(last) is False
            if is_elsewhere and now == token:
                # The session was checked out, or others have appended elsewhere: the turn goes on where it was.
                await self._wait(revision)
                continue
            leaf_id, present = await self._tip(last) if last and is_elsewhere else (head.leaf_id, _note(head))
            steps = await self._steps(turn, present, above, leaf_id)
            last = steps[-1].id if steps else last
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
            revision, now, head = await self._look()
            present = _note(head)
            if present is not None and present != earlier:
                return present
            if now is None:
                return None
            await self._wait(revision)

    async def _look(self, last: str | None = None, *, is_begun: bool = False) -> tuple[Revision, int | None, Head]:
        revision = await self._store.messages.revision(self._scope)
        if is_begun and revision == NOT_THERE:
            raise SessionNotFound(self._scope.session_id)
        # Asked before the note is read: then a turn that does not run any more stores no further steps.
        now = await self._token()
        return revision, now, await self._head(last)

    async def _wait(self, revision: Revision) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKS_EVERY_S):
                await self._store.messages.wait(self._scope, revision)

    async def _token(self) -> int | None:
        """Return the fencing token of the turn that runs, `None` if none does."""
        holder = await self._store.leases.holder(self._scope.session_id, self._scope.owner.user_id)
        return None if holder is None or holder.label != self._label else holder.token

    async def _head(self, last: str | None = None) -> Head:
        return await self._store.messages.head(self._scope, (TURN,), ids=() if last is None else (last,))

    async def _tip(self, message_id: str) -> tuple[str, TurnNote | None]:
        """Return the newest message below one of the turn, and the note in force there."""
        tip = await self._store.messages.tip(self._scope, message_id)
        found = (await self._store.messages.states(self._scope, tip.id, (TURN,))).get(TURN)
        return tip.id, None if found is None else TurnNote.read(found)

    async def _steps(
        self, turn: TurnNote, present: TurnNote | None, above: str | None, leaf_id: str | None
    ) -> list[Message]:
        """Return the stored messages of the turn: from its input, or below `above`, up to the next turn."""
        start = turn.input[0] if turn.input else above
        limit = _FIRST_PAGE
        while True:
            page = await self._store.messages.raw_page(self._scope, leaf_id, before=None, limit=limit)
            ids = [message.id for message in page]
            if start in ids or len(page) < limit:
                break
            limit *= 4
        first = ids.index(start) + (not turn.input) if start in ids else 0
        later = present.input if present is not None and present.id != turn.id else ()
        end = next((row for row, id in enumerate(ids) if id in later), len(ids))
        steps = page[first:end]
        own = {*turn.input, *(() if present is None else (*present.input, *present.joined))}
        # What others append below a turn that runs becomes a branch, unless the turn has put it there itself.
        while steps and is_question(steps[-1]) and steps[-1].id not in own:
            steps.pop()
        return steps


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
    return input_event(message)


def _is_answered(steps: Sequence[Message]) -> bool:
    """Tell whether the last message of a turn is a reply without calls."""
    return bool(steps) and steps[-1].role == "assistant" and not open_calls(steps)


def _ending(steps: Sequence[Message], note: TurnNote | None) -> list[AgentEvent]:
    """Return what shows how a turn stopped; `note` is what was last stored of it, if that is known."""
    replies = [message for message in steps if message.role == "assistant"]
    if not replies:
        return []
    if note is not None and note.open == "asking":
        calls = open_calls(steps)
        asked = [call.part for call in calls if is_asked(call)]
        kind: EventType = "REQUIRE_USER_CONFIRM" if asked else "REQUIRE_EXTERNAL_EXECUTION"
        data = asked or [call.part for call in calls]
        return [AgentEvent(kind, replies[-1].id, message=replies[-1], data=data, committed=True)]
    if note is not None and (note.open == "paused" or note.failed is not None):
        return []
    reply = with_reason(replies[-1], "INTERRUPTED") if note is not None and note.interrupted else replies[-1]
    return [AgentEvent("AGENT_RESULT", reply.id, message=reply, committed=True)]
