"""A private MariaDB."""

from __future__ import annotations

import os
import subprocess
from typing import ClassVar

from tests.servers.packages import program
from tests.servers.server import HOST, Server

_NAME = "leafward"


class MariaDB(Server):
    """A private MariaDB with a database `leafward`, and a user who may do everything in databases of that prefix."""

    account: ClassVar[str | None] = "mysql"

    @property
    def url(self) -> str:
        """What a user would give to `open_store`."""
        return f"mysql://{_NAME}:{self.password}@{HOST}:{self.port}/{_NAME}"

    def _prepare(self) -> None:
        self._write(
            "init.sql",
            [
                f"CREATE DATABASE IF NOT EXISTS {_NAME};",
                f"CREATE USER IF NOT EXISTS {_NAME}@'{HOST}' IDENTIFIED BY '{self.password}';",
                f"GRANT ALL ON `{_NAME}%`.* TO {_NAME}@'{HOST}';",
            ],
        )
        # Root is whoever runs the server, by its socket: there is no account without a password.
        self._run(
            *(program("mariadb-install-db"), "--no-defaults", f"--datadir={self.directory / 'data'}"),
            # A server that starts removes what it finds in its directory for such things: it may be another's.
            f"--tmpdir={self.directory}",
            *("--auth-root-authentication-method=socket", "--skip-test-db", "--skip-name-resolve"),
        )

    def _command(self) -> list[str]:
        settings = self._write("my.cnf", ["[mariadbd]", *self._settings(), *self.settings])
        return [program("mariadbd"), f"--defaults-file={settings}"]

    def _settings(self) -> list[str]:
        return [
            f"datadir = {self.directory / 'data'}",
            f"socket = {self.directory / 'socket'}",
            f"pid-file = {self.directory / 'pid'}",
            f"tmpdir = {self.directory}",
            f"init-file = {self.directory / 'init.sql'}",
            f"bind-address = {HOST}",
            f"port = {self.port}",
            "skip-networking = 0",
            "skip-name-resolve = 1",
            "character-set-server = utf8mb4",
            "max-connections = 300",
            "innodb-buffer-pool-size = 64M",
            "innodb-log-file-size = 32M",
            "innodb-flush-log-at-trx-commit = 1",
        ]

    def _is_ready(self) -> bool:
        answer = subprocess.run(
            [
                *(program("mariadb-admin"), "--no-defaults", "--protocol=tcp", f"--host={HOST}"),
                *(f"--port={self.port}", f"--user={_NAME}", "--connect-timeout=5", "ping"),
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "MYSQL_PWD": self.password},
        )
        return answer.returncode == 0
