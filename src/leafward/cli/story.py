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
