"""A description survives the header it travels in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.errors import ContextError
from leafward.sessions.skills.listing import one_line
from leafward.sessions.skills.metadata import decode_description, encode_description


@given(st.text(max_size=120))
def test_any_description_comes_back_as_one_line(description: str) -> None:
    encoded = encode_description(description)

    assert encoded.isascii()
    assert encoded.isprintable()
    assert decode_description(encoded) == one_line(description)


def test_plain_text_is_stored_as_it_is() -> None:
    assert encode_description("How to deploy") == "How to deploy"


@pytest.mark.parametrize("value", ["=?", "=?what?q?x?=", "a =?utf-8?b?/w==?= b"])
def test_metadata_that_only_looks_encoded_is_read_as_it_is(value: str) -> None:
    assert decode_description(value) == value


def test_a_description_that_metadata_cannot_hold_is_refused() -> None:
    with pytest.raises(ContextError, match="shorten it"):
        encode_description("漢" * 1000)
