"""Cancelled appends leave no riddle; short profile of `faults.torture --only cancel`."""

from __future__ import annotations

import pytest

from faults import cancel


@pytest.mark.fault
def test_three_hundred_cancelled_appends_are_each_stored_or_absent() -> None:
    outcome = cancel.run(cancels=300, seed=20260101, progress=print)

    assert outcome.violations == []
    assert [control.name for control in outcome.controls if not control.caught] == []
