"""postgresql:// keeps every promise."""

from __future__ import annotations

import pytest

from tests.stores.server_store import ServerContract


class TestPostgreSQL(ServerContract):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url
