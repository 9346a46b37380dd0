"""Directories that Java made and two ids of ours may mean: Java finds in them what it wrote, whatever we do."""

from __future__ import annotations

import asyncio
import json
import re
import string
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import SessionKey
from leafward.core.ids import refusal
from leafward.importers.agentscope import migrate
from leafward.stores import InMemoryAgentStateStore, JsonFileAgentStateStore
from leafward.stores.files.names import SAFE, decoded, hashed
from leafward.stores.files.state_tree import digest_of, version_text

LIKELY = [
    "客服:7",
    '{"tenant":"t1","id":"7"}',
    "alice@example.com",
    "订单 17",
    "sess 1",
    "Привет",
    "müller@example.com",
    *(
        "a:b",
        "s:1",
        "u 1",
        "u:12",
        "客",
        "用户#1",
        "u#927036",
        "wx|59974",
        "a+b@x.de",
        "a%2Fb",
        "a,b",
        "O'Neil",
        "a(b)c",
        "👍",
        "👨\u200d👩\u200d👧",
    ),
    *(
        "Nguyễn Văn An",
        "สวัสดีครับผม",
        "محادثة رقم واحد",
        "שלום",
        "नमस्ते दुनिया",
        "chat 👍 with Li",
        "客服·小明的会话",
        "房间①号",
    ),
    *("naïve café – menu", "it’s mine today", "order №17 of Anna", "price 10€ for two", "会议\u3000室", "a\xa0b c d e"),
]
"""Ids that Java encodes to a name that is taken for an encoding."""
UNLIKELY = ["acme", "1440", "User", "5420", "bd2f", "64afa86c", "blog", "city", "List", "UserList", "finalization"]
"""Ids that may be encodings, but of a text that is hardly an id, or that are numbers."""
LIST = '{"id":"m1"}\n'


def encoded(id: str) -> str:
    return urlsafe_b64encode(id.encode()).decode().rstrip("=")


def javas_name(id: str) -> str:
    return id if SAFE.fullmatch(id) else encoded(id)


def javas_place(layout: str, key: SessionKey) -> tuple[str, ...]:
    user = "__anon__" if key.user_id is None else javas_name(key.user_id)
    return (javas_name(key.session_id),) if layout == "1.x" else (user, javas_name(key.session_id))


@dataclass
class Java:
    """AgentScope with one root: its names, and files of its form."""

    root: Path
    layout: str

    def save(self, key: SessionKey, *, state: object = None) -> dict[str, str]:
        place = self.root.joinpath(*javas_place(self.layout, key))
        place.mkdir(parents=True, exist_ok=True)
        files = {"memory_messages.jsonl": LIST, "memory_messages.hash": "76dead55", "agent_meta.json": '{ "n" : 1 }'}
        if state is not None:
            files["agent_state.json"] = json.dumps(state)
        for file, text in files.items():
            (place / file).write_text(text)
        return files

    def read(self, key: SessionKey) -> dict[str, str]:
        place = self.root.joinpath(*javas_place(self.layout, key))
        return {path.name: path.read_text() for path in place.iterdir()} if place.is_dir() else {}

    def value(self, key: SessionKey, name: str) -> object:
        text = self.read(key).get(f"{name}.json")
        return None if text is None else json.loads(text)

    def ours(self) -> JsonFileAgentStateStore:
        return JsonFileAgentStateStore(self.root, layout=self.layout)


@pytest.fixture(params=["1.x", "2.x"])
def java(request: pytest.FixtureRequest, tmp_path: Path) -> Java:
    return Java(tmp_path / "states", request.param)


@pytest.fixture
def java2(tmp_path: Path) -> Java:
    return Java(tmp_path / "states", "2.x")


