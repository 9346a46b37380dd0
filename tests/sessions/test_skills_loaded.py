"""Loaded skills: whatever the order of loading, unloading and storing, a history shows what is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import Message, Session, SessionManager, StoreError, assistant, open_store, tool_result, user
from leafward.core import count_tokens
from leafward.testing.loading import shown
from leafward.testing.prompts import Shelf

KEYS = ["a", "b", "a/b"]
Shape = Callable[[str, str, dict[str, str], str], list[Message]]


def _one_part(tool: str, call_id: str, given: dict[str, str], output: str) -> list[Message]:
    part = {"type": f"tool-{tool}", "toolCallId": call_id, "state": "output-available", "input": given}
    return [assistant([{**part, "output": output}, {"type": "text", "text": f"after {call_id}"}])]


def _agentscope(tool: str, call_id: str, given: dict[str, str], output: str) -> list[Message]:
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": given}
    return [assistant([call]), tool_result(call_id, output, name=tool)]


def _anthropic(tool: str, call_id: str, given: dict[str, str], output: str) -> list[Message]:
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": given}
    answer = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": output}]}
    return [assistant([call]), user([answer])]


class Conversation:
    """A model that loads and unloads, and what its history should show."""

    def __init__(self, session: Session, documents: dict[str, str]) -> None:
        self.session = session
        self.documents = documents
        self.unstored: list[Message] = []
        self.stored: list[Message] = []
        self.visible: dict[str, list[str]] = {key: [] for key in KEYS}
        self.hidden: list[str] = []
        self.calls = 0

    async def call(self, tool: str, key: str, shape: Shape, call_id: str | None) -> None:
        self.calls += 1
        text = self.documents[key] = f"text {self.calls} of {key}. " + "It goes on. " * 20
        given = {"label": "skills", "key": key}
        loaded = await self.session.get_loaded_skill_keys()
        output = await (await self.session.tools()).call(tool, given)
        if tool == "load_context":
            assert output == text
            self.visible[key].append(text)
        elif f"skills:{key}" in loaded:
            self.hidden += self.visible[key]
            self.visible[key] = []
        self.unstored += shape(tool, call_id or f"call-{self.calls}", given, output)

    async def store(self, at_once: bool) -> None:
        if at_once:
            await self.session.append_messages(self.unstored)
        else:
            for message in self.unstored:
                await self.session.append_message(message)
        self.stored += self.unstored
        self.unstored = []

    async def check(self, prompt: int) -> None:
        history = await self.session.get_history()
        seen = shown(history)
        for texts in self.visible.values():
            assert all(text in seen for text in texts)
        assert not any(text in seen for text in self.hidden)
        assert shown(await self.session.get_raw_history()) == shown(self.stored)
        assert await self.session.get_loaded_skill_keys() == [f"skills:{k}" for k in sorted(KEYS) if self.visible[k]]
        assert await self.session.estimate_tokens() == prompt + sum(map(count_tokens, history))


_turns = st.lists(
    st.tuples(
        st.sampled_from(["load_context", "unload_context"]),
        st.sampled_from(KEYS),
        st.sampled_from([_one_part, _agentscope, _anthropic]),
        st.sampled_from(["keep", "store together", "store one by one"]),
    ),
    max_size=12,
)


def _session(store: Any, documents: dict[str, str], session_id: str = "s") -> Session:
    shelf = Shelf(documents)
    return Session(store, session_id).with_context("skills", provider={"get": lambda: "three", "load": shelf.load})


@settings(max_examples=60)
@given(_turns, st.booleans())
def test_a_history_shows_exactly_the_texts_that_are_loaded(turns: list[Any], counts_anew: bool) -> None:
    async def converse() -> None:
        documents = dict.fromkeys(KEYS, "")
        async with open_store("memory://") as store:
            talk = Conversation(_session(store, documents), documents)
            prompt = await talk.session.estimate_tokens()
            for tool, key, shape, storing in turns:
                # Some models give every call of a turn the same id as one in an earlier turn.
                await talk.call(tool, key, shape, "call_0" if counts_anew else None)
                if storing != "keep" or counts_anew:
                    await talk.store(storing == "store together")
            await talk.store(at_once=True)
            await talk.check(prompt)
            if talk.stored:
                fork = await SessionManager(store).fork("s", talk.stored[-1].id, "copy")
                talk.session = _session(store, documents, fork.id)
                await talk.check(prompt)

    asyncio.run(converse())


async def test_an_append_that_failed_after_its_commit_hides_the_unloaded_text_when_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object) -> None:
        raise StoreError("reclaim")

    documents = dict.fromkeys(KEYS, "")
    async with open_store("memory://") as store:
        talk = Conversation(_session(store, documents), documents)
        prompt = await talk.session.estimate_tokens()
        await talk.call("load_context", "a", _agentscope, None)
        await talk.call("unload_context", "a", _agentscope, None)
        with monkeypatch.context() as patched:
            patched.setattr(type(store.messages), "reclaim", fails)
            with pytest.raises(StoreError):
                await talk.session.append_messages(talk.unstored)

        await talk.store(at_once=True)

        await talk.check(prompt)
