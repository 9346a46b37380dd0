"""Drives a session and a plain-Python model with the same calls, and compares all that can be read."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leafward import LATEST_LEAF, Message, Session, open_store
from leafward.core.ids import Scope
from leafward.sessions import Change
from tests.sessions.model import LEAF, Model, Row, State, Told

WORDS = ["apple", "river", "castle", "violin", "garden", "北京", "烤鸭", "東京", "タワー", "서울", "京"]
NOISE = ["🦊", "👩\u200d👩\u200d👧", "\x00", "\u202e", "'; --", "%", "42", "\ufffd", "\n", "é", "e\u0301"]
NAMES = ["castleGarden", "RiverApple", "violinCastleRiver"]
ODD_ENDINGS = ["", " ", ":", "%", "_", "'", "é", "e\u0301", "🦊", "A", "a"]
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
PATIENCE = 60.0
SAMPLE = 6

# CJK words touch each other as in a sentence, the rest stand apart as in a text.
texts = st.lists(st.sampled_from(WORDS + NOISE + NAMES), max_size=6).map(
    lambda pieces: "".join(piece if not piece.isascii() else f" {piece} " for piece in pieces)
)
picks = st.integers(0, 10_000)
minutes = st.integers(0, 5)
roles = st.sampled_from(["user", "assistant", "system"])
STATES = ["plan", "mood", "状態 "]
values: st.SearchStrategy[State] = st.sampled_from([None, {}, {"n": 1}, {"n": True}, {"n": 1.0}, {"n": ["北京", None]}])
states = st.dictionaries(st.sampled_from(STATES), values, max_size=2)


def as_message(row: Row) -> Message:
    return Message(row.role, list(row.parts), id=row.id, created_at=row.created_at)


def as_seen(message: Message | None) -> tuple[Any, ...] | None:
    return None if message is None else (message.id, message.role, list(message.parts), message.created_at)


def as_kept(row: Row | None) -> tuple[Any, ...] | None:
    return None if row is None else (row.id, row.role, list(row.parts), row.created_at)


def of_live_messages(told: list[Told]) -> list[Told]:
    """Leave out what was told about a message before it was last stored: a replay may or may not tell it."""
    here: set[str] = set()
    kept: list[Told] = []
    for kind, ids in told:
        if kind in ("append", "delete", "clear") or here.issuperset(ids):
            kept.append((kind, ids))
        here = here.union(ids) if kind == "append" else here
    return kept


class SessionMachine(RuleBasedStateMachine):
    """Makes the same calls on a session and on the model, and compares all that can be read."""

    url: ClassVar[str] = "memory://"
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="leafward-model-")
        self.runner = asyncio.Runner()
        self.model = Model()
        self.made = 0
        self.upserted: list[list[str]] = [[], []]
        """What was upserted before and after a message was last added, that one too if it was upserted: in order."""
        self.version = 0
        self.session_id = "s"
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.store = await open_store(self.url.format(directory=self.directory.name), **self.options)
        self.handles = self.make_handles()
        # Nothing of a neighbour may ever show.
        await Session(self.store, "s").append_message(Message("user", " ".join(WORDS), id="neighbour"))

    def make_handles(self) -> list[Session]:
        return [Session(self.store, self.session_id, user_id="alice") for _ in range(2)]

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.directory.cleanup()

    @property
    def session(self) -> Session:
        """One handle, then the other; a step or two with each, since most steps count two."""
        return self.handles[self.made // 3 % 2]

    def row(self, text: str, minute: int, role: str, name: str | None = None) -> Row:
        self.made += 1
        if name is None:
            name = f"m{self.made}{ODD_ENDINGS[self.made % len(ODD_ENDINGS)]}"
        created_at = EPOCH + timedelta(minutes=minute)
        # A mark tells this text from all others, wherever it goes.
        marked = f"{text} ⟦{self.made}⟧" if text else text
        return Row(name, role, ({"type": "text", "text": marked},), created_at)

    def known(self, pick: int) -> str:
        """Choose a stored message; small numbers are the newest, near which most mistakes are made."""
        newest_first = sorted(self.model.rows.values(), key=lambda row: -row.number)
        return newest_first[pick % len(newest_first)].id

    def call(self, call: Callable[[], Awaitable[Any]], changed: bool) -> Any:
        """Make one call and see that the version grew if, and only if, something changed."""

        async def step() -> Any:
            result = await call()
            version = await self.session.get_version()
            assert version > self.version if changed else version == self.version
            self.version = version
            return result

        return self.runner.run(step())

    def append(self, rows: list[Row], parent: object, state: dict[str, State] | None = None) -> None:
        inserted = self.model.append(rows, parent)
        changed = self.model.attach(rows[-1].id, state or {}, told=not inserted) or inserted
        messages = [as_message(row) for row in rows]
        parent_id: Any = LATEST_LEAF if parent is LEAF else parent
        if len(messages) == 1:
            stored = [self.call(lambda: self.session.append_message(messages[0], parent_id, state=state), changed)]
        else:
            stored = self.call(lambda: self.session.append_messages(messages, parent_id, state=state), changed)
        if inserted:
            self.upserted = [self.upserted[1], []]
            self.after_append()
        assert [as_seen(message) for message in stored] == [as_kept(self.model.rows[row.id]) for row in rows]

    def after_append(self) -> None:
        """See what an append did beside storing messages."""

    def has_messages(self) -> bool:
        return bool(self.model.rows)

    @initialize(places=st.lists(picks, min_size=2, max_size=8))
    def grow_a_small_tree(self, places: list[int]) -> None:
        self.append([self.row("castle", 0, "user")], LEAF)
        for place in places:
            self.append([self.row("garden 北京", 0, "user")], self.known(place))

    @rule(text=texts, minute=minutes, role=roles, state=states)
    def append_at_the_leaf(self, text: str, minute: int, role: str, state: dict[str, State]) -> None:
        self.append([self.row(text, minute, role)], LEAF, state)

    @rule(text=texts, minute=minutes, role=roles)
    def append_a_root(self, text: str, minute: int, role: str) -> None:
        self.append([self.row(text, minute, role)], None)

    @precondition(has_messages)
    @rule(text=texts, minute=minutes, role=roles, pick=picks, state=states)
    def append_below_a_message(self, text: str, minute: int, role: str, pick: int, state: dict[str, State]) -> None:
        self.append([self.row(text, minute, role)], self.known(pick), state)

    @precondition(has_messages)
    @rule(text=texts, pick=picks, parent=picks, state=states)
    def append_a_known_id(self, text: str, pick: int, parent: int, state: dict[str, State]) -> None:
        self.append([self.row(text, 0, "user", self.known(pick))], self.known(parent), state)

    @rule(
        pieces=st.lists(st.tuples(texts, st.none() | picks), min_size=2, max_size=6),
        place=st.none() | picks,
        state=states,
    )
    def append_a_batch(self, pieces: list[tuple[str, int | None]], place: int | None, state: dict[str, State]) -> None:
        rows: dict[str, Row] = {}
        for text, pick in pieces:
            name = None if pick is None or not self.model.rows else self.known(pick)
            row = self.row(text, 1, "user", name)
            rows.setdefault(row.id, row)
        parent = LEAF if place is None or not self.model.rows else self.known(place)
        self.append(list(rows.values()), parent, state)

    @rule(name=st.sampled_from(STATES), value=values)
    def set_a_state(self, name: str, value: State) -> None:
        self.set_state(name, value)

    def set_state(self, name: str, value: State) -> None:
        changed = self.model.attach(self.model.leaf, {name: value})
        self.call(lambda: self.session.set_state(name, value), changed)

    @rule(text=texts, between=st.booleans())
    def append_a_tool_call_and_its_result(self, text: str, between: bool) -> None:
        asking, waiting, answering = (self.row(text, 2, role) for role in ("assistant", "user", "tool"))
        call = {"type": "tool_use", "id": asking.id, "name": "look", "input": {}}
        result = {"type": "tool_result", "id": asking.id, "name": "look", "output": [], "state": "success"}
        rows = [
            Row(asking.id, asking.role, (*asking.parts, call), asking.created_at),
            waiting,
            Row(answering.id, answering.role, (result,), answering.created_at),
        ]
        self.append(rows if between else [rows[0], rows[2]], LEAF)

    @precondition(has_messages)
    @rule(text=texts, minute=minutes, role=roles, pick=picks, upsert=st.booleans())
    def replace_a_message(self, text: str, minute: int, role: str, pick: int, upsert: bool) -> None:
        row = self.row(text, minute, role, self.known(pick))
        self.model.update(row)
        write = self.session.upsert_message if upsert else self.session.update_message
        self.upserted[1] += [row.id] if upsert else []
        stored = self.call(lambda: write(as_message(row)), True)
        kept = as_kept(self.model.rows[row.id])
        self.after_append()
        assert as_seen(stored) == kept

    @rule(text=texts, minute=minutes, role=roles)
    def upsert_a_new_message(self, text: str, minute: int, role: str) -> None:
        row = self.row(text, minute, role)
        self.model.upsert(row)
        self.upserted = [self.upserted[1], [row.id]]
        stored = self.call(lambda: self.session.upsert_message(as_message(row)), True)
        self.after_append()
        assert as_seen(stored) == as_kept(row)

    @precondition(has_messages)
    @rule(chosen=st.lists(picks, min_size=1, max_size=4))
    def delete_messages(self, chosen: list[int]) -> None:
        names = [*(self.known(pick) for pick in chosen), "nowhere"]
        count = self.model.delete(names)
        assert self.call(lambda: self.session.delete_messages(names), True) == count

    @precondition(has_messages)
    @rule(pick=picks, text=texts)
    def delete_and_store_again(self, pick: int, text: str) -> None:
        name = self.known(pick)
        self.model.delete([name])
        assert self.call(lambda: self.session.delete_messages([name]), True) == 1
        self.append([self.row(text, 3, "user", name)], LEAF)

    @precondition(lambda self: self.model.leaf is not None)
    @rule(text=texts, state=states)
    def lose_a_fork_and_go_on_above_it(self, text: str, state: dict[str, State]) -> None:
        fork = cast(str, self.model.leaf)
        above = self.model.rows[fork].parent
        lost, kept = (self.row(text, 4, "assistant") for _ in range(2))
        for name, value in state.items():
            self.set_state(name, value)
        self.append([lost], fork)
        self.append([kept], fork)
        self.model.delete([fork, lost.id])
        assert self.call(lambda: self.session.delete_messages([fork, lost.id]), True) == 2
        self.append([self.row(text, 4, "user")], above)

    @precondition(lambda self: len(self.model.rows) > 5)
    @rule()
    def clear(self) -> None:
        self.model.clear()
        self.call(self.session.clear_messages, True)

    @precondition(has_messages)
    @rule(pick=st.none() | picks)
    def checkout(self, pick: int | None) -> None:
        name = None if pick is None else self.known(pick)
        if name != self.model.leaf:
            self.model.checkout(name)
            self.call(lambda: self.session.checkout(name), True)

    @precondition(has_messages)
    @rule(pick=st.none() | picks)
    def checkout_the_tip(self, pick: int | None) -> None:
        name = None if pick is None else self.known(pick)
        tip = self.model.tip(name)
        moved = tip != self.model.leaf and self.model.checkout(tip)
        self.call(lambda: self.session.checkout(name, tip=True), moved)

    @precondition(has_messages)
    @rule(pick=picks, text=st.none() | st.sampled_from(["start", "後で", "🦊"]))
    def label(self, pick: int, text: str | None) -> None:
        name = self.known(pick)
        if text != self.model.labels.get(name):
            self.model.label(name, text)
            self.call(lambda: self.session.label(name, text), True)

    @invariant()
    def all_that_can_be_read_agrees(self) -> None:
        self.made += 1
        self.runner.run(self._compare())

    async def _compare(self) -> None:
        await self._compare_path(None)
        await self._compare_states()
        await self._compare_places()
        await self._compare_tree()
        await self._compare_windows()
        await self._compare_search()
        await self._compare_changes()

    async def _compare_path(self, leaf: str | None) -> None:
        end = self.model.leaf if leaf is None else leaf
        rows = self.model.path(end)
        raw = [as_kept(row) for row in rows]
        path = [as_kept(row) for row in self.model.visible(end)]
        assert [as_seen(m) for m in await self.session.get_raw_history(leaf)] == raw
        assert [as_seen(m) for m in await self.session.get_history(leaf)] == path
        assert [as_seen(m) async for m in self.session.iter_history(leaf)] == path
        assert [as_seen(m) async for m in self.session.iter_history(leaf, newest_first=True)] == path[::-1]
        assert await self.session.get_path_length(leaf) == len(raw)
        if raw:
            place, count = self.made % len(raw), 1 + self.made % 3
            page = await self.session.get_raw_history(leaf, limit=count, before=rows[place].id)
            assert [as_seen(m) for m in page] == raw[max(0, place - count) : place]
            assert [as_seen(m) for m in await self.session.get_raw_history(leaf, limit=count)] == raw[-count:]

    async def _compare_states(self) -> None:
        model, session = self.model, self.session
        in_force = model.in_force(model.leaf)
        assert repr(await session.get_states()) == repr(dict(sorted(in_force.items())))
        name = STATES[self.made % len(STATES)]
        assert repr(await session.get_state(name)) == repr(in_force.get(name))
        on_path = {row.id for row in model.path(model.leaf)}
        asked = sorted(model.rows)[self.made % 3 :: 3]
        scope = Scope.of(self.session_id, user_id="alice")
        head = await self.store.messages.head(scope, [name, "nothing"], ids=[*asked, "nowhere"])
        assert (head.version, head.leaf_id) == (self.version, model.leaf)
        assert repr(head.states) == repr({name: in_force[name]} if name in in_force else {})
        assert head.known == {one: one in on_path for one in asked}

    async def _compare_places(self) -> None:
        model, session = self.model, self.session
        leaf = None if model.leaf is None else model.rows[model.leaf]
        assert as_seen(await session.get_latest_leaf()) == as_kept(leaf)
        assert [as_seen(m) for m in await session.get_leaves()] == [as_kept(row) for row in model.leaves()]
        assert [as_seen(m) for m in await session.get_branches(None)] == [as_kept(r) for r in model.children(None)]
        names = sorted(model.rows)
        stride = max(1, len(names) // SAMPLE)
        for name in names[self.made % stride :: stride]:
            row = model.rows[name]
            parent = None if row.parent is None else model.rows[row.parent]
            assert as_seen(await session.get_message(name)) == as_kept(row)
            assert as_seen(await session.get_parent(name)) == as_kept(parent)
            children = [as_kept(child) for child in model.children(name)]
            assert [as_seen(m) for m in await session.get_branches(name)] == children
            assert (await session.get_tip(name)).id == model.tip(name)
            assert repr(await session.get_states(name)) == repr(dict(sorted(model.in_force(name).items())))
            await self._compare_path(name)

    async def _compare_tree(self) -> None:
        tree = await self.session.get_tree()
        on_path = {row.id for row in self.model.path(self.model.leaf)}
        shape = {
            name: (
                row.parent,
                row.role,
                [c.id for c in self.model.children(name)],
                self.model.labels.get(name),
            )
            for name, row in self.model.rows.items()
        }
        assert {node.id: (node.parent_id, node.role, list(node.children), node.label) for node in tree} == shape
        assert {node.id for node in tree if node.on_path} == on_path
        places = {node.id: place for place, node in enumerate(tree)}
        assert len(places) == len(tree)
        assert all(node.parent_id is None or places[node.parent_id] < places[node.id] for node in tree)
        assert await self.session.get_labels() == self.model.labels

    async def _compare_windows(self) -> None:
        path = [as_kept(row) for row in self.model.visible(self.model.leaf)]
        for count in (1, 2, 5):
            recent = await self.session.get_recent_history(max_messages=count)
            window = [as_kept(row) for row in self.model.recent(count)]
            assert ([as_seen(m) for m in recent.messages], recent.truncated) == (
                window,
                len(window) < len(path),
            )
        for limits in ({"max_tokens": 20}, {"max_bytes": 400}):
            recent = await self.session.get_recent_history(**limits)
            window = [as_seen(m) for m in recent.messages]
            assert window == path[len(path) - len(window) :]
            assert bool(window) == bool(path)
            assert recent.truncated == (len(window) < len(path))

    async def _compare_search(self) -> None:
        word = WORDS[self.made % len(WORDS)]
        results = await self.session.search(word, limit=500)
        assert {result.id for result in results} == self.model.holding(word)
        keys = [(-result.score, -result.created_at.timestamp(), result.id) for result in results]
        assert keys == sorted(keys)
        for result in results:
            row = self.model.rows[result.id]
            assert (result.session_id, result.role, result.created_at) == (
                self.session_id,
                row.role,
                row.created_at,
            )
            assert result.highlights

    async def _compare_changes(self) -> None:
        told: list[Told] = []
        last = 0
        if self.version:
            subscription = cast("AsyncGenerator[Change]", self.session.subscribe(0))
            async with asyncio.timeout(PATIENCE), aclosing(subscription) as changes:
                async for change in changes:
                    assert last < change.version <= self.version
                    assert change.session_id == self.session_id
                    last = change.version
                    told.extend(self._as_told(change.kind, list(change.message_ids)))
                    if last == self.version:
                        break
        assert of_live_messages(told) == of_live_messages(self.model.told)

    @staticmethod
    def _as_told(kind: str, ids: list[str]) -> list[Told]:
        if kind == "append":
            return [("append", (name,)) for name in ids]
        return [(kind, () if kind == "clear" else tuple(sorted(ids)))]
