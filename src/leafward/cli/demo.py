"""The demo: small steps, each of which shows one thing and what that proves."""

from __future__ import annotations

import time
from pathlib import Path

from leafward.cli.agent_steps import compact, fork, note, skill
from leafward.cli.file_steps import branch, checkout, crash, keep, remember, reopen, search
from leafward.cli.screen import Screen
from leafward.cli.stage import AGENT, Demo, Facts, Step
from leafward.cli.state_steps import state
from leafward.cli.turn_step import turn


async def run_demo(path: Path, screen: Screen) -> Facts:
    """Show every step and return what was found.

    Raises:
        LeafwardError: the file cannot be used, or something was not as promised.
    """
    began = time.monotonic()
    demo = Demo(path)
    steps: list[Facts] = []
    for number, step in enumerate(STEPS, 1):
        screen.title(number, step.title, step.proves)
        steps.append({"step": step.name, "proves": step.proves, **await step.show(demo, screen)})
    seconds = round(time.monotonic() - began, 2)
    screen.say("")
    screen.say(("All of it held.", "bold green"), f" {len(steps)} steps in {seconds} s.")
    return {
        "path": demo.where,
        "url": demo.url,
        "agent_id": AGENT,
        "session_id": demo.session_id,
        "seconds": seconds,
        "steps": steps,
    }


STEPS = (
    Step("remember", "Open a file", "One file holds it all; what earlier runs stored is still there.", remember),
    Step("crash", "Kill a process that writes to it", "The worst moment to die: in the middle of it.", crash),
    Step("reopen", "Open it again and compare", "Nothing acknowledged is lost, and a retry is safe.", reopen),
    Step("branch", "Branch below an early message", "A conversation is a tree; both ways are kept.", branch),
    Step("checkout", "Check out one branch, then the other", "Each branch has its own history.", checkout),
    Step("search", "Search in English and Chinese", "By stem, by phrase, and inside sentences.", search),
    Step("note", "Let the model take a note", "A block it writes; the prompt changes when you say so.", note),
    Step(
        "compact", "Compact the long branch", "The model sees a summary; every message stays, to be looked at.", compact
    ),
    Step("fork", "Fork the conversation", "A session of its own from an early message on, notes included.", fork),
    Step("skill", "Load a guide, and put it away", "What is no longer needed stops taking up the window.", skill),
    Step("state", "Load what another process saved", "Components outlive their process, whole and typed.", state),
    Step("turn", "Kill an agent inside its tools", "Another goes on with the turn; no effect happens twice.", turn),
    Step("keep", "Keep it", "It is an ordinary SQLite file, there for you to open.", keep),
)