class TestListsOnly:
    """Nothing in the directory tells which id Java meant."""

    @pytest.mark.parametrize("id", LIKELY)
    async def test_a_job_that_saves_in_every_listed_session_stays_together_with_java(self, java: Java, id: str) -> None:
        key = SessionKey(id)
        java.save(key)
        async with java.ours() as states:
            assert await states.list_session_keys() == {key}
            for one in await states.list_session_keys():
                await states.save(one, "last_seen", {"at": 1})
        async with java.ours() as states:
            assert await states.list_session_keys() == {key}
            assert len(await states.get_list(key, "memory_messages")) == 1
            await states.save_list(key, "memory_messages", [{"id": "p1"}])
        assert java.read(key)["memory_messages.jsonl"] == '{"id":"p1"}\n'
        assert java.value(key, "last_seen") == {"at": 1}

    @pytest.mark.parametrize("id", LIKELY)
    async def test_a_save_under_either_id_excludes_neither(self, java: Java, id: str) -> None:
        java.save(SessionKey(id))
        async with java.ours() as states:
            for n, one in enumerate((javas_name(id), id, javas_name(id))):
                await states.save(one, "agent_state", {"session_id": one, "n": n})
                for other in (id, javas_name(id)):
                    assert await states.get(other, "agent_state") == {"session_id": one, "n": n}
                    assert len(await states.get_list(other, "memory_messages")) == 1
                assert await states.list_session_keys() == {SessionKey(id)}
        assert java.value(SessionKey(id), "agent_state") == {"session_id": javas_name(id), "n": 2}

    @pytest.mark.parametrize("id", LIKELY)
    async def test_a_user_that_java_encodes_is_shared(self, java2: Java, id: str) -> None:
        key = SessionKey("s1", id)
        java2.save(key)
        async with java2.ours() as states:
            assert await states.list_session_keys(id) == {key}
            await states.save(key, "last_seen", {"at": 1})
            assert await states.list_session_keys(id) == {key}
        assert java2.value(key, "last_seen") == {"at": 1}

    @pytest.mark.parametrize("id", UNLIKELY)
    async def test_the_text_that_a_name_decodes_to_reads_takes_and_deletes_nothing(self, java: Java, id: str) -> None:
        key, other = SessionKey(id), SessionKey(decoded(id) or "")
        written = java.save(key)
        async with java.ours() as states:
            assert await states.get_list(other, "memory_messages") == []
            assert not await states.exists(other)
            await states.save(other, "x", {"n": 1})
            assert await states.list_session_keys() == {key, other}
            assert await states.exists(key)
            await states.delete(other)
            assert await states.list_session_keys() == {key}
        assert java.read(key) == written

    async def test_a_directory_that_is_passed_over_is_said_once(
        self, java: Java, caplog: pytest.LogCaptureFixture
    ) -> None:
        java.save(SessionKey("acme"))
        async with java.ours() as states:
            assert await states.exists("acme")
            assert caplog.records == []
            for _ in range(2):
                assert not await states.exists("iɞ")
        [warning] = caplog.records
        assert "acme is read as that of 'acme' and not of 'iɞ'" in warning.getMessage()

    @pytest.mark.parametrize("state", [None, {"session_id": "s1"}, {"session_id": "s1", "user_id": "acme"}])
    async def test_nor_does_it_as_a_user(self, java2: Java, state: object) -> None:
        key, other = SessionKey("s1", "acme"), SessionKey("s1", "iɞ")
        written = java2.save(key, state=state)
        async with java2.ours() as states:
            assert await states.list_session_keys("iɞ") == set()
            assert await states.get_list(other, "memory_messages") == []
            await states.save(other, "x", {"n": 1})
            await states.delete(other)
            assert await states.list_session_keys("acme") == {key}
        assert java2.read(key) == written

    async def test_what_we_saved_over_all_that_java_had_is_still_not_ours_alone(self, java: Java) -> None:
        java.save(SessionKey("acme"))
        async with java.ours() as states:
            await states.save("acme", "agent_meta", {"n": 2})
            await states.save_list("acme", "memory_messages", [{"id": "p1"}])
        async with java.ours() as states:
            assert await states.list_session_keys() == {SessionKey("acme")}
            assert not await states.exists("iɞ")


