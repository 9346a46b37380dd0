"""The lines of a journal are those that a person, jq and AgentScope's reader expect."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from leafward import LATEST_LEAF, Message
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.core.notices import Reclaimed
from leafward.stores.contracts import NewOverlay, Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Prompt, Shelf
from leafward.stores.journal.transcript import entries_of, last_id
from leafward.stores.registry import Origin
from leafward.stores.sql import commands as c
from tests.stores.journal_rows import OWNER, SHARED, Journalled

GOLDEN = Path(__file__).parent / "fixtures" / "journal.log.jsonl"
AGENTSCOPE = {"message", "tool_use", "tool_result", "summary", "compaction"}
AT = 1_787_411_756_123_456
S = Scope(OWNER, "s")


def draft(role: str, parts: Any, id: str, **extra: Any) -> Draft:
    message = Message(role, parts, id=id, **extra)
    return Draft(*Message.stored(message.id, message.role, AT, message.body).sealed(), 3)


def whole_journal() -> Journalled:
    """Do each thing once that has a line of its own."""
    made = Journalled()
    call = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}, "state": "pending"}
    long = {"type": "tool_use", "id": "call_2", "name": "write", "input": {"text": "x" * 600}}
    answer = {"type": "tool_result", "id": "call_1", "name": "weather", "output": [{"type": "text", "text": "18C"}]}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    for command in (
        c.Create(S, Origin("Weather", None, "gpt", None)),
        c.Append(S, [draft("user", "Hello 你好", "m1")], LATEST_LEAF),
        c.Append(
            S,
            [
                draft(
                    "assistant", [{"type": "thinking", "thinking": "hmm"}, {"type": "text", "text": "ok"}, call], "m2"
                ),
                draft("tool", [answer], "m3"),
            ],
            LATEST_LEAF,
        ),
        c.Append(S, [draft("user", [image], "m4", name="Ann")], "m1"),
        c.Append(S, [draft("assistant", [long], "m5"), draft("user", [], "m6")], "m3"),
        c.Update(S, draft("user", "Hello again", "m1")),
        c.Label(S, "m1", "start"),
        c.AddOverlay(S, NewOverlay("o1", "They talked about Paris.", 5, AT, "m1", "m2")),
        c.Reclaim(S, [Reclaimed("m3", "call_1", "[gone]", 1)]),
        c.EditEntry(Shelf(S, "memory"), "", lambda _: "likes rain"),
        c.EditEntry(Shelf(S, "facts", True), "k", lambda _: "Paris is wet", "about Paris", True),
        c.LoadSkill(S, "skills", "cook"),
        c.UnloadSkill(S, "skills", "cook", []),
        c.KeepPrompt(S, Prompt("You are helpful.", 4, "abc"), True),
        c.Rename(S, "Rain"),
        c.AddUsage(S, Usage(10, 5, 0.25)),
        c.AddUsage(S, Usage(1, 2, 0.5, "gpt", "call 1")),
        c.Append(S, [], None, state=[AttachedState("plan", '{"step":0}')]),
        c.Append(
            S,
            [draft("user", "And 明天?", "m7")],
            LATEST_LEAF,
            state=[AttachedState("plan", '{"step":1}'), AttachedState("mood", '{"is":"晴"}')],
            usage=Usage(7, 3, 0.125, "gpt"),
        ),
        c.Append(S, [], "m7", state=[AttachedState("plan", None)]),
        c.Append(
            S, [draft("user", "?", "m8"), draft("user", "known", "m3")], "m7", state=[AttachedState("mood", "{}")]
        ),
        c.Checkout(S, "m4"),
        c.Delete(S, ["m6"]),
        c.Clear(S),
        c.End(S, "done"),
    ):
        made.do(command)
    made.do(c.Append(S, [draft("user", "Hi", "n1")], LATEST_LEAF, state=[AttachedState("plan", '{"step":2}')]))
    made.do(c.Fork(Scope(OWNER, "copy"), S, "n1", "Copy"))
    return made


def without_chance(data: bytes) -> str:
    """Return lines without what differs from run to run: fresh ids, and the checksums that hold them."""
    text = re.sub(r'"(id|incarnation)":"[0-9a-hjkmnp-tv-z]{26}"', r'"\1":"…"', data.decode())
    return re.sub(r'"crc":"[0-9a-f]{8}"', '"crc":"…"', text)


def test_the_lines_are_those_of_the_golden_file() -> None:
    made = whole_journal()

    lines = "".join(without_chance(made.journals[name]) for name in ("s", "copy", SHARED))

    assert lines == GOLDEN.read_text(encoding="utf-8")


def test_a_checkout_of_a_tip_is_written_down_as_the_message_it_found() -> None:
    made = Journalled()
    made.do(c.Append(S, [draft("user", "a", "a"), draft("user", "b", "b")], LATEST_LEAF))
    made.do(c.Append(S, [draft("user", "c", "c")], "a"))
    made.do(c.Checkout(S, "b"))

    made.do(c.Checkout(S, "a", tip=True))

    line = json.loads(made.journals["s"].decode().split("\n")[-2])
    assert (line["type"], line["leafward"]["message"]) == ("checkout", "c")


def test_a_line_begins_as_an_agentscope_entry() -> None:
    for data in whole_journal().journals.values():
        for line in data.decode().split("\n")[:-1]:
            entry = json.loads(line, parse_float=Decimal)
            keys = [key for key in ("type", "id", "parentId", "timestamp") if key in entry]
            assert list(entry)[: len(keys)] == keys
            assert list(entry)[-1] == "crc"
            assert None not in entry.values()
            assert re.search(r'"timestamp":[0-9]+\.[0-9]{9},', line)
            assert entry["timestamp"].as_tuple().exponent == -9
            assert line == line.strip()
            if entry["type"] == "message":
                assert entry["role"] == entry["role"].upper()
                assert isinstance(entry["content"], str)


def test_every_parent_of_an_agentscope_entry_is_an_entry_above_it() -> None:
    seen: set[str] = set()
    for line in whole_journal().journals["s"].decode().split("\n")[:-1]:
        entry = json.loads(line)
        if entry["type"] in AGENTSCOPE - {"summary", "compaction"}:
            assert entry.get("parentId") is None or entry["parentId"] in seen
            seen.add(entry["id"])


def test_a_message_becomes_the_entries_that_agentscope_derives() -> None:
    call = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}}
    both = Message("assistant", [{"type": "text", "text": "ok"}, call, {"type": "tool_use", "name": "x"}], id="m2")

    entries = entries_of(both, "m1")

    assert [(entry.type, entry.id, entry.parent_id) for entry in entries] == [
        ("message", "m2", "m1"),
        ("tool_use", "m2:use:call_1", "m2"),
        ("tool_use", "m2:use:idx-2", "m2:use:call_1"),
    ]
    assert last_id(both) == "m2:use:idx-2"
    assert [entry.block_types for entry in entries_of(Message("user", [], id="e"), None)] == [["empty"]]
    blank = entries_of(Message("user", " \n", id="b"), None)
    assert [(entry.content, entry.block_types) for entry in blank] == [("", ["text"])]
