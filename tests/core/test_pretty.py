"""JSON is laid out as Jackson does, and says the same as before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.json import encode_text
from leafward.core.pretty import pretty, with_escapes

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.dictionaries(st.text(), values))
def test_the_layout_changes_nothing(value: dict[str, Any]) -> None:
    laid_out = pretty(encode_text(value))
    assert json.loads(laid_out) == json.loads(encode_text(value))
    assert not laid_out.endswith("\n")


@pytest.mark.parametrize(
    ("compact", "laid_out"),
    [
        ("{}", "{ }"),
        ('{"a":1}', '{\n  "a" : 1\n}'),
        ('{"a":[],"b":{}}', '{\n  "a" : [ ],\n  "b" : { }\n}'),
        ('{"a":[1,"x",null]}', '{\n  "a" : [ 1, "x", null ]\n}'),
        ('{"a":[{"b":1},{"c":2}]}', '{\n  "a" : [ {\n    "b" : 1\n  }, {\n    "c" : 2\n  } ]\n}'),
        ('{"a":[[{"b":[{}]}]]}', '{\n  "a" : [ [ {\n    "b" : [ { } ]\n  } ] ]\n}'),
        ('{"{}":"[],:\\"{"}', '{\n  "{}" : "[],:\\"{"\n}'),
        ('{"a":"\\u001b \\\\u001b \\n"}', '{\n  "a" : "\\u001B \\\\u001b \\n"\n}'),
    ],
)
def test_it_is_laid_out_as_jackson_does(compact: str, laid_out: str) -> None:
    assert pretty(compact) == laid_out


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (1e10, "1.0E10"),
        (1e22, "1.0E22"),
        (1e7, "1.0E7"),
        (-123456789.5, "-1.234567895E8"),
        (1.5e-7, "1.5E-7"),
        (0.0009, "9.0E-4"),
        (0.001, "0.001"),
        (9999999.5, "9999999.5"),
        (-0.0, "-0.0"),
        (25000.0, "25000.0"),
        (10**10, "10000000000"),
        (-(10**30), "-1" + "0" * 30),
    ],
)
def test_a_number_is_spelled_as_java_does(value: float, spelled: str) -> None:
    assert pretty(encode_text({"n": value})) == f'{{\n  "n" : {spelled}\n}}'


def test_escapes_of_a_line_are_spelled_as_java_does() -> None:
    assert with_escapes('{"a":"\\u001f \\\\u001f \\n"}') == '{"a":"\\u001F \\\\u001f \\n"}'
