"""Options of an agent that are wrong are refused when it is made, by name and value."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import ConfigurationError, ReActAgent
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
