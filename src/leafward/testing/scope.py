"""What scope promises: nothing reachable from a handle sees outside it, whatever the ids are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, MessageNotFound, Session, user
from leafward.testing.changes import changes_until
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS
from leafward.testing.settling import Settling

if TYPE_CHECKING:
    from leafward.stores import Store

# Pairs of (user, agent, session) that some way of joining ids would mix up.
CONFUSABLE: list[tuple[tuple[str | None, str, str], tuple[str | None, str, str]]] = [
    (("a", "x", "b:c"), ("a:b", "x", "c")),
    (("a", "x", "b/c"), ("a/b", "x", "c")),
    (("a", "x", "b|c"), ("a|b", "x", "c")),
    (("a", "x", "b_c"), ("a_b", "x", "c")),
    (("a", "x", "b.c"), ("a.b", "x", "c")),
    (("a", "x", "b%c"), ("a%b", "x", "c")),
    (("a", "x", "b c"), ("a b", "x", "c")),
    (("a", "x:b", "c"), ("a:x", "b", "c")),
    (("ab", "x", "c"), ("a", "bx", "c")),
    (("a", "b", "c"), ("b", "a", "c")),
    (("a", "b", "c"), ("a", "c", "b")),
    ((None, "x", "s"), ("None", "x", "s")),
    ((None, "x", "s"), ("null", "x", "s")),
    ((None, "x", "s"), ("anon", "x", "s")),
    ((None, "x", "s"), ("anonymous", "x", "s")),
    ((None, "x", "s"), ("__anon__ ", "x", "s")),
    ((None, "x", "s"), ("%", "x", "s")),
    ((None, "x", "s"), ("*", "x", "s")),
    ((None, "x", "s"), ("default", "x", "s")),
    ((None, "x", "a:s"), ("a", "x", "s")),
    (("alice", "x", "s"), ("alice ", "x", "s")),
    (("alice", "x", "s"), ("Alice", "x", "s")),
    (("alice", "x", "s"), ("alic%", "x", "s")),
    (("alice", "x", "s"), ("alic_", "x", "s")),
    (("alice", "x", "s"), ("alice", "x", "S")),
    (("alice", "x", "s"), ("alice", "X", "s")),
    (("alice", "default", "s"), (None, "alice", "s")),
    (("\u00e1", "x", "s"), ("a\u0301", "x", "s")),
    (("\uff41", "x", "s"), ("a", "x", "s")),
]


async def _fill(session: Session) -> None:
    """Give a session one of everything."""
    await session.append_messages([user("secret walnut", id="root"), user("secret a", id="a")])
    await session.append_message(user("secret b", id="b"), parent_id="root")
    await session.update_message(user("secret walnut changed", id="a"))
    await session.label("a", "secret label")
    await session.checkout("a")


async def _picture(session: Session) -> dict[str, Any]:
    """All that the reading calls say about a session."""
    return {
        "history": await session.get_history(),
        "raw": await session.get_raw_history(),
        "iterated": [m async for m in session.iter_history(newest_first=True)],
        "recent": list((await session.get_recent_history(max_messages=9)).messages),
        "message": [await session.get_message(name) for name in ("root", "a", "b")],
        "leaf": await session.get_latest_leaf(),
        "roots": await session.get_branches(None),
        "length": await session.get_path_length(),
        "leaves": await session.get_leaves(),
        "tree": await session.get_tree(),
        "labels": await session.get_labels(),
        "found": await session.search("secret", limit=50),
        "version": await session.get_version(),
    }


async def _intrude(session: Session) -> None:
    """Use every call on ids that exist in another scope only, and see none of them."""
    for read in (session.get_history, session.get_raw_history, session.get_parent, session.get_branches):
        with pytest.raises(MessageNotFound):
            await read("root")
    with pytest.raises(MessageNotFound):
        await session.get_path_length("a")
    with pytest.raises(MessageNotFound):
        [m async for m in session.iter_history("a")]
    with pytest.raises(MessageNotFound):
        await session.checkout("a")
    with pytest.raises(MessageNotFound):
        await session.label("a", "mine")
    with pytest.raises(MessageNotFound):
        await session.update_message(user("overwritten", id="a"))
    for write in (session.append_message, session.upsert_message):
        with pytest.raises(MessageNotFound):
            await write(user("under yours", id="x"), parent_id="a")
    with pytest.raises(MessageNotFound):
        await session.append_messages([user("under yours")], parent_id="a")
    assert await session.delete_messages(["root", "a", "b"]) == 0
    await session.clear_messages()


@pytest.mark.asyncio
class ScopeContract(Settling):
    """Every row belongs to one agent, user and session, and stays there.

    Subclasses define an async `store` fixture that yields an empty, open store, and override `settle`
    when their index follows writes in the background.
    """

    @pytest.mark.parametrize(("mine", "theirs"), CONFUSABLE, ids=range(len(CONFUSABLE)))
    async def test_no_call_reaches_another_scope(
        self, store: Store, mine: tuple[str | None, str, str], theirs: tuple[str | None, str, str]
    ) -> None:
        for (user_id, agent_id, session_id), (other_user, other_agent, other_session) in (
            (mine, theirs),
            (theirs, mine),
        ):
            ours = Session(store, session_id, user_id=user_id, agent_id=agent_id)
            other = Session(store, other_session, user_id=other_user, agent_id=other_agent)
            nothing = await _picture(other)
            await _fill(ours)
            picture = await _picture(ours)

            assert await _picture(other) == nothing
            await _intrude(other)
            assert await _picture(ours) == picture

            await other.append_message(user("secret of mine", id="a"))
            assert [m.text for m in await other.get_history()] == ["secret of mine"]
            assert {result.id for result in await self.look(store, other, "secret")} == {"a"}
            assert await _picture(ours) == picture
            await other.clear_messages()
            await ours.clear_messages()

    @pytest.mark.parametrize("kind", ["session", "user", "agent"])
    async def test_ids_that_look_alike_are_different(self, store: Store, kind: str) -> None:
        def handle(name: str) -> Session:
            return Session(
                store,
                name if kind == "session" else "s",
                user_id=name if kind == "user" else None,
                agent_id=name if kind == "agent" else "default",
            )

        for number, name in enumerate(HOSTILE_IDS):
            await handle(name).append_message(user(f"walnut {number}", id="m"))

        for number, name in enumerate(HOSTILE_IDS):
            assert [m.text for m in await handle(name).get_history()] == [f"walnut {number}"]

        for is_settled in (False, True):
            if is_settled:
                await self.settle(store)
            for number, name in enumerate(HOSTILE_IDS):
                (result,) = await handle(name).search("walnut")
                assert result.content == f"walnut {number}"
                assert result.session_id == (name if kind == "session" else "s")

    async def test_message_ids_that_look_alike_are_different(self, store: Store) -> None:
        session = Session(store, "s")

        await session.append_messages([user(f"{n}", id=name) for n, name in enumerate(HOSTILE_IDS)])
        for name in HOSTILE_IDS:
            await session.label(name, name)

        assert [m.id for m in await session.get_history()] == HOSTILE_IDS
        assert await session.get_labels() == {name: name for name in HOSTILE_IDS}
        for number, name in enumerate(HOSTILE_IDS):
            message = await session.get_message(name)
            assert message is not None
            assert message.text == f"{number}"
            assert await session.get_path_length(name) == number + 1
        assert await session.delete_messages(HOSTILE_IDS[:-1]) == len(HOSTILE_IDS) - 1
        assert [m.id for m in await session.get_history()] == HOSTILE_IDS[-1:]

    @pytest.mark.parametrize("refused", REFUSED_IDS, ids=range(len(REFUSED_IDS)))
    async def test_refused_ids_make_no_handle(self, store: Store, refused: str) -> None:
        with pytest.raises(InvalidId):
            Session(store, refused)
        with pytest.raises(InvalidId):
            Session(store, "s", user_id=refused)
        with pytest.raises(InvalidId):
            Session(store, "s", agent_id=refused)

    async def test_a_subscriber_hears_its_own_session_only(self, store: Store) -> None:
        mine = Session(store, "s", user_id="alice")
        others = [
            Session(store, "s"),
            Session(store, "s", user_id="bob"),
            Session(store, "t", user_id="alice"),
            Session(store, "s", user_id="alice", agent_id="other"),
        ]
        for other in others:
            await _fill(other)
        await mine.append_message(user("first", id="first"))
        for other in others:
            await other.clear_messages()
        await mine.append_message(user("second", id="second"))

        changes = await changes_until(mine, await mine.get_version())

        assert [(change.kind, list(change.message_ids)) for change in changes] == [
            ("append", ["first"]),
            ("append", ["second"]),
        ]

    async def test_scores_come_from_the_scope_alone(self, store: Store) -> None:
        mine = Session(store, "s", user_id="alice")
        await mine.append_messages([user("walnut and maple", id="1"), user("maple maple tree", id="2")])
        alone = {query: await self.look(store, mine, query) for query in ("walnut", "maple", '"maple tree"')}

        for name in ("bob", "carol"):
            other = Session(store, "s", user_id=name)
            await other.append_messages([user(f"walnut maple tree {n}") for n in range(60)])

        assert {query: await self.look(store, mine, query) for query in alone} == alone

    async def test_other_scopes_never_crowd_out_a_result(self, store: Store) -> None:
        mine = Session(store, "s", user_id="alice")
        await mine.append_message(user("the one walnut", id="mine"))
        crowd = Session(store, "s", user_id="bob")
        await crowd.append_messages([user("walnut walnut") for _ in range(1500)])

        (result,) = await self.look(store, mine, "walnut", limit=1)

        assert result.id == "mine"
