"""The demo's conversation: the same messages for the process that writes them and the one that compares them."""

from __future__ import annotations

from collections.abc import Callable

from leafward import Message, assistant, tool_result, user

FORK = "m4"
"""The message below which the conversation branches."""

_CALL = {
    "type": "tool_use",
    "id": "call-1",
    "name": "timetable",
    "input": {"from": "Shanghai", "to": "Hangzhou"},
}

_OPENING: tuple[Callable[[str], Message], ...] = (
    lambda id: user(
        "Plan three days in Hangzhou for me. I take my coffee black, but I would like to learn about green tea.",
        id=id,
    ),
    lambda id: assistant("Three days are plenty: one at the lake, one in the tea hills, one in the old town.", id=id),
    lambda id: user("我想在西湖边喝龙井茶，什么时候去最好？", id=id),
    lambda id: assistant("清明前后最好。龙井村就在西湖西边，新茶那时刚刚炒好。", id=id),
    lambda id: user("How do I get there from Shanghai? Go through the whole timetable.", id=id),
    lambda id: Message("assistant", [{"type": "text", "text": "I am reading the timetable."}, _CALL], id=id),
    lambda id: tool_result("call-1", "Trains leave Shanghai Hongqiao all day.", name="timetable", id=id),
)


def message(number: int) -> Message:
    """Return the message of this number, from 1 on; there is always a next one."""
    if number <= len(_OPENING):
        return _OPENING[number - 1](f"m{number}")
    train = number - len(_OPENING)
    hour, minute = divmod(6 * 60 + train * 7, 60)
    text = f"Train G{7300 + train} leaves at {hour % 24:02}:{minute:02} and takes {45 + train * 13 % 30} minutes."
    return assistant(text, id=f"m{number}")


def other_way() -> list[Message]:
    """Return what is said on the second branch."""
    return [
        user("What if I go by bicycle instead?", id="bike-1"),
        assistant("It is 180 km along the canal: two days on a bike, with a night in Jiaxing.", id="bike-2"),
    ]


def decision() -> Message:
    """Return what is said after both ways were looked at."""
    return user("The bicycle it is. And tea when I arrive.", id="bike-3")


SOUL = "You are a patient travel agent. Note what you learn about the traveller."

NOTE = {"label": "traveller", "content": "Takes coffee black, wants to learn about green tea. Goes by bicycle."}
"""What the scripted model notes."""

LONG_NOTE = {"label": "traveller", "content": "Every word the traveller ever said, and then some. " * 40}
"""More than the block may hold."""

SUMMARY = """\
## Topic
Three days in Hangzhou, and how to get there from Shanghai.

## Key Points
Spring is best for Longjing tea (清明前后). The timetable was read to its end: a train leaves every seven minutes.

## Current State
All trains are listed.

## Open Items
The traveller has not chosen a train."""


def summarize(_: str) -> str:
    """Answer the request for a summary of the trains with one that was written beforehand."""
    return SUMMARY


def by_boat() -> Message:
    """Return what is said in the fork."""
    return user("Is there still a boat on the Grand Canal?", id="boat-1")


BOOKING = "Book me a bicycle for Saturday, if it is sunny."
"""What an agent is asked to do, in one process and then in another."""

GUIDE = "tea-tasting"

_GUIDE_TEXT = """\
# How to taste Longjing
Warm the glass first, and use water of about 80 °C: boiling water burns young leaves and makes them bitter.
Three grams of leaves are enough for a glass. Fill it to a third, turn it slowly, and smell: fresh chestnut and a trace
of beans mean that the pan was right. Fill it up, wait for two minutes, and look: leaves that stand upright and
sink one by one were picked with a single bud. Drink two thirds and fill it up again; the second glass is the best, the
third one is sweet. Ask when it was picked: before Qingming it is rare and costs accordingly, before Guyu it
is what people drink at home. Buy little, keep it cold and dark, and drink it within the year."""


def list_guides() -> str:
    """Return what the prompt says of the guides."""
    return f"- {GUIDE}: how to taste Longjing, step by step"


def load_guide(key: str) -> str | None:
    """Return a guide, or nothing when there is none of that key."""
    return _GUIDE_TEXT if key == GUIDE else None


def tool_call(call_id: str, name: str, arguments: dict[str, str], answer: str) -> list[Message]:
    """Return a model's call and the answer it got, as an agent stores them."""
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [Message("assistant", [call], id=f"{call_id}-asked"), tool_result(call_id, answer, name=name, id=call_id)]
