"""Sessions of AgentScope for Java up to 1.x, in all forms that they had, moved into one of today."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from leafward.core.errors import InvalidId, StaleState, StateDecodeError, StoreError
from leafward.core.json import decode_leniently
from leafward.core.legacy_state import MESSAGES, read_legacy
from leafward.core.session_key import SessionKey
from leafward.core.state_values import write_items, write_value
from leafward.importers.looking import look_at_target
from leafward.importers.report import MigrationReport
from leafward.importers.sources import Named, check_reading, check_source, count_of_2x, open_source
from leafward.importers.targets import Holding, State, Target, canonical, named_target, open_target, read_state
from leafward.stores.contracts import Store
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.older import Older, Place, Reading, Text
from leafward.stores.states.table import OF_SANDBOXES, check_layout, check_name

__all__ = ["MigrationReport", "Progress", "migrate"]

States = dict[str, State]
Session = tuple[SessionKey, States]

Progress = Callable[[int, int | None, str], object]
"""Is told how many places have been seen to, of how many, and which was the last."""


async def migrate(
    source: Named,
    store: Store | AgentStateStore | Named,
    *,
    dry_run: bool = False,
    layout: str = "2.x",
    names: Reading = "guess",
    progress: Progress | None = None,
) -> MigrationReport:
    """Move what AgentScope left, up to 1.0.4 and in 1.x, into a store of states, and return what became of it.

    `source` is a directory, a `mysql://` URL or that of a Redis; the same place may be the target. `store` is an open
    store, a store of states, or the directory or URL of one, which is then opened in `layout`, and closed.

    Nothing is taken from the source; an old table, which has the name of the new one, is renamed. What is written is
    read back and compared. What the target has already stays as it is, so this may be run again, whatever became of the
    last run. A session that cannot be read is reported, and does not stop the others.

    The name of a directory does not tell whether a session is called `c2VzcyAx` or `sess 1`, which AgentScope encodes
    so. The report has all such names, and what they were taken for: by default what is more likely, with
    `names="literal"` the name itself, with `names="encoded"` what it decodes to.

    Raises:
        ConfigurationError: there is no such source or target.
        StoreError: one of them failed, or did not keep what it was given.
    """
    checked = check_source(source)
    form = check_layout(layout)
    async with AsyncExitStack() as closing:
        target = None if dry_run else await open_target(store, form, closing)
        holding = target or await look_at_target(store, form, closing)
        older = await open_source(checked, rename=not dry_run, names=check_reading(names))
        closing.push_async_callback(older.close)
        # Before anything is written: the target may be the same place.
        run = _Run(older, holding, target, progress, named_target(store), await count_of_2x(checked, older))
        await run.move_all()
        return await run.report()


@dataclass
class _Run:
    """One migration, and what it counted so far."""

    older: Older
    holding: Holding
    target: Target | None
    """Without one, it is only told what would be done."""
    progress: Progress | None
    target_name: str
    of_2x: int
    sessions: int = 0
    values: int = 0
    lists: int = 0
    messages: int = 0
    superseded: int = 0
    written: int = 0
    already_there: int = 0
    kept: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    seen: set[str] = field(default_factory=set[str])
    """Sessions of 1.x, whose documents are seen to with them."""

    async def move_all(self) -> None:
        total = await self.older.count()
        done = 0
        async for place in self.older.places():
            await self._see_to(place, self._in_place)
            done += 1
            self._tell(done, total, place)
        async for document in self.older.documents():
            await self._see_to(document, self._in_document)
            done += 1
            self._tell(done, total, document)

    def _tell(self, done: int, total: int, place: Place) -> None:
        if self.progress is not None:
            self.progress(done, total, place.shown)

    async def _see_to(self, place: Place, read: Callable[[Place], Awaitable[Session | None]]) -> None:
        """Move what is found in a place, if it can be read, whole."""
        try:
            found = await read(place)
        except StateDecodeError as error:
            self._fail(place, error.reason)
            if error.session_id is not None:
                self.seen.add(error.session_id)
        except InvalidId as error:
            self._fail(place, str(error))
        else:
            if found is not None:
                await self._move(*found)

    def _fail(self, place: Place, reason: str) -> None:
        self.sessions += 1
        self.failed.append((place.shown, reason))

    async def _in_place(self, place: Place) -> Session | None:
        slot, texts = await self.older.read(place)
        if not texts.keys() - {OF_SANDBOXES}:
            return None
        key = SessionKey(slot.session_id, slot.user_id)
        states = _checked(key, {name: _decoded(key, name, text) for name, text in texts.items()})
        if key.user_id is None:
            self.seen.add(key.session_id)
            document = await self._older_document(key)
            if document is not None and _is_part(states, document):
                # It was made of the document, by a run that did not come to its end.
                return key, document
            self.superseded += document is not None
        return key, states

    async def _in_document(self, place: Place) -> Session | None:
        if place.at in self.seen:
            return None
        key = SessionKey(place.at)
        states = await self._read_document(key)
        return (key, states) if states else None

    async def _older_document(self, key: SessionKey) -> States | None:
        try:
            return await self._read_document(key)
        except (StateDecodeError, InvalidId):
            # The session went on without it.
            return {}

    async def _read_document(self, key: SessionKey) -> States | None:
        text = await self.older.document(key.session_id)
        if text is None:
            return None
        try:
            states: States = read_legacy(decode_leniently(text))
        except ValueError as error:
            raise _unreadable(key, None, error) from error
        return _checked(key, states)

    async def _move(self, key: SessionKey, states: States) -> None:
        self.sessions += 1
        self.lists += sum(isinstance(state, list) for state in states.values())
        self.values += sum(isinstance(state, dict) for state in states.values())
        self.messages += len(states.get(MESSAGES, ()))
        held = await self.holding.held(key, states)
        for name, state in states.items():
            if name not in held and (self.target is None or await self._write(self.target, key, name, state)):
                self.written += 1
                continue
            if name not in held:
                # Somebody else was first.
                held |= await self.holding.held(key, {name: state})
            if held.get(name) == canonical(state):
                self.already_there += 1
            else:
                self.kept.append(_shown(key, name))

    async def _write(self, target: Target, key: SessionKey, name: str, state: State) -> bool:
        """Write a state and read it back; tell whether nobody else was first."""
        try:
            await target.put(key, name, state)
        except StaleState:
            return False
        found = await target.held(key, {name: state})
        if found.get(name) != canonical(state):
            raise StoreError(f"{_shown(key, name)} was written, but something else is read back: check the target")
        return True

    async def report(self) -> MigrationReport:
        return MigrationReport(
            target=self.target_name,
            sessions=self.sessions,
            values=self.values,
            lists=self.lists,
            messages=self.messages,
            superseded=self.superseded,
            written=self.written,
            already_there=self.already_there,
            kept=self.kept,
            failed=self.failed,
            left_out=[(what, text) for what, text in await self.older.left_out()],
            unclear=[(what, text) for what, text in await self.older.unclear()],
            renamed=self.older.renamed,
            of_2x=self.of_2x,
            dry_run=self.target is None,
        )


def _decoded(key: SessionKey, name: str, text: Text | list[Text]) -> State:
    try:
        return read_state(text)
    except ValueError as error:
        raise _unreadable(key, name, error) from error


def _checked(key: SessionKey, states: States) -> States:
    """Return states if all of them can be written."""
    for name, state in states.items():
        check_name(name)
        try:
            write_items(state) if isinstance(state, list) else write_value(state)
        except ValueError as error:
            raise _unreadable(key, name, error) from error
    return states


def _is_part(some: States, whole: States) -> bool:
    return all(name in whole and canonical(state) == canonical(whole[name]) for name, state in some.items())


def _unreadable(key: SessionKey, name: str | None, error: ValueError) -> StateDecodeError:
    reason = str(error) if name is None else f"{name!r}: {error}"
    return StateDecodeError(key.user_id, key.session_id, name, reason)


def _shown(key: SessionKey, name: str) -> str:
    user = "" if key.user_id is None else f" of user {key.user_id!r}"
    return f"{name!r} of session {key.session_id!r}{user}"
