"""Missing server programs are installed when we are root; otherwise the run fails with the line to type."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import packages
from tests.servers.packages import ProgramMissing

LINE = (
    "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends postgresql mariadb-server redis-server"
    " nodejs npm'"
)


class Machine:
    """A machine without any server: programs are files in one folder, and apt-get is played by us."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.policy = folder / "policy-rc.d"
        self.commands: list[list[str]] = []
        self.policies: list[str] = []
        self.arriving: Sequence[str] = ()
        self._patch = monkeypatch
        monkeypatch.setenv("PATH", str(self.folder))
        monkeypatch.setattr(packages, "_FOLDERS", ())
        monkeypatch.setattr(packages, "_POSTGRES", folder / "postgresql")
        monkeypatch.setattr(packages, "_POLICY", self.policy)
        monkeypatch.setattr(subprocess, "run", self._run)
        for variable in filter(None, packages.PROGRAMS):
            monkeypatch.delenv(variable, raising=False)
        self.add("apt-get")

    def become(self, uid: int) -> None:
        self._patch.setattr(os, "geteuid", lambda: uid)

    def add(self, name: str) -> None:
        (self.folder / name).touch(mode=0o755)

    def _run(self, command: Sequence[str], *, env: dict[str, str], **_: Any) -> None:
        assert env["DEBIAN_FRONTEND"] == "noninteractive"
        self.commands.append(list(command))
        self.policies.append(self.policy.read_text(encoding="utf-8"))
        for name in self.arriving:
            self.add(name)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_who_is_not_root_is_told_the_line_to_run(machine: Machine) -> None:
    machine.become(1000)

    with pytest.raises(ProgramMissing) as told:
        packages.program("redis-server")

    assert "redis-server not found" in str(told.value)
    assert "apt-get install -y --no-install-recommends redis-server'" in str(told.value)
    assert machine.commands == []


def test_the_command_before_the_tests_ends_with_that_line(machine: Machine) -> None:
    machine.become(1000)

    with pytest.raises(SystemExit) as told:
        packages.main()

    assert isinstance(told.value.code, str)
    assert LINE in told.value.code
    assert all(name in told.value.code for names in packages.PROGRAMS.values() for name in names)


def test_a_server_the_environment_names_needs_no_program(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.become(1000)
    monkeypatch.setenv("LEAFWARD_TEST_POSTGRES", "postgresql://elsewhere/db")
    monkeypatch.setenv("LEAFWARD_TEST_MYSQL", "mysql://elsewhere/db")
    for name in ("redis-server", "node", "npm"):
        machine.add(name)

    packages.main()


def test_root_installs_what_is_missing_and_says_so(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.become(0)
    machine.arriving = ["redis-server"]

    assert packages.program("redis-server") == str(machine.folder / "redis-server")

    assert machine.commands == [list(packages.UPDATE), [*packages.INSTALL, "redis-server"]]
    printed = capsys.readouterr().out
    assert all(" ".join(command) in printed for command in machine.commands)


def test_no_service_starts_while_packages_are_installed(machine: Machine) -> None:
    machine.become(0)
    machine.arriving = ["redis-server"]

    packages.program("redis-server")

    assert all(text.endswith("exit 101\n") for text in machine.policies)
    assert not machine.policy.exists()


def test_a_policy_the_machine_has_is_left_alone(machine: Machine) -> None:
    machine.become(0)
    machine.arriving = ["redis-server"]
    machine.policy.write_text("exit 0\n", encoding="utf-8")

    packages.program("redis-server")

    assert machine.policies == ["exit 0\n"] * 2
    assert machine.policy.read_text(encoding="utf-8") == "exit 0\n"


def test_packages_that_lack_the_program_are_an_error_for_root_too(machine: Machine) -> None:
    machine.become(0)

    with pytest.raises(ProgramMissing, match="mariadbd not found"):
        packages.program("mariadbd")


def test_a_program_that_is_there_installs_nothing(machine: Machine) -> None:
    machine.become(0)
    machine.add("redis-server")

    packages.program("redis-server")

    assert machine.commands == []


def test_the_newest_postgresql_is_found_beside_the_path(machine: Machine, tmp_path: Path) -> None:
    for version in ("9.6", "15", "17"):
        folder = tmp_path / "postgresql" / version / "bin"
        folder.mkdir(parents=True)
        (folder / "postgres").touch(mode=0o755)

    assert packages.program("postgres") == str(tmp_path / "postgresql" / "17" / "bin" / "postgres")
