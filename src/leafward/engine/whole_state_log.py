"""A turn in a custom store of states, which keeps no tree: the whole state is saved at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from leafward.core.agent_state import AgentState
from leafward.core.attached_state import TURN
from leafward.core.calls import Call
from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.core.message import Message, ids_of
from leafward.core.session_key import SessionKey
from leafward.engine.agent_compaction import RAISED, ToCompact
from leafward.engine.budget import Spent, no_counters
from leafward.engine.context_edits import take_step
from leafward.engine.context_messages import ContextMessages
from leafward.engine.custom_states import CustomStates
from leafward.engine.recovery import mark_calls, note_of_others, open_calls
from leafward.engine.small_state import MARK, put_back, reply_in_doubt, without_marks, write_small_state
from leafward.engine.step_log import LogOptions
from leafward.engine.summary_messages import shown_text
from leafward.engine.turn_note import TurnNote
from leafward.sessions.path_compaction import Compacted, PathCompactor
from leafward.stores.contracts import MessageStore, Usage


class WholeStateLog:
    """The durable side of one turn in a custom store of states.

    The turn's note is saved inside the state, as `leafward.turn`. Usage is counted nowhere.

    Raises:
        ConfigurationError: no state is to be written.
    """

    def __init__(self, states: CustomStates, key: SessionKey, options: LogOptions) -> None:
        if not options.writes_slot:
            raise ConfigurationError("slot='off' leaves a custom store of states nothing to keep: leave it out")
        self.key = key
        self.state = AgentState(session_id=key.session_id, user_id=key.user_id)
        self.note: TurnNote | None = None
        self.leaf_id: str | None = None
        self.known: dict[str, bool] = {}
        self.is_new = True
        self.is_saved = True
        self.is_projected = True
        self._states = states
        self._options = options
        self._stored: list[Message] = []
        self._small: dict[str, Any] | None = None

    async def load(self, defaults: AgentState, input_ids: Sequence[str] = (), *, adopts: bool = True) -> None:
        """Read the state; one without a note was saved by another writer."""
        found = await self._states.get(self.key, self._options.state_name, AgentState)
        state = defaults if found is None else found
        self.is_new = found is None
        note = state.extra.get(TURN)
        mark = state.extra.get(MARK)
        self.state = replace(without_marks(state), session_id=self.key.session_id, user_id=self.key.user_id)
        if note is not None:
            self.note = TurnNote.read(note)
        elif found is not None:
            calls = open_calls(self.state.context)
            in_doubt = bool(calls) and reply_in_doubt(mark) == calls[0].message.id
            self.note = note_of_others(self.state, state_name=self._options.state_name, in_doubt=in_doubt)
        mark_calls(self.state, self.note)
        self._is_stored(list(self.state.context))
        ids = set(ids_of(self._stored))
        self.known = {id: True for id in input_ids if id in ids}

    async def path_with(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the conversation."""
        return list(self.state.context)

    async def note_at(self, message_id: str) -> TurnNote | None:
        """Return nothing: a state has the note of its last turn only."""
        return None

    async def unknown(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of some messages that are not stored."""
        stored = set(ids_of(self._stored))
        return [message for message in messages if message.id not in stored]

    async def stored_results(self, calls: Sequence[Call]) -> dict[str, Message | None]:
        """Return nothing: what the context does not show is not stored."""
        return {}

    async def is_inside(self) -> bool:
        """Return False: there are no branches."""
        return False

    async def commit(self, note: TurnNote | None, *, usage: Usage | None = None, at_boundary: bool = False) -> None:
        """Save the state with the note, if steps are saved or this is a boundary.

        Raises:
            ValueError: the context holds what it may not; that was taken out of it, and nothing was written.
        """
        self.note = note
        step = take_step(self.state.context, self._stored)
        mark_calls(self.state, note)
        self.is_saved = self._options.saves_steps or at_boundary
        if not self.is_saved:
            return
        noted = {} if note is None else {TURN: note.write()}
        await self._states.save(
            self.key, self._options.state_name, replace(self.state, extra={**self.state.extra, **noted})
        )
        # What a tool changed meanwhile comes with the next step.
        self._is_stored(step.shown)

    def puts_off(self, asked: ToCompact) -> bool:
        """Tell whether a compaction is to be tried later, because earlier attempts failed."""
        return self._compactor(asked).puts_off(asked.size)

    async def compact(self, asked: ToCompact) -> Compacted:
        """Have a summary take the place of a part of the context, which the next commit saves."""
        context = self.state.context
        done = await self._compactor(asked).run(None, asked.size, raised=RAISED)
        self.state.summary = shown_text(context) or self.state.summary
        return done

    def _compactor(self, asked: ToCompact) -> PathCompactor:
        messages = cast(MessageStore, ContextMessages(self.state.context, self._states))
        scope = Scope.of(self.key.session_id, user_id=self.key.user_id, agent_id=self._options.agent_id)
        return PathCompactor(asked.function, messages, scope, None, threshold=asked.threshold)

    async def spent(self) -> Spent:
        """Refuse to say: nothing counts it.

        Raises:
            ConfigurationError: always.
        """
        raise no_counters()

    def _is_stored(self, context: list[Message]) -> None:
        self._stored = context
        self._small = write_small_state(self.state)
        self.leaf_id = context[-1].id if context else None

    def take_back(self) -> None:
        """Have the small state as it is stored."""
        put_back(self.state, self._small)

    async def project(self) -> None:
        """Do nothing: the state that was saved last is what others read."""

    async def clear(self) -> None:
        """Save the state without its messages, its summary and the note of a turn."""
        self.state.context, self.state.summary, self.state.shutdown_interrupted = [], "", False
        await self.commit(None, at_boundary=True)
