"""Adds summaries to the calls that a session and its model are driven with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from leafward import CompactionFailed, Message, MessageNotFound, Session, assistant, create_compact_function
from leafward.core import Compaction
from leafward.core.compaction import CompactionContext
from leafward.core.tokens import count_tokens
from tests.sessions.machine import SAMPLE, SessionMachine, as_kept, as_message, as_seen, picks, texts
from tests.sessions.model import Cover, Row

THRESHOLD = 45
"""Tokens above which the first of the two handles compacts by itself."""

MARK = re.compile("⟦\\d+⟧")
PLANS = ("made", "stretch", "made", "nothing", "made", "stretch", "failure", "made")


class PlannedFailure(Exception):
    """What a compaction function raises here and there."""


@dataclass
class Asked:
    """What a compaction function was given, and what it answered."""

    visible: list[Row]
    plan: str
    given: str = ""
    answer: dict[str, str] | None = None
    touched: set[str] = field(default_factory=set[str])
    """Visible messages that somebody changed while the function was at work."""

    def stretch(self) -> list[Row]:
        """The visible rows between the answered ends."""
        assert self.answer is not None
        names = [row.id for row in self.visible]
        start, end = names.index(self.answer["from_message_id"]), names.index(self.answer["to_message_id"])
        return self.visible[start : end + 1]


class CompactingMachine(SessionMachine):
    """Makes the same calls, summaries among them, and loses sight of no text.

    Every text on a path is seen by the model of the conversation, or was given to whatever made the summary that
    stands for it, or is covered by a summary that was laid over it by hand; and it always is in the raw history.
    """

    tally: ClassVar[Counter[str]] = Counter()
    """What happened in all runs of this process, for whoever keeps a record."""

    def __init__(self) -> None:
        self.tally["runs"] += 1
        self.asked: Asked | None = None
        self.numbers: tuple[int, int, int] | None = None
        self.meddling: Callable[[], Awaitable[set[str]]] | None = None
        self.errors: list[Exception] = []
        self.remembered: set[str] = set()
        self.by_hand: set[str] = set()
        self.summaries = 0
        super().__init__()

    def make_handles(self) -> list[Session]:
        return [
            Session(
                self.store,
                self.session_id,
                user_id="alice",
                on_compaction=self._compaction,
                on_compaction_error=self.errors.append,
                compact_after=threshold,
            )
            for threshold in (THRESHOLD, None)
        ]

    # The compaction function, and what it leaves behind.

    async def _compaction(self, messages: list[Message], context: CompactionContext) -> Any:
        assert self.asked is None
        numbers = self.numbers or (self.made, 7 * self.made, 3 * self.made)
        asked = self.asked = Asked(self._visible_as(messages), PLANS[sum(numbers) % len(PLANS)])
        assert context.session_id == self.session_id
        assert [context.count(message) for message in messages] == [count_tokens(message) for message in messages]
        if asked.plan == "made":
            await self._summarise(asked, messages, context, numbers)
        elif asked.plan == "stretch":
            first, last = sorted(number % len(messages) for number in numbers[:2])
            asked.given = "\n".join(message.text for message in messages[first : last + 1])
            asked.answer = self._answer(messages[first].id, messages[last].id)
        if self.meddling is not None:
            asked.touched = await self.meddling()
        if asked.plan == "failure":
            raise PlannedFailure
        return asked.answer

    def _visible_as(self, messages: Sequence[Message]) -> list[Row]:
        """Find the path that a function was given."""
        seen = [as_seen(message) for message in messages]
        last = self.model.ends(messages[-1].id)
        assert last is not None
        for leaf in (self.model.leaf, last[1]):
            visible = self.model.visible(leaf)
            if [as_kept(row) for row in visible] == seen:
                return visible
        raise AssertionError("the compaction function was given something else than a history")

    async def _summarise(
        self, asked: Asked, messages: list[Message], context: CompactionContext, numbers: tuple[int, int, int]
    ) -> None:
        async def remember(prompt: str) -> str:
            asked.given += prompt
            return "so far"

        head, tail, least = numbers
        function = create_compact_function(
            summarize=remember, protect_head=head % 4, tail_token_budget=tail % 90, min_tail_messages=least % 3
        )
        # The model of a session knows no notices.
        result = await function(messages, replace(context, shorten=None))
        if result is not None:
            asked.answer = self._answer(result.from_message_id, result.to_message_id)

    def _answer(self, first: str, last: str) -> dict[str, str]:
        self.summaries += 1
        return {"summary": f"summary {self.summaries} 北京", "from_message_id": first, "to_message_id": last}

    def after_append(self) -> None:
        asked, self.asked = self.asked, None
        error = self.errors.pop() if self.errors else None
        assert self.errors == []
        if isinstance(error, AssertionError):
            # What the compaction function found wrong was told like any failure of it.
            raise error
        if asked is None:
            assert error is None
            return
        assert self.session is self.handles[0]
        assert self.model_tokens() > THRESHOLD
        self.tally["automatic compactions tried"] += 1
        self._settle(asked, self.session.compaction_log[-1].compaction, error)

    def model_tokens(self) -> int:
        """Count again what a history costs, from the messages."""
        return sum(count_tokens(as_message(row)) for row in self.model.visible(self.model.leaf))

    def _settle(self, asked: Asked, made: Compaction | None, error: Exception | None) -> None:
        """Judge what a compaction did, and take it over into the model."""
        if made is not None:
            self._take(asked, made)
            assert error is None or (isinstance(error, CompactionFailed) and self.model_tokens() > THRESHOLD)
        elif asked.answer is None or asked.plan == "failure":
            assert isinstance(error, PlannedFailure) == (asked.plan == "failure")
        else:
            self._excuse(asked, error)

    def _take(self, asked: Asked, made: Compaction) -> None:
        assert asked.answer is not None
        assert made.summary == asked.answer["summary"]
        assert self.model.objection(made.from_message_id, made.to_message_id) is None
        stretch = asked.stretch()
        covered = {row.id for row in self.model.stretch(made.from_message_id, made.to_message_id)}
        ends = [self.model.ends(row.id) for row in stretch]
        taken = [row for row, pair in zip(stretch, ends, strict=True) if pair and covered.issuperset(pair)]
        # It shrinks to keep pairs together, and never grows: what it covers is what was given.
        assert covered == {
            row.id for one in taken for row in self.model.stretch(*cast("tuple[str, str]", self.model.ends(one.id)))
        }
        assert not asked.touched & {row.id for row in taken}
        for row in taken:
            assert set(MARK.findall(row.text)) <= set(MARK.findall(asked.given))
            assert not row.id.startswith("compaction_") or row.text in asked.given
        self._check_pairs(asked.visible, {row.id for row in taken})
        self.tally["summaries by a compaction function"] += 1
        self.tally["of those, taking in an earlier summary"] += any(one.id.startswith("compaction_") for one in taken)
        self.remembered |= {row.id for row in taken}
        self.model.cover(_as_cover(made))

    @staticmethod
    def _check_pairs(visible: list[Row], taken: set[str]) -> None:
        for place, caller in enumerate(visible):
            for answerer in visible[place + 1 :]:
                if caller.calls() & answerer.results():
                    assert (caller.id in taken) == (answerer.id in taken)

    def _excuse(self, asked: Asked, error: Exception | None) -> None:
        """See that there was a reason not to lay a summary over what was answered."""
        stretch = asked.stretch()
        tools = any(row.calls() or row.results() for row in asked.visible)
        objection = self.model.objection(stretch[0].id, stretch[-1].id)
        changed = bool(asked.touched & {row.id for row in stretch})
        assert asked.answer is not None
        before, since = self.upserted
        being_written = {*before[-1:], *since}
        # No summary covers what is still being written, so it ends before the first of these.
        complete = list(takewhile(lambda row: row.id not in being_written, stretch))
        replaced = sum(count_tokens(as_message(row)) for row in complete)
        longer = count_tokens(assistant(asked.answer["summary"])) > replaced
        assert tools or objection or changed or longer or not complete
        self.tally["results not applied: changed meanwhile"] += changed
        assert error is None or isinstance(error, (ValueError, CompactionFailed))
        if isinstance(error, ValueError) and not tools:
            assert objection == "crosses"

    # Calls about summaries.

    def _change(self, call: Callable[[], Awaitable[Any]]) -> Any:
        async def step() -> Any:
            result = await call()
            self.version = await self.session.get_version()
            return result

        return self.runner.run(step())

    @precondition(SessionMachine.has_messages)
    @rule(pick=st.none() | picks, numbers=st.tuples(picks, picks, picks))
    def compact(self, pick: int | None, numbers: tuple[int, int, int]) -> None:
        self._compact(None if pick is None else self.known(pick), numbers)

    def _compact(self, leaf: str | None, numbers: tuple[int, int, int]) -> None:
        self.numbers = numbers
        made, error = None, None
        try:
            made = self._change(lambda: self.session.compact(leaf))
        except (PlannedFailure, ValueError, CompactionFailed) as failure:
            error = failure
        self.numbers = None
        asked, self.asked = self.asked, None
        if asked is not None:
            self._settle(asked, made, error)
        else:
            assert self.model.path(self.model.leaf if leaf is None else leaf) == []

    @precondition(SessionMachine.has_messages)
    @rule(
        numbers=st.tuples(picks, picks, picks),
        pick=picks,
        text=texts,
        kind=st.sampled_from(["update", "delete", "append", "cover", "checkout"]),
    )
    def compact_while_others_write(self, numbers: tuple[int, int, int], pick: int, text: str, kind: str) -> None:
        name = self.known(pick)
        row = self.row(text, 5, "user", name if kind == "update" else None)
        # The second handle writes: it never compacts by itself.
        writer = self.handles[1]

        async def meddle() -> set[str]:
            if kind == "update":
                self.model.update(row)
                await writer.update_message(as_message(row))
                return {name}
            if kind == "delete":
                gone = self._summaries_of_nothing_without(name)
                self.model.delete([name])
                await writer.delete_messages([name])
                return {name, *gone}
            if kind == "cover":
                return await self._cover_meanwhile(writer, name)
            if kind == "append":
                self.model.append([row], name)
                await writer.append_message(as_message(row), name)
            elif name != self.model.leaf:
                self.model.checkout(name)
                await writer.checkout(name)
            return set()

        self.meddling = meddle
        try:
            self._compact(None, numbers)
        finally:
            self.meddling = None
        self.version = self.runner.run(self.session.get_version())

    def _summaries_of_nothing_without(self, name: str) -> set[str]:
        return {cover.row.id for cover in self.model.covers if (cover.first, cover.last) == (name, name)}

    async def _cover_meanwhile(self, writer: Session, name: str) -> set[str]:
        if self.model.objection(name, name) is not None:
            return set()
        made = await writer.add_compaction("meanwhile", name, name)
        self.by_hand.add(name)
        self.model.cover(_as_cover(made))
        return {name, *(cover.row.id for cover in self.model.covers if cover.first == cover.last == name)}

    @precondition(SessionMachine.has_messages)
    @rule(first=picks, last=picks, named=st.booleans(), on_path=st.booleans())
    def add_compaction(self, first: int, last: int, named: bool, on_path: bool) -> None:
        names = [row.id for row in self.model.visible(self.model.leaf)] if on_path else sorted(self.model.rows)
        if named:
            names = [*names, *(cover.row.id for cover in self.model.covers)]
        places = [first % len(names), last % len(names)] if names else []
        ends = [names[place] for place in (sorted(places) if on_path else places)] or ["nowhere", "nowhere"]
        self._add_compaction(*ends)

    @rule(name=st.sampled_from(["nowhere", "compaction_nowhere", "compaction_", "", "\x00", "a" * 300]), pick=picks)
    def add_compaction_of_what_is_not_there(self, name: str, pick: int) -> None:
        there = self.known(pick) if self.model.rows else "nowhere"
        self._add_compaction(name, there)
        self._add_compaction(there, name)

    def _add_compaction(self, first: str, last: str) -> None:
        self.summaries += 1
        summary = f"by hand {self.summaries}"
        objection = self.model.objection(first, last)
        try:
            made = cast(Compaction, self._change(lambda: self.session.add_compaction(summary, first, last)))
        except MessageNotFound:
            assert objection == "missing"
        except ValueError:
            self.tally["summaries by hand refused"] += 1
            assert objection in ("apart", "crosses")
        else:
            assert objection is None
            self.tally["summaries by hand"] += 1
            start, end = self.model.ends(first), self.model.ends(last)
            assert start is not None
            assert end is not None
            assert (made.summary, made.from_message_id, made.to_message_id) == (summary, start[0], end[1])
            self.by_hand |= {row.id for row in self.model.stretch(start[0], end[1])}
            self.model.cover(_as_cover(made))

    @rule(text=texts, numbers=st.tuples(picks, picks, picks))
    def let_summaries_cross(self, text: str, numbers: tuple[int, int, int]) -> None:
        """Summarise on two branches what one path holds once an end is deleted."""
        trunk = [self.row(text, 6, "user") for _ in range(4)]
        one, two = self.row(text, 6, "assistant"), self.row(text, 6, "assistant")
        self.append(trunk, None)
        self.append([one], trunk[-1].id)
        self.append([two], trunk[-1].id)
        self._add_compaction(trunk[numbers[0] % 3].id, one.id)
        self._add_compaction(trunk[numbers[1] % 3 + 1].id, two.id)
        self.model.delete([one.id])
        assert self.call(lambda: self.session.delete_messages([one.id]), True) == 1
        self._compact(None, numbers)

    # What can be read of it.

    async def _compare(self) -> None:
        await super()._compare()
        self.tally["comparisons"] += 1
        shown = self.model.visible(self.model.leaf)
        self.tally["comparisons with summaries in the history"] += any(
            row.id.startswith("compaction_") for row in shown
        )
        self.tally["comparisons with summaries that cross"] += self._crossing(shown)
        await self._compare_summaries()
        self._look_for_lost_texts()

    async def _compare_summaries(self) -> None:
        model, session = self.model, self.session
        assert [_as_cover(one) for one in await session.get_compactions()] == model.covers
        shown = [row.id for row in model.visible(model.leaf) if row.id.startswith("compaction_")]
        assert await session.get_summary_ids() == shown
        assert await session.estimate_tokens() == self.model_tokens()
        for cover in model.covers[self.made % SAMPLE :: SAMPLE]:
            covered = [as_kept(row) for row in model.stretch(cover.first, cover.last)]
            found = await session.get_covered(cover.id, limit=len(covered) + 1)
            assert [as_seen(message) for message in found] == covered

    def _crossing(self, shown: list[Row]) -> bool:
        stretches = [
            {row.id for row in self.model.stretch(*cast("tuple[str, str]", self.model.ends(one.id)))} for one in shown
        ]
        return any(one & other for one, other in pairwise(stretches))

    def _look_for_lost_texts(self) -> None:
        names = {*self.model.rows, *(cover.row.id for cover in self.model.covers)}
        self.remembered &= names
        self.by_hand &= names
        for leaf in {self.model.leaf, *(row.id for row in self.model.leaves())}:
            seen = {row.id for row in self.model.visible(leaf)}
            for row in self.model.path(leaf):
                assert row.id in seen or row.id in self.by_hand or row.id in self.remembered or not row.text


def _as_cover(made: Compaction) -> Cover:
    return Cover(made.id, made.summary, made.from_message_id, made.to_message_id, made.created_at)
