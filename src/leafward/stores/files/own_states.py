"""States in JSON files that AgentScope for Java shares, without anything else."""

from __future__ import annotations

import asyncio
import os

from leafward.core.errors import ConfigurationError
from leafward.core.ids import check_id
from leafward.stores.files.folder import Folder
from leafward.stores.files.state_names import segment_before
from leafward.stores.files.state_table import FileStates
from leafward.stores.files.state_tree import StateTree
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.sqlite import open_sqlite
from leafward.stores.states.standalone import Opened, Standalone
from leafward.stores.states.table import Layout, check_layout

Path = str | os.PathLike[str]

LEASES = ".leafward.sqlite"
"""The file at the root that keeps leases, and whose lock is that of the whole tree."""


class JsonFileAgentStateStore(Standalone):
    """States in JSON files below a directory, shared by any number of processes of one machine.

    Without `path` it is `$AGENTSCOPE_STATE_HOME`, else `~/.agentscope/state`. A Java process that saves at the very
    same time takes no notice of any lock; what it saved before is seen, and counts.
    """

    def __init__(self, path: Path | None = None, *, layout: str = "2.x") -> None:
        home = os.environ.get("AGENTSCOPE_STATE_HOME") or "~/.agentscope/state"
        self._set_up(home if path is None else os.fspath(path), check_layout(layout))

    def _set_up(self, path: str, layout: Layout, *, legacy: bool = False) -> None:
        # Resolved once: below it no link is followed.
        self._path = os.path.realpath(os.path.expanduser(path))
        self._layout: Layout = layout
        self._legacy = legacy
        super().__init__(f"the store of states {self._path}", self._open_directory)

    async def _open_directory(self) -> Opened:
        folder = await asyncio.to_thread(_open_folder, self._path)
        try:
            # It need not survive a power cut: no holder of a lease does.
            store = await open_sqlite(f"sqlite:///{os.path.join(self._path, LEASES)}", durability="process")
        except BaseException:
            folder.close()
            raise

        async def close() -> None:
            await store.close()
            folder.close()

        table = FileStates(store.runner, StateFiles(StateTree(folder, ()), self._layout, legacy=self._legacy))
        try:
            await table.clear()
        except BaseException:
            await close()
            raise
        return Opened(table, store.runner, close)


class JsonSession(JsonFileAgentStateStore):
    """The same in AgentScope's layout 1.x.

    A session that has no directory yet, but a file `<id>.json` of AgentScope before 1.0.5, is made from it when it is
    first used; the file is kept until the session is deleted. With `legacy="ignore"` nobody looks for such files.
    """

    def __init__(self, path: Path = "~/.agentscope/sessions", legacy: str = "migrate") -> None:
        if legacy not in ("migrate", "ignore"):
            raise ConfigurationError(f"legacy is 'migrate' or 'ignore', not {legacy!r}")
        self._set_up(os.fspath(path), "1.x", legacy=legacy == "migrate")


class WorkspaceSession(JsonFileAgentStateStore):
    """The states of one agent in a workspace, in layout 1.x: `<workspace>/agents/<agent>/context`."""

    def __init__(self, workspace: Path, agent_id: str) -> None:
        check_id("agent id", agent_id)
        self._set_up(os.path.join(os.fspath(workspace), "agents", segment_before(agent_id), "context"), "1.x")


def _open_folder(path: str) -> Folder:
    with named(path):
        return Folder(path, synced=True)
