"""A private server answers, survives its own death with its data, and knows nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.processes import is_running
from tests.servers.questions import AskMariaDB, AskPostgres, AskRedis, Questions
from tests.servers.redis import Redis
from tests.servers.server import Server, ServerFailed

pytestmark = pytest.mark.server


class PrivateServer:
    """What every private server does. Subclasses say which, and how it is asked."""

    kind: type[Server]
    ask: Questions
    durable: ClassVar[dict[str, str]]
    changed: tuple[str, str, str]
    nonsense: str

    async def test_words_survive_a_kill_and_an_orderly_restart(self) -> None:
        with self.kind(fast=True) as server:
            await self.ask.keep(server.url, "müde 猫 🐈")
            url, pid = server.url, server.pid

            server.kill()
            assert not is_running(pid)
            server.start()
            assert (server.url, server.pid == pid) == (url, False)
            assert await self.ask.kept(url) == ["müde 猫 🐈"]

            server.stop()
            server.start()
            assert await self.ask.kept(url) == ["müde 猫 🐈"]

    async def test_two_servers_do_not_meet(self) -> None:
        with self.kind(fast=True) as one, self.kind(fast=True) as other:
            await self.ask.keep(one.url, "one")
            await self.ask.keep(other.url, "other")

            assert await self.ask.kept(one.url) == ["one"]
            assert await self.ask.kept(other.url) == ["other"]
            with pytest.raises(self.ask.refusal):
                await self.ask.kept(one.url.replace(one.password, other.password))

    async def test_it_is_durable_unless_a_test_says_otherwise(self) -> None:
        name, line, value = self.changed
        with self.kind(fast=True) as server:
            assert {key: await self.ask.setting(server.url, key) for key in self.durable} == self.durable

            server.stop()
            server.settings.append(line)
            server.start()
            assert await self.ask.setting(server.url, name) == value

    def test_it_listens_on_the_loopback_interface_only(self) -> None:
        with self.kind(fast=True) as server:
            assert listening_addresses(server.port) == {"0100007F"}
            assert urlsplit(server.url).hostname == "127.0.0.1"

    def test_closing_leaves_no_process_and_no_file(self) -> None:
        with self.kind() as server:
            pid, directory = server.pid, server.directory

        assert not is_running(pid)
        assert not directory.exists()

    def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing(self) -> None:
        server = self.kind(fast=True, settings=[self.nonsense])

        with pytest.raises(ServerFailed, match=self.nonsense.split()[0]), server:
            pass

        assert not server.directory.exists()


class TestPostgres(PrivateServer):
    kind = Postgres
    ask = AskPostgres()
    durable: ClassVar = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200"}
    changed = ("synchronous_commit", "synchronous_commit = off", "off")
    nonsense = "no_such_setting = 1"

    def test_a_killed_one_leaves_no_shared_memory(self) -> None:
        with Postgres(fast=True) as server:
            number = (server.directory / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
            assert number in pieces_of_shared_memory()

            server.kill()

            assert number not in pieces_of_shared_memory()

    async def test_its_user_is_no_superuser(self) -> None:
        with Postgres(fast=True) as server:
            assert await self.ask.setting(server.url, "is_superuser") == "off"


class TestMariaDB(PrivateServer):
    kind = MariaDB
    ask = AskMariaDB()
    durable: ClassVar = {
        "innodb_flush_log_at_trx_commit": "1",
        "character_set_server": "utf8mb4",
        "max_connections": "300",
        "skip_networking": "0",
    }
    changed = ("innodb_flush_log_at_trx_commit", "innodb-flush-log-at-trx-commit = 2", "2")
    nonsense = "no-such-setting = 1"


class TestRedis(PrivateServer):
    kind = Redis
    ask = AskRedis()
    durable: ClassVar = {"appendonly": "yes", "appendfsync": "always"}
    changed = ("maxmemory-policy", "maxmemory-policy allkeys-lru", "allkeys-lru")
    nonsense = "no-such-setting 1"


def pieces_of_shared_memory() -> set[str]:
    """Return the numbers of all pieces of shared memory on this machine."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def listening_addresses(port: int) -> set[str]:
    """Return the addresses on which something listens at a port, as Linux writes them."""
    lines = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    ends = [fields[1].split(":") for fields in lines if fields[3] == "0A"]
    return {address for address, number in ends if int(number, 16) == port}
