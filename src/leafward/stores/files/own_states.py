"""States in JSON files that AgentScope for Java shares, without anything else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from leafward.core.errors import ConfigurationError
from leafward.stores.files.agent_context import agent_name, agent_to_keep, find_context
from leafward.stores.files.directory import StateDirectory
from leafward.stores.files.folder import Parts
from leafward.stores.files.state_table import FileStates
from leafward.stores.states.standalone import Opened, Standalone
from leafward.stores.states.table import Layout, check_layout

Path = str | os.PathLike[str]


class JsonFileAgentStateStore(Standalone):
    """States in JSON files below a directory, shared by any number of processes of one machine.

    Without `path` it is `$AGENTSCOPE_STATE_HOME`, else `~/.agentscope/state`. Nothing is made or written there before
    the first save, deletion or lease, so it may be read-only. A Java process that saves at the very same time takes no
    notice of any lock; what it saved before is seen, and counts.
    """

    def __init__(self, path: Path | None = None, *, layout: str = "2.x") -> None:
        home = os.environ.get("AGENTSCOPE_STATE_HOME") or "~/.agentscope/state"
        self._set_up(home if path is None else os.fspath(path), check_layout(layout))

    def _set_up(self, path: str, layout: Layout, *, legacy: bool = False) -> None:
        # Resolved once: below it no link is followed.
        self._path = os.path.realpath(os.path.expanduser(path))
        self._layout: Layout = layout
        self._legacy = legacy
        self._to_keep: Mapping[Parts, bytes] = {}
        super().__init__(f"the store of states {self._path}", self._open_directory)

    async def _open_directory(self) -> Opened:
        directory = StateDirectory(self._path, self._layout, legacy=self._legacy, to_keep=self._to_keep)
        return Opened(FileStates(directory), directory, directory.close, directory.store)


class JsonSession(JsonFileAgentStateStore):
    """The same in AgentScope's layout 1.x.

    A session that has no directory yet, but a file `<id>.json` of AgentScope before 1.0.5, is read from it; its
    directory is made at the latest by its first save. The file is kept until the session is deleted. With
    `legacy="ignore"` such files are not looked for.
    """

    def __init__(self, path: Path = "~/.agentscope/sessions", legacy: str = "migrate") -> None:
        if legacy not in ("migrate", "ignore"):
            raise ConfigurationError(f"legacy is 'migrate' or 'ignore', not {legacy!r}")
        self._set_up(os.fspath(path), "1.x", legacy=legacy == "migrate")


class WorkspaceSession(JsonFileAgentStateStore):
    """The states of one agent in a workspace, in layout 1.x: `<workspace>/agents/<agent>/context`.

    The agent's name is that of its directory, as in AgentScope; a slash in it is refused.
    """

    def __init__(self, workspace: Path, agent_id: str) -> None:
        self._agents = os.path.realpath(os.path.expanduser(os.path.join(os.fspath(workspace), "agents")))
        self._agent_id = agent_id
        self._set_up(os.path.join(self._agents, agent_name(agent_id), "context"), "1.x")
        self._to_keep = agent_to_keep(agent_id)

    async def _open_directory(self) -> Opened:
        self._path = await asyncio.to_thread(find_context, self._agents, self._agent_id)
        return await super()._open_directory()
