"""A server of ours, a provider that it plays, and an agent's tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from leafward import open_store
from leafward.stores import Store
from tests.wire.providers import PROVIDERS, Provider
from tests.wire.server import WireServer, wire_server


@pytest.fixture
async def wire() -> AsyncGenerator[WireServer]:
    async with wire_server() as server:
        yield server


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


@pytest.fixture(params=PROVIDERS, ids=lambda one: one.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    return request.param


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once where a server says nothing about when to."""
    monkeypatch.setattr("leafward.engine.model_call._FIRST_PAUSE_S", 0.0)
