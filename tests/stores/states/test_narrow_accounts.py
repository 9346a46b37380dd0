"""An account that may not alter the table that Java made can save all the same, and is warned once."""

from __future__ import annotations

import logging
from secrets import token_hex

import pytest

from leafward import SessionKey, StaleState
from tests.servers.server import Server
from tests.stores.both_servers import Kind, OnPrivateServers, elsewhere
from tests.stores.states.java_rows import NEXT, RELEASED, Java
from tests.stores.states.test_rows import made, where
from tests.stores.test_servers_settings import grant

ALICE = SessionKey("s1", "alice")
MAY_ONLY_WRITE = {
    "postgres": [
        "CREATE ROLE {user} LOGIN PASSWORD '{password}'",
        "GRANT USAGE ON SCHEMA agentscope TO {user}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA agentscope TO {user}",
    ],
    "mysql": [
        "CREATE USER {user}@'%' IDENTIFIED BY '{password}'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON leafward.* TO {user}@'%'",
    ],
}


class TestAnAccountWithoutAlter(OnPrivateServers):
    @pytest.mark.parametrize("maker", [RELEASED, NEXT])
    async def test_saves_to_javas_table_and_is_warned_once(
        self, kind: Kind, url: str, private: Server, prefix: str, maker: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        java = Java(kind, url, where(kind, prefix), maker)
        await java.make_table()
        user = f"narrow{token_hex(4)}"
        await grant(
            kind, private, *(one.format(user=user, password=private.password) for one in MAY_ONLY_WRITE[kind.name])
        )
        columns = await java.columns()
        caplog.clear()
        async with made(kind, elsewhere(url, user=f"{user}:{private.password}"), prefix) as states:
            await java.save("alice:s1", "v", '{"n":1}')
            found = await states.get_versioned(ALICE, "v")
            assert found == ({"n": 1}, 1)
            assert await states.save_if_version(ALICE, "v", {"n": 2}, found.version) == found.version + 1
            await states.save(ALICE, "v", {"n": 3})
            await states.save_list(ALICE, "l", [{}])
            version = (await states.get_versioned(ALICE, "v")).version
            # What this process saved it knows, without a checksum in the table.
            await Java(kind, url, where(kind, prefix), RELEASED).save("alice:s1", "v", '{"n":"java"}')
            with pytest.raises(StaleState):
                await states.save_if_version(ALICE, "v", {"n": 4}, version)
            assert await states.get_versioned(ALICE, "v") == ({"n": "java"}, version + 1)
            assert await states.save_if_version(ALICE, "v", {"n": 4}, version + 1) == version + 2
        assert await java.columns() == columns
        (warning,) = [one for one in caplog.records if one.name.startswith("leafward")]
        assert warning.levelno == logging.WARNING
        missing = "leafward_sum" if maker == NEXT else "version and no column leafward_sum"
        assert f"has no column {missing}, and none was added" in warning.getMessage()
        assert private.password not in warning.getMessage()
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")
