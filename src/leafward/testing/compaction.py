"""What compaction promises: a function chooses and summarises, nothing is lost, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    CompactionFailed,
    ConfigurationError,
    Message,
    MessageNotFound,
    Session,
    SessionManager,
    create_compact_function,
    tool_result,
    user,
)
from leafward.testing.automatic import AutomaticContract
from leafward.testing.branch_compaction import BranchCompactionContract
from leafward.testing.overlays import OverlayContract
from leafward.testing.shortened_results import ShortenedResultContract
from leafward.testing.speaking import calling, said, spoken, texts
from leafward.testing.summarising import Slow, answering, covering

if TYPE_CHECKING:
    from leafward.stores import Store


async def _compacting(store: Store, fn: Callable[..., Any], count: int, name: str = "s") -> Session:
    session = Session(store, name, on_compaction=fn)
    await session.append_messages(said(count))
    return session


class _Answers:
    """What a compaction function may answer."""

    async def test_a_function_is_given_the_history_as_the_model_sees_it(self, store: Store) -> None:
        given: list[list[Message]] = []

        def keep(messages: list[Message]) -> None:
            given.append(messages)

        session = await _compacting(store, keep, 5)
        await session.add_compaction("in short", "1", "2")

        assert await session.compact() is None
        assert await session.compact("3") is None

        assert given == [await session.get_history(), await session.get_history("3")]

    @pytest.mark.parametrize("kind", ["dict", "object", "async", "awaitable", "with context"])
    async def test_a_function_answers_in_any_of_these_ways(self, store: Store, kind: str) -> None:
        answer = {"summary": "in short", "from_message_id": "1", "to_message_id": "3"}

        async def later(messages: list[Message]) -> Any:
            return answer

        def handing_on(messages: list[Message]) -> Any:
            return later(messages)

        def weighed(messages: list[Message], context: Any) -> Any:
            return answer if context.count(messages[0]) > 0 and context.session_id == "s" else None

        functions: dict[str, Callable[..., Any]] = {
            "dict": answering(answer),
            "object": answering(SimpleNamespace(**answer)),
            "async": later,
            "awaitable": handing_on,
            "with context": weighed,
        }
        session = await _compacting(store, functions[kind], 6)

        made = await session.compact()

        assert made is not None
        assert (made.summary, made.from_message_id, made.to_message_id) == ("in short", "1", "3")
        assert await session.get_compactions() == [made]
        assert texts(await session.get_history()) == ["m0", "in short", "m4", "m5"]

    async def test_a_function_may_use_up_the_list_it_is_given(self, store: Store) -> None:
        def consume(messages: list[Message]) -> dict[str, str]:
            first, _, last = (messages.pop(0) for _ in range(3))
            messages.clear()
            return {"summary": "in short", "from_message_id": first.id, "to_message_id": last.id}

        session = await _compacting(store, consume, 5)

        assert await session.compact() is not None
        assert texts(await session.get_history()) == ["in short", "m3", "m4"]

    async def test_nothing_is_an_answer_too(self, store: Store) -> None:
        session = await _compacting(store, answering(None), 4)
        version = await session.get_version()

        assert await session.compact() is None

        assert await session.get_compactions() == []
        assert await session.get_version() == version

    @pytest.mark.parametrize(
        ("summary", "reason"), [("", "blank"), (" \n", "blank"), ("word " * 20, "takes 30 tokens.* take 12$")]
    )
    async def test_a_summary_that_is_blank_or_longer_than_what_it_replaces_is_refused(
        self, store: Store, summary: str, reason: str
    ) -> None:
        session = await _compacting(store, covering("1", "2", summary), 4)
        version = await session.get_version()

        with pytest.raises(CompactionFailed, match=reason):
            await session.compact()

        assert await session.get_compactions() == []
        assert await session.get_version() == version

    @pytest.mark.parametrize(
        "answer",
        [
            "a text",
            7,
            {},
            [],
            pytest.param(object(), id="an object"),
            {"summary": "no ends"},
            {"summary": None, "from_message_id": "1", "to_message_id": "2"},
            {"summary": "x", "from_message_id": 1, "to_message_id": 2},
            {"summary": "x", "from_message_id": "1", "to_message_id": "nowhere"},
            {"summary": "x", "from_message_id": "compaction_nowhere", "to_message_id": "2"},
            {"summary": "x", "from_message_id": "2", "to_message_id": "1"},
        ],
        ids=repr,
    )
    async def test_a_wrong_answer_is_refused_and_the_session_stays_usable(self, store: Store, answer: Any) -> None:
        session = await _compacting(store, answering(answer), 4)

        with pytest.raises(ValueError, match=r"\w"):
            await session.compact()

        assert texts(await session.get_history()) == ["m0", "m1", "m2", "m3"]
        await session.append_message(user("on"))
        await session.add_compaction("by hand", "0", "1")
        assert texts(await session.get_history()) == ["by hand", "m2", "m3", "on"]

    async def test_what_a_function_raises_a_manual_compaction_raises(self, store: Store) -> None:
        def fail(messages: list[Message]) -> None:
            raise ConnectionError("the model is away")

        session = await _compacting(store, fail, 4)

        for _ in range(3):
            with pytest.raises(ConnectionError, match="the model is away"):
                await session.compact()
        assert len(await session.get_history()) == 4

    async def test_any_text_of_a_function_is_a_summary(self, store: Store) -> None:
        session = await _compacting(store, covering("1", "2", "odd \ud800 \x00 京"), 4)

        made = await session.compact()

        assert made is not None
        assert made.summary == "odd \ufffd \x00 京"
        assert texts(await session.get_history()) == ["m0", made.summary, "m3"]

    async def test_compacting_needs_a_function(self, store: Store) -> None:
        session = await spoken(store, 3)

        with pytest.raises(ConfigurationError, match="on_compaction"):
            await session.compact()

    async def test_a_threshold_without_a_function_shows_at_first_use(self, store: Store) -> None:
        built = Session.create(store).for_session("s").compact_after(100)
        given = Session(store, "s", compact_after=100)

        for session in (built, given):
            for use in (lambda s=session: s.append_message(user("x")), session.get_history, session.estimate_tokens):
                with pytest.raises(ConfigurationError, match="on_compaction"):
                    await use()
        assert await Session(store, "s").get_history() == []

    async def test_a_path_that_is_not_there_cannot_be_compacted(self, store: Store) -> None:
        session = await _compacting(store, covering("0", "1"), 3)

        for leaf_id in ("nowhere", "compaction_1", ""):
            with pytest.raises(MessageNotFound):
                await session.compact(leaf_id)
        assert await Session(store, "empty", on_compaction=covering("0", "1")).compact() is None

    async def test_another_branch_is_compacted_without_leaving_this_one(self, store: Store) -> None:
        session = await _compacting(store, covering("1", "3"), 5)
        await session.append_message(user("here", id="here"), parent_id="1")

        made = await session.compact("4")

        assert made is not None
        assert texts(await session.get_history()) == ["m0", "m1", "here"]
        assert texts(await session.get_history("4")) == ["m0", made.summary, "m4"]


class _Keeping:
    """What a compaction keeps."""

    async def test_compacting_again_and_again_loses_no_message_and_no_summary(self, store: Store) -> None:
        prompts: list[str] = []

        def summarize(prompt: str) -> str:
            prompts.append(prompt)
            return f"summary-{len(prompts)}."

        session = Session(store, "s")
        for heads in (3, 1, 4, 3):
            compact = create_compact_function(summarize=summarize, protect_head=heads, tail_token_budget=30)
            session = Session(store, "s", on_compaction=compact)
            await session.append_messages(
                [user(f"text-{n}.") for n in range(len(prompts) * 20, len(prompts) * 20 + 20)]
            )
            assert await session.compact() is not None

        seen = " ".join([*prompts, *texts(await session.get_history())])
        assert all(f"text-{n}." in seen for n in range(80))
        assert all(f"summary-{n}." in seen for n in range(1, 5))
        assert len(await session.get_raw_history()) == 80
        assert len(await session.get_summary_ids()) == 1

    async def test_of_two_summaries_in_a_range_neither_is_lost(self, store: Store) -> None:
        prompts: list[str] = []

        def summarize(prompt: str) -> str:
            prompts.append(prompt)
            return "all"

        compact = create_compact_function(summarize=summarize, tail_token_budget=20)
        session = await _compacting(store, compact, 20)
        await session.add_compaction("first-summary", "2", "4")
        await session.add_compaction("second-summary", "8", "9")

        made = await session.compact()

        assert made is not None
        assert made.from_message_id == "2"
        assert "first-summary" in prompts[0]
        assert "second-summary" in prompts[0]
        assert all(f"m{n}" in prompts[0] for n in (5, 6, 7, 10, 11))

    @pytest.mark.parametrize(("first", "last"), [("0", "call"), ("result", "3"), ("call", "1"), ("1", "2")])
    async def test_no_function_parts_a_call_from_its_result(self, store: Store, first: str, last: str) -> None:
        chain = [*said(1), calling("c"), *said(1, start=1)]
        chain += [tool_result("c", "seen", name="look", id="result"), *said(2, start=2)]
        session = Session(store, "s", on_compaction=covering(first, last, "s"))
        await session.append_messages(chain)

        await session.compact()

        shown = {message.id for message in await session.get_history()}
        assert ("call" in shown) == ("result" in shown)
        assert {message.id for message in await session.get_raw_history()} == {message.id for message in chain}

    async def test_a_call_that_waits_for_its_result_is_not_summarised(self, store: Store) -> None:
        session = Session(store, "s", on_compaction=covering("0", "call"))
        await session.append_messages([*said(3), calling("c")])

        await session.compact()

        assert (await session.get_history())[-1].id == "call"

    async def test_a_compaction_has_the_prompt_rendered_anew(self, store: Store) -> None:
        session = Session(
            store, "s", context=[{"label": "memory"}], cached_prompt=True, on_compaction=covering("0", "1")
        )
        await session.append_messages(said(4))
        await session.replace_context_block("memory", "old fact")
        frozen = await session.freeze_system_prompt()
        await session.replace_context_block("memory", "new fact")
        assert await session.freeze_system_prompt() == frozen

        await session.compact()

        assert "new fact" in await session.freeze_system_prompt()


Meddling = Callable[[Session, "Store"], Awaitable[Any]]


async def _store_again(session: Session, store: Store) -> None:
    await session.delete_messages(["2"])
    await session.append_message(user("m2", id="2"), parent_id="1")


async def _make_again(session: Session, store: Store) -> None:
    assert await SessionManager(store).delete("s")
    await session.append_messages([user(f"another {n}", id=f"{n}") for n in range(6)])


async def _clear_and_fill(session: Session, store: Store) -> None:
    await session.clear_messages()
    await session.append_messages(said(6))


async def _empty_a_summary(session: Session, store: Store) -> None:
    # The summary of "3", which the function saw, goes with "3".
    await session.delete_messages(["3"])


CHANGES: dict[str, Meddling] = {
    "an update": lambda session, _: session.update_message(user("new", id="2")),
    "an upsert": lambda session, _: session.upsert_message(user("new", id="1")),
    "a delete": lambda session, _: session.delete_messages(["2"]),
    "the deletion of an end": lambda session, _: session.delete_messages(["1"]),
    "a delete and an append": _store_again,
    "a clear": lambda session, _: session.clear_messages(),
    "a clear and the same messages": _clear_and_fill,
    "another session of that id": _make_again,
    "the deletion of the session": lambda _, store: SessionManager(store).delete("s"),
    "a summary inside": lambda session, _: session.add_compaction("x", "2", "2"),
    "a summary around": lambda session, _: session.add_compaction("x", "0", "5"),
    "the end of a summary inside": _empty_a_summary,
}
OTHERS: dict[str, Meddling] = {
    "an append": lambda session, _: session.append_message(user("more")),
    "a branch inside": lambda session, _: session.append_message(user("more"), parent_id="2"),
    "a label": lambda session, _: session.label("2", "here"),
    "a checkout": lambda session, _: session.checkout("1"),
    "an update elsewhere": lambda session, _: session.update_message(user("new", id="5")),
    "a delete elsewhere": lambda session, _: session.delete_messages(["0", "5"]),
    "an update below a summary": lambda session, _: session.update_message(user("new", id="3")),
    "a summary elsewhere": lambda session, _: session.add_compaction("x", "5", "5"),
    "a summary of a branch": lambda session, _: session.add_compaction("x", "aside", "aside"),
}


class _Meanwhile:
    """What others do while a function is at work."""

    async def _meddle(self, store: Store, meddle: Meddling) -> tuple[Session, Any]:
        """Compact "1" to "4", "3" of which is a summary already, and meddle before that is done."""
        function = Slow(covering("1", "4"))
        session, other = Session(store, "s", on_compaction=function), Session(store, "s")
        await session.append_messages(said(6))
        await session.append_message(user("aside", id="aside"), parent_id="0")
        await session.checkout("5")
        await session.add_compaction("three", "3", "3")
        running = asyncio.create_task(session.compact())
        await function.asked.wait()
        await meddle(other, store)
        function.go_on.set()
        return session, await running

    @pytest.mark.parametrize("change", CHANGES)
    async def test_a_result_is_not_applied_to_what_changed_meanwhile(self, store: Store, change: str) -> None:
        session, made = await self._meddle(store, CHANGES[change])

        assert made is None
        assert "in short" not in texts(await session.get_history())
        assert "in short" not in [one.summary for one in await session.get_compactions()]

    @pytest.mark.parametrize("change", OTHERS)
    async def test_a_result_is_applied_whatever_happens_elsewhere(self, store: Store, change: str) -> None:
        session, made = await self._meddle(store, OTHERS[change])

        assert made is not None
        leaf = "4" if await session.get_message("5") is None else "5"
        assert "in short" in texts(await session.get_history(leaf))
        assert not {"m1", "m2", "m4"} & set(texts(await session.get_history(leaf)))


@pytest.mark.asyncio
class CompactionContract(
    OverlayContract,
    _Answers,
    _Keeping,
    _Meanwhile,
    AutomaticContract,
    BranchCompactionContract,
    ShortenedResultContract,
):
    """A history never outgrows its window, and nothing of it is lost.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
