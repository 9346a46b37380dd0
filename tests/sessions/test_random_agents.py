"""Random agents: no payload is refused, and a compaction that says it worked has worked."""

from __future__ import annotations

import pytest

from tests.sessions.random_agents import run_agent


@pytest.mark.parametrize("seed", range(12))
async def test_no_payload_is_refused_and_every_compaction_gets_below_its_threshold(seed: int) -> None:
    found = await run_agent(seed)

    assert found.payloads > 0
    assert found.compactions > 0
    assert found.unexcused == []
