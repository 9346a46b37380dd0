"""A class as a user might write it."""

from __future__ import annotations

from leafward.engine import InMemoryMemory, PlanNotebook, StateModule, Toolkit


class Assistant(StateModule):
    """A component of three others."""

    def __init__(self) -> None:
        self.memory = InMemoryMemory()
        self.plan = PlanNotebook()
        self.tools = Toolkit().create_group("web", active=True).create_group("files")
        self.title = "not a component"

    def components(self) -> list[StateModule]:
        return [self.memory, self.plan, self.tools]