class TestWhereWeMadeTheDirectory:
    @pytest.mark.parametrize("user", [False, True])
    @pytest.mark.parametrize("id", ["客服:7", "a:b", "alice@example.com"])
    async def test_a_session_that_java_saved_in_stays_for_java_when_the_name_is_used(
        self, java: Java, id: str, user: bool
    ) -> None:
        # 1.x has no users.
        user = user and java.layout == "2.x"
        key, newcomer = (SessionKey("s1", one) if user else SessionKey(one) for one in (id, encoded(id)))
        async with java.ours() as states:
            await states.save_list(key, "memory_messages", [{"n": 1}])
            place = java.root.joinpath(*javas_place(java.layout, key))
            (place / "memory_messages.jsonl").write_text('{"n":1}\n{"n":2}\n')
            (place / "memory_messages.hash").write_text("76dead55")
            # Nothing of Java's is left after this.
            await states.save_list(key, "memory_messages", [{"n": 3}])
            await states.save(newcomer, "last_seen", {"n": 4})
            assert await states.get_list(key, "memory_messages") == [{"n": 3}]
            assert await states.get_list(newcomer, "memory_messages") == []
            assert await states.get(newcomer, "last_seen") == {"n": 4}
        assert java.read(key)["memory_messages.jsonl"] == '{"n":3}\n'

    async def test_a_literal_id_gets_its_name_from_one_that_is_hardly_an_id(self, java: Java) -> None:
        async with java.ours() as states:
            await states.save("iɞ", "x", {"n": 1})
            await states.save("acme", "x", {"n": 2})
            assert await states.get("iɞ", "x") == {"n": 1}
        assert java.value(SessionKey("acme"), "x") == {"n": 2}


class TestWhereJavaTellsTheOwner:
    @pytest.mark.parametrize(
        ("key", "newcomer"),
        [
            (SessionKey("s1", "alice@example.com"), SessionKey("s1", encoded("alice@example.com"))),
            (SessionKey("sess 1"), SessionKey("c2VzcyAx")),
            (SessionKey("iɞ"), SessionKey("acme")),
            (SessionKey("acme"), SessionKey("iɞ")),
        ],
    )
    async def test_a_newcomer_goes_aside_and_java_keeps_its_directory(
        self, java2: Java, key: SessionKey, newcomer: SessionKey
    ) -> None:
        state = {"session_id": key.session_id, "user_id": key.user_id}
        written = java2.save(key, state=state)
        async with java2.ours() as states:
            assert await states.get(newcomer, "agent_state") is None
            await states.save(newcomer, "x", {"n": 1})
            assert java2.read(key) == written
            java2.save(key, state=state)
            # Also after we saved there something that does not tell it any longer.
            await states.save(key, "agent_state", {"n": 2})
        async with java2.ours() as states:
            assert await states.get(key, "agent_state") == java2.value(key, "agent_state") == {"n": 2}
            assert await states.get(newcomer, "agent_state") is None
            assert await states.get(newcomer, "x") == {"n": 1}
            assert await states.list_session_keys(key.user_id) >= {key}
            assert await states.list_session_keys(newcomer.user_id) >= {newcomer}
            await states.delete(newcomer)
            assert await states.get(key, "agent_state") == {"n": 2}


def saved_apart(java: Java, key: SessionKey, id: str) -> Path:
    """Save a state where an older leafward did that had not found the directory of Java's for an id."""
    place = java.root.joinpath(*(hashed(id) if one == encoded(id) else one for one in javas_place(java.layout, key)))
    place.mkdir(parents=True)
    (place / "agent_meta.json").write_text('{"n":"apart"}')
    (place / "agent_meta.ver").write_bytes(version_text(1, digest_of(b'{"n":"apart"}')))
    (place / "~ids").write_text(json.dumps([key.user_id, key.session_id]))
    return place


