"""The types a user sees are those of the async classes, without `await`."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from leafward import portal
from leafward.portal.mirror import is_handle
from leafward.portal.mirrored import MIRRORED, PREFIX
from tools.blocking_stub import STUB, StubWriter

SAMPLE = """
from typing import assert_type

from leafward import Message, ReActAgent, SearchResult, user
from leafward.engine import AgentEvent, ChatModel
from leafward.portal import BlockingIterator, BlockingReActAgent, BlockingSession, BlockingStore, blocking
from leafward.sessions import Change

def script(model: ChatModel) -> None:
    with blocking("sqlite:///chat.db") as store, store.agent(ReActAgent("helper", model)) as agent:
        assert_type(agent, BlockingReActAgent)
        assert_type(agent.call("hi"), Message)
        assert_type(agent.stream("hi"), BlockingIterator[AgentEvent])
        assert_type(agent.session("alice", "s1"), BlockingSession)
        assert_type(agent.load_if_exists(store, "s1"), bool)


with blocking("sqlite:///chat.db", durability="process") as store:
    assert_type(store, BlockingStore)
    session = store.session("chat-1", user_id="alice")
    assert_type(session, BlockingSession)
    assert_type(store.Session(store, "chat-1"), BlockingSession)
    assert_type(session.append_message(user("hi")), Message)
    assert_type(session.get_history(), list[Message])
    assert_type(session.search("hi", limit=3), list[SearchResult])
    assert_type(session.iter_history(), BlockingIterator[Message])
    for change in session.subscribe():
        assert_type(change, Change)
    with session.lease(wait=5) as leased:
        assert_type(leased, BlockingSession)
    assert_type(session.get_tip("m1"), Message)
    assert_type(store.states.store, BlockingStore)
    store.backup("copy.db")
"""
MISTAKES = """
    session.get_history(leaf="x")
    session.no_such_call()
    session.append_message(3)
"""
BY_FIELD = {"Tool"}
"""Classes whose methods are plain, and which keep something to await in a field."""


def test_the_stub_is_what_the_async_classes_say() -> None:
    assert STUB.read_text(encoding="utf-8") == StubWriter().text(), (
        "the async classes changed: run `python tools/blocking_stub.py --write`"
    )


@pytest.mark.parametrize("home", ["leafward.sessions", "leafward.stores"])
def test_every_public_class_that_is_awaited_has_a_mirror(home: str) -> None:
    # The store is where the mirrors begin, and an opening is awaited by `blocking` itself.
    # Providers are called by sessions and tables by `TableLeases`, which a store offers as its `Leases`.
    # Stores of states of their own are opened without one; those of a store are its `StateStore`.
    elsewhere = {"Store", "SupportsBackup", "Opening", "LeaseTable", "TableLeases", "VersionedStateStore"}

    module = import_module(home)
    handles = [
        name
        for name in module.__all__
        if inspect.isclass(found := getattr(module, name))
        and (is_handle(found) or name in BY_FIELD)
        and not name.endswith("Provider")
        and not name.endswith(("AgentStateStore", "Session"))
    ]

    assert [name for name in handles if name not in MIRRORED and name not in elsewhere] == [], (
        "add a line to MIRRORED in leafward/portal/mirrored.py"
    )


def test_the_room_exports_a_class_for_every_mirror() -> None:
    exported = {name: getattr(portal, name) for name in portal.__all__}

    assert {PREFIX + name for name in MIRRORED} <= exported.keys()
    assert all(inspect.getdoc(item) for item in exported.values())
    assert exported.keys() <= set(dir(portal))
    with pytest.raises(AttributeError, match="BlockingNothing"):
        _ = portal.BlockingNothing  # pyright: ignore[reportAttributeAccessIssue]


def test_a_type_checker_sees_plain_results_and_finds_mistakes(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE + MISTAKES, encoding="utf-8")
    source = str(STUB.parent.parent.parent)
    settings = {"include": ["sample.py"], "extraPaths": [source], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checker = str(Path(sys.executable).with_name("basedpyright"))

    done = subprocess.run(
        [checker, "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    found = json.loads(done.stdout)["generalDiagnostics"]
    first = SAMPLE.count("\n") + 1
    errors = sorted((one["range"]["start"]["line"] - first + 1, one["rule"]) for one in found)
    assert errors == [(1, "reportCallIssue"), (2, "reportAttributeAccessIssue"), (3, "reportArgumentType")], found
