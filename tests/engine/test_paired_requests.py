"""What a model is asked: every call has one result directly below its reply, whatever a context holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.kitchen import unpaired
from leafward import Message, assistant, tool_result, user
from leafward.engine.paired_requests import paired
from leafward.formats import to_anthropic, to_openai_chat
from tests.formats.validators import check_anthropic, check_openai_chat

CALL_IDS = ["c0", "c1", "c2"]
"""So few that replies use them again and again."""


def calls(*ids: str) -> Message:
    return assistant([{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in ids])


def shown(messages: Sequence[Message]) -> list[str]:
    """Return what each part of a request is: a text's last line, a call, or the output of a result."""
    return [_shown(part) for message in messages for part in message.parts]


def _shown(part: dict[str, Any]) -> str:
    if part["type"] == "tool_use":
        return f"call {part['id']}"
    if part["type"] == "tool_result":
        return f"{part['id']}: {part['output'][0]['text']}"
    return part["text"].splitlines()[-1]


MISSING = "Not answered on this branch."
Q, DONE = user("q"), assistant("done")
ONE, TWO = tool_result("c1", "one"), tool_result("c2", "two")


@pytest.mark.parametrize(
    ("context", "request_"),
    [
        ([Q, ONE, TWO, calls("c1", "c2"), DONE], ["q", "call c1", "call c2", "c1: one", "c2: two", "done"]),
        ([Q, calls("c1", "c2"), TWO, ONE, DONE], ["q", "call c1", "call c2", "c1: one", "c2: two", "done"]),
        (
            [Q, calls("c1", "c2"), ONE, user("mid"), TWO, DONE],
            ["q", "call c1", "call c2", "c1: one", "c2: two", "mid", "done"],
        ),
        ([Q, calls("c1"), assistant("hm"), ONE, DONE], ["q", "call c1", "c1: one", "hm", "done"]),
        ([Q, calls("c1"), ONE, tool_result("c1", "again"), DONE], ["q", "call c1", "c1: one", "again", "done"]),
        ([Q, calls("c1"), calls("c1"), ONE], ["q", "call c1", f"c1: {MISSING}", "call c1", "c1: one"]),
        (
            [Q, calls("c1"), ONE, Q, tool_result("c1", "early"), TWO, calls("c1", "c2"), DONE],
            ["q", "call c1", "c1: one", "q", "early", "call c1", "call c2", f"c1: {MISSING}", "c2: two", "done"],
        ),
        ([ONE], ["one"]),
    ],
    ids=["above", "order", "between", "below a later reply", "two results", "two replies", "used again", "alone"],
)
def test_each_call_has_its_result_directly_below_its_reply(context: list[Message], request_: list[str]) -> None:
    assert shown(paired(context)) == request_


def test_results_in_one_message_with_words_are_taken_apart_only_where_they_must_be() -> None:
    sound = [calls("c1", "c2"), Message("user", [*ONE.parts, *TWO.parts, {"type": "text", "text": "hurry"}])]
    mixed = [calls("c1", "c2"), Message("user", [{"type": "text", "text": "hurry"}, *TWO.parts]), ONE]
    inside = [Message("assistant", [*calls("c1").parts, *ONE.parts, {"type": "text", "text": "so"}]), DONE]

    assert all(new is old for new, old in zip(paired(sound), sound, strict=True))
    assert shown(paired(mixed)) == ["call c1", "call c2", "c1: one", "c2: two", "hurry"]
    assert shown(paired(inside)) == ["call c1", "so", "c1: one", "done"]


@st.composite
def contexts(draw: st.DrawFn) -> list[Message]:
    """Draw texts, calls and results in any order; each text stands there once."""
    number = 0

    def text() -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"type": "text", "text": f"text {number}."}

    def called(id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": "look", "input": {}}

    def result(id: str) -> dict[str, Any]:
        return {"type": "tool_result", "id": id, "name": "look", "output": [text()], "state": "success"}

    found: list[Message] = []
    for kind in draw(st.lists(st.sampled_from(["user", "assistant", "calls", "result", "results", "mixed"]))):
        ids = draw(st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3, unique=True))
        if kind in ("user", "assistant"):
            found.append(Message(kind, [text()]))
        elif kind == "calls":
            found.append(Message("assistant", [text(), *map(called, ids)]))
        elif kind == "mixed":
            found.append(Message("user", draw(st.permutations([text(), *map(result, ids)]))))
        else:
            found.append(Message("tool", list(map(result, ids if kind == "results" else ids[:1]))))
    return found


def _texts(messages: Sequence[Message]) -> str:
    return str([message.parts for message in messages])


@given(contexts())
def test_every_request_is_paired_and_holds_every_text(context: list[Message]) -> None:
    request = paired(context)

    assert unpaired([one for message in request for one in _apart(message)]) is None
    check_openai_chat(to_openai_chat(request))
    check_anthropic(to_anthropic(request))
    for message in context:
        for part in message.parts:
            words = part["output"][0]["text"] if part["type"] == "tool_result" else part.get("text", "")
            assert words in _texts(request)
    again = paired(request)
    assert len(again) == len(request)
    assert all(new is old for new, old in zip(again, request, strict=True))


def _apart(message: Message) -> list[Message]:
    """Return the parts of a message of the user's, which may begin with results, as Anthropic has them."""
    if message.role == "assistant":
        return [message]
    return [Message("tool" if part["type"] == "tool_result" else message.role, [part]) for part in message.parts]