class TestAfterAnOlderLeafward:
    """It took every name that could be decoded for an encoding, and marked nothing."""

    @pytest.mark.parametrize("user", [None, "acme"])
    async def test_a_live_session_of_javas_stays_javas(self, java: Java, user: str | None) -> None:
        if java.layout == "1.x" and user is not None:
            user = None
        key = SessionKey("s1" if user else "acme", user)
        java.save(key)
        place = java.root.joinpath(*javas_place(java.layout, key))
        (place / "last_seen.json").write_text("{}")
        (place / "last_seen.ver").write_bytes(version_text(1, digest_of(b"{}")))
        meta = (place / "agent_meta.json").read_bytes()
        (place / "agent_meta.ver").write_bytes(version_text(1, digest_of(meta), found=True))
        async with java.ours() as states:
            assert await states.exists(key)
            assert await states.list_session_keys(user) == {key}
            await states.save(key, "agent_meta", {"n": 2})
            assert len(await states.get_list(key, "memory_messages")) == 1
        assert java.value(key, "agent_meta") == {"n": 2}
        assert java.read(key)["memory_messages.jsonl"] == LIST

    @pytest.mark.parametrize("id", ["a:b", "客"])
    @pytest.mark.parametrize("user", [False, True])
    async def test_a_session_that_it_split_is_javas_and_what_it_saved_apart_is_named_once(
        self, java: Java, id: str, user: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = SessionKey("s1", id) if user and java.layout == "2.x" else SessionKey(id)
        java.save(key)
        apart = saved_apart(java, key, id)
        async with java.ours() as states:
            for _ in range(2):
                assert await states.get(key, "agent_meta") == {"n": 1}
            [warning] = caplog.records
            assert f"session {key.session_id!r} is in " in warning.getMessage()
            assert f"{apart} holds states of it as well" in warning.getMessage()
            assert await states.list_session_keys(key.user_id) == {key}
            await states.save(key, "agent_meta", {"n": 2})
            assert java.value(key, "agent_meta") == {"n": 2}
            assert (apart / "agent_meta.json").read_text() == '{"n":"apart"}'
            for dry_run in (True, False):
                report = await migrate(java.root, InMemoryAgentStateStore(), dry_run=dry_run)
                [(left_out, reason)] = report.left_out
                assert left_out == str(apart)
                assert f"session {key.session_id!r} is also in" in reason
            # What is deleted does not come back from the other directory.
            await states.delete(key)
            assert not await states.exists(key)
            assert await states.list_session_keys(key.user_id) == set()
        assert not [*java.root.rglob("*.json*")]

    async def test_a_state_that_is_deleted_does_not_come_back_from_the_other_directory(self, java: Java) -> None:
        key = SessionKey("a:b")
        java.save(key)
        saved_apart(java, key, key.session_id)
        async with java.ours() as states:
            await states.delete(key, "agent_meta")
            await states.delete(key, "memory_messages")
            assert await states.get(key, "agent_meta") is None
            assert not await states.exists(key)

    async def test_a_split_session_stays_javas_while_java_writes_its_only_list(self, java: Java) -> None:
        key = SessionKey("a:b")
        java.save(key)
        saved_apart(java, key, key.session_id)
        place = java.root.joinpath(*javas_place(java.layout, key))
        (place / "agent_meta.json").unlink()
        async with java.ours() as states:
            (place / "memory_messages.jsonl").unlink()
            reading = asyncio.ensure_future(states.get_list(key, "memory_messages"))
            await states.save(key, "last_seen", {"at": 1})
            (place / "memory_messages.jsonl").write_text(LIST)
            (place / "memory_messages.hash").write_text("1f")
            assert await reading == [{"id": "m1"}]
        assert java.value(key, "last_seen") == {"at": 1}


class Drawn(NamedTuple):
    """An id, and the one that Java encodes to its name, or `None` where the name is promised to be read literally."""

    id: str
    found: str | None


def found_ids() -> st.SearchStrategy[str]:
    """Return ids of the kinds that are promised to be found where Java has them."""
    word = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
    scripts = (
        "\u4e00\u9fff",
        "\u3041\u3093",
        "\uac00\ud7a3",
        "\u0e01\u0e2e",
        "\u0627\u063a",
        "\u05d0\u05ea",
        "\u0905\u0939",
    )
    scripts = (*scripts, "\u0430\u044f", "\u03b1\u03c9", "\u1ea0\u1ef9", "\U0001f600\U0001f64f")
    letters = st.sampled_from(scripts).flatmap(
        lambda ends: st.text(
            st.characters(min_codepoint=ord(ends[0]), max_codepoint=ord(ends[1])), min_size=2, max_size=6
        )
    )
    kinds = [
        st.builds("{}{}{}".format, word, st.sampled_from(" :/@"), word),
        st.builds("{}x{}{}".format, word, st.sampled_from("#|+%"), word),
        st.builds("{}{}{}".format, word, st.sampled_from(",'&=;!?*$()[]{}<>^~\""), word),
        st.builds("{}.{}@{}.com".format, word, word, word),
        st.builds(
            "{}{}{}".format, letters, st.sampled_from(["", ":", " ", "-", "#"]), word | letters.map(lambda _: "7")
        ),
        st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF),
        st.builds("{} {} {}".format, word, st.sampled_from("–—…€№·①👍’"), word),
    ]
    # What is called like a number or a word is promised to be one.
    return st.one_of(kinds).filter(
        lambda id: not looks_literal(encoded(id)) and (is_separated(id) or not encoded(id).isalpha())
    )


