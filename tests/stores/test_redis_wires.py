"""Many calls share a connection to Redis, and each gets its own reply, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as Client
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as Gone
from redis.exceptions import ResponseError

from leafward import Session, open_store, user
from leafward.core.ids import new_id
from leafward.stores.redis import calls
from leafward.stores.redis.opening import RedisStore
from leafward.stores.redis.urls import read_url
from leafward.stores.redis.wires import Pending, Unsent, Wire
from tests.servers.redis import Redis
from tests.stores.redis_store import command

PrivateRedis = Callable[..., Redis]


@pytest.fixture
async def client(redis_url: str) -> AsyncGenerator[Client]:
    async with Client.from_url(redis_url, protocol=2, socket_timeout=None) as client:
        yield client


@pytest.fixture
async def wire(client: Client) -> AsyncGenerator[Wire]:
    wire = Wire(client.connection_pool)
    yield wire
    await wire.close()


async def reply_to(pending: Pending) -> Any:
    return await pending


def begun(pending: Pending) -> asyncio.Task[Any]:
    return asyncio.create_task(reply_to(pending))


async def held_up(wire: Wire) -> tuple[str, Pending, asyncio.Task[Any]]:
    """Make a call that the server answers when something is pushed to a list."""
    key = new_id()
    pending = wire.call(("BLPOP", key.encode(), 0))
    task = begun(pending)
    await until(lambda: pending in wire._under_way and wire._sent)
    return key, pending, task


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_task_that_is_cancelled_before_it_begins_leaves_its_wire_to_another(
    wire: Wire, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.call(("PING",))
    await until(lambda: wire.is_idle)
    key, _, first = await held_up(wire)
    second = begun(wire.call(("ECHO", "second")))
    await asyncio.sleep(0)
    create, cancelled = asyncio.create_task, list[asyncio.Task[Any]]()

    def cancel_first(coroutine: Any) -> asyncio.Task[Any]:
        task = create(coroutine)
        if not cancelled:
            cancelled.append(task)
            task.cancel()
        return task

    monkeypatch.setattr(asyncio, "create_task", cancel_first)
    await asyncio.to_thread(command, redis_url, "RPUSH", key, "x")
    async with asyncio.timeout(10):
        await first
        assert await second == b"second"
        assert await wire.call(("ECHO", "third")) == b"third"
    assert cancelled


async def test_calls_at_the_same_time_get_each_their_own_reply(wire: Wire, client: Client) -> None:
    found = await asyncio.gather(*(reply_to(wire.call(("ECHO", b"%d" % n))) for n in range(200)))

    assert found == [b"%d" % n for n in range(200)]
    pool: Any = client.connection_pool
    assert len(pool._in_use_connections) == 1
    assert not pool._available_connections


async def test_one_that_is_refused_leaves_the_others_alone(wire: Wire) -> None:
    asked = [("ECHO", b"a"), ("NO-SUCH-COMMAND",), ("ECHO", b"b")]

    first, second, third = await asyncio.gather(*(begun(wire.call(one)) for one in asked), return_exceptions=True)

    assert (first, third) == (b"a", b"b")
    assert isinstance(second, ResponseError)


async def test_one_who_is_cancelled_can_wait_again_and_takes_nobodys_reply(wire: Wire, redis_url: str) -> None:
    key, pending, first = await held_up(wire)
    second, third = begun(wire.call(("ECHO", b"second"))), begun(wire.call(("ECHO", b"third")))
    await asyncio.sleep(0)

    first.cancel()
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = begun(pending)
    command(redis_url, "RPUSH", key, "pushed")

    assert await second == b"second"
    assert await again == [key.encode(), b"pushed"]
    assert await wire.call(("ECHO", b"after")) == b"after"


class SlowLogin(CredentialProvider):
    """Tells the password when that is let happen."""

    def __init__(self, password: str) -> None:
        self._password = password
        self.asked, self.tells = asyncio.Event(), asyncio.Event()

    def get_credentials(self) -> tuple[str]:
        raise AssertionError("nobody waits for an answer at once")

    async def get_credentials_async(self) -> tuple[str]:
        self.asked.set()
        await self.tells.wait()
        return (self._password,)


@pytest.mark.parametrize("is_first", [True, False])
async def test_one_who_is_cancelled_while_the_connection_is_made_leaves_none_that_is_half_made(
    redis_url: str, is_first: bool
) -> None:
    (host, port), password = read_url(redis_url).hosts[0], read_url(redis_url).password
    login = SlowLogin(password or "")
    async with Client(host=host, port=port, protocol=2, credential_provider=login) as client:
        wire = Wire(client.connection_pool)
        if not is_first:
            login.tells.set()
            command(redis_url, "CLIENT", "KILL", "ID", await wire.call(("CLIENT", b"ID")))
            await until(lambda: wire.is_idle)
            login.asked.clear()
            login.tells.clear()
        pending = wire.call(("ECHO", b"text"))
        first = begun(pending)
        await login.asked.wait()
        first.cancel()
        await asyncio.wait((first,))
        login.tells.set()

        # It would be refused where nobody has logged in.
        assert await asyncio.wait_for(reply_to(pending), 20) == b"text"
        await wire.close()


async def test_a_connection_that_ends_is_told_to_all_who_wait_and_the_next_call_has_another(
    wire: Wire, redis_url: str
) -> None:
    number = await wire.call(("CLIENT", b"ID"))
    _, _, first = await held_up(wire)
    second = begun(wire.call(("ECHO", b"second")))
    command(redis_url, "CLIENT", "KILL", "ID", number)

    with pytest.raises(Gone):
        await first
    assert await second == b"second"
    assert await wire.call(("CLIENT", b"ID")) != number


async def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    client = Client(host="127.0.0.1", port=1)
    wire = Wire(client.connection_pool)

    with pytest.raises(Unsent):
        await wire.call(("ECHO", b"text"))

    await client.aclose()


async def test_a_write_whose_caller_is_cancelled_is_decided_when_that_is_told(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store, open_store(server.url) as other:
            assert isinstance(store, RedisStore)
            wires: list[Wire] = store.runner._server._calls._wires  # pyright: ignore[reportAttributeAccessIssue]
            session = Session(store, "s")
            expected = ["before"]
            await session.append_message(user("text", id="before"))
            for write in (session.append_message, session.upsert_message):
                expected.append(f"cancelled {len(expected)}")
                command(server.url, "CLIENT", "PAUSE", 300, "WRITE")
                writing = asyncio.ensure_future(write(user("text", id=expected[-1])))
                await until(lambda: any(wire._under_way and wire._sent for wire in wires))
                writing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await writing

                assert [one.id for one in await Session(other, "s").get_history()] == expected
                assert [one.id for one in await session.get_history()] == expected

            await session.append_message(user("text", id="after"))
            assert [one.id for one in await session.get_history()] == [*expected, "after"]


async def test_a_store_has_few_connections_however_many_sessions_are_written(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store:
            await asyncio.gather(*(Session(store, f"{n}").append_message(user("text")) for n in range(100)))

            # One of them asks.
            assert command(server.url, "CLIENT", "LIST").count(b"\n") <= calls.WIRES + 1


async def test_when_who_reads_for_the_others_is_cancelled_another_goes_on(wire: Wire, client: Client) -> None:
    key, _, first = await held_up(wire)
    others = [begun(wire.call(("ECHO", b"%d" % n))) for n in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        await until(lambda: wire._going_on is not None and not wire._going_on.done())
        assert wire._going_on is not None
        wire._going_on.cancel()
        await asyncio.wait({wire._going_on})

    await client.rpush(key, "x")

    async with asyncio.timeout(20):
        assert await asyncio.gather(*others) == [b"0", b"1", b"2"]


async def test_a_pool_with_one_connection_is_enough(redis_url: str) -> None:
    pool = BlockingConnectionPool.from_url(redis_url, max_connections=1)
    async with (
        Client(connection_pool=pool) as client,
        asyncio.timeout(20),
        open_store(redis_url, client=client, key_prefix=new_id()) as store,
    ):
        sessions = [Session(store, f"s{n}") for n in range(20)]
        for _ in range(3):
            await asyncio.gather(*(one.append_message(user("hi")) for one in sessions))
        assert [len(await one.get_history()) for one in sessions] == [3] * 20
    await pool.aclose()
