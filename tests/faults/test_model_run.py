"""The comparison of sessions with a model notices what is broken on purpose."""

from __future__ import annotations

import pytest

from faults.model_run import DEFECTS, control, drive

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("defect", [name for name in DEFECTS if "changed" not in name])
def test_a_defect_is_noticed(defect: str) -> None:
    found = control(defect, 7)

    assert found.caught, found.detail


def test_a_run_without_defects_tells_what_it_did() -> None:
    tally, failure = drive("memory", 200, 7)

    assert failure is None
    assert tally["comparisons"] - tally["runs"] >= 200
    assert tally["summaries by a compaction function"] > 0
