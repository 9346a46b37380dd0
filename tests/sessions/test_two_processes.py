"""Two processes on one file agree at once: what one was told is stored, the other reads, without waiting.

Run as a program, this file is the other process: it takes calls as lines of JSON, and answers each with a line.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from leafward import ContextError, Message, Session, SessionNotFound, create_compact_function, open_store, user
from leafward.core import Compaction
from leafward.stores import Store
from leafward.testing.filled import Recipes, find_fact, manage, picture, put_fact

ROOM = 60
"""Tokens that the limited block holds."""


async def scribble(session: Session, who: str) -> list[str]:
    """Write lines into the limited block until there is no room; return those that were taken."""
    taken: list[str] = []
    while True:
        line = f"{who} {len(taken)}"
        try:
            await session.append_context_block("notes", line)
        except ContextError:
            return taken
        taken.append(line)


ABOUT_SESSIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "picture": picture,
    "put_fact": put_fact,
    "find_fact": find_fact,
    "scribble": scribble,
}


class Handles:
    """What each of the two processes has: a manager, and a session of its own making."""

    def __init__(self, store: Store) -> None:
        self.manager = manage(store)
        self.session = self.manager.get_session("s")
        self.limited = Session(store, "s").with_context("notes", max_tokens=ROOM)
        compact = create_compact_function(summarize=lambda prompt: "in short", protect_head=1, tail_token_budget=30)
        self.compacting = Session(store, "s").on_compaction(compact).compact_after(80)

    async def call(self, target: str, name: str, *arguments: Any) -> Any:
        """Call a method of a handle by its name and return what it gave, as JSON values."""
        handle = getattr(self, target)
        if name in ABOUT_SESSIONS:
            return plain(await ABOUT_SESSIONS[name](handle, *arguments))
        return plain(await getattr(handle, name)(*arguments))


def plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, Message):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, set):
        return sorted(value)
    return value.isoformat() if isinstance(value, datetime) else value


async def serve(path: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        handles = Handles(store)
        for line in iter(sys.stdin.readline, ""):
            print(json.dumps(await handles.call(*json.loads(line))), flush=True)


class Peer:
    """The other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, target: str, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([target, name, *map(plain, arguments)]).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the other process ended"
        return json.loads(line)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), 60) == 0


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[Handles]:
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        yield Handles(store)


