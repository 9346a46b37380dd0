"""Directories of sessions: a literal name of Java's is believed, and no two ids ever meet."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import InvalidId, SessionKey, StaleState, StoreError
from leafward.core.errors import ConfigurationError
from leafward.core.ids import refusal
from leafward.importers.agentscope import migrate
from leafward.stores import InMemoryAgentStateStore, JsonFileAgentStateStore, JsonSession, Slot, WorkspaceSession
from leafward.stores.files.folder import Folder
from leafward.stores.files.names import SAFE, decoded, hashed
from leafward.stores.files.state_tree import digest_of, version_text

LOOK_ALIKES = ["acme", "anon", "User", "QA", "big", "city", "edit", "1440", "164", "bd2f", "dynamic"]
"""Ids that are valid base64url of UTF-8."""


def encoded(id: str) -> str:
    return urlsafe_b64encode(id.encode()).decode().rstrip("=")


def javas_name(id: str | None) -> str:
    if id is None:
        return "__anon__"
    return id if SAFE.fullmatch(id) else encoded(id)


def is_literal(id: str | None) -> bool:
    return id is None or (SAFE.fullmatch(id) is not None and not id.startswith(".leafward"))


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "states"


class TestWhatJavaMade:
    @pytest.mark.parametrize("id", LOOK_ALIKES)
    async def test_a_session_has_its_literal_name(self, root: Path, id: str) -> None:
        write(root / "__anon__" / id / "agent_state.json", {"session_id": id, "user_id": None})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get(id, "agent_state") == {"session_id": id, "user_id": None}
            assert await states.exists(id)
            assert await states.list_session_keys() == {SessionKey(id)}
            hidden = SessionKey(decoded(id) or "")
            assert await states.get(hidden, "agent_state") is None
            await states.save(id, "agent_state", {"session_id": id, "by": "python"})
            assert json.loads((root / "__anon__" / id / "agent_state.json").read_text())["by"] == "python"
            await states.delete(id)
            assert await states.list_session_keys() == set()
        assert not (root / "__anon__" / id).exists()

    @pytest.mark.parametrize("id", LOOK_ALIKES)
    async def test_a_user_has_their_literal_name(self, root: Path, id: str) -> None:
        write(root / id / "s1" / "agent_state.json", {"session_id": "s1", "user_id": id})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys(id) == {SessionKey("s1", id)}
            hidden = decoded(id)
            assert await states.list_session_keys(hidden) == set()
            await states.save(SessionKey("s1", hidden), "agent_state", {"whose": hidden})
            assert (await states.get(SessionKey("s1", id), "agent_state") or {})["user_id"] == id
            await states.save(SessionKey("s2", id), "notes", {})
            assert (root / id / "s2" / "notes.json").exists()
            assert await states.get(SessionKey("s1", hidden), "agent_state") == {"whose": hidden}
            assert await states.list_session_keys(hidden) == {SessionKey("s1", hidden)}
            assert await states.list_session_keys(id) == {SessionKey("s1", id), SessionKey("s2", id)}
            await states.delete(SessionKey("s1", id))
            assert not (root / id / "s1").exists()
            assert await states.exists(SessionKey("s1", hidden))

    @pytest.mark.parametrize("id", LOOK_ALIKES)
    async def test_a_session_of_1x_has_its_literal_name(self, root: Path, id: str) -> None:
        message = {"id": "m1", "name": "u", "role": "USER", "content": [{"type": "text", "text": "hi"}], "metadata": {}}
        write(root / id / "memory_messages.jsonl", message)
        (root / id / "memory_messages.hash").write_text("76dead55")
        async with JsonSession(root) as states:
            assert await states.list_session_keys() == {SessionKey(id)}
            assert len(await states.get_list(id, "memory_messages")) == 1
            await states.save_list(id, "memory_messages", [message, message])
            assert len((root / id / "memory_messages.jsonl").read_text().splitlines()) == 2
            # It is this session's by now.
            assert await states.get_list(decoded(id) or "", "memory_messages") == []
            assert await states.exists(id)
            await states.delete(id)
            assert await states.list_session_keys() == set()
        assert not (root / id).exists()

    async def test_an_encoded_id_finds_what_java_saved_for_it(self, root: Path) -> None:
        write(root / "__anon__" / "c2VzcyAx" / "notes.json", {"n": 1})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get("sess 1", "notes") == {"n": 1}
            assert await states.list_session_keys() == {SessionKey("sess 1")}
            await states.save("sess 1", "notes", {"n": 2})
            assert json.loads((root / "__anon__" / "c2VzcyAx" / "notes.json").read_text()) == {"n": 2}
            assert await states.list_session_keys() == {SessionKey("sess 1")}
            # For Java it is the same session, and nothing tells which of the two made it.
            assert await states.get("c2VzcyAx", "notes") == {"n": 2}

    async def test_an_encoded_id_is_listed_where_javas_state_tells_it(self, root: Path) -> None:
        write(root / "YWwvaWNl" / "c2VzcyAx" / "agent_state.json", {"session_id": "sess 1", "user_id": "al/ice"})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys("al/ice") == {SessionKey("sess 1", "al/ice")}
            assert await states.list_session_keys("YWwvaWNl") == set()
            assert await states.get(SessionKey("c2VzcyAx", "al/ice"), "agent_state") is None

    @pytest.mark.parametrize("id", ["a\nb", "a tab\tin it", ".."])
    async def test_an_id_that_is_refused_is_found_under_the_name_of_its_directory(self, root: Path, id: str) -> None:
        write(root / "__anon__" / encoded(id) / "notes.json", {"n": 1})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys() == {SessionKey(encoded(id))}
            assert await states.get(encoded(id), "notes") == {"n": 1}

    async def test_what_only_looks_like_the_ids_of_a_state_tells_nothing(self, root: Path) -> None:
        write(root / "__anon__" / "acme" / "agent_state.json", {"context": [{"session_id": "iɞ"}], "session_id": 5})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys() == {SessionKey("acme")}


class TestTwins:
    """Two ids of which one is called like the encoding of the other."""

    @pytest.mark.parametrize("first", ["literal", "encoded"])
    @pytest.mark.parametrize("layout", ["1.x", "2.x"])
    async def test_sessions_never_meet_and_the_literal_one_keeps_its_name(
        self, root: Path, first: str, layout: str
    ) -> None:
        ids = ["acme", "iɞ"] if first == "literal" else ["iɞ", "acme"]
        async with JsonFileAgentStateStore(root, layout=layout) as states:
            for id in ids:
                await states.save(id, "notes", {"id": id})
                await states.save_list(id, "list", [{"id": id}])
        async with JsonFileAgentStateStore(root, layout=layout) as states:
            for id in ids:
                assert await states.get(id, "notes") == {"id": id}
                assert await states.get_list(id, "list") == [{"id": id}]
            assert await states.list_session_keys() == {SessionKey(id) for id in ids}
            above = root if layout == "1.x" else root / "__anon__"
            assert json.loads((above / "acme" / "notes.json").read_text()) == {"id": "acme"}
            await states.delete("acme")
            assert await states.get("iɞ", "notes") == {"id": "iɞ"}
            await states.delete("iɞ")
            assert await states.list_session_keys() == set()

    @pytest.mark.parametrize("first", ["literal", "encoded"])
    async def test_users_never_meet_and_the_literal_one_keeps_its_name(self, root: Path, first: str) -> None:
        ids = ["acme", "iɞ"] if first == "literal" else ["iɞ", "acme"]
        async with JsonFileAgentStateStore(root) as states:
            for id in ids:
                await states.save(SessionKey("s", id), "notes", {"id": id})
                await states.save(SessionKey(id, id), "notes", {"id": id})
        async with JsonFileAgentStateStore(root) as states:
            for id in ids:
                assert await states.get(SessionKey("s", id), "notes") == {"id": id}
                assert await states.list_session_keys(id) == {SessionKey("s", id), SessionKey(id, id)}
            assert json.loads((root / "acme" / "s" / "notes.json").read_text()) == {"id": "acme"}

    async def test_an_append_to_javas_list_has_the_directory_too(self, root: Path) -> None:
        write(root / "acme" / "list.jsonl", {"n": 1})
        (root / "acme" / "list.jsonl").write_text('{"n":1}\n')
        (root / "acme" / "list.hash").write_text("76dead55")
        async with JsonSession(root) as states:
            await states.save_list("acme", "list", [{"n": 1}, {"n": 2}])
            assert await states.get_list("iɞ", "list") == []
            assert await states.list_session_keys() == {SessionKey("acme")}


def make_old(root: Path, above: str, name: str, n: int) -> None:
    """Write a session as leafward did when it took such names for encodings."""
    path = write(root / above / name / "notes.json", {"n": n})
    (path.parent / "notes.ver").write_bytes(version_text(1, digest_of(path.read_bytes())))


class TestWhatAnOlderLeafwardWrote:
    async def test_a_session_is_found_and_gets_its_literal_name_when_saved(self, root: Path) -> None:
        make_old(root, "__anon__", "~acme", 1)
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get("acme", "notes") == {"n": 1}
            assert await states.list_session_keys() == {SessionKey("acme")}
            assert (root / "__anon__" / "~acme").exists()
            await states.save("acme", "more", {})
            assert {path.name for path in (root / "__anon__").iterdir()} == {"acme"}
            assert (await states.get_versioned("acme", "notes")).version == 1
            assert await states.list_session_keys() == {SessionKey("acme")}

    async def test_a_user_is_found_session_by_session(self, root: Path) -> None:
        make_old(root, "~acme", "s1", 1)
        make_old(root, "~acme", "~User", 2)
        write(root / "acme" / "s2" / "agent_state.json", {"session_id": "s2", "user_id": "acme"})
        async with JsonFileAgentStateStore(root) as states:
            keys = {SessionKey(id, "acme") for id in ("s1", "s2", "User")}
            assert await states.list_session_keys("acme") == keys
            assert await states.get(SessionKey("s1", "acme"), "notes") == {"n": 1}
            for key in keys:
                await states.save(key, "more", {})
            assert {path.name for path in (root / "acme").iterdir()} == {"s1", "s2", "User"}
            assert not (root / "~acme").exists()
            assert await states.list_session_keys("acme") == keys

    async def test_an_encoded_id_is_still_its_own_and_moves_aside_for_the_literal_one(self, root: Path) -> None:
        make_old(root, "__anon__", "acme", 1)
        make_old(root, "acme", "s", 2)
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys() == {SessionKey("iɞ")}
            assert await states.list_session_keys("iɞ") == {SessionKey("s", "iɞ")}
            assert await states.get("acme", "notes") is None
            assert await states.get(SessionKey("s", "acme"), "notes") is None
            await states.save("acme", "notes", {"n": 3})
            await states.save(SessionKey("s", "acme"), "notes", {"n": 4})
            assert await states.get("iɞ", "notes") == {"n": 1}
            assert await states.get(SessionKey("s", "iɞ"), "notes") == {"n": 2}
            assert json.loads((root / "__anon__" / "acme" / "notes.json").read_text()) == {"n": 3}
            assert json.loads((root / "acme" / "s" / "notes.json").read_text()) == {"n": 4}

    @pytest.mark.parametrize(
        ("java", "ours", "key"),
        [
            ("__anon__/acme", "__anon__/~acme", SessionKey("acme")),
            ("acme/s1", "~acme/s1", SessionKey("s1", "acme")),
        ],
        ids=["session", "user"],
    )
    async def test_javas_directory_is_the_session_where_both_are_there(
        self, root: Path, java: str, ours: str, key: SessionKey, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_old(root, ".", ours, 1)
        (root / ours / "own.json").write_text("{}")
        write(root / java / "notes.json", {"n": "java"})
        async with JsonFileAgentStateStore(root) as states:
            with caplog.at_level(logging.WARNING, "leafward"):
                for _ in range(3):
                    assert await states.get(key, "notes") == {"n": "java"}
                    assert await states.get(key, "own") is None
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "~acme" in caplog.text
            report = await migrate(root, InMemoryAgentStateStore(), dry_run=True)
            assert [what for what, _ in report.left_out] == [str(root / ours)]
            await states.save(key, "notes", {"n": 2})
            assert json.loads((root / ours / "notes.json").read_text()) == {"n": 1}
            # What is deleted does not come back under the other name.
            await states.delete(key)
            assert not await states.exists(key)
            assert await states.list_session_keys(key.user_id) == set()

    async def test_our_directory_is_the_session_again_where_javas_holds_nothing_any_more(self, root: Path) -> None:
        make_old(root, "__anon__", "~acme", 1)
        write(root / "__anon__" / "~acme" / "own.json", {"by": "python"})
        write(root / "__anon__" / "acme" / "notes.json", {"n": "java"})
        async with JsonFileAgentStateStore(root) as states:
            await states.delete("acme", "notes")
            assert await states.get("acme", "notes") is None
            assert await states.get("acme", "own") == {"by": "python"}


class TestWhatTellsWhoseADirectoryIs:
    async def test_agentscopes_ids_count_more_than_what_we_saved_there(self, root: Path) -> None:
        make_old(root, "__anon__", "acme", 1)
        write(root / "__anon__" / "acme" / "agent_state.json", {"session_id": "acme", "user_id": None})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.exists("acme")
            assert not await states.exists("iɞ")
            await states.save("acme", "more", {})
        assert (root / "__anon__" / "acme" / "agent_state.json").exists()

    async def test_each_session_of_a_user_by_itself(self, root: Path) -> None:
        write(root / "acme" / "s1" / "agent_state.json", {"session_id": "s1", "user_id": "acme"})
        write(root / "acme" / "s2" / "agent_state.json", {"session_id": "s2", "user_id": "iɞ"})
        async with JsonFileAgentStateStore(root) as states:
            for _ in range(2):
                assert SessionKey("s1", "acme") in await states.list_session_keys("acme")
                assert await states.list_session_keys("iɞ") == {SessionKey("s2", "iɞ")}
                assert await states.get(SessionKey("s2", "acme"), "agent_state") is None
                assert await states.get(SessionKey("s1", "iɞ"), "agent_state") is None
                await states.save(SessionKey("s3", "acme"), "notes", {})
        assert (root / "acme" / "s2" / "agent_state.json").exists()

    async def test_two_who_keep_different_sessions_in_it_are_refused_until_one_is_moved(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save(SessionKey("s1", "iɞ"), "notes", {"of": "iɞ"})
            write(root / "acme" / "s1" / "agent_state.json", {"session_id": "s1", "user_id": "acme"})
            for user in ("acme", "iɞ"):
                with pytest.raises(StoreError, match="move the files"):
                    await states.get(SessionKey("s1", user), "agent_state")
                with pytest.raises(StoreError, match="move the files"):
                    await states.delete(SessionKey("s1", user))
            (root / "acme" / "s1" / "agent_state.json").rename(root / "moved")
            assert await states.get(SessionKey("s1", "iɞ"), "notes") == {"of": "iɞ"}

    async def test_an_old_name_of_a_session_is_no_other_users(self, root: Path) -> None:
        make_old(root, "acme", "~acme", 1)
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys("acme") == set()
            assert await states.list_session_keys("iɞ") == {SessionKey("acme", "iɞ")}
            assert await states.get(SessionKey("acme", "iɞ"), "notes") == {"n": 1}

    async def test_an_unclear_session_is_not_taken_by_a_save_to_another(self, root: Path) -> None:
        write(root / "acme" / "s1" / "notes.json", {"of": "acme"})
        async with JsonFileAgentStateStore(root) as states:
            await states.save(SessionKey("s2", "iɞ"), "notes", {"of": "iɞ"})
            assert await states.get(SessionKey("s1", "acme"), "notes") == {"of": "acme"}
            assert await states.list_session_keys("acme") == {SessionKey("s1", "acme")}

    @pytest.mark.parametrize(
        "content",
        ["[" * 3000, '{"a":1,"b":2}', '"ab"', "[1,2]", '[null,["x"]]', '[null,"zzz"]', "", '["alice","acme"]'],
    )
    async def test_nothing_else_in_place_of_the_ids(self, root: Path, content: str) -> None:
        write(root / "bob" / "acme" / "notes.json", {"n": 1}).with_name("~ids").write_text(content)
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get(SessionKey("acme", "bob"), "notes") == {"n": 1}
            assert await states.list_session_keys("bob") == {SessionKey("acme", "bob")}
            await states.save(SessionKey("acme", "bob"), "more", {})
            # It was found, and nothing tells whose it is.
            assert json.loads((root / "bob" / "acme" / "~ids").read_text()) == {}
            assert await states.list_session_keys("bob") == {SessionKey("acme", "bob")}

    async def test_an_empty_user_id_is_none(self, root: Path) -> None:
        write(root / "__anon__" / "acme" / "agent_state.json", {"session_id": "acme", "user_id": ""})
        async with JsonFileAgentStateStore(root) as states:
            assert await states.exists("acme")

    async def test_an_id_that_has_a_directory_of_its_own_finds_no_unclear_one(self, root: Path) -> None:
        async with JsonSession(root) as states:
            await states.save("acme", "notes", {})
            await states.save("iɞ", "notes", {"n": "mine"})
            await states.delete("acme")
            write(root / "acme" / "notes.json", {"n": "java"})
            assert await states.get("iɞ", "notes") == {"n": "mine"}
            assert await states.get("acme", "notes") == {"n": "java"}
            await states.delete("iɞ")
            assert await states.get("acme", "notes") == {"n": "java"}

    async def test_what_is_read_is_what_was_saved_where_the_literal_name_comes_and_goes(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("iɞ", "agent_state", {"n": 1})
            await states.save("acme", "agent_state", {"n": 2})
            await states.delete("acme")
            write(root / "__anon__" / "acme" / "agent_state.json", {"session_id": "iɞ", "n": "java"})
            await states.save("iɞ", "agent_state", {"session_id": "iɞ", "n": 3})
            assert await states.get("iɞ", "agent_state") == {"session_id": "iɞ", "n": 3}
            await states.save("acme", "agent_state", {"n": 4})
            assert await states.get("acme", "agent_state") == {"n": 4}
            assert await states.get("iɞ", "agent_state") == {"session_id": "iɞ", "n": 3}


class TestWhatIsNotSaved:
    """A save that is refused or cut off leaves each session with its id."""

    async def test_a_stale_save_moves_nothing(self, root: Path) -> None:
        make_old(root, "__anon__", "~acme", 1)
        async with JsonFileAgentStateStore(root) as states:
            with pytest.raises(StaleState):
                await states.save_if_version("acme", "notes", {"n": 2}, 7)
            assert await states.get("acme", "notes") == {"n": 1}
            assert await states.list_session_keys() == {SessionKey("acme")}
        assert (root / "__anon__" / "~acme").exists()

    @pytest.mark.parametrize("old", [True, False])
    @pytest.mark.parametrize("kind", ["value", "list"])
    @pytest.mark.parametrize("step", range(6))
    async def test_a_save_that_is_cut_off_changes_no_id(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, old: bool, kind: str, step: int
    ) -> None:
        if old:
            make_old(root, "__anon__", "~acme", 1)
        else:
            write(root / "__anon__" / "acme" / "agent_state.json", {"session_id": "acme"})
            write(root / "__anon__" / "acme" / "notes.json", {"n": 1})
        async with JsonFileAgentStateStore(root) as states:
            await states.save("other", "notes", {})
            left = iter(range(step))

            def fail_at_last(*arguments: Any, **options: Any) -> Any:
                if next(left, None) is None:
                    raise OSError(28, "No space left on device")
                return moving(*arguments, **options)

            moving = Folder.move
            with monkeypatch.context() as patch:
                patch.setattr(Folder, "move", fail_at_last)
                with suppress(StoreError):
                    if kind == "value":
                        await states.save("acme", "more", {})
                    else:
                        await states.save_list("acme", "more", [{}])
            assert await states.get("acme", "notes") == {"n": 1}
            assert await states.get("iɞ", "notes") is None
            assert SessionKey("acme") in await states.list_session_keys()

    async def test_an_empty_directory_hides_nothing_and_an_erasure_takes_all(self, root: Path) -> None:
        make_old(root, "__anon__", "~acme", 1)
        (root / "__anon__" / "acme").mkdir()
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get("acme", "notes") == {"n": 1}
            table = await states._table()
            assert await table.forget(Slot(None, "acme"))
            assert not await states.exists("acme")
        assert not list(root.rglob("notes.json"))


class TestAgents:
    @pytest.mark.parametrize("agent", ["My Helper", "客服", "agent:1", "acme", "TXkgSGVscGVy", "a" * 255])
    async def test_an_agents_directory_has_its_raw_name(self, tmp_path: Path, agent: str) -> None:
        write(tmp_path / "agents" / agent / "context" / "s1" / "notes.json", {"by": "java"})
        async with WorkspaceSession(tmp_path, agent) as states:
            assert await states.get("s1", "notes") == {"by": "java"}
            await states.save("s2", "notes", {})
        assert (tmp_path / "agents" / agent / "context" / "s2" / "notes.json").exists()

    @pytest.mark.parametrize("agent", ["a/b", ".", "..", "a\0b", "", "客" * 300])
    def test_what_is_no_name_of_a_directory_is_refused(self, tmp_path: Path, agent: str) -> None:
        with pytest.raises(InvalidId):
            WorkspaceSession(tmp_path, agent)

    async def test_a_long_name_has_a_directory_too(self, tmp_path: Path) -> None:
        async with WorkspaceSession(tmp_path, "客" * 200) as states:
            await states.save("s", "notes", {"n": 1})
        async with WorkspaceSession(tmp_path, "客" * 200) as states:
            assert await states.get("s", "notes") == {"n": 1}

    @pytest.mark.parametrize(
        ("agent", "before"),
        [
            ("My Helper", "TXkgSGVscGVy"),
            ("acme", "~acme"),
            ("客" * 70, hashed("客" * 70)),
        ],
    )
    async def test_what_an_older_leafward_wrote_is_found(
        self, tmp_path: Path, agent: str, before: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = tmp_path / "agents" / before / "context"
        async with JsonSession(place) as states:
            await states.save("s", "notes", {"n": 1})
        async with WorkspaceSession(tmp_path, agent) as states:
            assert await states.get("s", "notes") == {"n": 1}
        assert f"rename the directory above to {agent!r}" in caplog.text
        (tmp_path / "agents" / before).rename(tmp_path / "agents" / agent)
        async with WorkspaceSession(tmp_path, agent) as states:
            assert await states.get("s", "notes") == {"n": 1}

    async def test_javas_directory_is_the_agents_where_both_are_there(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with JsonSession(tmp_path / "agents" / "TXkgSGVscGVy" / "context") as states:
            await states.save("s", "notes", {"n": 1})
        write(tmp_path / "agents" / "My Helper" / "context" / "s" / "notes.json", {"by": "java"})
        async with WorkspaceSession(tmp_path, "My Helper") as states:
            assert await states.get("s", "notes") == {"by": "java"}
        assert [record.levelname for record in caplog.records] == ["WARNING"]

    async def test_an_agent_named_like_an_encoding_does_not_take_what_was_anothers(self, tmp_path: Path) -> None:
        async with JsonSession(tmp_path / "agents" / "TXkgSGVscGVy" / "context") as states:
            await states.save("s", "notes", {"n": 1})
        async with WorkspaceSession(tmp_path, "TXkgSGVscGVy") as states:
            with pytest.raises(ConfigurationError, match="'My Helper'"):
                await states.get("s", "notes")
        async with WorkspaceSession(tmp_path, "My Helper") as states:
            assert await states.get("s", "notes") == {"n": 1}

    @pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
    async def test_what_stands_in_place_of_the_note_is_not_followed(self, tmp_path: Path, kind: str) -> None:
        async with WorkspaceSession(tmp_path, "acme") as states:
            await states.save("s", "notes", {"n": 1})
        note = tmp_path / "agents" / "acme" / "context" / "~agent"
        note.unlink()
        if kind == "directory":
            note.mkdir()
        elif kind == "link":
            note.symlink_to(tmp_path / "elsewhere")
        else:
            os.mkfifo(note)
        async with WorkspaceSession(tmp_path, "acme") as states:
            with pytest.raises(StoreError, match="not followed"):
                await states.get("s", "notes")

    async def test_no_agent_finds_what_is_anothers(self, tmp_path: Path) -> None:
        async with WorkspaceSession(tmp_path, "TXkgSGVscGVy") as states:
            await states.save("s", "notes", {"n": 1})
        async with WorkspaceSession(tmp_path, "~acme") as states:
            await states.save("s", "notes", {"n": 2})
        for agent in ("My Helper", "acme"):
            async with WorkspaceSession(tmp_path, agent) as states:
                assert not await states.exists("s")


def ids() -> st.SearchStrategy[str]:
    safe = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_.-", min_size=1, max_size=8)
    digits = st.integers(0, 99999).map(str) | st.integers(0, 2**32).map(lambda number: f"{number:x}")
    strange = st.text("aZ09 :/~%ɞ客服é", min_size=1, max_size=6)
    drawn = safe | digits | strange | st.sampled_from([*LOOK_ALIKES, "~acme", "iɞ", ".leafward.sqlite", "~ids"])
    twins = drawn.map(encoded) | drawn.map(lambda id: decoded(id) or id) | drawn.map(lambda id: f"~{id}")
    return (drawn | twins).filter(lambda id: refusal(id) is None)


def slots() -> st.SearchStrategy[list[tuple[str | None, str]]]:
    return st.lists(st.tuples(st.none() | ids(), ids()), min_size=1, max_size=8, unique=True)


def keys_of(found: list[tuple[str | None, str]]) -> list[SessionKey]:
    return [SessionKey(session, user) for user, session in found]


async def check_all(root: Path, layout: str, keys: list[SessionKey], expected: dict[SessionKey, Any]) -> None:
    async with JsonFileAgentStateStore(root, layout=layout) as states:
        for key in keys:
            assert await states.get(key, "agent_state") == expected.get(key), key
        for user in {key.user_id for key in keys}:
            assert await states.list_session_keys(user) == {key for key in expected if key.user_id == user}


class TestEveryId:
    @given(slots(), st.sampled_from(["1.x", "2.x"]), st.randoms(use_true_random=False))
    @settings(max_examples=60, deadline=None)
    def test_two_ids_never_meet_and_a_listing_gives_back_what_was_saved(
        self, found: list[tuple[str | None, str]], layout: str, random: Any
    ) -> None:
        async def run() -> None:
            with TemporaryDirectory() as directory:
                root = Path(directory, "states")
                keys = keys_of(found)
                expected: dict[SessionKey, Any] = {}
                async with JsonFileAgentStateStore(root, layout=layout) as states:
                    for number, key in enumerate(keys):
                        await states.save(key, "agent_state", {"n": number})
                        expected[key] = {"n": number}
                await check_all(root, layout, keys, expected)
                for key in keys:
                    if layout == "2.x" and is_literal(key.user_id) and is_literal(key.session_id):
                        place = root / (key.user_id or "__anon__") / key.session_id
                        assert json.loads((place / "agent_state.json").read_text()) == expected[key]
                async with JsonFileAgentStateStore(root, layout=layout) as states:
                    for key in random.sample(keys, len(keys) // 2):
                        await states.delete(key)
                        del expected[key]
                await check_all(root, layout, keys, expected)

        asyncio.run(run())
