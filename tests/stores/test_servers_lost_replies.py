"""A connection that ends anywhere, before or after the server acted, leaves one effect and the right result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from leafward import LATEST_LEAF, OutcomeUnknown, Session, SessionManager, StoreError, open_store, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.stores import Appended, Draft, Usage
from leafward.stores.servers import mysql, postgres, running
from leafward.stores.servers.store import ServerStore
from leafward.testing.durable import PATIENCE
from leafward.testing.leases import SHORT
from tests.stores.both_servers import BehindAProxy, opened
from tests.stores.proxy import Fault, Proxy
from tests.stores.server_store import PREFIX

MOST_PACKETS = 200


class World:
    """A store behind a proxy, and what each deed is done to."""

    def __init__(self, store: ServerStore) -> None:
        self.store = store
        self.manager = SessionManager(store).with_context("memory")
        self.number = 0
        self.session = self.manager.get_session("0")

    async def begin(self) -> None:
        """Take a fresh session with three messages."""
        self.number += 1
        self.session = self.manager.get_session(str(self.number))
        await self.manager.create("the session", session_id=str(self.number))
        await self.session.append_messages([user(f"walnut {n}", id=f"m{n}") for n in range(3)])
        await self.session.append_context_block("memory", "first")
        self.version = await self.session.get_version()
        self.leaf_id: str | None = "m2"
        self.new_states = [PLAN, TURN]
        self.count = await self.sessions()

    @property
    def scope(self) -> Scope:
        return Scope.of(str(self.number))

    async def sessions(self) -> int:
        """Return how many sessions there are."""
        return len(await self.manager.list(limit=None))

    async def told(self) -> list[tuple[str, list[str]]]:
        """Return the changes since."""
        found: list[tuple[str, list[str]]] = []
        if await self.session.get_version() > self.version:
            async for change in self.session.subscribe(self.version):
                found.append((change.kind, list(change.message_ids)))
                if change.version == await self.session.get_version():
                    break
        return found


class Deed(NamedTuple):
    """A write, and what must be true when it has returned."""

    do: Callable[[World], Awaitable[Any]]
    check: Callable[[World, Any], Awaitable[None]]


def draft(id: str) -> Draft:
    return Draft(*user(f"text of {id}", id=id).sealed(), 3)


async def _ids(world: World) -> list[str]:
    return [message.id for message in await world.session.get_history()]


async def _append(world: World) -> Any:
    return await world.session.append_message(user("new", id="new"))


async def _appended(world: World, result: Any) -> None:
    assert (result.id, result.text) == ("new", "new")
    assert await _ids(world) == ["m0", "m1", "m2", "new"]
    assert await world.told() == [("append", ["new"])]


async def _append_first(world: World) -> Any:
    world.session = Session(world.store, f"fresh {world.number}")
    world.version = 0
    return await world.session.append_message(user("new", id="new"))


async def _appended_first(world: World, result: Any) -> None:
    assert result.id == "new"
    assert await _ids(world) == ["new"]
    assert await world.told() == [("append", ["new"])]
    assert await world.sessions() == world.count + 1


async def _begin(world: World) -> Any:
    world.number += 1
    world.session = world.manager.get_session(str(world.number))
    world.version, world.leaf_id = 0, None
    return await _step(world, Usage(7, 3, 0.5, "model"))


async def _append_batch(world: World) -> Any:
    return await world.session.append_messages([user("a", id="a"), user("again", id="m1"), user("b", id="b")])


async def _appended_batch(world: World, result: Any) -> None:
    assert [(one.id, one.text) for one in result] == [("a", "a"), ("m1", "walnut 1"), ("b", "b")]
    assert await _ids(world) == ["m0", "m1", "b"]
    assert await world.told() == [("append", ["a", "b"])]


async def _append_elsewhere(world: World) -> Any:
    return await world.session.append_message(user("new", id="new"), parent_id="m0")


async def _appended_elsewhere(world: World, result: Any) -> None:
    assert result.id == "new"
    assert await _ids(world) == ["m0", "new"]
    assert [one.id for one in await world.session.get_branches("m0")] == ["m1", "new"]


PLAN, TURN, GONE = (AttachedState(*one) for one in (("plan", '{"a":1}'), ("leafward.turn", '{"n":1}'), ("gone", None)))


async def _step(world: World, usage: Usage | None = None) -> Any:
    return await world.store.messages.append(
        world.scope,
        [draft("new"), draft("newer")],
        world.leaf_id,
        weigh=True,
        state=[PLAN, TURN, GONE],
        usage=usage or Usage(7, 3, 0.5),
    )


async def _stepped(world: World, result: Any) -> None:
    info = await world.manager.get(str(world.number))
    assert info is not None
    assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (7, 3, 0.5)
    assert [one.id for one in result.messages] == ["new", "newer"]
    assert result._replace(messages=[], states=list(result.states)) == Appended(
        [],
        2,
        await world.store.messages.weigh(world.scope),
        version=world.version + 1,
        states=world.new_states,
        attached_to="newer",
        counted=True,
    )
    above = [] if world.leaf_id is None else [world.leaf_id]
    assert (await _ids(world))[-3:] == [*above, "new", "newer"]
    assert await world.told() == [("append", ["new", "newer"])]
    head = await world.store.messages.head(world.scope, ["plan", "leafward.turn", "gone"])
    assert (head.version, head.leaf_id) == (world.version + 1, "newer")
    assert head.states == {"plan": {"a": 1}, "leafward.turn": {"n": 1}}


async def _named_step(world: World) -> Any:
    return await _step(world, Usage(7, 3, 0.5, "model", "call"))


async def _step_of_a_model(world: World) -> Any:
    return await _step(world, Usage(7, 3, 0.5, "model"))


async def _go_on(world: World) -> None:
    """Let the store know where the session ends, and one of the states in force there."""
    await world.session.append_message(user("more", id="more"))
    await world.store.messages.append(world.scope, [draft("most")], LATEST_LEAF, state=[PLAN, GONE])
    world.version += 2
    world.leaf_id, world.new_states = "most", [TURN]
    await world.store.messages.append(world.scope, [], LATEST_LEAF, state=[AttachedState("leafward.turn", "{}")])
    world.version += 1


async def _set_states(world: World) -> Any:
    return await world.store.messages.append(world.scope, [], world.leaf_id, state=[PLAN, TURN, GONE])


async def _states_set(world: World, result: Any) -> None:
    assert result._replace(states=list(result.states)) == Appended(
        [], 0, None, version=world.version + 1, states=world.new_states, attached_to=world.leaf_id
    )
    assert await world.told() == [("state", [world.leaf_id])]
    head = await world.store.messages.head(world.scope, ["plan", "leafward.turn", "gone"])
    assert head.states == {"plan": {"a": 1}, "leafward.turn": {"n": 1}}


async def _update(world: World) -> Any:
    return await world.session.update_message(user("maple", id="m1"))


async def _updated(world: World, result: Any) -> None:
    assert result.text == "maple"
    assert await world.told() == [("update", ["m1"])]
    assert [found.id for found in await world.session.search("maple")] == ["m1"]


async def _delete(world: World) -> Any:
    return await world.session.delete_messages(["m1", "m2"])


async def _deleted(world: World, result: Any) -> None:
    assert result == 2
    assert await _ids(world) == ["m0"]
    assert await world.told() == [("delete", ["m1", "m2"])]


async def _use(world: World) -> Any:
    return await world.manager.add_usage(str(world.number), 7, 3, 0.5)


async def _used(world: World, result: Any) -> None:
    info = await world.manager.get(str(world.number))
    assert info is not None
    assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (7, 3, 0.5)


async def _note(world: World) -> Any:
    return await world.session.append_context_block("memory", "second")


async def _noted(world: World, result: Any) -> None:
    assert result.content == "first\nsecond"
    block = await world.session.get_context_block("memory")
    assert block is not None
    assert block.content == "first\nsecond"
    assert await world.told() == [("context", [])]


async def _fork(world: World) -> Any:
    return await world.manager.fork(str(world.number), "m1", "copy")


async def _forked(world: World, result: Any) -> None:
    assert (result.name, result.parent_session_id) == ("copy", str(world.number))
    assert await world.sessions() == world.count + 1
    assert [one.id for one in await world.manager.get_session(result.id).get_history()] == ["m0", "m1"]


async def _create(world: World) -> Any:
    return await world.manager.create("made", session_id=f"made {world.number}")


async def _created(world: World, result: Any) -> None:
    assert result == await world.manager.get(f"made {world.number}")
    assert await world.sessions() == world.count + 1


async def _remove(world: World) -> Any:
    return await world.manager.delete(str(world.number))


async def _removed(world: World, result: Any) -> None:
    assert result is True
    assert await world.manager.get(str(world.number)) is None


async def _erase(world: World) -> Any:
    return await world.manager.erase(str(world.number))


async def _erased(world: World, result: Any) -> None:
    assert result.erased
    assert await world.manager.get(str(world.number)) is None


async def _summarise(world: World) -> Any:
    return await world.session.add_compaction("in short", "m0", "m1")


async def _summarised(world: World, result: Any) -> None:
    assert [one.id for one in await world.session.get_compactions()] == [result.id]
    assert await world.told() == [("compaction", ["m0", "m1"])]


DEEDS = {
    "an append": Deed(_append, _appended),
    "a session's first append": Deed(_append_first, _appended_first),
    "a session's first step": Deed(_begin, _stepped),
    "a batch": Deed(_append_batch, _appended_batch),
    "an append below another message": Deed(_append_elsewhere, _appended_elsewhere),
    "a step": Deed(_step, _stepped),
    "a step with a named usage": Deed(_named_step, _stepped),
    "a step of a model": Deed(_step_of_a_model, _stepped),
    "states": Deed(_set_states, _states_set),
    "an update": Deed(_update, _updated),
    "a delete": Deed(_delete, _deleted),
    "usage": Deed(_use, _used),
    "a line of a block": Deed(_note, _noted),
    "a fork": Deed(_fork, _forked),
    "a new session": Deed(_create, _created),
    "a session's removal": Deed(_remove, _removed),
    "an erasure": Deed(_erase, _erased),
    "a summary": Deed(_summarise, _summarised),
}

STRIKES = [
    *((deed, fault) for deed in DEEDS for fault in (Fault.CUT_BEFORE, Fault.LOSE_REPLY)),
    # The server may still be at work when the call is repeated.
    *((deed, Fault.CUT_AFTER) for deed in ("an append", "a session's first append", "usage", "a fork")),
    *((deed, Fault.CUT_AFTER) for deed in ("a session's first step", "a step", "states")),
    ("a step of a model", Fault.CUT_AFTER),
]


class InAWorld(BehindAProxy):
    @pytest.fixture
    async def world(self, store: ServerStore, through: str, proxy: Proxy) -> AsyncGenerator[World]:
        async with opened(through, table_prefix=PREFIX) as store:
            yield World(store)
            proxy.spare()


class TestAConnectionThatEnds(InAWorld):
    @pytest.mark.parametrize(("deed", "fault"), STRIKES, ids=lambda one: getattr(one, "name", one))
    async def test_at_any_packet_of_a_write_leaves_one_effect(
        self, world: World, proxy: Proxy, deed: str, fault: Fault
    ) -> None:
        await self.strike_at_any_packet(world, proxy, deed, fault)

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY], ids=lambda one: one.name)
    @pytest.mark.parametrize("deed", ["a step", "a step with a named usage", "a step of a model", "states"])
    async def test_at_any_packet_of_a_step_where_the_last_one_ended_leaves_one_effect(
        self, world: World, proxy: Proxy, deed: str, fault: Fault
    ) -> None:
        await self.strike_at_any_packet(world, proxy, deed, fault, _go_on)

    async def strike_at_any_packet(
        self,
        world: World,
        proxy: Proxy,
        deed: str,
        fault: Fault,
        prepare: Callable[[World], Awaitable[None]] | None = None,
    ) -> None:
        do, check = DEEDS[deed]
        for packet in range(1, MOST_PACKETS):
            await world.begin()
            if prepare is not None:
                await prepare(world)
            proxy.strike(fault, packet=packet)
            result = await do(world)
            struck = proxy.struck
            proxy.spare()
            await check(world, result)
            if not struck:
                assert packet > 1
                return
        pytest.fail(f"{deed} takes more than {MOST_PACKETS} packets")

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.LOSE_REPLY], ids=lambda one: one.name)
    async def test_at_any_packet_of_a_read_changes_nothing_of_its_result(
        self, world: World, proxy: Proxy, fault: Fault
    ) -> None:
        await world.begin()
        for read in (world.session.get_history, world.session.get_tree, world.session.get_context_blocks):
            expected = await read()
            for packet in range(1, MOST_PACKETS):
                proxy.strike(fault, packet=packet)
                assert await read() == expected
                if not proxy.struck:
                    break
            proxy.spare()


class TestAServerThatStaysAway(InAWorld):
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(running, "PATIENCE_S", 0.3)

    async def test_after_a_reply_was_lost_leaves_the_outcome_unknown_until_the_append_is_repeated(
        self, world: World, proxy: Proxy
    ) -> None:
        await world.begin()
        proxy.strike(Fault.LOSE_REPLY, b"new", and_then_unreachable=True)

        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(_append(world), 20)

        proxy.spare()
        await _appended(world, await _append(world))

    async def test_from_the_start_is_told_as_an_error_that_nothing_was_written(
        self, world: World, proxy: Proxy
    ) -> None:
        await world.begin()
        proxy.unreachable = True
        proxy.cut()

        # The read finds out that the connections are gone; from then on nothing is sent.
        for call in (world.session.get_history, lambda: _append(world)):
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                await asyncio.wait_for(call(), 20)
            assert not isinstance(caught.value, OutcomeUnknown)

        proxy.spare()
        await _appended(world, await _append(world))


class TestTextsForAHolder(InAWorld):
    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY], ids=lambda one: one.name)
    async def test_of_which_an_answer_is_lost_are_had_once(self, world: World, proxy: Proxy, fault: Fault) -> None:
        leases, received, sent = world.store.leases, list[str](), list[str]()
        async with asyncio.timeout(120):
            for packet in range(1, 30):
                proxy.strike(fault, packet=packet)
                async with leases.acquire(str(world.number)) as lease:
                    text = f"{packet}"
                    assert await leases.send(str(world.number), None, text)
                    sent.append(text)
                    received += await lease.receive()
                struck = proxy.struck
                proxy.spare()
                if not struck:
                    break
        assert len(sent) > 5
        assert received == sent


class TestALeaseThatCannotBeAskedFor(InAWorld):
    async def test_is_not_told_to_be_held_by_others(self, world: World, proxy: Proxy) -> None:
        await world.begin()
        proxy.unreachable = True
        proxy.cut()

        with pytest.raises(StoreError, match="does not answer"):
            await asyncio.wait_for(world.store.leases.acquire("s", wait=0), 20)

        proxy.spare()
        await (await world.store.leases.acquire("s")).release()


class TestALeaseThatWentToAnother(InAWorld):
    async def test_while_a_reply_was_lost_leaves_the_outcome_unknown(
        self, store: ServerStore, world: World, proxy: Proxy
    ) -> None:
        await world.begin()
        lease = await world.store.leases.acquire(str(world.number), ttl=SHORT)
        proxy.strike(Fault.LOSE_REPLY, b"new", and_then_unreachable=True)
        appending = asyncio.ensure_future(world.session.with_lease(lease).append_message(user("new", id="new")))
        await proxy.wait_until_struck()

        async with store.leases.acquire(str(world.number), wait=PATIENCE) as other:
            proxy.spare()
            with pytest.raises(OutcomeUnknown, match="same ids"):
                await appending

            here = Session(store, str(world.number)).with_lease(other)
            assert [message.id for message in await here.get_history()] == ["m0", "m1", "m2", "new"]
            await here.append_message(user("new", id="new"))
        await _appended(world, await world.session.get_latest_leaf())
        await lease.release()


class TestAServerThatFallsSilent(InAWorld):
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(running, "PATIENCE_S", 0.3)
        for driver in (postgres, mysql):
            monkeypatch.setattr(driver, "CONNECT_S", 0.5)
            monkeypatch.setattr(driver, "ANSWER_S", 0.5)

    @pytest.mark.parametrize("deed", ["an append", "an update", "a session's first append"])
    async def test_on_one_connection_is_not_waited_for_for_ever(self, world: World, proxy: Proxy, deed: str) -> None:
        do, check = DEEDS[deed]
        for packet in (1, 2, 3):
            await world.begin()
            proxy.strike(Fault.SILENCE, packet=packet)
            await check(world, await asyncio.wait_for(do(world), 20))
            proxy.spare()

    async def test_for_good_leaves_the_outcome_unknown(self, world: World, proxy: Proxy) -> None:
        await world.begin()
        proxy.strike(Fault.SILENCE, b"new")
        proxy.silent = True

        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(_append(world), 20)

        proxy.spare()
        await _appended(world, await _append(world))

    async def test_is_told_when_it_is_opened(self, through: str, proxy: Proxy) -> None:
        proxy.silent = True
        with pytest.raises(StoreError, match="cannot be reached"):
            await asyncio.wait_for(open_store(through), 20)
