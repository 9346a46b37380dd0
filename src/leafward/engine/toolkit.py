"""The toolkit of AgentScope 1.x, a component that saves which groups of tools are active."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from leafward.core.errors import ConfigurationError
from leafward.engine.state_module import StateModule
from leafward.tools.toolkit import ToolGroup


class ActiveGroups(msgspec.Struct, rename="camel"):
    """The state of a toolkit."""

    active_groups: list[str] | None = None


class Toolkit(StateModule):
    """Knows groups of tools; which of them are active is saved as AgentScope's `toolkit_activeGroups`.

    It is for components of 1.x. An agent takes a `leafward.Toolkit`, and keeps the active groups in each session.
    """

    state_name = "toolkit_activeGroups"
    state_type = ActiveGroups

    def __init__(self) -> None:
        self._groups: dict[str, ToolGroup] = {}
        self._initial: list[str] = []
        self._active: list[str] = []

    def create_group(self, name: str, description: str = "", active: bool = False) -> Self:
        """Add a group.

        Raises:
            ConfigurationError: a group has that name already.
        """
        if name in self._groups:
            raise ConfigurationError(f"the tool group {name!r} exists already")
        self._groups[name] = ToolGroup(name, description)
        if active:
            self._initial.append(name)
            self._active.append(name)
        return self

    @property
    def groups(self) -> list[ToolGroup]:
        """All groups, in the order they were made."""
        return list(self._groups.values())

    @property
    def active_groups(self) -> list[str]:
        """The names of the active groups, including restored ones that were not created here."""
        return list(self._active)

    def set_active_groups(self, names: Iterable[str]) -> None:
        """Activate these groups, and no others.

        Raises:
            ConfigurationError: a group is not known.
        """
        wanted = list(dict.fromkeys(names))
        unknown = [name for name in wanted if name not in self._groups]
        if unknown:
            raise ConfigurationError(f"there is no tool group {unknown[0]!r}; there are {', '.join(self._groups)}")
        self._active = wanted

    def get_state(self) -> ActiveGroups:
        return ActiveGroups(self._active)

    def set_state(self, state: ActiveGroups | None) -> None:
        """Restore which groups are active; where nothing was ever saved, the initially active ones are."""
        self._active = list(self._initial) if state is None else state.active_groups or []
