"""The durable side of an agent's turn: where the conversation stands, and what is stored of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from leafward.core.agent_contexts import PermissionContext, ToolContext
from leafward.core.agent_records import copy_record
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call
from leafward.core.ids import new_id
from leafward.core.message import Message
from leafward.core.session_key import SessionKey
from leafward.engine.agent_compaction import ToCompact
from leafward.engine.budget import Spent
from leafward.engine.turn_note import TurnNote
from leafward.sessions.path_compaction import Compacted
from leafward.stores.contracts import Usage

ConflictPolicy = Literal["fail", "overwrite", "append_merge"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How an agent's turns are written."""

    agent_id: str
    state_name: str = "agent_state"
    saves_steps: bool = True
    """Whether every step is stored, or only whole turns."""
    writes_slot: bool = True
    conflict_policy: ConflictPolicy = "fail"
    initial_groups: Sequence[str] = ()
    """The groups of tools that are active in a new session."""
    initial_permissions: PermissionContext = field(default_factory=PermissionContext)
    """The permissions that a new session begins with."""

    def ended_turn(self) -> TurnNote:
        """Return the note of a session in which no turn is open."""
        return TurnNote(new_id(), None, state_name=self.state_name)

    def new_state(self, key: SessionKey) -> AgentState:
        """Return the state that a session begins with."""
        groups = ToolContext(activated_groups=list(self.initial_groups))
        return AgentState(
            session_id=key.session_id,
            user_id=key.user_id,
            permission_context=copy_record(self.initial_permissions),
            tool_context=groups,
        )


class StepLog(Protocol):
    """What a turn needs of storage: a tree of messages in a store of ours, a whole state in a custom one.

    The turn changes `state` and calls `commit`, which stores what is new.
    """

    key: SessionKey
    state: AgentState
    note: TurnNote | None
    """The note of the turn that the last message belongs to."""
    known: dict[str, bool]
    """Which messages of the input are stored, and whether each is part of this conversation."""
    is_saved: bool
    """Whether the last commit was written."""

    is_new: bool
    """Whether nothing was found of the session."""
    is_projected: bool
    """Whether the slot shows what was loaded."""

    @property
    def leaf_id(self) -> str | None:
        """The last message that is stored of this conversation."""
        ...

    async def load(self, defaults: AgentState, input_ids: Sequence[str] = (), *, adopts: bool = True) -> None:
        """Find out where the conversation stands; with `adopts`, store what has to be taken over from others.

        Raises:
            StateDecodeError: what is stored cannot be read.
        """
        ...

    async def path_with(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the conversation; with all that is hidden of it, if one of these messages is stored there."""
        ...

    async def note_at(self, message_id: str) -> TurnNote | None:
        """Return the note of the turn that a message belongs to, as of that message; `None` if none is kept there."""
        ...

    async def unknown(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of some messages that are not stored."""
        ...

    async def stored_results(self, calls: Sequence[Call]) -> dict[str, Message | None]:
        """Return the results that are stored of calls of one reply, which the context shows without one, by call id.

        Something may hide them, say a summary. It is `None` where only other branches have one.
        """
        ...

    async def is_inside(self) -> bool:
        """Tell whether the conversation stands at a message that has others below it, as after a checkout."""
        ...

    async def commit(self, note: TurnNote, *, usage: Usage | None = None, at_boundary: bool = False) -> None:
        """Store what was added to the state since the last commit, in one step, with the note and the usage.

        The results of a reply are put into the order of its calls. Where only whole turns are stored, nothing is
        written before a boundary, but what a boundary could not store is refused at once.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
            SessionNotFound: the session was deleted meanwhile; nothing was written.
            ValueError: the context holds what it may not, which was taken out of it; or a message is too large, or the
                small state cannot be written. Nothing was written.
        """
        ...

    def puts_off(self, asked: ToCompact) -> bool:
        """Tell whether a compaction is to be tried later, because earlier attempts failed."""
        ...

    async def compact(self, asked: ToCompact) -> Compacted:
        """Have a summary take the place of a part of the context, all of which is stored.

        The next commit stores what else changes by this. What goes wrong with the summary is returned.

        Raises:
            LeaseLost: another holder has the session; nothing was written.
            TurnStopped: the turn was stopped meanwhile.
        """
        ...

    async def spent(self) -> Spent:
        """Return what all turns of the session have used, this one included."""
        ...

    def take_back(self) -> None:
        """Have everything of the state but its messages as it is stored."""
        ...

    async def project(self) -> None:
        """Write the state to its slot, where AgentScope reads it.

        Raises:
            SessionNotFound: the session was deleted meanwhile; nothing was written.
            StaleState: another writer changed the slot during this call, and the policy is to fail.
        """
        ...

    async def clear(self) -> None:
        """Start before the first message, with all that is in force now but the summary."""
        ...
