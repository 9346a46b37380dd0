"""What becomes of an open store whose directory somebody removes."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("used", [True, False])
async def test_nothing_is_written_to_a_directory_whose_name_another_has(tmp_path: Path, used: bool) -> None:
    directory = tmp_path / "chats"
    async with open_store(f"file://{directory}") as store:
        session = Session(store, "s")
        await session.append_message(user("kept"))
        directory.rename(tmp_path / "elsewhere")
        directory.mkdir()
        if used:
            async with open_store(f"file://{directory}") as other:
                await Session(other, "s").append_message(user("of another"))

        with pytest.raises(StoreError, match="removed"):
            await session.append_message(user("lost"))

    async with open_store(f"file://{tmp_path}/elsewhere") as moved:
        assert [message.text for message in await Session(moved, "s").get_history()] == ["kept"]


@pytest.mark.parametrize("noticed", [True, False])
async def test_closing_leaves_no_file_of_it_open(tmp_path: Path, noticed: bool) -> None:
    directory = tmp_path / "chats"
    async with open_store(f"file://{directory}") as store:
        session = Session(store, "s")
        await session.append_message(user("kept nowhere"))
        assert await session.search("kept")
        assert _open_below(directory)
        while directory.exists():
            # A word that is indexed meanwhile may leave a file behind.
            shutil.rmtree(directory, ignore_errors=True)
        if noticed:
            with pytest.raises(StoreError, match="removed"):
                await session.append_message(user("lost"))
    assert _open_below(directory) == []


def _open_below(directory: Path) -> list[str]:
    """Return the files of a directory, also removed ones, that this process has open."""
    with os.scandir("/proc/self/fd") as found:
        names = [os.readlink(one.path) for one in found if os.path.lexists(one.path)]
    return [name for name in names if name.startswith(str(directory))]
