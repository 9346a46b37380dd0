"""File names keep ids apart, and nobody but the owner gets at the files."""

from __future__ import annotations

import os
import sqlite3
from base64 import urlsafe_b64encode
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import ConfigurationError, Session, StoreError, open_store, user
from leafward.core.ids import refusal
from leafward.stores.files import names
from leafward.stores.files.names import JOURNAL, agent_names, aside, is_aside, kind_of, names_of
from leafward.testing.ids import HOSTILE_IDS
from tests.stores.files_store import fill, journal, opened, shared_journal, texts

ids = st.text(min_size=1, max_size=255).filter(lambda text: refusal(text) is None)


class TestNames:
    @pytest.mark.parametrize(
        ("id", "name"),
        [
            ("user_123", "user_123"),
            ("a.b-c", "a.b-c"),
            ("sess 1", "c2VzcyAx"),
            ("al/ice", "YWwvaWNl"),
            ("会话", "5Lya6K-d"),
            ("alice", "alice"),
            ("acme", "acme"),
            ("1440", "1440"),
            ("c2VzcyAx", "c2VzcyAx"),
            ("k" * 245, "k" * 245),
            ("acme" * 61 + "a", "acme" * 61 + "a"),
        ],
    )
    def test_an_id_has_the_name_that_agentscope_gives_it(self, id: str, name: str) -> None:
        assert names_of(id, JOURNAL).home == name + JOURNAL

    @pytest.mark.parametrize(
        ("id", "name"),
        [
            ("helper", "helper"),
            ("My Helper", "My Helper"),
            ("客服", "客服"),
            ("agent:1", "agent:1"),
            ("a.log", "a.log"),
            ("acme", "acme"),
            ("客" * 85, "客" * 85),
            ("al/ice", "YWwvaWNl"),
            ("~acme", "fmFjbWU"),
            (".hidden", "~.hidden"),
            ("客" * 86, names.hashed("客" * 86)),
        ],
    )
    def test_an_agent_has_its_name_if_that_is_a_file_name(self, id: str, name: str) -> None:
        assert agent_names(id).home == name

    @pytest.mark.parametrize("id", [".hidden", "...", "a.log", "index.sqlite", "index.sqlite-wal"])
    def test_an_id_whose_name_means_something_else_gets_a_name_of_ours(self, id: str) -> None:
        assert set(names_of(id)) == {f"~{id}"}

    def test_hostile_ids_never_share_all_of_their_names(self) -> None:
        more = [urlsafe_b64encode(id.encode()).decode().rstrip("=") for id in HOSTILE_IDS]
        everyone = {id for id in (*HOSTILE_IDS, *more, *(f"~{id}" for id in more)) if refusal(id) is None}

        for of in (partial(names_of, ending=JOURNAL), agent_names):
            assert len({of(id).unique for id in everyone}) == len(everyone)
            assert len({of(id).old for id in everyone}) == len(everyone)

    @given(ids, ids)
    def test_each_id_has_a_name_that_no_other_has_and_all_stay_in_their_directory(self, one: str, other: str) -> None:
        for of in (partial(names_of, ending=JOURNAL), agent_names):
            assert (of(one).unique == of(other).unique) == (one == other)
            for name in of(one):
                assert len(name.encode()) <= 255
                assert "/" not in name
                assert name not in (".", "..", names.ANONYMOUS, names.LOCK, names.UNFINISHED, names.INDEX)
            encoded = urlsafe_b64encode(one.encode()).decode().rstrip("=")
            if refusal(encoded) is None and encoded != one:
                assert of(encoded).home != of(one).unique

    @given(ids)
    def test_what_is_kept_beside_a_journal_is_known_by_its_name(self, id: str) -> None:
        for path in names_of(id, JOURNAL):
            assert len(aside(path, "damaged", 99999)) <= 255
            assert is_aside(path, aside(path, "torn", 3))
            assert kind_of(aside(path, "torn", 3)) == "torn"
            assert not is_aside(names_of(f"{id[:250]}.else", JOURNAL).home, aside(path, "torn", 3))
            assert not aside(path, "torn", 3).endswith(JOURNAL)


