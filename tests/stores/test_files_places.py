"""Ids that look like encodings: their journals have their own names, and no two ids ever meet."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import Session, SessionKey, SessionManager, StoreError, user
from leafward.core.ids import Owner, Scope, refusal
from leafward.stores.entries import Shelf
from leafward.stores.files import FileStore, writing
from leafward.stores.files.names import INDEX, SAFE, decoded
from tests.stores.files_store import drop_index, end, fill, journal, opened, start, texts

TWINS = {"acme": "iɞ", "1440": "׎4", "User": "Rǫ", "c2VzcyAx": "sess 1", "5a6i5pyN": "客服", "YWwvaWNl": "al/ice"}
"""Ids that are valid base64, and the ids that they are the encodings of."""


def path_of(directory: Path, agent: str = "default", user: str = "__anon__", session: str = "s") -> Path:
    """Return the file of a session whose directories and file have these names."""
    return directory / user / "agents" / agent / "sessions" / f"{session}.log.jsonl"


def hashed(id: str) -> str:
    return f"~~{sha256(id.encode()).hexdigest()}"


def old_name(id: str, ending: str = "") -> str:
    """Return the name that the version before gave to an id."""
    name = urlsafe_b64encode(id.encode()).decode().rstrip("=")
    if SAFE.fullmatch(id):
        ambiguous = id.startswith((".", INDEX)) or id.endswith(".log") or decoded(id) is not None
        name = f"~{id}" if ambiguous else id
    return (name if len(name) + len(ending) <= 255 else hashed(id)) + ending


def old_path(directory: Path, scope: Scope) -> Path:
    owner = scope.owner
    return path_of(
        directory,
        old_name(owner.agent_id),
        "__anon__" if owner.user_id is None else old_name(owner.user_id),
        old_name(scope.session_id, ".log.jsonl").removesuffix(".log.jsonl"),
    )


async def write_as_before(directory: Path, scopes: Iterable[Scope], count: int = 2) -> None:
    """Write sessions to the places that the version before gave them."""
    for scope in scopes:
        owner = scope.owner
        async with opened(directory) as store:
            await fill(store, scope.session_id, count, user_id=owner.user_id, agent_id=owner.agent_id)
        new, old = journal(directory, scope.session_id, owner.user_id, owner.agent_id), old_path(directory, scope)
        old.parent.mkdir(parents=True, exist_ok=True)
        new.rename(old)


async def listed(store: FileStore, owner: Owner) -> set[str]:
    page = await SessionManager(store, user_id=owner.user_id, agent_id=owner.agent_id).list(limit=None)
    return {info.id for info in page}


def scope_at(level: str, id: str) -> Scope:
    """Return a session with an id of interest as its user, agent or session."""
    ids = {"user": "u", "agent": "a", "session": "s", level: id}
    return Scope.of(ids["session"], user_id=ids["user"], agent_id=ids["agent"])


def handle(store: FileStore, scope: Scope) -> Session:
    return Session(store, scope.session_id, user_id=scope.owner.user_id, agent_id=scope.owner.agent_id)


async def say(store: FileStore, scope: Scope, text: str) -> None:
    await handle(store, scope).append_message(user(text))


async def heard(store: FileStore, scope: Scope) -> list[str]:
    return [message.text for message in await handle(store, scope).get_history()]


def all_journals(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*.log.jsonl*")}


@asynccontextmanager
async def only_reading(store: FileStore) -> AsyncGenerator[None]:
    """Fail if a call finds the index behind the journals."""
    runner = store._runner.engine.runner
    current = runner.be_current

    async def fails(where: Scope | Owner) -> None:
        raise AssertionError(f"the index is behind {where}")

    runner.be_current = fails
    try:
        yield
    finally:
        runner.be_current = current


look_alikes = st.sampled_from(sorted(TWINS)) | st.sampled_from(sorted(TWINS.values()))
encodings = st.text(min_size=1, max_size=12).map(
    lambda text: urlsafe_b64encode(text.encode("utf-8", "replace")).decode()
)
some_ids = st.one_of(
    look_alikes,
    encodings.map(lambda text: text.rstrip("=")),
    st.from_regex(SAFE, fullmatch=True),
    st.integers(0, 9999).map(lambda number: f"{number:04}"),
    st.integers(0, 2**32).map(lambda number: f"{number:x}"),
    st.text("客服会话北京", min_size=1, max_size=6),
    st.text("ab/:\\~.% ", min_size=1, max_size=6),
    st.text(min_size=1, max_size=255),
).filter(lambda id: refusal(id) is None)


@st.composite
def some_scopes(draw: st.DrawFn) -> list[Scope]:
    """Draw sessions whose users, agents and ids come from few ids, with the ids that these are encodings of."""
    few = draw(st.lists(some_ids, min_size=1, max_size=3))
    pool = st.sampled_from([*few, *(twin for id in few if (twin := decoded(id)) is not None)])
    users = st.none() | pool
    return draw(st.lists(st.builds(Scope, st.builds(Owner, pool, users), pool), min_size=1, max_size=6, unique=True))


def is_literal(id: str | None) -> bool:
    if id is None:
        return True
    reserved = id.startswith((".", INDEX)) or id.endswith(".log")
    return SAFE.fullmatch(id) is not None and not reserved and len(id) <= 245


class TestAnyIds:
    @given(some_scopes(), st.integers(0, 6), st.booleans())
    @settings(max_examples=40, deadline=None)
    def test_literal_names_stay_literal_and_a_listing_gives_back_what_was_written(
        self, scopes: list[Scope], before: int, at_once: bool
    ) -> None:
        """The first sessions are in the places that the version before gave them."""
        old, new = scopes[:-before], scopes[-before:]

        async def check(store: FileStore) -> None:
            for scope in scopes:
                assert await heard(store, scope) == [repr(scope)]
            for owner in {scope.owner for scope in scopes}:
                assert await listed(store, owner) == {scope.session_id for scope in scopes if scope.owner == owner}

        async def run(directory: Path) -> None:
            for number, scope in enumerate(old):
                async with opened(directory / str(number), durability="process") as store:
                    await say(store, scope, repr(scope))
                [path] = (directory / str(number)).rglob("*.log.jsonl")
                old_path(directory / "all", scope).parent.mkdir(parents=True, exist_ok=True)
                path.rename(old_path(directory / "all", scope))
            await go_on(directory / "all")

        async def go_on(directory: Path) -> None:
            async with opened(directory, durability="process") as store:
                said = [say(store, scope, repr(scope)) for scope in new]
                if at_once:
                    await asyncio.gather(*said)
                else:
                    for one in said:
                        await one
                await check(store)
            for scope in new:
                if all(map(is_literal, (scope.session_id, scope.owner.user_id, scope.owner.agent_id))):
                    ids = (scope.owner.agent_id, scope.owner.user_id or "__anon__", scope.session_id)
                    assert path_of(directory, *ids).exists()
            assert len(all_journals(directory)) == len(scopes)
            drop_index(directory)
            async with opened(directory, durability="process") as store:
                await check(store)
                for scope in scopes:
                    assert await store.registry.delete(scope)
                    assert await heard(store, scope) == []
            assert all_journals(directory) == set()

        with TemporaryDirectory() as directory:
            asyncio.run(run(Path(directory).resolve()))

    @pytest.mark.parametrize("id", sorted(TWINS))
    async def test_an_id_that_is_valid_base64_is_its_own_name(self, tmp_path: Path, id: str) -> None:
        async with opened(tmp_path) as store:
            await fill(store, id, count=1, user_id=id, agent_id=id)
            assert await listed(store, Owner(id, id)) == {id}
        assert path_of(tmp_path, id, id, id).exists()

    @pytest.mark.parametrize("agent", ["My Helper", "客服", "agent:1", "a.log"])
    async def test_the_directory_of_an_agent_has_its_name(self, tmp_path: Path, agent: str) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=1, agent_id=agent)
        assert path_of(tmp_path, agent).exists()


@pytest.mark.parametrize("level", ["user", "agent", "session"])
@pytest.mark.parametrize("literal_first", [True, False])
class TestTwins:
    """An id that is valid base64, and the id that it is the encoding of. Agents are encoded only where they must be."""

    async def test_both_are_kept_apart_and_the_literal_one_has_its_name(
        self, tmp_path: Path, level: str, literal_first: bool
    ) -> None:
        literal, encoded = scope_at(level, "YWwvaWNl"), scope_at(level, "al/ice")
        async with opened(tmp_path) as store:
            for scope in (literal, encoded) if literal_first else (encoded, literal):
                await say(store, scope, scope.session_id + repr(scope.owner))
                await store.entries.edit(Shelf(scope, "facts", shared=True), "k", lambda _, scope=scope: repr(scope))
        for indexed in (True, False):
            if not indexed:
                drop_index(tmp_path)
            async with opened(tmp_path) as store:
                for scope in (literal, encoded):
                    assert await heard(store, scope) == [scope.session_id + repr(scope.owner)]
                    assert scope.session_id in await listed(store, scope.owner)
                if level != "session":
                    assert await listed(store, literal.owner) == await listed(store, encoded.owner) == {"s"}
                    for scope in (literal, encoded):
                        [fact] = await store.entries.list_entries(Shelf(scope, "facts", shared=True))
                        assert fact.content == repr(scope)
        async with opened(tmp_path) as store, only_reading(store):
            for scope in (literal, encoded):
                assert scope.session_id in await listed(store, scope.owner)
                assert await heard(store, scope) == [scope.session_id + repr(scope.owner)]
        owner = literal.owner
        path = path_of(tmp_path, owner.agent_id, owner.user_id or "", literal.session_id)
        first = path.read_text().splitlines()[0]
        assert '"YWwvaWNl"' in first
        assert '"al/ice"' not in first

    @pytest.mark.parametrize("erased", [True, False])
    async def test_one_goes_and_the_other_stays(
        self, tmp_path: Path, level: str, literal_first: bool, erased: bool
    ) -> None:
        for gone, kept in (("YWwvaWNl", "al/ice"), ("al/ice", "YWwvaWNl")):
            directory = tmp_path / gone.replace("/", "-")
            scopes = [scope_at(level, id) for id in ("YWwvaWNl", "al/ice")]
            async with opened(directory) as store:
                for scope in scopes if literal_first else reversed(scopes):
                    await say(store, scope, repr(scope))
                call = store.registry.erase if erased else store.registry.delete
                assert await call(scope_at(level, gone))

                assert await heard(store, scope_at(level, gone)) == []
                assert await heard(store, scope_at(level, kept)) == [repr(scope_at(level, kept))]
                assert scope_at(level, gone).session_id not in (
                    await listed(store, scope_at(level, gone).owner) if level == "session" else ()
                )
            found = b"".join(path.read_bytes() for path in directory.rglob("*.jsonl*"))
            assert repr(scope_at(level, gone)).encode() not in found
            drop_index(directory)
            async with opened(directory) as store:
                assert await heard(store, scope_at(level, gone)) == []
                await say(store, scope_at(level, gone), "again")
                assert await heard(store, scope_at(level, gone)) == ["again"]
                assert await heard(store, scope_at(level, kept)) == [repr(scope_at(level, kept))]

    async def test_both_can_be_forked_and_split(self, tmp_path: Path, level: str, literal_first: bool) -> None:
        scopes = [scope_at(level, id) for id in ("YWwvaWNl", "al/ice")]
        async with opened(tmp_path) as store:
            for scope in scopes if literal_first else reversed(scopes):
                await say(store, scope, repr(scope))
            for scope in scopes:
                manager = SessionManager(store, user_id=scope.owner.user_id, agent_id=scope.owner.agent_id)
                [message] = await handle(store, scope).get_history()
                fork = await manager.fork(scope.session_id, message.id, "copy")
                assert await heard(store, Scope(scope.owner, fork.id)) == [repr(scope)]
                new = await manager.compact_and_split(scope.session_id, "all of it")
                assert {fork.id, new.id, scope.session_id} <= await listed(store, scope.owner)
                ended = await store.registry.get(scope)
                assert ended is not None
                assert ended.end_reason is not None


class TestMovingAside:
    async def test_two_that_come_in_one_transaction_are_both_kept(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            for pair in TWINS.items():
                await asyncio.gather(*(fill(store, id, 1) for id in pair))
                await asyncio.gather(*(fill(store, "s", 1, user_id=id) for id in reversed(pair)))
            for id in (*TWINS, *TWINS.values()):
                assert await texts(store, id) == await texts(store, user_id=id) == ["walnut 0"]

    async def test_a_failed_commit_takes_the_move_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "sess 1")
            path = path_of(tmp_path, session="c2VzcyAx")
            path.with_name(f"{path.name}.torn-1").write_text("bytes")
            before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
            commit = writing.Journals.commit

            def fails(self: writing.Journals, connection: sqlite3.Connection) -> None:
                self.write()
                assert len(all_journals(tmp_path)) == 3
                raise sqlite3.OperationalError("disk I/O error")

            monkeypatch.setattr(writing.Journals, "commit", fails)
            with pytest.raises(StoreError):
                await fill(store, "c2VzcyAx", 1)
            assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == before
            monkeypatch.setattr(writing.Journals, "commit", commit)
            assert len(await texts(store, "sess 1")) == 4
            await fill(store, "c2VzcyAx", 1)
            assert (len(await texts(store, "sess 1")), len(await texts(store, "c2VzcyAx"))) == (4, 1)

    async def test_what_was_kept_beside_a_journal_moves_with_it(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "sess 1")
            path = path_of(tmp_path, session="c2VzcyAx")
            with path.open("ab") as file:
                file.write(b"secret of sess 1")
            assert len(await texts(store, "sess 1")) == 4
            await fill(store, "c2VzcyAx", 1)
            aside = f"{hashed('sess 1')}.log.jsonl"
            assert {one.name for one in path.parent.iterdir()} == {path.name, aside, f"{aside}.torn-1"}

            assert await store.registry.delete(Scope.of("c2VzcyAx"))
            assert {one.name for one in path.parent.iterdir()} == {aside, f"{aside}.torn-1"}
            assert (await store.registry.erase(Scope.of("sess 1"))).erased
            assert list(path.parent.iterdir()) == []

    @pytest.mark.parametrize("moves", [0, 1, 2, 3, 4])
    async def test_a_kill_in_the_middle_of_it_loses_nothing(self, tmp_path: Path, moves: int) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "sess 1")
            path = path_of(tmp_path, session="c2VzcyAx")
            for n in (1, 2):
                path.with_name(f"{path.name}.torn-{n}").write_text(f"secret {n}")
        child = start(
            f"""
