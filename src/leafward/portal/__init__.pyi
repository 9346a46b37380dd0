"""The one sync door. Written by tools/blocking_stub.py from the async classes: do not edit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Literal, Self, overload

from leafward.core.agent_contexts import Mode, PermissionContext, PermissionRule
from leafward.core.agent_state import AgentState
from leafward.core.archive import Archive
from leafward.core.attached_state import AttachedState
from leafward.core.compaction import CompactFunction
from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import Compaction
from leafward.core.parent import ParentId
from leafward.core.prompt import ContextBlock, ContextEntry
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.session_key import AnyKey, SessionKey
from leafward.core.tokens import TokenCounter
from leafward.core.tree import Outline, TreeNode
from leafward.engine.agent import ReActAgent
from leafward.engine.agent_calls import PartialReasoning, ShutdownState
from leafward.engine.events import AgentEvent
from leafward.engine.questions import Question
from leafward.engine.turn_input import Input
from leafward.portal.iterator import BlockingIterator as BlockingIterator
from leafward.sessions.changes import Change
from leafward.sessions.compaction_state import CompactionRecord
from leafward.sessions.custom_storage import SessionProvider
from leafward.sessions.message_writer import MessageLike
from leafward.sessions.providers import PromptProviderLike, ProviderLike
from leafward.sessions.recent import RecentHistory
from leafward.sessions.setup import ContextConfig, ErrorHandler
from leafward.stores.contracts import (
    Appended,
    Changes,
    Cursor,
    Durability,
    Head,
    NewOverlay,
    PathPage,
    Revision,
    SearchFilter,
    Unchanged,
    Usage,
    View,
    Weight,
)
from leafward.stores.drafts import Draft
from leafward.stores.entries import Edit, Entry, Prompt, Shelf
from leafward.stores.leases.contracts import Holder, SentText, Slot
from leafward.stores.leases.lease import Lease
from leafward.stores.registry import ErasureReport, Origin, Page
from leafward.stores.states.contracts import AgentStateStore, T, Versioned
from leafward.tools.definition import Prepare, Probe, Tool
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.tool_set import ToolLike

__all__ = [
    "BlockingEntryIndex",
    "BlockingIterator",
    "BlockingLease",
    "BlockingLeases",
    "BlockingMessageStore",
    "BlockingReActAgent",
    "BlockingSession",
    "BlockingSessionLease",
    "BlockingSessionManager",
    "BlockingSessionRegistry",
    "BlockingStateStore",
    "BlockingStore",
    "BlockingTool",
    "BlockingToolSet",
    "blocking",
]

class BlockingStore:
    """An open store for code that does not await: entered or not, until it is closed.

    It has what the async store has. `store.session("chat-1", user_id="alice")` makes a session on it; the classes are
    there too, as in `store.Session.create(store)`.
    """

    @property
    def store(self) -> Self:
        """This store."""

    def agent(self, agent: BlockingReActAgent | ReActAgent) -> BlockingReActAgent:
        """Return an agent for code that does not await: `reply = agent.call("Hi")`, `for event in agent.stream("Hi")`.

        An agent that was made without a store keeps its conversations in this one; any other agent in its own, which
        it closes where it is entered, or by `close()`. The session that `load_if_exists` loads belongs to the calling
        thread.

        Raises:
            ConfigurationError: it is not an agent, or keeps its conversations in another blocking store that is open.
        """

    def close(self) -> None:
        """Finish what was begun, close the store and end its thread; a second call does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def messages(self) -> BlockingMessageStore: ...
    @property
    def entries(self) -> BlockingEntryIndex: ...
    @property
    def registry(self) -> BlockingSessionRegistry: ...
    @property
    def states(self) -> BlockingStateStore: ...
    @property
    def leases(self) -> BlockingLeases: ...
    def fenced(self, lease: BlockingLease | Lease) -> BlockingStore:
        """Return this store for writing behind a lease: each write is refused in its transaction once it is lost.

        That holds for messages, context and states. The registry is not fenced: a session is deleted whoever has it.
        """

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def distributed(self) -> bool:
        """Whether processes on several machines can share it."""

    def durability(self) -> Durability:
        """Tell what a finished write survives, as found on this store."""

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the store as of now to a file."""

    def session(
        self,
        session_id: str = "default",
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        context: Iterable[ContextConfig | Mapping[str, Any]] = ...,
        cached_prompt: bool | PromptProviderLike | None = False,
        on_compaction: CompactFunction | None = None,
        compact_after: int | None = None,
        token_counter: TokenCounter | None = None,
        on_compaction_error: ErrorHandler | None = None,
    ) -> BlockingSession:
        """Make a Session on this store."""
    Session: type[BlockingSession]

    def manager(
        self,
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        context: Iterable[ContextConfig | Mapping[str, Any]] = ...,
        cached_prompt: bool | PromptProviderLike | None = False,
        on_compaction: CompactFunction | None = None,
        compact_after: int | None = None,
        token_counter: TokenCounter | None = None,
        on_compaction_error: ErrorHandler | None = None,
    ) -> BlockingSessionManager:
        """Make a SessionManager on this store."""
    SessionManager: type[BlockingSessionManager]

class BlockingSession:
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
        store: BlockingStore | SessionProvider,
        session_id: str = "default",
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        context: Iterable[ContextConfig | Mapping[str, Any]] = ...,
        cached_prompt: bool | PromptProviderLike | None = False,
        on_compaction: CompactFunction | None = None,
        compact_after: int | None = None,
        token_counter: TokenCounter | None = None,
        on_compaction_error: ErrorHandler | None = None,
    ) -> None: ...
    @classmethod
    def create(
        cls, store: BlockingStore | SessionProvider, *, user_id: str | None = None, agent_id: str = "default"
    ) -> Self:
        """Begin to set up a session: `Session.create(store).for_session("chat-1").with_context("memory")`."""

    def for_session(self, session_id: str) -> Self:
        """Choose which of the user's sessions with the agent it is."""

    def with_lease(self, lease: BlockingLease | Lease) -> BlockingSession:
        """Return another handle on this session, set up like this one, that writes only as long as the lease is held.

        Its writes raise `LeaseLost`, inside their transaction, once another holder came or the lease was released.

        Raises:
            ConfigurationError: the lease is for another session or user, or the storage is a custom one.
        """

    def lease(self, *, ttl: float = ..., wait: float | None = None) -> BlockingSessionLease:
        """Wait for the session's lease and write behind it: `async with session.lease(wait=5) as leased`.

        `leased` is another handle on this session, as `with_lease` makes it; at the end the lease is released. `ttl`
        and `wait` are those of `store.leases.acquire`.

        Raises:
            LeaseBusy: when entered, it was not free within `wait` seconds.
            ConfigurationError: the storage is a custom one, `ttl` or `wait` is not a length of time, or, when entered,
                this task holds the lease already.
        """

    @property
    def session_id(self) -> str: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def agent_id(self) -> str: ...
    @property
    def compaction_log(self) -> list[CompactionRecord]:
        """Why the last compactions in this process were, or were not, made; oldest first."""

    def clear_messages(self) -> None:
        """Remove all messages, labels, summaries and loaded skills; the blocks stay, the prompt is rendered again."""

    def get_context_block(self, label: str) -> ContextBlock | None:
        """Return a block with its content as of now; `None` when there is none of that label.

        Raises:
            ContextError: its provider failed, did not answer, or gave something else than text.
        """

    def get_context_blocks(self) -> list[ContextBlock]:
        """Return all blocks with their content as of now, in the order they were set up."""

    def replace_context_block(self, label: str, content: str, *, expected: str | None = None) -> ContextBlock:
        """Write the whole content of a block; with `expected`, only if that is what it still holds.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: the block is read-only or keyed, holds other text than `expected`, the content exceeds its
                limit, or its provider failed. An entry of a keyed block is written with the tool `set_context`.
        """

    def append_context_block(self, label: str, content: str) -> ContextBlock:
        """Write more at the end of a block, on a new line; others who write at the same time lose nothing.

        Raises:
            BlockNotFound, ContextError: as `replace_context_block`.
        """

    def list_context_entries(self, label: str) -> list[ContextEntry]:
        """Return the entries of a keyed block, in the order of their keys.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: its provider cannot list them, or failed.
        """

    def delete_context_entry(self, label: str, key: str) -> bool:
        """Delete an entry of a keyed block, and unload it if it is a loaded skill; False when there is none.

        Raises:
            BlockNotFound: there is no block of that label.
            ContextError: its provider cannot delete entries, refuses to delete this one, or failed.
        """

    def add_context(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: ProviderLike | None = None,
        shared: bool = False,
        timeout: float = ...,
    ) -> ContextBlock:
        """Add a block to a session in use, as `with_context` does before it. A frozen prompt stays unchanged.

        Raises:
            ConfigurationError: the label is taken, or an option is wrong.
            ContextError: the provider failed; the block was not added.
        """

    def remove_context(self, label: str) -> bool:
        """Take a block away, False when there is none; what it stored stays, and so does a frozen prompt."""

    def freeze_system_prompt(self) -> str:
        """Return the system prompt made of all blocks, the same to the byte until it is refreshed.

        A compaction or a clear has it rendered again. With `with_cached_prompt()` it survives restarts. The session
        keeps a digest of what it shows of writable blocks, which the model may replace from then on.

        Raises:
            ContextError: a block's provider failed.
        """

    def refresh_system_prompt(self) -> str:
        """Render the system prompt from the blocks as they are now, and freeze that."""

    def is_prompt_stale(self, *, content: bool = False) -> bool:
        """Tell whether the blocks were configured differently when the prompt was frozen.

        With `content`, also whether a block holds other text than the prompt shows. This includes this session's
        own writes and a change in the number of entries. False while nothing is frozen.
        """

    def tools(self) -> BlockingToolSet:
        """Return the tools that the blocks and the history allow a model to use."""

    def load_skill(self, label: str, key: str) -> str:
        """Return the text of a skill, which then counts as loaded; a custom storage does not record that.

        Raises:
            BlockNotFound: there is no block of that label.
            NotFound: the block has no skill of that key.
            ContextError: the block holds no skills, or its provider failed.
        """

    def unload_skill(self, label: str, key: str) -> bool:
        """Take a loaded skill's text out of what the model sees; False when it was not loaded.

        The stored messages stay as they are: the history shows a notice where the text was.
        """

    def get_loaded_skill_keys(self) -> list[str]:
        """Return the loaded skills as `"label:key"`, sorted."""

    def compact(self, leaf_id: str | None = None) -> Compaction | None:
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

    def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> Compaction:
        """Lay a summary over the messages from one to another, wherever a path holds both.

        An end may be the id of an earlier summary in the history, `compaction_…`, meaning what that covers.

        Raises:
            MessageNotFound: one of the ends is not there.
            MessageTooLarge: the summary is larger than a message may be.
            ValueError: the ends are not on one path in this order, the summary is empty, or it would cross another.
        """

    def get_compactions(self) -> list[Compaction]:
        """Return all summaries of this session, oldest first."""

    def get_summary_ids(self) -> list[str]:
        """Return the ids of the summaries that the history shows, in order."""

    def get_covered(self, compaction_id: str, *, offset: int = 0, limit: int = 20) -> list[Message]:
        """Return stored messages that a summary covers, in order, a page at a time.

        Raises:
            MessageNotFound: there is no such summary.
        """

    def estimate_tokens(self) -> int:
        """Return the tokens of the prompt and the visible history, from counts made when messages were stored."""

    def append_message(
        self,
        message: MessageLike,
        parent_id: ParentId = ...,
        *,
        state: Mapping[str, Mapping[str, Any] | None] | None = None,
    ) -> Message:
        """Store a new message and make it the leaf; return it as stored.

        Without `parent_id` it goes under the current leaf; `None` makes it a root. An id that is stored already writes
        nothing, does not move the leaf, and gives back what is stored, so a retry is safe. `state={name: value}` is
        attached to the message in the same step, as `set_state` does, also to one that is stored already.

        Raises:
            MessageNotFound: `parent_id` is not in this session.
            MessageTooLarge, InvalidId, ValueError: the message or a state is refused; nothing was written.
        """

    def append_messages(
        self,
        messages: Iterable[MessageLike],
        parent_id: ParentId = ...,
        *,
        state: Mapping[str, Mapping[str, Any] | None] | None = None,
    ) -> list[Message]:
        """Store messages as a chain, all or none; return them as stored.

        An id that is stored already is kept as it is and becomes the parent of the next. `state` is attached to the
        last message.

        Raises:
            ValueError: an id occurs twice in the batch, or there is a state and no message to attach it to.
            MessageNotFound, MessageTooLarge, InvalidId: as `append_message`.
        """

    def set_state(self, name: str, value: Mapping[str, Any] | None) -> None:
        """Attach a JSON object to the current leaf, or to the root before the first message; `None` removes it.

        It is in force there and for all messages below that have no nearer one of that name, so checkout, branch and
        fork bring the state of that point. Deleting a message keeps its states in force for the messages below it.

        Raises:
            InvalidId: the name is not an id, or begins with `leafward.`.
            ValueError: the value is not a JSON object, or holds NaN or an infinity.
            MessageTooLarge: it has more bytes of JSON than the store accepts.
            ConfigurationError: the storage is a custom one.
        """

    def get_state(self, name: str, leaf_id: str | None = None) -> dict[str, Any] | None:
        """Return the state of that name in force at a message (default: the current leaf); `None` when there is none.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """

    def get_states(self, leaf_id: str | None = None) -> dict[str, dict[str, Any]]:
        """Return all states in force at a message (default: the current leaf), by name; not those of leafward itself.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """

    def update_message(self, message: MessageLike) -> Message:
        """Replace the message of this id, keeping its parent, its place and its `created_at`.

        Raises:
            MessageNotFound: no message of this session has the id.
        """

    def upsert_message(self, message: MessageLike, parent_id: ParentId = ...) -> Message:
        """Replace the message of this id, or append it when there is none.

        Like an append it compacts a session that exceeds its threshold. This message stays out of the summary while it
        is the newest one: it may be a reply that is still being written.
        """

    def delete_messages(self, message_ids: Iterable[str]) -> int:
        """Remove messages and return how many were there.

        Their children attach to the nearest surviving ancestor; their labels go with them.
        """

    def get_history(self, leaf_id: str | None = None) -> list[Message]:
        """Return the messages from the root to `leaf_id`, root first, as the model sees them.

        Without `leaf_id` the path ends at the current leaf; an empty session has an empty path.

        Raises:
            MessageNotFound: `leaf_id` is not in this session.
        """

    def get_raw_history(
        self, leaf_id: str | None = None, *, limit: int | None = None, before: str | None = None
    ) -> list[Message]:
        """Return the stored messages from the root to `leaf_id`, root first, without summaries.

        With `limit` only the last that many of them, and with `before` only those above that message. To scroll up,
        ask for a page, then for the one before its first message: each costs what it returns.

        Raises:
            MessageNotFound: `leaf_id` or `before` is not in this session.
            ValueError: `before` is on another branch than `leaf_id`, or `limit` is not a number of at least 1.
        """

    def iter_history(self, leaf_id: str | None = None, newest_first: bool = False) -> BlockingIterator[Message]:
        """Yield what `get_history` returns, from either end, holding a page in memory at a time."""

    def get_recent_history(
        self, *, max_messages: int | None = None, max_tokens: int | None = None, max_bytes: int | None = None
    ) -> RecentHistory:
        """Return the newest messages that fit; the tightest limit wins.

        The newest message is always there, and a tool result always comes with its call, if need be over the limit.
        Tokens are those counted when the message was stored; bytes are those of its JSON.
        """

    def get_message(self, message_id: str) -> Message | None:
        """Return a message of this session, or `None`."""

    def get_parent(self, message_id: str) -> Message | None:
        """Return the message above; `None` for a root."""

    def get_latest_leaf(self) -> Message | None:
        """Return the message the next append goes under, even when it has children already; `None` at the root."""

    def get_branches(self, message_id: str | None) -> list[Message]:
        """Return the messages right below, in the order they were stored; `None` asks for the roots."""

    def get_path_length(self, leaf_id: str | None = None) -> int:
        """Return how many stored messages the path has."""

    def get_tip(self, message_id: str) -> Message:
        """Return the newest leaf below a message: where its branch was last continued, or the message itself.

        The newest is the one committed last, whatever the clocks said.

        Raises:
            MessageNotFound: the message is not in this session.
        """

    def checkout(self, message_id: str | None, *, tip: bool = False) -> None:
        """Make a message the leaf, so that the next append branches there; `None` is before the first message.

        With `tip` the leaf becomes the newest leaf below the message, as `get_tip` finds it, in one step: this is how a
        chat window goes to answer "2 of 3". `checkout(None, tip=True)` goes to the newest leaf of the session.

        Raises:
            MessageNotFound: the message is not in this session.
        """

    def get_leaves(self) -> list[Message]:
        """Return the messages that have no children, in the order they were stored."""

    def get_tree(self) -> list[TreeNode]:
        """Return every message with its neighbours, parents before children."""

    def label(self, message_id: str, name: str | None) -> None:
        """Give a message a name, or take it away with `None`; several messages may have the same name."""

    def get_labels(self) -> dict[str, str]:
        """Return the names of messages by their ids."""

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[SearchResult]:
        """Find messages on all branches, best match first.

        All words must occur; `"quoted words"` are a phrase. English words are found by their stem, Chinese, Japanese
        and Korean ones inside sentences. Text, tool calls and tool results are searched. `since` is inclusive, `until`
        exclusive. Any string is a query; one without words finds nothing.
        """

    def get_version(self) -> int:
        """Return the number of this session's last change; 0 before the first."""

    def subscribe(self, since: int | None = None, *, messages: bool = False) -> BlockingIterator[Change]:
        """Yield each change after version `since`, in commit order, by whichever process.

        Without `since` it begins at its first step. To miss nothing, take `get_version()`, then read, then subscribe.
        With `messages` each change brings the messages it concerns, as stored when they are read.

        A message that was deleted before its append is read is left out of it, and an append of nothing else is not
        reported, so versions may have gaps.

        A session that is deleted is reported as `clear` at version 0, and one made again under its id is followed from
        its beginning, also if it was not looked at in between. A version is only a number: one that was kept from
        before the deletion is taken for a version of the new session once that has as many changes.
        """

    def with_context(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: ProviderLike | None = None,
        shared: bool = False,
        timeout: float = ...,
    ) -> Self:
        """Add a context block: a section of the system prompt, which its provider fills.

        Without a provider the block is writable and kept in the store, for this session alone or, `shared`, for all
        sessions of this user with this agent. A plain text is a read-only block. `max_tokens` limits what is written to
        it, or each of its entries; `timeout` is how many seconds the provider has to answer.

        Raises:
            ConfigurationError: the label is taken, the session is in use already, or the provider has no method that a
                block can use.
        """

    def with_cached_prompt(self, provider: PromptProviderLike | None = None) -> Self:
        """Keep the frozen system prompt in the store, or where `provider` keeps it with `get()` and `set(text)`.

        Raises:
            ConfigurationError: the provider lacks one of them, or would mix the prompts of a manager's sessions.
        """

    def on_compaction(self, fn: CompactFunction) -> Self:
        """Have `fn` choose and summarise what `compact()` and `compact_after` replace by a summary."""

    def compact_after(
        self, threshold: int, token_counter: TokenCounter | None = None, *, background: bool = False
    ) -> Self:
        """Compact whenever an append makes prompt and history exceed `threshold` tokens.

        It runs inside that append, after its message is stored; with `background=True` in a task that goes on when the
        append has returned. Closing the store cancels that task, and the next append over the threshold starts another.
        An `upsert_message` compacts, too; its message stays out of the summary as long as it is the newest one.
        """

    def on_compaction_error(self, fn: ErrorHandler) -> Self:
        """Have `fn(error)` called when an automatic compaction failed or left more than the threshold."""

