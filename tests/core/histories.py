"""Histories with every shape of tool call, and what a cut must keep together in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from leafward import Message
from leafward.core.overlays import summary_message

MARK = re.compile(r"⟦\d+⟧")
CALL_IDS = ["call_0", "call_1", "call_2"]
"""So few that ids are used again and again."""


def marks(text: str) -> set[str]:
    return set(MARK.findall(text))


def marks_of(messages: Sequence[Message]) -> set[str]:
    return {mark for message in messages for mark in marks(str(message.parts))}


@dataclass
class History:
    """Messages, each of whose texts, inputs and outputs holds a mark of its own."""

    messages: list[Message] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    """The calls and results that belong together, by the number of their message."""
    pending: int | None = None
    """The message whose call still runs."""
    _marks: int = 0

    def mark(self) -> str:
        self._marks += 1
        return f"⟦{self._marks}⟧"

    def add(self, role: str, parts: list[dict[str, Any]]) -> int:
        self.messages.append(Message(role, parts, id=f"m{len(self.messages)}"))
        return len(self.messages) - 1

    def text(self) -> dict[str, Any]:
        return {"type": "text", "text": f"words {self.mark()} " + "and more " * (self._marks % 7)}

    def call(self, call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "look", "input": {"at": self.mark()}}

    def result(self, call_id: str, **fields: Any) -> dict[str, Any]:
        key = "id" if self._marks % 2 else "tool_use_id"
        return {"type": "tool_result", key: call_id, "output": self.mark(), **fields}

    def ui_call(self, call_id: str, state: str) -> dict[str, Any]:
        return {"type": "tool-look", "toolCallId": call_id, "state": state, "input": {"at": self.mark()}}


Step = Callable[[History, list[str]], None]


def say(history: History, _: list[str]) -> None:
    history.add("user", [history.text()])


def reply(history: History, _: list[str]) -> None:
    history.add("assistant", [history.text()])


def use_a_ui_tool(history: History, ids: list[str]) -> None:
    part = history.ui_call(f"ui {len(history.messages)} {ids[0]}", "output-available")
    history.add("assistant", [history.text(), {**part, "output": {"seen": history.mark()}}])


def summary_before(history: History, _: list[str]) -> None:
    number = len(history.messages)
    history.messages.append(summary_message(str(number), f"summary {history.mark()}", 0))


def call_and_answer_in_one_message(history: History, ids: list[str]) -> None:
    call = history.add("assistant", [history.text(), *map(history.call, ids)])
    history.pairs.append((call, history.add("tool", [*map(history.result, ids)])))


def call_and_answer_one_by_one(history: History, ids: list[str]) -> None:
    call = history.add("assistant", [*map(history.call, ids)])
    history.pairs += [(call, history.add("tool", [history.result(call_id)])) for call_id in reversed(ids)]


def call_and_answer_crosswise(history: History, ids: list[str]) -> None:
    calls = [history.add("assistant", [history.call(call_id)]) for call_id in ids]
    history.pairs += [
        (call, history.add("user", [history.result(call_id), history.text()]))
        for call, call_id in zip(calls, ids, strict=True)
    ]


def call_answered_by_a_part_of_the_next_assistant_message(history: History, ids: list[str]) -> None:
    call_id = f"ui {len(history.messages)} {ids[0]}"
    call = history.add("assistant", [history.ui_call(call_id, "input-available")])
    answer = {"type": "tool-look", "toolCallId": call_id, "state": "output-available", "output": history.mark()}
    history.pairs.append((call, history.add("assistant", [answer, history.text()])))


def call_answered_again_later(history: History, ids: list[str]) -> None:
    call_id = f"again {len(history.messages)}"
    call = history.add("assistant", [history.call(call_id)])
    first = history.add("tool", [history.result(call_id)])
    history.add("assistant", [history.text()])
    history.pairs += [(call, first), (call, history.add("tool", [history.result(call_id)]))]


def call_answered_for_now_then_for_good(history: History, ids: list[str]) -> None:
    call = history.add("assistant", [history.call(ids[0])])
    first = history.add("tool", [history.result(ids[0], state="running")])
    history.add("assistant", [history.text()])
    history.pairs += [(call, first), (call, history.add("tool", [history.result(ids[0])]))]


def crash_after_a_call(history: History, ids: list[str]) -> None:
    # Its id may be used again, by calls that do get their result.
    history.add("assistant", [history.call(ids[0])])
    history.add("user", [history.text()])


STEPS: list[Step] = [
    say,
    reply,
    use_a_ui_tool,
    call_and_answer_in_one_message,
    call_and_answer_one_by_one,
    call_and_answer_crosswise,
    call_answered_by_a_part_of_the_next_assistant_message,
    call_answered_again_later,
    call_answered_for_now_then_for_good,
    crash_after_a_call,
]


def wait_for_a_tool(history: History, ids: list[str]) -> None:
    history.pending = history.add("assistant", [history.text(), *map(history.call, [*ids, "slow"])])
    history.pairs += [(history.pending, history.add("tool", [history.result(call_id)])) for call_id in ids]


def wait_for_an_approval(history: History, ids: list[str]) -> None:
    history.pending = history.add("assistant", [history.text(), history.ui_call("asks", "approval-requested")])


def wait_for_somebody_elses_tool(history: History, ids: list[str]) -> None:
    history.pending = history.add("assistant", [history.call("outside")])
    history.pairs.append((history.pending, history.add("tool", [history.result("outside", state="running")])))


ENDINGS: list[Step] = [say, wait_for_a_tool, wait_for_an_approval, wait_for_somebody_elses_tool]

call_ids = st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3, unique=True)


@st.composite
def histories(draw: st.DrawFn, *, summaries: bool = False) -> History:
    """Draw a history that ends with or without a pending call."""
    history = History()
    steps = STEPS + [summary_before] * (2 if summaries else 0)
    for step, ids in draw(st.lists(st.tuples(st.sampled_from(steps), call_ids), max_size=14)):
        step(history, ids)
    draw(st.sampled_from(ENDINGS))(history, draw(call_ids))
    return history
