"""Agents that do anything an agent can do to its session, in random order, and what must hold after each step.

python -m tests.sessions.random_agents --agents 500      as many agents, the seeds from 0
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from leafward import Message, Session, assistant, create_compact_function, open_store, tool_result, user
from leafward.formats import to_anthropic, to_openai_chat, to_openai_responses
from tests.formats.validators import check_anthropic, check_openai_chat, check_openai_responses
from tests.sessions.excuses import excuse

STEPS = 80
THRESHOLDS = (1_500, 3_000, 6_000, 20_000)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@dataclass
class Findings:
    """What an agent met on its way."""

    payloads: int = 0
    compactions: int = 0
    reported: list[Exception] = field(default_factory=list)
    unexcused: list[Exception] = field(default_factory=list)
    """Those for which nothing else than the planner can be at fault."""


class RandomAgent:
    """One session on which random things happen."""

    def __init__(self, session: Session, threshold: int, dice: random.Random, findings: Findings) -> None:
        self._session = session
        self._threshold = threshold
        self._dice = dice
        self._findings = findings
        self._open: list[str] = []
        self._made = 0

    async def live(self) -> None:
        """Do something, then see that the session is sound, again and again."""
        acts: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (10, self._say),
            (8, self._call_tools),
            (8, self._answer),
            (2, self._answer_out_of_nowhere),
            (2, self._store_as_openai_does),
            (2, self._store_as_ai_sdk_does),
            (2, self._edit),
            (2, self._delete),
            (2, self._go_elsewhere),
            (1, self._say_much),
            (1, self._read_a_large_file),
        ]
        weights = [weight for weight, _ in acts]
        for _ in range(STEPS):
            _, act = self._dice.choices(acts, weights)[0]
            before = len(await self._session.get_compactions()), len(self._findings.reported)
            await act()
            await self._check(*before)

    async def _check(self, compactions: int, reported: int) -> None:
        history = await self._session.get_history()
        check_openai_chat(to_openai_chat(history))
        check_openai_responses(to_openai_responses(history))
        check_anthropic(to_anthropic(history))
        recent = (await self._session.get_recent_history(max_tokens=500)).messages
        check_anthropic(to_anthropic(recent))
        self._findings.payloads += 4
        made = len(await self._session.get_compactions()) - compactions
        if made > 0 and len(self._findings.reported) == reported:
            self._findings.compactions += made
            tokens = await self._session.estimate_tokens()
            assert tokens <= self._threshold, f"{tokens} tokens are left after a compaction at {self._threshold}"

    def _words(self, most: int = 60) -> str:
        count = self._dice.randrange(1, most)
        return " ".join(self._dice.choice(["wind", "from", "the", "west", "天気", "knots"]) for _ in range(count))

    def _id(self) -> str:
        # Some models number the calls of each reply from nought.
        self._made += 1
        return self._dice.choice([f"call_{self._made}", f"call_{self._dice.randrange(3)}", "", f"call {self._made}/x"])

    async def _ids(self) -> list[str]:
        return [message.id for message in await self._session.get_raw_history()]

    async def _say(self) -> None:
        maker = self._dice.choice([user, assistant])
        await self._session.append_message(maker(self._words()))

    async def _say_much(self) -> None:
        await self._session.append_message(user(self._words(4 * self._threshold)))

    async def _call_tools(self) -> None:
        calls: list[dict[str, Any]] = []
        for _ in range(self._dice.randrange(1, 4)):
            given = self._dice.choice([{"q": self._words(9)}, '{"cut', "", "[1]", None, {}])
            kind = self._dice.choice(["tool_use", "tool_use", "tool_call"])
            name = self._dice.choice(["look", "look it up!", ""])
            calls.append({"type": kind, "id": self._id(), "name": name, "input": given})
        self._open += [call["id"] for call in calls]
        said = [{"type": "text", "text": self._words()}] if self._dice.random() < 0.5 else []
        await self._session.append_message(assistant([*said, *calls]))

    async def _answer(self) -> None:
        self._dice.shuffle(self._open)
        while self._open and self._dice.random() < 0.8:
            await self._session.append_message(self._result(self._open.pop(), self._words()))

    def _result(self, call_id: str, words: str) -> Message:
        state = self._dice.choice(["success", "success", "error", "running"])
        block = {"type": "text", "text": words}
        return self._dice.choice(
            [
                tool_result(call_id, words, state=state),
                tool_result(call_id, [block, IMAGE], name="look"),
                Message("user", [{"type": "tool_result", "tool_use_id": call_id, "content": words}, block]),
            ]
        )

    async def _answer_out_of_nowhere(self) -> None:
        await self._session.append_message(self._result(f"lost_{self._made}", self._words()))

    async def _read_a_large_file(self) -> None:
        call_id = f"large_{self._made}"
        self._made += 1
        await self._session.append_message(
            assistant([{"type": "tool_use", "id": call_id, "name": "read", "input": {"path": "x.log"}}])
        )
        await self._session.append_message(tool_result(call_id, self._words(4 * self._threshold)))

    async def _store_as_openai_does(self) -> None:
        call_id = f"openai_{self._made}"
        self._made += 1
        function = {"name": "look", "arguments": self._dice.choice(['{"q": 1}', '{"q": '])}
        calls = [{"id": call_id, "type": "function", "function": function}]
        await self._session.append_message({"role": "assistant", "content": None, "tool_calls": calls})
        if self._dice.random() < 0.7:
            await self._session.append_message({"role": "tool", "tool_call_id": call_id, "content": self._words()})

    async def _store_as_ai_sdk_does(self) -> None:
        state = self._dice.choice(["input-available", "output-available", "output-error", "approval-requested"])
        part: dict[str, Any] = {
            "type": "tool-look",
            "toolCallId": f"ui_{self._made}",
            "state": state,
            "input": {"q": 1},
        }
        self._made += 1
        if state == "output-available":
            part["output"] = {"found": self._words()}
        if state == "output-error":
            part["errorText"] = self._words()
        chart = {"type": "data-chart", "data": {"points": self._words(900)}}
        await self._session.append_message(assistant([{"type": "step-start"}, part, chart]))

    async def _edit(self) -> None:
        ids = await self._ids()
        if ids:
            chosen = await self._session.get_message(self._dice.choice(ids))
            assert chosen is not None
            await self._session.update_message(Message(chosen.role, self._words(), id=chosen.id))

    async def _delete(self) -> None:
        ids = await self._ids()
        await self._session.delete_messages(self._dice.sample(ids, min(len(ids), self._dice.randrange(3))))

    async def _go_elsewhere(self) -> None:
        tree = await self._session.get_tree()
        await self._session.checkout(self._dice.choice([None, *(node.id for node in tree)]))


async def run_agent(seed: int) -> Findings:
    """Let one agent live, and return what it met."""
    dice = random.Random(seed)
    findings = Findings()
    threshold = dice.choice(THRESHOLDS)

    def summarize(prompt: str) -> str:
        return f"## Topic\nWeather, in {len(prompt)} characters."

    async def report(error: Exception) -> None:
        findings.reported.append(error)
        if await excuse(session, threshold) is None:
            findings.unexcused.append(error)

    async with open_store("memory://") as store:
        session = Session(
            store,
            on_compaction=create_compact_function(summarize=summarize),
            compact_after=threshold,
            on_compaction_error=report,
        )
        await RandomAgent(session, threshold, dice, findings).live()
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
