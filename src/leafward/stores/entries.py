"""The contract for stored context: blocks, searchable entries, loaded skills and the frozen prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leafward.core.ids import Scope

if TYPE_CHECKING:
    from leafward.core.notices import Reclaimed
    from leafward.core.query import Query
    from leafward.core.ranking import SearchResult

BLOCK = ""
"""The key under which a block that has no keys keeps its text."""

NAMES = ""
"""The label of the shelf on which a session remembers which title has which key, and what its model was shown."""

SHOWN = "shown"
"""The key, on a session's own `NAMES` shelf, of what its model was shown of each block."""


class Shelf(NamedTuple):
    """Where the entries of one label are kept: in a session, or `shared` by all sessions of its owner."""

    scope: Scope
    """The session that reads or writes; a change of a shared shelf shows in the session that made it."""
    label: str
    shared: bool = False


class Entry(NamedTuple):
    """One stored text."""

    key: str
    content: str
    description: str | None


class Prompt(NamedTuple):
    """A frozen prompt, its tokens, and what tells the configuration it was rendered from."""

    text: str
    tokens: int
    fingerprint: str


Edit = Callable[[str | None], str | None]
"""From a stored text, or `None`, to the one that shall be stored, or `None` to remove it; raises to change nothing."""


class EntryIndex(Protocol):
    """Keeps texts by label and key.

    Each write is one atomic step that gives the session its next `version`, of kind `context`, unless it changes
    nothing. It brings the session into being. The prompt, and what is kept under `SHOWN`, change no version.
    """

    async def get(self, shelf: Shelf, key: str = BLOCK) -> Entry | None:
        """Return one entry."""
        ...

    async def edit(
        self, shelf: Shelf, key: str, change: Edit, *, description: str | None = None, searchable: bool = False
    ) -> str | None:
        """Change one text, seeing no other writer's half-done change; return what is stored now."""
        ...

    async def count(self, shelf: Shelf) -> int:
        """Return how many entries a shelf has."""
        ...

    async def list_entries(self, shelf: Shelf) -> list[Entry]:
        """Return the entries of a shelf, in the order of their keys."""
        ...

    async def search(self, shelf: Shelf, query: Query, *, limit: int) -> list[SearchResult]:
        """Return the best matches among the searchable entries of a shelf; a result's `id` is the key."""
        ...

    async def skills(self, scope: Scope) -> list[tuple[str, str]]:
        """Return label and key of the loaded skills, sorted."""
        ...

    async def load_skill(self, scope: Scope, label: str, key: str) -> None:
        """Count a skill as loaded."""
        ...

    async def unload_skill(self, scope: Scope, label: str, key: str, reclaimed: Sequence[Reclaimed]) -> bool:
        """Count a skill as no longer loaded and reclaim its results, in one step; False when it was not loaded."""
        ...

    async def prompt(self, scope: Scope) -> Prompt | None:
        """Return the frozen prompt."""
        ...

    async def keep_prompt(self, scope: Scope, prompt: Prompt, *, replace: bool) -> Prompt:
        """Store the prompt, unless there is one and it is not to be replaced; return what is stored now."""
        ...
