"""Planned operations carried out on a session, and a session read back for the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from faults.ledger import Observed
from faults.plan import Op
from faults.tree import Wire
from leafward import Session
from leafward.core.parent import ParentId


class Writable(Protocol):
    """The calls of a session that a plan uses; broken variants offer the same."""

    async def append_message(self, message: Wire, parent_id: ParentId = ...) -> object: ...
    async def append_messages(self, messages: Sequence[Wire]) -> object: ...
    async def update_message(self, message: Wire) -> object: ...
    async def delete_messages(self, message_ids: Sequence[str]) -> object: ...
    async def checkout(self, message_id: str | None) -> object: ...


def _ignore(_member: int) -> None:
    return None


async def perform(session: Writable, op: Op, *, on_member: Callable[[int], None] = _ignore) -> object:
    """Carry out `op` and return what the call returned; `on_member` hears when each member of a crowd is done."""
    if op.kind == "append":
        return await session.append_message(op.messages[0])
    if op.kind == "branch":
        return await session.append_message(op.messages[0], parent_id=op.target)
    if op.kind == "batch":
        return await session.append_messages(op.messages)
    if op.kind == "update":
        return await session.update_message(op.messages[0])
    if op.kind == "delete":
        return await session.delete_messages(op.targets)
    if op.kind == "checkout":
        return await session.checkout(op.target)

    async def member(number: int, wire: Wire) -> None:
        await session.append_message(wire)
        on_member(number)

    return await asyncio.gather(*(member(number, wire) for number, wire in enumerate(op.messages)))


async def observe(session: Session, *, words: Iterable[str] = ()) -> Observed:
    """Read everything a session holds, and search it for `words`, while nothing changes."""
    while True:
        # A server may still be at work for a client that is gone.
        version = await session.get_version()
        observed = await _observe(session, words)
        if await session.get_version() == version:
            return observed


async def _observe(session: Session, words: Iterable[str]) -> Observed:
    tree = await session.get_tree()
    history = await session.get_history()
    leaf = await session.get_latest_leaf()
    wires = {message.id: message.to_dict() for message in history}
    for node in tree:
        if node.id not in wires:
            message = await session.get_message(node.id)
            if message is not None:
                wires[node.id] = message.to_dict()
    ids = [node.id for node in tree]
    return Observed(
        parents={node.id: node.parent_id for node in tree},
        wires=wires,
        path=[message.id for message in history],
        path_length=await session.get_path_length(),
        leaf=None if leaf is None else leaf.id,
        found={word: [hit.id for hit in await session.search(word)] for word in words},
        repeated=sorted({message_id for message_id in ids if ids.count(message_id) > 1})
        if len(set(ids)) < len(ids)
        else [],
    )
