"""What a Redis must be like to be trusted with sessions, and what is said when it is not."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis as blocking_redis
from redis.asyncio import Redis as Client
from redis.asyncio import RedisCluster as ClusterClient
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from leafward import ConfigurationError, Session, StorageFull, StoreError, open_store, user
from leafward.core.ids import Owner, new_id
from leafward.stores.redis import checking
from leafward.stores.redis.urls import read_url
from tests.servers.redis import Redis
from tests.stores.redis_store import command, forget, keys

PrivateRedis = Callable[..., Redis]
SECRET = "hunter2-secret"
_OWNER = Owner("default", None)


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    prefix = f"{new_id()}:"
    yield prefix
    forget(redis_url, prefix)


async def _refusal(url: str) -> str:
    with pytest.raises((ConfigurationError, StoreError)) as caught:
        await open_store(url)
    error: BaseException | None = caught.value
    text = str(error)
    assert "\n" not in text
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__
    assert isinstance(caught.value, ConfigurationError) or "cannot be reached" in text or "loading" in text
    return text


class TestDurability:
    async def test_an_append_only_file_that_is_always_synced_survives_a_power_cut(self, redis_url: str) -> None:
        async with open_store(redis_url) as store:
            assert store.durability() == "power"
            assert store.distributed

    @pytest.mark.parametrize("setting", ["appendfsync everysec", "no-appendfsync-on-rewrite yes"])
    async def test_one_that_is_not_always_synced_survives_the_process(
        self, private_redis: PrivateRedis, setting: str
    ) -> None:
        with private_redis(settings=[setting]) as server:
            async with open_store(server.url) as store:
                assert store.durability() == "process"

    async def test_none_is_warned_of_once(self, private_redis: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
        with private_redis(settings=["appendonly no"]) as server:
            async with open_store(server.url) as store:
                assert store.durability() == "none"
                await Session(store, "s").append_message(user("text"))

        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "append-only" in warnings[0]

    async def test_what_cannot_be_found_out_counts_as_the_lesser(self, private_redis: PrivateRedis) -> None:
        with private_redis(settings=[f"user bob on >{SECRET} ~* +@all -config"]) as server:
            async with open_store(f"redis://bob:{SECRET}@127.0.0.1:{server.port}/0") as store:
                assert store.durability() == "process"

    async def test_a_cluster_is_as_durable_as_its_least_durable_node(self, redis_cluster_url: str) -> None:
        async with open_store(redis_cluster_url) as store:
            assert store.durability() == "power"


class TestRefused:
    async def test_a_wrong_password(self, redis_url: str) -> None:
        host, port = read_url(redis_url).hosts[0]

        assert "password" in await _refusal(f"redis://:{SECRET}@{host}:{port}/0")
        assert "password" in await _refusal(f"redis://{host}:{port}/0")

    async def test_a_database_that_is_not_there(self, redis_url: str) -> None:
        assert "database" in await _refusal(redis_url.removesuffix("/0") + "/9999")

    async def test_a_server_that_is_not_there(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            for url in (
                f"redis://:{SECRET}@127.0.0.1:{port}/0",
                f"redis+cluster://:{SECRET}@127.0.0.1:{port}",
                f"redis+sentinel://:{SECRET}@127.0.0.1:{port}/mymaster",
                f"redis://:{SECRET}@host.invalid/0",
            ):
                assert "cannot be reached" in await _refusal(url)

    async def test_a_server_that_throws_data_away(self, private_redis: PrivateRedis) -> None:
        with private_redis(settings=["maxmemory 64mb", "maxmemory-policy allkeys-lru"]) as server:
            assert "noeviction" in await _refusal(server.url)

    async def test_a_replica(self, private_redis: PrivateRedis) -> None:
        with private_redis() as master:
            settings = [f"replicaof 127.0.0.1 {master.port}"]
            with private_redis(settings=settings, password=master.password) as replica:
                assert "replica" in await _refusal(replica.url)

    async def test_a_cluster_by_the_wrong_name_and_the_reverse(self, redis_cluster_url: str, redis_url: str) -> None:
        cluster, single = read_url(redis_cluster_url), read_url(redis_url)
        node, alone = cluster.hosts[0][1], single.hosts[0][1]

        assert "redis+cluster://" in await _refusal(f"redis://:{cluster.password}@127.0.0.1:{node}/0")
        assert "no cluster" in await _refusal(f"redis+cluster://:{single.password}@127.0.0.1:{alone}")

    async def test_tls_where_there_is_none(self, redis_url: str) -> None:
        assert "write redis://" in await _refusal(redis_url.replace("redis://", "rediss://"))

    async def test_a_server_that_is_still_loading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checking, "LOADING_S", 0.3)
        async with _always_says(b"-LOADING Redis is loading the dataset in memory\r\n") as port:
            assert "loading" in await _refusal(f"redis://127.0.0.1:{port}/0")

    @pytest.mark.parametrize(
        "url",
        [
            f"redis://:{SECRET}@host:port/0",
            f"redis://:{SECRET}@host/0?ssl_cert_reqs=none",
            f"redis://:{SECRET}@host/zero",
            f"redis://:{SECRET}@one,two/0",
            f"redis+cluster://:{SECRET}@one,two/3",
            f"redis+sentinel://:{SECRET}@one,two",
            f"redis://:{SECRET}#@host",
            f"redis://host:99999999/{SECRET}?",
        ],
    )
    async def test_what_is_no_url(self, url: str) -> None:
        assert "write" in await _refusal(url) or "number" in await _refusal(url)

    @pytest.mark.parametrize("prefix", ["{x}:", "a{", "}", "a\nb", 7])
    async def test_what_is_no_prefix(self, redis_url: str, prefix: str) -> None:
        with pytest.raises(ConfigurationError, match="prefix"):
            await open_store(redis_url, key_prefix=prefix)


class TestUrls:
    def test_a_password_may_hold_anything_escaped_and_a_slash_as_it_is(self) -> None:
        assert read_url("redis://bob:a%40b%2Fc%3A/d@host:7/3")[:6] == (
            *("single", [("host", 7)], "bob", "a@b/c:/d", 3, ""),
        )

    def test_ports_and_hosts_have_defaults(self) -> None:
        assert read_url("redis://").hosts == [("localhost", 6379)]
        assert read_url("rediss://[::1]/2")[:2] == ("single", [("::1", 6379)])
        assert read_url("redis+cluster://a,b:1").hosts == [("a", 6379), ("b", 1)]
        assert read_url("redis+sentinel://a,b:1/my%20master")[1:6] == (
            *([("a", 26379), ("b", 1)], None, None, 0, "my master"),
        )

    def test_a_password_is_not_in_what_is_said_of_it(self) -> None:
        address = read_url(f"redis://bob:{SECRET}@host/3")

        assert SECRET not in address.where
        assert SECRET not in repr(address)


class TestAGivenClient:
    @pytest.mark.parametrize("decode", [False, True])
    @pytest.mark.parametrize("protocol", [2, 3])
    async def test_is_used_and_stays_open(self, redis_url: str, prefix: str, decode: bool, protocol: int) -> None:
        async with Client.from_url(redis_url, decode_responses=decode, protocol=protocol) as client:
            async with open_store("redis://", client=client, key_prefix=prefix) as store:
                assert store.durability() == "power"
                stored = await Session(store, "é").append_message(user("text\x00\x7f 漢字"))
                async with store.leases.acquire("é") as lease:
                    assert lease.token > 0
            async with open_store("redis://", client=client, key_prefix=prefix) as store:
                assert await Session(store, "é").get_history() == [stored]
                assert [info.id for info in await store.registry.list(_OWNER, limit=None, cursor=None)] == ["é"]

            assert await client.ping()

    async def test_of_a_cluster_is_used_and_stays_open(self, redis_cluster_url: str) -> None:
        address = read_url(redis_cluster_url)
        host, port = address.hosts[0]
        prefix = f"{new_id()}:"
        once = Retry(NoBackoff(), 0)
        async with ClusterClient(host=host, port=port, password=address.password, retry=once) as client:
            async with open_store("redis+cluster://", client=client, key_prefix=prefix) as store:
                stored = await Session(store, "s").append_message(user("text"))
                assert await Session(store, "s").get_history() == [stored]

            assert await client.ping()
        forget(redis_cluster_url, prefix)

    @pytest.mark.parametrize("settings", [{}, {"retry": Retry(NoBackoff(), 1)}], ids=["by default", "when told to"])
    async def test_of_a_cluster_that_repeats_commands_by_itself_is_refused(
        self, redis_cluster_url: str, settings: dict[str, Any]
    ) -> None:
        address = read_url(redis_cluster_url)
        host, port = address.hosts[0]
        async with ClusterClient(host=host, port=port, password=address.password, **settings) as client:
            with pytest.raises(ConfigurationError, match=r"retry=redis\.asyncio\.retry\.Retry\(.*, 0\)"):
                await open_store("redis+cluster://", client=client)

    async def test_that_is_none_of_ours_is_refused(self, redis_url: str) -> None:
        with blocking_redis.Redis.from_url(redis_url) as client, pytest.raises(ConfigurationError, match="asyncio"):
            await open_store("redis://", client=client)


class TestKeys:
    async def test_a_prefix_keeps_stores_apart(self, redis_url: str, prefix: str) -> None:
        async with (
            open_store(redis_url, key_prefix=prefix + "one:") as one,
            open_store(redis_url, key_prefix=prefix + "two:") as two,
        ):
            await Session(one, "s").append_message(user("of one"))

            assert await Session(two, "s").get_history() == []
            assert await two.registry.count(_OWNER) == 0
        assert all(key.startswith(prefix.encode() + b"one:") for key in keys(redis_url, prefix))


async def test_a_server_without_room_says_so_and_keeps_what_it_has(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store:
            session = Session(store, "s")
            first = await session.append_message(user("first"))
            command(server.url, "CONFIG", "SET", "maxmemory", 100_000)

            with pytest.raises(StorageFull):
                await session.append_message(user("x" * 1_000_000))

            assert await session.get_history() == [first]
            command(server.url, "CONFIG", "SET", "maxmemory", 0)
            second = await session.append_message(user("x" * 1_000_000))
            assert await session.get_history() == [first, second]


async def test_other_data_under_a_key_of_ours_is_left_alone(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        command(server.url, "SET", "leafward:{anonymous}:agent:default:journal:s", "mine")
        async with open_store(server.url) as store:
            with pytest.raises(StoreError, match="key_prefix"):
                await Session(store, "s").append_message(user("text"))
        assert command(server.url, "GET", "leafward:{anonymous}:agent:default:journal:s") == b"mine"


async def test_tls_is_spoken_and_an_unknown_certificate_refused(private_redis: PrivateRedis, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *made, *names], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tls = [f"tls-port {port}", f"tls-cert-file {certificate}", f"tls-key-file {key}", "tls-auth-clients no"]
    with private_redis(settings=tls) as server:
        at = f":{server.password}@127.0.0.1:{port}/0"

        assert "certificate" in await _refusal(f"rediss://{at}")
        with pytest.raises(StoreError, match="rediss://"):
            await open_store(f"redis://{at}")
        async with (
            Client.from_url(f"rediss://{at}", ssl_ca_certs=str(certificate)) as client,
            open_store("rediss://", client=client) as store,
        ):
            await Session(store, "s").append_message(user("text"))


@asynccontextmanager
async def _always_says(reply: bytes) -> AsyncGenerator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