class BlockingSessionManager:
    """Manages the sessions of one user with one agent.

    What its builder calls or the same options set up is given to every session. Stored content, prompt and entries are
    each session's own, unless a block is `shared`.

    Raises:
        InvalidId: one of the ids is refused.
        ConfigurationError: the store, a block or an option is set up wrongly.
    """

    def __init__(
        self,
        store: BlockingStore,
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        context: Iterable[ContextConfig | Mapping[str, Any]] = ...,
        cached_prompt: bool | PromptProviderLike | None = False,
        on_compaction: CompactFunction | None = None,
        compact_after: int | None = None,
        token_counter: TokenCounter | None = None,
        on_compaction_error: ErrorHandler | None = None,
    ) -> None: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def agent_id(self) -> str: ...
    def with_searchable_history(self, label: str) -> Self:
        """Give every session a block through which the model searches all sessions of this user with this agent."""

    def create(
        self,
        name: str,
        *,
        session_id: str | None = None,
        parent_session_id: str | None = None,
        model: str | None = None,
        source: str | None = None,
    ) -> SessionInfo:
        """Begin a session, under a fresh id unless one is given.

        Raises:
            SessionExists: there is a session of that id.
            InvalidId, ValueError: an id is refused, or the name, model or source is no text.
        """

    def get(self, session_id: str) -> SessionInfo | None:
        """Return what is known of a session; `None` when there is none."""

    def list(self, *, limit: int | None = 50, cursor: str | None = None) -> Page[SessionInfo]:
        """Return sessions, the last changed first; give a page's `next_cursor` to get the next one.

        `limit=None` returns all of them.
        """

    def rename(self, session_id: str, name: str) -> None:
        """Give a session another name.

        Raises:
            SessionNotFound: there is no such session.
        """

    def add_usage(
        self,
        session_id: str,
        input_tokens: int,
        output_tokens: int,
        cost: float = 0.0,
        *,
        model: str | None = None,
        usage_id: str | None = None,
    ) -> None:
        """Add to the tokens and the cost that a session has used; the same `usage_id` counts once.

        Raises:
            InvalidId: `usage_id` is refused.
            SessionNotFound: there is no such session.
            ValueError: a number is negative, or none.
        """

    def delete(self, session_id: str) -> bool:
        """Remove a session with its messages, summaries, own blocks, prompt and usage; False when there is none.

        Shared blocks stay.
        """

    def erase(self, session_id: str) -> ErasureReport:
        """Delete a session and remove its bytes from files, index and log; tell what could not be reached."""

    def get_session(self, session_id: str) -> BlockingSession:
        """Return the handle of a session; the session itself is made by its first write."""

    def append(self, session_id: str, message: MessageLike, parent_id: ParentId = ...) -> Message:
        """Store a message in a session, as `Session.append_message`.

        Raises:
            SessionNotFound: there is no such session.
        """

    def upsert(self, session_id: str, message: MessageLike, parent_id: ParentId = ...) -> Message:
        """Replace a message of a session, or append it, as `Session.upsert_message`."""

    def append_all(self, session_id: str, messages: Iterable[MessageLike], parent_id: ParentId = ...) -> list[Message]:
        """Store messages as a chain, all or none, as `Session.append_messages`."""

    def get_history(self, session_id: str, leaf_id: str | None = None) -> list[Message]:
        """Return a session's history as the model sees it."""

    def get_message_count(self, session_id: str) -> int:
        """Return how many stored messages a session's current path has."""

    def clear_messages(self, session_id: str) -> None:
        """Remove all messages of a session, as `Session.clear_messages`."""

    def delete_messages(self, session_id: str, message_ids: Iterable[str]) -> int:
        """Remove messages of a session and return how many were there."""

    def fork(self, session_id: str, at_message_id: str, name: str) -> SessionInfo:
        """Copy a session up to a message into a new one, in one step and without asking the model.

        The copy has the path to that message, its labels, the summaries inside it, the session's own blocks and its
        loaded skills, all under the same ids, and the attached states; not its usage, prompt or state slot.

        Raises:
            SessionNotFound, MessageNotFound: there is nothing to copy.
        """

    def compact_and_split(self, session_id: str, summary: str, name: str | None = None) -> SessionInfo:
        """End a session and go on in a new one that begins with a summary of it.

        The new session has the old one's blocks, model and source, and its name unless another is given.

        Raises:
            SessionNotFound: there is no such session.
            ValueError: the summary is blank.
        """

    def search(self, query: str, *, limit: int = 20) -> list[SearchResult]:
        """Find messages in all sessions of this user with this agent, as `Session.search` does in one."""

    def export_session(self, session_id: str) -> dict[str, Any]:
        """Return a session as JSON values: messages on all branches, labels, summaries, own context, usage.

        Raises:
            SessionNotFound: there is no such session.
        """

    def import_session(self, data: Mapping[str, Any], *, session_id: str | None = None) -> SessionInfo:
        """Bring an exported session into being, under its own id or another.

        Raises:
            SessionExists: there is a session of that id; nothing was written.
            ValueError: `data` is not an exported session.
        """

    def tools(self) -> BlockingToolSet:
        """Return tools with which a model searches, lists and reads the sessions of this user with this agent."""

    def with_context(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: ProviderLike | None = None,
        shared: bool = False,
        timeout: float = ...,
    ) -> Self:
        """Add a context block: a section of the system prompt, which its provider fills.

        Without a provider the block is writable and kept in the store, for this session alone or, `shared`, for all
        sessions of this user with this agent. A plain text is a read-only block. `max_tokens` limits what is written to
        it, or each of its entries; `timeout` is how many seconds the provider has to answer.

        Raises:
            ConfigurationError: the label is taken, the session is in use already, or the provider has no method that a
                block can use.
        """

    def with_cached_prompt(self, provider: PromptProviderLike | None = None) -> Self:
        """Keep the frozen system prompt in the store, or where `provider` keeps it with `get()` and `set(text)`.

        Raises:
            ConfigurationError: the provider lacks one of them, or would mix the prompts of a manager's sessions.
        """

    def on_compaction(self, fn: CompactFunction) -> Self:
        """Have `fn` choose and summarise what `compact()` and `compact_after` replace by a summary."""

    def compact_after(
        self, threshold: int, token_counter: TokenCounter | None = None, *, background: bool = False
    ) -> Self:
        """Compact whenever an append makes prompt and history exceed `threshold` tokens.

        It runs inside that append, after its message is stored; with `background=True` in a task that goes on when the
        append has returned. Closing the store cancels that task, and the next append over the threshold starts another.
        An `upsert_message` compacts, too; its message stays out of the summary as long as it is the newest one.
        """

    def on_compaction_error(self, fn: ErrorHandler) -> Self:
        """Have `fn(error)` called when an automatic compaction failed or left more than the threshold."""

