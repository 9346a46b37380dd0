"""Records are read as AgentScope reads its objects, and lose nothing that they do not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from leafward.core.agent_records import Int32, Record, read_record, stored, write_record
from leafward.core.errors import StateDecodeError


@dataclass(slots=True)
class Step(Record):
    name: str
    note: str | None = field(metadata=stored(after="state"))
    state: Literal["TODO", "DONE"] = "TODO"
    tries: Int32 = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Trip(Record):
    home_town: str = field(default="Rome", metadata=stored("homeTown"))
    left: str | None = field(default="today", metadata=stored("left", missing=None))
    cost: float = 0.0
    first: Step | None = None
    steps: list[Step] = field(default_factory=list[Step])
    by_day: dict[str, list[Step]] = field(default_factory=dict[str, list[Step]])
    lock: object = field(default_factory=object, compare=False)
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


def test_what_is_missing_or_null_has_its_default() -> None:
    assert read_record(Trip, {}) == Trip(left=None)
    assert read_record(Trip, {"homeTown": None, "steps": None, "cost": None, "left": None}) == Trip(left=None)
    assert read_record(Step, {"name": "n"}) == Step("n", None)


def test_unknown_keys_are_kept_at_every_level() -> None:
    step = {"name": "n", "note": None, "state": "DONE", "tries": 1, "x": [1, None]}
    document = {
        "homeTown": "Oslo",
        "left": None,
        "cost": 2.5,
        "first": step,
        "steps": [step],
        "by_day": {"monday": [step]},
        "lock": "an unknown key with the name of a field that is not stored",
        "home_town": "another",
        "extra": {"y": 1},
    }
    trip = read_record(Trip, document)

    assert trip.by_day["monday"][0].extra == {"x": [1, None]}
    assert write_record(trip) == document
    assert list(write_record(trip))[:3] == ["homeTown", "left", "cost"]


def test_keys_are_written_in_the_order_of_the_document() -> None:
    assert list(write_record(Step("n", "note", extra={"x": 1}))) == ["name", "state", "note", "tries", "x"]


def test_words_are_read_in_any_case() -> None:
    assert read_record(Step, {"name": "n", "state": "done"}).state == "DONE"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "the document must be an object, not null"),
        ({"homeTown": []}, "homeTown must be a string, not a list"),
        ({"first": 5}, "first must be an object, not a whole number"),
        ({"first": {}}, "first.name is missing"),
        ({"steps": {}}, "steps must be a list, not an object"),
        ({"steps": [None]}, "steps[0] must be an object, not null"),
        ({"steps": [{"name": "n", "state": "LATER"}]}, "steps[0].state is 'LATER', not one of TODO, DONE"),
        ({"steps": [{"name": "n", "tries": 2**31}]}, "steps[0].tries is 2147483648, not a whole number <= 2147483647"),
        ({"by_day": {"monday": {}}}, "by_day['monday'] must be a list, not an object"),
        ({"by_day": {"monday": [{"name": {}}]}}, "by_day['monday'][0].name must be a string, not an object"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document: object, reason: str) -> None:
    with pytest.raises(StateDecodeError) as caught:
        read_record(Trip, document)
    assert caught.value.reason == reason


def test_a_whole_number_is_written_with_its_point_where_java_has_a_double() -> None:
    assert repr(write_record(Trip(cost=3))["cost"]) == "3.0"


def test_extra_with_the_key_of_a_field_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"\['homeTown'\]"):
        write_record(Trip(extra={"homeTown": "x"}))