import signal
from leafward.stores.files.folder import Folder
move, left = Folder.move, {moves}
def moves(self, *args, **options):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    move(self, *args, **options)
Folder.move = moves
async def main():
    async with opened(directory) as store:
        await fill(store, "c2VzcyAx", 1)
        print("written", flush=True)
        sys.stdin.readline()
asyncio.run(main())
""",
            tmp_path,
        )
        try:
            assert child.stdout is not None
            assert (await asyncio.to_thread(child.stdout.readline)).strip() == ("written" if moves == 4 else "")
        finally:
            end(child)

        async with opened(tmp_path) as store:
            assert len(await texts(store, "sess 1")) == 4
            assert len(await texts(store, "c2VzcyAx")) == (1 if moves == 4 else 0)
            await fill(store, "c2VzcyAx", 1) if moves < 4 else None
            assert (len(await texts(store, "sess 1")), len(await texts(store, "c2VzcyAx"))) == (4, 1)
            assert {one.read_text() for one in path.parent.glob("*torn*")} == {"secret 1", "secret 2"}
            assert await store.registry.delete(Scope.of("c2VzcyAx"))
            assert len(list(path.parent.glob("*torn*"))) == 2
            assert (await store.registry.erase(Scope.of("sess 1"))).erased
            assert list(path.parent.iterdir()) == []

    async def test_an_erasure_finds_what_a_killed_move_took_aside(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "sess 1")
            aside = path_of(tmp_path, session=hashed("sess 1"))
            aside.with_name(f"{aside.name}.torn-1").write_text("secret")
            assert (await store.registry.erase(Scope.of("sess 1"))).erased
        assert all_journals(tmp_path) == set()

    async def test_a_damaged_first_line_does_not_give_a_session_to_another_id(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "acme")
            path = path_of(tmp_path, session="acme")
            path.write_bytes(path.read_bytes().replace(b'"acme"', b'"acmX"', 1))
            for call in (texts(store, "iɞ"), fill(store, "iɞ", 1), store.registry.delete(Scope.of("iɞ"))):
                with pytest.raises(StoreError, match="is the damaged journal of another id"):
                    await call
            assert len(await texts(store, "acme")) == 4
            assert (await store.repair("acme")).repaired
            assert await texts(store, "iɞ") == []
            await fill(store, "iɞ", 1)
            assert (len(await texts(store, "acme")), len(await texts(store, "iɞ"))) == (4, 1)

    @pytest.mark.parametrize("way", ["delete", "erase"])
    @pytest.mark.parametrize(("session_id", "other"), [("acme", "~acme"), ("iɞ", hashed("iɞ"))])
    async def test_a_damaged_journal_that_can_only_be_its_own_goes_with_a_session(
        self, tmp_path: Path, session_id: str, other: str, way: str
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store, session_id)
            damaged = path_of(tmp_path, session=other)
            damaged.write_bytes(b"X" + path_of(tmp_path, session="acme").read_bytes())
            assert await getattr(store.registry, way)(Scope.of(session_id))
            assert await texts(store, session_id) == []
            await fill(store, session_id, 1)
        assert not damaged.exists()

    async def test_a_damaged_journal_that_may_be_anothers_stays(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            for agent in ("iɞ", "acme"):
                await fill(store, ".x", agent_id=agent)
            damaged = path_of(tmp_path, "acme", session="~.x")
            damaged.write_bytes(b"X" + damaged.read_bytes()[1:])
            assert await store.registry.delete(Scope.of(".x", agent_id="iɞ"))
            assert len(await texts(store, ".x", agent_id="acme")) == 4

    async def test_a_first_line_that_is_nested_too_deeply_does_not_say_whose_it_is(self, tmp_path: Path) -> None:
        path = path_of(tmp_path, session="acme")
        path.parent.mkdir(parents=True)
        deep = b"[" * 3900 + b"]" * 3900
        line = (
            b'{"type":"session","id":"acme","timestamp":1.5,"leafward":{"agent":"default","user":null,"z":%b}}' % deep
        )
        path.write_bytes(b'%b,"crc":"%08x"}\n' % (line[:-1], crc32(line)))
        async with opened(tmp_path) as store:
            assert await listed(store, Owner("default", None)) == set()
            with pytest.raises(StoreError, match="line 1 is not one of this format"):
                await texts(store, "acme")

    @pytest.mark.parametrize("session_id", ["acme", "sess 1"])
    async def test_a_damaged_journal_is_repaired_in_its_place(self, tmp_path: Path, session_id: str) -> None:
        async with opened(tmp_path) as store:
            for id in ("iɞ", "acme", "sess 1", "c2VzcyAx"):
                await fill(store, id)
        drop_index(tmp_path)
        [path] = [one for one in tmp_path.rglob("*.jsonl") if f'"id":"{session_id}"' in one.read_text()]
        path.write_bytes(path.read_bytes().replace(b"walnut 1", b"walnut X", 1))
        async with opened(tmp_path) as store:
            assert len(await texts(store, session_id)) == 3
            assert str(path) in (await store.damage())[0]
            report = await store.repair(session_id)
            assert report.kept == [f"{path}.damaged-1"]
            for id in ("iɞ", "acme", "sess 1", "c2VzcyAx"):
                assert len(await texts(store, id)) == (3 if id == session_id else 4)


OLD_SCOPES = [
    Scope.of("acme"),
    Scope.of("1440", user_id="User"),
    Scope.of("sess 1", user_id="acme", agent_id="My Helper"),
    Scope.of("s", user_id="iɞ"),
    Scope.of("s", agent_id="客服"),
    Scope.of("s", agent_id="1440"),
    Scope.of("s", agent_id="a.log"),
    Scope.of("acme" * 61 + "a"),
]


class TestTheVersionBefore:
    """A directory that leafward wrote when an id that looks like an encoding was written behind a `~`."""

    @pytest.mark.parametrize("indexed", [True, False])
    async def test_its_sessions_are_found_and_go_on_where_they_are(self, tmp_path: Path, indexed: bool) -> None:
        await write_as_before(tmp_path, OLD_SCOPES)
        if not indexed:
            drop_index(tmp_path)
        before = all_journals(tmp_path)
        async with opened(tmp_path) as store:
            for scope in OLD_SCOPES:
                assert scope.session_id in await listed(store, scope.owner)
                assert await heard(store, scope) == ["walnut 0", "walnut 1"]
                await say(store, scope, "on")
                assert await heard(store, scope) == ["walnut 0", "walnut 1", "on"]
        assert all_journals(tmp_path) == before
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            for scope in OLD_SCOPES:
                assert await heard(store, scope) == ["walnut 0", "walnut 1", "on"]
                assert (await store.registry.erase(scope)).erased
        assert all_journals(tmp_path) == set()

    async def test_a_new_session_goes_to_the_new_place_and_both_are_listed(self, tmp_path: Path) -> None:
        owner = Owner("My Helper", "acme")
        await write_as_before(tmp_path, [Scope(owner, "old")])
        async with opened(tmp_path) as store:
            await say(store, Scope(owner, "new"), "hi")
            assert await listed(store, owner) == {"old", "new"}
        assert path_of(tmp_path, "My Helper", "acme", "new").exists()
        assert path_of(tmp_path, "TXkgSGVscGVy", "~acme", "old").exists()

    @pytest.mark.parametrize("level", ["user", "agent", "session"])
    async def test_an_id_that_has_its_place_now_takes_it(self, tmp_path: Path, level: str) -> None:
        literal, encoded = scope_at(level, "TXkgSGVscGVy"), scope_at(level, "My Helper")
        await write_as_before(tmp_path, [encoded])
        async with opened(tmp_path) as store:
            assert await heard(store, literal) == []
            assert literal.session_id not in await listed(store, literal.owner) or level == "session"
            await say(store, literal, "mine")
            assert await heard(store, literal) == ["mine"]
            assert await heard(store, encoded) == ["walnut 0", "walnut 1"]
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert await heard(store, literal) == ["mine"]
            assert await heard(store, encoded) == ["walnut 0", "walnut 1"]
        if level == "agent":
            assert path_of(tmp_path, "My Helper", "u").exists()

    @pytest.mark.parametrize("indexed", [True, False])
    @pytest.mark.parametrize("read_first", [True, False])
    async def test_of_two_journals_of_a_session_the_literal_one_counts_and_one_warning_names_the_other(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, indexed: bool, read_first: bool
    ) -> None:
        scope = Scope.of("acme", user_id="acme")
        await write_as_before(tmp_path, [scope])
        async with opened(tmp_path / "elsewhere") as store:
            await fill(store, "acme", 3, user_id="acme")
        new, old = path_of(tmp_path, "default", "acme", "acme"), path_of(tmp_path, "default", "~acme", "~acme")
        new.parent.mkdir(parents=True, exist_ok=True)
        path_of(tmp_path / "elsewhere", "default", "acme", "acme").rename(new)
        if not indexed:
            drop_index(tmp_path)
        kept = old.read_bytes()
        with caplog.at_level(logging.WARNING):
            async with opened(tmp_path) as store:
                if read_first:
                    assert len(await heard(store, scope)) == 3
                    assert str(old) in caplog.text
                for _ in range(2):
                    assert await listed(store, scope.owner) == {"acme"}
                    assert len(await heard(store, scope)) == 3
                async with only_reading(store):
                    assert await listed(store, scope.owner) == {"acme"}
                await say(store, scope, "on")
                assert len(await heard(store, scope)) == 4
        [warning] = [text for one in caplog.records if str(old) in (text := one.getMessage())]
        assert f"{old} holds a session that is also in {new}: the latter is used" in warning
        assert old.read_bytes() == kept
        async with opened(tmp_path) as store:
            assert await store.registry.delete(scope)
            assert await heard(store, scope) == []
        assert not old.exists()
        assert not new.exists()

    @pytest.mark.parametrize(
        ("agent", "other"),
        [("default", "My Helper"), ("default", "YWwvaWNl"), ("al/ice", "YWwvaWNl"), ("My Helper", "TXkgSGVscGVy")],
    )
    @pytest.mark.parametrize("before", [True, False])
    async def test_the_state_of_a_session_stays_while_another_agent_has_it(
        self, tmp_path: Path, agent: str, other: str, before: bool
    ) -> None:
        key, theirs = SessionKey("acme", "iɞ"), Scope.of("acme", user_id="iɞ", agent_id=other)
        if before:
            await write_as_before(tmp_path, [theirs])
        async with opened(tmp_path) as store:
            if not before:
                await say(store, theirs, "hi")
            # Twins of this session are not this session.
            await fill(store, "acme", 1, user_id="acme", agent_id="third")
            await fill(store, "iɞ", 1, user_id="iɞ", agent_id="third")
            await fill(store, "acme", 1, user_id="iɞ", agent_id=agent)
            await store.states.save(key, "mine", {"v": 1})
            assert await store.registry.delete(Scope.of("acme", user_id="iɞ", agent_id=agent))
            assert await store.states.get(key, "mine") == {"v": 1}
            assert await store.registry.delete(theirs)
            assert await store.states.get(key, "mine") is None
