"""What reading a part of a session costs: what it returns, not what the session holds."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import assistant, user
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.stores.drafts import Draft
from leafward.stores.replicated.tables import Tables
from leafward.stores.sql import reads
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import Operation, run_steps
from leafward.stores.sql.scanning import NO_INDEX

S = Scope.of("s")


class Rows:
    """A session in memory that counts what is read of it."""

    def __init__(self) -> None:
        self._tables = Tables(S)
        self.statements = 0
        self.bodies = 0
        """How many messages were read with their content."""

    def append(self, messages: list[Message], parent: ParentId = LATEST_LEAF) -> None:
        drafts = [Draft(message, message.sealed()[1], 1) for message in messages]
        self._tables.run(Append(S, drafts, parent).operation(NO_INDEX))

    def read(self, operation: Operation[Any]) -> Any:
        self.statements = self.bodies = 0
        return run_steps(operation, self._execute)

    def _execute(self, statement: str, parameters: tuple[object, ...]) -> list[object]:
        rows = self._tables.execute(statement, parameters)
        self.statements += 1
        self.bodies += len(rows) if "body" in statement else 0
        return rows


@pytest.fixture
def rows() -> Rows:
    """A conversation of 3,000 messages whose 30th and 2,990th have other answers as well."""
    made = Rows()
    made.append([user(f"m{n}", id=f"{n}") for n in range(3_000)])
    for answer in range(3):
        made.append([assistant(f"{answer}", id=f"early {answer}")], "30")
        made.append([assistant(f"{answer}", id=f"late {answer}")], "2990")
    made.append([user(f"m{n}", id=f"after {n}") for n in range(5)])
    return made


def test_a_raw_page_reads_the_messages_it_returns(rows: Rows) -> None:
    for before, last in ((None, "after 4"), ("after 1", "after 0"), ("2000", "1999")):
        page = rows.read(reads.raw_page(S, None, before, 10))

        assert (len(page), page[-1].id) == (10, last)
        assert rows.bodies == 10
        assert rows.statements < 10


def test_a_tip_is_found_without_reading_content(rows: Rows) -> None:
    for message_id, tip in (("0", "after 4"), ("31", "after 4"), ("2991", "2999"), ("early 1", "early 1")):
        assert rows.read(reads.tip(S, message_id)).id == tip
        assert rows.bodies == 1
        # One for each branch below, and a few to find them.
        assert rows.statements <= 12
