"""What goes wrong in a newcomer's first hour is answered with what to do."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from leafward import Session, SessionManager, StoredSearchProvider, open_store, user
from leafward.stores import Store


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


async def _give_a_class(session: Session) -> Any:
    session.with_context("notes", provider=StoredSearchProvider)  # type: ignore[arg-type]


async def _import_text(session: Session) -> Any:
    async with open_store("memory://") as store:
        manager = SessionManager(store)
        await manager.get_session("s").append_message(user("hi"))
        text: Any = json.dumps(await manager.export_session("s"))
        await manager.import_session(text)


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (lambda session: session.append_message(user("b"), parent_id=user("a")), "message.id"),
        (lambda session: session.checkout(user("a")), "message.id"),
        (lambda session: session.update_message({"role": "user", "content": "b"}), 'give the dict an "id"'),
        (lambda session: session.list_context_entries("memory"), "one text without entries"),
        (_give_a_class, r"StoredSearchProvider\("),
        (_import_text, r"json\.loads"),
    ],
)
async def test_a_mistake_is_answered_with_what_to_do(
    store: Store, mistake: Callable[[Session], Awaitable[Any]], advice: str
) -> None:
    with pytest.raises(Exception, match=advice):
        await mistake(Session(store, "s").with_context("memory"))
