"""A private PostgreSQL."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.servers.packages import program
from tests.servers.server import HOST, Server
from tests.servers.shared_memory import remove_shared_memory

_ADMIN = "postgres"
_NAME = "leafward"


class Postgres(Server):
    """A private PostgreSQL with a database `leafward`, owned by a user who may make databases but is no superuser.

    Text is sorted as English readers expect, not by bytes, so that an order which relies on bytes must say so.
    """

    account: ClassVar[str | None] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def url(self) -> str:
        """What a user would give to `open_store`."""
        return f"postgresql://{_NAME}:{self.password}@{HOST}:{self.port}/{_NAME}"

    def kill(self) -> None:
        """End it as a crash does: SIGKILL to all its processes, none left when this returns."""
        super().kill()
        remove_shared_memory(self._data)

    def _prepare(self) -> None:
        secret = self._write("password", [self.password])
        self._run(
            *(program("initdb"), "--pgdata", str(self._data), "--username", _ADMIN, "--pwfile", str(secret)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync", "--no-instructions"),
            *("--locale", "C.UTF-8", "--locale-provider", "icu", "--icu-locale", "en-US"),
        )

    def _command(self) -> list[str]:
        settings = self._write("postgresql.conf", [*self._settings(), *self.settings])
        return [program("postgres"), "-D", str(self._data), "-c", f"config_file={settings}"]

    def _settings(self) -> list[str]:
        return [
            f"listen_addresses = '{HOST}'",
            f"port = {self.port}",
            "unix_socket_directories = ''",
            "max_connections = 200",
            "shared_buffers = 64MB",
            "fsync = on",
            "synchronous_commit = on",
            "full_page_writes = on",
            # In the data directory, so that a killed server leaves nothing outside it.
            "dynamic_shared_memory_type = mmap",
            f"data_directory = '{self._data}'",
            f"hba_file = '{self._data}/pg_hba.conf'",
            f"ident_file = '{self._data}/pg_ident.conf'",
        ]

    def _is_ready(self) -> bool:
        answer = subprocess.run(
            [program("pg_isready"), "--quiet", "--host", HOST, "--port", str(self.port), "--username", _ADMIN],
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return answer.returncode == 0

    def _finish(self) -> None:
        self._run(
            *(program("psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"),
            *("--host", HOST, "--port", str(self.port), "--username", _ADMIN, "--dbname", _ADMIN),
            *("--command", f"CREATE ROLE {_NAME} LOGIN CREATEDB PASSWORD '{self.password}'"),
            *("--command", f"CREATE DATABASE {_NAME} OWNER {_NAME}"),
            env={"PGPASSWORD": self.password},
        )

    @property
    def _data(self) -> Path:
        return self.directory / "data"
