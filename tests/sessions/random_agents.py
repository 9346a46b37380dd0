"""Agents that do anything an agent can do to its session, in random order, and what must hold after each step.

python -m tests.sessions.random_agents --agents 500      as many agents, the seeds from 0
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass, field

from leafward import Session, create_compact_function, open_store
from leafward.formats import to_anthropic, to_openai_chat, to_openai_responses
from tests.formats.validators import check_anthropic, check_openai_chat, check_openai_responses
from tests.sessions.excuses import excuse
from tests.sessions.random_agent import RandomAgent

STEPS = 80
MOST = 60
THRESHOLDS = (800, 1_500, 3_000, 6_000)
OFTEN = ("say", "reply", "call", "call badly", "answer what waits", "turn")
"""What an agent does four times as often as anything else."""


@dataclass
class Findings:
    """What an agent met on its way."""

    payloads: int = 0
    compactions: int = 0
    reported: list[Exception] = field(default_factory=list)
    unexcused: list[Exception] = field(default_factory=list)
    """Those for which nothing else than the planner can be at fault."""


async def check(session: Session, findings: Findings, threshold: int, compactions: int, reported: int) -> None:
    """See that providers take what the session sends, and that a compaction that reported nothing has worked."""
    history = await session.get_history()
    recent = (await session.get_recent_history(max_tokens=500)).messages
    check_openai_chat(to_openai_chat(history))
    check_openai_responses(to_openai_responses(history))
    check_anthropic(to_anthropic(history))
    check_anthropic(to_anthropic(recent))
    findings.payloads += 4
    made = len(await session.get_compactions()) - compactions
    if made > 0 and len(findings.reported) == reported:
        findings.compactions += made
        tokens = await session.estimate_tokens()
        assert tokens <= threshold, f"{tokens} tokens are left after a compaction at {threshold}"


async def run_agent(seed: int) -> Findings:
    """Let one agent live, and return what it met."""
    dice = random.Random(seed)
    findings = Findings()
    threshold = dice.choice(THRESHOLDS)

    def summarize(prompt: str) -> str:
        return f"## Topic\nWeather, in {len(prompt)} characters."

    async def report(error: Exception) -> None:
        findings.reported.append(error)
        if await excuse(session, threshold, agent.growing) is None:
            findings.unexcused.append(error)

    async with open_store("memory://") as store:
        session = Session(
            store,
            on_compaction=create_compact_function(summarize=summarize),
            compact_after=threshold,
            on_compaction_error=report,
        )
        agent = RandomAgent(session)
        steps = [*agent.steps, *OFTEN, *OFTEN, *OFTEN]
        steps.remove("summarise by hand")  # it may leave more than the threshold, and is not an automatic compaction
        for _ in range(STEPS):
            before = len(await session.get_compactions()), len(findings.reported)
            await agent.step(dice.choice(steps), dice.randrange(MOST))
            await check(session, findings, threshold, *before)
    return findings


def main() -> None:
    """Run many agents and print what they met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100, help="how many agents, 100 by default")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed, 0 by default")
    arguments = parser.parse_args()
    payloads = compactions = 0
    reported: dict[str, int] = {}
    for seed in range(arguments.first, arguments.first + arguments.agents):
        try:
            found = asyncio.run(run_agent(seed))
        except BaseException as error:
            error.add_note(f"the agent of seed {seed}")
            raise
        payloads += found.payloads
        compactions += found.compactions
        for error in found.reported:
            reported[str(error)[:90]] = reported.get(str(error)[:90], 0) + 1
    print(
        f"{arguments.agents} agents, {payloads:,} payloads, 0 refused; {compactions:,} compactions, 0 above threshold"
    )
    for text, count in sorted(reported.items(), key=lambda each: -each[1])[:20]:
        print(f"  reported {count} times: {text}")


if __name__ == "__main__":
    main()
