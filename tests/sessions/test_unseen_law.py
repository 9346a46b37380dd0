"""Whatever chats do at once to a block they share, none of them loses text that it was not shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import Session, open_store, user
from leafward.stores.entries import Edit, EntryIndex, Shelf
from leafward.testing.unseen import append, replace

CHATS = ("monday", "tuesday", "wednesday")
ACTIONS = ("replace", "replace", "append", "program", "freeze", "refresh", "clear", "compact")
Steps = Sequence[tuple[str, int]]


class Journal:
    """What happened to a block, in order: what each chat was shown, and what each edit made of it."""

    def __init__(self) -> None:
        self.doing: dict[str, str] = {}
        self.shown: dict[str, set[str]] = {}
        self.replaced = 0

    def see(self, chat: str, text: str) -> None:
        self.shown.setdefault(chat, set()).update(text.split())

    def edit(self, chat: str, old: str | None, new: str | None) -> None:
        """Check that a model's replace loses only words that its chat was shown."""
        if self.doing.get(chat) == "replace":
            self.replaced += 1
            lost = set((old or "").split()) - set((new or "").split())
            assert lost <= self.shown.get(chat, set()), f"{chat} never saw {lost - self.shown.get(chat, set())}"


class Logged:
    """The entries of a store, which log each edit of the block."""

    def __init__(self, entries: EntryIndex, journal: Journal) -> None:
        self._entries = entries
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entries, name)

    async def edit(self, shelf: Shelf, key: str, change: Edit, **options: Any) -> str | None:
        def logged(old: str | None) -> str | None:
            new = change(old)
            if shelf.label == "memory":
                self._journal.edit(shelf.scope.session_id, old, new)
            return new

        return await self._entries.edit(shelf, key, logged, **options)


class LoggedNotes:
    """A block of a user's provider, which logs each edit; a chat is a task of its name."""

    def __init__(self, journal: Journal) -> None:
        self._text = ""
        self._journal = journal

    async def get(self) -> str:
        await asyncio.sleep(0)
        return self._text

    async def set(self, content: str) -> None:
        chat = asyncio.current_task()
        assert chat is not None
        self._journal.edit(chat.get_name(), self._text, content)
        await asyncio.sleep(0)
        self._text = content


async def live(opened: Callable[[], Session], name: str, steps: Steps, journal: Journal) -> None:
    """Let one chat take its steps, each with a new handle."""
    for number, (action, kept) in enumerate(steps):
        session, word = opened(), f"{name}-{number}"
        journal.doing[name] = action
        match action:
            case "replace":
                # Keeps some of what it knows, as a model does.
                known = sorted(journal.shown.get(name, ()))
                text = " ".join([*known[: kept % (len(known) + 1)], word])
                answer = await replace(session, text)
                journal.see(name, answer.partition("\n\n")[2] if answer.startswith("Error: ") else text)
            case "append":
                await append(session, word)
                journal.see(name, word)
            case "program":
                await session.replace_context_block("memory", word)
            case "freeze":
                journal.see(name, await session.freeze_system_prompt())
            case "refresh":
                journal.see(name, await session.refresh_system_prompt())
            case "clear":
                await session.clear_messages()
                journal.shown[name] = set()
            case _:
                await session.append_messages([user("a", id=f"a{number}"), user("b", id=f"b{number}")])
                await session.add_compaction("short", f"a{number}", f"b{number}")


@settings(max_examples=150)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), min_size=1, max_size=12),
        min_size=2,
        max_size=3,
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_text_is_lost_that_the_replacing_chat_was_not_shown(chats: list[Steps], cached: bool, stored: bool) -> None:
    async def run() -> None:
        journal = Journal()
        notes = None if stored else LoggedNotes(journal)
        async with open_store("memory://") as store:
            store.entries = Logged(store.entries, journal)  # pyright: ignore[reportAttributeAccessIssue]

            def opened(name: str) -> Session:
                return Session(store, name, cached_prompt=cached).with_context("memory", provider=notes, shared=True)

            async with asyncio.TaskGroup() as group:
                for name, steps in zip(CHATS, chats, strict=False):
                    group.create_task(live(partial(opened, name), name, steps, journal), name=name)

    asyncio.run(run())
