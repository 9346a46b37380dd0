"""What compaction promises on a branch: no summary crosses one that goes on on another branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leafward import Session, create_compact_function, user
from leafward.testing.speaking import said, texts
from leafward.testing.summarising import covering, so_far

if TYPE_CHECKING:
    from leafward.stores import Store


async def _with_messages(store: Store, fn: Callable[..., Any]) -> Session:
    session = Session(store, "s", on_compaction=fn)
    await session.append_messages(said(12))
    return session


class BranchCompactionContract:
    """Compaction on a branch that leaves the path under a summary. Part of `CompactionContract`."""

    async def test_an_edit_under_a_summary_can_be_compacted(self, store: Store) -> None:
        prompts: list[str] = []

        def summarize(prompt: str) -> str:
            prompts.append(prompt)
            return "s"

        compact = create_compact_function(summarize=summarize, protect_head=1, tail_token_budget=20)
        session = await _with_messages(store, compact)
        await session.add_compaction("earlier", "1", "10")
        await session.checkout("6")
        await session.append_messages([user("edited", id="x"), user("reply", id="y")])

        made = await session.compact()

        # To end at "6" or above would cross the earlier summary, on its branch.
        assert made is not None
        assert (made.from_message_id, made.to_message_id) == ("1", "x")
        assert len(prompts) == 1
        assert texts(await session.get_history()) == ["m0", "s", "reply"]
        assert texts(await session.get_history("11")) == ["m0", "earlier", "m11"]

    async def test_a_summary_may_end_before_one_that_goes_on_on_another_branch(self, store: Store) -> None:
        session = await _with_messages(store, create_compact_function(summarize=so_far, protect_head=1))
        await session.add_compaction("earlier", "6", "10")
        await session.checkout("8")
        await session.append_messages([user("word " * 20_000, id="x")])

        made = await session.compact()

        assert made is not None
        assert (made.from_message_id, made.to_message_id) == ("1", "5")

    async def test_a_range_that_would_cross_is_shrunk(self, store: Store) -> None:
        session = await _with_messages(store, covering("0", "5", "s"))
        await session.add_compaction("earlier", "3", "10")
        await session.checkout("6")

        made = await session.compact()

        assert made is not None
        assert (made.from_message_id, made.to_message_id) == ("0", "2")

    async def test_where_no_end_is_allowed_no_model_is_asked(self, store: Store) -> None:
        asked: list[str] = []
        compact = create_compact_function(summarize=asked.append, protect_head=1, tail_token_budget=0)  # type: ignore[arg-type]
        session = await _with_messages(store, compact)
        await session.add_compaction("earlier", "0", "10")
        await session.checkout("6")
        await session.append_message(user("edited", id="x"))

        assert await session.compact() is None

        assert asked == []
        assert texts(await session.get_history())[-2:] == ["m6", "edited"]
