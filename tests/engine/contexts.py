"""Paths with rounds of tools and summaries, and edits of the contexts that show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from leafward.core.message import Message, body_to_read
from leafward.core.overlays import is_summary_id, summary_message
from leafward.engine.context_view import Difference


@dataclass
class Maker:
    """Makes messages, each with an id and a text that no other has."""

    number: int = 0
    prefix: str = "m"

    def next(self) -> str:
        self.number += 1
        return f"{self.prefix}{self.number}"

    def text(self, role: str) -> Message:
        id = self.next()
        return Message.stored(id, role, self.number, {"parts": [{"type": "text", "text": f"text of {id}"}]})

    def calls(self, ids: Sequence[str]) -> Message:
        id = self.next()
        parts = [{"type": "tool_use", "id": one, "name": "look", "input": {"of": id}} for one in ids]
        return Message.stored(id, "assistant", self.number, {"parts": parts})

    def result(self, call_id: str, role: str = "tool") -> Message:
        id = self.next()
        part: dict[str, Any] = {"type": "tool_result", "id": call_id, "output": f"found by {id}", "state": "success"}
        return Message.stored(id, role, self.number, {"parts": [part]})

    def summary(self, text: str) -> Message:
        return summary_message(self.next(), text, self.number)


CALLS = ["c0", "c1", "c2"]
"""So few that replies use them again and again."""
SUMMARIES = ["They met.", "They met and talked."]
"""So few that two of a path may be equal."""


@st.composite
def paths(draw: st.DrawFn, maker: Maker | None = None) -> list[Message]:
    """Draw a path; its last round of tools may lack results."""
    maker = Maker() if maker is None else maker
    path: list[Message] = []
    for step in draw(st.lists(st.sampled_from(["user", "assistant", "round", "open", "summary"]), max_size=7)):
        if step in ("user", "assistant"):
            path.append(maker.text(step))
        elif step == "summary":
            path.append(maker.summary(draw(st.sampled_from(SUMMARIES))))
        else:
            path += draw(rounds(maker, whole=step == "round"))
    return path


@st.composite
def rounds(draw: st.DrawFn, maker: Maker, *, whole: bool) -> list[Message]:
    """Draw a reply with calls, and its results in the order they came."""
    ids = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=draw(st.integers(0, 9)) != 0))
    came = draw(st.permutations(ids))
    role = draw(st.sampled_from(["tool", "tool", "user"]))
    kept = came if whole else came[: draw(st.integers(0, len(came)))]
    return [maker.calls(ids), *(maker.result(one, role) for one in kept)]


Edit = Callable[[st.DrawFn, Maker, list[Message]], None]


def append(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    context.append(maker.text(draw(st.sampled_from(["user", "assistant"]))))


def answer(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    context.append(maker.result(draw(st.sampled_from(CALLS))))


def call(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    context += draw(rounds(maker, whole=False))


def put(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    made = maker.text("user") if draw(st.booleans()) else maker.result(draw(st.sampled_from(CALLS)))
    context.insert(draw(st.integers(0, len(context))), made)


def cut(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    del context[: draw(st.integers(0, len(context)))]


def remove(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    start = draw(st.integers(0, len(context)))
    del context[start : start + draw(st.integers(0, 3))]


def move(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    if context:
        moved = context.pop(draw(st.integers(0, len(context) - 1)))
        context.insert(draw(st.integers(0, len(context))), moved)


def replace(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    if context:
        row = draw(st.integers(0, len(context) - 1))
        context[row] = changed(context[row], f"changed by {maker.next()}")


def copy(draw: st.DrawFn, maker: Maker, context: list[Message]) -> None:
    """Put another object that says the same in the place of a message."""
    if context:
        row = draw(st.integers(0, len(context) - 1))
        one = context[row]
        context[row] = Message.stored(one.id, one.role, one.at + draw(st.integers(0, 1)), dict(body_to_read(one)))


EDITS: list[Edit] = [append, answer, call, put, cut, remove, move, replace, copy]


def changed(message: Message, text: str) -> Message:
    body = {**body_to_read(message), "parts": [*body_to_read(message)["parts"], {"type": "text", "text": text}]}
    return Message.stored(message.id, message.role, message.at, body)


@st.composite
def edited(draw: st.DrawFn, context: Sequence[Message], maker: Maker) -> list[Message]:
    """Draw what became of a context."""
    found = list(context)
    for edit in draw(st.lists(st.sampled_from(EDITS), max_size=4)):
        edit(draw, maker, found)
    return found


@dataclass
class Stored:
    """A path in a tree, which keeps what a store keeps: an update changes no time, and a summary never."""

    path: list[Message] = field(default_factory=list)

    def apply(self, found: Difference) -> list[Message]:
        rows = {message.id: row for row, message in enumerate(self.path)}
        for message in found.updated:
            assert not is_summary_id(message.id)
            row = rows[message.id]
            self.path[row] = Message.stored(message.id, message.role, self.path[row].at, body_to_read(message))
        for message in found.appended:
            assert message.id not in rows
            assert not is_summary_id(message.id)
            self.path.append(message)
        return self.path


def said(messages: Sequence[Message]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return what messages say: all of them but their times, which an update does not change."""
    return [(message.id, message.role, body_to_read(message)) for message in messages]
