"""What happened to a session, as a subscriber is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from leafward.core.ids import Scope
from leafward.stores.contracts import ChangeKind, MessageStore


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change: the session's version after it, what kind it was, and the messages it concerns."""

    version: int
    kind: ChangeKind
    session_id: str
    message_ids: list[str]


async def follow(messages: MessageStore, scope: Scope, since: int | None) -> AsyncGenerator[Change]:
    """Yield the changes after version `since`, by whichever process, as they are committed.

    A session that was deleted is told as cleared, at version 0; one made anew under its id is followed from there.
    """
    seen = await messages.version(scope) if since is None else since
    while True:
        for version, kind, message_ids in await messages.changes(scope, seen):
            seen = version
            yield Change(version, kind, scope.session_id, message_ids)
        await messages.wait(scope, seen)
        if await messages.version(scope) < seen:
            seen = 0
            yield Change(0, "clear", scope.session_id, [])
