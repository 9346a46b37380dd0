"""Files of typed state that are read without a lock and without a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from leafward.core.errors import StoreError
from leafward.stores.files.folder import Content, Folder, Parts, Stamp
from leafward.stores.files.state_names import NameFiles
from leafward.stores.files.state_tree import Memory, StateTree

_NEVER = Stamp(0, 0, 0)


class ReadTree(StateTree):
    """Files for one look: if they are not the same at its end, `check` has it repeated.

    Nothing is written: files that a session is made of are there for this look only, and versions are remembered.
    """

    writes = False

    def __init__(self, folder: Folder, root: Parts, memory: Memory | None = None) -> None:
        super().__init__(folder, root, memory)
        self._made: dict[Parts, bytes] = {}
        self._looked_at: dict[Parts, Stamp | None] = {}

    def finish(self) -> None:
        """Do nothing: `check` looks for what is not finished."""

    def content(self, parts: Parts, *, at_most: int | None = None) -> Content | None:
        if parts in self._made:
            return Content(self._made[parts], _NEVER)
        found = super().content(parts, at_most=at_most)
        self._looked_at.setdefault(parts, None if found is None else found.stamp)
        return found

    def has(self, parts: Parts) -> bool:
        return parts in self._made or self._look(parts) is not None

    def files(self, place: Parts) -> list[str]:
        self._look(place)
        return [*(parts[-1] for parts in self._made if parts[:-1] == place), *super().files(place)]

    def replace(
        self,
        files: Mapping[Parts, bytes],
        *,
        removing: Sequence[Parts] = (),
        at_once: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._made |= files

    def _note(self, files: NameFiles, digest: str, version: int) -> int:
        self.check()
        return self.memory.versions.note(files.value, digest, version)

    def _look(self, parts: Parts) -> Stamp | None:
        return self._looked_at.setdefault(parts, self.folder.stamp(parts))

    def check(self) -> None:
        """Raise unless all that was looked at belongs together.

        Raises:
            BeingWritten: another process has changed some of it, or is about to; not for ever, if it never stops.
            StoreError: a killed process left a change unfinished, and only one that may write can finish it.
        """
        # What was open is what was looked at; the names may stand for something else now.
        self.folder.look_anew()
        before, self._looked_at = self._looked_at, {}
        after = {parts: self.folder.stamp(parts) for parts in before}
        unfinished = self.memory.unfinished
        unfinished.check({parts: stamp for parts, stamp in after.items() if stamp != before[parts]})
        plan = self.folder.stamp(self._planned)
        if plan is None:
            return
        unfinished.check({self._planned: plan})
        raise StoreError(
            f"a process was killed while it changed several files in {self.folder.shown(self.root)}: "
            "save something there, with the right to write, and all of them are changed"
        )
