"""What a model may do with the context of its session: it overwrites and deletes nothing that it was not shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import dropwhile, islice
from typing import Literal, Protocol, TypeVar

from leafward.core.calls import Result, answered_id, is_question
from leafward.core.errors import BlockNotFound, ContextError, MessageNotFound
from leafward.core.message import Message
from leafward.core.parts import Part, is_ui_only, parts_of
from leafward.core.prompt import ContextBlock, ContextEntry
from leafward.core.transcript import shortened
from leafward.sessions.context import DELETE, NAME_CHARACTERS, Ability, Blocks, Check, as_text, joined
from leafward.sessions.providers import StoredContextProvider, StoredSearchProvider, write_entries
from leafward.sessions.recent import RecentHistory
from leafward.sessions.setup import Block
from leafward.sessions.shown import ANSWERED, MOST, PROMPTED, WROTE, Anchor, Shown, at_reply
from leafward.sessions.waiting_reply import ALL, NEWEST, RECENT, find_results, find_waiting_reply
from leafward.stores.entries import BLOCK
from leafward.tools.answers import ANSWER_CHARACTERS, count_fitting

T = TypeVar("T")


class SessionLike(Protocol):
    """What is needed of a session: its messages, and which skills are loaded."""

    async def get_raw_history(self, *, limit: int | None = None, before: str | None = None) -> list[Message]: ...
    async def get_recent_history(self, *, max_messages: int | None = None) -> RecentHistory: ...
    async def get_branches(self, message_id: str | None) -> list[Message]: ...

    async def load_skill(self, label: str, key: str) -> str: ...
    async def unload_skill(self, label: str, key: str) -> bool: ...
    async def get_loaded_skill_keys(self) -> list[str]: ...


# Not public, and so not with the other errors: the tools answer it, and no program ever gets it.
class NotShown(ContextError):
    """The model was not shown what it would overwrite or delete: `content`, which counts as shown from now on."""

    def __init__(self, key: str, content: str) -> None:
        self.key = key
        self.content = content
        super().__init__("the model was not shown this text")


class ModelContext:
    """The blocks of a session as its model uses them in one turn."""

    def __init__(self, session: SessionLike, blocks: Blocks, shown: Shown) -> None:
        self._session = session
        self._blocks = blocks
        self._shown = shown
        self._recorded: dict[str, dict[str, str]] = {}
        """The entries that answers of this turn gave, by label and key, as far as that they were shown is stored."""

    @property
    def keeps_loaded_skills(self) -> bool:
        """False for a custom storage, which cannot keep which skills are loaded and so unloads none."""
        return self._blocks.stored

    def able(self, ability: Ability) -> list[Block]:
        """Return the blocks that can do something."""
        return self._blocks.able(ability)

    def find(self, label: str, ability: Ability) -> Block:
        """Return a block that can do something.

        Raises:
            ContextError: there is none of that label, or it cannot; the text says which blocks can.
        """
        try:
            return self._blocks.find(label, ability)
        except BlockNotFound:
            raise ContextError(self._blocks.refusal(label, ability)) from None

    async def read(self, block: Block) -> ContextBlock:
        """Return a block as it is now, which shows the model nothing of it."""
        found = await self._blocks.read(block.config.label)
        assert found is not None
        return found

    async def replace(self, block: Block, content: str) -> ContextBlock:
        """Write a block's whole content.

        Raises:
            NotShown: it holds something else than the model was last shown.
        """
        text, label = as_text(content), block.config.label
        anchor, provider = await self._anchor(WROTE), block.source.provider
        # Most blocks hold something, and a read is cheaper than an edit that is undone.
        present = await provider.get() if isinstance(provider, StoredContextProvider) else None

        async def write(check: Check) -> ContextBlock:
            def change(old: str | None) -> str:
                check(old)
                return text

            return await self._blocks.edit(block, change)

        written = await self._write(label, BLOCK, text, write, present)
        await self._shown.add({label: {BLOCK: written.content}}, anchor)
        return written

    async def append(self, block: Block, content: str) -> ContextBlock:
        """Write more at the end of a block, which shows the model nothing of the text before it."""
        text, label = as_text(content), block.config.label
        anchor, before = await self._anchor(WROTE), None

        def change(old: str | None) -> str:
            nonlocal before
            before = old
            return joined(old, text)

        written = await self._blocks.edit(block, change)
        if not before or await self._knows(label, BLOCK, before):
            await self._shown.add({label: {BLOCK: written.content}}, anchor)
        return written

    async def put(self, block: Block, content: str, title: str | None, description: str | None) -> str:
        """Write an entry of a keyed block and return its key.

        Raises:
            NotShown: there is such an entry, and it holds something else than the model was shown.
        """
        text, source, label = self._blocks.checked(block, as_text(content)), block.source, block.config.label
        # Something that was put there by hand, or by another user's session, is not this title's either.
        read = source.read if source.is_readable_by_key else None
        key = await self._blocks.keys_of(block).key_for(title, text, read)
        anchor = await self._anchor(WROTE)

        async def write(check: Check) -> None:
            await self._blocks.put(block, key, text, description or title, check)

        await self._write(label, key, text, write)
        if read is not None:
            await self._shown.add({label: {key: text}}, anchor)
        return key

    async def delete(self, block: Block, key: str) -> bool:
        """Delete an entry of a keyed block; False when there is none.

        Raises:
            NotShown: it holds something else than the model was shown.
            ContextError: it is a skill that no session of this user wrote.
        """
        label = block.config.label
        if as_text(key) != key:
            return False
        if block.source.is_skill and not await self._blocks.keys_of(block).is_claimed(key):
            if await block.source.read(key) is None:
                return False
            name = shortened(key, NAME_CHARACTERS)
            raise ContextError(f'"{name}" was not written with set_context, so you cannot delete it.')
        deleted = await self._write(label, key, None, lambda check: self._blocks.delete(block, key, check))
        if deleted and self.keeps_loaded_skills:
            await self._session.unload_skill(label, key)
        return deleted

    async def load(self, block: Block, key: str) -> str:
        """Return the text of a skill, which then counts as loaded.

        Raises:
            NotFound: the block has no skill of that key.
        """
        text = await self._session.load_skill(block.config.label, key)
        if block.source.writable or block.source.has(DELETE.method):
            await self._answer(block.config.label, {key: text})
        return text

    async def unload(self, block: Block, key: str) -> bool:
        """Take the text of a skill out of what the model sees; False when it was not loaded."""
        return await self._session.unload_skill(block.config.label, key)

    async def loaded(self) -> list[str]:
        """Return the loaded skills as `"label:key"`."""
        return await self._session.get_loaded_skill_keys()

    async def search(self, block: Block, query: str) -> str | None:
        """Return what a block finds, as far as it fits into an answer."""
        provider = block.source.provider
        if not isinstance(provider, StoredSearchProvider):
            return _fitting(await block.source.search(query))
        found = await provider.find(query)
        whole = count_fitting(write_entries({key: content}) for key, content in found.items())
        await self._answer(block.config.label, dict(islice(found.items(), whole)))
        return _fitting(write_entries(found))

    async def list_entries(self, block: Block) -> list[ContextEntry]:
        """Return the entries of a keyed block, in the order of their keys."""
        return await self._blocks.list_entries(block)

    async def _write(
        self,
        label: str,
        key: str,
        text: str | None,
        write: Callable[[Check], Awaitable[T]],
        present: str | None = None,
    ) -> T:
        """Write, or delete where `text` is `None`, unless other text than the model knows would be lost.

        `present` is the text read just before; it may have changed since.

        Raises:
            NotShown: it would be; that it was shown is recorded.
        """
        known = {text}
        if present and await self._knows(label, key, present):
            known.add(present)

        def check(old: str | None) -> None:
            if old and old not in known:
                raise NotShown(key, old)

        while True:
            try:
                return await write(check)
            except NotShown as unseen:
                if not await self._knows(label, key, unseen.content):
                    await self._shown.add({label: {key: unseen.content}}, await self._anchor(ANSWERED))
                    raise
                known.add(unseen.content)

    async def _answer(self, label: str, entries: Mapping[str, str]) -> None:
        """Count entries that an answer gives as shown; what this turn recorded already needs no second look."""
        recorded = self._recorded.setdefault(label, {})
        if all(recorded.get(key) == text for key, text in entries.items()):
            return
        if await self._shown.add({label: entries}, await self._anchor(ANSWERED)):
            if len(recorded) + len(entries) > MOST:
                recorded.clear()
            recorded.update(entries)

    async def _knows(self, label: str, key: str, text: str) -> bool:
        """Tell whether the model was shown a text on this branch, and has seen it."""
        found = await self._shown.find(label, key, text)
        if found is None or found.anchor is None:
            return found is not None
        anchor = found.anchor
        if anchor.sibling_id is None:
            return await self._has_seen(anchor, anchor.message_id)
        try:
            below = await self._below(anchor.message_id)
        except MessageNotFound:
            return False
        ids = ["", *(message.id for message in below)]
        if anchor.sibling_id not in ids:
            return False
        stored = below[ids.index(anchor.sibling_id) :]
        if not stored:
            # The model is still at work on its reply.
            return await self._leaf_id() == anchor.message_id
        # A question there means that the reply was never stored.
        return not is_question(stored[0]) and await self._has_seen(anchor, stored[0].id)

    async def _has_seen(self, anchor: Anchor, reply_id: str) -> bool:
        """Tell whether a reply is on this branch, and the model has seen what it wrote there or got for it."""
        if anchor.kind == WROTE:
            return await self._is_on_branch(reply_id)
        found = await self._since(reply_id, (NEWEST, RECENT) if anchor.kind == ANSWERED else (NEWEST, RECENT, ALL))
        if not found:
            return False
        results = find_results(found, range(_count_of_reply(found)), anchor.parts)
        if results is None or not await self._went_on(anchor, found, results):
            return False
        return anchor.kind == PROMPTED or await self._are_whole(results, found)

    async def _went_on(self, anchor: Anchor, found: Sequence[Message], results: Sequence[Result]) -> bool:
        """Tell whether the model replied again after all results of the reply that is the first of the messages."""
        last = max((result.row for result in results), default=0)
        if any(map(_is_reply, found[last + 1 :])) or _has_further_step(found[0], anchor.parts):
            return True
        # A program that stores replies after their calls has not stored the next one yet.
        return anchor.sibling_id is not None and await self._find_waiting_reply() is None

    async def _since(self, message_id: str, limits: Sequence[int]) -> list[Message]:
        """Return a message and those below it on this branch, if it is one of the newest."""
        for limit in limits:
            messages = await self._session.get_raw_history(limit=limit)
            ids = [message.id for message in messages]
            if message_id in ids:
                return messages[ids.index(message_id) :]
        return []

    async def _are_whole(self, results: Sequence[Result], found: Sequence[Message]) -> bool:
        """Tell whether a model is shown these results unchanged: compaction shortens some, and summarises."""
        recent = await self._session.get_recent_history(max_messages=len(found))
        shown = {message.id: message for message in recent.messages}
        return bool(results) and all(shown.get(result.message.id) == result.message for result in results)

    async def _is_on_branch(self, message_id: str) -> bool:
        try:
            await self._session.get_raw_history(limit=1, before=message_id)
        except (MessageNotFound, ValueError):
            return False
        return True

    async def _anchor(self, kind: Literal["wrote", "answered"]) -> Anchor:
        """Return where the conversation is: at the reply whose calls are being answered, or below the leaf."""
        reply = await self._find_waiting_reply()
        if reply is not None:
            return at_reply(kind, reply)
        leaf_id = await self._leaf_id()
        return Anchor(kind, leaf_id, sibling_id=_last_id(await self._below(leaf_id)))

    async def _find_waiting_reply(self) -> Message | None:
        return await find_waiting_reply(lambda limit: self._session.get_raw_history(limit=limit))

    async def _leaf_id(self) -> str:
        return _last_id(await self._session.get_raw_history(limit=1))

    async def _below(self, message_id: str) -> list[Message]:
        """Return the messages right below one, or the first ones of all branches."""
        if message_id or self._blocks.stored:
            return await self._session.get_branches(message_id or None)
        # A custom storage lists no first messages, so only that of this branch is known.
        return (await self._session.get_raw_history())[:1]


def _is_reply(message: Message) -> bool:
    return message.role == "assistant"


def _count_of_reply(messages: Sequence[Message]) -> int:
    """Return how many messages a reply takes that begins with the first: some programs store each call in its own."""
    count = 1
    while count < len(messages) and _is_reply(messages[count]) and not _holds_result(messages[count - 1]):
        count += 1
    return count


def _holds_result(message: Message) -> bool:
    return any(answered_id(part) is not None for part in parts_of(message.body))


def _has_further_step(reply: Message, parts: int | None) -> bool:
    """Tell whether the model went on in a reply after its first parts, which it does after a result or a new step."""
    further = dropwhile(lambda part: not _ends_step(part), parts_of(reply.body)[parts:] if parts else ())
    return any(not is_ui_only(part) and part["type"] != "tool_result" for part in further)


def _ends_step(part: Part) -> bool:
    return part["type"] in ("step-start", "tool_result")


def _last_id(messages: Sequence[Message]) -> str:
    return messages[-1].id if messages else ""


def _fitting(answer: str | None) -> str | None:
    return shortened(answer, ANSWER_CHARACTERS) if answer else None
