"""Whatever chats do at once to a block they share, none of them loses text that it was not shown on its branch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import Message, Session, assistant, open_store, user
from leafward.sessions.waiting_reply import NEWEST
from leafward.stores.entries import Edit, EntryIndex, Shelf
from leafward.testing.unseen import append, replace

CHATS = ("monday", "tuesday", "wednesday")
ACTIONS = (
    "call",
    "call",
    "call",
    "replace",
    "append",
    "program",
    "freeze",
    "refresh",
    "clear",
    "compact",
    "ask",
    "reply",
    "checkout",
    "checkout",
)
Steps = Sequence[tuple[str, int]]


class Branches:
    """The messages of a chat, and the words that its model was shown at each of them."""

    def __init__(self) -> None:
        self._prompted: set[str] = set()
        self._parents: dict[str, str | None] = {}
        self._seen: dict[str | None, set[str]] = {}
        self._not_stored: dict[str | None, set[str]] = {}
        """By leaf: what was shown to a model whose reply is not stored yet."""
        self._calls: set[str | None] = set()
        self.leaf: str | None = None

    def known(self) -> set[str]:
        """Return the words that the model was shown on this branch."""
        words, at = self._prompted | self._not_stored.get(self.leaf, set()), self.leaf
        while at is not None:
            words |= self._seen[at]
            at = self._parents[at]
        return words

    def prompt(self, text: str) -> None:
        """Show a prompt; a reply that waits for its results was made before."""
        if self.leaf not in self._calls:
            self._prompted.update(text.split())

    def answer(self, written: str, shown: str) -> None:
        """Answer a call of a reply: of the one that is the leaf and has no answer, or of one that is not stored yet."""
        if self.leaf in self._calls:
            self._seen[self.leaf].update(written.split())
        else:
            self._not_stored.setdefault(self.leaf, set()).update(written.split(), shown.split())

    def store(self, message_id: str, text: str = "", *, reply: bool, calls: bool = False) -> None:
        """Add a message with a text; a reply knows what was shown before it was stored."""
        self._calls |= {message_id} if calls else set()
        shown = self._not_stored.pop(self.leaf, set())
        self._seen[message_id] = {*text.split(), *(shown if reply else ())}
        self._parents[message_id] = self.leaf
        self.leaf = message_id

    def at(self, number: int) -> str | None:
        """Return one of the messages, or `None` for the place before the first."""
        return [None, *self._parents][number % (len(self._parents) + 1)]


class Journal:
    """What each chat does, and was shown."""

    def __init__(self) -> None:
        self.doing: dict[str, str] = {}
        self.chats: dict[str, Branches] = {}
        self.lost: dict[str, set[str]] = {}
        """By chat: words that its model's replaces lost and that it was not shown on its branch."""

    def edit(self, chat: str, old: str | None, new: str | None) -> None:
        # Only noted: a tool answers what is raised here.
        if self.doing.get(chat) in ("replace", "call"):
            lost = set((old or "").split()) - set((new or "").split())
            if unseen := lost - self.chats[chat].known():
                self.lost.setdefault(chat, set()).update(unseen)


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
    chat = journal.chats[name] = Branches()
    for number, (action, choice) in enumerate(steps):
        session, word = opened(), f"{name}-{number}"
        journal.doing[name] = action
        # Keeps some of what it knows, as a model does.
        known = sorted(chat.known())
        text = " ".join([*known[: choice % (len(known) + 1)], word])
        match action:
            case "replace":
                chat.answer(text, _shown_by(await replace(session, text)))
            case "call":
                await reply_with_calls(session, chat, word, text, choice)
            case "append":
                await append(session, word)
                chat.answer(word, "")
            case "program":
                await session.replace_context_block("memory", word)
            case "freeze":
                chat.prompt(await session.freeze_system_prompt())
            case "refresh":
                chat.prompt(await session.refresh_system_prompt())
            case "clear":
                await session.clear_messages()
                chat = journal.chats[name] = Branches()
            case "ask":
                await session.append_message(user("hi", id=word))
                chat.store(word, reply=False)
            case "reply":
                await session.append_message(assistant("hi", id=word))
                chat.store(word, reply=True)
            case "checkout":
                chat.leaf = chat.at(choice)
                await session.checkout(chat.leaf)
            case _:
                await session.append_messages([user("a", id=f"a {word}"), user("b", id=f"b {word}")])
                chat.store(f"a {word}", reply=False)
                chat.store(f"b {word}", reply=False)
                await session.add_compaction("short", f"a {word}", f"b {word}")


async def reply_with_calls(session: Session, chat: Branches, word: str, text: str, choice: int) -> None:
    """Store a reply that replaces the block once or twice, perhaps after many other calls, and the results."""
    ids = [f"{word} {number}" for number in range((1, 2, NEWEST + 2)[choice % 3])]
    calls = [{"type": "tool_use", "id": call_id, "name": "set_context", "input": {}} for call_id in ids]
    await session.append_message(assistant(calls, id=f"calls {word}"))
    chat.store(f"calls {word}", text, reply=True, calls=True)
    shown: list[str] = []
    for call_id in ids:
        answer = await replace(session, text) if call_id in ids[-2:] else "ok"
        shown.append(_shown_by(answer))
        result = {"type": "tool_result", "tool_use_id": call_id, "content": answer}
        await session.append_message(Message(("tool", "user")[choice % 2], [result], id=f"answer {call_id}"))
        is_last = call_id == ids[-1]
        chat.store(f"answer {call_id}", " ".join(shown) if is_last else "", reply=True, calls=not is_last)


def _shown_by(answer: str) -> str:
    """Return the text that a refusal gives."""
    return answer.partition("\n\n")[2] if answer.startswith("Error: ") else ""


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 40)), min_size=1, max_size=12),
        min_size=2,
        max_size=3,
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_text_is_lost_that_the_replacing_model_was_not_shown(chats: list[Steps], cached: bool, stored: bool) -> None:
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
        assert not journal.lost

    asyncio.run(run())
