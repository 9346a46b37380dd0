"""Which directory of a workspace holds the states of an agent: AgentScope takes an agent's name as it is."""

from __future__ import annotations

import logging
import os

from leafward.core.errors import ConfigurationError, InvalidId
from leafward.core.ids import check_id
from leafward.core.json import encode
from leafward.stores.files.folder import UntouchedFolder
from leafward.stores.files.names import ESCAPE, LONGEST, hashed
from leafward.stores.files.state_names import LEASES, id_before, may_be_encoded, read_id, segment_before

AGENT = "~agent"
"""The file that tells the agent, where another agent's directory once had the name."""
_log = logging.getLogger("leafward.stores.files")


def agent_name(agent_id: str) -> str:
    """Return the name of an agent's directory.

    Raises:
        InvalidId: it cannot be the name of one.
    """
    check_id("agent id", agent_id)
    if "/" in agent_id:
        raise InvalidId("agent id", agent_id, "it holds a slash, and is the name of a directory")
    return agent_id if len(agent_id.encode()) <= LONGEST else hashed(agent_id)


def agent_to_keep(agent_id: str) -> dict[tuple[str, ...], bytes]:
    """Return the file that tells which agent's a directory is, where that could be another's from before."""
    unclear = may_be_encoded(agent_id) or agent_id.startswith(ESCAPE)
    return {(AGENT,): encode(agent_id)} if unclear else {}


def find_context(agents: str, agent_id: str) -> str:
    """Return the directory of an agent's states below that of all agents; some were named otherwise before.

    Raises:
        ConfigurationError: the directory of that name was made for another agent.
    """
    path = os.path.join(agents, agent_name(agent_id), "context")
    whose = _agent_of(path)
    if agent_to_keep(agent_id) and whose not in (None, agent_id):
        raise ConfigurationError(
            f"{path} was made for another agent, {whose!r}, when leafward encoded the names of agents: "
            f"rename the directory above to {whose!r}"
        )
    before = os.path.join(agents, segment_before(agent_id), "context")
    was_hashed = os.path.basename(os.path.dirname(before)) == hashed(agent_id)
    if before == path or not os.path.isdir(before) or (not was_hashed and _agent_of(before) != agent_id):
        return path
    if os.path.isdir(path):
        _log.warning("the states of agent %r are in %s; %s is not read: compare them", agent_id, path, before)
        return path
    _log.warning(
        "the states of agent %r are in %s, where AgentScope does not look: rename the directory above to %r",
        agent_id,
        before,
        agent_name(agent_id),
    )
    return before


def _agent_of(path: str) -> str | None:
    """Return the agent that leafward made a directory for; `None` if it made none, or nothing tells."""
    if not os.path.exists(os.path.join(path, LEASES)):
        return None
    kept = UntouchedFolder(path).content((AGENT,))
    if kept is not None:
        return read_id(kept.data)
    # Before this file there was, such a name was an encoding, or had a `~` before it.
    name = os.path.basename(os.path.dirname(path))
    return name[1:] if name.startswith(ESCAPE) else id_before(name)
