"""States on database servers keep every promise, by themselves and as part of a store."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from itertools import count

import pytest

from leafward import ConfigurationError
from leafward.stores import AgentStateStore, MysqlAgentStateStore, PostgresAgentStateStore
from leafward.testing.our_states import OurStateContract
from tests.stores.both_servers import KINDS, Kind

_NUMBERS = count()
JAVAS_TABLE = """
    CREATE TABLE {} (
        session_id VARCHAR(255) NOT NULL,
        state_key VARCHAR(255) NOT NULL,
        item_index INT NOT NULL DEFAULT 0,
        state_data LONGTEXT NOT NULL,
        created_at DATETIME DEFAULT CURRENT_TIMESTAMP,
        updated_at DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        PRIMARY KEY (session_id, state_key, item_index)
    ) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"""
"""As AgentScope for Java makes it up to 2.0.2."""


class OnOneServer:
    """Gives each test a table of its own on one kind of server."""

    @pytest.fixture
    def kind(self) -> Kind:
        raise NotImplementedError

    @pytest.fixture
    def url(self, kind: Kind, server_url: Callable[[str], str]) -> str:
        return server_url(kind.name)

    @pytest.fixture
    async def table(self, kind: Kind, url: str) -> AsyncGenerator[str]:
        table = f"states_{os.getpid()}_{next(_NUMBERS)}"
        yield table
        schema = "agentscope." if kind.name == "postgres" else ""
        await kind.ask(url, f"DROP TABLE IF EXISTS {schema}{table}")


class TestPostgres(OnOneServer, OurStateContract):
    @pytest.fixture
    def kind(self) -> Kind:
        return KINDS["postgres"]

    @pytest.fixture(params=["1.x", "2.x"])
    async def states(self, request: pytest.FixtureRequest, url: str, table: str) -> AsyncGenerator[AgentStateStore]:
        async with PostgresAgentStateStore(url, table=table, layout=request.param) as states:
            yield states


class TestMySQL(OnOneServer, OurStateContract):
    @pytest.fixture
    def kind(self) -> Kind:
        return KINDS["mysql"]

    @pytest.fixture(params=["1.x", "2.x"])
    async def states(self, request: pytest.FixtureRequest, url: str, table: str) -> AsyncGenerator[AgentStateStore]:
        async with MysqlAgentStateStore(url, table, layout=request.param) as states:
            yield states


class TestATableThatJavaMade(TestMySQL):
    """It takes `Alice` for `alice`, and has no versions."""

    @pytest.fixture
    async def table(self, kind: Kind, url: str) -> AsyncGenerator[str]:
        table = f"javas_{os.getpid()}_{next(_NUMBERS)}"
        await kind.ask(url, JAVAS_TABLE.format(table))
        yield table
        await kind.ask(url, f"DROP TABLE {table}")


@pytest.mark.parametrize("url", ["redis://:secret@h/0", "jdbc:mysql://h/d?password=secret", "states.db"])
@pytest.mark.parametrize("kind", [MysqlAgentStateStore, PostgresAgentStateStore])
def test_a_url_of_another_kind_is_refused_at_once(kind: type[AgentStateStore], url: str) -> None:
    with pytest.raises(ConfigurationError, match="://user@host/database") as refused:
        kind(url)  # pyright: ignore[reportCallIssue]
    assert "secret" not in str(refused.value)
