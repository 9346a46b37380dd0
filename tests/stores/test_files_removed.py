"""What becomes of an open store whose directory somebody removes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leafward import Session, StoreError, open_store, user


async def test_writing_says_that_the_directory_is_gone_and_closing_works(tmp_path: Path) -> None:
    directory = tmp_path / "chats"
    async with open_store(f"file://{directory}") as store:
        session = Session(store, "s")
        await session.append_message(user("kept nowhere"))
        shutil.rmtree(directory)

        with pytest.raises(StoreError, match="removed"):
            await session.append_message(user("lost"))

    async with open_store(f"file://{directory}") as again:
        assert await Session(again, "s").get_history() == []
