"""Tools in groups, of which each session has some active."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from leafward.core.errors import ConfigurationError
from leafward.tools.definition import Tool
from leafward.tools.function_tools import as_tool
from leafward.tools.tool_set import ToolLike, ToolSet, tools_in


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """Tools that are offered together."""

    name: str
    description: str = ""
    switchable: bool = True
    """Whether a model may switch it on and off; else only the program does."""


class Toolkit(ToolSet):
    """The tools of an agent, in groups: `Toolkit().create_group("web").register(search, group="web")`.

    A tool without a group is always offered; one in a group while the group is active. Which groups are active is part
    of each session's state, `state.tool_context.activated_groups`: a toolkit holds only those that a new session begins
    with. An agent copies its toolkit when it is made, as `Toolkit(other)` does.

    Raises:
        ConfigurationError: these are not tools, or as `register`.
    """

    def __init__(self, tools: Mapping[str, Tool] | Iterable[ToolLike] = ()) -> None:
        super().__init__()
        self._groups: dict[str, ToolGroup] = {}
        self._initial: list[str] = []
        if isinstance(tools, Toolkit):
            self._add_groups(tools)
        for one in tools_in(tools):
            self.register(one)

    def create_group(self, name: str, description: str = "", active: bool = False, *, switchable: bool = True) -> Self:
        """Add a group; with `active`, new sessions begin with it.

        The model of an agent may switch it, by the tool `reset_equipped_tools`, whose description shows `description`.
        With `switchable=False` it may not: the group is what AgentScope calls external.

        Raises:
            ConfigurationError: a group has that name already, or the name is not a text.
        """
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"the name of a tool group is a text, not {name!r}")
        if name in self._groups:
            raise ConfigurationError(f"the tool group {name!r} exists already")
        self._groups[name] = ToolGroup(name, description, switchable)
        if active:
            self._initial.append(name)
        return self

    def register(self, function: ToolLike, group: str | None = None) -> Self:
        """Add a tool or a function, to the group that is named here or by `@tool(group=…)`.

        Raises:
            ConfigurationError: a tool has that name already, the group was not created, or a function cannot be a tool.
        """
        found = as_tool(function)
        if group is not None:
            found = replace(found, group=group)
        if found.group is not None and found.group not in self._groups:
            raise ConfigurationError(
                f"the tool {found.name!r} is in the group {found.group!r}, which does not exist: "
                f"create it first, with Toolkit().create_group({found.group!r})"
            )
        self._add(found)
        return self

    @property
    def groups(self) -> list[ToolGroup]:
        """All groups, in the order they were created."""
        return list(self._groups.values())

    @property
    def initial_groups(self) -> list[str]:
        """The names of the groups that are active in a new session."""
        return list(self._initial)

    def offered(self, active: Collection[str]) -> dict[str, Tool]:
        """Return the tools that a model is offered while these groups are active."""
        return {name: tool for name, tool in self._tools.items() if tool.group is None or tool.group in active}

    def __or__(self, other: Mapping[str, Tool] | Iterable[ToolLike]) -> Toolkit:
        merged = Toolkit()
        merged._add_groups(self)
        if isinstance(other, Toolkit):
            merged._add_groups(other)
        for one in super().__or__(other).values():
            merged.register(one)
        return merged

    def _add_groups(self, other: Toolkit) -> None:
        self._groups |= other._groups
        self._initial = list(dict.fromkeys((*self._initial, *other._initial)))
