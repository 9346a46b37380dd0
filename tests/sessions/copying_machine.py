"""Adds forks, splits, exports and imports to the calls that a session and its model are driven with."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from leafward import Session, SessionManager
from tests.sessions.compacting_machine import CompactingMachine
from tests.sessions.machine import as_kept, as_seen, picks
from tests.sessions.model import Model, Row

MOST_COPIES = 3


class CopyingMachine(CompactingMachine):
    """Goes on in a copy of the session, now and then."""

    def __init__(self) -> None:
        self.copies = 0
        super().__init__()

    def make_handles(self) -> list[Session]:
        self.manager = SessionManager(self.store, user_id="alice")
        return super().make_handles()

    @precondition(lambda self: self.model.rows and self.copies < MOST_COPIES)
    @rule(pick=picks, stay=st.booleans())
    def fork(self, pick: int, stay: bool) -> None:
        at = self.known(pick)
        info = self.runner.run(self.manager.fork(self.session_id, at, "a fork"))
        copy = self.model.fork(at)
        seen = self.runner.run(self.manager.get_history(info.id))
        assert [as_seen(message) for message in seen] == [as_kept(row) for row in copy.visible(at)]
        self.tally["forks"] += 1
        if not stay:
            self._go_on_in(info.id, copy)

    @precondition(lambda self: self.model.rows and self.copies < MOST_COPIES)
    @rule(elsewhere=st.booleans())
    def export_and_import(self, elsewhere: bool) -> None:
        async def move() -> str:
            data = json.loads(json.dumps(await self.manager.export_session(self.session_id)))
            if not elsewhere:
                assert await self.manager.delete(self.session_id)
            again = f"{self.session_id} again" if elsewhere else None
            return (await self.manager.import_session(data, session_id=again)).id

        self.tally["exports and imports"] += 1
        self._go_on_in(self.runner.run(move()), self.model.copy())

    @precondition(lambda self: self.model.rows and self.copies < MOST_COPIES)
    @rule()
    def split(self) -> None:
        info = self.runner.run(self.manager.compact_and_split(self.session_id, "castle 東京 so far"))
        (first,) = self.runner.run(self.manager.get_history(info.id))
        self.tally["splits"] += 1
        self._go_on_in(info.id, self.model.split(Row(first.id, first.role, tuple(first.parts), first.created_at)))

    def _go_on_in(self, session_id: str, model: Model) -> None:
        self.copies += 1
        self.session_id, self.model = session_id, model
        self.handles = self.make_handles()
        self.version = self.runner.run(self.session.get_version())
