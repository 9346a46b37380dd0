"""Texts between processes: senders here, and holders elsewhere that are killed; none is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leafward import LeaseBusy, open_store
from leafward.core.ids import new_id
from leafward.stores import Store
from leafward.testing.lease_messages import until
from tests.stores.both_servers import KINDS, drop_tables
from tests.stores.lease_child import PATIENCE, started
from tests.stores.redis_store import forget

TEXTS = int(os.environ.get("LEAFWARD_LEASE_TEXTS", "300"))
SENDERS = 4
HOLDERS = 3


class OnTwoProcesses:
    """A subclass gives the URL, and options to open it with."""

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {}

    @pytest.fixture
    async def store(self, url: str, options: dict[str, str]) -> AsyncGenerator[Store]:
        async with open_store(url, **options) as store:  # pyright: ignore[reportArgumentType]
            yield store

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Path:
        return tmp_path / "ledger"

    async def test_a_text_arrives_within_one_look(
        self, store: Store, url: str, ledger: Path, options: dict[str, str]
    ) -> None:
        async with started(url, ledger, **options) as child:
            assert not await store.leases.send("s", "alice", "too early", label="agent:a")
            await child("acquire 30")
            assert await store.leases.send("s", "alice", "stop", label="agent:a")
            assert await child("receive") == "1"
            assert await child("receive") == "0"
            assert await child("release") == "released"
            assert not await store.leases.send("s", "alice", "too late", label="agent:a")
        assert read(ledger) == ["stop"]

    async def test_none_is_lost_and_none_comes_twice_although_holders_are_killed(
        self, store: Store, url: str, ledger: Path, options: dict[str, str]
    ) -> None:
        sent: list[str] = []

        async def send(number: int) -> None:
            for n in range(TEXTS // SENDERS):
                text = f"{number} {n}"
                await until(lambda text=text: self.sent(store, text))
                sent.append(text)

        async def enough(holders: int) -> bool:
            return len(sent) >= (holders + 1) * (TEXTS // SENDERS) * SENDERS // HOLDERS

        sending = asyncio.gather(*(send(number) for number in range(SENDERS)))
        async with asyncio.timeout(PATIENCE + TEXTS / 50):
            for number in range(HOLDERS):
                async with started(url, ledger, **options) as child:
                    await child("acquire 1")
                    assert await child("receive_on") == "receiving"
                    if number == HOLDERS - 1:
                        await sending
                    await until(lambda number=number: enough(number))
                    # Between two calls: one that is killed inside may have taken what it cannot write down.
                    assert await child("stop") == "stopped"
                    if number == HOLDERS - 1:
                        assert await child("receive") != "lost"
                        await child("release")
                    else:
                        child.send_signal(signal.SIGKILL)

        received = read(ledger)
        assert [text for text, times in Counter(received).items() if times > 1] == []
        assert sorted(received) == sorted(sent)
        assert len(sent) == TEXTS // SENDERS * SENDERS
        for number in range(SENDERS):
            own = [text for text in received if text.startswith(f"{number} ")]
            assert own == [f"{number} {n}" for n in range(TEXTS // SENDERS)]

    async def sent(self, store: Store, text: str) -> bool:
        try:
            return await store.leases.send("s", "alice", text, label="agent:a")
        except LeaseBusy:
            return False


def read(ledger: Path) -> list[str]:
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


class TestOnSQLite(OnTwoProcesses):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/chat.db"


class TestOnFiles(OnTwoProcesses):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        tmp_path.chmod(0o700)
        return f"file:///{tmp_path}/chats"


class TestOnRedis(OnTwoProcesses):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url

    @pytest.fixture
    def options(self, redis_url: str) -> Iterator[dict[str, str]]:
        prefix = f"{new_id()}:"
        yield {"key_prefix": prefix}
        forget(redis_url, prefix)


@asynccontextmanager
async def _tables(kind: str, url: str) -> AsyncGenerator[dict[str, str]]:
    prefix = f"t{new_id()[-8:]}_"
    yield {"table_prefix": prefix}
    await drop_tables(KINDS[kind], url, prefix)


class TestOnPostgres(OnTwoProcesses):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.fixture
    async def options(self, url: str) -> AsyncGenerator[dict[str, str]]:
        async with _tables("postgres", url) as options:
            yield options


class TestOnMariaDB(OnTwoProcesses):
    @pytest.fixture
    def url(self, mysql_url: str) -> str:
        return mysql_url

    @pytest.fixture
    async def options(self, url: str) -> AsyncGenerator[dict[str, str]]:
        async with _tables("mysql", url) as options:
            yield options
