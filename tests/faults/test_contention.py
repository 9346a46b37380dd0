"""Four processes share a session; short profile of `faults.torture --only contention`."""

from __future__ import annotations

import pytest

from faults import contention


@pytest.mark.fault
def test_four_processes_make_one_chain_that_a_fifth_hears_in_order() -> None:
    outcome = contention.run(count=100, progress=print)

    assert outcome.violations == []
    assert [control.name for control in outcome.controls if not control.passed] == []
