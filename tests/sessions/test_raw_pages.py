"""Arguments of `get_raw_history` that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import Session, open_store, user


@pytest.mark.parametrize("limit", [0, -1, 2.0, "2", True, float("inf")])
async def test_a_limit_that_is_not_a_number_of_messages_is_refused(limit: Any) -> None:
    async with open_store("memory://") as store:
        session = Session(store, "s")
        await session.append_message(user("m", id="m"))

        with pytest.raises(ValueError, match="limit is a number of at least 1, or None for all"):
            await session.get_raw_history(limit=limit)


@pytest.mark.parametrize("before", [7, b"m", ["m"]])
async def test_what_cannot_be_an_id_is_not_found(before: Any) -> None:
    async with open_store("memory://") as store:
        session = Session(store, "s")
        await session.append_message(user("m", id="m"))

        with pytest.raises(LookupError):
            await session.get_raw_history(before=before)
        with pytest.raises(LookupError):
            await session.get_tip(before)