def is_separated(id: str) -> bool:
    return re.fullmatch("[A-Za-z0-9 :/@._#|+%]+", id) is not None


def looks_literal(name: str) -> bool:
    return re.fullmatch("[0-9a-f-]+|[0-9A-F-]+", name) is not None


def ids() -> st.SearchStrategy[Drawn]:
    """Return ids that are found where Java has them, ids that are only literal, and their twins."""
    found = found_ids().flatmap(lambda id: st.sampled_from([Drawn(id, id), Drawn(encoded(id), id)]))
    digits = st.integers(0, 99999999).map(str) | st.integers(0, 2**32).map(lambda number: f"{number:x}")
    clear = st.uuids().map(str) | st.text("abc_.-", min_size=1, max_size=8).map("chat-1{}".format)
    literal = digits | clear | st.sampled_from([*UNLIKELY, "~acme", "iɞ", "~ids"])
    twins = literal.map(lambda id: decoded(id) or id).filter(lambda id: refusal(id) is None)
    listed = st.sampled_from(LIKELY).flatmap(lambda id: st.sampled_from([Drawn(id, id), Drawn(encoded(id), id)]))
    return found | listed | (literal | twins).map(lambda id: Drawn(id, None))


def with_twins(drawn: Drawn | None) -> list[str | None]:
    """Return an id with those that Java confuses it with."""
    if drawn is None:
        return [None]
    name = javas_name(drawn.id)
    return [one for one in dict.fromkeys([drawn.id, name, decoded(name) or name]) if refusal(one) is None]


Place = tuple[str, ...]


@dataclass
class Model:
    """What Java wrote, and what each of our ids is to find."""

    java: Java
    found: set[str]
    """Those of the ids that are promised to be found where Java has them."""
    files: dict[Place, dict[str, str]] = field(default_factory=dict[Place, dict[str, str]])
    keys: dict[Place, SessionKey] = field(default_factory=dict[Place, SessionKey])
    """Who Java wrote it for."""
    told: set[Place] = field(default_factory=set[Place])
    """Directories in which Java tells that."""
    ours: dict[Place | SessionKey, Any] = field(default_factory=dict[Place | SessionKey, Any])

    def java_saves(self, key: SessionKey, form: str) -> None:
        place = javas_place(self.java.layout, key)
        # 1.x has no users, and Java lets two ids meet.
        if (self.java.layout == "1.x" and key.user_id is not None) or self.keys.setdefault(place, key) != key:
            return
        ids = {"session_id": key.session_id, "user_id": key.user_id}
        state = {"lists": None, "state": ids, "state without ids": {"summary": ""}}[form]
        self.files[place] = self.java.save(key, state=state)
        if form == "state":
            self.told.add(place)

    def whose(self, key: SessionKey) -> Place | SessionKey:
        """Return the directory of Java's that one of our ids means, or the id itself if it has its own."""
        place = javas_place(self.java.layout, key)
        if place not in self.files or (self.java.layout == "1.x" and key.user_id is not None):
            return key
        if place in self.told:
            return place if key == self.keys[place] else key
        names = zip(place[::-1], (key.session_id, key.user_id), strict=False)
        is_meant = all(id in (None, name) or id in self.found for name, id in names)
        return place if is_meant else key

    def listed(self, pool: list[SessionKey], user: str | None) -> set[SessionKey]:
        found = {key for key in pool if key.user_id == user and key in self.ours}
        for key in (key for key in pool if key.user_id == user):
            place = self.whose(key)
            if isinstance(place, tuple):
                name = place[-1]
                shown = decoded(name) if decoded(name) in self.found else None
                found.add(key if place in self.told else SessionKey(shown or name, user))
        return found

    async def check(self, states: JsonFileAgentStateStore, pool: list[SessionKey]) -> None:
        for place, files in self.files.items():
            seen = self.java.read(self.keys[place])
            assert {file: seen.get(file) for file in files} == files, place
            assert self.java.value(self.keys[place], "ours") == self.ours.get(place), place
        for key in pool:
            whose = self.whose(key)
            assert await states.get(key, "ours") == self.ours.get(whose), key
            assert len(await states.get_list(key, "memory_messages")) == isinstance(whose, tuple), key
        for user in {key.user_id for key in pool}:
            assert await states.list_session_keys(user) == self.listed(pool, user), user