@pytest.fixture
async def there(tmp_path: Path, here: Handles) -> AsyncGenerator[Peer]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(tmp_path / "chat.db"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    peer = Peer(process)
    yield peer
    await peer.end()


async def content(here: Handles, label: str) -> str:
    block = await here.session.get_context_block(label)
    assert block is not None
    return block.content


async def test_blocks_agree(here: Handles, there: Peer) -> None:
    for n in range(20):
        await there("session", "replace_context_block", "memory", f"there {n}")
        assert await content(here, "memory") == f"there {n}"
        await here.session.append_context_block("memory", f"here {n}")
        assert (await there("session", "get_context_block", "memory"))["content"] == f"there {n}\nhere {n}"

    await there("session", "append_context_block", "house", "Quiet after ten.")
    block = await here.manager.get_session("another").get_context_block("house")
    assert block is not None
    assert block.content == "Quiet after ten."


async def test_entries_agree(here: Handles, there: Peer) -> None:
    await there("session", "put_fact", "Tree", "The walnut is old.")
    assert "old" in await find_fact(here.session, "walnut")

    await put_fact(here.session, "Tree", "The walnut is young.")
    assert "young" in await there("session", "find_fact", "walnut")
    assert await content(here, "facts") == "1 entries indexed."


async def test_two_writers_lose_nothing_and_pass_no_limit(here: Handles, there: Peer) -> None:
    await there("limited", "get_context_block", "notes")

    kept = await asyncio.gather(scribble(here.limited, "here"), there("limited", "scribble", "there"))

    block = await here.limited.get_context_block("notes")
    assert block is not None
    assert ROOM - 5 < block.tokens <= ROOM
    assert sorted(block.content.splitlines()) == sorted(kept[0] + kept[1])
    assert plain(block) == await there("limited", "get_context_block", "notes")


async def test_the_prompt_is_the_same_to_the_byte(here: Handles, there: Peer) -> None:
    await here.session.replace_context_block("memory", "Likes walnuts.")

    first, second = await asyncio.gather(here.session.freeze_system_prompt(), there("session", "freeze_system_prompt"))
    await here.session.replace_context_block("memory", "Likes maples.")

    assert first == second == await here.session.freeze_system_prompt()
    renewed = await there("session", "refresh_system_prompt")
    assert "Likes maples." in renewed
    assert await here.session.freeze_system_prompt() == renewed
    await there("session", "clear_messages")
    await here.session.replace_context_block("memory", "Likes oaks.")
    assert "Likes oaks." in await here.session.freeze_system_prompt()


async def test_the_leaf_agrees(here: Handles, there: Peer) -> None:
    for n in range(10):
        await there("session", "append_message", user(f"there {n}", id=f"t{n}"))
        leaf = await here.session.get_latest_leaf()
        assert leaf is not None
        assert leaf.id == f"t{n}"
        await here.session.append_message(user(f"here {n}", id=f"h{n}"))
        assert (await there("session", "get_latest_leaf"))["id"] == f"h{n}"
    assert len(await here.session.get_history()) == 20

    await there("session", "checkout", "t3")
    await here.session.append_message(user("aside", id="aside"))
    parent = await here.session.get_parent("aside")
    assert parent is not None
    assert parent.id == "t3"
    await here.session.delete_messages(["aside", "t3"])
    assert (await there("session", "get_latest_leaf"))["id"] == "h2"


async def test_summaries_agree(here: Handles, there: Peer) -> None:
    await here.session.append_messages([user(f"walnut {n}", id=f"m{n}") for n in range(8)])
    frozen = await here.session.freeze_system_prompt()
    await here.session.replace_context_block("memory", "Likes walnuts.")

    made = await there("session", "add_compaction", "in short", "m1", "m4")

    shown = f"compaction_{made['id']}"
    assert [message.id for message in await here.session.get_history()] == ["m0", shown, "m5", "m6", "m7"]
    (stored,) = await here.session.get_compactions()
    assert plain(stored) == made
    assert await here.session.freeze_system_prompt() != frozen
    assert await here.session.estimate_tokens() == await there("session", "estimate_tokens")
    outer = await here.session.add_compaction("shorter", shown, "m6")
    assert isinstance(outer, Compaction)
    assert [one["id"] for one in await there("session", "get_history")] == ["m0", f"compaction_{outer.id}", "m7"]


async def test_a_window_that_one_process_fills_is_compacted_by_the_other(here: Handles, there: Peer) -> None:
    for n in range(7):
        await there("session", "append_message", user("walnut walnut walnut", id=f"m{n}"))
    assert await here.session.get_compactions() == []

    while not await here.session.get_compactions():
        await here.compacting.append_message(user("walnut walnut walnut"))

    assert await there("session", "get_summary_ids") == await here.session.get_summary_ids()
    assert await there("compacting", "estimate_tokens") == await here.compacting.estimate_tokens() <= 80


async def test_loaded_skills_agree(here: Handles, there: Peer) -> None:
    called = {"toolCallId": "c1", "state": "output-available", "input": {"label": "recipes", "key": "tea"}}
    loading = {"type": "tool-load_context", **called, "output": Recipes.text}
    await here.session.append_message({"id": "loading", "role": "assistant", "parts": [loading]})

    await there("session", "load_skill", "recipes", "tea")
    assert await here.session.get_loaded_skill_keys() == ["recipes:tea"]

    assert await here.session.unload_skill("recipes", "tea")
    assert await there("session", "get_loaded_skill_keys") == []
    (shown,) = await there("session", "get_history")
    assert shown["parts"][0]["output"] == "[skill unloaded: tea]"
    assert await there("session", "estimate_tokens") == await here.session.estimate_tokens()


async def test_the_list_of_sessions_agrees(here: Handles, there: Peer) -> None:
    manager = here.manager

    made = await there("manager", "create", "from there")
    assert plain(await manager.get(made["id"])) == made
    await there("manager", "append", made["id"], user("walnut", id="m"))
    await there("manager", "rename", made["id"], "renamed")
    await there("manager", "add_usage", made["id"], 1, 2, 0.5)
    (info,) = await manager.list()
    assert (info.name, info.input_tokens, info.estimated_cost) == ("renamed", 1, 0.5)
    fork = await manager.fork(info.id, "m", "fork")
    assert [one["id"] for one in await there("manager", "list")] == [fork.id, info.id]
    assert {one["session_id"] for one in await there("manager", "search", "walnut")} == {fork.id, info.id}

    await there("manager", "delete", info.id)

    assert await manager.get(info.id) is None
    assert [found.session_id for found in await manager.search("walnut")] == [fork.id]
    with pytest.raises(SessionNotFound):
        await manager.append(info.id, user("walnut"))


async def test_a_session_that_ends_in_one_process_is_empty_in_the_other(here: Handles, there: Peer) -> None:
    empty = plain(await picture(here.session))
    await here.session.append_messages([user("walnut", id="a"), user("walnut", id="b")])
    await here.session.add_compaction("in short", "a", "b")
    await here.session.replace_context_block("memory", "Likes walnuts.")
    await here.session.load_skill("recipes", "tea")
    full = plain(await picture(here.session))
    assert await there("session", "picture") == full

    await there("manager", "delete", "s")

    assert plain(await picture(here.session)) == empty
    assert await there("session", "picture") == empty


async def test_a_session_is_the_same_in_both_after_many_changes(here: Handles, there: Peer) -> None:
    await asyncio.gather(
        *(here.session.append_message(user(f"here {n}", id=f"h{n}")) for n in range(10)),
        write_there(there),
    )

    told = await there("session", "picture")

    assert told == plain(await picture(here.session))
    assert len(told["history"]) == 20


async def write_there(there: Peer) -> None:
    for n in range(10):
        await there("session", "append_message", user(f"there {n}", id=f"t{n}"))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
