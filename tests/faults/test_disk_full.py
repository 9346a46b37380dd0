"""A full disk is reported and survived; short profile of `faults.torture --only disk`."""

from __future__ import annotations

import pytest

from faults import disk_full


@pytest.mark.fault
def test_a_full_disk_loses_nothing_and_the_store_goes_on() -> None:
    outcome = disk_full.run(points=8, seed=20260101, progress=print)

    assert outcome.violations == []
    assert [control.name for control in outcome.controls if not control.caught] == []
