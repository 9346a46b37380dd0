"""States through the sync door."""

from __future__ import annotations

from pathlib import Path

import pytest

from leafward import LeaseLost, SessionKey, StaleState, blocking, user


def test_states_are_saved_and_got(tmp_path: Path) -> None:
    key = SessionKey("s", "alice")
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        store.states.save(key, "plan", {"step": 1})
        store.states.save_list(key, "notes", [{"n": 1}, {"n": 2}])
        assert store.states.save_if_version(key, "plan", {"step": 2}, 1) == 2
        with pytest.raises(StaleState):
            store.states.save_if_version(key, "plan", {"step": 3}, 1)
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        assert store.states.get(key, "plan") == {"step": 2}
        assert store.states.get_list(key, "notes") == [{"n": 1}, {"n": 2}]
        assert store.states.list_session_keys("alice") == {key}
        store.states.delete(key)
        assert not store.states.exists(key)


def test_states_are_fenced_by_a_lease(tmp_path: Path) -> None:
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        lease = store.leases.acquire("s")
        held = store.states.with_lease(lease)
        held.save("s", "a", {"n": 1})
        lease.release()
        with pytest.raises(LeaseLost):
            held.save("s", "a", {"n": 2})
        assert store.states.get("s", "a") == {"n": 1}


def test_states_lead_back_to_their_store(tmp_path: Path) -> None:
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        assert store.states is store.states
        assert store.states.store is store.states.open() is store
        lease = store.leases.acquire("s")
        fenced = store.states.with_lease(lease).store
        stored = fenced.session("s").append_message(user("held"))
        lease.release()
        with store.leases.acquire("s"), pytest.raises(LeaseLost):
            fenced.session("s").append_message(user("lost"))
        assert store.session("s").get_history() == [stored]
