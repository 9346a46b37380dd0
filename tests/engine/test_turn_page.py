"""What docs/concepts/turn.md says is stored when, compared with the journal of a real turn."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from leafward import AgentState, CompactionConfig, ReActAgent, RuntimeContext, SessionKey, open_store, tool
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

PAGE = Path(__file__).parent.parent.parent / "docs" / "concepts" / "turn.md"
SPAN = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of the page's table."""

    when: str
    lines: list[str]
    """The lines of one batch in the journal; empty if the row writes none."""
    slot: str


def rows() -> Iterator[Row]:
    section = PAGE.read_text(encoding="utf-8").partition("## What is stored when\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if re.match(r"\| \d", line):
            _, when, lines, slot = line.strip("| ").split(" | ")
            yield Row(when, SPAN.findall(lines), slot)


class Watch:
    """Notes what has been stored since it last looked."""

    def __init__(self, journal: Path, store: Store) -> None:
        self._journal = journal
        self._store = store
        self._batches = 0
        self._slot = 0
        self.found: list[tuple[str, list[list[str]], str]] = []

    async def look(self, moment: str) -> None:
        batches = list(_batches(self._journal))
        slot = await self._store.states.get_versioned(SessionKey("s1", "alice"), "agent_state", AgentState)
        assert slot.value is not None
        words = "–"
        if slot.version != self._slot:
            words = "replaced, with all messages" if slot.value.context else "created, without messages"
            assert slot.version == self._slot + 1
        self.found.append((moment, batches[self._batches :], words))
        self._batches, self._slot = len(batches), slot.version


def _batches(journal: Path) -> Iterator[list[str]]:
    """Yield the lines of each batch but the first one of a journal, which says whose it is."""
    lines: list[str] = []
    for text in journal.read_text(encoding="utf-8").splitlines()[1:]:
        line = json.loads(text)
        name: str | None = line.get("leafward", {}).get("name")
        lines.append(f"{line['type']} {name}" if line["type"] == "state" else line["type"])
        if not line.get("leafward", {}).get("more"):
            yield lines
            lines = []


async def test_what_is_stored_when_is_what_the_page_says(tmp_path: Path) -> None:
    first, asked, intent, result, final, last, *_ = rows()
    async with open_store(f"file://{tmp_path}") as store:
        watch = Watch(tmp_path / "alice/agents/travel/sessions/s1.log.jsonl", store)
        rain_is_stored = asyncio.Event()

        @tool
        async def forecast(city: str) -> str:
            """Tell the weather; for Kyoto, after the result for London is stored."""
            if city == "Kyoto":
                await rain_is_stored.wait()
                return "sun"
            await watch.look("tools run")
            return "rain"

        async def begin(request: Any) -> Any:
            await watch.look("the model is asked")
            return ["Let me look.", call("forecast", {"city": "London"}), call("forecast", {"city": "Kyoto"})]

        async def end(request: Any) -> Any:
            await watch.look("the model is asked again")
            return "Go to Kyoto."

        agent = ReActAgent("travel", ScriptedModel([begin, end]), tools=[forecast], store=store)
        async for event in agent.stream("London or Kyoto?", RuntimeContext("alice", "s1")):
            if event.type == "TOOL_RESULT_END":
                await watch.look("a tool has ended")
                rain_is_stored.set()
            if event.type == "AGENT_RESULT":
                await watch.look("the reply is given")

    assert watch.found == [
        ("the model is asked", [asked.lines], first.slot),
        # Two calls: the reply's text, then a line for each.
        ("tools run", [_with_calls(intent.lines, 2)], "–"),
        ("a tool has ended", [result.lines], "–"),
        ("a tool has ended", [result.lines], "–"),
        ("the model is asked again", [], "–"),
        ("the reply is given", [final.lines], last.slot),
    ]
    assert not first.lines
    assert not last.lines


async def test_what_a_compaction_stores_is_what_the_page_says(tmp_path: Path) -> None:
    *_, summary, then = rows()
    async with open_store(f"file://{tmp_path}") as store:
        watch = Watch(tmp_path / "alice/agents/travel/sessions/s1.log.jsonl", store)

        async def answer(request: Any) -> Any:
            if "CONVERSATION TO SUMMARIZE" in request.messages[0].text:
                await watch.look("the summary is asked for")
                return "They greeted each other."
            await watch.look("the model is asked")
            return "Hello, and welcome back to the travel agency."

        config = CompactionConfig(trigger_messages=3, keep_messages=1)
        agent = ReActAgent("travel", ScriptedModel(answer), store=store, compaction=config)
        for words in ("Hello, I am back and would like to travel.", "Where to?"):
            await agent.call(words, RuntimeContext("alice", "s1"))

    assert watch.found[-1] == ("the model is asked", [summary.lines, then.lines], "–")
    assert (summary.slot, then.slot) == ("–", "–")


def _with_calls(lines: list[str], calls: int) -> list[str]:
    place = lines.index("tool_use")
    return [*lines[:place], *["tool_use"] * calls, *lines[place + 1 :]]
