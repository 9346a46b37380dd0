"""A journal tells all that was done to a session."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from leafward import LATEST_LEAF, Message, StoreError
from leafward.core.attached_state import TURN, AttachedState
from leafward.core.ids import Scope
from leafward.core.notices import Reclaimed
from leafward.stores.contracts import NewOverlay, Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Prompt, Shelf
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.lines import encode, read
from leafward.stores.journal.records import header, record
from leafward.stores.journal.replaying import commands, read_header
from leafward.stores.registry import Origin
from leafward.stores.sql import commands as c
from tests.stores.journal_rows import OWNER, Journalled, replayed

SCOPES = [Scope(OWNER, "one"), Scope(OWNER, "two"), Scope(OWNER, "three")]
scopes = st.sampled_from(SCOPES)
ids = st.sampled_from([f"m{number}" for number in range(7)])
overlay_ids = st.sampled_from(["o1", "o2", "o3"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\u2028\u0085\r\n", "\0", " "]
)
labels = st.sampled_from(["memory", "notes"])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    part = st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        texts.map(lambda text: {"type": "thinking", "thinking": text}),
        texts.map(lambda text: {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": text * 99}}),
        texts.map(lambda text: {"type": "tool_result", "id": "c1", "output": [{"type": "text", "text": text * 99}]}),
        st.just({"type": "tool-look", "toolCallId": "c2", "state": "output-available", "input": 1, "output": [1.5]}),
        st.just({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
    )
    extra: dict[str, Any] = draw(
        st.sampled_from([{}, {"metadata": {"n": 1e300, "x": None}}, {"name": "Ann"}, {"zzz": [2**63]}])
    )
    role = draw(st.sampled_from(["user", "assistant", "tool", "Developer", "ß"]))
    return Message(role, draw(st.lists(part, max_size=3)), id=draw(ids), **extra)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    message, body = draw(messages()).sealed()
    return Draft(message, body, draw(st.integers(0, 1000)))


def edits(content: str | None) -> Any:
    return lambda _: content


reclaimed = st.lists(st.builds(Reclaimed, ids, st.sampled_from(["c1", "c2"]), texts, st.integers(0, 9)), max_size=2)
values = st.sampled_from(["{}", '{"a":1}', '{"a":true}', '{"b":"\u2028 你好","a":1}', '{"a":1,"b":"\u2028 你好"}'])
states = st.lists(st.builds(AttachedState, st.sampled_from(["plan", "状態", TURN]), st.none() | values), max_size=3)
usages = st.builds(
    Usage,
    st.integers(0, 99),
    st.integers(0, 99),
    st.floats(0, 1e6),
    st.none() | st.sampled_from(["a-model", "另一个"]),
    st.none() | ids,
)
USAGE = Usage(3, 5, 0.25, "a-model", "call 1")
parents = ids | st.just(LATEST_LEAF) | st.none()
done = st.one_of(
    st.builds(c.Append, scopes, st.lists(drafts(), max_size=4, unique_by=lambda one: one.message.id), parents),
    st.builds(
        c.Append,
        scopes,
        st.lists(drafts(), max_size=2, unique_by=lambda one: one.message.id),
        parents,
        state=states,
        usage=st.none() | usages,
        expected_version=st.none() | st.integers(0, 5),
    ),
    st.builds(c.Append, scopes, st.just([]), parents, state=states, usage=st.none() | usages),
    st.builds(c.Update, scopes, drafts()),
    st.builds(c.Upsert, scopes, drafts(), parents),
    st.builds(c.Delete, scopes, st.lists(ids, max_size=3)),
    st.builds(c.Clear, scopes),
    st.builds(c.Checkout, scopes, ids | st.none()),
    st.builds(c.Label, scopes, ids, texts | st.none()),
    st.builds(
        c.AddOverlay,
        scopes,
        st.builds(NewOverlay, overlay_ids, texts, st.integers(0, 9), st.integers(-(10**15), 10**15), ids, ids),
    ),
    st.builds(c.Reclaim, scopes, reclaimed),
    st.builds(
        c.EditEntry,
        st.builds(Shelf, scopes, labels, st.booleans()),
        st.sampled_from(["", "k"]),
        (texts | st.none()).map(edits),
        texts | st.none(),
        st.booleans(),
    ),
    st.builds(c.LoadSkill, scopes, labels, texts),
    st.builds(c.UnloadSkill, scopes, labels, texts, reclaimed),
    st.builds(c.KeepPrompt, scopes, st.builds(Prompt, texts, st.integers(0, 9), texts), st.booleans()),
    st.builds(c.Create, scopes, st.builds(Origin, texts, ids | st.none(), texts | st.none(), texts | st.none())),
    st.builds(c.Rename, scopes, texts),
    st.builds(c.AddUsage, scopes, usages),
    st.builds(c.Remove, scopes),
    st.builds(c.Fork, scopes, scopes, ids, texts),
    st.builds(c.Split, scopes, scopes, texts | st.none(), drafts()),
)


def journalled(steps: list[Any]) -> Journalled:
    made = Journalled()
    for step in steps:
        made.do(step)
    return made


@settings(max_examples=150)
@given(st.lists(done, max_size=25))
def test_replaying_a_journal_gives_the_rows_it_was_written_from(steps: list[Any]) -> None:
    made = journalled(steps)

    again = replayed(made.journals)

    assert again.shared() == made.rows.shared()
    for scope in SCOPES:
        assert again.session(scope) == made.rows.session(scope)
        assert again.answers(scope) == made.rows.answers(scope)


def small_journal() -> bytes:
    """Return a journal with batches of one line and of several."""
    scope = SCOPES[0]
    made = Journalled()
    calls = [{"type": "text", "text": "Let me look"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]
    told = [Message("user", "Hi", id="a"), Message("assistant", calls, id="b"), Message("user", "你好", id="c")]
    made.do(c.Append(scope, [Draft(*one.sealed(), 3) for one in told[:2]], LATEST_LEAF))
    made.do(c.Label(scope, "a", "start"))
    made.do(c.Append(scope, [Draft(*told[2].sealed(), 3)], LATEST_LEAF))
    made.do(c.AddOverlay(scope, NewOverlay("o", "They met.", 2, 5, "a", "b")))
    plan = [AttachedState("plan", '{"step":"一"}'), AttachedState("mood", None)]
    made.do(c.Append(scope, [], None, state=[AttachedState("mood", "{}")]))
    made.do(c.Append(scope, [Draft(*Message("user", "On", id="d").sealed(), 3)], "a", state=plan, usage=USAGE))
    return made.journals[scope.session_id]


def test_every_cut_of_a_journal_leaves_its_whole_batches() -> None:
    data = small_journal()
    whole = read(data)
    assert whole.torn is None
    assert not whole.damage
    assert [len(batch.entries) for batch in whole.batches] == [1, 3, 1, 1, 2, 1, 4]

    for cut in range(len(data)):
        found = read(data[:cut])

        before = [batch for batch in whole.batches if batch.end <= cut]
        assert [batch.end for batch in found.batches] == [batch.end for batch in before]
        assert found.damage == []
        end = before[-1].end if before else 0
        assert found.end == end
        assert found.torn == (None if cut == end else end)


def test_every_changed_byte_of_a_journal_is_found() -> None:
    data = small_journal()
    whole = [batch.start for batch in read(data).batches]

    for place in range(len(data)):
        for flipped in (data[place] ^ 0x01, data[place] ^ 0x20, 0):
            changed = data[:place] + bytes([flipped]) + data[place + 1 :]
            if changed == data:
                continue
            found = read(changed)

            assert found.damage or found.torn is not None
            hurt = max(start for start in whole if start <= place)
            assert hurt not in [batch.start for batch in found.batches]


@given(st.data())
def test_lost_doubled_and_swapped_lines_are_found(data: st.DataObject) -> None:
    lines = small_journal().splitlines(keepends=True)
    first = data.draw(st.integers(0, len(lines) - 2))
    second = data.draw(st.integers(first + 1, len(lines) - 1))
    swapped = lines.copy()
    swapped[first], swapped[second] = lines[second], lines[first]

    for changed in (
        lines[:first] + lines[first + 1 :],
        lines[: first + 1] + lines[first:],
        swapped,
    ):
        found = read(b"".join(changed))
        assert found.damage or found.torn is not None


def test_what_is_whole_around_a_damaged_line_is_read() -> None:
    data = small_journal()
    place = data.index(b'"start"') + 1

    found = read(data[:place] + b"X" + data[place + 1 :])

    assert [(one.line, one.offset) for one in found.damage] == [(5, data.rindex(b"\n", 0, place) + 1)]
    assert [len(batch.entries) for batch in found.batches] == [1, 3, 1, 2, 1, 4]
    assert found.torn is None


def labelled(data: bytes, count: int) -> list[Entry]:
    """Return so many different lines like the one of a journal that names a message."""
    label = next(entry for entry in read(data).entries if entry.type == "label")
    return [replace(label, id=f"label {n}") for n in range(count)]


@pytest.mark.parametrize("changes", ["the text", "the checksum", "one or the other"])
def test_any_number_of_damaged_lines_is_read_past_at_once(changes: str) -> None:
    count = 5000
    data = small_journal()
    lines = encode(labelled(data, count), read(data).crc)[0].splitlines(keepends=True)
    for n in range(10, count - 10):
        if changes == "the text" or (changes != "the checksum" and n % 3):
            lines[n] = lines[n].replace(b'"start"', b'"stXrt"')
        else:
            lines[n] = lines[n][:-11] + b'00000000"}\n'
    changed = data + b"".join(lines)

    began = time.process_time()
    found = read(changed)

    assert time.process_time() - began < 1
    assert len(found.damage) >= count - 20
    assert len(found.batches) >= 7 + 10 + 9
    assert found.batches[-1].end == len(changed)
    assert found.torn is None


@given(st.data())
def test_lines_after_damaged_ones_are_found(data: st.DataObject) -> None:
    whole = small_journal()
    lines = (whole + encode(labelled(whole, 9), read(whole).crc)[0]).splitlines(keepends=True)
    first = data.draw(st.integers(1, len(lines) - 3))
    for n in range(first, data.draw(st.integers(first, len(lines) - 3)) + 1):
        place = data.draw(st.integers(0, len(lines[n]) - 20))
        lines[n] = lines[n][:place] + b"#" + lines[n][place + 1 :]

    found = read(b"".join(lines))

    assert found.damage
    assert found.batches[-1].end == sum(map(len, lines))


def test_a_journal_can_be_read_on_from_where_it_was_read_to() -> None:
    data = small_journal()
    first = read(data).batches[1]

    rest = read(data[first.end :], first.crc, offset=first.end, line=5)

    assert [batch.start for batch in rest.batches] == [batch.start for batch in read(data).batches[2:]]
    assert rest.line == 14
    assert rest.crc == read(data).crc


def test_the_checksum_is_the_one_that_the_format_page_tells() -> None:
    crc = 0
    for line in small_journal().split(b"\n")[:-1]:
        told, _, rest = line.rpartition(b',"crc":"')
        crc = zlib.crc32(told + b"}", crc)
        assert rest == b'%08x"}' % crc


def test_a_session_that_begins_with_nothing_but_usage_is_replayed() -> None:
    made = Journalled()
    made.do(c.Append(SCOPES[0], [], LATEST_LEAF, usage=USAGE))

    assert [entry.type for entry in read(made.journals["one"]).entries] == ["session", "usage"]
    assert replayed(made.journals).session(SCOPES[0]) == made.rows.session(SCOPES[0])


def test_a_state_of_a_known_message_behind_a_new_one_is_replayed_where_it_was() -> None:
    made = Journalled()
    new, known = (Draft(*Message("user", "Hi", id=id).sealed(), 1) for id in ("new", "known"))
    made.do(c.Append(SCOPES[0], [known], LATEST_LEAF))
    made.do(c.Append(SCOPES[0], [new, known], LATEST_LEAF, state=[AttachedState("plan", "{}")]))

    again = replayed(made.journals)

    assert again.session(SCOPES[0]) == made.rows.session(SCOPES[0])
    assert [row["place"] for row in again.session(SCOPES[0])["states"]] == [(0, 1)]


def test_what_a_version_without_states_would_skip_has_a_key_or_type_it_refuses() -> None:
    scope = SCOPES[0]
    made = Journalled()
    draft = Draft(*Message("user", "Hi", id="a").sealed(), 1)
    made.do(c.Append(scope, [draft], LATEST_LEAF, usage=Usage(3, 5, 0.25)))
    made.do(c.AddUsage(scope, Usage(3, 5, 0.25)))
    made.do(c.Append(scope, [], LATEST_LEAF, state=[AttachedState("plan", "{}")]))

    told = [(entry.type, bytes(entry.leafward)) for entry in read(made.journals["one"]).entries[2:]]

    assert [kind for kind, _ in told] == ["usage", "usage", "state"]
    # Keys of a line of usage before there was any counted with messages: input, output, cost, at, more.
    assert b'"beside":true' in told[0][1]
    assert b"beside" not in told[1][1]


def test_a_session_that_was_brought_in_whole_is_one_batch() -> None:
    made = Journalled()
    draft = Draft(*Message("user", "Hi", id="a").sealed(), 1)
    made.do(c.Append(SCOPES[0], [draft], LATEST_LEAF))
    made.do(c.Fork(SCOPES[1], SCOPES[0], "a", "copy"))

    batches = read(made.journals["two"]).batches

    assert [[entry.type for entry in batch.entries] for batch in batches] == [["session"], ["restore", "message"]]


def test_a_journal_of_a_newer_leafward_is_refused() -> None:
    scope = SCOPES[0]
    newer, _ = encode(header(scope, 1), 0)
    for changed in (
        newer.replace(b'"format":1', b'"format":2'),
        newer.replace(b'"type":"session"', b'"type":"hologram"'),
        newer.replace(b'"format":1', b'"format":1,"colour":"red"'),
    ):
        line = changed.rpartition(b',"crc"')[0] + b"}"
        data = line[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(line)
        entries = read(data).entries
        assert len(entries) == 1

        with pytest.raises(StoreError, match="written by a newer leafward"):
            read_header(entries[0])
        with pytest.raises(StoreError, match="written by a newer leafward"):
            commands(entries, scope)


def test_a_journal_can_be_replayed_as_another_session() -> None:
    made = Journalled()
    made.do(c.Create(SCOPES[0], Origin("First")))
    entries = read(made.journals["one"]).entries

    assert commands(entries, SCOPES[1])[0].command == c.Create(SCOPES[1], Origin("First"))
    told = read_header(entries[0])
    assert (told.agent, told.user, entries[0].id) == (OWNER.agent_id, OWNER.user_id, "one")


def test_a_removal_has_no_line() -> None:
    with pytest.raises(TypeError, match="Remove is not recorded"):
        record(c.Remove(SCOPES[0]), 1, 1)
