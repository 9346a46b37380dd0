"""The backend of examples/third_party_store keeps every promise, and is found by its URL once it is installed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from leafward import OutcomeUnknown, Session, StoreError, user
from leafward.stores import AgentStateStore, Store
from leafward.testing.durable import Reopen
from leafward.testing.our_states import OurStateContract
from tests.stores.every_contract import EveryContract

PACKAGE = Path(__file__).parent.parent.parent / "examples" / "third_party_store"
MODULE = PACKAGE / "leafward_bucket.py"


def load() -> ModuleType:
    spec = spec_from_file_location("leafward_bucket", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bucket = load()


class TestBucket(EveryContract, OurStateContract):
    """In a bucket in memory, which compares versions as the real ones do."""

    @pytest.fixture
    def objects(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    async def store(self, objects: MemoryStore) -> AsyncGenerator[Store]:
        async with await bucket.open_bucket("s3://chats", client=objects) as store:
            yield store

    @pytest.fixture
    def states(self, store: Store) -> AgentStateStore:
        return store.states

    @pytest.fixture
    async def reopen(self, objects: MemoryStore) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                return await opened.enter_async_context(await bucket.open_bucket("s3://chats", client=objects))

            yield reopen


async def test_states_are_not_to_be_had_once_the_store_is_closed() -> None:
    store = await bucket.open_bucket("s3://chats", client=MemoryStore())
    await store.states.save("s", "a", {"n": 1})
    await store.close()
    for call in (store.states.get("s", "a"), store.states.save("s", "a", {}), store.states.list_session_keys()):
        with pytest.raises(StoreError, match="is closed"):
            await call


def test_it_has_150_lines() -> None:
    assert len(MODULE.read_text(encoding="utf-8").splitlines()) <= 150


async def test_a_put_whose_reply_is_lost_is_settled_by_repeating_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    put, lost = obstore.put_async, [True]

    async def lose_the_reply(*args: Any, **options: Any) -> Any:
        done = await put(*args, **options)
        if lost:
            lost.clear()
            raise GenericError("the connection was cut")
        return done

    monkeypatch.setattr(obstore, "put_async", lose_the_reply)
    async with await bucket.open_bucket("s3://chats", client=MemoryStore()) as store:
        session = Session(store, "s")
        with pytest.raises(OutcomeUnknown):
            await session.append_message(user("once", id="1"))
        await session.append_message(user("once", id="1"))

        assert [message.text for message in await session.get_history()] == ["once"]


@pytest.fixture
def s3() -> Generator[dict[str, str]]:
    """The variables that lead to an S3 server of this test's own, with a bucket in it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": "us-east-1"}
    client: Any = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        region_name=keys["AWS_REGION"],
    )
    client.create_bucket(Bucket="chats")
    client.close()
    yield keys | {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}
    server.stop()


def install(folder: Path) -> None:
    """Put into a folder what an installer makes of the package: its module, and its entry points."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder.mkdir()
    (folder / MODULE.name).write_text(MODULE.read_text(encoding="utf-8"), encoding="utf-8")
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    name = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(name, encoding="utf-8")
    groups = [
        f"[{group}]\n" + "\n".join(f"{scheme} = {opener}" for scheme, opener in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


PROGRAM = """
import asyncio, sys
from leafward import Session, open_store, user

async def main(url: str, name: str) -> None:
    async with open_store(url) as store:
        async with store.leases.acquire("chat") as lease:
            session = Session(store, "chat").with_lease(lease)
            await session.append_message(user(f"from {name}"))
            print([message.text for message in await session.get_history()])

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_meet_in_a_bucket_by_its_url(tmp_path: Path, s3: dict[str, str]) -> None:
    install(tmp_path / "site")
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))

    def run(url: str, name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, url, name]
        environment = kept | s3 | {"PYTHONPATH": path}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    for name, seen in (("one", ["from one"]), ("two", ["from one", "from two"])):
        done = run("s3://chats/mine", name)
        assert done.stdout.strip() == str(seen), done.stderr

    missing = run("s3://no-such-bucket/mine", "one")
    assert "StoreError: s3://no-such-bucket/mine could not be read" in missing.stderr
