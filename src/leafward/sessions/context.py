"""The context blocks of a session: read through to their providers, written within their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from leafward.core.errors import BlockNotFound, ContextError, NotFound
from leafward.core.ids import Scope
from leafward.core.json import Plain
from leafward.core.prompt import ContextBlock, ContextEntry
from leafward.core.tokens import estimate_tokens
from leafward.core.transcript import shortened
from leafward.sessions.entry_keys import EntryKeys
from leafward.sessions.providers import Place, StoredContextProvider, StoredSearchProvider, writing_an_entry
from leafward.sessions.setup import Block, ContextConfig, Setup
from leafward.stores.contracts import Store, largest_message
from leafward.stores.entries import Edit, Shelf

NAME_CHARACTERS = 1000
"""How much of a label or key, which a model may have made up, an error repeats."""


Check = Callable[[str | None], None]
"""Looks at a present text, or `None`, and raises when that is not to be changed."""


class Ability(NamedTuple):
    """Something a block can do because its provider has a method, and what is said of a block that cannot."""

    method: str
    missing: str
    others: str


WRITE = Ability("set", 'block "{}" is readonly', "Blocks you can write: {}.")
LOAD = Ability("load", '"{}" is not a skill block', "Skill blocks: {}")
SEARCH = Ability("search", '"{}" is not searchable', "Searchable blocks: {}")
LIST = Ability(
    "list_entries",
    'the entries of "{}" cannot be listed: it is one text without entries, or its provider has no list_entries()',
    "Blocks that can be listed: {}",
)
DELETE = Ability(
    "delete_entry",
    'the entries of "{}" cannot be deleted: it is one text without entries, or its provider has no delete_entry(key)',
    "Blocks whose entries can be deleted: {}",
)


class Blocks:
    """What a handle knows of its blocks; their content is never kept here."""

    def __init__(self, setup: Setup, scope: Scope, store: Store | None) -> None:
        self._setup = setup
        self._scope = scope
        self._store = store
        self._blocks: dict[str, Block] = {}
        self._keys: dict[str, EntryKeys] = {}
        self.writes = 0
        """Grows with each change through this handle."""
        for block in setup.blocks.values():
            self._bind(block)

    def _bind(self, block: Block) -> None:
        config = block.config
        place = Place(self._scope, self._store, config.label, config.shared)
        self._blocks[config.label] = Block(config, block.source.bind(place))

    @property
    def stored(self) -> bool:
        """Whether there is a store to keep what belongs to blocks."""
        return self._store is not None

    def all(self) -> list[Block]:
        """Return the blocks in the order they were set up."""
        return list(self._blocks.values())

    def able(self, ability: Ability) -> list[Block]:
        """Return the blocks that can do something."""
        return [block for block in self.all() if block.source.has(ability.method)]

    def find(self, label: str, ability: Ability) -> Block:
        """Return a block that can do something.

        Raises:
            BlockNotFound: there is none of that label.
            ContextError: it cannot; the text says which blocks can.
        """
        block = self._get(label)
        if block is None:
            raise BlockNotFound(label, self._blocks)
        if not block.source.has(ability.method):
            raise ContextError(self.refusal(label, ability))
        return block

    def refusal(self, label: str, ability: Ability) -> str:
        """Say of a block, or of a label without one, that it lacks an ability, and which blocks have it."""
        others = ", ".join(block.config.label for block in self.able(ability)) or "none"
        unknown = ability is WRITE and self._get(label) is None
        missing = 'block "{}" not found' if unknown else ability.missing
        return f"{missing.format(shortened(label, NAME_CHARACTERS))}. {ability.others.format(others)}"

    def _get(self, label: object) -> Block | None:
        return self._blocks.get(label) if isinstance(label, str) else None

    def add(self, config: ContextConfig) -> Block:
        """Add a block at run time."""
        self.writes += 1
        block = self._setup.add(config)
        try:
            self._bind(block)
        except BaseException:
            del self._setup.blocks[config.label]
            raise
        return self._blocks[config.label]

    def remove(self, label: str) -> bool:
        """Take a block away; what is stored stays."""
        if self._get(label) is None:
            return False
        self.writes += 1
        self._keys.pop(label, None)
        self._setup.blocks.pop(label, None)
        return self._blocks.pop(label, None) is not None

    async def read(self, label: str) -> ContextBlock | None:
        """Return a block with its content as of now."""
        block = self._get(label)
        return None if block is None else _with_content(block, await block.source.get())

    async def read_all(self) -> list[ContextBlock]:
        """Return all blocks with their content as of now, asking all providers at once."""
        blocks = self.all()
        contents = await asyncio.gather(*(block.source.get() for block in blocks))
        return [_with_content(block, content) for block, content in zip(blocks, contents, strict=True)]

    async def replace(self, label: str, content: str, expected: str | None) -> ContextBlock:
        """Write a block's whole content, if it holds what is `expected`."""
        text, wanted = as_text(content), None if expected is None else as_text(expected)

        def change(old: str | None) -> str:
            if wanted is not None and (old or "") != wanted:
                raise ContextError(
                    f"block {label!r} no longer holds what was expected, and nothing was written: "
                    "read it again with get_context_block, redo the change and try again"
                )
            return text

        return await self.edit(self.find(label, WRITE), change)

    async def append(self, label: str, content: str) -> ContextBlock:
        """Write more at the end of a block, on a line of its own."""
        text = as_text(content)
        return await self.edit(self.find(label, WRITE), lambda old: joined(old, text))

    async def edit(self, block: Block, change: Edit) -> ContextBlock:
        """Change the content of a block that has no keys.

        What is stored, and whether it may be changed so, is looked at in one step: atomic where the block is stored,
        and within this process where it is a user's provider's.
        """
        label, source = block.config.label, block.source
        if source.is_keyed:
            raise ContextError(f"block {label!r} holds entries: write one with {writing_an_entry(repr(label))}")
        self.writes += 1

        def within_limit(old: str | None) -> str:
            return self.checked(block, change(old) or "")

        if isinstance(source.provider, StoredContextProvider):
            return _with_content(block, await source.provider.edit(within_limit) or "")
        async with source.changing():
            content = within_limit(await source.get())
            await source.set(content)
        return _with_content(block, content)

    async def put(self, block: Block, key: str, text: str, description: str | None, check: Check) -> None:
        """Write an entry of a keyed block unless `check` raises; as one step, like `edit`."""
        source = block.source
        self.writes += 1
        if isinstance(source.provider, StoredSearchProvider):

            def change(old: str | None) -> str:
                check(old)
                return text

            await source.provider.edit(key, change, description)
            return
        async with source.changing():
            if source.is_readable_by_key:
                check(await source.read(key))
            await (source.set(key, text, description) if source.is_skill else source.set(key, text))

    async def delete(self, block: Block, key: str, check: Check | None = None) -> bool:
        """Delete an entry unless `check` raises, as one step, and free its key; False when there is none."""
        self.writes += 1
        deleted = as_text(key) == key and await self._delete(block, key, check)
        if deleted:
            await self.keys_of(block).release(key)
        return deleted

    async def _delete(self, block: Block, key: str, check: Check | None) -> bool:
        source = block.source
        if check is None or not source.is_readable_by_key:
            return await source.delete_entry(key)
        if not isinstance(source.provider, StoredSearchProvider):
            async with source.changing():
                check(await source.read(key))
                return await source.delete_entry(key)
        there = await source.provider.get_entry(key) is not None

        def remove(old: str | None) -> None:
            nonlocal there
            there = old is not None
            check(old)

        if there:
            await source.provider.edit(key, remove)
        return there

    def checked(self, block: Block, content: str) -> str:
        """Return what a block, or an entry of it, is to hold.

        Raises:
            ContextError: it is too long.
        """
        config, tokens = block.config, estimate_tokens(content)
        if config.max_tokens is not None and tokens > config.max_tokens:
            raise ContextError(
                f"block {config.label!r} would hold {tokens} of {config.max_tokens} tokens: shorten it and try again"
            )
        largest = largest_message(self._store)
        if 4 * len(content) > largest and len(content.encode()) > largest:
            raise ContextError(f"block {config.label!r} takes {largest:,} bytes at most: shorten it and try again")
        return content

    def keys_of(self, block: Block) -> EntryKeys:
        """Return which keys of a block belong to which titles."""
        label = block.config.label
        if label not in self._keys:
            provider = block.source.provider
            if isinstance(provider, StoredSearchProvider):
                self._keys[label] = EntryKeys(*provider.where)
            else:
                # A user's provider serves all sessions, so its keys are known to all of them.
                entries = None if self._store is None else self._store.entries
                self._keys[label] = EntryKeys(entries, Shelf(self._scope, label, shared=True))
        return self._keys[label]

    async def load(self, label: str, key: str) -> str:
        """Return the text of a skill.

        Raises:
            BlockNotFound: there is no such block.
            ContextError: the block holds no skills.
            NotFound: the block has no skill of that key.
        """
        block = self.find(label, LOAD)
        # A lone surrogate could be given but not stored, so it is part of no key.
        found = await block.source.load(key) if as_text(key) == key else None
        if found is None:
            raise NotFound(f"no skill {key!r} in block {label!r}")
        return found

    async def list_entries(self, block: Block) -> list[ContextEntry]:
        """Return the entries of a keyed block, in the order of their keys."""
        return sorted(await block.source.list_entries(), key=lambda entry: entry.key)


def _with_content(block: Block, content: str) -> ContextBlock:
    config, source = block.config, block.source
    return ContextBlock(
        config.label,
        config.description,
        content,
        estimate_tokens(content),
        config.max_tokens,
        source.writable,
        source.is_skill,
        source.is_searchable,
    )


def as_text(content: object) -> str:
    """Return a text as it can be stored.

    Raises:
        ContextError: it is not a text.
    """
    if not isinstance(content, str):
        raise ContextError(f"the content of a block is text, not {type(content).__name__}")
    return Plain().text(content)


def joined(old: str | None, added: str) -> str:
    """Return a text with another after it, on a new line."""
    return f"{old}\n{added}" if old and not added.startswith("\n") else (old or "") + added
