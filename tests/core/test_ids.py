from __future__ import annotations

import pytest

from leafward import InvalidId, LeafwardError
from leafward.core.ids import Owner, Scope, check_id, new_id


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "\t",
        "\u3000",
        "a\nb",
        "a\0b",
        "\x7f",
        "\x85",
        "\ud800",
        ".",
        "..",
        "__anon__",
        "x" * 256,
        None,
        3,
        b"a",
    ],
)
def test_refused(value: object) -> None:
    with pytest.raises(InvalidId, match="refused"):
        check_id("session id", value)


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "x" * 255,
        "a/b",
        "..a",
        "...",
        "a:b",
        "%",
        "_",
        "*",
        "会话",
        "🦊" * 255,
        " a",
        "a ",
        "CON",
        "'; --",
        "\u202ea",
    ],
)
def test_accepted_as_it_is(value: str) -> None:
    assert check_id("session id", value) == value


def test_a_refusal_is_a_value_error_that_shows_little_of_a_long_id() -> None:
    with pytest.raises(ValueError) as caught:
        check_id("message id", "x" * 5000)
    assert isinstance(caught.value, LeafwardError)
    assert len(str(caught.value)) < 200


def test_a_scope_checks_all_its_ids() -> None:
    assert Scope.of("s").owner == Owner("default", None)
    assert Scope.of("s", user_id="a") != Scope.of("s")
    for wrong in ({"session_id": ""}, {"session_id": "s", "user_id": ""}, {"session_id": "s", "agent_id": ".."}):
        with pytest.raises(InvalidId):
            Scope.of(**wrong)


def test_fresh_ids_are_short_and_sort_as_they_were_made() -> None:
    ids = [new_id() for _ in range(5000)]
    assert ids == sorted(ids)
    assert {len(one) for one in ids} == {26}
    assert len(set(ids)) == 5000
