"""What a server is set to is found out: whether it takes writes, how much at once, and what survives a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from leafward import ConfigurationError, MessageTooLarge, Session, open_store, user
from leafward.testing.filled import fill, manage
from tests.servers.mariadb import MariaDB
from tests.servers.packages import program
from tests.servers.postgres import Postgres
from tests.servers.server import HOST, Server
from tests.stores.both_servers import Kind, OnPrivateServers, elsewhere, opened

READ_ONLY = {"postgres": "default_transaction_read_only = on", "mysql": "read_only = 1"}


def restart(server: Server, *settings: str) -> None:
    """Start a server anew, with these settings added."""
    server.stop()
    server.settings[:] = settings
    server.start()


class SetAnew(OnPrivateServers):
    @pytest.fixture(autouse=True)
    def as_it_was(self, private: Server) -> Iterator[None]:
        yield
        if private.settings:
            restart(private)


class TestAServerThatTakesNoWrites(SetAnew):
    async def test_is_refused_when_it_is_opened(self, kind: Kind, private: Server, url: str) -> None:
        async with opened(url) as store:
            await Session(store).append_message(user("hi"))
        restart(private, READ_ONLY[kind.name])
        with pytest.raises(ConfigurationError, match=r"takes no writes.*primary"):
            await open_store(url)

    async def test_from_some_moment_on_says_so_and_can_be_read(self, kind: Kind, private: Server, url: str) -> None:
        async with opened(url) as store:
            session = Session(store, "s")
            await session.append_message(user("before", id="before"))
            restart(private, READ_ONLY[kind.name])
            assert [one.text for one in await session.get_history()] == ["before"]

            for write in (
                lambda: session.append_message(user("during", id="during")),
                lambda: session.update_message(user("during", id="before")),
                lambda: Session(store, "other").append_message(user("during")),
            ):
                with pytest.raises(ConfigurationError, match="takes no writes"):
                    await write()
            assert [one.text for one in await session.get_history()] == ["before"]

            restart(private)
            await session.append_message(user("after", id="after"))
            assert [one.id for one in await session.get_history()] == ["before", "after"]


class Standby(Postgres):
    """A PostgreSQL that follows another and can only be read."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__(fast=True, password=primary.password)
        self._primary = primary

    def _prepare(self) -> None:
        source = f"postgresql://postgres:{quote(self.password)}@{HOST}:{self._primary.port}/postgres"
        self._run(
            program("pg_basebackup"),
            "--dbname",
            source,
            "--pgdata",
            str(self._data),
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        )

    def _finish(self) -> None:
        """Nothing is to be made: all comes from the primary."""


async def test_a_standby_of_postgresql_is_refused(private_postgres: Callable[..., Postgres]) -> None:
    with private_postgres() as primary:
        async with open_store(primary.url) as store:
            await Session(store).append_message(user("hi"))
        with Standby(primary) as standby, pytest.raises(ConfigurationError, match=r"takes no writes.*primary"):
            await open_store(standby.url)


async def test_a_mariadb_that_takes_too_little_at_once_is_refused(private_mariadb: Callable[..., MariaDB]) -> None:
    with private_mariadb(settings=["max_allowed_packet = 2M"]) as server:
        with pytest.raises(ConfigurationError, match="max_allowed_packet"):
            await open_store(server.url)
        async with open_store(server.url, max_message_bytes=1_000_000) as store:
            session = Session(store).with_context("notes")
            await session.append_message(user("x" * 990_000, id="large"))
            await session.append_messages([user("'" * 990_000), user('"' * 490_000)])
            with pytest.raises(MessageTooLarge):
                await session.append_message(user("x" * 1_000_000))
            assert [len(one.text) for one in await session.get_history()] == [990_000, 990_000, 490_000]


