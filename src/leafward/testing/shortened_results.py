"""What a store promises of tool results that a history shows shortened: the stored message stays whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leafward import Message, Session, SessionManager, assistant, create_compact_function, tool_result, user
from leafward.core.tokens import count_tokens
from leafward.testing.speaking import calling, said, texts
from leafward.testing.summarising import so_far

if TYPE_CHECKING:
    from leafward.stores import Store

LOG = "BEGIN " + "a line of the log\n" * 2_000
_UI: dict[str, Any] = {"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}, "output": LOG}
_ANTHROPIC: dict[str, Any] = {"type": "tool_result", "tool_use_id": "c", "content": LOG}

SHAPES: dict[str, list[Message]] = {
    "AgentScope": [calling("c"), tool_result("c", LOG, name="look", id="result")],
    "Anthropic": [calling("c"), Message("user", [_ANTHROPIC], id="result")],
    "AI SDK": [assistant([_UI], id="result")],
}


async def _with_a_log(store: Store, shape: str = "AgentScope") -> Session:
    """Return a session whose newest result was too large for its threshold."""
    compact = create_compact_function(summarize=so_far)
    session = Session(store, "s", on_compaction=compact, compact_after=2_000)
    await session.append_messages([user("What does the log say?", id="question"), *SHAPES[shape]])
    return session


def _shown(messages: list[Message]) -> str:
    return str([message.parts for message in messages])


class ShortenedResultContract:
    """Tool results that are too large for a history. Part of `CompactionContract`."""

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_a_result_that_is_too_large_is_shown_shortened_and_stays_stored(
        self, store: Store, shape: str
    ) -> None:
        session = await _with_a_log(store, shape)

        history = await session.get_history()
        assert [message.id for message in history] == ["question", *(message.id for message in SHAPES[shape])]
        for shown in (history, [message async for message in session.iter_history()]):
            assert "BEGIN a line" in _shown(shown)
            assert "of 36,006 characters are left out]" in _shown(shown)
        assert await session.estimate_tokens() == sum(map(count_tokens, history)) < 1_000
        assert await session.get_raw_history() == [history[0], *SHAPES[shape]]
        assert await session.get_message("result") == SHAPES[shape][-1]
        assert [found.id for found in await session.search('"BEGIN a line"')] == ["result"]

    async def test_an_update_shows_what_the_message_says_now(self, store: Store) -> None:
        session = await _with_a_log(store)

        await session.update_message(tool_result("c", LOG.replace("BEGIN", "AGAIN"), name="look", id="result"))
        longer = await session.get_history()
        assert await session.estimate_tokens() == sum(map(count_tokens, longer)) < 1_000
        await session.update_message(tool_result("c", "all is well", name="look", id="result"))
        shorter = await session.get_history()

        assert "BEGIN" not in _shown(longer)
        assert "AGAIN a line" in _shown(longer)
        assert "all is well" in _shown(shorter)
        assert await session.estimate_tokens() == sum(map(count_tokens, shorter))

    async def test_a_fork_and_a_copy_show_it_shortened_too(self, store: Store) -> None:
        session, manager = await _with_a_log(store), SessionManager(store)

        fork = await manager.fork("s", "result", "fork")
        copy = await manager.import_session(await manager.export_session("s"), session_id="copy")

        for other in (Session(store, fork.id), Session(store, copy.id)):
            assert await other.get_history() == await session.get_history()
            assert await other.get_raw_history() == await session.get_raw_history()
            assert await other.estimate_tokens() == await session.estimate_tokens()

    async def test_unloading_a_skill_takes_the_place_of_its_shortened_text(self, store: Store) -> None:
        def load(key: str) -> str:
            return LOG

        session = Session(
            store,
            "s",
            context=[{"label": "skills", "provider": {"get": lambda: "manual: long", "load": load}}],
            on_compaction=create_compact_function(summarize=so_far),
            compact_after=2_000,
        )
        call: dict[str, Any] = {"type": "tool_use", "id": "c", "name": "load_context"}
        loaded = await session.load_skill("skills", "manual")
        await session.append_message(assistant([{**call, "input": {"label": "skills", "key": "manual"}}]))
        await session.append_message(tool_result("c", loaded, name="load_context"))
        assert "characters are left out]" in _shown(await session.get_history())

        assert await session.unload_skill("skills", "manual")

        history = await session.get_history()
        assert "[skill unloaded: manual]" in _shown(history)
        assert "BEGIN" not in _shown(history)
        assert await Session(store, "s").estimate_tokens() == sum(map(count_tokens, history))

    async def test_later_the_result_is_summarised_like_any_other(self, store: Store) -> None:
        session = await _with_a_log(store)

        await session.append_messages([assistant("It says a line."), *said(400)])

        assert "so far" in texts(await session.get_history())
        assert "result" not in [message.id for message in await session.get_history()]
        assert await session.estimate_tokens() <= 2_000
