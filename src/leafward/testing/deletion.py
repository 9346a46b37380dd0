"""What ending a session promises: nothing of it is left to be seen, and nothing of others is touched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Session, SessionKey, SessionManager, SessionNotFound, user
from leafward.testing.filled import fill, find_fact, manage, picture
from leafward.testing.ids import HOSTILE_IDS
from leafward.testing.scope import CONFUSABLE
from leafward.testing.settling import Settling

if TYPE_CHECKING:
    from leafward.stores import Store


# Those of the confusable pairs that have two owners: one manager sees all sessions of one.
OWNERS = [(mine, theirs) for mine, theirs in CONFUSABLE if mine[:2] != theirs[:2]]


async def _end(manager: SessionManager, how: str, session_id: str) -> bool:
    if how == "delete":
        return await manager.delete(session_id)
    report = await manager.erase(session_id)
    assert report.session_id == session_id
    return report.erased


async def _overview(manager: SessionManager, session_id: str) -> dict[str, Any]:
    """Return all that a manager tells of its sessions, and of one of them."""
    # First: what a model finds in it counts as shown from then on, which an export tells.
    seen = await picture(manager.get_session(session_id))
    return {
        "listed": await manager.list(limit=None),
        "info": await manager.get(session_id),
        "exported": await manager.export_session(session_id),
        "found": await manager.search("walnut", limit=100),
        "session": seen,
    }


@pytest.mark.asyncio
class DeletionContract(Settling):
    """Sessions end whole, and their owner alone can see or end them.

    Subclasses define an async `store` fixture that yields an empty, open store, and override `settle` when their
    index follows writes in the background.
    """

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_an_ended_session_is_gone(self, store: Store, how: str) -> None:
        manager = manage(store)
        await manager.create("ended", session_id="s", model="a-model")
        await fill(manager.get_session("s"))
        await manager.add_usage("s", 10, 20, 0.5)
        await self.settle(store)

        assert await _end(manager, how, "s") is True

        assert await manager.get("s") is None
        assert await manager.list() == []
        assert await manager.search("walnut") == []
        with pytest.raises(SessionNotFound):
            await manager.export_session("s")
        assert await _end(manager, how, "s") is False

    @pytest.mark.parametrize("how", ["delete", "erase"])
    @pytest.mark.parametrize("by", ["create", "append", "block", "import"])
    async def test_a_session_made_again_begins_empty(self, store: Store, how: str, by: str) -> None:
        manager = manage(store)
        exported = await manager.export_session((await manager.create("empty")).id)
        fresh = manager.get_session("fresh")
        await fill(manager.get_session("s"))
        await manager.add_usage("s", 10, 20, 0.5)
        kept = manage(store).get_session("s")
        await _end(manager, how, "s")

        if by == "create":
            await manager.create("again", session_id="s")
        elif by == "import":
            await manager.import_session(exported, session_id="s")
        elif by == "append":
            await kept.append_message(user("hello", id="hello"))
            await fresh.append_message(user("hello", id="hello", created_at=(await kept.get_history())[0].created_at))
        else:
            await kept.replace_context_block("memory", "hello")
            await fresh.replace_context_block("memory", "hello")

        for session in (kept, manager.get_session("s"), manage(store).get_session("s")):
            assert await picture(session) == await picture(fresh)
            assert "walnut" not in await session.freeze_system_prompt()
        info = await manager.get("s")
        assert info is not None
        assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (0, 0, 0.0)

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_what_sessions_share_and_what_others_have_stays(self, store: Store, how: str) -> None:
        manager = manage(store)
        for name in ("s", "other"):
            await fill(manager.get_session(name))
        before = await _overview(manager, "other")

        await _end(manager, how, "s")

        after = await _overview(manager, "other")
        block = await manager.get_session("new").get_context_block("house")
        assert block is not None
        assert block.content == "Quiet after ten.\nQuiet after ten."
        assert after["session"] == before["session"]
        assert after["exported"] == before["exported"]
        assert after["found"] == [found for found in before["found"] if found.session_id == "other"]
        assert [info.id for info in after["listed"]] == ["other"]

    async def test_an_erasure_tells_what_it_could_not_reach(self, store: Store) -> None:
        manager = manage(store)
        await fill(manager.get_session("s"))
        fork = await manager.fork("s", "m2", "a fork")

        report = await manager.erase("s")

        assert any(fork.id in line for line in report.not_reached)
        assert any("'house'" in line for line in report.not_reached)
        assert (await manager.erase("never there")).not_reached == []

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_the_states_of_an_ended_session_go_with_it(self, store: Store, how: str) -> None:
        manager, states = SessionManager(store, user_id="alice"), store.states
        for key in (SessionKey("s", "alice"), SessionKey("t", "alice"), SessionKey("s"), SessionKey("s", "bob")):
            await states.save(key, "agent_state", {"of": key.session_id})
            await states.save_list(key, "memory_messages", [{"n": 1}])
        await manager.get_session("s").append_message(user("hi"))

        assert await _end(manager, how, "s") is True

        assert not await states.exists(SessionKey("s", "alice"))
        assert await states.get_list(SessionKey("s", "alice"), "memory_messages") == []
        for key in (SessionKey("t", "alice"), SessionKey("s"), SessionKey("s", "bob")):
            assert await states.get(key, "agent_state") == {"of": key.session_id}

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_states_stay_while_another_agent_has_the_session(self, store: Store, how: str) -> None:
        one, other = (SessionManager(store, user_id="alice", agent_id=agent) for agent in ("one", "other"))
        for manager in (one, other):
            await manager.get_session("s").append_message(user("hi"))
        key = SessionKey("s", "alice")
        await store.states.save(key, "agent_state", {"n": 1})

        assert await _end(one, how, "s") is True
        assert await store.states.get(key, "agent_state") == {"n": 1}
        assert await _end(other, how, "s") is True
        assert not await store.states.exists(key)

    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_agents_that_end_a_session_at_once_leave_no_states(self, store: Store, how: str) -> None:
        managers = [SessionManager(store, user_id="alice", agent_id=agent) for agent in ("one", "other", "third")]
        for number in range(4):
            id = f"s{number}"
            for manager in managers:
                await manager.get_session(id).append_message(user("hi"))
            await store.states.save(SessionKey(id, "alice"), "agent_state", {"n": 1})
            assert await asyncio.gather(*(_end(manager, how, id) for manager in managers)) == [True] * 3
            assert not await store.states.exists(SessionKey(id, "alice"))

    @pytest.mark.parametrize("agents", [1, 2])
    async def test_one_who_is_cancelled_has_ended_all_or_nothing(self, store: Store, agents: int) -> None:
        managers = [SessionManager(store, agent_id=f"agent {number}") for number in range(agents)]
        for number in range(12):
            id = f"s{number}"
            for manager in managers:
                await manager.get_session(id).append_message(user("hi"))
            await store.states.save(id, "agent_state", {"n": 1})
            endings = [asyncio.ensure_future(manager.delete(id)) for manager in managers]
            # Somewhere between its first step and its last, on one backend or another.
            await asyncio.sleep(0.0004 * number)
            for ending in endings:
                ending.cancel()
            await asyncio.wait(endings)
            is_there = [await manager.get(id) is not None for manager in managers]
            assert await store.states.exists(id) is any(is_there)

    async def test_states_without_a_session_are_erased_as_well(self, store: Store) -> None:
        await store.states.save("only", "agent_state", {"n": 1})
        report = await SessionManager(store).erase("only")
        assert report.erased is True
        assert report.not_reached
        assert not await store.states.exists("only")

    async def test_a_fork_and_a_continuation_outlive_what_they_came_from(self, store: Store) -> None:
        manager = manage(store)
        await fill(manager.get_session("s"))
        copies = [await manager.fork("s", "m7", "fork"), await manager.compact_and_split("s", "a summary")]
        before = [await picture(manager.get_session(copy.id)) for copy in copies]

        await manager.delete("s")

        assert [await picture(manager.get_session(copy.id)) for copy in copies] == before
        assert [await manager.get(copy.id) for copy in copies] == copies

    # Scope.

    @pytest.mark.parametrize(("mine", "theirs"), OWNERS, ids=range(len(OWNERS)))
    async def test_no_call_of_a_manager_reaches_another_scope(
        self, store: Store, mine: tuple[str | None, str, str], theirs: tuple[str | None, str, str]
    ) -> None:
        (user_id, agent_id, session_id), (other_user, other_agent, other_session) = mine, theirs
        ours = manage(store, user_id=user_id, agent_id=agent_id)
        other = manage(store, user_id=other_user, agent_id=other_agent)
        await fill(ours.get_session(session_id))
        before = await _overview(ours, session_id)

        assert await other.list(limit=None) == []
        assert await other.search("walnut") == []
        assert await other.get(session_id) is None
        assert await other.delete(session_id) is False
        assert (await other.erase(session_id)).erased is False
        with pytest.raises(SessionNotFound):
            await other.fork(session_id, "m0", "mine now")
        await other.create("theirs", session_id=session_id)
        await fill(other.get_session(other_session))
        await other.get_session(other_session).replace_context_block("house", "Loud.")
        await other.add_usage(session_id, 1, 1, 1.0)
        await other.delete(other_session)
        await other.delete(session_id)

        assert await _overview(ours, session_id) == before
        tools = await other.tools()
        assert await tools.call("session_search", {"query": "walnut"}) == "No results found."
        assert await tools.call("session_list", {}) == "There are no sessions."
        assert (await tools.call("session_history", {"session_id": session_id})).startswith("Error:")

    @pytest.mark.parametrize("kind", ["user", "agent"])
    async def test_managers_of_owners_that_look_alike_see_their_own_sessions(self, store: Store, kind: str) -> None:
        def manager(name: str) -> SessionManager:
            return SessionManager(store, user_id=name) if kind == "user" else SessionManager(store, agent_id=name)

        for number, name in enumerate(HOSTILE_IDS):
            await manager(name).create(f"of {number}", session_id="s")
            await manager(name).append("s", user(f"walnut {number}", id="m"))

        for number, name in enumerate(HOSTILE_IDS):
            assert [(info.id, info.name) for info in await manager(name).list()] == [("s", f"of {number}")]
            (found,) = await manager(name).search("walnut")
            assert found.content == f"walnut {number}"
        assert await manager(HOSTILE_IDS[0]).delete("s")
        for name in HOSTILE_IDS[1:]:
            assert len(await manager(name).list()) == 1

    async def test_sessions_whose_ids_look_alike_are_listed_copied_and_ended_apart(self, store: Store) -> None:
        manager = SessionManager(store).with_context("memory")
        for number, name in enumerate(HOSTILE_IDS):
            await Session(store, name).append_message(user(f"walnut {number}", id="m"))
            await manager.get_session(name).replace_context_block("memory", f"fact {number}")

        listed = await manager.list(limit=None)

        assert {info.id for info in listed} == set(HOSTILE_IDS)
        for number, name in enumerate(HOSTILE_IDS):
            copy = await manager.fork(name, "m", name)
            assert copy.parent_session_id == name
            assert [message.text for message in await manager.get_history(copy.id)] == [f"walnut {number}"]
            block = await manager.get_session(copy.id).get_context_block("memory")
            assert block is not None
            assert block.content == f"fact {number}"
            assert await manager.delete(copy.id)
        for number, name in enumerate(HOSTILE_IDS):
            assert await manager.delete(name)
            assert len(await manager.list(limit=None)) == len(HOSTILE_IDS) - number - 1

    # Searching.

    async def test_a_manager_finds_messages_of_all_its_sessions(self, store: Store) -> None:
        manager = SessionManager(store)
        for name in ("a", "b", "c"):
            await manager.get_session(name).append_messages([user(f"walnut {name}", id="m"), user("maple")])
        await manager.get_session("a").append_message(user("a walnut aside", id="aside"), parent_id=None)
        await SessionManager(store, user_id="someone").get_session("d").append_message(user("walnut"))

        for _ in range(2):
            found = await manager.search("walnut")
            assert {(one.session_id, one.id) for one in found} == {("a", "m"), ("a", "aside"), ("b", "m"), ("c", "m")}
            assert [one.content for one in await manager.search('"walnut b"')] == ["walnut b"]
            assert len(await manager.search("walnut", limit=2)) == 2
            assert await manager.search("walnut", limit=0) == []
            assert await manager.search("") == []
            await self.settle(store)
        await manager.delete("b")
        assert {one.session_id for one in await manager.search("walnut")} == {"a", "c"}

    async def test_entries_of_an_ended_session_are_found_by_no_session(self, store: Store) -> None:
        manager = manage(store)
        await fill(manager.get_session("s"))

        await manager.delete("s")

        for name in ("s", "other"):
            assert await find_fact(manager.get_session(name), "walnut") == "No results found."
