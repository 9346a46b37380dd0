"""What every test shares: how hypothesis runs, and readable failures from the shipped contracts."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Without this, an `assert` that fails inside a contract class shows no values.
pytest.register_assert_rewrite("leafward.testing")

# A shared machine stalls now and then; a slow example is not a wrong one.
settings.register_profile("leafward", deadline=None, print_blob=True)
settings.load_profile("leafward")
