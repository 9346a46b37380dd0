"""An exported session goes anywhere, and what is no exported session goes nowhere."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import MessageTooLarge, SessionManager, open_store, user
from leafward.core.archive import Archive
from leafward.stores import Store
from leafward.testing.filled import fill, find_fact, manage, picture
from leafward.testing.ids import REFUSED_IDS


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db") as store:
        yield store


async def export_filled(store: Store) -> dict[str, Any]:
    manager = manage(store)
    await manager.create("chat", session_id="s", parent_session_id="before", model="a-model", source="web")
    await fill(manager.get_session("s"))
    await manager.add_usage("s", 10, 20, 0.125, model="a-model", usage_id="call 1")
    return await manager.export_session("s")


async def refusal(manager: SessionManager, data: Any) -> str:
    """Return how an import is refused; it must leave nothing behind."""
    before = await manager.list(limit=None)
    with pytest.raises(ValueError) as refused:
        await manager.import_session(data, session_id="new")
    assert await manager.list(limit=None) == before
    assert await manager.search("walnut") == []
    return str(refused.value)


# ── from store to store ──────────────────────────────────────────────────────


@pytest.mark.parametrize(("first", "second"), [("memory://", "sqlite"), ("sqlite", "memory://")])
async def test_a_session_moves_between_backends(tmp_path: Path, first: str, second: str) -> None:
    urls = [f"sqlite:///{tmp_path}/chat.db" if url == "sqlite" else url for url in (first, second)]
    async with open_store(urls[0]) as source, open_store(urls[1]) as target:
        exported = json.loads(json.dumps(await export_filled(source)))
        await manage(target).get_session("other").append_context_block("house", "Quiet after ten.")

        made = await manage(target).import_session(exported)

        old = await manage(source).get("s")
        assert old is not None
        assert made.updated_at > old.updated_at
        assert {**vars_of(made), "updated_at": None} == {**vars_of(old), "updated_at": None}
        ours, theirs = manage(target).get_session("s"), manage(source).get_session("s")
        assert await picture(ours) == await picture(theirs)
        assert await ours.freeze_system_prompt() == await theirs.freeze_system_prompt()
        assert not await ours.is_prompt_stale()
        assert "walnut tree" in await find_fact(ours, "tree")
        assert (await manage(target).search("walnut"))[0].session_id == "s"


def vars_of(info: object) -> dict[str, Any]:
    return {name: getattr(info, name) for name in type(info).__slots__}  # type: ignore[attr-defined]


async def test_an_export_says_what_it_is(store: Store) -> None:
    exported = await export_filled(store)

    assert (exported["format"], exported["version"]) == ("leafward.session", 2)
    assert [one["message"]["id"] for one in exported["messages"]][-3:] == ["x0", "x1", "root 2"]
    assert {one["message"]["id"]: one["parent"] for one in exported["messages"]}["x0"] == "m3"
    assert exported["leaf"] == "m7"
    assert exported["labels"] == {"m2": "the second", "x1": "an aside"}
    assert [(one["summary"], one["from"], one["to"]) for one in exported["compactions"]] == [
        ("inner summary", "m1", "m2"),
        ("outer summary", "m0", "m3"),
    ]
    assert exported["skills"] == [["recipes", "tea"]]
    assert exported["notices"] == [{"message_id": "loading", "call_id": "c1", "notice": "[skill unloaded: tea]"}]
    assert "Quiet" not in json.dumps(exported["context"])
    assert exported["session"]["inputTokens"] == 10
    assert [(one["message"], one["name"], one["value"]) for one in exported["states"]] == [
        ("x1", "aside", {"deep": ["🦊", None]}),
        (None, "walnuts", {"cracked": 0}),
        ("m5", "walnuts", {"cracked": 6}),
        ("x1", "walnuts", None),
    ]
    assert [(one["id"], one["model"], one["cost"]) for one in exported["usages"]] == [("call 1", "a-model", 0.125)]


async def test_the_format_page_names_every_key_of_an_export(store: Store) -> None:
    page = (Path(__file__).parents[2] / "docs/formats/export.md").read_text(encoding="utf-8")
    exported = await export_filled(store)

    missing = [key for key in exported if f"`{key}`" not in page]
    for name in ("session", "messages", "compactions", "context", "notices", "prompt", "states", "usages"):
        section = page.partition(f"**`{name}`**")[2].partition("\n**`")[0]
        sample = exported[name][0] if isinstance(exported[name], list) else exported[name]
        missing += [f"{name}.{key}" for key in sample if f"`{key}`" not in section]

    assert missing == []


async def test_an_export_is_as_of_one_moment(store: Store) -> None:
    exported = await export_filled(store)
    before = copy.deepcopy(exported)

    await manage(store).append("s", user("later"))
    await manage(store).import_session(exported, session_id="new")

    assert exported == before


async def test_summaries_that_cross_come_back_crossing(store: Store) -> None:
    manager = SessionManager(store)
    session = manager.get_session("s")
    await session.append_messages([user(f"walnut {n}", id=f"m{n}") for n in range(8)])
    await session.add_compaction("first", "m1", "m4")
    exported = await manager.export_session("s")
    crossing = {**exported["compactions"][0], "id": "second", "summary": "second", "from": "m3", "to": "m6"}
    exported["compactions"].append(crossing)

    made = await manager.import_session(exported, session_id="new")

    again = await manager.export_session("new")
    assert [message.text for message in await manager.get_history("new")] == ["walnut 0", "first", "second", "walnut 7"]
    assert again["compactions"] == exported["compactions"]
    fork = await manager.fork(made.id, "m7", "fork")
    assert await manager.get_history(fork.id) == await manager.get_history("new")


async def test_siblings_come_back_in_their_order(store: Store) -> None:
    manager = SessionManager(store)
    session = manager.get_session("s")
    await session.append_message(user("root", id="root"))
    for name in ("c", "a", "b"):
        await session.append_message(user(name, id=name), parent_id="root")
        await session.append_message(user(name, id=f"{name}{name}"), parent_id=None)

    # Where the first child was deleted, a later one takes its lane and stands before those that are older.
    await session.append_messages([user("first", id="first")], parent_id="c")
    await session.append_message(user("second", id="second"), parent_id="c")
    await session.delete_messages(["first"])
    await session.append_message(user("third", id="third"), parent_id="c")

    await manager.import_session(await manager.export_session("s"), session_id="new")

    assert [message.id for message in await session.get_branches("c")] == ["second", "third"]
    for parent in ("root", "c", None):
        assert await manager.get_session("new").get_branches(parent) == await session.get_branches(parent)


# ── what is no exported session ──────────────────────────────────────────────


@pytest.mark.parametrize("data", [None, 7, "text", [], {}, {"format": "other"}, {"messages": []}])
async def test_something_else_is_not_an_exported_session(store: Store, data: Any) -> None:
    assert "not an exported session" in await refusal(SessionManager(store), data)


@pytest.mark.parametrize("version", [0, 3, None, "1"])
async def test_an_export_of_another_version_is_refused_by_number(store: Store, version: object) -> None:
    data = {**await _exported(), "version": version}

    assert repr(version) in await refusal(SessionManager(store), data)


Damage = Callable[[dict[str, Any]], object]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "no messages": (lambda data: data.pop("messages"), "messages"),
    "no session": (lambda data: data.pop("session"), "session"),
    "messages that are no list": (lambda data: data.update(messages={}), "messages must be a list"),
    "a message twice": (lambda data: data["messages"].append(data["messages"][0]), "'m0'"),
    "a parent that comes later": (lambda data: data["messages"].reverse(), "parent"),
    "a parent that is missing": (lambda data: data["messages"][0].update(parent="gone"), "'gone'"),
    "a message below itself": (lambda data: data["messages"][0].update(parent="m0"), "'m0'"),
    "a message with a summary's id": (
        lambda data: data["messages"][-1]["message"].update(id="compaction_x"),
        "compaction_x",
    ),
    "a message without role": (lambda data: data["messages"][0]["message"].pop("role"), "role"),
    "a message with a refused id": (lambda data: data["messages"][-1]["message"].update(id=""), "id"),
    "tokens below zero": (lambda data: data["messages"][0].update(tokens=-1), "-1"),
    "tokens beyond any": (lambda data: data["messages"][0].update(tokens=2**80), str(2**80)),
    "a leaf that is missing": (lambda data: data.update(leaf="gone"), "'gone'"),
    "a label on nothing": (lambda data: data["labels"].update(gone="x"), "'gone'"),
    "a label that is no text": (lambda data: data["labels"].update(m0=1), "labels['m0']"),
    "an empty label": (lambda data: data["labels"].update(m0=""), "labels['m0']"),
    "a summary from nowhere": (lambda data: data["compactions"][0].update({"from": "gone"}), "'gone'"),
    "a summary that ends before it begins": (
        lambda data: data["compactions"][0].update({"from": "m5", "to": "m1"}),
        "m5",
    ),
    "a summary across branches": (lambda data: data["compactions"][0].update({"from": "x0", "to": "m7"}), "x0"),
    "a summary twice": (lambda data: data["compactions"].append(data["compactions"][0]), "summary"),
    "a blank summary": (lambda data: data["compactions"][0].update(summary=" "), "summary"),
    "a summary's refused id": (lambda data: data["compactions"][0].update(id=""), "id"),
    "a summary of no time": (lambda data: data["compactions"][0].update(createdAt="soon"), "soon"),
    "an entry twice": (lambda data: data["context"].append(data["context"][0]), "context"),
    "an entry without label": (lambda data: data["context"][0].pop("label"), "label"),
    "a skill that is no pair": (lambda data: data["skills"].append(["one"]), "skill"),
    "a skill of three": (lambda data: data["skills"].append(["one", "two", "three"]), "skill"),
    "skills twice": (lambda data: data["skills"].append(data["skills"][0]), "skill"),
    "a notice on nothing": (lambda data: data["notices"][0].update(message_id="gone"), "'gone'"),
    "notices twice": (lambda data: data["notices"].append(data["notices"][0]), "notice"),
    "a state on nothing": (lambda data: data["states"][0].update(message="gone"), "'gone'"),
    "a state that is no object": (lambda data: data["states"][0].update(value=[]), "states[0].value"),
    "a state twice": (lambda data: data["states"].append(data["states"][0]), "a state of a message"),
    "a state with a refused name": (lambda data: data["states"][0].update(name=""), "states[0].name"),
    "an open turn": (lambda data: data["states"][0].update(name="leafward.turn"), "states[0].name"),
    "usage twice": (lambda data: data["usages"].append(data["usages"][0]), "the id of a usage"),
    "usage with a refused id": (lambda data: data["usages"][0].update(id=" "), "usages[0].id"),
    "usage below zero": (lambda data: data["usages"][0].update(inputTokens=-1), "usages[0].inputTokens"),
    "usage at no time": (lambda data: data["usages"][0].update(createdAt="soon"), "usages[0].createdAt"),
    "a prompt that is text": (lambda data: data.update(prompt="text"), "prompt"),
    "a name that is none": (lambda data: data["session"].update(name=None), "name"),
    "a blank name": (lambda data: data["session"].update(name=" "), "name"),
    "a refused id": (lambda data: data["session"].update(id=".."), "id"),
    "a parent that is refused": (lambda data: data["session"].update(parentSessionId=""), "id"),
    "a cost that is text": (
        lambda data: data["session"].update(estimatedCost="much"),
        "session.estimatedCost must be a number",
    ),
    "an infinite cost": (lambda data: data["session"].update(estimatedCost=float("inf")), "inf"),
    "a cost that is no number": (lambda data: data["session"].update(estimatedCost=float("nan")), "nan"),
    "a time without zone": (lambda data: data["session"].update(createdAt="2026-01-01T00:00:00"), "2026"),
    "a time that is a number": (lambda data: data["session"].update(createdAt=5), "session.createdAt must be a string"),
}


async def _exported() -> dict[str, Any]:
    async with open_store("memory://") as store:
        return json.loads(json.dumps(await export_filled(store)))


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_export_is_refused_by_what_is_wrong(store: Store, damage: str) -> None:
    data = await _exported()
    spoil, named = DAMAGES[damage]
    spoil(data)

    assert named in await refusal(SessionManager(store), data)


@pytest.mark.parametrize("refused", REFUSED_IDS, ids=range(len(REFUSED_IDS)))
async def test_an_import_under_a_refused_id_is_refused(store: Store, refused: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        await SessionManager(store).import_session(await _exported(), session_id=refused)

    assert await SessionManager(store).list() == []


async def test_a_message_too_large_for_the_store_is_not_imported(tmp_path: Path) -> None:
    data = await _exported()

    async with open_store("memory://", max_message_bytes=500) as small:
        with pytest.raises(MessageTooLarge):
            await SessionManager(small).import_session(data)
        assert await SessionManager(small).list() == []


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the way to each value of a JSON document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


ODD = [None, True, 0, -1, 2**70, 1.5, float("nan"), "", " ", "odd", "\ud800", "\x00", [], [[]], {}, {"a": 1}]


@settings(max_examples=60)
@given(data=st.data())
async def test_whatever_is_changed_in_an_export_is_imported_whole_or_refused(data: st.DataObject) -> None:
    async with open_store("memory://") as store:
        exported = await export_filled(store)
        path = data.draw(st.sampled_from(sorted(places(exported), key=repr)))
        parent = exported
        for key in path[:-1]:
            parent = parent[key]
        if data.draw(st.booleans()):
            parent[path[-1]] = data.draw(st.sampled_from(ODD))
        else:
            del parent[path[-1]]
        manager = manage(store)

        try:
            made = await manager.import_session(exported, session_id="new")
        except ValueError:
            assert await manager.get("new") is None
            assert {found.session_id for found in await manager.search("walnut", limit=99)} == {"s"}
        else:
            assert await manager.get("new") == made
            await picture(manager.get_session("new"))
            json.dumps(await manager.export_session("new"), allow_nan=False).encode()


async def test_an_archive_is_the_same_after_json() -> None:
    data = await _exported()

    assert Archive.from_json(data).to_json() == data
