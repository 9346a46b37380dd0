"""Storages as a user would write them: one session in two dicts, behind the twelve methods, plain and async."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from leafward import LATEST_LEAF, Message
from leafward.core import Compaction


class DictStorage:
    """Keeps messages and their parents; a deleted message's children go to its parent."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.parents: dict[str, str | None] = {}
        self.compactions: list[Compaction] = []
        self.leaf: str | None = None
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def get_message(self, message_id: str) -> Message | None:
        return self.messages.get(message_id)

    def get_history(self, leaf_id: str | None = None) -> list[Message]:
        found, at = list[Message](), leaf_id or self.leaf
        while at is not None:
            found.append(self.messages[at])
            at = self.parents[at]
        return found[::-1]

    def get_latest_leaf(self) -> Message | None:
        return None if self.leaf is None else self.messages[self.leaf]

    def get_branches(self, message_id: str) -> list[Message]:
        return [self.messages[child] for child, parent in self.parents.items() if parent == message_id]

    def get_path_length(self, leaf_id: str | None = None) -> int:
        return len(DictStorage.get_history(self, leaf_id))

    def append_message(self, message: Message, parent_id: Any = LATEST_LEAF) -> Message:
        self.calls.append(("append_message", (message.id, parent_id)))
        self.messages[message.id] = message
        self.parents[message.id] = self.leaf if parent_id is LATEST_LEAF else parent_id
        self.leaf = message.id
        return message

    def update_message(self, message: Message) -> Message:
        self.messages[message.id] = message
        return message

    def delete_messages(self, message_ids: list[str]) -> None:
        for gone in message_ids:
            parent = self.parents.pop(gone)
            del self.messages[gone]
            self.parents = {child: parent if above == gone else above for child, above in self.parents.items()}
            self.leaf = parent if self.leaf == gone else self.leaf

    def clear_messages(self) -> None:
        self.messages, self.parents, self.compactions, self.leaf = {}, {}, [], None

    def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> Compaction:
        made = Compaction(f"c{len(self.compactions)}", summary, from_message_id, to_message_id, datetime.now(UTC))
        self.compactions.append(made)
        return made

    def get_compactions(self) -> list[Compaction]:
        return self.compactions

    def search_messages(self, query: str, limit: int) -> list[dict[str, str]]:
        self.calls.append(("search_messages", (query, limit)))
        words = query.lower().split()
        found = [one for one in self.messages.values() if all(word in one.text.lower() for word in words)]
        return [{"id": one.id, "role": one.role, "content": one.text} for one in found][:limit]


class AppliedStorage(DictStorage):
    """Shows summaries in its own history already."""

    def get_history(self, leaf_id: str | None = None) -> list[Message]:
        messages = super().get_history(leaf_id)
        for made in reversed(self.compactions):
            ids = [message.id for message in messages]
            if made.from_message_id in ids and made.to_message_id in ids:
                summary = Message("assistant", made.summary, id=f"compaction_{made.id}", created_at=made.created_at)
                low, high = ids.index(made.from_message_id), ids.index(made.to_message_id)
                messages[low : high + 1] = [summary]
        return messages


def make_async(storage: DictStorage) -> Any:
    """Return a storage with the same twelve methods, each to be awaited."""
    return type("AsyncDictStorage", (), {name: _awaited(getattr(storage, name)) for name in TWELVE})()


def _awaited(method: Callable[..., Any]) -> Any:
    async def call(_: object, *arguments: Any) -> Any:
        return method(*arguments)

    return call


TWELVE = [name for name in vars(DictStorage) if not name.startswith("_")]