class BlockingSessionLease:
    """A lease about to be acquired: entered, it gives the session's leased handle, and is released at the end."""

    def __enter__(self) -> BlockingSession: ...
    def __exit__(self, *_: object) -> None: ...

class BlockingReActAgent:
    """An agent that reasons and acts until it has an answer; every step is stored before the next begins.

    `store` is a URL, an open store or a store of states; without one, states are JSON files in AgentScope's directory.
    One agent serves any number of users and sessions at once, and calls to one session run one after the other, here
    and in other processes. Agents that are called with the same user and session in one store share the conversation,
    unless `state_name` or `slot="off"` keeps them apart. The first middleware is the outermost one; the hooks are those
    that `hooks` holds when a call begins. What an agent opened itself is closed by `close()`, or by
    `async with`.

    Raises:
        ConfigurationError: an option is wrong, or two tools have one name.
    """

    @property
    def name(self) -> str: ...
    @property
    def agent_id(self) -> str: ...
    def call(self, input: Input, ctx: RuntimeContext | None = None) -> Message:
        """Answer a message, or several, and return the reply once it is stored.

        `None` goes on with an open turn. The same input again, after a crash or a lost connection, goes on with its
        turn; input whose id is stored is never answered twice. Where a reply was cut off, the reply that is returned
        then is its remainder; the first part is the message before it. Other input closes calls that wait for results.

        Raises:
            BudgetExceeded: the turn, or the session, has used up the agent's budget; what was stored stays.
            AgentShuttingDown: the agent is shutting down or closed. A call that waited has stored nothing; one that
                ran is paused: the same input, or `None`, goes on with it, here or in another process.
            ConfigurationError: the call is made inside a turn of the same session, or the conversation is that of an
                agent with this `agent_id` and another `state_name`.
            LeaseLost: another process has taken over the session; what was stored before stays.
            StaleState: another writer changed the slot during the call.
            ValueError: the input cannot be answered here; the text says what to do.
        """

    def stream(self, input: Input, ctx: RuntimeContext | None = None) -> BlockingIterator[AgentEvent]:
        """Do what `call` does, and yield what happens meanwhile. Leaving the stream cancels the turn there.

        Input that was answered before brings `AGENT_RESULT` without pieces. A stream that raises has no `AGENT_END`.

        Raises:
            Exception: as `call`.
        """

    def interrupt(
        self, user_id: str | None = None, session_id: str | None = None, message: str | Message | None = None
    ) -> bool:
        """Stop the running turn of a session at its next safe point, in whatever process; False when none runs.

        What was said so far is kept, every call gets a result, and the message is stored last, unanswered. Without
        arguments it stops the one session that calls of this object are running.

        Raises:
            ConfigurationError: no session is named, and this agent is running several, which the text lists.
            MessageTooLarge: the message is larger than the store accepts. The turn is stopped without it.
            ValueError: the message has more than 64 KiB. The turn is stopped without it; send it with the next call.
        """

    def steer(self, user_id: str | None, session_id: str | None, message: str | Message) -> bool:
        """Have a message join the running turn of a session after its current round of tools; False when none runs.

        Raises:
            MessageTooLarge: the message is larger than the store accepts; nothing was sent.
            ValueError: the message has more than 64 KiB; nothing was sent.
        """

    def attach(self, user_id: str | None = None, session_id: str | None = None) -> BlockingIterator[AgentEvent]:
        """Yield what the running turn of a session has stored, then each further step when it is stored.

        It works from any process that shares the store, and yields nothing if no turn of this agent runs. Each event
        brings a stored `message`: `CUSTOM` with the name `input` for the user's, `MODEL_CALL_END` for a reply,
        `TOOL_RESULT_END` for a result. `AGENT_RESULT` brings the final reply; a turn that failed, was paused or lost
        its process ends without one. Leaving the iterator does not touch the turn.

        Raises:
            ConfigurationError: a custom store of states keeps no steps.
            SessionNotFound: the session was deleted meanwhile.
        """

    def questions(self, user_id: str | None = None, session_id: str | None = None) -> list[Question]:
        """Return the calls of a session that wait for the user's answer, whichever process has asked.

        Those whose `ask_timeout` is over are not among them: the next call declines them.
        """

    def answer(
        self, user_id: str | None, session_id: str | None, answers: Mapping[str, bool] | Sequence[Mapping[str, Any]]
    ) -> Message:
        """Answer questions, and return the reply of the turn that goes on; those that are left are asked again.

        `answers` is a dict with True or False for each call's id, or a list of
        `{"confirmed": True, "toolCall": call, "rules": [rule]}`: the call may be edited, and the rules are kept in the
        session. The same answers again change nothing.

        Raises:
            ValueError: an answer is for a call that is not asked about, or does not fit it; nothing was changed.
            Exception: as `call`.
        """

    def get_permissions(self, user_id: str | None = None, session_id: str | None = None) -> PermissionContext:
        """Return the mode and the rules of a session, as stored; a running turn stores changes with its next step."""

    def set_permission_mode(self, user_id: str | None, session_id: str | None, mode: Mode) -> None:
        """Give a session another mode.

        While a turn runs, the change is kept with the session, also if the process is killed. The turn takes it over
        and stores it with its next step; `get_permissions` shows it from then on.

        Raises:
            ConfigurationError: there is no such mode.
        """

    def add_rule(self, user_id: str | None, session_id: str | None, rule: PermissionRule | Mapping[str, Any]) -> None:
        """Add a rule to those of a session; while a turn runs, as with `set_permission_mode`.

        Raises:
            ValueError: it is not a rule that allows, denies or asks.
        """

    def enter_plan_mode(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """Have a session only look and plan; while a turn runs, from its next step on, as `set_permission_mode` says.

        Raises:
            ConfigurationError: the agent was made without `plan_mode=True`.
        """

    def exit_plan_mode(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """End plan mode without a question; the plan stays. While a turn runs, it ends with its next step.

        Raises:
            ConfigurationError: the agent was made without `plan_mode=True`.
        """

    def is_plan_mode_active(self, user_id: str | None = None, session_id: str | None = None) -> bool:
        """Tell whether a session only plans, as stored; a running turn stores a change with its next step."""

    def get_plan(self, user_id: str | None = None, session_id: str | None = None) -> str | None:
        """Return the text of a session's plan; `None` without one."""

    def get_agent_state(
        self, user_id: str | None = None, session_id: str | None = None, *, session: Any = None
    ) -> AgentState:
        """Return what is stored of a session, steps of a running turn included; fresh if it is unknown.

        `session` is the store of calls that named one in their `RuntimeContext`. If the session was checked out while
        a turn runs, it is the state of that point until the turn stores its next step.
        """

    def save_agent_state(self, user_id: str | None, session_id: str | None, state: AgentState) -> None:
        """Write a state to the slot of a session; the next call takes it over, and nothing of the tree is lost."""

    def clear_context(self, user_id: str | None = None, session_id: str | None = None) -> None:
        """Let the next call of a session start before its first message; permissions, plan and tasks stay.

        It waits for its turn as a call does. The messages stay in the tree, where `session().checkout()` finds them.

        Raises:
            AgentShuttingDown: the agent is shutting down or closed; nothing was changed.
            ConfigurationError: it is called inside a turn of the same session.
        """

    def save_to(self, store: BlockingStore | AgentStateStore, key: AnyKey) -> None:
        """Save the agent's session `key` under that key in another store; while a turn runs, what is stored of it.

        If the agent has no such session, the one of this task's calls without a context is saved. An agent's own store
        needs none of this: there every step is stored.
        """

    def load_from(self, store: BlockingStore | AgentStateStore, key: AnyKey) -> None:
        """Take over what is saved under a key, and have this task's later calls without a context go on with it.

        Raises:
            SessionNotFound: nothing is saved under it; this task's later calls without a context begin the session.
            Exception: as `load_if_exists`.
        """

    def load_if_exists(self, store: BlockingStore | AgentStateStore, key: AnyKey) -> bool:
        """Do as `load_from` does and return True; return False if nothing is saved under this key.

        What is saved is copied to the agent's session `key`, also what AgentScope 1.x has saved; without anything
        saved that session begins again without messages. Messages that it had stay in its tree. It waits for its turn
        as a call does; with the agent's own store nothing is copied, and it does not wait. Other tasks do not notice:
        they load it themselves, or pass a `RuntimeContext`.

        Raises:
            AgentShuttingDown: the agent is shutting down or closed.
            ConfigurationError: it is called inside a turn of this session, or the agent has `slot="off"`.
            StateDecodeError: what is saved, or what this session has, cannot be read; nothing is changed. After this or
                any other error, calls without a context are refused until a load succeeds: they would go on with
                another session.
        """

    def session(self, user_id: str | None = None, session_id: str | None = None) -> BlockingSession:
        """Return the conversation of a session, as the tree that it is, set up with the agent's blocks.

        Raises:
            AgentShuttingDown: the agent was closed.
            ConfigurationError: the agent's store is not open yet, or keeps no trees.
        """

    @property
    def shutdown_state(self) -> ShutdownState:
        """Whether calls are taken (`running`), or refused (`shutting_down`, and `terminated` once all have ended)."""

    def shutdown(self, *, timeout: float | None = 30, partial_reasoning: PartialReasoning = "save") -> bool:
        """Take no more calls, and pause those that run; any process that shares the store goes on with them.

        Calls that wait get `AgentShuttingDown` at once, those that run get it at their next safe point. Tools that have
        begun are waited for until `timeout`, without end for `None`; then they are cancelled, and their results say
        that the outcome is unknown. A tool can look at `interrupt_control` and end early. The text of a reply that is
        being streamed is stored, or with `partial_reasoning="discard"` asked for again.

        Return whether all calls have ended; one that has not 5 seconds after `timeout` counts as lost. In a tool, the
        turn of that tool is paused after it and not waited for. A cancelled shutdown refuses and pauses all the same.

        Raises:
            ConfigurationError: an option is wrong.
        """

    def close(self) -> None:
        """Shut down, and close the store if the agent opened it; a second call does nothing.

        Raises:
            ConfigurationError: it is called in a tool of this agent's turn, which could then not be stored.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class BlockingToolSet(Mapping[str, BlockingTool]):
    """Tools by name; two sets merge with `|`, the right one's tools winning. A function is made a tool.

    Raises:
        ConfigurationError: these are not tools, a function cannot be one, or two tools have one name.
    """

    def __getitem__(self, name: str) -> BlockingTool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __or__(self, other: Mapping[str, BlockingTool | Tool] | Iterable[ToolLike]) -> BlockingToolSet: ...
    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None, *, raise_errors: bool = False) -> str:
        """Run a tool and return its answer; what is not text is returned as JSON text.

        `arguments` may be the JSON text that a model wrote. A model's mistake is answered with a sentence that starts
        with `Error:` and says what to do. So is an exception that a tool raises, which is logged as well; with
        `raise_errors` it is raised instead.

        Raises:
            StoreError, LeaseLost: the store failed or the lease was lost. These are always raised: the session could
                not store the answer either.
        """

    def run(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, ctx: RuntimeContext | None = None
    ) -> Outcome:
        """Run a tool and return the parts of its result with its state, which is `error` where `call` answers `Error:`.

        Raises:
            StoreError, LeaseLost: the store failed or the lease was lost.
        """

    def to_openai(self) -> list[Any]:
        """Return the tools as OpenAI's chat API takes them: dicts, typed so that its SDK accepts them."""

    def to_openai_responses(self) -> list[Any]:
        """Return the tools as OpenAI's Responses API takes them: dicts, typed so that its SDK accepts them."""

    def to_anthropic(self) -> list[Any]:
        """Return the tools as Anthropic's messages API takes them: dicts, typed so that its SDK accepts them."""

class BlockingTool:
    """Something a model can call: `await execute(arguments)` returns its answer, as text or as what JSON can hold.

    Raises:
        ConfigurationError: `timeout` is not a number of seconds above 0, or `probe` or `check` is not a function.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def execute(self) -> Callable[[dict[str, Any]], Any]: ...
    @property
    def checks_arguments(self) -> bool: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def retry_safe(self) -> bool: ...
    @property
    def probe(self) -> Probe | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def external(self) -> bool: ...
    @property
    def check(self) -> Callable[..., Any] | None: ...
    @property
    def prepare(self) -> Prepare | None: ...

class BlockingMessageStore:
    """Keeps the tree of messages of every session, in order.

    Each write is one atomic step. Writes to one session take effect one after the other, each with the session's next
    `version`; a write that finds nothing to do (an append of known ids, a delete of unknown ones) leaves it alone. A
    message that is not there raises `MessageNotFound`, unless a method says otherwise. A session that was never written
    to is empty, at version 0.
    """

    def append(
        self,
        scope: Scope,
        drafts: Sequence[Draft],
        parent: ParentId,
        *,
        weigh: bool = False,
        state: Sequence[AttachedState] = ...,
        usage: Usage | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        """Store messages as a chain below `parent` and move the leaf to the last one that is new.

        An id that is already stored is left as it is and becomes the parent of the next. In the same step the states
        are attached to the last message, and the usage is added. Without messages the states go to `parent`. A state
        that is in force there is not written again. Usage is not added again when no message is new, unless it has a
        `usage_id` that was not counted before.

        Raises:
            StaleSession: there is something new to write, and the session is not at `expected_version`.
        """

    def head(self, scope: Scope, names: Sequence[str], *, ids: Sequence[str] = ...) -> Head:
        """Return where a session stands, the states of these names in force there, and which messages it knows."""

    def states(
        self, scope: Scope, leaf_id: str | None, names: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the states in force at `leaf_id` (default: the leaf), by name: those of `names`, or all."""

    def update(self, scope: Scope, draft: Draft) -> Message:
        """Replace the message of that id, keeping its parent, its place and its time."""

    def upsert(self, scope: Scope, draft: Draft, parent: ParentId, *, weigh: bool = False) -> Appended:
        """Update the message if its id is stored, else append it."""

    def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Remove messages and say how many were there; children and leaf move to the nearest surviving ancestor.

        The end of an overlay moves inward to the nearest survivor; an overlay that covers none goes.
        """

    def clear(self, scope: Scope) -> None:
        """Remove all messages, labels, overlays, loaded skills and the prompt; the leaf is before the first message."""

    def checkout(self, scope: Scope, message_id: str | None, *, tip: bool = False) -> None:
        """Move the leaf to a message, or with `tip` to the newest leaf at or below it.

        `None` is before the first message, and what is below it is the whole tree.
        """

    def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        """Name a message, or take its name away."""

    def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        """Lay a summary over a stretch of a path, and drop the prompt; `None` when `unchanged` does not hold.

        Raises:
            ValueError: the ends are not on one path in this order, or the overlay would cross an earlier one.
        """

    def overlays(self, scope: Scope) -> list[Compaction]:
        """Return all overlays, oldest first."""

    def summaries(self, scope: Scope) -> list[str]:
        """Return the ids of the summaries in the history that ends at the leaf, in order."""

    def covered(self, scope: Scope, compaction_id: str, *, offset: int, limit: int) -> list[Message]:
        """Return messages that an overlay covers, in order; an unknown overlay raises `MessageNotFound`."""

    def reclaim(self, scope: Scope, results: Sequence[Reclaimed]) -> None:
        """Show a notice in place of these tool results from now on, and of an earlier notice; what is stored stays."""

    def weigh(self, scope: Scope) -> Weight:
        """Return how many tokens the model sees."""

    def revision(self, scope: Scope) -> Revision:
        """Return which session it is and the number of its last change; `NOT_THERE` when there is none."""

    def get(self, scope: Scope, message_id: str) -> Message | None:
        """Return one message, `None` when there is none of that id."""

    def leaf(self, scope: Scope) -> Message | None:
        """Return the message the leaf is at."""

    def parent(self, scope: Scope, message_id: str) -> Message | None:
        """Return the message above; `None` for a root."""

    def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        """Return the messages right below, or the roots, in the order they were stored."""

    def leaves(self, scope: Scope) -> list[Message]:
        """Return the messages without children, in the order they were stored."""

    def tip(self, scope: Scope, message_id: str) -> Message:
        """Return the newest leaf, by the order of commits, at a message or below it."""

    def path(self, scope: Scope, leaf_id: str | None, *, raw: bool = False) -> list[Message]:
        """Return the messages from the root to `leaf_id` (default: the leaf), as of one moment.

        Overlays and notices are applied, unless the `raw` messages are wanted.
        """

    def view(self, scope: Scope, leaf_id: str | None) -> View:
        """Return what `path` returns, with tokens and version."""

    def raw_page(self, scope: Scope, leaf_id: str | None, *, before: str | None, limit: int | None) -> list[Message]:
        """Return the end of what `path` has when `raw`, up to `leaf_id` or above `before`: `limit` messages at most.

        It costs what it returns, not what the path holds.

        Raises:
            ValueError: `before` is not on the path to `leaf_id`.
        """

    def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        """Return about `limit` messages as `path` has them, from one end or from where the last page stopped."""

    def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        """Return how many stored messages the path has."""

    def outline(self, scope: Scope) -> Outline:
        """Return everything the tree consists of, as of one moment."""

    def labels(self, scope: Scope) -> dict[str, str]:
        """Return names by message id."""

    def search(self, where: Scope | Owner, query: Query, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        """Return the best matches in a session or in all sessions of an owner, by `leafward.core.ranking.rank`.

        Candidates go to `rank` newest `created_at` first, then by id. Everything committed is found, nothing deleted.
        """

    def changes(self, scope: Scope, since: int, *, messages: bool = False) -> Changes:
        """Return what happened after version `since`, in order; appended messages that are gone again are left out.

        With `messages` each record brings those it concerns, and there may be only the first of the records: read on
        from the version of the last.
        """

    def wait(self, scope: Scope, revision: Revision) -> None:
        """Return once the session is at another revision, whichever process changed it."""

class BlockingSessionRegistry:
    """Knows every session of an owner, also those that were only ever written to.

    Each write is one atomic step and touches `updated_at`. An unknown session raises `SessionNotFound`, unless a method
    says otherwise.
    """

    def create(self, scope: Scope, origin: Origin) -> SessionInfo:
        """Bring a session into being; `SessionExists` when it is there."""

    def get(self, scope: Scope) -> SessionInfo | None:
        """Return what is known of a session, `None` when there is none."""

    def list(self, owner: Owner, *, limit: int | None, cursor: str | None) -> Page[SessionInfo]:
        """Return sessions, the last changed first; a cursor that is none raises `ValueError`."""

    def count(self, owner: Owner) -> int:
        """Return how many sessions an owner has."""

    def rename(self, scope: Scope, name: str) -> None:
        """Give a session another name."""

    def add_usage(self, scope: Scope, usage: Usage) -> bool:
        """Add to what a session has used; False for a `usage_id` that was counted before."""

    def delete(self, scope: Scope) -> bool:
        """Remove a session with all that is its own; False when there is none."""

    def erase(self, scope: Scope) -> ErasureReport:
        """Remove a session and the bytes it consisted of."""

    def fork(self, scope: Scope, at_message_id: str, target: Scope, name: str) -> SessionInfo:
        """Copy the path to a message, with its labels, overlays, context and loaded skills, into a new session."""

    def split(self, scope: Scope, target: Scope, name: str | None, first: Draft) -> SessionInfo:
        """End a session and begin its continuation with `first`; it keeps the context, model and source."""

    def dump(self, scope: Scope) -> Archive:
        """Return everything a session consists of, as of one moment."""

    def restore(self, scope: Scope, archive: Archive) -> SessionInfo:
        """Bring a session into being from what was dumped; `SessionExists` when it is there."""

class BlockingEntryIndex:
    """Keeps texts by label and key.

    Each write is one atomic step that gives the session its next `version`, of kind `context`, unless it changes
    nothing. It brings the session into being. The prompt, and what is kept under `SHOWN`, change no version.
    """

    def get(self, shelf: Shelf, key: str = ...) -> Entry | None:
        """Return one entry."""

    def edit(
        self, shelf: Shelf, key: str, change: Edit, *, description: str | None = None, searchable: bool = False
    ) -> str | None:
        """Change one text, seeing no other writer's half-done change; return what is stored now."""

    def count(self, shelf: Shelf) -> int:
        """Return how many entries a shelf has."""

    def list_entries(self, shelf: Shelf) -> list[Entry]:
        """Return the entries of a shelf, in the order of their keys."""

    def search(self, shelf: Shelf, query: Query, *, limit: int) -> list[SearchResult]:
        """Return the best matches among the searchable entries of a shelf; a result's `id` is the key."""

    def skills(self, scope: Scope) -> list[tuple[str, str]]:
        """Return label and key of the loaded skills, sorted."""

    def load_skill(self, scope: Scope, label: str, key: str) -> None:
        """Count a skill as loaded."""

    def unload_skill(self, scope: Scope, label: str, key: str, reclaimed: Sequence[Reclaimed]) -> bool:
        """Count a skill as no longer loaded and reclaim its results, in one step; False when it was not loaded."""

    def prompt(self, scope: Scope) -> Prompt | None:
        """Return the frozen prompt."""

    def keep_prompt(self, scope: Scope, prompt: Prompt, *, replace: bool) -> Prompt:
        """Store the prompt, unless there is one and it is not to be replaced; return what is stored now."""

class BlockingStateStore:
    """What all our stores of states have in common: keys, types and fences; `_table` keeps the texts."""

    @property
    def distributed(self) -> bool: ...
    @property
    def leases(self) -> BlockingLeases: ...
    @property
    def store(self) -> BlockingStore:
        """The store behind these states: its sessions, messages and leases are in the same database.

        Of states with a lease it is the store behind that lease, so that what is written to it is fenced too.

        Raises:
            StoreError: a store of states by itself was not opened yet: `await states.open()`.
        """

    def open(self) -> BlockingStore:
        """Return `store`, opened if it is not yet; what sessions need there is made if it is missing."""

    def with_lease(self, lease: BlockingLease | Lease) -> BlockingStateStore:
        """Return a store whose every write is refused, with `LeaseLost`, once another holder came."""

    def save(self, key: AnyKey, name: str, value: Any) -> None: ...
    @overload
    def get(self, key: AnyKey, name: str) -> dict[str, Any] | None: ...
    @overload
    def get(self, key: AnyKey, name: str, type: type[T]) -> T | None: ...
    @overload
    def get_versioned(self, key: AnyKey, name: str) -> Versioned[dict[str, Any]]: ...
    @overload
    def get_versioned(self, key: AnyKey, name: str, type: type[T]) -> Versioned[T]: ...
    def save_if_version(self, key: AnyKey, name: str, value: Any, expected: int) -> int: ...
    def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None: ...
    @overload
    def get_list(self, key: AnyKey, name: str) -> list[dict[str, Any]]: ...
    @overload
    def get_list(self, key: AnyKey, name: str, type: type[T]) -> list[T]: ...
    def exists(self, key: AnyKey) -> bool: ...
    def delete(self, key: AnyKey, name: str | None = None) -> None: ...
    def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None:
        """Let go of the store; a second call does nothing."""

class BlockingLeases:
    """Hands out leases, and reaches those who hold them."""

    def acquire(
        self,
        session_id: str,
        user_id: str | None = None,
        ttl: float = ...,
        wait: float | None = None,
        *,
        label: str | None = None,
    ) -> BlockingLease:
        """Queue for a session and hold it: `async with store.leases.acquire(...) as lease`, or `await` it.

        The lease is renewed until it is released; a holder that died is followed by the next after `ttl` seconds.
        `label` says to others who holds it.

        Raises:
            LeaseBusy: the lease was not free within `wait` seconds.
            StoreError: the store failed, or did not answer within `wait` seconds and one more.
            InvalidId: one of the ids is refused.
            ConfigurationError: `ttl` or `wait` is no length of time, or this task, or one that it was started in, holds
                the lease already.
        """

    def holder(self, session_id: str, user_id: str | None = None) -> Holder | None:
        """Return the holder of a session's lease; `None` if it is not held, or ran out."""

    def send(self, session_id: str, user_id: str | None, text: str, *, label: str | None = None) -> bool:
        """Send a text to the holder of a session's lease, in whatever process; return whether there is one.

        With `label` there has to be a holder with that label. When this returns True, the text is kept until a holder
        gets it from `lease.receive()`: this one, or a later one with that label.

        Raises:
            ValueError: the text is longer than 64 KiB.
            LeaseBusy: 1,000 texts wait already.
            OutcomeUnknown: it may have been sent.
        """

    def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        """Return those slots in which a text waits for the present holder; one question for all of them."""

    def release(self, session_id: str, user_id: str | None = None, *, token: int) -> bool:
        """End a lease whose holder is known to be gone, by the token of `holder()`; return whether it was held.

        A holder that is not gone after all can write nothing more behind it.
        """

class BlockingLease:
    """The right to write to one session, renewed in the background until it is released.

    One that nobody refers to any more, be it by a handle that was made with it, is no longer renewed and runs out.
    """

    @property
    def session_id(self) -> str: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def token(self) -> int:
        """A number larger than that of every earlier holder."""

    @property
    def held(self) -> bool:
        """Whether it is held, as far as is known here: not released, renewed in time. Only a write tells for sure."""

    @property
    def has_texts(self) -> bool:
        """Whether texts waited for this holder when the lease was last renewed, and were not received since."""

    @property
    def is_over(self) -> bool:
        """Whether it was released or lost: it will not be renewed."""

    def is_still_held(self) -> bool:
        """Tell whether the store says that this holder has the lease; if so, it is renewed."""

    def receive(self) -> list[str]:
        """Return the texts that were sent to this holder's label, or without one, in order, each once.

        A call that is cancelled, or fails, takes nothing away: the next one returns its texts.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
            OutcomeUnknown: whether they still wait is not known.
        """

    def peek(self) -> list[SentText]:
        """Return the texts that wait for this holder, in order, and leave them with the store until `acknowledge`.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
        """

    def acknowledge(self, number: int) -> None:
        """Have the store delete the texts that `peek` returned, up to the one with this number.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
        """

    def release(self) -> None:
        """Let the next one in; a second call does nothing.

        Raises:
            StoreError: the store could not be reached; the lease is no longer renewed and runs out by itself.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

def blocking(
    url: str,
    *,
    durability: Literal["power", "process"] = "power",
    max_message_bytes: int = ...,
    table_prefix: str | None = None,
    key_prefix: str | None = None,
    client: object = None,
    options: Mapping[str, Any] | None = None,
) -> BlockingStore:
    """Open the store a URL names for scripts and notebooks: `with leafward.blocking("sqlite:///chat.db") as store`.

    The keywords are those of `open_store`. What the store and all that is reached from it offer is called without
    `await`: each call waits until it is done, from any thread, also where an event loop is running. An async iterator
    is a plain one. Without `with`, call `close()`.

    Raises:
        ConfigurationError: an unknown scheme or option.
    """
