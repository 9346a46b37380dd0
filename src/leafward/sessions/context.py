"""The context blocks of a session: read through to their providers, written within their limits."""

from __future__ import annotations

import asyncio

from leafward.core.errors import BlockNotFound, ContextError, NotFound
from leafward.core.ids import Scope
from leafward.core.json import Plain
from leafward.core.prompt import ContextBlock
from leafward.core.tokens import estimate_tokens
from leafward.sessions.providers import Place, StoredContextProvider, StoredSearchProvider
from leafward.sessions.setup import Block, ContextConfig, Setup
from leafward.sessions.titles import Titles
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Store
from leafward.stores.entries import Edit, Shelf


class Blocks:
    """What a handle knows of its blocks; their content is never kept here."""

    def __init__(self, setup: Setup, scope: Scope, store: Store | None) -> None:
        self._setup = setup
        self._scope = scope
        self._store = store
        self._blocks: dict[str, Block] = {}
        self._titles: dict[str, Titles] = {}
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

    def find(self, label: str) -> Block:
        """Return a block.

        Raises:
            BlockNotFound: there is none of that label.
        """
        block = self._get(label)
        if block is None:
            raise BlockNotFound(label, self._blocks)
        return block

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
        self._titles.pop(label, None)
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

    async def replace(self, label: str, content: str) -> ContextBlock:
        """Write a block's whole content."""
        text = _text(content)
        return await self._write(label, lambda _: text)

    async def append(self, label: str, content: str) -> ContextBlock:
        """Write more at the end of a block, on a line of its own."""
        text = _text(content)
        return await self._write(label, lambda old: _joined(old, text))

    async def _write(self, label: str, change: Edit) -> ContextBlock:
        block = self._writable(label)
        self.writes += 1
        if block.source.is_keyed:
            raise ContextError(f"block {label!r} holds entries by key: write them with its provider or set_context")

        def within_limit(old: str | None) -> str:
            # What is stored and what may be stored are looked at in one step, whoever else is writing.
            return self._checked(block.config, change(old) or "")

        provider = block.source.provider
        if isinstance(provider, StoredContextProvider):
            return _with_content(block, await provider.edit(within_limit) or "")
        async with block.source.changing():
            content = within_limit(await block.source.get())
            await block.source.set(content)
        return _with_content(block, content)

    async def put(self, label: str, content: str, title: str | None, description: str | None) -> str:
        """Write an entry of a keyed block and return its key."""
        block = self._writable(label)
        text = self._checked(block.config, _text(content))
        self.writes += 1
        # What somebody else put there by hand, or through another session, is not this title's either.
        key = await self._titles_of(block).key_for(title, text, block.source.load if block.source.is_skill else None)
        if block.source.is_skill:
            await block.source.set(key, text, description or title)
        else:
            await block.source.set(key, text)
        return key

    def _checked(self, config: ContextConfig, content: str) -> str:
        tokens = estimate_tokens(content)
        if config.max_tokens is not None and tokens > config.max_tokens:
            raise ContextError(
                f"block {config.label!r} would hold {tokens} of {config.max_tokens} tokens: shorten it and try again"
            )
        largest = DEFAULT_MAX_MESSAGE_BYTES if self._store is None else self._store.max_message_bytes
        if 4 * len(content) > largest and len(content.encode()) > largest:
            raise ContextError(f"block {config.label!r} takes {largest:,} bytes at most: shorten it and try again")
        return content

    def _writable(self, label: str) -> Block:
        block = self.find(label)
        if not block.source.writable:
            raise ContextError(f"block {label!r} is read-only")
        return block

    def _titles_of(self, block: Block) -> Titles:
        label = block.config.label
        if label not in self._titles:
            provider = block.source.provider
            if isinstance(provider, StoredSearchProvider):
                self._titles[label] = Titles(*provider.where)
            else:
                # A provider of the user's own serves all sessions, so its keys are known to all of them.
                entries = None if self._store is None else self._store.entries
                self._titles[label] = Titles(entries, Shelf(self._scope, label, shared=True))
        return self._titles[label]

    async def load(self, label: str, key: str) -> str:
        """Return the text of a skill.

        Raises:
            BlockNotFound: there is no such block.
            ContextError: the block holds no skills.
            NotFound: the block has no skill of that key.
        """
        block = self.find(label)
        if not block.source.is_skill:
            raise ContextError(f"block {label!r} holds no skills to load")
        # A lone surrogate could be given but not stored, so it is part of no key.
        found = await block.source.load(key) if _text(key) == key else None
        if found is None:
            raise NotFound(f"no skill {key!r} in block {label!r}")
        return found

    async def search(self, label: str, query: str) -> str | None:
        """Return what a searchable block finds."""
        block = self.find(label)
        if not block.source.is_searchable:
            raise ContextError(f"block {label!r} cannot be searched")
        return await block.source.search(query)


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


def _text(content: object) -> str:
    if not isinstance(content, str):
        raise ContextError(f"the content of a block is text, not {type(content).__name__}")
    return Plain().text(content)


def _joined(old: str | None, added: str) -> str:
    return f"{old}\n{added}" if old and not added.startswith("\n") else (old or "") + added
