"""mysql:// keeps every promise, on MariaDB."""

from __future__ import annotations

import pytest

from tests.stores.server_store import ServerContract


class TestMariaDB(ServerContract):
    @pytest.fixture
    def url(self, mysql_url: str) -> str:
        return mysql_url
