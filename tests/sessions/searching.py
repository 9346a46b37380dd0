"""How long hypothesis looks for calls after which a session and its model disagree."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

STEPS_IN_A_RUN = 25


def profile(steps: int) -> settings:
    """Return settings for about so many calls."""
    return settings(
        max_examples=max(1, steps // STEPS_IN_A_RUN),
        stateful_step_count=STEPS_IN_A_RUN,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
