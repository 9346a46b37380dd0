"""Every backend keeps its promises under torture; short profiles of `faults.torture`, each with its controls."""

from __future__ import annotations

import pytest

from faults import cancel, contention, disk_full, fencing, kill, replies, states, steps, turns
from faults.backends import BACKENDS, ON_DISK, PERSISTENT, SERVERS, Backend
from faults.outcome import Outcome
from tests.faults.conftest import on

pytestmark = pytest.mark.fault

SEED = 20260101


def on_sqlite(backend: Backend, times: int) -> int:
    """Return how often a control runs: it shows that the judge sees a fault, and the judge is the same everywhere.

    The recorded runs have all controls on every backend.
    """
    return times if backend.name == "sqlite" else 0


def assert_kept(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert {control.name: control.detail for control in outcome.controls if not control.passed} == {}


@on(*PERSISTENT)
def test_killed_writers_lose_nothing(backend: Backend) -> None:
    assert_kept(kill.run(backend, kills=8, seed=SEED, progress=print, control_kills=on_sqlite(backend, 80)))


def test_a_killed_server_loses_nothing_and_its_clients_go_on(own_server: Backend) -> None:
    assert_kept(kill.run_server(own_server, kills=5, seed=SEED, progress=print, control_kills=60))


@on(*SERVERS)
def test_a_lost_reply_means_one_effect(backend: Backend) -> None:
    assert_kept(replies.run(backend, calls=100, seed=SEED, progress=print))


@on(*BACKENDS)
def test_four_writers_make_one_chain_that_a_fifth_party_hears_in_order(backend: Backend) -> None:
    # Long enough for shares to even out beside other work of the machine.
    assert_kept(contention.run(backend, count=400, progress=print))


@on(*BACKENDS)
def test_a_holder_that_comes_back_too_late_is_refused(backend: Backend) -> None:
    assert_kept(fencing.run(backend, stops=3, seed=SEED, progress=print, control_stops=3))


@on(*PERSISTENT)
def test_cancelled_appends_are_each_stored_or_absent(backend: Backend) -> None:
    assert_kept(cancel.run(backend, cancels=80, seed=SEED, progress=print, control_cancels=on_sqlite(backend, 40)))


@on(*PERSISTENT)
def test_a_step_is_whole_or_absent_after_a_kill(backend: Backend) -> None:
    assert_kept(steps.run(backend, kills=6, seed=SEED, progress=print, control_kills=on_sqlite(backend, 80)))


@on(*PERSISTENT)
def test_killed_turns_go_on_in_the_next_process(backend: Backend) -> None:
    assert_kept(turns.run(backend, kills=4, seed=SEED, progress=print, control_kills=on_sqlite(backend, 60)))


@on(*PERSISTENT)
def test_lists_of_states_are_never_mixed_by_a_kill(backend: Backend) -> None:
    assert_kept(states.run(backend, kills=6, seed=SEED, progress=print, control_kills=on_sqlite(backend, 80)))


@on(*ON_DISK)
def test_a_full_disk_loses_nothing_and_the_store_goes_on(backend: Backend) -> None:
    assert_kept(disk_full.run(backend, points=6, seed=SEED, progress=print))
