"""Who saves at the version that was read never replaces a text that was not read, whoever else saves."""

from __future__ import annotations

from random import Random

import pytest

from leafward.stores import Slot
from leafward.stores.sql.state_statements import Counted
from leafward.stores.states import seen_values
from leafward.stores.states.seen_values import Row, Seen, SeenValues, checksum_of, note_of

NAME = (Slot("alice", "s1"), "a")


def replaced_by_java(row: Row, text: str, *, counts: bool) -> Row:
    """Return the row as AgentScope leaves it: it knows no note, and up to 2.0.2 no version."""
    return row._replace(text=text, version=row.version + counts)


class TestAVersion:
    def test_of_a_text_that_we_saved_is_the_stored_one(self) -> None:
        assert SeenValues().version(NAME, Row("{}", 7, note_of(7, "{}"))) == 7

    @pytest.mark.parametrize("counts", [True, False])
    def test_is_the_next_after_a_save_by_any_java(self, counts: bool) -> None:
        row = replaced_by_java(Row("{}", 7, note_of(7, "{}")), '{"n":1}', counts=counts)
        assert SeenValues().version(NAME, row) == 8

    @pytest.mark.parametrize("others", [[True, False], [False, True], [False, False], [True, True]])
    def test_counts_each_save_that_is_seen(self, others: list[bool]) -> None:
        seen, row = SeenValues(), Row("{}", 7, note_of(7, "{}"))
        for number, counts in enumerate(others):
            row = replaced_by_java(row, f'{{"n":{number}}}', counts=counts)
            assert [seen.version(NAME, row) for _ in range(2)] == [8 + number] * 2

    def test_without_a_note_is_the_stored_one_until_the_text_changes(self) -> None:
        seen = SeenValues()
        assert seen.version(NAME, Row("{}", 5, None)) == 5
        assert seen.version(NAME, Row('{"n":1}', 5, None)) == 6

    @pytest.mark.parametrize("counts", [True, False])
    def test_that_is_stored_as_0_is_1_and_goes_up_with_each_save_by_any_java(self, counts: bool) -> None:
        seen, row = SeenValues(), Row("{}", 0, None)
        for number in range(1, 4):
            assert seen.version(NAME, row) == number
            row = replaced_by_java(row, f'{{"n":{number}}}', counts=counts)

    def test_that_is_noted_is_remembered_too(self) -> None:
        seen = SeenValues()
        seen.version(NAME, Row("{}", 7, note_of(7, "{}")))
        assert seen.get(NAME) == (7, checksum_of("{}"), 7)
        seen.version(NAME, Row('{"n":1}', 7, note_of(7, "{}")))
        assert seen.get(NAME) == (7, checksum_of('{"n":1}'), 8)
        seen.version(NAME, Row('{"n":2}', 9, note_of(9, '{"n":2}')))
        assert seen.get(NAME) == (9, checksum_of('{"n":2}'), 9)

    @pytest.mark.parametrize("stored", [0, 1])
    def test_goes_up_when_java_deletes_a_value_and_saves_another(self, stored: int) -> None:
        seen = SeenValues()
        assert seen.version(NAME, Row("{}", 1, note_of(1, "{}"))) == 1
        assert seen.version(NAME, Row('{"n":1}', stored, None)) == 2

    def test_of_a_few_values_is_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_values, "MOST", 2)
        seen = SeenValues()
        names = [(Slot(None, str(number)), "a") for number in range(3)]
        for name in names:
            seen.version(name, Row("{}", 0, None))
        assert [seen.get(name) is not None for name in names] == [False, True, True]


@pytest.mark.parametrize("columns", Counted)
def test_a_save_succeeds_if_and_only_if_nobody_saved_since_the_read(columns: Counted) -> None:
    for seed in range(500):
        random = Random(seed)
        processes = [SeenValues(), SeenValues()]
        reads: list[list[tuple[int, str]]] = [[], []]
        """What each process has read or saved, with the versions it got."""
        row = Row("first", 0, None)
        for number in range(40):
            one = random.randrange(2)
            seen, text = processes[one], f"text {number}"
            what = random.choice(["read", "save", "save anyway", "old Java", "new Java"])
            if what == "read":
                reads[one].append((seen.version(NAME, row), str(row.text)))
            elif what.endswith("Java"):
                row = replaced_by_java(row, text, counts=what == "new Java" and columns >= Counted.VERSIONS)
            elif reads[one]:
                version = seen.version(NAME, row)
                expected, read = random.choice(reads[one])
                if what == "save":
                    assert (version == expected) == (row.text == read), seed
                    if version != expected:
                        continue
                stored = version + 1 if columns >= Counted.VERSIONS else 0
                note = note_of(stored, text) if columns >= Counted.CHECKSUMS else None
                row = Row(text, stored, note)
                seen.saved(NAME, None if note else Seen(stored, checksum_of(text), version + 1))
                reads[one].append((version + 1, text))
