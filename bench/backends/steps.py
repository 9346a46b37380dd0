"""What an agent asks of a store: a step, the head of a session, its states, its lease and messages to the holder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from driver import Bench

from backends.anywhere import Anywhere
from leafward import Message
from leafward.core.attached_state import attach
from leafward.core.ids import Scope
from leafward.core.parent import LATEST_LEAF
from leafward.sessions.session import Session, draft_of
from leafward.stores import DEFAULT_MAX_MESSAGE_BYTES, AttachedState, Usage

STEP, PLAIN = "with state and usage", "messages alone"
HEAD, GET = "head", "get of one message"
SET, SET_FIRST = "set_state", "set_state in a session without states"
FOUND, FOUND_FIRST = "get_state", "get_state in a session without states"
SEND, LABEL = "send and receive", "label and get"
HOLD, APPEND = "acquire and release", "append"
NAMES = ("leafward.turn", "leafward.state:agent_state", "leafward.view:agent_state")

Call = Callable[[], Awaitable[Any]]

_NUMBERS = count()
"""Of all that a process does: usage and states that were there before would not be written."""


def small_state(number: int) -> list[AttachedState]:
    """Return what an agent attaches to a message: the note of its turn, and its small state, which seldom changes."""
    values: dict[str, dict[str, Any]] = {
        NAMES[0]: {"id": f"turn {number}", "open": "running", "input": [f"m{number}"], "slot": number},
        NAMES[1]: {"summary": "", "permissions": {"mode": "default", "rules": []}, "tasks": [f"task {number // 10}"]},
    }
    return [attach(name, value, largest=DEFAULT_MAX_MESSAGE_BYTES) for name, value in values.items()]


class Steps:
    """The store's side of an agent, on one backend."""

    def __init__(self, ours: Anywhere, bench: Bench) -> None:
        self._ours = ours
        self._bench = bench

    def _scope(self, session: int) -> Scope:
        return Scope.of(f"s{session}", user_id=f"u{session % 2}")

    def _session(self, session: int) -> Session:
        return Session(self._ours.store, f"s{session}", user_id=f"u{session % 2}")

    async def _next(self, session: int) -> Message:
        (message,) = await self._bench.take(session, 1)
        return message

    async def step(self, session: int) -> Call:
        """Append a message with two states and usage."""
        draft = draft_of(self._session(session), await self._next(session))
        number = next(_NUMBERS)
        state, usage = small_state(number), Usage(1_000, 100, 0.01, usage_id=f"usage {number}")
        return lambda: self._ours.store.messages.append(
            self._scope(session), [draft], LATEST_LEAF, state=state, usage=usage
        )

    async def plain(self, session: int) -> Call:
        """Append a message in the same way, alone."""
        draft = draft_of(self._session(session), await self._next(session))
        return lambda: self._ours.store.messages.append(self._scope(session), [draft], LATEST_LEAF)

    async def head(self, session: int) -> Call:
        return lambda: self._ours.store.messages.head(self._scope(session), NAMES)

    async def get(self, session: int) -> Call:
        leaf = await self._ours.store.messages.leaf(self._scope(session))
        return lambda: self._ours.store.messages.get(self._scope(session), leaf.id)

    async def set_state(self, session: int) -> Call:
        value = {"n": next(_NUMBERS)}
        return lambda: self._session(session).set_state("count", value)

    async def get_state(self, session: int) -> Call:
        return lambda: self._session(session).get_state("count")

    async def fill_states(self, session: int, upto: int) -> None:
        """Attach a state to each of so many new messages."""
        for number in range(upto):
            message = await self._next(session)
            await self._session(session).append_message(message, state={"count": {"n": -number - 1}})

    async def send_and_receive(self, session: int, lease: Any) -> Call:
        async def both() -> None:
            await self._ours.store.leases.send(f"s{session}", f"u{session % 2}", "stop and sum up")
            if len(await lease.receive()) != 1:
                raise AssertionError("the text did not arrive")

        return both

    async def label_and_get(self, session: int) -> Call:
        leaf = await self._ours.store.messages.leaf(self._scope(session))
        name = f"label {next(_NUMBERS)}"

        async def both() -> None:
            await self._session(session).label(leaf.id, name)
            await self._session(session).get_message(leaf.id)

        return both

    async def hold(self, session: int) -> Call:
        async def acquire_and_release() -> None:
            await (await self._ours.acquire(session)).release()

        return acquire_and_release


Pairs = dict[str, Callable[[], Awaitable[Call]]]


def pairs(steps: Steps, what: str, session: int, other: int, lease: Any = None) -> Pairs:
    """Return the two calls that take turns in a row of the table, by their names."""
    found: dict[str, Pairs] = {
        STEP: {STEP: lambda: steps.step(session), PLAIN: lambda: steps.plain(session)},
        HEAD: {HEAD: lambda: steps.head(session), GET: lambda: steps.get(session)},
        SET: {SET: lambda: steps.set_state(session), SET_FIRST: lambda: steps.set_state(other)},
        FOUND: {FOUND: lambda: steps.get_state(session), FOUND_FIRST: lambda: steps.get_state(other)},
        SEND: {SEND: lambda: steps.send_and_receive(session, lease), LABEL: lambda: steps.label_and_get(session)},
        HOLD: {HOLD: lambda: steps.hold(session), APPEND: lambda: steps.plain(session)},
    }
    return found[what]
