"""A conversation with its context, prompt, tools and compaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from leafward.core.errors import ConfigurationError
from leafward.core.ids import RESERVED_PREFIX, Scope, refusal
from leafward.core.message import Message
from leafward.core.tokens import TokenCounter
from leafward.sessions.conversation import Conversation, known_id, optional_id, shown_anywhere
from leafward.sessions.session_parts import SessionParts
from leafward.sessions.setup import Configurable, ContextConfig, ErrorHandler, Setup
from leafward.sessions.user_functions import TIMEOUT_S
from leafward.stores.contracts import DEFAULT_TTL, MessageStore, Store

if TYPE_CHECKING:
    from leafward.core.compaction import CompactFunction
    from leafward.core.overlays import Compaction
    from leafward.core.prompt import ContextBlock, ContextEntry
    from leafward.sessions.compaction_state import CompactionRecord
    from leafward.sessions.custom_storage import SessionProvider
    from leafward.sessions.providers import PromptProviderLike, ProviderLike
    from leafward.sessions.session_lease import SessionLease
    from leafward.stores.drafts import Draft
    from leafward.stores.entries import EntryIndex
    from leafward.stores.leases.lease import Lease
    from leafward.tools.tool_set import ToolSet


class Session(Conversation, Configurable):
    """A handle on one conversation of one user with one agent.

    Handles are cheap: two of them, in one process or several, always agree on what is stored; how blocks are set up
    belongs to the handle. The session itself comes into being with its first write. In place of a store it takes any
    object with the methods of `leafward.sessions.SessionProvider`, which holds one session.

    Raises:
        InvalidId: one of the ids is refused.
        ConfigurationError: the store, a block or an option is set up wrongly.
    """

    def __init__(
        self,
        store: Store | SessionProvider,
        session_id: str = "default",
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        context: Iterable[ContextConfig | Mapping[str, Any]] = (),
        cached_prompt: bool | PromptProviderLike | None = False,
        on_compaction: CompactFunction | None = None,
        compact_after: int | None = None,
        token_counter: TokenCounter | None = None,
        on_compaction_error: ErrorHandler | None = None,
    ) -> None:
        self._scope = Scope.of(session_id, user_id=user_id, agent_id=agent_id)
        self._store: Store | None = None
        self._storage: MessageStore
        self._parts: SessionParts | None = None
        self._setup = Setup()
        if is_store(store):
            self._store = store
            self._storage = store.messages
        else:
            self._storage = self._foreign(store, session_id)
        self._apply(context, cached_prompt, on_compaction, compact_after, token_counter, on_compaction_error)

    def _foreign(self, storage: object, session_id: str) -> MessageStore:
        from leafward.sessions.custom_storage import ForeignMessages, check_session_provider

        provider = check_session_provider(storage)
        if session_id != "default":
            raise ConfigurationError(f"a custom storage holds one session and takes no session_id, not {session_id!r}")
        return ForeignMessages(provider, lambda message: self._ready().count(message))

    @classmethod
    def create(cls, store: Store | SessionProvider, *, user_id: str | None = None, agent_id: str = "default") -> Self:
        """Begin to set up a session: `Session.create(store).for_session("chat-1").with_context("memory")`."""
        return cls(store, user_id=user_id, agent_id=agent_id)

    def for_session(self, session_id: str) -> Self:
        """Choose which of the user's sessions with the agent it is."""
        self._check_unused("for_session() before it")
        if self._store is None and session_id != "default":
            raise ConfigurationError(f"a custom storage holds one session and takes no id such as {session_id!r}")
        self._scope = Scope(self._scope.owner, session_id)
        return self

    def with_lease(self, lease: Lease) -> Session:
        """Return another handle on this session, set up like this one, that writes only as long as the lease is held.

        Its writes raise `LeaseLost`, inside their transaction, once another holder came or the lease was released.

        Raises:
            ConfigurationError: the lease is for another session or user, or the storage is a custom one.
        """
        store = self._leasing_store()
        lease.fence.check(self._scope)
        return session_with(self._setup, store.fenced(lease), self._scope)

    def lease(self, *, ttl: float = DEFAULT_TTL, wait: float | None = None) -> SessionLease:
        """Wait for the session's lease and write behind it: `async with session.lease(wait=5) as leased`.

        `leased` is another handle on this session, as `with_lease` makes it; at the end the lease is released. `ttl`
        and `wait` are those of `store.leases.acquire`.

        Raises:
            LeaseBusy: when entered, it was not free within `wait` seconds.
            ConfigurationError: the storage is a custom one, `ttl` or `wait` is not a length of time, or, when entered,
                this task holds the lease already.
        """
        from leafward.sessions.session_lease import SessionLease

        return SessionLease(self, self._leasing_store().leases.acquire(self.session_id, self.user_id, ttl, wait))

    def _leasing_store(self) -> Store:
        if self._store is None:
            raise ConfigurationError("a custom storage has no leases: that needs a store of leafward's")
        return self._store

    @property
    def session_id(self) -> str:
        return self._scope.session_id

    @property
    def user_id(self) -> str | None:
        return self._scope.owner.user_id

    @property
    def agent_id(self) -> str:
        return self._scope.owner.agent_id

    @property
    def compaction_log(self) -> list[CompactionRecord]:
        """Why the last compactions in this process were, or were not, made; oldest first."""
        return self._ready().compactor.records

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}, user_id={self.user_id!r}, agent_id={self.agent_id!r})"

    def _check_unused(self, advice: str) -> None:
        if self._parts is not None:
            raise ConfigurationError(f"this session has been used and cannot be set up any more: call {advice}")

    def _ready(self) -> SessionParts:
        if self._parts is None:
            self._parts = SessionParts(self._setup, self._scope, self._store, self._storage)
        return self._parts

    def _entries(self, what: str) -> EntryIndex:
        self._ready()
        if self._store is None:
            raise ConfigurationError(f"a custom storage cannot {what}: open a store with open_store() for that")
        return self._store.entries

    async def clear_messages(self) -> None:
        """Remove all messages, labels, summaries and loaded skills; the blocks stay, the prompt is rendered again."""
        parts = self._ready()
        await parts.messages.clear(self._scope)
        parts.shown.clear()
        await parts.prompt.renew()

    # Context blocks.

    async def get_context_block(self, label: str) -> ContextBlock | None:
        """Return a block with its content as of now; `None` when there is none of that label.

        Raises:
            ContextError: its provider failed, did not answer, or gave something else than text.
        """
        return await self._ready().blocks.read(label)

    async def get_context_blocks(self) -> list[ContextBlock]:
        """Return all blocks with their content as of now, in the order they were set up."""
        return await self._ready().blocks.read_all()

    async def replace_context_block(self, label: str, content: str, *, expected: str | None = None) -> ContextBlock:
        """Write the whole content of a block; with `expected`, only if that is what it still holds.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: the block is read-only or keyed, holds other text than `expected`, the content exceeds its
                limit, or its provider failed. An entry of a keyed block is written with the tool `set_context`.
        """
        return await self._ready().blocks.replace(label, content, expected)

    async def append_context_block(self, label: str, content: str) -> ContextBlock:
        """Write more at the end of a block, on a new line; others who write at the same time lose nothing.

        Raises:
            BlockNotFound, ContextError: as `replace_context_block`.
        """
        return await self._ready().blocks.append(label, content)

    async def list_context_entries(self, label: str) -> list[ContextEntry]:
        """Return the entries of a keyed block, in the order of their keys.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: its provider cannot list them, or failed.
        """
        from leafward.sessions.context import LIST

        blocks = self._ready().blocks
        return await blocks.list_entries(blocks.find(label, LIST))

    async def delete_context_entry(self, label: str, key: str) -> bool:
        """Delete an entry of a keyed block, and unload it if it is a loaded skill; False when there is none.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: its provider cannot delete entries, refuses to delete this one, or failed.
        """
        from leafward.sessions.context import DELETE

        blocks = self._ready().blocks
        deleted = await blocks.delete(blocks.find(label, DELETE), key)
        if deleted and self._store is not None:
            await self.unload_skill(label, key)
        return deleted

    async def add_context(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: ProviderLike | None = None,
        shared: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> ContextBlock:
        """Add a block to a session in use, as `with_context` does before it. A frozen prompt stays unchanged.

        Raises:
            ConfigurationError: the label is taken, or an option is wrong.
            ContextError: the provider failed; the block was not added.
        """
        parts = self._ready()
        parts.blocks.add(ContextConfig(label, description, max_tokens, provider, shared, timeout))
        try:
            block = await parts.blocks.read(label)
        except BaseException:
            parts.blocks.remove(label)
            raise
        assert block is not None
        return block

    async def remove_context(self, label: str) -> bool:
        """Take a block away, False when there is none; what it stored stays, and so does a frozen prompt."""
        parts = self._ready()
        removed = parts.blocks.remove(label)
        if removed and self._store is not None:
            for loaded, key in await self._store.entries.skills(self._scope):
                if loaded == label:
                    await self._store.entries.unload_skill(self._scope, label, key, [])
        return removed

    # The system prompt.

    async def freeze_system_prompt(self) -> str:
        """Return the system prompt made of all blocks, the same to the byte until it is refreshed.

        A compaction or a clear has it rendered again. With `with_cached_prompt()` it survives restarts. The session
        keeps a digest of what it shows of writable blocks, which the model may replace from then on.

        Raises:
            ContextError: a block's provider failed.
        """
        return await self._ready().prompt.freeze()

    async def refresh_system_prompt(self) -> str:
        """Render the system prompt from the blocks as they are now, and freeze that."""
        return await self._ready().prompt.refresh()

    async def is_prompt_stale(self, *, content: bool = False) -> bool:
        """Tell whether the blocks were configured differently when the prompt was frozen.

        With `content`, also whether a block holds other text than the prompt shows. This includes this session's
        own writes and a change in the number of entries. False while nothing is frozen.
        """
        return await self._ready().prompt.is_stale(content=content)

    # Tools and skills.

    async def tools(self) -> ToolSet:
        """Return the tools that the blocks and the history allow a model to use."""
        from leafward.sessions.model_context import ModelContext
        from leafward.sessions.tools import context_tools

        parts = self._ready()
        return await context_tools(self, ModelContext(self, parts.blocks, parts.shown))

    async def load_skill(self, label: str, key: str) -> str:
        """Return the text of a skill, which then counts as loaded; a custom storage does not record that.

        Raises:
            BlockNotFound: there is no block of that label.
            NotFound: the block has no skill of that key.
            ContextError: the block holds no skills, or its provider failed.
        """
        text = await self._ready().blocks.load(label, key)
        if self._store is not None:
            await self._store.entries.load_skill(self._scope, label, key)
        return text

    async def unload_skill(self, label: str, key: str) -> bool:
        """Take a loaded skill's text out of what the model sees; False when it was not loaded.

        The stored messages stay as they are: the history shows a notice where the text was.
        """
        entries = self._entries("keep which skills are loaded")
        if refusal(label) is not None or (label, key) not in await entries.skills(self._scope):
            return False
        from leafward.core.skill_texts import find_loads

        found = find_loads(await shown_anywhere(self), label, key, self._ready().count)
        return await entries.unload_skill(self._scope, label, key, found)

    async def get_loaded_skill_keys(self) -> list[str]:
        """Return the loaded skills as `"label:key"`, sorted."""
        loaded = await self._entries("keep which skills are loaded").skills(self._scope)
        return [f"{label}:{key}" for label, key in loaded]

    # Compaction.

    async def compact(self, leaf_id: str | None = None) -> Compaction | None:
        """Have the compaction function replace a part of the history by a summary; `None` when no summary was stored.

        Stored messages never change. The summary is stored only if the messages that it covers have not changed while
        it was written. Where showing tool results shortened is enough, that is done and no summary is made.
        `compaction_log` says why there is none.

        Raises:
            CompactionFailed: the summary is blank, or longer than what it replaces.
            ConfigurationError: there is no compaction function, or it returned something else.
            MessageNotFound: `leaf_id` is not in this session.
            Exception: whatever the compaction function raises.
        """
        return await self._ready().compactor.compact(optional_id(leaf_id))

    async def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> Compaction:
        """Lay a summary over the messages from one to another, wherever a path holds both.

        An end may be the id of an earlier summary in the history, `compaction_…`, meaning what that covers.

        Raises:
            MessageNotFound: one of the ends is not there.
            MessageTooLarge: the summary is larger than a message may be.
            ValueError: the ends are not on one path in this order, the summary is empty, or it would cross another.
        """
        from leafward.core.compaction import check_summary
        from leafward.sessions.compactor import new_overlay

        parts = self._ready()
        check_summary(summary)
        overlay = new_overlay(
            summary, known_id(from_message_id), known_id(to_message_id), count=parts.count, largest=parts.largest
        )
        made = await parts.messages.add_overlay(self._scope, overlay)
        assert made is not None
        await parts.prompt.renew()
        return made

    async def get_compactions(self) -> list[Compaction]:
        """Return all summaries of this session, oldest first."""
        return await self._use().overlays(self._scope)

    async def get_summary_ids(self) -> list[str]:
        """Return the ids of the summaries that the history shows, in order."""
        return await self._use().summaries(self._scope)

    async def get_covered(self, compaction_id: str, *, offset: int = 0, limit: int = 20) -> list[Message]:
        """Return stored messages that a summary covers, in order, a page at a time.

        Raises:
            MessageNotFound: there is no such summary.
        """
        if offset < 0 or limit < 0:
            raise ValueError("offset and limit are at least 0")
        plain = known_id(compaction_id).removeprefix(RESERVED_PREFIX)
        return await self._use().covered(self._scope, plain, offset=offset, limit=limit)

    async def estimate_tokens(self) -> int:
        """Return the tokens of the prompt and the visible history, from counts made when messages were stored."""
        return (await self._ready().compactor.weigh(exact=True)).total


def draft_of(session: Session, message: Message) -> Draft:
    """Return a message as the session's store takes it, counted as the session counts."""
    return session._ready().writer.draft(message)  # pyright: ignore[reportPrivateUsage]


def session_with(setup: Setup, store: Store, scope: Scope) -> Session:
    """Return a session with what is set up already."""
    session = Session(store, scope.session_id, user_id=scope.owner.user_id, agent_id=scope.owner.agent_id)
    session._setup = setup.copy()  # pyright: ignore[reportPrivateUsage]
    return session


def is_store(storage: object) -> TypeGuard[Store]:
    """Tell a store from a custom storage.

    Raises:
        ConfigurationError: it is a store for programs without an event loop.
    """
    # A custom storage may have attributes of these names; no store appends messages itself.
    if hasattr(storage, "append_message") or not (hasattr(storage, "messages") and hasattr(storage, "entries")):
        return False
    if not iscoroutinefunction(getattr(storage, "close", None)):
        raise ConfigurationError("this is a blocking store: make the session with store.session(...)")
    return True
