"""The step of the demo that shows components: one process saves them, another loads them."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE

from leafward import StoreError, open_store
from leafward.cli.saver import Guide
from leafward.cli.screen import Screen
from leafward.cli.stage import Demo, Facts

PATIENCE_S = 50.0


async def state(demo: Demo, screen: Screen) -> Facts:
    """Have another process save a component, and load it here."""
    saver = await asyncio.create_subprocess_exec(
        # -P: what lies in the current directory is not imported.
        *(sys.executable, "-P", "-m", "leafward.cli.saver", demo.url, demo.session_id),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        _, said = await asyncio.wait_for(saver.communicate(), PATIENCE_S)
    finally:
        if saver.returncode is None:
            saver.kill()
            await saver.wait()
    if saver.returncode:
        raise StoreError(f"the process that saves ended with {said.decode(errors='replace').strip()}")
    guide = Guide()
    async with open_store(demo.url) as store:
        await guide.load_from(store, demo.session_id)
        version = (await store.states.get_versioned(demo.session_id, "planNotebook_state")).version
    plan, remembered = guide.notebook.current_plan, guide.memory.get_messages()
    assert plan is not None
    screen.say(f"Process {saver.pid} saved a memory and a plan, and ended. Loaded here:")
    screen.say(f"{len(remembered)} messages, the last: {remembered[-1].text}")
    for step in plan.subtasks:
        screen.say(("✓ " if step.state == "DONE" else "· ", "bold"), step.name)
    return {
        "messages": [one.text for one in remembered],
        "plan": plan.name,
        "steps": {step.name: step.state for step in plan.subtasks},
        "version": version,
    }
