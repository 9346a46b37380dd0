"""All sessions of one user with one agent: begun, listed, copied, searched and ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Self

from leafward.core.archive import Archive
from leafward.core.attached_state import attach
from leafward.core.compaction import CompactFunction
from leafward.core.errors import ConfigurationError, SessionNotFound
from leafward.core.ids import Owner, Scope, check_id, new_id, refusal
from leafward.core.info import SessionInfo
from leafward.core.json import Plain
from leafward.core.message import Message, assistant, check_size
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.ranking import SearchResult
from leafward.core.tokens import TokenCounter
from leafward.sessions.conversation import known_id
from leafward.sessions.message_writer import MessageLike
from leafward.sessions.other_sessions import History, manager_tools
from leafward.sessions.providers import PromptProviderLike, StoredContextProvider
from leafward.sessions.session import Session, draft_of, session_with
from leafward.sessions.setup import Configurable, ContextConfig, ErrorHandler, Setup
from leafward.sessions.user_functions import in_thread
from leafward.stores.contracts import SearchFilter, Store, Usage, check_usage
from leafward.stores.registry import ErasureReport, Origin, Page
from leafward.tools.tool_set import ToolSet

CONTINUED = "[Context from previous session]"
_HANDLES = 1024


class SessionManager(Configurable):
    """Manages the sessions of one user with one agent.

    What its builder calls or the same options set up is given to every session. Stored content, prompt and entries are
    each session's own, unless a block is `shared`.

    Raises:
        InvalidId: one of the ids is refused.
        ConfigurationError: the store, a block or an option is set up wrongly.
    """

    def __init__(
        self,
        store: Store,
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
        if not hasattr(store, "registry"):
            raise ConfigurationError(
                f"a SessionManager needs an open store, not {store!r}: await open_store(...), or enter it"
            )
        self._owner = Owner(agent_id, user_id)
        self._store = store
        self._registry = store.registry
        self._setup = Setup()
        self._handles: OrderedDict[str, Session] = OrderedDict()
        self._used = False
        self._apply(context, cached_prompt, on_compaction, compact_after, token_counter, on_compaction_error)

    @property
    def user_id(self) -> str | None:
        return self._owner.user_id

    @property
    def agent_id(self) -> str:
        return self._owner.agent_id

    def __repr__(self) -> str:
        return f"SessionManager(user_id={self.user_id!r}, agent_id={self.agent_id!r})"

    def _check_unused(self, advice: str) -> None:
        if self._used:
            where = " on a session" if advice.startswith("add_context") else ""
            raise ConfigurationError(
                f"this manager has made sessions already and cannot be changed: call {advice}{where}"
            )

    def _check_prompt_provider(self, provider: object) -> None:
        if not isinstance(provider, StoredContextProvider):
            raise ConfigurationError(
                "one provider cannot keep the prompts of many sessions apart: "
                "leave it out, or set it on a session of its own"
            )

    def with_searchable_history(self, label: str) -> Self:
        """Give every session a block through which the model searches all sessions of this user with this agent."""
        self._check_unused("with_searchable_history() before it")
        history = History(self._store, self._owner)
        self._setup.add(ContextConfig(label, "Cross-session conversation history", provider=history))
        return self

    async def create(
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
        if parent_session_id is not None:
            check_id("parent session id", parent_session_id)
        origin = Origin(_name(name), parent_session_id, _note("model", model), _note("source", source))
        return await self._registry.create(self._new_scope(session_id), origin)

    async def get(self, session_id: str) -> SessionInfo | None:
        """Return what is known of a session; `None` when there is none."""
        return None if refusal(session_id) is not None else await self._registry.get(self._scope(session_id))

    async def list(self, *, limit: int | None = 50, cursor: str | None = None) -> Page[SessionInfo]:
        """Return sessions, the last changed first; give a page's `next_cursor` to get the next one.

        `limit=None` returns all of them.
        """
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"limit is at least 0, or None for all, not {limit!r}")
        return await self._registry.list(self._owner, limit=limit, cursor=cursor)

    async def rename(self, session_id: str, name: str) -> None:
        """Give a session another name.

        Raises:
            SessionNotFound: there is no such session.
        """
        await self._registry.rename(self._known(session_id), _name(name))

    async def add_usage(
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
        if usage_id is None and model is not None:
            # Only usage with a name is kept by itself, with its model.
            usage_id = new_id()
        usage = check_usage(Usage(input_tokens, output_tokens, cost, _note("model", model), usage_id))
        await self._registry.add_usage(self._known(session_id), usage)

    async def delete(self, session_id: str) -> bool:
        """Remove a session with its messages, summaries, own blocks, prompt and usage; False when there is none.

        Shared blocks stay.
        """
        if refusal(session_id) is not None:
            return False
        self._handles.pop(session_id, None)
        return await self._registry.delete(self._scope(session_id))

    async def erase(self, session_id: str) -> ErasureReport:
        """Delete a session and remove its bytes from files, index and log; tell what could not be reached."""
        if refusal(session_id) is not None:
            return ErasureReport(session_id, False, [])
        self._handles.pop(session_id, None)
        return await self._registry.erase(self._scope(session_id))

    def get_session(self, session_id: str) -> Session:
        """Return the handle of a session; the session itself is made by its first write."""
        scope = self._scope(session_id)
        self._used = True
        session = self._handles.get(session_id)
        if session is None:
            session = self._handles[session_id] = session_with(self._setup, self._store, scope)
            if len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)
        self._handles.move_to_end(session_id)
        return session

    async def append(self, session_id: str, message: MessageLike, parent_id: ParentId = LATEST_LEAF) -> Message:
        """Store a message in a session, as `Session.append_message`.

        Raises:
            SessionNotFound: there is no such session.
        """
        return await (await self._existing(session_id)).append_message(message, parent_id)

    async def upsert(self, session_id: str, message: MessageLike, parent_id: ParentId = LATEST_LEAF) -> Message:
        """Replace a message of a session, or append it, as `Session.upsert_message`."""
        return await (await self._existing(session_id)).upsert_message(message, parent_id)

    async def append_all(
        self, session_id: str, messages: Iterable[MessageLike], parent_id: ParentId = LATEST_LEAF
    ) -> list[Message]:
        """Store messages as a chain, all or none, as `Session.append_messages`."""
        return await (await self._existing(session_id)).append_messages(messages, parent_id)

    async def get_history(self, session_id: str, leaf_id: str | None = None) -> list[Message]:
        """Return a session's history as the model sees it."""
        return await (await self._existing(session_id)).get_history(leaf_id)

    async def get_message_count(self, session_id: str) -> int:
        """Return how many stored messages a session's current path has."""
        return await (await self._existing(session_id)).get_path_length()

    async def clear_messages(self, session_id: str) -> None:
        """Remove all messages of a session, as `Session.clear_messages`."""
        await (await self._existing(session_id)).clear_messages()

    async def delete_messages(self, session_id: str, message_ids: Iterable[str]) -> int:
        """Remove messages of a session and return how many were there."""
        return await (await self._existing(session_id)).delete_messages(message_ids)

    async def fork(self, session_id: str, at_message_id: str, name: str) -> SessionInfo:
        """Copy a session up to a message into a new one, in one step and without asking the model.

        The copy has the path to that message, its labels, the summaries inside it, the session's own blocks and its
        loaded skills, all under the same ids, and the attached states; not its usage, prompt or state slot.

        Raises:
            SessionNotFound, MessageNotFound: there is nothing to copy.
        """
        scope, fresh = self._known(session_id), self._new_scope(None)
        return await self._registry.fork(scope, known_id(at_message_id), fresh, _name(name))

    async def compact_and_split(self, session_id: str, summary: str, name: str | None = None) -> SessionInfo:
        """End a session and go on in a new one that begins with a summary of it.

        The new session has the old one's blocks, model and source, and its name unless another is given.

        Raises:
            SessionNotFound: there is no such session.
            ValueError: the summary is blank.
        """
        from leafward.core.compaction import check_summary

        check_summary(summary)
        scope = self._known(session_id)
        message = assistant(f"{CONTINUED}\n\n{summary}")
        first = draft_of(self.get_session(session_id), message)
        return await self._registry.split(scope, self._new_scope(None), None if name is None else _name(name), first)

    async def search(self, query: str, *, limit: int = 20) -> list[SearchResult]:
        """Find messages in all sessions of this user with this agent, as `Session.search` does in one."""
        from leafward.core.query import parse_query

        if limit < 0:
            raise ValueError(f"limit is at least 0, not {limit}")
        return await self._store.messages.search(self._owner, parse_query(query), only=SearchFilter(), limit=limit)

    async def export_session(self, session_id: str) -> dict[str, Any]:
        """Return a session as JSON values: messages on all branches, labels, summaries, own context, usage.

        Raises:
            SessionNotFound: there is no such session.
        """
        return (await self._registry.dump(self._known(session_id))).to_json()

    async def import_session(self, data: Mapping[str, Any], *, session_id: str | None = None) -> SessionInfo:
        """Bring an exported session into being, under its own id or another.

        Raises:
            SessionExists: there is a session of that id; nothing was written.
            ValueError: `data` is not an exported session.
        """
        archive = await in_thread(_read_archive, data, self._store.max_message_bytes)
        scope = self._new_scope(archive.info.id if session_id is None else session_id)
        return await self._registry.restore(scope, archive)

    def tools(self) -> ToolSet:
        """Return tools with which a model searches, lists and reads the sessions of this user with this agent."""
        return manager_tools(self)

    def _scope(self, session_id: str) -> Scope:
        return Scope(self._owner, session_id)

    def _known(self, session_id: str) -> Scope:
        """Return the scope of an id that a session can have."""
        if refusal(session_id) is not None:
            raise SessionNotFound(session_id)
        return self._scope(session_id)

    def _new_scope(self, session_id: str | None) -> Scope:
        self._used = True
        return self._scope(new_id() if session_id is None else session_id)

    async def _existing(self, session_id: str) -> Session:
        if await self._registry.get(self._known(session_id)) is None:
            raise SessionNotFound(session_id)
        return self.get_session(session_id)


def _read_archive(data: Mapping[str, Any], largest: int) -> Archive:
    archive = Archive.from_json(data)
    for one in archive.messages:
        check_size(*one.message.sealed(), largest)
    for state in archive.states:
        attach(state.name, state.value, largest=largest)
    return archive


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a session's name is a text that is not blank, not {name!r}")
    return Plain().text(name)


def _note(what: str, text: object) -> str | None:
    if text is not None and not isinstance(text, str):
        raise ValueError(f"a session's {what} is a text, not {text!r}")
    return None if text is None else Plain().text(text)
