"""Options of an agent that are wrong are refused when it is made, by name and value."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import ConfigurationError, ReActAgent
from leafward.engine import Toolkit
from leafward.testing import ScriptedModel


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("retries", value) for value in (-1, None, 1.5, True)),
        *(("max_iterations", value) for value in (0, -3, "3", 1.5)),
        *(("state_cache", value) for value in ("x", -1)),
        *(("lease_ttl", value) for value in (0, -1, "30", None, float("nan"), float("inf"))),
        ("system_prompt", None),
        ("model", None),
        ("model", ScriptedModel),
        ("save", "always"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(option: str, value: Any) -> None:
    options: dict[str, Any] = {"model": ScriptedModel([]), option: value}

    with pytest.raises(ConfigurationError) as refused:
        ReActAgent("cook", store="memory://", **options)

    assert str(refused.value).startswith(f"{option} is ")
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", [Toolkit(), None, len, 5])
def test_tools_that_are_not_a_collection_are_refused_with_what_to_give(value: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"tools are a list of functions and tools, or a leafward\.Toolkit"
    ) as no:
        ReActAgent("cook", ScriptedModel([]), tools=value, store="memory://")

    assert repr(value) in str(no.value)