def make_database(path: Path) -> None:
    """Make a database that is none of ours."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (name TEXT)")
    database.commit()
    database.close()


class TestAccess:
    async def test_directories_and_files_are_private_whatever_the_umask(self, tmp_path: Path) -> None:
        old = os.umask(0)
        try:
            async with opened(tmp_path / "new" / "store") as store:
                await fill(store, user_id="ann")
        finally:
            os.umask(old)
        modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}

        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
        assert (tmp_path / "new" / "store" / "index.sqlite") in modes

    @pytest.mark.parametrize("depth", range(1, 6))
    async def test_a_link_below_the_root_is_not_followed(self, tmp_path: Path, depth: int) -> None:
        root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
        async with opened(root) as store:
            await fill(store, count=1)
        path = root.joinpath(*journal(root).relative_to(root).parts[:depth])
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        before = {one: one.read_bytes() for one in tmp_path.rglob("*.jsonl")}

        async with opened(root) as store:
            for call in (Session(store, "s").get_history(), Session(store, "s").append_message(user("no"))):
                with pytest.raises(StoreError, match="is a link"):
                    await call

        assert {one: one.read_bytes() for one in tmp_path.rglob("*.jsonl")} == before

    @pytest.mark.parametrize("name", ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm"])
    @pytest.mark.parametrize("there", [True, False])
    async def test_a_link_in_place_of_the_index_is_removed_and_its_target_left_alone(
        self, tmp_path: Path, name: str, there: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        root, foreign = tmp_path / "root", tmp_path / "foreign"
        async with opened(root) as store:
            await fill(store, count=2)
        if there:
            make_database(foreign)
        before = {one.name: one.read_bytes() for one in tmp_path.glob("foreign*")}
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(foreign)

        async with opened(root) as store:
            assert await texts(store) == ["walnut 0", "walnut 1"]
            await Session(store, "s").append_message(user("on"))
            assert not (root / name).is_symlink()

        assert {one.name: one.read_bytes() for one in tmp_path.glob("foreign*")} == before
        assert [(one.levelname, str(root / name) in one.getMessage()) for one in caplog.records] == [("WARNING", True)]

    @pytest.mark.parametrize("own", [True, False])
    async def test_a_link_that_takes_the_place_of_an_open_index_is_not_followed(
        self, tmp_path: Path, own: bool
    ) -> None:
        root, foreign = tmp_path / "root", tmp_path / "foreign"
        async with opened(root) as store:
            await fill(store, count=2)
            if own:
                (root / "index.sqlite").rename(foreign)
            else:
                (root / "index.sqlite").unlink()
                make_database(foreign)
            (root / "index.sqlite").symlink_to(foreign)
            before = foreign.read_bytes()

            await Session(store, "s").append_message(user("on"))

            assert await texts(store) == ["walnut 0", "walnut 1", "on"]
            assert not (root / "index.sqlite").is_symlink()
        assert foreign.read_bytes() == before

    async def test_a_reader_does_not_follow_a_link_in_place_of_the_index(self, tmp_path: Path) -> None:
        root, foreign = tmp_path / "root", tmp_path / "foreign"
        async with opened(root) as store:
            await fill(store, count=2)
        make_database(foreign)
        before = foreign.read_bytes()
        async with opened(root) as store:
            (root / "index.sqlite").unlink()
            (root / "index.sqlite").symlink_to(foreign)

            assert await texts(store) == ["walnut 0", "walnut 1"]

        assert foreign.read_bytes() == before

    @pytest.mark.parametrize("name", [".lock", ".lock-next"])
    async def test_a_link_in_place_of_a_lock_is_refused(self, tmp_path: Path, name: str) -> None:
        root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
        async with opened(root) as store:
            await fill(store, count=1)
        (root / name).unlink()
        (root / name).symlink_to(elsewhere)

        with pytest.raises(StoreError, match=rf"{name} is a link: it is not followed"):
            await open_store(f"file:///{root}")
        assert not elsewhere.exists()

    async def test_a_link_to_the_root_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "root")
        async with opened(tmp_path / "root") as store, opened(tmp_path / "link") as linked:
            await fill(store, count=1)
            await Session(linked, "s").append_message(user("on"))
            assert await texts(store) == ["walnut 0", "on"]

    async def test_a_pipe_in_place_of_a_journal_is_refused(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "other", count=1)
            os.mkfifo(journal(tmp_path))
            with pytest.raises(StoreError, match="no file or directory of a store"):
                await Session(store, "s").append_message(user("no"))
            assert await texts(store, "other") == ["walnut 0"]

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
    async def test_a_root_that_others_can_write_to_is_refused(self, tmp_path: Path, mode: int) -> None:
        root = tmp_path / "root"
        root.mkdir()
        root.chmod(mode)

        with pytest.raises(ConfigurationError, match="can be written to by others: use one of your own with mode 0700"):
            await open_store(f"file:///{root}")
        assert list(root.iterdir()) == []

    async def test_a_root_of_somebody_else_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(ConfigurationError, match="belongs to another user"):
            await open_store(f"file:///{tmp_path}")

    @pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
    @pytest.mark.parametrize("url", ["file:///{}/a b/dir", "sqlite:///{}/a b/chat.db"])
    async def test_a_network_file_system_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, url: str
    ) -> None:
        mounts = tmp_path / "mounts"
        mounts.write_text(f"rootfs / ext4 rw 0 0\nserver:/x {tmp_path}/a\\040b {kind} rw 0 0\n")
        monkeypatch.setattr("leafward.stores.sqlite.mounts.MOUNTS", str(mounts))

        with pytest.raises(ConfigurationError, match=rf"is on a network file system \({kind}\)"):
            await open_store(url.format(tmp_path))
        assert not (tmp_path / "a b").exists()

    async def test_a_file_in_place_of_the_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for path in ("file", "file/below"):
            with pytest.raises(ConfigurationError, match="is a file: name a directory"):
                await open_store(f"file:///{tmp_path}/{path}")

    @pytest.mark.parametrize("url", ["file://", "file:///", "file://host/dir", "file:///a\0b", "file:///\ud800"])
    async def test_a_url_that_names_no_directory_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match=r"file:///absolute/dir or file://\./relative/dir"):
            await open_store(url)

    async def test_a_relative_directory_is_one_below_the_current(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        async with open_store("file://./chats/mine") as store:
            await Session(store, "s").append_message(user("hi"))
        assert journal(tmp_path / "chats" / "mine").exists()

    async def test_users_and_agents_have_directories_of_their_own(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "s 1", user_id="al/ice", agent_id="a.b", count=1)
            await fill(store, count=1)

        assert (tmp_path / "YWwvaWNl/agents/a.b/sessions/cyAx.log.jsonl").exists()
        assert (tmp_path / "__anon__/agents/default/sessions/s.log.jsonl").exists()
        assert shared_journal(tmp_path).parent == tmp_path / "__anon__/agents/default"
