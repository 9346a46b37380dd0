"""A server that cannot be used is told when it is opened, in one sentence without a secret; nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from leafward import ConfigurationError, LeafwardError, Session, StoreError, open_store, user
from tests.servers.ports import Port
from tests.stores.both_servers import KINDS, BehindAProxy, Kind, OnBothServers, drop_tables, elsewhere
from tests.stores.proxy import Fault, Proxy

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Sees to it that nothing is left for the garbage collector to close and complain about."""
    yield
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(one.message) for one in caught] == []


async def refusal(url: str, **options: Any) -> LeafwardError:
    """Return the error with which a store is not opened, having looked at all that it says."""
    with pytest.raises((ConfigurationError, StoreError)) as caught:
        await open_store(url, **options)
    error = caught.value
    said = "".join([*traceback.format_exception(error), *(repr(one) for one in chain(error))])
    assert SECRET not in said
    assert "\n" not in str(error)
    assert str(error)
    return error


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class TestAWrongUrl(OnBothServers):
    @pytest.fixture
    def scheme(self, url: str) -> str:
        return urlsplit(url).scheme

    async def test_a_wrong_password_is_refused(self, url: str) -> None:
        error = await refusal(elsewhere(url, user=f"{urlsplit(url).username}:{SECRET}"))
        assert isinstance(error, ConfigurationError)
        assert "password" in str(error)

    async def test_a_password_of_any_characters_is_sent_as_it_is(self, url: str) -> None:
        for password in (f"{SECRET}%2F%40%3A", f"{SECRET}%E5%AF%86%E7%A0%81", f"{SECRET}%00x"):
            await refusal(elsewhere(url, user=f"{urlsplit(url).username}:{password}"))

    async def test_an_unknown_user_is_refused(self, url: str) -> None:
        assert "user" in str(await refusal(elsewhere(url, user=f"stranger:{SECRET}")))

    async def test_a_missing_database_is_named_as_such(self, url: str) -> None:
        error = await refusal(elsewhere(url, database="leafward_missing"))
        assert isinstance(error, ConfigurationError)
        assert "database" in str(error)
        assert "leafward_missing" in str(error)

    async def test_a_server_that_is_not_there_is_told(self, scheme: str) -> None:
        port = Port()
        error = await refusal(f"{scheme}://someone:{SECRET}@127.0.0.1:{port.number}/chat")
        port.release()
        assert isinstance(error, StoreError)
        assert "cannot be reached" in str(error)

    async def test_a_host_that_nobody_knows_is_told(self, scheme: str) -> None:
        assert "cannot be reached" in str(await refusal(f"{scheme}://someone:{SECRET}@nowhere.invalid/chat"))

    async def test_a_port_where_something_else_answers_is_told(self, scheme: str) -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            await refusal(f"{scheme}://someone:{SECRET}@127.0.0.1:{port}/chat")

    @pytest.mark.parametrize(
        "rest",
        [
            f"someone:{SECRET}@host:port/chat",
            f"someone:{SECRET}@host:99999/chat",
            f"someone:{SECRET}@[::1/chat",
            f"someone:{SECRET}/{SECRET}@127.0.0.1:1/chat",
            f"someone:{SECRET}@127.0.0.1:1/chat?no_such_setting={SECRET}",
            f"127.0.0.1:1/chat?password={SECRET}",
            f"127.0.0.1:1/chat?password={SECRET}@{SECRET}",
            "",
        ],
    )
    async def test_garbage_is_refused(self, scheme: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PGHOST", "127.0.0.1")
        monkeypatch.setenv("PGPORT", "1")
        await refusal(f"{scheme}://{rest}")

    @pytest.mark.parametrize(
        "options",
        [{"options": {"colour": SECRET}}, {"durability": "soon"}, {"max_message_bytes": 0}, {"key_prefix": "x"}],
    )
    async def test_a_wrong_option_is_refused(self, url: str, options: dict[str, Any]) -> None:
        assert isinstance(await refusal(url, **options), ConfigurationError)

    @pytest.mark.parametrize("prefix", ["", "1a", "A_", "a-b", "a;b", "a b", "a'", "é_", "a" * 32, "_a", 3])
    async def test_a_prefix_that_is_no_name_is_refused(self, url: str, prefix: object) -> None:
        assert isinstance(await refusal(url, table_prefix=prefix), ConfigurationError)

    async def test_a_missing_driver_is_named_with_the_extra_that_brings_it(
        self, kind: Kind, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = {"postgres": "asyncpg", "mysql": "asyncmy"}[kind.name]
        for name in [name for name in sys.modules if name.partition(".")[0] == module]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)

        error = await refusal(url)

        assert isinstance(error, ConfigurationError)
        assert f"leafward[{kind.name}]" in str(error)


class TestAUrlWithoutADatabase:
    async def test_is_refused_by_mysql(self, mysql_url: str) -> None:
        error = await refusal(elsewhere(mysql_url, database=""))
        assert isinstance(error, ConfigurationError)
        assert "no database" in str(error)

    async def test_means_the_one_named_after_the_user_in_postgresql(self, postgres_url: str) -> None:
        stranger = elsewhere(postgres_url, database="")
        async with open_store(stranger, table_prefix="named_after_user_") as store:
            await Session(store).append_message(user("hi"))
        await drop_tables(KINDS["postgres"], postgres_url, "named_after_user_")


class TestOpeningThatIsCancelled(BehindAProxy):
    async def test_at_any_packet_leaves_nothing(
        self, kind: Kind, url: str, prefix: str, proxy: Proxy, through: str
    ) -> None:
        for packet in range(1, 200, 7):
            proxy.strike(Fault.SILENCE, packet=packet)
            opening = asyncio.ensure_future(_opened(through, prefix))
            striking = asyncio.ensure_future(proxy.wait_until_struck())
            await asyncio.wait({opening, striking}, return_when=asyncio.FIRST_COMPLETED)
            striking.cancel()
            if opening.done():
                await (await opening).close()
                break
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            proxy.cut()
            proxy.spare()
            await kind.until_idle(url, prefix)
        async with open_store(url, table_prefix=prefix) as store:
            await Session(store).append_message(user("hi"))
            assert len(await Session(store).get_history()) == 1


async def _opened(url: str, prefix: str) -> Any:
    return await open_store(url, table_prefix=prefix)
