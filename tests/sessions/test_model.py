"""A session agrees with a plain-Python model after any sequence of calls."""

from __future__ import annotations

import os

import pytest

from tests.sessions.copying_machine import CopyingMachine
from tests.sessions.durable_machine import DurableMachine
from tests.sessions.searching import profile

DEFAULT_STEPS = 1000
"""Calls in all, per backend; set LEAFWARD_STEPS for a longer search."""

PROFILE = profile(int(os.environ.get("LEAFWARD_STEPS", DEFAULT_STEPS)))

# A failure is worth the minutes it takes to shrink it to a few calls.
pytestmark = pytest.mark.timeout(600)

TestMemoryAgrees = CopyingMachine.TestCase
TestMemoryAgrees.settings = PROFILE
TestSQLiteAgrees = DurableMachine.TestCase
TestSQLiteAgrees.settings = PROFILE
