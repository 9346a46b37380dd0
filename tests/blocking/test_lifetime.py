"""Threads, interruptions and endings."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leafward import StoreError, user
from leafward.portal import blocking
from tests.blocking.doubles import PATIENCE, mirrored_room, portal_threads, run_program, threads_left

INTERRUPT = """
import os, signal, sys, threading
from tests.blocking.doubles import mirrored_room

# What a shell starts in the background is told to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

def press_ctrl_c(began):
    began.wait()
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_threads_that_write_at_once_form_one_chain(tmp_path: Path) -> None:
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store, ThreadPoolExecutor(8) as pool:
        session = store.session()
        list(pool.map(lambda number: session.append_message(user(str(number))), range(80)))

        history = session.get_history()

        assert sorted(int(message.text) for message in history) == list(range(80))
        assert len(session.get_leaves()) == 1


def test_closing_leaves_no_thread(tmp_path: Path) -> None:
    before = portal_threads()
    with blocking(f"sqlite:///{tmp_path}/chat.db") as store:
        store.session().append_message(user("hi"))
        assert portal_threads() - before

    assert threads_left(before) == set()


def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = portal_threads()
    (tmp_path / "chat.db").write_text("this is no database, and long enough to be seen as none" * 20)

    with pytest.raises(StoreError, match="database"):
        blocking(f"sqlite:///{tmp_path}/chat.db")

    assert threads_left(before) == set()


def test_use_after_close_says_so() -> None:
    with blocking("memory://") as store:
        session = store.session()
        changes, read = session.subscribe(), session.iter_history()
    store.close()

    for call in (session.get_history, store.session, lambda: next(changes), store.durability):
        with pytest.raises(StoreError, match="closed"):
            call()
    read.close()


def test_many_threads_may_close_at_once() -> None:
    with mirrored_room() as (store, room), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.close(), range(8)))

        assert room.closed_times == 1


def test_closing_ends_those_who_still_wait() -> None:
    said: list[str] = []

    def wait() -> None:
        try:
            desk.write_for_long()
        except StoreError as error:
            said.append(str(error))

    with mirrored_room() as (store, room):
        desk = store.desk
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert room.desk.began.wait(PATIENCE)
        store.close()
        waiting.join(PATIENCE)

    assert said == ["the room was closed while this call was waiting"]
    assert room.desk.log == ["finished"]


def test_closing_ends_a_loop_over_changes() -> None:
    said: list[str] = []
    started = threading.Event()

    def follow() -> None:
        try:
            for change in session.subscribe(since=0):
                said.append(change.kind)
                started.set()
        except StoreError as error:
            said.append(str(error))

    with blocking("memory://") as store:
        session = store.session()
        session.append_message(user("hi"))
        following = threading.Thread(target=follow)
        following.start()
        assert started.wait(PATIENCE)
    following.join(PATIENCE)

    assert said[0] == "append"
    assert "closed" in said[1]


def test_an_iterator_that_is_left_early_stops_what_is_behind_it() -> None:
    with mirrored_room() as (store, room):
        for number in store.desk.count():
            if number == 3:
                break
        store.desk.who()

        with store.desk.count() as numbers:
            assert [next(numbers), next(numbers)] == [0, 1]
        assert room.desk.log == ["stopped", "stopped"]
        assert list(numbers) == []
        numbers.close()


def test_an_iterator_closed_by_another_thread_ends_the_loop_that_waits() -> None:
    ended = threading.Event()
    with mirrored_room() as (store, room):
        numbers = store.desk.wait_for_ever()

        def follow() -> None:
            for _ in numbers:
                pass
            ended.set()

        following = threading.Thread(target=follow)
        following.start()
        assert room.desk.began.wait(PATIENCE)
        numbers.close()

        assert ended.wait(PATIENCE)
        assert room.desk.log == ["stopped"]
        following.join(PATIENCE)


def test_threads_can_share_an_iterator() -> None:
    with blocking("memory://") as store, ThreadPoolExecutor(4) as pool:
        session = store.session()
        session.append_messages([user(str(number)) for number in range(200)])
        messages = session.iter_history()

        parts = list(pool.map(lambda _: [message.text for message in messages], range(4)))

        assert sorted((text for part in parts for text in part), key=int) == [str(number) for number in range(200)]


def test_ctrl_c_finishes_the_write_that_began_and_leaves_the_store_usable() -> None:
    done = run_program(
        INTERRUPT
        + """
with mirrored_room() as (store, room):
    threading.Thread(target=press_ctrl_c, args=(room.desk.began,)).start()
    try:
        store.desk.write_for_long()
    except KeyboardInterrupt:
        print(room.desk.log, store.desk.who())
"""
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "['finished'] desk\n", "")


def test_ctrl_c_ends_a_loop_over_an_iterator() -> None:
    done = run_program(
        INTERRUPT
        + """
with mirrored_room() as (store, room):
    threading.Thread(target=press_ctrl_c, args=(room.desk.began,)).start()
    numbers = store.desk.wait_for_ever()
    try:
        for _ in numbers:
            pass
    except KeyboardInterrupt:
        print(room.desk.log, list(numbers))
"""
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "['stopped'] []\n", "")


def test_a_second_ctrl_c_does_not_wait_any_more() -> None:
    done = run_program(
        INTERRUPT
        + """
import asyncio
with mirrored_room() as (store, room):
    cancelled, going = threading.Event(), threading.Event()

    async def cling():
        room.desk.began.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
            await asyncio.to_thread(going.wait)

    room.desk.execute = cling
    for event in (room.desk.began, cancelled):
        threading.Thread(target=press_ctrl_c, args=(event,)).start()
    try:
        store.desk.execute()
    except KeyboardInterrupt:
        print("left", going.is_set())
    going.set()
"""
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "left False\n", "")


def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    done = run_program(
        """
import os, sys, warnings
warnings.simplefilter("ignore")
from leafward import StoreError, user
from leafward.portal import blocking

with blocking(sys.argv[1]) as store:
    session = store.session()
    session.append_message(user("parent"))
    changes = session.subscribe(since=0)
    next(changes)
    child = os.fork()
    if child == 0:
        said = []
        for call in (session.get_history, changes.__next__, changes.close, store.session, store.close):
            try:
                call()
            except StoreError as error:
                said.append("forked" in str(error))
        with blocking(sys.argv[1]) as mine:
            mine.session().append_message(user("child"))
        os._exit(0 if said == [True] * 5 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), [m.text for m in session.get_history()])
""",
        f"sqlite:///{tmp_path}/chat.db",
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "0 ['parent', 'child']\n", "")


def test_a_program_that_ends_without_closing_neither_hangs_nor_loses_anything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    done = run_program(
        """
import sys
from leafward import user
from leafward.portal import blocking

store = blocking(sys.argv[1])
session = store.session()
for number in range(20):
    session.append_message(user(str(number)))
changes = session.subscribe(since=0)
print(next(changes).kind)
""",
        url,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "append\n", "")
    with blocking(url) as store:
        assert [message.text for message in store.session().get_history()] == [str(number) for number in range(20)]


def test_a_store_that_nobody_holds_any_more_is_closed_with_a_warning(tmp_path: Path) -> None:
    before = portal_threads()
    store = blocking(f"sqlite:///{tmp_path}/chat.db")
    session = store.session()
    del store
    gc.collect()
    session.append_message(user("a session holds its store"))

    held = [session]
    del session
    with pytest.warns(ResourceWarning, match=r"chat\.db was not closed"):
        held.clear()

    assert threads_left(before) == set()
