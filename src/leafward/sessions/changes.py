"""What happened to a session, as a subscriber hears it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.stores.contracts import NOT_THERE, ChangeKind, MessageStore


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change: the session's version after it, what kind it was, and the messages it concerns."""

    version: int
    kind: ChangeKind
    session_id: str
    message_ids: list[str]
    """`append`: the new messages, without those deleted since; `update`, `label`: the message; `delete`: the deleted
    ones; `checkout`: the new leaf, none before the first message; `compaction`: the first and the last message that
    the summary covers; `clear`, `context`: none.
    """
    messages: list[Message] = field(default_factory=list[Message])
    """These messages as stored when they were read, if they were asked for; those that were gone by then are not."""


async def follow(
    store: MessageStore, scope: Scope, since: int | None, *, messages: bool = False
) -> AsyncGenerator[Change]:
    """Yield the changes after version `since`, by whichever process, as they are committed.

    A session that was deleted is reported as cleared, at version 0; one made again under its id is followed from there.
    """
    seen = await store.revision(scope)
    if since is not None:
        seen = seen._replace(version=since)
    while True:
        found = await store.changes(scope, seen.version, messages=messages)
        if found.revision.incarnation != seen.incarnation or found.revision.version < seen.version:
            if seen != NOT_THERE:
                yield Change(0, "clear", scope.session_id, [])
            seen = found.revision._replace(version=0)
            continue
        for record in found.records:
            seen = seen._replace(version=record.version)
            yield Change(record.version, record.kind, scope.session_id, record.message_ids, list(record.messages))
        await store.wait(scope, seen)
