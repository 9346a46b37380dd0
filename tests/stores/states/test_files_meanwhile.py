"""A value that Java saves while a new one of ours is being written is not replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from leafward import StaleState
from leafward.stores import JsonSession
from leafward.stores.files.folder import Folder
from tests.stores.states.test_files_untouched import java_saves, root

__all__ = ["root"]


class TestSavesOfJavaMeanwhile:
    @pytest.mark.parametrize("java", ["saves", "deletes"])
    @pytest.mark.parametrize("id", ["s", "c2VzcyAx"])
    async def test_what_java_does_while_a_new_value_is_written_makes_the_save_stale(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, java: str, id: str
    ) -> None:
        place = root / id
        java_saves(place, "notes", '{ "n" : 1 }')
        async with JsonSession(root) as states:
            version = (await states.get_versioned(id, "notes")).version
            await states.save("other", "notes", {})
            synced = Folder.sync

            def sync(folder: Folder, number: int) -> None:
                synced(folder, number)
                if java == "saves":
                    java_saves(place, "notes", '{ "n" : "java" }')
                else:
                    (place / "notes.json").unlink(missing_ok=True)

            with monkeypatch.context() as patch:
                patch.setattr(Folder, "sync", sync)
                with pytest.raises(StaleState):
                    await states.save_if_version(id, "notes", {"n": 2}, version)
            assert await states.get(id, "notes") == ({"n": "java"} if java == "saves" else None)
            # Nothing is left behind, and the next attempt is a new one.
            assert not list(root.glob(".leafward.new*"))
            found = (await states.get_versioned(id, "notes")).version
            assert await states.save_if_version(id, "notes", {"n": 3}, found) == found + 1

    async def test_a_first_save_does_not_replace_what_java_saved_meanwhile(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with JsonSession(root) as states:
            await states.save("other", "notes", {})
            synced = Folder.sync

            def sync(folder: Folder, number: int) -> None:
                synced(folder, number)
                java_saves(root / "s", "notes", '{ "n" : "java" }')

            with monkeypatch.context() as patch:
                patch.setattr(Folder, "sync", sync)
                with pytest.raises(StaleState):
                    await states.save_if_version("s", "notes", {"n": 2}, 0)
            assert await states.get("s", "notes") == {"n": "java"}
