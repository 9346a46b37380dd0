"""What goes for our own stores of typed state beyond versions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from leafward import (
    AgentState,
    ConfigurationError,
    LeaseLost,
    Message,
    Session,
    SessionKey,
    SessionManager,
    StaleState,
    assistant,
    tool_result,
    user,
)
from leafward.core.ids import new_id
from leafward.stores import Slot
from leafward.stores.contracts import without_lease
from leafward.stores.states.store import StateStore, is_of_1x
from leafward.testing.versioned_states import VersionedStateContract


@pytest.mark.asyncio
class OurStateContract(VersionedStateContract):
    """Leases, the store behind the states, long lists, lists that must be new, and messages that Java shares."""

    @pytest.fixture
    def ours(self, states: StateStore) -> StateStore:
        return states

    async def test_who_holds_the_lease_writes(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s", "alice") as lease:
            held = ours.with_lease(lease)
            await held.save(SessionKey("s", "alice"), "a", {"n": 1})
            await held.save_list(SessionKey("s", "alice"), "b", [{"n": 1}])
            assert await held.save_if_version(SessionKey("s", "alice"), "a", {"n": 2}, 1) == 2
            await held.delete(SessionKey("s", "alice"), "b")
        assert await ours.get(SessionKey("s", "alice"), "a") == {"n": 2}

    async def test_who_lost_the_lease_does_not(self, ours: StateStore) -> None:
        lease = await ours.leases.acquire("s")
        held = ours.with_lease(lease)
        await held.save("s", "a", {"n": 1})
        await lease.release()
        async with ours.leases.acquire("s"):
            for write in (
                held.save("s", "a", {"n": 2}),
                held.save_if_version("s", "a", {"n": 2}, 1),
                held.save_list("s", "a", [{"n": 2}]),
                held.save_list("s", "b", [{"n": 2}]),
                held.delete("s", "a"),
                held.delete("s"),
            ):
                with pytest.raises(LeaseLost):
                    await write
        assert await ours.get_versioned("s", "a") == ({"n": 1}, 1)
        assert await ours.get_list("s", "b") == []

    async def test_the_store_itself_still_writes(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s"):
            await ours.save("s", "a", {"n": 1})
        assert await ours.get("s", "a") == {"n": 1}

    async def test_a_lease_is_for_its_own_slot(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s", "alice") as lease:
            held = ours.with_lease(lease)
            for key in ("s", SessionKey("t", "alice"), SessionKey("s", "bob")):
                with pytest.raises(ConfigurationError):
                    await held.save(key, "a", {})
            assert await held.get("s", "a") is None

    async def test_who_leaves_a_fenced_store_leaves_the_store_open(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s") as lease:
            async with ours.with_lease(lease) as held:
                await held.save("s", "a", {"n": 1})
            await held.close()
            assert await ours.get("s", "a") == {"n": 1}

    async def test_the_store_behind_states_has_the_same_states_and_leases(self, ours: StateStore) -> None:
        store = await ours.open()
        assert ours.store is await ours.open() is store
        assert store.states is store.states
        assert store.states.store is await store.states.open() is store
        assert store.leases is store.states.leases is ours.leases
        assert store.distributed == store.states.distributed == ours.distributed
        assert is_of_1x(store.states) == is_of_1x(ours)
        await ours.save(SessionKey("s", "alice"), "a", {"n": 1})
        assert await store.states.get_versioned(SessionKey("s", "alice"), "a") == ({"n": 1}, 1)
        await store.states.save(SessionKey("s", "alice"), "a", {"n": 2})
        assert await ours.get_versioned(SessionKey("s", "alice"), "a") == ({"n": 2}, 2)

    async def test_the_store_behind_states_keeps_sessions_which_take_their_states_along(self, ours: StateStore) -> None:
        key = SessionKey(new_id(), "alice")
        manager = SessionManager(await ours.open(), user_id="alice")
        for ending in (manager.delete, manager.erase):
            await ours.save(key, "a", {"n": 1})
            await ours.save_list(key, "b", [{"n": 1}])
            stored = await manager.get_session(key.session_id).append_message(user("walnut"))
            assert await manager.get_history(key.session_id) == [stored]
            assert await ours.exists(key)
            assert await ending(key.session_id)
            assert not await ours.exists(key)
            assert await manager.get(key.session_id) is None

    async def test_the_store_behind_states_with_a_lease_is_fenced_too(self, ours: StateStore) -> None:
        session_id = new_id()
        store = await ours.open()
        lease = await ours.leases.acquire(session_id)
        held = ours.with_lease(lease)
        fenced = await held.open()
        assert fenced is held.store
        assert fenced.states.store is fenced
        assert without_lease(fenced) is store
        assert store.fenced(lease).states.store is not store
        stored = await Session(fenced, session_id).append_message(user("held"))
        await fenced.states.save(session_id, "a", {"n": 1})
        await lease.release()
        async with store.leases.acquire(session_id) as later:
            with pytest.raises(LeaseLost):
                await Session(fenced, session_id).append_message(user("lost"))
            with pytest.raises(LeaseLost):
                await fenced.states.save(session_id, "a", {"n": 2})
            assert held.with_lease(later).store is not fenced
            await ours.with_lease(later).save(session_id, "a", {"n": 3})
        assert await Session(store, session_id).get_history() == [stored]
        assert await ours.get(session_id, "a") == {"n": 3}
        assert await SessionManager(store).delete(session_id)

    async def test_many_items_come_back(self, ours: StateStore) -> None:
        items: list[dict[str, Any]] = [{"n": n} for n in range(2_500)]
        await ours.save_list("s", "list", items)
        items.append({"n": "last"})
        await ours.save_list("s", "list", items)
        assert await ours.get_list("s", "list") == items

    async def test_a_new_list_is_made_only_where_there_is_nothing(self, ours: StateStore) -> None:
        table = await ours._table()  # pyright: ignore[reportPrivateUsage]
        slot = Slot("alice", "s")
        await table.put_list(slot, "new", ['{"n":1}'], None, fresh=True)
        assert await ours.get_list(SessionKey("s", "alice"), "new") == [{"n": 1}]
        await ours.save(SessionKey("s", "alice"), "value", {})
        await ours.save_list(SessionKey("s", "alice"), "empty", [])
        for name in ("new", "value", "empty"):
            with pytest.raises(StaleState):
                await table.put_list(slot, name, ['{"n":2}'], None, fresh=True)
        assert await ours.get_list(SessionKey("s", "alice"), "new") == [{"n": 1}]
        assert await ours.get_list(SessionKey("s", "alice"), "empty") == []

    async def test_names_that_end_as_files_do_are_names_as_any(self, ours: StateStore) -> None:
        table = await ours._table()  # pyright: ignore[reportPrivateUsage]
        for name in ("notes.jsonl", "notes.json", "notes.ver", ".json", ".jsonl"):
            await ours.save("s", name, {"of": name})
            await ours.save_list("t", name, [{"of": name}])
        names = dict.fromkeys(["notes.jsonl", "notes.json", "notes.ver", ".json", ".jsonl"], False)
        assert await table.names(Slot(None, "s")) == names
        assert await table.names(Slot(None, "t")) == dict.fromkeys(names, True)
        for name in names:
            assert await ours.get("s", name) == {"of": name}
            assert await ours.get_list("t", name) == [{"of": name}]

    async def test_a_long_id_goes_with_the_last_that_its_slot_holds(self, ours: StateStore) -> None:
        key = SessionKey("s" * 255, "u" * 255)
        for names in (["a", "b"], ["a"]):
            for name in names:
                await ours.save(key, name, {})
            assert await ours.list_session_keys(key.user_id) == {key}
            for name in names:
                await ours.delete(key, name)
            assert not await ours.exists(key)
            assert await ours.list_session_keys(key.user_id) == set()

    async def test_slots_of_sandboxes_are_in_no_listing_but_that_of_a_user(self, ours: StateStore) -> None:
        await ours.save("sandbox/global", "_sandbox_state", {})
        await ours.save("both", "_sandbox_state", {})
        await ours.save("both", "a", {})
        await ours.save(SessionKey("s", "alice"), "_sandbox_state", {})
        assert await ours.list_session_keys() == {SessionKey("both")}
        assert await ours.list_session_keys("alice") == {SessionKey("s", "alice")}
        await ours.delete("both", "a")
        assert await ours.list_session_keys() == set()
        await ours.delete("both")
        assert await ours.list_session_keys() == set()

    async def test_saves_of_one_session_keep_the_order_of_the_calls(self, ours: StateStore) -> None:
        saves = [ours.save("s", "value", {"n": n}) for n in range(12)]
        lists = [ours.save_list("s", "list", [{"n": n}] * (n % 4)) for n in range(12)]
        mixed = [ours.save("s", "either", [{}] * n if n % 2 else {"n": n}) for n in range(4)]

        await asyncio.gather(*saves, *lists, *mixed, ours.delete("s", "gone"), ours.save("s", "gone", {}))

        assert await ours.get("s", "value") == {"n": 11}
        assert await ours.get_list("s", "list") == [{"n": 11}] * 3
        assert await ours.get_list("s", "either") == [{}] * 3
        assert await ours.get("s", "gone") == {}

    async def test_a_long_state_of_an_agent_is_saved_again_with_what_changed(self, ours: StateStore) -> None:
        words = "\x1b[1m waited 三天 for \U0001f98a " * 8
        state = AgentState(session_id="s", context=[user(f"{n} {words}", id=f"m{n}") for n in range(1_050)])
        assert await ours.save_if_version("s", "agent_state", state, 0) == 1

        found, version = await ours.get_versioned("s", "agent_state", AgentState)
        assert (found, version) == (state, 1)
        assert found is not None
        found.context[1_000].parts[0]["text"] = "changed"
        found.context += [assistant("and answered", id="a"), user("so be it", id="b")]
        del found.context[0]
        assert await ours.save_if_version("s", "agent_state", found, version) == 2

        assert await ours.get("s", "agent_state", AgentState) == found
        assert await ours.get("s", "agent_state") == json.loads(found.to_json())
        assert [message.text for message in found.context[-3:]] == [state.context[-1].text, "and answered", "so be it"]

    async def test_a_short_value_that_is_saved_after_a_long_one_stays(self, ours: StateStore) -> None:
        state = AgentState(session_id="s", context=[user("waited " * 50, id=f"m{n}") for n in range(1_050)])

        await asyncio.gather(ours.save("s", "a", state), ours.save("s", "a", {"n": 1}))

        assert await ours.get("s", "a") == {"n": 1}

    async def test_messages_hold_only_blocks_that_every_reader_of_the_layout_knows(self, ours: StateStore) -> None:
        image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        since_2 = [
            {"type": "data", "id": "d", "source": image},
            {"type": "hint", "id": "h", "hint": "x", "source": None},
        ]
        message = assistant([*since_2, *tool_result("c", "x").parts], id="m")
        message.parts[2]["output"] += since_2

        async with ours.leases.acquire("s") as lease:
            await ours.with_lease(lease).save_list("s", "memory_messages", [message])
        await ours.save("s", "one", message)
        await ours.save_if_version("s", "two", message, 0)

        found = [await ours.get("s", "one"), await ours.get("s", "two"), *await ours.get_list("s", "memory_messages")]
        for written in found:
            assert written is not None
            blocks = [*written["content"], *written["content"][2]["output"]]
            assert {block["type"] for block in blocks} == {
                "tool_result",
                "text",
                *({"image"} if is_of_1x(ours) else {"data", "hint"}),
            }
        assert await ours.get("s", "one", Message) == await ours.get("s", "two", Message) == message
        assert await ours.get_list("s", "memory_messages", Message) == [message]

    async def test_a_tool_part_that_holds_its_result_comes_back_whole(self, ours: StateStore) -> None:
        part: dict[str, Any] = {
            "type": "tool-f",
            "toolCallId": "c",
            "state": "output-available",
            "input": {},
            "output": "18C",
        }
        messages = [user("hi", id="u"), assistant([part], id="a"), user("and?", id="v")]

        for count in range(4):
            await ours.save_list("s", "memory_messages", messages[:count])
            assert await ours.get_list("s", "memory_messages", Message) == messages[:count]

        blocks = [[block["type"] for block in one["content"]] for one in await ours.get_list("s", "memory_messages")]
        assert blocks == [["text"], ["tool_use"], ["tool_result"], ["text"]]

    async def test_messages_that_only_java_would_write_come_back_as_they_were(self, ours: StateStore) -> None:
        usual: dict[str, Any] = {"name": None, "content": [], "metadata": {}, "usage": None}
        items = [
            {"id": "a", "role": "USER", "timestamp": "2026/08/22 23:15:56", **usual},
            {"id": "b\n", "role": None, "timestamp": "now", **usual},
            {"id": "b\n", "role": "USER", "timestamp": None, **usual, "metadata": {"wei": 10**30}},
        ]
        await ours.save_list("s", "memory_messages", items)

        messages = await ours.get_list("s", "memory_messages", Message)
        await ours.save_list("s", "memory_messages", messages)

        assert await ours.get_list("s", "memory_messages") == items
        assert await ours.get_list("s", "memory_messages", Message) == messages

    async def test_what_java_cannot_read_is_not_stored(self, ours: StateStore) -> None:
        for write in (ours.save("s", "a", {"n": 10**1000}), ours.save_list("s", "a", [{"n": 1}, {"n": 10**1000}])):
            with pytest.raises(ValueError, match="more than 1,000 digits"):
                await write
        assert not await ours.exists("s")

    async def test_messages_given_as_their_dicts_are_messages(self, ours: StateStore) -> None:
        message = user("hi", id="u")
        await ours.save_list("s", "memory_messages", [message.to_dict()])
        assert await ours.get_list("s", "memory_messages", Message) == [message]

    async def test_it_says_whether_machines_can_share_it(self, ours: StateStore) -> None:
        assert isinstance(ours.distributed, bool)
