"""What every store of typed state promises: its eight methods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from leafward import ConfigurationError, InvalidId, SessionKey, StateDecodeError
from leafward.core.agent_state import AgentState
from leafward.core.message import Message
from leafward.engine.custom_states import states_of
from leafward.stores import AgentStateStore
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS

RESERVED = ["notes:_hash", "notes:list", "notes:ver", "notes:sum", "_keys"]


@dataclass
class Plan:
    name: str
    steps: list[str] = field(default_factory=list[str])


class Mood(msgspec.Struct):
    word: str
    strength: float = 0.5


class Custom:
    """A key of a user's own."""

    def __init__(self, tenant: str, session: str) -> None:
        self._ids = tenant, session

    def to_identifier(self) -> str:
        tenant, session = self._ids
        return f'{{"tenantId":"{tenant}","sessionId":"{session}"}}'


@pytest.mark.asyncio
class StateContract:
    """The eight methods; a subclass gives the fixture `states`, a store that holds nothing yet."""

    @pytest.fixture
    def kept(self, states: object) -> AgentStateStore:
        """The store, its methods to be awaited even if they are plain."""
        return states_of(states)

    # Values.

    async def test_what_was_saved_is_got(self, kept: AgentStateStore) -> None:
        value: dict[str, Any] = {"a": 1, "b": [1.5, None, True, "x"], "c": {"d": {}}, "e": []}
        await kept.save("s", "notes", value)
        assert await kept.get("s", "notes") == value

    async def test_what_was_never_saved_is_none(self, kept: AgentStateStore) -> None:
        await kept.save("s", "notes", {"a": 1})
        assert await kept.get("s", "other") is None
        assert await kept.get("other", "notes") is None
        assert await kept.get_list("s", "other") == []

    async def test_a_later_save_replaces_the_whole_value(self, kept: AgentStateStore) -> None:
        await kept.save("s", "notes", {"a": 1, "b": 2})
        await kept.save("s", "notes", {"b": 3})
        assert await kept.get("s", "notes") == {"b": 3}

    async def test_an_empty_value_is_a_value(self, kept: AgentStateStore) -> None:
        await kept.save("s", "notes", {})
        assert await kept.get("s", "notes") == {}
        assert await kept.exists("s")

    async def test_a_value_that_changes_later_is_stored_as_it_was(self, kept: AgentStateStore) -> None:
        value: dict[str, Any] = {"list": [1]}
        await kept.save("s", "notes", value)
        value["list"].append(2)
        found = await kept.get("s", "notes")
        assert found is not None
        assert found == {"list": [1]}
        found["list"].append(3)
        assert await kept.get("s", "notes") == {"list": [1]}

    async def test_text_in_states_comes_back_exactly(self, kept: AgentStateStore) -> None:
        value = {"t": "línea\n\r\t\u2028\u2029\u0085 \0 \ue000 \ue0000 🦊 你好 \\ \" ' % ; --", "": "", "ключ": "x"}
        await kept.save("s", "notes", value)
        await kept.save_list("s", "list", [value, value])
        assert await kept.get("s", "notes") == value
        assert await kept.get_list("s", "list") == [value, value]

    async def test_large_numbers_come_back_exactly(self, kept: AgentStateStore) -> None:
        value = {"large": 2**63 - 1, "small": -(2**63), "larger": 2**70, "real": 0.1, "whole": 25000.0}
        await kept.save("s", "notes", value)
        found = await kept.get("s", "notes")
        assert found is not None
        assert found == value
        assert isinstance(found["whole"], float)

    async def test_a_large_value_comes_back(self, kept: AgentStateStore) -> None:
        value = {"text": "word " * 200_000}
        await kept.save("s", "notes", value)
        assert await kept.get("s", "notes") == value

    async def test_values_of_users_types_come_back(self, kept: AgentStateStore) -> None:
        await kept.save("s", "plan", Plan("trip", ["pack"]))
        await kept.save("s", "mood", Mood("fine"))
        assert await kept.get("s", "plan", Plan) == Plan("trip", ["pack"])
        assert await kept.get("s", "mood", Mood) == Mood("fine")
        assert await kept.get("s", "plan") == {"name": "trip", "steps": ["pack"]}

    async def test_a_state_of_an_agent_comes_back(self, kept: AgentStateStore) -> None:
        state = AgentState(session_id="s", context=[Message("user", "hi"), Message("assistant", "hello")])
        await kept.save("s", "agent_state", state)
        assert await kept.get("s", "agent_state", AgentState) == state

    async def test_a_value_of_another_type_is_told_with_its_place(self, kept: AgentStateStore) -> None:
        key = SessionKey("s", "alice")
        await kept.save(key, "plan", {"steps": "none"})
        with pytest.raises(StateDecodeError) as told:
            await kept.get(key, "plan", Plan)
        assert (told.value.user_id, told.value.session_id, told.value.name) == ("alice", "s", "plan")
        assert all(part in str(told.value) for part in ("alice", "'s'", "plan"))

    @pytest.mark.parametrize("value", ["text", 7, None, {1, 2}, b"x", object()])
    async def test_what_is_no_state_is_refused(self, kept: AgentStateStore, value: object) -> None:
        with pytest.raises(ValueError):
            await kept.save("s", "notes", value)
        assert not await kept.exists("s")

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
    async def test_what_json_cannot_hold_is_refused(self, kept: AgentStateStore, value: object) -> None:
        await kept.save("s", "notes", {"old": 1})
        with pytest.raises(ValueError):
            await kept.save("s", "notes", {"a": {"b": [value]}})
        with pytest.raises(ValueError):
            await kept.save_list("s", "notes", [{"a": value}])
        assert await kept.get("s", "notes") == {"old": 1}

    async def test_half_a_surrogate_pair_is_replaced(self, kept: AgentStateStore) -> None:
        await kept.save("s", "notes", {"t": "a\ud800b"})
        assert await kept.get("s", "notes") == {"t": "a\ufffdb"}

    # Lists.

    async def test_a_list_comes_back_in_order(self, kept: AgentStateStore) -> None:
        items = [{"n": n} for n in range(25)]
        await kept.save_list("s", "list", items)
        assert await kept.get_list("s", "list") == items

    async def test_a_longer_list_replaces_a_shorter(self, kept: AgentStateStore) -> None:
        for length in (0, 1, 3, 4, 12):
            items = [{"n": n} for n in range(length)]
            await kept.save_list("s", "list", items)
            assert await kept.get_list("s", "list") == items

    async def test_a_shorter_list_replaces_a_longer(self, kept: AgentStateStore) -> None:
        for length in (12, 7, 6, 1, 0):
            items = [{"n": n} for n in range(length)]
            await kept.save_list("s", "list", items)
            assert await kept.get_list("s", "list") == items

    @pytest.mark.parametrize("place", range(20))
    async def test_an_edit_anywhere_is_saved(self, kept: AgentStateStore, place: int) -> None:
        items: list[dict[str, Any]] = [{"n": n} for n in range(20)]
        await kept.save_list("s", "list", items)
        items[place] = {"n": "another"}
        await kept.save_list("s", "list", items)
        assert await kept.get_list("s", "list") == items
        items[place] = {"n": True}
        await kept.save_list("s", "list", [*items, {"n": "more"}])
        assert await kept.get_list("s", "list") == [*items, {"n": "more"}]
        assert (await kept.get_list("s", "list"))[place]["n"] is True

    async def test_an_empty_list_is_stored(self, kept: AgentStateStore) -> None:
        await kept.save_list("s", "list", [{"n": 1}])
        await kept.save_list("s", "list", [])
        assert await kept.get_list("s", "list") == []
        assert await kept.exists("s")
        await kept.save_list("empty", "list", [])
        assert await kept.exists("empty")
        assert SessionKey("empty") in await kept.list_session_keys()

    async def test_saving_a_list_saves_a_list(self, kept: AgentStateStore) -> None:
        await kept.save("s", "list", [{"n": 1}, {"n": 2}])
        assert await kept.get_list("s", "list") == [{"n": 1}, {"n": 2}]

    async def test_messages_come_back(self, kept: AgentStateStore) -> None:
        said = [Message("user", "hi", name="alice"), Message("assistant", "你好", metadata={"a": 1})]
        await kept.save_list("s", "memory_messages", said)
        assert await kept.get_list("s", "memory_messages", Message) == said

    async def test_an_item_of_another_type_is_told(self, kept: AgentStateStore) -> None:
        await kept.save_list("s", "plans", [Plan("a"), {"steps": []}])
        with pytest.raises(StateDecodeError, match="plans"):
            await kept.get_list("s", "plans", Plan)

    async def test_lists_of_two_names_are_apart(self, kept: AgentStateStore) -> None:
        await kept.save_list("s", "a", [{"n": 1}])
        await kept.save_list("s", "b", [{"n": 2}, {"n": 3}])
        await kept.save_list("s", "a", [{"n": 1}, {"n": 4}])
        assert await kept.get_list("s", "a") == [{"n": 1}, {"n": 4}]
        assert await kept.get_list("s", "b") == [{"n": 2}, {"n": 3}]

    async def test_the_later_save_decides_what_a_name_holds(self, kept: AgentStateStore) -> None:
        await kept.save_list("s", "x", [{"n": 1}, {"n": 2}])
        await kept.save("s", "x", {"single": True})
        assert await kept.get("s", "x") == {"single": True}
        with pytest.raises(StateDecodeError):
            await kept.get_list("s", "x")
        await kept.save_list("s", "x", [{"n": 3}])
        assert await kept.get_list("s", "x") == [{"n": 3}]
        with pytest.raises(StateDecodeError):
            await kept.get("s", "x")

    # Slots.

    async def test_a_slot_that_was_never_written_does_not_exist(self, kept: AgentStateStore) -> None:
        assert not await kept.exists("s")
        await kept.get("s", "notes")
        await kept.get_list("s", "notes")
        assert not await kept.exists("s")
        assert await kept.list_session_keys() == set()

    async def test_deleting_a_name_leaves_the_others(self, kept: AgentStateStore) -> None:
        await kept.save("s", "a", {"n": 1})
        await kept.save_list("s", "b", [{"n": 2}])
        await kept.delete("s", "a")
        assert await kept.get("s", "a") is None
        assert await kept.get_list("s", "b") == [{"n": 2}]
        await kept.delete("s", "b")
        assert await kept.get_list("s", "b") == []
        assert not await kept.exists("s")

    async def test_deleting_a_slot_leaves_the_others(self, kept: AgentStateStore) -> None:
        for key in ("s", "t", SessionKey("s", "alice")):
            await kept.save(key, "a", {"n": 1})
            await kept.save_list(key, "b", [{"n": 2}])
        await kept.delete("s")
        assert not await kept.exists("s")
        assert await kept.get("s", "a") is None
        assert await kept.get_list("s", "b") == []
        assert await kept.exists("t")
        assert await kept.get_list(SessionKey("s", "alice"), "b") == [{"n": 2}]
        assert await kept.list_session_keys() == {SessionKey("t")}

    async def test_deleting_what_is_not_there_is_fine(self, kept: AgentStateStore) -> None:
        await kept.delete("s")
        await kept.delete("s", "a")
        await kept.save("s", "b", {})
        await kept.delete("s", "a")
        assert await kept.exists("s")

    async def test_a_plain_string_is_an_anonymous_sessions_key(self, kept: AgentStateStore) -> None:
        await kept.save("s", "a", {"n": 1})
        assert await kept.get(SessionKey("s"), "a") == {"n": 1}
        assert await kept.get(SessionKey.of("s"), "a") == {"n": 1}
        assert await kept.get(SessionKey("s", "alice"), "a") is None

    async def test_a_key_of_a_users_own_says_which_session_it_is(self, kept: AgentStateStore) -> None:
        await kept.save(Custom("acme", "s"), "a", {"n": 1})
        await kept.save(Custom("acme", "t"), "a", {"n": 2})
        assert await kept.get(Custom("acme", "s"), "a") == {"n": 1}
        assert await kept.list_session_keys() == {
            SessionKey('{"tenantId":"acme","sessionId":"s"}'),
            SessionKey('{"tenantId":"acme","sessionId":"t"}'),
        }

    async def test_what_is_no_key_is_refused(self, kept: AgentStateStore) -> None:
        bad: Any = 7
        with pytest.raises(ConfigurationError):
            await kept.save(bad, "a", {})

    async def test_no_two_sessions_meet(self, kept: AgentStateStore) -> None:
        for number, one in enumerate(HOSTILE_IDS):
            await kept.save(one, "a", {"n": number})
            await kept.save_list(one, "b", [{"n": number}])
        for number, one in enumerate(HOSTILE_IDS):
            assert await kept.get(one, "a") == {"n": number}, one
            assert await kept.get_list(one, "b") == [{"n": number}], one
        assert await kept.list_session_keys() == {SessionKey(one) for one in HOSTILE_IDS}
        for one in HOSTILE_IDS:
            await kept.delete(one)
            assert not await kept.exists(one)
        assert await kept.list_session_keys() == set()

    async def test_no_two_users_meet(self, kept: AgentStateStore) -> None:
        keys = [SessionKey(session, user) for user in (*HOSTILE_IDS, None) for session in ("s", "b:s", "b/s")]
        for number, key in enumerate(keys):
            await kept.save(key, "a", {"n": number})
        for number, key in enumerate(keys):
            assert await kept.get(key, "a") == {"n": number}, key
        for user in (*HOSTILE_IDS, None):
            wanted = {SessionKey(session, user) for session in ("s", "b:s", "b/s")}
            assert await kept.list_session_keys(user) == wanted, user

    async def test_a_user_and_a_session_are_not_put_together(self, kept: AgentStateStore) -> None:
        pairs = [("a", "b:c"), ("a:b", "c"), ("a", "b/c"), ("a/b", "c"), ("a%3Ab", "c"), ("a%253Ab", "c"), ("a%", "c")]
        for number, (user, session) in enumerate(pairs):
            await kept.save(SessionKey(session, user), "x", {"n": number})
        for number, (user, session) in enumerate(pairs):
            assert await kept.get(SessionKey(session, user), "x") == {"n": number}
            await kept.delete(SessionKey(session, user))
            assert not await kept.exists(SessionKey(session, user))

    async def test_no_two_names_meet(self, kept: AgentStateStore) -> None:
        for number, name in enumerate(HOSTILE_IDS):
            if number % 2:
                await kept.save("s", name, {"n": number})
            else:
                await kept.save_list("s", name, [{"n": number}] * 2)
        for number, name in enumerate(HOSTILE_IDS):
            if number % 2:
                assert await kept.get("s", name) == {"n": number}, name
            else:
                assert await kept.get_list("s", name) == [{"n": number}] * 2, name
        for name in HOSTILE_IDS:
            await kept.delete("s", name)
        assert not await kept.exists("s")

    @pytest.mark.parametrize("bad", REFUSED_IDS)
    async def test_ids_that_are_refused_everywhere_are_refused_here(self, kept: AgentStateStore, bad: str) -> None:
        with pytest.raises(InvalidId):
            await kept.save(bad, "a", {})
        with pytest.raises(InvalidId):
            await kept.save("s", bad, {})
        with pytest.raises(InvalidId):
            await kept.save(SessionKey("s", bad), "a", {})
        assert await kept.list_session_keys() == set()

    @pytest.mark.parametrize("name", RESERVED)
    async def test_names_that_layouts_use_are_refused(self, kept: AgentStateStore, name: str) -> None:
        for attempt in (kept.save("s", name, {}), kept.save_list("s", name, []), kept.get("s", name)):
            with pytest.raises(InvalidId):
                await attempt
        assert not await kept.exists("s")

    @pytest.mark.parametrize("name", ["list", "ver", "_hash", "keys", "a:b", "a:lists"])
    async def test_names_that_look_like_it_are_not(self, kept: AgentStateStore, name: str) -> None:
        await kept.save("s", name, {"n": 1})
        assert await kept.get("s", name) == {"n": 1}

    async def test_many_saves_at_once_are_all_saved(self, kept: AgentStateStore) -> None:
        keys = [SessionKey(f"s{n}", "alice") for n in range(20)]
        await asyncio.gather(*(kept.save(key, "a", {"key": key.session_id}) for key in keys))
        assert await kept.list_session_keys("alice") == set(keys)

    async def test_lists_saved_at_once_are_never_mixed(self, kept: AgentStateStore) -> None:
        lists = [[{"writer": writer, "n": n} for n in range(writer + 1)] for writer in range(8)]
        await asyncio.gather(*(kept.save_list("s", "list", one) for one in lists))
        assert await kept.get_list("s", "list") in lists

    async def test_a_delete_and_a_list_that_grows_at_once_leave_all_or_nothing(self, kept: AgentStateStore) -> None:
        old, new = [{"n": n} for n in range(20)], [{"n": n} for n in range(21)]
        for number, name in enumerate(["list", None] * 15):
            key = f"s{number}"
            await kept.save_list(key, "list", old)
            await asyncio.gather(kept.save_list(key, "list", new), kept.delete(key, name))
            assert await kept.get_list(key, "list") in ([], new)
            await kept.delete(key)
            assert not await kept.exists(key)

    async def test_closing_states_twice_is_fine(self, kept: AgentStateStore) -> None:
        await kept.save("s", "a", {})
        await kept.close()
        await kept.close()
