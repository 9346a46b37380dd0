"""How a model gets at the other sessions of its user: a block to search them, and tools to list and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from leafward.core.errors import ContextError, SessionNotFound
from leafward.core.ids import Owner
from leafward.core.info import SessionInfo
from leafward.core.query import parse_query
from leafward.core.ranking import SearchResult
from leafward.core.times import to_micros, to_wire
from leafward.core.transcript import Transcriber, shortened
from leafward.sessions.recent import RecentHistory
from leafward.sessions.session import Session
from leafward.stores.contracts import SearchFilter, Store
from leafward.stores.registry import Page
from leafward.tools.answers import ANSWER_CHARACTERS, SEPARATOR, count_fitting, make_tool
from leafward.tools.arguments import object_schema
from leafward.tools.tool_set import ToolSet

RESULTS = 10
LISTED = 20
LAST_N = 20
MOST = 100
NAME_CHARACTERS = 100
"""How much of a session's name is listed."""
LEAST_CUT = 500
"""How much of a message must fit for its start to be worth showing."""


class Managing(Protocol):
    """What the tools need of a manager; whose sessions they see is the manager's to know."""

    async def search(self, query: str, *, limit: int = 20) -> list[SearchResult]: ...
    async def list(self, *, limit: int | None = 50, cursor: str | None = None) -> Page[SessionInfo]: ...
    async def get(self, session_id: str) -> SessionInfo | None: ...
    def get_session(self, session_id: str) -> Session: ...


class History:
    """A read-only block that searches all sessions of an owner."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner

    async def get(self) -> str | None:
        found = await self._store.registry.count(self._owner)
        return f"{found} session(s) available for search." if found else None

    async def search(self, query: str) -> str | None:
        found = await self._store.messages.search(self._owner, parse_query(query), only=SearchFilter(), limit=RESULTS)
        return write_results(found) or None


def write_results(found: Sequence[SearchResult]) -> str:
    """Return search results as a model reads them: where, when and by whom, then the text around the match."""
    written = SEPARATOR.join(f"[{one.role}] in session {one.session_id}, {_day(one)}\n{one.snippet}" for one in found)
    return shortened(written, ANSWER_CHARACTERS)


def _day(one: SearchResult) -> str:
    return to_wire(to_micros(one.created_at))[:10]


def _listed(page: Page[SessionInfo]) -> str:
    lines = [f"- {one.id}: {_name(one)} (last changed {to_wire(to_micros(one.updated_at))[:16]}Z)" for one in page]
    count = count_fitting(lines)
    shown = lines[:count]
    if count < len(lines):
        shown.append("There are more; search for them.")
    elif page.next_cursor is not None:
        shown.append("There are more; ask for a larger limit or search for them.")
    return "\n".join(shown)


def _name(info: SessionInfo) -> str:
    """Return a session's name on one line."""
    return shortened(" ".join(info.name.split()), NAME_CHARACTERS)


def _written(recent: RecentHistory) -> str:
    writer = Transcriber(recent.messages)
    turns = [writer.turn(message) for message in recent.messages]
    count = count_fitting(reversed(turns))
    shown = turns[len(turns) - count :]
    if count < len(turns):
        room = ANSWER_CHARACTERS - sum(len(turn) + len(SEPARATOR) for turn in shown)
        if room >= LEAST_CUT:
            shown.insert(0, shortened(turns[-count - 1], room))
    if len(shown) < len(turns):
        shown.insert(0, "[There are earlier messages that do not fit here; find them with session_search.]")
    elif recent.truncated:
        shown.insert(0, "[There are earlier messages; ask for a larger last_n.]")
    return SEPARATOR.join(shown)


def manager_tools(manager: Managing) -> ToolSet:
    """Return the tools that see all sessions of one user with one agent."""

    async def search(arguments: dict[str, Any]) -> str:
        return write_results(await manager.search(arguments["query"], limit=RESULTS)) or "No results found."

    async def list_sessions(arguments: dict[str, Any]) -> str:
        page = await manager.list(limit=min(arguments.get("limit", LISTED), MOST))
        return _listed(page) or "There are no sessions."

    async def read(arguments: dict[str, Any]) -> str:
        session_id, wanted = arguments["session_id"], min(arguments.get("last_n", LAST_N), MOST)
        if await manager.get(session_id) is None:
            raise ContextError(f"{SessionNotFound(session_id)}. Call session_list to see which there are.")
        recent = await manager.get_session(session_id).get_recent_history(max_messages=wanted)
        return _written(recent) or "This session has no messages."

    return ToolSet(
        [
            make_tool(
                "session_search",
                "Search the messages of all your past sessions with this user, by words.",
                object_schema(
                    {"query": _string("Words that must all occur; put a phrase in double quotes.")}, ["query"]
                ),
                search,
            ),
            make_tool(
                "session_list",
                "List your sessions with this user, the last changed first.",
                object_schema({"limit": _number(f"How many to list; {LISTED} by default, at most {MOST}.")}, []),
                list_sessions,
            ),
            make_tool(
                "session_history",
                "Read the last messages of one of your sessions with this user.",
                object_schema(
                    {
                        "session_id": _string("The session's id, as session_list and session_search give it."),
                        "last_n": _number(f"How many messages; {LAST_N} by default, at most {MOST}."),
                    },
                    ["session_id"],
                ),
                read,
            ),
        ]
    )


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "description": description}
