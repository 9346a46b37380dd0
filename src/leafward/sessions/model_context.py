"""What a model may do with the context of its session: it overwrites and deletes nothing that it was not shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from leafward.core.calls import Call, pair
from leafward.core.errors import BlockNotFound, ContextError
from leafward.core.prompt import ContextBlock, ContextEntry
from leafward.core.transcript import shortened
from leafward.sessions.context import DELETE, NAME_CHARACTERS, Ability, Blocks, Check, as_text, joined
from leafward.sessions.providers import StoredSearchProvider, write_entries
from leafward.sessions.recent import RecentHistory
from leafward.sessions.setup import Block
from leafward.sessions.shown import Shown
from leafward.sessions.toolset import ANSWER_CHARACTERS
from leafward.stores.entries import BLOCK

RECENT = 200
"""How many messages back an answer is looked for; one further back is shown again."""


class SessionLike(Protocol):
    """What is needed of a session: its newest messages, and which skills are loaded."""

    async def get_recent_history(self, *, max_messages: int | None = None) -> RecentHistory: ...

    async def load_skill(self, label: str, key: str) -> str: ...
    async def unload_skill(self, label: str, key: str) -> bool: ...
    async def get_loaded_skill_keys(self) -> list[str]: ...


class NotShown(ContextError):
    """The model was not shown what it would overwrite or delete: `content`, which counts as shown from now on."""

    def __init__(self, key: str, content: str) -> None:
        self.key = key
        self.content = content
        super().__init__("the model was not shown this text")


class ModelContext:
    """The blocks of a session as its model uses them."""

    def __init__(self, session: SessionLike, blocks: Blocks, shown: Shown) -> None:
        self._session = session
        self._blocks = blocks
        self._shown = shown

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

    async def replace(self, block: Block, content: str) -> ContextBlock:
        """Write a block's whole content.

        Raises:
            NotShown: it holds something else than the model was last shown.
        """
        text, label = as_text(content), block.config.label
        check = await self._check(label, BLOCK, text)

        def change(old: str | None) -> str:
            check(old)
            return text

        async with self._showing(label):
            written = await self._blocks.edit(block, change)
        await self._shown.add({label: {BLOCK: written.content}})
        return written

    async def append(self, block: Block, content: str) -> ContextBlock:
        """Write more at the end of a block; a model that does not know the start does not know the whole."""
        text, label = as_text(content), block.config.label
        knows, known = await self._knows(label, BLOCK), False

        def change(old: str | None) -> str:
            nonlocal known
            known = knows(old)
            return joined(old, text)

        written = await self._blocks.edit(block, change)
        if known:
            await self._shown.add({label: {BLOCK: written.content}})
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
        async with self._showing(label):
            await self._blocks.put(block, key, text, description or title, await self._check(label, key, text))
        if read is not None:
            await self._shown.add({label: {key: text}})
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
        async with self._showing(label):
            deleted = await self._blocks.delete(block, key, await self._check(label, key))
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
            await self._shown.add({block.config.label: {key: text}}, await self._open_reply())
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
        whole: dict[str, str] = {}
        for key, content in found.items():
            whole[key] = content
            if len(write_entries(whole)) > ANSWER_CHARACTERS:
                del whole[key]
                break
        await self._shown.add({block.config.label: whole}, await self._open_reply())
        return _fitting(write_entries(found))

    async def list_entries(self, block: Block) -> list[ContextEntry]:
        """Return the entries of a keyed block, in the order of their keys."""
        return await self._blocks.list_entries(block)

    async def _knows(self, label: str, key: str) -> Callable[[str | None], bool]:
        sightings = await self._shown.sightings(label)
        seen = await self._answered_replies() if any(one.reply_id for one in sightings) else set[str]()
        digests = {one.digest for one in sightings if one.reply_id is None or one.reply_id in seen}
        return lambda old: not old or self._shown.digest(old, key) in digests

    async def _answered_replies(self) -> set[str]:
        """Return the replies of the model, on this branch, after which it has replied again."""
        messages = (await self._session.get_recent_history(max_messages=RECENT)).messages
        replies = [message.id for message in messages if message.role == "assistant"]
        return set(replies[:-1])

    async def _open_reply(self) -> str | None:
        """Return the reply whose calls are being answered: the model sees no answer before it replies again."""
        messages = (await self._session.get_recent_history(max_messages=RECENT)).messages
        pairs = pair(messages)
        for row in range(len(messages) - 1, -1, -1):
            if messages[row].role == "assistant":
                waits = any(isinstance(item, Call) and pairs.is_waiting(item) for item in pairs.items[row])
                return messages[row].id if waits else None
        return None

    async def _check(self, label: str, key: str, text: str | None = None) -> Check:
        """Return what raises `NotShown` when other text than the model knows would be lost."""
        knows = await self._knows(label, key)

        def check(old: str | None) -> None:
            if old and old != text and not knows(old):
                raise NotShown(key, old)

        return check

    @asynccontextmanager
    async def _showing(self, label: str) -> AsyncGenerator[None]:
        """Count as shown what a refusal gives the model."""
        try:
            yield
        except NotShown as unseen:
            await self._shown.add({label: {unseen.key: unseen.content}}, await self._open_reply())
            raise


def _fitting(answer: str | None) -> str | None:
    return shortened(answer, ANSWER_CHARACTERS) if answer else None