async def test_a_mariadb_that_leaves_words_out_of_its_index_is_refused(private_mariadb: Callable[..., MariaDB]) -> None:
    with private_mariadb(settings=["innodb_ft_min_token_size = 4"]) as server:
        with pytest.raises(ConfigurationError, match="innodb_ft_min_token_size to at most 3"):
            await open_store(server.url)
        restart(server, "innodb_ft_max_token_size = 71")
        with pytest.raises(ConfigurationError, match="innodb_ft_max_token_size to at least 72"):
            await open_store(server.url)

        # What a server does not ask of others, a store asks of its own connections.
        restart(server, "innodb_ft_min_token_size = 3", "innodb_ft_max_token_size = 72", "sql_mode = ''")
        async with opened(server.url) as store:
            session = Session(store)
            words = ["x", "ab", "c" * 69, "d" * 70, "e" * 71, "f" * 300]
            await session.append_messages([user(word, id=str(len(word))) for word in words])
            await store.settle()
            for word in words:
                assert [one.id for one in await session.search(word)] == [str(len(word))], word


class TestDurability(SetAnew):
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"postgres": [], "mysql": []}, "power"),
            ({"postgres": ["fsync = off"], "mysql": ["innodb_flush_log_at_trx_commit = 2"]}, "process"),
            ({"postgres": ["synchronous_commit = off"], "mysql": ["innodb_flush_log_at_trx_commit = 0"]}, "none"),
            ({"postgres": ["full_page_writes = off"], "mysql": ["innodb_doublewrite = 0"]}, "process"),
            ({"postgres": ["synchronous_commit = local"], "mysql": ["innodb_flush_log_at_trx_commit = 3"]}, "power"),
        ],
    )
    async def test_is_told_as_the_server_is_set(
        self, kind: Kind, private: Server, url: str, settings: dict[str, list[str]], expected: str
    ) -> None:
        restart(private, *settings[kind.name])
        for asked in ("power", "process"):
            async with opened(url, durability=asked) as store:
                assert store.durability() == expected


class TestAUserWithFewRights(SetAnew):
    """What the guide tells to grant is enough, and what is missing is told."""

    @pytest.fixture
    async def narrow(self, kind: Kind, private: Server, url: str) -> str:
        """The URL of a user who may do nothing yet."""
        await grant(kind, private, CREATE_USER[kind.name].format(private.password))
        return elsewhere(url, user=f"narrow:{private.password}")

    async def test_can_do_all_with_what_the_guide_grants(
        self, kind: Kind, private: Server, url: str, narrow: str
    ) -> None:
        with pytest.raises(ConfigurationError):
            await open_store(narrow, table_prefix="narrow_")
        await grant(kind, private, *GRANT[kind.name])
        async with opened(narrow, table_prefix="narrow_") as store:
            await fill(manage(store).get_session("s"))
        await grant(kind, private, *REVOKE[kind.name])

        async with opened(narrow, table_prefix="narrow_") as store:
            manager = manage(store)
            await fill(manager.get_session("another"))
            await manager.fork("s", "m1", "copy")
            await manager.delete("s")
            assert (await manager.erase("another")).erased
            await store.settle()
        with pytest.raises(ConfigurationError, match="may not do this"):
            await open_store(narrow, table_prefix="more_")


CREATE_USER = {
    "postgres": "CREATE ROLE narrow LOGIN PASSWORD '{}'",
    "mysql": "CREATE USER narrow@'%' IDENTIFIED BY '{}'",
}
GRANT = {
    "postgres": ["GRANT CREATE, USAGE ON SCHEMA public TO narrow"],
    "mysql": ["GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX ON leafward.* TO narrow@'%'"],
}
REVOKE = {
    "postgres": ["REVOKE CREATE ON SCHEMA public FROM narrow"],
    "mysql": ["REVOKE CREATE, INDEX ON leafward.* FROM narrow@'%'"],
}


async def grant(kind: Kind, server: Server, *statements: str) -> None:
    """Run statements as the administrator."""
    if kind.name == "postgres":
        await kind.ask(elsewhere(server.url, user=f"postgres:{server.password}"), *statements)
        return
    # MariaDB's administrator is whoever runs the server; what it is told, it does when it starts.
    (server.directory / "init.sql").write_text("".join(f"{one};\n" for one in statements))
    restart(server)