class TestEveryId:
    @given(
        st.sampled_from(["1.x", "2.x"]),
        st.lists(
            st.tuples(st.none() | ids(), ids(), st.sampled_from(["lists", "state", "state without ids"])),
            min_size=1,
            max_size=4,
        ),
        st.lists(st.tuples(st.none() | ids(), ids()), max_size=3),
        st.lists(st.sampled_from(["save", "delete", "list and save", "open", "java"]), min_size=1, max_size=6),
        st.randoms(use_true_random=False),
    )
    @settings(max_examples=80, deadline=None)
    def test_java_finds_what_it_wrote_and_its_ids_find_that_here(
        self,
        layout: str,
        javas: list[tuple[Drawn | None, Drawn, str]],
        others: list[tuple[Drawn | None, Drawn]],
        steps: list[str],
        random: Any,
    ) -> None:
        async def run(root: Path) -> None:
            used = [*((user, session) for user, session, _ in javas), *others]
            found = {one.found for pair in used for one in pair if one is not None and one.found is not None}
            model = Model(Java(root, layout), found)
            for user, session, form in javas:
                model.java_saves(SessionKey(session.id, None if user is None else user.id), form)
            pairs = {
                (one, other) for user, session in used for one in with_twins(user) for other in with_twins(session)
            }
            pool = [SessionKey(session or "", user) for user, session in sorted(pairs, key=repr)]
            states = model.java.ours()
            # An example that cannot be finished ends with an exception.
            try:
                for number, step in enumerate(steps):
                    if step == "open":
                        await states.close()
                        states = model.java.ours()
                    elif step == "java" and model.files:
                        # Again, after whatever we did.
                        model.java.save(model.keys[random.choice([*model.files])])
                    elif step == "list and save":
                        for key in await states.list_session_keys(random.choice(pool).user_id):
                            await states.save(key, "ours", {"n": number})
                            model.ours[model.whose(key)] = {"n": number}
                    else:
                        key = random.choice(pool)
                        whose = model.whose(key)
                        if step == "save":
                            await states.save(key, "ours", {"n": number})
                            model.ours[whose] = {"n": number}
                        else:
                            await states.delete(key)
                            model.ours.pop(whose, None)
                            if isinstance(whose, tuple):
                                del model.files[whose], model.keys[whose]
                    await model.check(states, pool)
            finally:
                await states.close()

        with TemporaryDirectory() as directory:
            asyncio.run(run(Path(directory, "states")))


async def test_what_2x_lists_of_1x_is_found_under_that_id(tmp_path: Path) -> None:
    for name in ("YTpi", "dS83", "plain"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "memory_messages.jsonl").write_text('{"n":1}\n')

    async with JsonFileAgentStateStore(tmp_path) as states:
        listed = await states.list_session_keys()
        assert {key.session_id for key in listed} == {"YTpi", "dS83", "plain"}
        for key in listed:
            assert await states.exists(key)
            assert await states.get_list(key, "memory_messages") == [{"n": 1}]
