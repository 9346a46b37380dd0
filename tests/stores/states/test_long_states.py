"""What takes long with an agent's state is done where no one waits for it, and its bytes are those of each message
written by itself."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from leafward import AgentState, Message, assistant, tool_result, user
from leafward.core import agent_texts
from leafward.core.agent_message_writer import write_messages
from leafward.core.json import decode, encode_text
from leafward.core.message import body_to_read
from leafward.core.pretty import pretty, with_escapes
from leafward.stores import (
    InMemoryAgentStateStore,
    JsonFileAgentStateStore,
    RedisAgentStateStore,
    Slot,
    SqliteAgentStateStore,
)
from leafward.stores.redis import states as redis_states
from leafward.stores.states import seen_values
from leafward.stores.states.seen_values import Summed, checksum_of
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import LONG

STORES: dict[str, Callable[[Path], StateStore]] = {
    "memory": lambda _: InMemoryAgentStateStore(),
    "sqlite": lambda path: SqliteAgentStateStore(path / "states.db"),
    "files": JsonFileAgentStateStore,
}


@pytest.fixture(params=STORES)
async def states(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[StateStore]:
    async with STORES[request.param](tmp_path) as states:
        yield states


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[bool]]:
    """Have calls of a function noted: whether each was made where the loop runs."""
    main = threading.get_ident()

    def note(module: Any, name: str) -> list[bool]:
        calls: list[bool] = []
        function = getattr(module, name)

        @wraps(function)
        def noting(*given: Any, **options: Any) -> Any:
            calls.append(threading.get_ident() == main)
            return function(*given, **options)

        monkeypatch.setattr(module, name, staticmethod(noting) if isinstance(module, type) else noting)
        return calls

    return note


def state_of(messages: int) -> AgentState:
    return AgentState(session_id="s", reply_id="r", context=[user("hello", id=f"m{n}") for n in range(messages)])


async def stored_text(states: StateStore) -> str:
    found = await (await states._table()).get(Slot(None, "s"), "agent_state")
    assert found is not None
    return found.text if isinstance(found.text, str) else found.text.decode()


async def test_a_state_of_over_a_thousand_messages_is_read_on_a_thread(
    states: StateStore, noted: Callable[[Any, str], list[bool]]
) -> None:
    calls = noted(AgentState, "from_json")
    for messages, on_the_loop in ((1_001, False), (3, True)):
        await states.save("s", "agent_state", state_of(messages))
        calls.clear()
        await states.get("s", "agent_state", AgentState)
        await states.get_versioned("s", "agent_state", AgentState)
        assert calls == [on_the_loop] * 2


async def test_a_state_is_laid_out_on_a_thread_and_each_message_once(
    tmp_path: Path, noted: Callable[[Any, str], list[bool]]
) -> None:
    calls = noted(agent_texts, "pretty")
    state = state_of(5)
    async with JsonFileAgentStateStore(tmp_path) as states:
        await states.save("s", "agent_state", state)
        first = len(calls)
        state.context.append(user("more"))
        await states.save("s", "agent_state", state)
    assert len(calls) - first == first - 4
    assert calls == [False] * len(calls)


async def test_what_is_stored_is_what_each_message_is_by_itself(states: StateStore) -> None:
    state = AgentState(
        session_id="s",
        reply_id="r",
        summary="in short \x1f",
        context=[
            user("\x1b[1m 三天", id="a", metadata={"n": 1e10, "m": 0.0001}),
            assistant([{"type": "reasoning", "text": "hm \x07"}, {"type": "text", "text": "yes"}], id="b"),
            tool_result("c", "x", id="c"),
        ],
        extra={"n": 1e10, "at": "\x1f"},
    )
    for _ in range(3):
        await states.save("s", "agent_state", state)
        copies = [Message.stored(one.id, one.role, one.at, body_to_read(one)) for one in state.context]
        rest = decode(AgentState(session_id="s", reply_id="r", summary=state.summary, extra=state.extra).to_json())
        text = with_escapes(encode_text({**rest, "context": write_messages(copies)}))
        assert await stored_text(states) == (pretty(text) if isinstance(states, JsonFileAgentStateStore) else text)
        state.context[1].parts[1]["text"] += "!"
        state.context.append(user("\x1b more"))


@pytest.mark.parametrize(("length", "on_the_loop"), [(LONG + 1, False), (LONG, True)])
async def test_the_checksum_of_a_long_text_is_computed_once_and_on_a_thread(
    noted: Callable[[Any, str], list[bool]], length: int, on_the_loop: bool
) -> None:
    calls = noted(seen_values, "checksum_of")
    value = await Summed("x" * length).summed()

    assert (await value.summed()).checksum == checksum_of("x" * length)
    assert calls == [on_the_loop]


async def test_redis_gets_the_bytes_and_the_checksum_of_a_long_text_from_a_thread(
    redis_url: str, prefix: str, noted: Callable[[Any, str], list[bool]]
) -> None:
    calls = noted(redis_states, "_summed")
    async with RedisAgentStateStore(redis_url, prefix) as states:
        await states.save("s", "agent_state", state_of(5_000))
        await states.save("s", "agent_state", state_of(3))
    assert calls == [False, True]
