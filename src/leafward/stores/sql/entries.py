"""Stored context, as operations: blocks and entries, the words they are found by, skills, the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.ids import Scope
from leafward.core.notices import Reclaimed
from leafward.core.query import Query
from leafward.core.ranking import Candidate, SearchResult, rank
from leafward.core.text import analyzer_version, index_tokens
from leafward.core.times import from_micros
from leafward.stores.entries import NAMES, SHOWN, Edit, Entry, Prompt, Shelf
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import (
    Many,
    Operation,
    SessionRow,
    create_session,
    find_or_add_owner,
    find_or_create,
    find_session,
    now,
    owner_ids,
    record,
    single,
)
from leafward.stores.sql.overlays import add_notices

SHARED = 0
"""The session number of shelves that all sessions of an owner share; no session has it."""
UNCUT = ""
"""In place of the version of the word cutter: the words have yet to be cut, and searches read the text itself."""
MOST_WORDS = 16_000
"""Words, of some two hundred entries, that are written at once; those of a larger shelf are cut later, bit by bit."""


def get(shelf: Shelf, key: str) -> Operation[Entry | None]:
    shelf_no = yield from _find_shelf(shelf)
    rows = [] if shelf_no is None else (yield sql.GET_ENTRY, (shelf_no, key))
    return Entry(key, rows[0][1], rows[0][2]) if rows else None


def edit(shelf: Shelf, key: str, change: Edit, description: str | None, searchable: bool) -> Operation[str | None]:
    session = yield from find_session(shelf.scope)
    if shelf.shared:
        # Whoever changes what all sessions of an owner share holds the owner as well, always after the session.
        yield sql.HOLD_OWNER, owner_ids(shelf.scope.owner)
    shelf_no = yield from _find_shelf(shelf)
    rows = [] if shelf_no is None else (yield sql.GET_ENTRY, (shelf_no, key))
    _, content, described, analyzer = rows[0] if rows else (None, None, None, None)
    wanted = change(content)
    if wanted == content and (
        wanted is None or (description in (None, described) and searchable == (analyzer is not None))
    ):
        return wanted
    session = session or (yield from create_session(shelf.scope))
    if shelf_no is None:
        shelf_no = (
            yield sql.ADD_SHELF, (session.owner_no, SHARED if shelf.shared else session.session_no, shelf.label)
        )[0][0]
    yield from _write(shelf_no, key, wanted, description, searchable)
    if (shelf.label, key) != (NAMES, SHOWN):
        yield from record(session, "context", [])
    return wanted


def put_shared(
    shelf: Shelf, key: str, content: str | None, description: str | None, searchable: bool
) -> Operation[None]:
    """Write a text that all sessions of an owner share, or remove it; no session changes by that."""
    owner_no = yield from find_or_add_owner(shelf.scope.owner)
    shelf_no = single((yield sql.GET_SHELF, (owner_no, SHARED, shelf.label)))
    if shelf_no is None:
        shelf_no = (yield sql.ADD_SHELF, (owner_no, SHARED, shelf.label))[0][0]
    yield from _write(shelf_no, key, content, description, searchable)


def note(scope: Scope) -> Operation[None]:
    """Give a session its next version, because it changed a text that all sessions of its owner share."""
    session = yield from find_or_create(scope)
    yield from record(session, "context", [])


def _write(shelf_no: int, key: str, wanted: str | None, description: str | None, searchable: bool) -> Operation[None]:
    rows = yield sql.GET_ENTRY, (shelf_no, key)
    entry_no, content, described, analyzer = rows[0] if rows else (None, None, None, None)
    if analyzer and entry_no is not None and content is not None:
        yield from _drop_words(shelf_no, entry_no, content, analyzer)
    if wanted is None:
        yield sql.DROP_ENTRY, (entry_no,)
    else:
        entry = Entry(key, wanted, described if description is None else description)
        yield from put(shelf_no, entry_no, entry, analyzer_version() if searchable else None)


def put(shelf_no: int, entry_no: int | None, entry: Entry, analyzer: str | None) -> Operation[int]:
    """Write an entry, and the words it is found by unless it has no `analyzer` or is `UNCUT`; tell how many."""
    values = (yield from now()), analyzer, entry.description, entry.content
    if entry_no is None:
        entry_no = (yield sql.ADD_ENTRY, (shelf_no, entry.key, *values))[0][0]
    else:
        yield sql.CHANGE_ENTRY, (*values, entry_no)
    words = sorted(index_tokens(entry.content)) if analyzer else []
    if words:
        yield sql.ADD_WORD, Many((shelf_no, word, entry_no) for word in words)
    return len(words)


def _drop_words(shelf_no: int, entry_no: int, content: str, analyzer: str) -> Operation[None]:
    # An index by entry would be as large as the table, and its pages all over the file; the text tells its words.
    if analyzer == analyzer_version():
        yield sql.DROP_WORD, Many((shelf_no, word, entry_no) for word in sorted(index_tokens(content)))
    else:
        yield sql.DROP_WORDS, (shelf_no, entry_no)


def count(shelf: Shelf) -> Operation[int]:
    shelf_no = yield from _find_shelf(shelf)
    return 0 if shelf_no is None else (yield sql.COUNT_ENTRIES, (shelf_no,))[0][0]


def list_entries(shelf: Shelf) -> Operation[list[Entry]]:
    shelf_no = yield from _find_shelf(shelf)
    rows = [] if shelf_no is None else (yield sql.LIST_ENTRIES, (shelf_no,))
    return sorted(Entry(key, content, description) for key, content, description, _ in rows)


def search(shelf: Shelf, query: Query, limit: int) -> Operation[list[SearchResult]]:
    shelf_no = yield from _find_shelf(shelf)
    if shelf_no is None or not query.terms:
        return []
    # The words only propose; whether an entry matches is decided on its text.
    current = analyzer_version()
    proposed = {row[0] for row in (yield sql.CUT_OTHERWISE, (shelf_no, current, shelf_no, current))}
    proposed |= yield from _with_all(shelf_no, query)
    found: list[Candidate] = []
    for entry_no in proposed:
        for key, at, content in (yield sql.READ_ENTRY, (entry_no,)):
            found.append(Candidate(shelf.scope.session_id, key, "", from_micros(at), content))
    found.sort(key=lambda one: one.id)
    found.sort(key=lambda one: one.created_at, reverse=True)
    return rank(query, found, limit=limit)


def _with_all(shelf_no: int, query: Query) -> Operation[set[int]]:
    found: set[int] | None = None
    for term in query.needs:
        either: set[int] = set()
        for need in term:
            either |= yield from _with_words(shelf_no, sorted(need, key=len, reverse=True))
        found = either if found is None else found & either
        if not found:
            break
    return found or set()


def _with_words(shelf_no: int, words: Sequence[str]) -> Operation[set[int]]:
    found: set[int] | None = None
    for word in words:
        rows = yield sql.WITH_WORD, (shelf_no, word)
        having = {row[0] for row in rows}
        found = having if found is None else found & having
        if not found:
            break
    return found or set()


def _find_shelf(shelf: Shelf) -> Operation[int | None]:
    if shelf.shared:
        owner_no = single((yield sql.GET_OWNER, owner_ids(shelf.scope.owner)))
        return None if owner_no is None else single((yield sql.GET_SHELF, (owner_no, SHARED, shelf.label)))
    session = yield from find_session(shelf.scope)
    if session is None:
        return None
    return single((yield sql.GET_SHELF, (session.owner_no, session.session_no, shelf.label)))


def skills(scope: Scope) -> Operation[list[tuple[str, str]]]:
    session = yield from find_session(scope)
    return [] if session is None else [(label, key) for label, key in (yield sql.LIST_SKILLS, (session.session_no,))]


def load_skill(scope: Scope, label: str, key: str) -> Operation[None]:
    session = yield from find_or_create(scope)
    if not (yield sql.HAS_SKILL, (session.session_no, label, key)):
        yield sql.ADD_SKILL, (session.session_no, label, key)
        yield from record(session, "context", [])


def unload_skill(scope: Scope, label: str, key: str, reclaimed: Sequence[Reclaimed]) -> Operation[bool]:
    session = yield from find_session(scope)
    if session is None or not (yield sql.HAS_SKILL, (session.session_no, label, key)):
        return False
    yield sql.DROP_SKILL, (session.session_no, label, key)
    hidden = yield from add_notices(session, reclaimed)
    yield from record(session._replace(window=None) if hidden else session, "context", [])
    return True


def prompt(scope: Scope) -> Operation[Prompt | None]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.GET_PROMPT, (session.session_no,))
    return Prompt(*rows[0]) if rows else None


def keep_prompt(scope: Scope, given: Prompt, replace: bool) -> Operation[Prompt]:
    session = yield from find_or_create(scope)
    rows = [] if replace else (yield sql.GET_PROMPT, (session.session_no,))
    if rows:
        return Prompt(*rows[0])
    yield sql.SET_PROMPT, (session.session_no, *given)
    return given


def drop_shown(session: SessionRow) -> Operation[None]:
    """Remove what the model of a session was shown."""
    shelf_no = single((yield sql.GET_SHELF, (session.owner_no, session.session_no, NAMES)))
    if shelf_no is not None:
        yield sql.DROP_ENTRY_OF, (shelf_no, SHOWN)


def drop_context(owner_no: int, session_no: int) -> Operation[None]:
    """Remove all that is a session's own; its shelves are discarded, and whoever runs this empties them."""
    yield sql.DISCARD_SHELVES, (owner_no, session_no)
    for statement in (sql.DROP_SKILLS, sql.DROP_PROMPT):
        yield statement, (session_no,)


def copy_context(owner_no: int, source_no: int, target_no: int) -> Operation[None]:
    """Copy a session's own blocks, entries and loaded skills; not its prompt."""
    for shelf_no, label in (yield sql.LIST_SHELVES, (owner_no, source_no)):
        copy = (yield sql.ADD_SHELF, (owner_no, target_no, label))[0][0]
        if (yield sql.HAS_MORE_WORDS, (shelf_no, MOST_WORDS)):
            yield sql.COPY_ENTRIES_UNCUT, (copy, shelf_no)
        else:
            yield sql.COPY_ENTRIES, (copy, shelf_no)
            yield sql.COPY_WORDS, (copy, shelf_no)
    yield sql.COPY_SKILLS, (target_no, source_no)
