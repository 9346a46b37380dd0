"""What a batch promises: messages, states and usage in one step, and the head of a session in one look."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import LATEST_LEAF, Conflict, MessageNotFound, Session, SessionManager, StaleSession, user
from leafward.core.ids import Scope
from leafward.core.parent import ParentId
from leafward.stores import Appended, AttachedState, Draft, Head, Usage
from leafward.testing.changes import changes_until
from leafward.testing.ids import HOSTILE_IDS

if TYPE_CHECKING:
    from leafward.stores import Store

S = Scope.of("s")
ONE = Usage(10, 20, 0.5)


def drafts(*ids: str) -> list[Draft]:
    return [Draft(*user(f"text of {id}", id=id).sealed(), 3) for id in ids]


def plan(value: str | None) -> list[AttachedState]:
    return [AttachedState("plan", None if value is None else f'{{"at":"{value}"}}')]


async def used(store: Store, session_id: str = "s") -> tuple[int, int, float]:
    """Return what a session has used in all."""
    info = await SessionManager(store).get(session_id)
    return (0, 0, 0.0) if info is None else (info.input_tokens, info.output_tokens, info.estimated_cost)


async def whole(store: Store) -> Any:
    """Return all that a batch could change."""
    session = Session(store, "s")
    info = await SessionManager(store).get("s")
    states = {node.id: await session.get_states(node.id) for node in await session.get_tree()}
    return info, await session.get_version(), await session.get_latest_leaf(), states, await session.get_states()


def told(appended: Appended) -> tuple[Any, ...]:
    """Return what a batch said it did."""
    ids = [message.id for message in appended.messages]
    return ids, appended.inserted, appended.version, list(appended.states), appended.attached_to, appended.counted


class _Steps:
    """Messages with states and usage."""

    async def test_a_batch_says_what_it_did(self, store: Store) -> None:
        append = store.messages.append

        first = await append(S, drafts("1", "2"), LATEST_LEAF, state=plan("2"), usage=ONE)
        second = await append(S, drafts("3"), LATEST_LEAF, state=[], usage=ONE)
        third = await append(S, drafts("2", "x"), LATEST_LEAF, state=plan("2"), usage=ONE)
        again = await append(S, drafts("1", "2"), LATEST_LEAF, state=plan("2"), usage=ONE)
        changed = await append(S, drafts("1", "2"), LATEST_LEAF, state=plan("new"), usage=ONE)

        assert told(first) == (["1", "2"], 2, 1, plan("2"), "2", True)
        assert told(second) == (["3"], 1, 2, [], "3", True)
        assert told(third) == (["2", "x"], 1, 3, [], "x", True)
        assert told(again) == (["1", "2"], 0, 3, [], "2", False)
        assert told(changed) == (["1", "2"], 0, 4, plan("new"), "2", False)
        assert await Session(store, "s").get_version() == 4
        assert await used(store) == (30, 60, 1.5)

    async def test_messages_alone_say_their_version_too(self, store: Store) -> None:
        batches: list[tuple[list[str], ParentId]] = [
            (["1", "2"], LATEST_LEAF),
            (["3"], LATEST_LEAF),
            (["4"], LATEST_LEAF),
            (["5"], "4"),
            (["6", "7"], LATEST_LEAF),
            (["x"], "2"),
            (["y"], LATEST_LEAF),
            (["r"], None),
        ]

        done = [await store.messages.append(S, drafts(*ids), parent) for ids, parent in batches]

        assert [one.version for one in done] == list(range(1, len(batches) + 1))
        assert [one.attached_to for one in done] == [ids[-1] for ids, _ in batches]

    async def test_messages_states_and_usage_are_one_change(self, store: Store) -> None:
        session = Session(store, "s")

        for n in range(3):
            await store.messages.append(S, drafts(f"{n}"), LATEST_LEAF, state=plan(f"{n}"), usage=ONE)

        changes = await changes_until(session, await session.get_version())
        assert [(change.kind, change.message_ids) for change in changes] == [("append", [f"{n}"]) for n in range(3)]
        assert [await session.get_state("plan", f"{n}") for n in range(3)] == [{"at": f"{n}"} for n in range(3)]
        assert await used(store) == (30, 60, 1.5)

    async def test_a_parent_that_is_the_leaf_is_the_same_as_none_given(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF, state=plan("1"))
        for parent, id in (("1", "2"), (LATEST_LEAF, "3"), ("3", "4"), ("4", "5"), (LATEST_LEAF, "6")):
            done = await store.messages.append(S, drafts(id), parent, state=plan(id), usage=ONE)
            assert told(done) == ([id], 1, int(id), plan(id), id, True)

        session = Session(store, "s")
        assert [message.id for message in await session.get_history()] == list("123456")
        assert len(await session.get_leaves()) == 1
        assert await session.get_state("plan", "4") == {"at": "4"}

    async def test_a_batch_below_another_message_is_a_branch(self, store: Store) -> None:
        await store.messages.append(S, drafts("1", "2", "3"), LATEST_LEAF, state=plan("3"))

        done = await store.messages.append(S, drafts("x", "y"), "1", state=plan("y"), usage=ONE)
        root = await store.messages.append(S, drafts("r"), None, state=plan("r"), usage=ONE)

        session = Session(store, "s")
        assert told(done) == (["x", "y"], 2, 2, plan("y"), "y", True)
        assert told(root) == (["r"], 1, 3, plan("r"), "r", True)
        assert [m.id for m in await session.get_history("y")] == ["1", "x", "y"]
        assert [await session.get_state("plan", id) for id in "1x"] == [None, None]

    async def test_of_two_states_of_one_name_the_last_counts(self, store: Store) -> None:
        done = await store.messages.append(S, drafts("1"), LATEST_LEAF, state=[*plan("a"), *plan(None), *plan("b")])

        assert list(done.states) == plan("b")
        assert await Session(store, "s").get_state("plan") == {"at": "b"}

    async def test_without_messages_states_go_to_the_parent(self, store: Store) -> None:
        append = store.messages.append
        await append(S, drafts("1", "2", "3"), LATEST_LEAF)

        at_leaf = await append(S, [], LATEST_LEAF, state=plan("leaf"))
        at_parent = await append(S, [], "1", state=plan("1"), usage=ONE)
        at_root = await append(S, [], None, state=plan("root"))
        nothing = await append(S, [], "2", state=plan("1"))

        assert told(at_leaf) == ([], 0, 2, plan("leaf"), "3", False)
        assert told(at_parent) == ([], 0, 3, plan("1"), "1", True)
        assert told(at_root) == ([], 0, 4, plan("root"), None, False)
        assert told(nothing)[:4] == ([], 0, 4, [])
        session = Session(store, "s")
        assert [await session.get_state("plan", id) for id in "123"] == [{"at": "1"}, {"at": "1"}, {"at": "leaf"}]
        assert (await session.get_latest_leaf() or user("")).id == "3"

    async def test_without_messages_an_unknown_parent_is_an_error(self, store: Store) -> None:
        for states in (plan("x"), plan(None)):
            with pytest.raises(MessageNotFound):
                await store.messages.append(S, [], "nowhere", state=states)
        assert await SessionManager(store).get("s") is None
        await store.messages.append(S, drafts("1"), LATEST_LEAF)
        before = await whole(store)

        for states in (plan("x"), plan(None)):
            with pytest.raises(MessageNotFound):
                await store.messages.append(S, [], "nowhere", state=states, usage=ONE)

        assert await whole(store) == before

    async def test_a_batch_that_is_refused_leaves_nothing(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF, state=plan("1"))
        before = await whole(store)

        with pytest.raises(MessageNotFound):
            await store.messages.append(S, drafts("2", "3"), "nowhere", state=plan("3"), usage=ONE)

        assert await whole(store) == before

    async def test_a_batch_is_weighed_with_its_states(self, store: Store) -> None:
        plain = await store.messages.append(S, drafts("1", "2"), LATEST_LEAF, weigh=True)
        laden = await store.messages.append(S, drafts("3"), LATEST_LEAF, weigh=True, state=plan("3"), usage=ONE)

        assert plain.weight is not None
        assert laden.weight is not None
        assert (plain.weight.window, laden.weight.window) == (6, 9)

    async def test_an_upsert_says_its_version_too(self, store: Store) -> None:
        (one,), (two,) = drafts("1"), drafts("2")
        versions = [(await store.messages.upsert(S, draft, LATEST_LEAF)).version for draft in (one, two, one, two)]

        assert versions == [1, 2, 3, 4]


class _Usage:
    """What is counted, and when."""

    async def test_usage_counts_with_new_messages_only(self, store: Store) -> None:
        for _ in range(3):
            await store.messages.append(S, drafts("1", "2"), LATEST_LEAF, usage=ONE)
        assert await used(store) == (10, 20, 0.5)

        await store.messages.append(S, drafts("2", "3"), LATEST_LEAF, usage=ONE)

        assert await used(store) == (20, 40, 1.0)

    async def test_usage_without_messages_counts_each_time(self, store: Store) -> None:
        for n in range(1, 4):
            done = await store.messages.append(S, [], LATEST_LEAF, usage=ONE._replace(model="a-model"))
            assert done.counted
            assert await used(store) == (10 * n, 20 * n, 0.5 * n)
        assert len((await SessionManager(store).export_session("s"))["usages"]) == 3

    async def test_usage_that_cannot_be_added_up_is_refused(self, store: Store) -> None:
        await store.messages.append(S, drafts("m1"), LATEST_LEAF)
        costs = [Usage(1, 1, cost) for cost in (float("nan"), float("inf"), 1e308, -1)]
        tokens: list[Any] = [Usage(-1, 1), Usage(1, True), Usage(1.5, 1), Usage(2**53, 1)]  # pyright: ignore[reportArgumentType]
        for wrong in (*costs, *tokens):
            with pytest.raises(ValueError, match="at least 0"):
                await store.messages.append(S, drafts("m2"), LATEST_LEAF, usage=wrong)
            with pytest.raises(ValueError, match="at least 0"):
                await store.registry.add_usage(S, wrong)
        assert [message.id for message in await Session(store, "s").get_history()] == ["m1"]

    async def test_usage_with_an_id_counts_once(self, store: Store) -> None:
        manager = SessionManager(store)
        once = ONE._replace(usage_id="call 1", model="a-model")
        counted = [
            (await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=once)).counted,
            (await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=once)).counted,
            (await store.messages.append(S, drafts("2"), LATEST_LEAF, usage=once)).counted,
            (await store.messages.append(S, [], LATEST_LEAF, usage=once)).counted,
            # One that was not counted before counts, though the message is known.
            (await store.messages.append(S, drafts("2"), LATEST_LEAF, usage=once._replace(usage_id="2"))).counted,
        ]
        for _ in range(2):
            await manager.add_usage("s", 1, 1, 1.0, usage_id="call 1")
            await manager.add_usage("s", 100, 200, 5.0, usage_id="by hand", model="another")

        assert counted == [True, False, False, False, True]
        assert await used(store) == (120, 240, 6.0)
        assert not (await store.messages.append(S, [], LATEST_LEAF, usage=ONE._replace(usage_id="by hand"))).counted

    async def test_no_two_usage_ids_are_the_same(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.create("chat", session_id="s")
        for _ in range(2):
            for name in HOSTILE_IDS:
                await manager.add_usage("s", 1, 0, 0.0, usage_id=name)

        assert await used(store) == (len(HOSTILE_IDS), 0, 0.0)

    async def test_usage_ids_belong_to_one_session(self, store: Store) -> None:
        manager = SessionManager(store)
        for name in ("s", "t"):
            await manager.create("chat", session_id=name)
            await manager.add_usage(name, 1, 1, 1.0, usage_id="1")
        fork_from = manager.get_session("s")
        await fork_from.append_message(user("one", id="1"))
        fork = await manager.fork("s", "1", "fork")
        await manager.add_usage(fork.id, 1, 1, 1.0, usage_id="1")

        assert [await used(store, id) for id in ("s", "t", fork.id)] == [(1, 1, 1.0)] * 3

    async def test_a_message_that_is_stored_again_under_its_id_counts_again(self, store: Store) -> None:
        session = Session(store, "s")
        by_model = ONE._replace(model="a-model")
        for n in range(1, 4):
            assert (await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=by_model)).counted
            assert await used(store) == (10 * n, 20 * n, 0.5 * n)
            if n < 2:
                await session.delete_messages(["1"])
            else:
                await session.clear_messages()

        assert len((await SessionManager(store).export_session("s"))["usages"]) == 3

    async def test_usage_under_the_name_of_a_message_is_counted_beside_it(self, store: Store) -> None:
        by_model = ONE._replace(model="a-model")
        await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=by_model._replace(usage_id="2"))
        assert (await store.messages.append(S, drafts("2"), LATEST_LEAF, usage=by_model)).counted
        assert (await store.messages.append(S, [], LATEST_LEAF, usage=ONE._replace(usage_id="1"))).counted

        assert await used(store) == (30, 60, 1.5)

    async def test_an_export_brings_usage_along_with_its_ids(self, store: Store) -> None:
        manager = SessionManager(store)
        await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=ONE._replace(usage_id="1", model="a-model"))
        await manager.add_usage("s", 1, 2, 0.25, usage_id="漢 字")
        await manager.add_usage("s", 5, 5, 0.0)
        exported = await manager.export_session("s")

        await manager.import_session(exported, session_id="copy")
        await manager.add_usage("copy", 7, 7, 7.0, usage_id="1")
        await manager.add_usage("copy", 7, 7, 7.0, usage_id="漢 字")

        assert await used(store, "copy") == await used(store) == (16, 27, 0.75)
        assert (await manager.export_session("copy"))["usages"] == exported["usages"]
        assert [(one["id"], one["model"], one["inputTokens"]) for one in exported["usages"]] == [
            ("1", "a-model", 10),
            ("漢 字", None, 1),
        ]

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_usage_ids_go_with_their_session(self, store: Store, how: str) -> None:
        manager = SessionManager(store)
        once = ONE._replace(usage_id="1")
        await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=once)
        await manager.clear_messages("s")
        assert not (await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=once)).counted

        await (manager.delete("s") if how == "delete" else manager.erase("s"))

        assert (await store.messages.append(S, drafts("1"), LATEST_LEAF, usage=once)).counted
        assert await used(store) == (10, 20, 0.5)

    async def test_removing_what_is_not_there_counts_its_usage(self, store: Store) -> None:
        done = await store.messages.append(S, [], LATEST_LEAF, state=plan(None), usage=ONE)

        assert (list(done.states), done.counted) == ([], True)
        assert await used(store) == (10, 20, 0.5)

    async def test_concurrent_batches_are_all_counted(self, store: Store) -> None:
        await asyncio.gather(
            *(
                store.messages.append(
                    S, drafts(f"{n}"), LATEST_LEAF, usage=ONE._replace(model="m", usage_id=f"{n % 20}")
                )
                for n in range(40)
            )
        )

        assert await used(store) == (200, 400, 10.0)


class _Expecting:
    """Batches that are written only at the version that they were made for."""

    async def test_a_batch_is_written_at_the_version_it_expects(self, store: Store) -> None:
        version = 0
        for n in range(4):
            done = await store.messages.append(
                S, drafts(f"{n}"), LATEST_LEAF, state=plan(f"{n}"), usage=ONE, expected_version=version
            )
            version = done.version

        done = await store.messages.append(S, [], "1", state=plan("x"), expected_version=version)
        assert done.version == version + 1 == 5

    async def test_at_another_version_nothing_is_written(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF, state=plan("1"), usage=ONE)
        await store.messages.append(S, drafts("2"), LATEST_LEAF)
        before = await whole(store)
        batches: list[tuple[list[str], ParentId, list[AttachedState], Usage | None]] = [
            (["3"], LATEST_LEAF, [], None),
            (["2", "3"], LATEST_LEAF, [], None),
            (["3"], LATEST_LEAF, plan("3"), ONE),
            (["3"], LATEST_LEAF, [], ONE._replace(usage_id="3", model="a-model")),
            (["3"], "1", plan("3"), None),
            (["3"], None, [], None),
            ([], LATEST_LEAF, plan("3"), None),
            ([], None, plan("3"), None),
            ([], LATEST_LEAF, [], ONE),
        ]

        for ids, parent, states, usage in batches:
            for expected in (0, 1, 3):
                with pytest.raises(StaleSession) as caught:
                    await store.messages.append(
                        S, drafts(*ids), parent, state=states, usage=usage, expected_version=expected
                    )
                assert isinstance(caught.value, Conflict)
                assert (caught.value.session_id, caught.value.expected, caught.value.found) == ("s", expected, 2)

        assert await whole(store) == before
        # Nothing of it is remembered as done.
        done = await store.messages.append(
            S, drafts("3"), LATEST_LEAF, usage=ONE._replace(usage_id="3"), expected_version=2
        )
        assert told(done) == (["3"], 1, 3, [], "3", True)

    async def test_a_session_that_is_not_there_is_at_version_0(self, store: Store) -> None:
        with pytest.raises(StaleSession) as caught:
            await store.messages.append(S, drafts("1"), LATEST_LEAF, expected_version=3)
        assert caught.value.found == 0
        assert await SessionManager(store).get("s") is None
        assert await Session(store, "s").get_history() == []

        await store.messages.append(S, drafts("1"), LATEST_LEAF, expected_version=0)

        assert await Session(store, "s").get_path_length() == 1

    async def test_a_retry_is_not_held_to_the_version(self, store: Store) -> None:
        once = ONE._replace(usage_id="1")
        for _ in range(2):
            await store.messages.append(
                S, drafts("1", "2"), LATEST_LEAF, state=plan("2"), usage=once, expected_version=0
            )
            await store.messages.append(S, drafts("3"), "2")

        assert await used(store) == (10, 20, 0.5)
        assert await Session(store, "s").get_version() == 2
        # What a retry brings in addition is written.
        done = await store.messages.append(
            S, drafts("2"), LATEST_LEAF, state=plan("late"), usage=ONE._replace(usage_id="2"), expected_version=0
        )
        assert told(done) == (["2"], 0, 3, plan("late"), "2", True)

    async def test_what_writes_nothing_is_not_held_to_the_version(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF, state=plan("1"), usage=ONE._replace(usage_id="1"))

        await store.messages.append(S, [], LATEST_LEAF, state=plan("1"), expected_version=0)
        await store.messages.append(S, [], LATEST_LEAF, usage=ONE._replace(usage_id="1"), expected_version=0)

        assert await Session(store, "s").get_version() == 1

    async def test_of_many_who_expect_one_version_one_writes(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF)

        outcomes = await asyncio.gather(
            *(
                store.messages.append(S, drafts(f"x{n}"), LATEST_LEAF, state=plan(f"x{n}"), expected_version=1)
                for n in range(12)
            ),
            return_exceptions=True,
        )

        written = [one for one in outcomes if not isinstance(one, BaseException)]
        assert len(written) == 1
        assert sum(isinstance(one, StaleSession) for one in outcomes) == 11
        session = Session(store, "s")
        assert [m.id for m in await session.get_history()] == ["1", written[0].messages[0].id]
        assert await session.get_version() == 2


class _Heads:
    """Where a session stands."""

    async def test_the_head_of_a_session_that_is_not_there_is_empty(self, store: Store) -> None:
        assert await store.messages.head(S, ["plan"], ids=["1"]) == Head(0, None, {}, {})
        assert await SessionManager(store).get("s") is None

    async def test_a_head_says_where_a_session_stands(self, store: Store) -> None:
        ours = AttachedState("leafward.turn", '{"open":true}')
        await store.messages.append(S, drafts("1", "2"), LATEST_LEAF, state=[*plan("2"), ours])
        await store.messages.append(S, drafts("3", "4"), LATEST_LEAF, state=[AttachedState("mood", "{}")])
        await store.messages.append(S, drafts("x"), "1")
        session = Session(store, "s")

        await session.checkout("4")
        head = await store.messages.head(S, ["plan", "leafward.turn", "nothing", "plan"], ids=["1", "x", "4", "no"])

        assert head == Head(
            4, "4", {"plan": {"at": "2"}, "leafward.turn": {"open": True}}, {"1": True, "x": False, "4": True}
        )
        assert head.version == await session.get_version()
        await session.checkout("x")
        assert await store.messages.head(S, ["plan", "mood"], ids=["2", "1", "x"]) == Head(
            5, "x", {}, {"2": False, "1": True, "x": True}
        )
        await session.checkout(None)
        assert await store.messages.head(S, ["plan"], ids=["1"]) == Head(6, None, {}, {"1": False})

    async def test_a_head_follows_every_write(self, store: Store) -> None:
        session = Session(store, "s")
        await session.set_state("plan", {"at": "root"})
        assert await store.messages.head(S, ["plan"]) == Head(1, None, {"plan": {"at": "root"}}, {})
        await session.append_messages([user("x", id=f"{n}") for n in range(4)], state={"plan": {"at": "3"}})
        await session.delete_messages(["1"])
        assert await store.messages.head(S, ["plan"], ids=["0", "1", "3"]) == Head(
            3, "3", {"plan": {"at": "3"}}, {"0": True, "3": True}
        )
        await session.delete_messages(["3"])
        assert await store.messages.head(S, ["plan"]) == Head(4, "2", {"plan": {"at": "root"}}, {})
        await session.set_state("plan", None)
        assert await store.messages.head(S, ["plan"]) == Head(5, "2", {}, {})
        await session.clear_messages()
        assert await store.messages.head(S, ["plan"], ids=["0"]) == Head(6, None, {}, {})

    async def test_a_head_without_names_or_ids_has_none(self, store: Store) -> None:
        await store.messages.append(S, drafts("1"), LATEST_LEAF, state=plan("1"))

        assert await store.messages.head(S, []) == Head(1, "1", {}, {})

    async def test_every_id_is_found_by_the_head(self, store: Store) -> None:
        names = [id for id in HOSTILE_IDS if not id.startswith("compaction_")]
        await store.messages.append(S, drafts(*names[::2]), LATEST_LEAF, state=[AttachedState(n, "{}") for n in names])

        head = await store.messages.head(S, names, ids=names)

        assert head.states == {name: {} for name in names}
        assert head.known == dict.fromkeys(names[::2], True)


@pytest.mark.asyncio
class BatchContract(_Steps, _Usage, _Expecting, _Heads):
    """A step of an agent is one batch: all of it is written, or nothing.

    Subclasses define an async `store` fixture that yields an empty, open store.
    """
