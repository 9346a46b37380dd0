"""What a mirror does with each kind of call, argument and result."""

from __future__ import annotations

import threading

import pytest

from leafward import StoreError
from tests.blocking.doubles import CURRENT, Desk, mirrored_room


def test_a_coroutine_is_a_plain_call() -> None:
    with mirrored_room() as (room, _):
        assert room.desk.who() == "desk"


def test_a_builder_call_returns_the_same_mirror() -> None:
    with mirrored_room() as (room, _):
        desk = room.desk

        assert desk.named("oak") is desk
        assert (desk.name, desk.title) == ("oak", "Oak")


def test_a_handle_that_comes_back_is_a_mirror_and_keeps_its_identity() -> None:
    with mirrored_room() as (room, _):
        neighbour = room.desk.neighbour()

        assert not isinstance(neighbour, Desk)
        assert neighbour.who() == "next to desk"
        assert room.desk is room.desk
        assert room.desk == room.desk
        assert neighbour != room.desk
        assert len({room.desk, neighbour, room.desk}) == 2


def test_a_mirror_given_as_an_argument_stands_for_what_is_behind_it() -> None:
    with mirrored_room() as (room, _):
        neighbour = room.desk.neighbour()

        assert room.desk.compare(neighbour, items=iter([1, 2])) == ("desk", "next to desk", [1, 2])


def test_mirrors_in_a_list_or_a_dict_stand_for_what_is_behind_them() -> None:
    with mirrored_room() as (room, _):
        desk = room.desk

        assert desk.names_of([desk, desk.neighbour()]) == ["desk", "next to desk"]
        assert desk.names_of(one for one in (desk, desk)) == ["desk", "desk"]
        assert desk.names_of({"left": desk}) == ["desk"]


def test_a_mirror_of_another_portal_is_refused() -> None:
    with (
        mirrored_room() as (here, _),
        mirrored_room() as (there, _),
        pytest.raises(StoreError, match="another blocking store"),
    ):
        here.desk.compare(there.desk, items=[])


def test_a_class_method_is_called_on_the_class_of_a_mirror() -> None:
    with mirrored_room() as (room, _):
        assert type(room.desk).create(room.desk, "chair").who() == "chair beside desk"


def test_a_function_kept_in_a_field_is_a_plain_call() -> None:
    with mirrored_room() as (room, _):
        assert room.desk.execute({"a": 1, "b": 2}) == 3


def test_a_mapping_of_handles_gives_mirrors_however_it_is_read() -> None:
    with mirrored_room() as (room, _):
        drawer = room.drawer

        assert drawer["a"].who() == "anna"
        assert [desk.who() for desk in drawer.values()] == ["anna", "ben"]
        assert {name: desk.who() for name, desk in drawer.items()} == {"a": "anna", "b": "ben"}
        assert (list(drawer), len(drawer), "a" in drawer, drawer.get("c")) == (["a", "b"], 2, True, None)
        assert drawer.call("b") == "ben"
        assert sorted(drawer | drawer) == ["a", "b"]


def test_a_mirror_shows_what_it_has_and_nothing_private() -> None:
    with mirrored_room() as (room, _):
        assert {"name", "who", "title", "execute"} <= set(dir(room.desk))
        assert "Desk" in repr(room.desk)
        with pytest.raises(AttributeError, match="_execute"):
            _ = room.desk._execute
        with pytest.raises(AttributeError, match="nothing_like_it"):
            _ = room.desk.nothing_like_it


def test_what_a_call_sets_for_its_context_stays_with_the_calling_thread() -> None:
    seen: list[str] = []
    with mirrored_room() as (room, _):
        token = CURRENT.set("outside")
        try:
            assert room.desk.current() == "outside"
            room.desk.enter_as("alice")
            elsewhere = threading.Thread(target=lambda: seen.append(room.desk.current()))
            elsewhere.start()
            elsewhere.join()

            assert (room.desk.current(), CURRENT.get()) == ("alice", "alice")
            assert seen == ["nobody"]
        finally:
            CURRENT.reset(token)


def test_a_callable_on_a_worker_thread_may_call_back() -> None:
    with mirrored_room() as (room, _):
        assert room.desk.ask(room.desk.who) == "desk"


def test_a_call_from_inside_the_loop_is_refused_instead_of_waiting_for_itself() -> None:
    with mirrored_room() as (room, _):
        desk = room.desk
        for call in (desk.who, room.close, lambda: next(desk.count()), lambda: desk.neighbour().who()):
            with pytest.raises(StoreError, match="own event loop"):
                desk.ask_here(call)

        assert desk.who() == "desk"


def test_a_coroutine_that_wants_to_exit_reaches_the_caller_and_not_the_loop() -> None:
    with mirrored_room() as (room, _):
        with pytest.raises(SystemExit):
            room.desk.leave()

        assert room.desk.who() == "desk"
