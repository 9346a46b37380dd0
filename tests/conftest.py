"""What every test shares: how hypothesis runs, readable failures from the shipped contracts, and servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis
    from tests.servers.redis_sentinel import RedisSentinel
    from tests.servers.shared import SharedServers

# Without this, an `assert` that fails inside a contract class shows no values.
pytest.register_assert_rewrite("leafward.testing")

# A shared machine stalls now and then; a slow example is not a wrong one. Every run tries other examples; set
# LEAFWARD_EXAMPLES for a longer search.
EXAMPLES = int(os.environ.get("LEAFWARD_EXAMPLES", "25"))
settings.register_profile("leafward", deadline=None, print_blob=True, max_examples=EXAMPLES)
settings.load_profile("leafward")

SHARED = pytest.StashKey["SharedServers"]()
SERVER_FIXTURES = {
    *("server_url", "redis_sentinel"),
    *("private_postgres", "private_mariadb", "private_redis"),
    "pages",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "server: needs a real server, or node; given to every test that asks for one")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("server")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker where to ask for servers."""
    node.workerinput["leafward_servers"] = shared_servers(node.config).address()


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[SHARED].close()


def shared_servers(config: pytest.Config) -> SharedServers:
    """Return the servers of this run, none of them started yet when it is the first call."""
    # Imported here, so that tests without a server do without its drivers.
    from tests.servers.shared import SharedServers

    if SHARED not in config.stash:
        config.stash[SHARED] = SharedServers()
    return config.stash[SHARED]


@pytest.fixture(scope="session")
def pages() -> Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]:
    """A call that reads streams as pages do, with the npm packages of AI SDK and AG-UI."""
    from tests.pages.packages import read_streams

    return read_streams


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A call that returns the address of one of this run's servers, starting it when it is the first."""
    from tests.servers.shared import ask

    worker: dict[str, str] | None = getattr(request.config, "workerinput", None)
    return partial(ask, worker["leafward_servers"]) if worker else shared_servers(request.config).url


@pytest.fixture(scope="session")
def postgres_url(server_url: Callable[[str], str]) -> str:
    """The URL of the run's PostgreSQL, which all tests share: keep to a prefix of your own."""
    return server_url("postgres")


@pytest.fixture(scope="session")
def mysql_url(server_url: Callable[[str], str]) -> str:
    """The URL of the run's MariaDB, which all tests share: keep to a prefix of your own."""
    return server_url("mysql")


@pytest.fixture(scope="session")
def redis_url(server_url: Callable[[str], str]) -> str:
    """The URL of the run's Redis, which all tests share: keep to a prefix of your own."""
    return server_url("redis")


@pytest.fixture(scope="session")
def redis_cluster_url(server_url: Callable[[str], str]) -> str:
    """The URL of the run's Redis cluster, which all tests share: keep to a prefix of your own."""
    return server_url("redis_cluster")


@pytest.fixture
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A Redis with a replica and sentinels, for this test alone, because a failover changes it."""
    from tests.servers.redis_sentinel import RedisSentinel

    with RedisSentinel(fast=True) as servers:
        yield servers


@pytest.fixture(scope="session")
def private_postgres() -> Callable[..., Postgres]:
    """`with private_postgres() as server:` is a PostgreSQL of the test's own, to be killed and restarted."""
    from tests.servers.postgres import Postgres

    return partial(Postgres, fast=True)


@pytest.fixture(scope="session")
def private_mariadb() -> Callable[..., MariaDB]:
    """`with private_mariadb() as server:` is a MariaDB of the test's own, to be killed and restarted."""
    from tests.servers.mariadb import MariaDB

    return partial(MariaDB, fast=True)


@pytest.fixture(scope="session")
def private_redis() -> Callable[..., Redis]:
    """`with private_redis() as server:` is a Redis of the test's own, to be killed and restarted."""
    from tests.servers.redis import Redis

    return partial(Redis, fast=True)
