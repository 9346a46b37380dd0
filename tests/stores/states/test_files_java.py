"""Java and we share files: what it wrote is read, what we write is as it writes, and its changes count."""

from __future__ import annotations

import json
import os
import shutil
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import AgentState, Message, SessionKey, StaleState, StateDecodeError, StoreError
from leafward.core.errors import ConfigurationError
from leafward.core.ids import refusal
from leafward.stores import JsonFileAgentStateStore, JsonSession, Slot, WorkspaceSession
from leafward.stores.files import state_names as names
from leafward.stores.states.table import Layout
from leafward.testing.ids import HOSTILE_IDS

FIXTURES = Path(__file__).parent / "fixtures"
HASH = "76dead55"
ids = st.text(min_size=1, max_size=255).filter(lambda text: refusal(text) is None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "states"


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a file as another process would have done a while ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    os.utime(path, (before := time.time() - 10, before))
    return path


class TestGoldenFiles:
    async def test_a_session_of_1x_is_read(self, root: Path) -> None:
        shutil.copytree(FIXTURES / "1.x", root)
        async with JsonSession(root) as states:
            assert await states.list_session_keys() == {SessionKey("user123")}
            assert (await states.get("user123", "agent_meta") or {})["name"] == "Assistant"
            said = await states.get_list("user123", "memory_messages", Message)
            assert [message.text for message in said] == ["Hello 你好", "Hi"]
            assert await states.get("user123", "toolkit_activeGroups") == {"activeGroups": ["web"]}

    async def test_a_session_of_2x_is_read(self, root: Path) -> None:
        shutil.copytree(FIXTURES / "2.x", root)
        async with JsonFileAgentStateStore(root) as states:
            state = await states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
            assert state is not None
            assert (state.session_id, state.tool_context.max_cache_bytes) == ("session-001", 25000.0)
            assert len(await states.get_list(SessionKey("s1", "alice"), "memory_messages", Message)) == 3
            assert await states.get(SessionKey("s1", "al/ice"), "notes") is not None
            assert await states.get_list("sess 1", "empty") == []
            assert await states.list_session_keys() == {SessionKey("sess 1"), SessionKey("会话")}
            assert await states.list_session_keys("alice") == {SessionKey("s1", "alice")}

    @pytest.mark.parametrize(("layout", "user"), [("1.x", None), ("2.x", "alice"), ("2.x", "al/ice"), ("2.x", None)])
    async def test_what_is_saved_again_is_the_same_to_the_byte(self, root: Path, layout: str, user: str | None) -> None:
        source, target = root / "java", root / "python"
        shutil.copytree(FIXTURES / layout, source)
        async with (
            JsonFileAgentStateStore(source, layout=layout) as java,
            JsonFileAgentStateStore(target, layout=layout) as ours,
        ):
            keys = await java.list_session_keys(user)
            assert keys
            for key in keys:
                table = await java._table()
                for name, is_list in (await table.names(Slot(key.user_id, key.session_id))).items():
                    if is_list:
                        await ours.save_list(key, name, await java.get_list(key, name))
                    else:
                        await ours.save(key, name, await java.get(key, name))
        written = {path.relative_to(target) for path in target.rglob("*.json*") if path.is_file()}
        assert written
        for path in written:
            assert (target / path).read_bytes() == (FIXTURES / layout / path).read_bytes(), path

    async def test_an_empty_list_is_a_file_of_no_bytes_and_its_hash(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save_list("s", "list", [])
            path = root / "__anon__/s/list.jsonl"
            assert path.read_bytes() == b""
            assert (root / "__anon__/s/list.hash").read_bytes() == b"empty:0"
            await states.save_list("s", "list", [{"t": "é\u2028"}])
            assert path.read_bytes() == '{"t":"é\u2028"}\n'.encode()
            # The length of the lines in bytes, and their CRC-32.
            assert (root / "__anon__/s/list.hash").read_text() == f"py:content 14 {crc32(path.read_bytes()):08x}"


class TestNames:
    @pytest.mark.parametrize(
        ("slot", "layout", "place"),
        [
            (Slot("alice", "s1"), "2.x", ("alice", "s1")),
            (Slot(None, "s1"), "2.x", ("__anon__", "s1")),
            (Slot("al/ice", "sess 1"), "2.x", ("YWwvaWNl", "c2VzcyAx")),
            (Slot(None, "会话"), "1.x", ("5Lya6K-d",)),
            (Slot(None, "a.b-c"), "1.x", ("a.b-c",)),
            (Slot(None, ".hidden"), "1.x", (".hidden",)),
            (Slot("a.log", "index.sqlite-wal"), "2.x", ("a.log", "index.sqlite-wal")),
            (Slot(None, "c2VzcyAx"), "1.x", ("c2VzcyAx",)),
            (Slot("acme", "1440"), "2.x", ("acme", "1440")),
            (Slot(None, ".leafward.sqlite"), "1.x", ("~.leafward.sqlite",)),
            (Slot("alice", "sess 1"), "1.x", ("~alice~c2VzcyAx",)),
        ],
    )
    def test_a_slot_is_where_agentscope_has_it(self, slot: Slot, layout: Layout, place: tuple[str, ...]) -> None:
        assert names.places_of(slot, layout)[0] == place

    @given(st.none() | ids, ids, st.sampled_from(["1.x", "2.x"]))
    def test_a_place_is_named_by_what_a_file_system_takes(
        self, user_id: str | None, session_id: str, layout: Layout
    ) -> None:
        for place in names.places_of(Slot(user_id, session_id), layout):
            for name in place:
                assert len(name.encode()) <= 255
                assert name not in (".", "..")
                assert not name.startswith(".leafward")
                assert "/" not in name

    def test_no_two_hostile_slots_share_a_place_unless_one_is_called_like_the_other_is_encoded(self) -> None:
        more = [urlsafe_b64encode(id.encode()).decode().rstrip("=") for id in HOSTILE_IDS]
        everyone = [id for id in {*HOSTILE_IDS, *more, *(f"~{id}" for id in more)} if refusal(id) is None]
        having: dict[str, set[str]] = {}
        for id in everyone:
            for name in names.directory_names(id):
                having.setdefault(name, set()).add(id)
        for name, ids in having.items():
            assert len(ids) == 1 or ids == {name, names.id_before(name)}

    @given(ids, ids)
    def test_a_states_files_tell_its_name_and_are_nobody_elses(self, one: str, other: str) -> None:
        files = names.files_of(("s",), one)
        assert all(len(parts[-1].encode()) <= 251 and "/" not in parts[-1] for parts in files)
        kept = {parts[-1]: data for parts, data in names.name_to_keep(files, one).items()}
        assert names.name_in(files.value[-1], kept.get) == one
        assert names.name_in(files.items[-1], kept.get) == one
        if one != other:
            assert not {*files} & {*names.files_of(("s",), other)}

    async def test_long_names_are_told_in_listings(self, root: Path) -> None:
        fox, kay = "🦊" * 255, "k" * 255
        for layout in ("1.x", "2.x"):
            async with JsonFileAgentStateStore(root / layout, layout=layout) as states:
                for user in (None, fox, kay):
                    await states.save(SessionKey(fox, user), kay, {"n": 1})
                    await states.save_list(SessionKey(kay, user), fox, [{"n": 1}])
                for user in (None, fox, kay):
                    assert await states.list_session_keys(user) == {SessionKey(fox, user), SessionKey(kay, user)}
                    table = await states._table()
                    assert await table.names(Slot(user, fox)) == {kay: False}
                    assert await table.names(Slot(user, kay)) == {fox: True}
                    await states.delete(SessionKey(fox, user))
                    await states.delete(SessionKey(kay, user), fox)
                    assert await states.list_session_keys(user) == set()
            assert not [path for path in (root / layout).rglob("*") if "leafward" not in path.name and path.is_file()]


class TestChangesByJava:
    async def test_a_value_that_java_wrote_is_at_version_1(self, root: Path) -> None:
        write(root / "alice/s/notes.json", '{\n  "n" : 1\n}')
        key = SessionKey("s", "alice")
        async with JsonFileAgentStateStore(root) as states:
            with pytest.raises(StaleState):
                await states.save_if_version(key, "notes", {}, 0)
            assert await states.get_versioned(key, "notes") == ({"n": 1}, 1)
            assert await states.save_if_version(key, "notes", {"n": 2}, 1) == 2

    async def test_a_value_that_java_changed_is_at_the_next_version(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("s", "notes", {"n": 1})
            path = write(root / "__anon__/s/notes.json", '{"n": "java"}')
            with pytest.raises(StaleState):
                await states.save_if_version("s", "notes", {"n": 2}, 1)
            assert path.read_text() == '{"n": "java"}'
            for _ in range(2):
                assert await states.get_versioned("s", "notes") == ({"n": "java"}, 2)
            write(path, '{"n": "again"}')
            assert await states.save_if_version("s", "notes", {"n": 2}, 3) == 4

    async def test_a_value_that_java_removed_is_absent_and_one_that_it_made_anew_counts(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("s", "notes", {"n": 1})
            await states.save("s", "notes", {"n": 2})
            (root / "__anon__/s/notes.json").unlink()
            assert await states.get_versioned("s", "notes") == (None, 0)
            assert not await states.exists("s")
            write(root / "__anon__/s/notes.json", "{}")
            assert await states.get_versioned("s", "notes") == ({}, 3)

    async def test_a_damaged_version_makes_a_value_one_that_is_new(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("s", "notes", {"n": 1})
            write(root / "__anon__/s/notes.ver", "many")
            assert await states.get_versioned("s", "notes") == ({"n": 1}, 1)

    async def test_a_hash_of_java_goes_before_its_list_is_changed(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(root / "__anon__/s/list.jsonl", '{"n": 1}\n')
        mark = write(root / "__anon__/s/list.hash", HASH)
        seen: list[bytes] = []
        pwrite, rename = os.pwrite, os.rename

        def watch(*arguments: Any, **options: Any) -> Any:
            if path.exists():
                seen.append(mark.read_bytes())
            return pwrite(*arguments, **options) if isinstance(arguments[0], int) else rename(*arguments, **options)

        async with JsonFileAgentStateStore(root) as states:
            await states.save_list("s", "list", [{"n": 1}])
            assert mark.read_text() == HASH
            before = path.stat().st_ino
            await states.save_list("s", "list", [{"n": 1}, {"n": 2}])
            assert path.stat().st_ino == before
            assert mark.read_text() == f"py:content 17 {crc32(path.read_bytes()):08x}"
            mark.write_text(HASH)
            monkeypatch.setattr(os, "pwrite", watch)
            monkeypatch.setattr(os, "rename", watch)
            for changed in ([{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 0}], [{"n": 0}, {"n": 4}, {"n": 5}], []):
                mark.write_text(HASH)
                seen.clear()
                await states.save_list("s", "list", changed)
                assert seen[1:]
                assert HASH.encode() not in seen[1:]

    async def test_what_java_wrote_is_the_prefix_of_what_goes_on(self, root: Path) -> None:
        lines = '{ "b" : 1, "a" : "\\u00e9" }\r\n\n{"n": 2.50}\r\n'
        path = write(root / "__anon__/s/list.jsonl", lines)
        items: list[dict[str, Any]] = [{"b": 1, "a": "é"}, {"n": 2.5}]
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get_list("s", "list") == items
            await states.save_list("s", "list", [*items, {"n": 3}])
            assert path.read_bytes() == lines.encode() + b'{"n":3}\n'

    async def test_a_last_line_without_its_end_counts(self, root: Path) -> None:
        path = write(root / "__anon__/s/list.jsonl", '{"n":1}\n{"n":2}')
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get_list("s", "list") == [{"n": 1}, {"n": 2}]
            await states.save_list("s", "list", [{"n": 1}, {"n": 2}, {"n": 3}])
            assert path.read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'

    async def test_both_kinds_under_one_name_are_each_read(self, root: Path) -> None:
        write(root / "__anon__/s/x.jsonl", '{"n":1}\n')
        write(root / "__anon__/s/x.hash", HASH)
        write(root / "__anon__/s/x.json", '{"single":true}')
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get("s", "x") == {"single": True}
            assert await states.get_list("s", "x") == [{"n": 1}]
            await states.save_list("s", "x", [{"n": 1}, {"n": 2}])
            with pytest.raises(StateDecodeError):
                await states.get("s", "x")
            await states.delete("s", "x")
            assert not (root / "__anon__/s").exists()

    async def test_a_slot_of_a_sandbox_is_nobodys_session(self, root: Path) -> None:
        write(root / "__anon__/c2FuZGJveC9nbG9iYWw/_sandbox_state.json", '{"json":"","deleted":true}')
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys() == set()
            assert await states.get("sandbox/global", "_sandbox_state") == {"json": "", "deleted": True}

    async def test_foreign_files_stay_and_unfinished_ones_of_java_go(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("s", "a", {})
            await states.save_list("s", "b", [{}])
            note, left = root / "__anon__/s/README.txt", root / "__anon__/s/a.json.tmp"
            note.write_text("mine")
            left.write_text("{")
            await states.delete("s")
            assert note.read_text() == "mine"
            assert [path.name for path in note.parent.iterdir()] == ["README.txt"]
            assert not await states.exists("s")
            assert await states.list_session_keys() == set()


class TestDamage:
    @pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "null", "\xff", '{"a":1}}', "\0\0\0"])
    async def test_a_damaged_value_is_told_and_left(self, root: Path, text: str) -> None:
        path = write(root / "alice/s/notes.json", text, "latin-1")
        async with JsonFileAgentStateStore(root) as states:
            with pytest.raises(StateDecodeError) as told:
                await states.get(SessionKey("s", "alice"), "notes")
            assert (told.value.user_id, told.value.session_id, told.value.name) == ("alice", "s", "notes")
            assert path.read_bytes() == text.encode("latin-1")

    @pytest.mark.parametrize("bad", ["{", "x", "[1]", '{"n":1}{"n":2}', "\0"])
    async def test_a_bad_line_among_others_is_told(self, root: Path, bad: str) -> None:
        path = write(root / "alice/s/list.jsonl", f'{{"n":1}}\n{bad}\n{{"n":2}}\n')
        before = path.read_bytes()
        async with JsonFileAgentStateStore(root) as states:
            with pytest.raises(StateDecodeError) as told:
                await states.get_list(SessionKey("s", "alice"), "list")
            assert (told.value.user_id, told.value.session_id, told.value.name) == ("alice", "s", "list")
            assert path.read_bytes() == before

    async def test_a_torn_last_line_is_left_out_and_then_gone(self, root: Path) -> None:
        path = write(root / "__anon__/s/list.jsonl", '{"n":1}\n{"n":2')
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get_list("s", "list") == [{"n": 1}]
            await states.save_list("s", "list", [{"n": 1}, {"n": 3}])
            assert path.read_bytes() == b'{"n":1}\n{"n":3}\n'


class Test1x:
    async def test_an_anonymous_key_finds_its_slot_of_1x(self, root: Path) -> None:
        write(root / "old/notes.json", '{"n":1}')
        write(root / "old/list.jsonl", '{"n":1}\n')
        async with JsonFileAgentStateStore(root) as states:
            assert await states.list_session_keys() == {SessionKey("old")}
            assert await states.exists("old")
            assert await states.get_versioned("old", "notes") == ({"n": 1}, 0)
            assert await states.get_list("old", "list") == [{"n": 1}]
            assert await states.save_if_version("old", "notes", {"n": 2}, 0) == 1
            await states.save_list("old", "list", [{"n": 1}, {"n": 2}])
            assert (root / "old/notes.json").read_text() == '{"n":1}'
            assert (root / "__anon__/old/list.jsonl").read_bytes() == b'{"n":1}\n{"n":2}\n'
            assert await states.get_versioned("old", "notes") == ({"n": 2}, 1)
            assert await states.list_session_keys() == {SessionKey("old")}
            await states.delete("old", "notes")
            assert await states.get("old", "notes") is None
            await states.delete("old")
            assert not (root / "old").exists()
            assert not await states.exists("old")

    async def test_only_files_directly_in_its_directory_count(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save(SessionKey("inner", "alice"), "notes", {"n": 1})
            assert not await states.exists("alice")
            assert await states.list_session_keys() == set()
            await states.delete("alice")
            write(root / "alice/own.json", "{}")
            assert await states.list_session_keys() == {SessionKey("alice")}
            await states.delete("alice")
            assert await states.get(SessionKey("inner", "alice"), "notes") == {"n": 1}

    @pytest.mark.parametrize("session", ["a:b", "a/b"])
    async def test_a_session_that_could_be_a_users_is_not_looked_for(self, root: Path, session: str) -> None:
        write(root / names.directory_names(session)[0] / "notes.json", "{}")
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get(session, "notes") is None
            assert not await states.exists(session)
            assert SessionKey(session) not in await states.list_session_keys()

    async def test_a_user_has_no_slot_of_1x(self, root: Path) -> None:
        write(root / "s/notes.json", "{}")
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get(SessionKey("s", "alice"), "notes") is None

    @pytest.mark.parametrize("wrapped", [True, False])
    @pytest.mark.parametrize("place", ["s", "__anon__/s"])
    async def test_the_file_names_of_the_documents_are_read(self, root: Path, place: str, wrapped: bool) -> None:
        said = [{"role": "user", "name": "u", "content": "hi"}]
        write(root / place / "memory.json", json.dumps({"messages": said} if wrapped else said))
        write(root / place / "plan_notebook.json", '{"currentPlan":null}')
        async with JsonFileAgentStateStore(root) as states:
            [message] = await states.get_list("s", "memory_messages", Message)
            assert (message.role, message.text) == ("user", "hi")
            assert await states.get_versioned("s", "planNotebook_state") == ({"currentPlan": None}, 0)
            with pytest.raises(StateDecodeError):
                await states.get("s", "memory_messages")
            with pytest.raises(StateDecodeError):
                await states.get_list("s", "planNotebook_state")
            if place != "s":
                table = await states._table()
                assert await table.names(Slot(None, "s")) == {"memory_messages": True, "planNotebook_state": False}
            assert await states.save_if_version("s", "planNotebook_state", {"currentPlan": {}}, 0) == 1
            await states.save_list("s", "memory_messages", [message, message])
            assert len(await states.get_list("s", "memory_messages")) == 2
            for name in ("memory_messages", "planNotebook_state"):
                await states.delete("s", name)
            assert await states.get_list("s", "memory_messages") == []
            assert await states.get("s", "planNotebook_state") is None
            assert not await states.exists("s")

    async def test_a_state_of_ones_own_by_such_a_name_is_that_state(self, root: Path) -> None:
        async with JsonFileAgentStateStore(root) as states:
            await states.save("own", "plan_notebook", {"mine": 1})
            await states.save("own", "memory", {"messages": ["a note"]})
            assert await states.get("own", "planNotebook_state") is None
            assert await states.get_list("own", "memory_messages") == []
            for name in ("planNotebook_state", "memory_messages"):
                await states.delete("own", name)
            assert await states.get("own", "plan_notebook") == {"mine": 1}
            assert await states.get("own", "memory") == {"messages": ["a note"]}

    async def test_a_damaged_memory_can_be_deleted(self, root: Path) -> None:
        (root / "s").mkdir(parents=True, mode=0o700)
        (root / "s" / "memory.json").write_text('{"messages": [1]}')
        async with JsonFileAgentStateStore(root) as states:
            await states.delete("s", "memory_messages")
            assert not await states.exists("s")

    async def test_a_value_called_memory_is_no_list_of_messages(self, root: Path) -> None:
        async with JsonSession(root) as states:
            await states.save("s", "memory", {"facts": []})
            assert await states.get_list("s", "memory_messages") == []
            await states.delete("s", "memory_messages")
            assert await states.get("s", "memory") == {"facts": []}

    async def test_javas_own_value_called_memory_is_no_list_of_messages_either(self, root: Path) -> None:
        write(root / "s/memory.json", '{"facts":[]}')
        async with JsonSession(root) as states:
            assert await states.get_list("s", "memory_messages") == []
            await states.delete("s", "memory_messages")
            assert await states.get("s", "memory") == {"facts": []}

    async def test_who_looks_at_such_files_by_their_names_hides_nothing(self, root: Path) -> None:
        write(root / "s/memory.json", '{"messages":[{"role":"user","name":"u","content":"hi"}]}')
        write(root / "s/plan_notebook.json", '{"currentPlan":null}')
        async with JsonSession(root) as states:
            assert (await states.get_versioned("s", "plan_notebook")).version == 1
            write(root / "s/plan_notebook.json", '{"currentPlan":{}}')
            assert (await states.get_versioned("s", "plan_notebook")).version == 2
            assert (await states.get_versioned("s", "memory")).version == 1
            assert len(await states.get_list("s", "memory_messages")) == 1
            assert await states.get("s", "planNotebook_state") == {"currentPlan": {}}
            await states.save_if_version("s", "plan_notebook", {"mine": 1}, 2)
            assert await states.get("s", "planNotebook_state") is None
            await states.delete("s", "memory_messages")
            assert await states.get("s", "memory") is None
            assert sorted(file.name for file in (root / "s").iterdir()) == ["plan_notebook.json", "plan_notebook.ver"]

    async def test_a_damaged_memory_is_told(self, root: Path) -> None:
        write(root / "s/memory.json", '[{"role":"gh')
        async with JsonSession(root) as states:
            with pytest.raises(StateDecodeError, match=r"memory\.json"):
                await states.get_list("s", "memory_messages")

    async def test_users_have_names_of_their_own_that_java_never_gives(self, root: Path) -> None:
        async with JsonSession(root) as states:
            await states.save(SessionKey("s", "alice"), "notes", {"n": 1})
            assert await states.get("s", "notes") is None
            assert (root / "~alice~s/notes.json").exists()
            assert await states.list_session_keys("alice") == {SessionKey("s", "alice")}
            assert await states.list_session_keys() == set()


class TestPlaces:
    async def test_the_default_is_the_state_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path / "elsewhere"))
        async with JsonFileAgentStateStore() as states:
            await states.save("s", "a", {})
        assert (tmp_path / "elsewhere/__anon__/s/a.json").exists()
        monkeypatch.delenv("AGENTSCOPE_STATE_HOME")
        async with JsonFileAgentStateStore() as states, JsonSession() as sessions:
            await states.save("s", "a", {})
            await sessions.save("s", "a", {})
        assert (tmp_path / ".agentscope/state/__anon__/s/a.json").exists()
        assert (tmp_path / ".agentscope/sessions/s/a.json").exists()

    async def test_a_workspace_has_the_states_of_each_agent(self, tmp_path: Path) -> None:
        for agent, directory in (("support", "support"), ("日 本", "日 本")):
            async with WorkspaceSession(tmp_path, agent) as states:
                await states.save("s", "a", {"of": agent})
            assert (tmp_path / "agents" / directory / "context/s/a.json").exists()

    def test_what_is_no_layout_or_way_is_refused(self, root: Path) -> None:
        with pytest.raises(ConfigurationError):
            JsonFileAgentStateStore(root, layout="3.x")
        with pytest.raises(ConfigurationError):
            JsonSession(root, legacy="forget")

    async def test_nobody_else_can_read_what_is_written(self, root: Path) -> None:
        old = os.umask(0)
        try:
            async with JsonFileAgentStateStore(root) as states:
                await states.save("🦊" * 200, "a", {})
                await states.save_list("s", "b", [{}])
                await states.save_list("s", "b", [{}, {}, {}])
                for path in (root, *root.rglob("*")):
                    assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        finally:
            os.umask(old)

    @pytest.mark.parametrize("what", ["a.json", "a.ver", "b.jsonl", "b.hash", ""])
    async def test_links_are_not_followed(self, tmp_path: Path, root: Path, what: str) -> None:
        target, place = tmp_path / "target", root / "s" / what
        async with JsonFileAgentStateStore(root, layout="1.x") as states:
            await states.save("s", "a", {"n": 1})
            await states.save_list("s", "b", [{"n": 1}])
            place.rename(target)
            place.symlink_to(target)
            kept = target if what else target / "a.json"
            before = kept.read_bytes()
            if what[:1] != "b":
                for refused in (states.get("s", "a"), states.save("s", "a", {"n": 2})):
                    with pytest.raises(StoreError, match="not followed"):
                        await refused
            if what[:1] != "a":
                for refused in (states.get_list("s", "b"), states.save_list("s", "b", [{"n": 1}, {"n": 2}])):
                    with pytest.raises(StoreError, match="not followed"):
                        await refused
            assert kept.read_bytes() == before
            assert await states.list_session_keys() == ({SessionKey("s")} if what else set())

    async def test_a_directory_that_leads_elsewhere_is_not_listed(self, tmp_path: Path, root: Path) -> None:
        write(tmp_path / "elsewhere/a.json", "{}")
        async with JsonSession(root) as states:
            await states.save("real", "a", {})
            (root / "link").symlink_to(tmp_path / "elsewhere")
            assert await states.list_session_keys() == {SessionKey("real")}
            with pytest.raises(StoreError, match="not followed"):
                await states.get("link", "a")
