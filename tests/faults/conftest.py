"""A backend to torture: those with a server share the run's, unless they are to kill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.backends import SERVERS, Backend, embedded, open_backend


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on each of these backends."""
    marks = {name: [pytest.mark.server] for name in SERVERS}
    return pytest.mark.parametrize(
        "backend", [pytest.param(name, marks=marks.get(name, [])) for name in names], indirect=True
    )


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param not in SERVERS:
        return embedded(request.param, tmp_path)
    kind = {"mariadb": "mysql"}.get(request.param, request.param)
    return Backend(request.param, request.getfixturevalue(f"{kind}_url"))


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.server) for name in SERVERS])
def own_server(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with open_backend(request.param, fast=True) as backend:
        yield backend
