"""An agent's state and what it is measured against, in one process, taking turns call by call.

The state has messages that were written before, and two that were not. Beside it the texts of as many messages are
joined, and a text of that length is saved by the driver.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import traffic
from backends.states import STATE_LIMITS
from driver import Reply, answer

from leafward import AgentState, Message
from leafward.stores import JsonFileAgentStateStore, SqliteAgentStateStore, StateStore

JOIN, KNOWN, GIVEN_OUT, UNKNOWN, READ = "join", "known", "given out", "unknown", "read"
OURS, LIMIT = "leafward", "driver"
NEW = 2
_STORES: dict[str, Callable[[Path], StateStore]] = {"sqlite": SqliteAgentStateStore, "file": JsonFileAgentStateStore}

Call = Callable[[], Awaitable[Any]]


class StateDuel:
    """Answers with what each took, by name."""

    async def do_open(self, path: str, size: int) -> Reply:
        self._path = Path(path)
        self._size = size
        self._state = AgentState(session_id="s", reply_id="r", context=_messages(0, size))
        self._text = self._state.to_json()
        self._given_out = AgentState.from_json(self._text)
        self._numbers = count(size, 4)
        """The places of messages that a user says next."""
        self._stores: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        return {"bytes": len(self._text.encode())}

    async def do_write(self, times: int) -> Reply:
        """Write the state, also after all parts of its messages were given out, and join texts of that length."""

        def join() -> Call:
            document = msgspec.json.decode(self._with_new(self._state).to_json())
            texts = [_encoded(msg) for msg in document.pop("context")]
            return _sync(lambda: ",".join([_encoded(document), *texts]))

        def known() -> Call:
            return _sync(self._with_new(self._state).to_json)

        def given_out() -> Call:
            state = self._with_new(self._given_out)
            if not all(message.parts for message in state.context[: self._size]):
                raise AssertionError("a message has no parts")
            return _sync(state.to_json)

        return await _turns(times, {JOIN: join, KNOWN: known, GIVEN_OUT: given_out})

    async def do_first(self, times: int) -> Reply:
        """Write messages that were never written, and read them."""

        def unknown() -> Call:
            return _sync(AgentState(context=_messages(0, self._size)).to_json)

        def read() -> Call:
            return _sync(lambda: AgentState.from_json(self._text))

        return await _turns(times, {UNKNOWN: unknown, READ: read})

    async def do_save(self, kind: str, times: int) -> Reply:
        """Save the state, and a text of that length by the driver."""
        if kind not in self._stores:
            place = self._path / kind
            place.mkdir()
            self._stores[kind] = _STORES[kind](place / "states")
            self._limits[kind] = STATE_LIMITS[kind]()
            await self._limits[kind].open(str(place))
            await self._limits[kind].make_states()

        def ours() -> Call:
            state = self._with_new(self._state)
            return lambda: self._stores[kind].save("s", "agent_state", state)

        def limit() -> Call:
            text = self._with_new(self._state).to_json()
            return lambda: self._limits[kind].put(0, text)

        return await _turns(times, {OURS: ours, LIMIT: limit})

    async def do_close(self) -> Reply:
        for store in (*self._stores.values(), *self._limits.values()):
            await store.close()
        return {}

    def _with_new(self, state: AgentState) -> AgentState:
        """Put messages that were not written yet in place of the last ones."""
        start = next(self._numbers)
        state.context[self._size :] = _messages(start, start + NEW)
        return state


_encoder = msgspec.json.Encoder()


def _encoded(value: object) -> str:
    return _encoder.encode(value).decode()


def _messages(start: int, stop: int) -> list[Message]:
    return [Message.from_dict(_as_agents_have_it(message)) for message in traffic.messages(start, stop)]


def _as_agents_have_it(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose result, if it holds one, is a list of blocks."""
    parts = [
        {**part, "output": [{"type": "text", "text": part["output"]}]} if part["type"] == "tool_result" else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}


def _sync(function: Callable[[], Any]) -> Call:
    async def call() -> None:
        function()

    return call


async def _turns(times: int, makers: dict[str, Callable[[], Call]]) -> Reply:
    """Time the calls that the makers return, one of each in turn, the first one last in the next turn."""
    gc.collect()
    order = list(makers)
    spent: dict[str, list[int]] = {name: [] for name in order}
    for _ in range(times):
        for name in order:
            call = makers[name]()
            begin = time.perf_counter_ns()
            await call()
            spent[name].append(time.perf_counter_ns() - begin)
        order.append(order.pop(0))
    return {"ns": spent}


if __name__ == "__main__":
    answer(StateDuel)
