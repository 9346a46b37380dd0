"""`python -m leafward.cli.saver URL SESSION`: save a component of the demo, and end."""

from __future__ import annotations

import asyncio
import sys

from leafward import LeafwardError, assistant, open_store, user
from leafward.engine import InMemoryMemory, Plan, PlanNotebook, StateModule, SubTask


class Guide(StateModule):
    """A component of two others, saved under one key."""

    def __init__(self) -> None:
        self.memory = InMemoryMemory()
        self.notebook = PlanNotebook()

    def components(self) -> list[StateModule]:
        return [self.memory, self.notebook]


async def save(url: str, session_id: str) -> None:
    guide = Guide()
    guide.memory.add_message(user("Plan two days in Hangzhou."))
    guide.memory.add_message(assistant("Day one by the lake, day two in the tea villages."))
    steps = [SubTask("Walk around West Lake", state="DONE"), SubTask("Taste Longjing tea 龙井")]
    guide.notebook.current_plan = Plan("Hangzhou", "Two days", "A rested traveller", steps)
    async with open_store(url) as store:
        await guide.save_to(store, session_id)


def main() -> None:
    try:
        asyncio.run(save(*sys.argv[1:]))
    except LeafwardError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
