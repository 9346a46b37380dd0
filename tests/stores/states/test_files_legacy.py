"""Sessions of AgentScope before 1.0.5 go on where they stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leafward import Message, SessionKey, StateDecodeError
from leafward.stores import JsonFileAgentStateStore, JsonSession

FIXTURES = Path(__file__).parent / "fixtures" / "legacy"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "sessions"))


async def test_they_are_made_of_their_files_when_first_read(root: Path) -> None:
    async with JsonSession(root) as states:
        assert await states.list_session_keys() == {SessionKey("real"), SessionKey("seed")}
        assert not (root / "real").exists()
        [message] = await states.get_list("real", "memory_messages", Message)
        assert (message.id, message.role, message.text) == ("m1", "user", "Hello")
        assert await states.get("real", "toolkit_activeGroups") == {"activeGroups": ["web", "files"]}
        assert await states.get("real", "moodTracker") == {"mood": "fine"}
        assert (await states.get("real", "agent_meta") or {})["name"] == "Assistant"
        said = await states.get_list("seed", "memory_messages", Message)
        assert [(one.role, one.text) for one in said] == [("user", "Hello"), ("assistant", "Hi there")]
        assert await states.get("seed", "agent_meta") == {"iteration": 3}
        assert await states.list_session_keys() == {SessionKey("real"), SessionKey("seed")}
    for name in ("real.json", "seed.json"):
        assert (root / name).read_bytes() == (FIXTURES / name).read_bytes()


async def test_they_exist(root: Path) -> None:
    async with JsonSession(root) as states:
        assert await states.exists("real")
        assert not await states.exists("never")
        assert not await states.exists(SessionKey("real", "alice"))


async def test_a_save_keeps_the_rest(root: Path) -> None:
    async with JsonSession(root) as states:
        await states.save("seed", "shutdown_interrupted", {"interrupted": True})
        assert len(await states.get_list("seed", "memory_messages")) == 2


async def test_a_directory_wins(root: Path) -> None:
    (root / "real").mkdir()
    async with JsonSession(root) as states:
        assert await states.get_list("real", "memory_messages") == []
        assert not await states.exists("real")


async def test_what_was_deleted_does_not_come_back(root: Path) -> None:
    async with JsonSession(root) as states:
        for name in ("memory_messages", "toolkit_activeGroups", "agent_meta"):
            await states.delete("seed", name)
            assert await states.get_list("seed", "memory_messages") == []
        assert not await states.exists("seed")
        assert (root / "seed.json").exists()
        await states.delete("real")
        assert not await states.exists("real")
        assert not (root / "real.json").exists()
        assert await states.list_session_keys() == set()


async def test_they_may_be_left_alone(root: Path) -> None:
    async with JsonSession(root, legacy="ignore") as states, JsonFileAgentStateStore(root) as others:
        for one in (states, others):
            assert await one.list_session_keys() == set()
            assert await one.get_list("real", "memory_messages") == []
            await one.delete("real")
    assert (root / "real.json").exists()


async def test_a_damaged_file_is_told_left_and_can_be_deleted(root: Path) -> None:
    (root / "bad.json").write_text('{"memory":')
    async with JsonSession(root) as states:
        with pytest.raises(StateDecodeError, match=r"bad\.json"):
            await states.get("bad", "agent_meta")
        with pytest.raises(StateDecodeError):
            await states.save("bad", "agent_meta", {})
        assert not (root / "bad").exists()
        await states.delete("bad")
        assert not await states.exists("bad")


@pytest.mark.parametrize("session", ["../outside", "a/../../outside", "x" * 252])
async def test_no_id_leads_out_of_the_directory(root: Path, session: str) -> None:
    outside = root.parent / "outside.json"
    outside.write_text("{}")
    async with JsonSession(root) as states:
        assert not await states.exists(session)
        await states.delete(session)
        await states.save(session, "a", {"n": 1})
        assert await states.get(session, "a") == {"n": 1}
    assert outside.read_text() == "{}"
