"""Groups of tools, of which some are active in a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.core.fields import Fields
from leafward.core.session_key import SessionKey
from leafward.engine.state_module import StateModule
from leafward.stores.states.contracts import AgentStateStore

STATE_NAME = "toolkit_activeGroups"


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """Tools that are offered together."""

    name: str
    description: str = ""


class Toolkit(StateModule):
    """Knows groups of tools; which of them are active is saved as AgentScope's `toolkit_activeGroups`."""

    def __init__(self) -> None:
        self._groups: dict[str, ToolGroup] = {}
        self._at_first: list[str] = []
        self._active: list[str] = []

    def create_group(self, name: str, description: str = "", active: bool = False) -> Self:
        """Add a group.

        Raises:
            ConfigurationError: there is one of that name.
        """
        if name in self._groups:
            raise ConfigurationError(f"there is a tool group {name!r} already")
        self._groups[name] = ToolGroup(name, description)
        if active:
            self._at_first.append(name)
            self._active.append(name)
        return self

    @property
    def groups(self) -> list[ToolGroup]:
        """All groups, in the order they were made."""
        return list(self._groups.values())

    @property
    def active_groups(self) -> list[str]:
        """The names of the active groups, also of such that are not known here."""
        return list(self._active)

    def set_active_groups(self, names: Iterable[str]) -> None:
        """Have these groups active, and no others.

        Raises:
            ConfigurationError: a group is not known.
        """
        wanted = list(dict.fromkeys(names))
        unknown = [name for name in wanted if name not in self._groups]
        if unknown:
            raise ConfigurationError(f"there is no tool group {unknown[0]!r}; there are {', '.join(self._groups)}")
        self._active = wanted

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        await states.save(key, STATE_NAME, {"activeGroups": self._active})
        await super().save_state(states, key)

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        """Restore which groups are active; where none was ever saved, those are that were made so."""
        saved = await states.get(key, STATE_NAME)
        try:
            self._active = list(self._at_first) if saved is None else Fields(saved, "").texts("activeGroups")
        except StateDecodeError as error:
            raise StateDecodeError(key.user_id, key.session_id, STATE_NAME, error.reason) from error
        await super().load_state(states, key)
