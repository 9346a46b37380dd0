"""Words that are planted in sessions, to see whether anything of them is left when these are erased."""

from __future__ import annotations

import random
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from leafward import Message, Session, user
from leafward.core.ids import Scope
from leafward.stores.contracts import NewOverlay, Usage
from leafward.stores.entries import Prompt, Shelf
from leafward.stores.sqlite import SqliteStore

SEEDS = (5, 6, 8, 9)
"""With these, SQLite leaves copies of rows behind in pages it splits."""

ROOT = Path(__file__).parents[2]

KINDS = (
    *("text", "old text", "deleted", "input", "result", "metadata", "id"),
    *("label", "summary", "block", "entry", "prompt", "name"),
    *("state", "old state", "state name", "state of the deleted", "usage id", "model"),
)
ENTRY_KEY = "wpmxgkvbdzcf"


def word(number: int) -> str:
    """A word of consonants, which no stemmer shortens and no other text has."""
    letters = random.Random(number)
    return "".join(letters.choice("bcdfgkmpvwxz") for _ in range(16))


CANARIES = {kind: word(number) for number, kind in enumerate(KINDS)} | {"entry key": ENTRY_KEY}


def left(directory: Path) -> dict[str, int]:
    """Count what is left of each canary in all files, also as the index writes it and without its first letters."""
    found: dict[str, int] = {}
    for file in directory.iterdir():
        data = file.read_bytes().lower()
        for kind, canary in CANARIES.items():
            if canary[2:12].encode() in data:
                found[f"{kind} in {file.name}"] = data.count(canary[2:12].encode())
    return found


def ballast(chance: random.Random) -> str:
    return " ".join(chance.choice(("lorem", "ipsum", "dolor", "amet")) for _ in range(chance.choice((3, 30, 150, 300))))


def canary_message(chance: random.Random, number: int) -> Message:
    canaries, text = CANARIES, ballast(chance)
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": f"{text} {canaries['text'].title()}"},
        {"type": "tool_use", "id": f"call-{number}", "name": "look", "input": {"q": canaries["input"]}},
        {"type": "tool_result", "id": f"call-{number}", "output": canaries["result"]},
    ]
    return Message("user", parts, id=f"{canaries['id']}-{number}", metadata={"note": canaries["metadata"]})


async def fill(store: SqliteStore, seed: int, rounds: int = 60) -> None:
    """Let eight sessions take turns, so that pages split in the middle, and plant all canaries in two of them."""
    chance = random.Random(seed)
    sessions = [Session(store, f"chat-{n}", user_id="ann" if n % 2 else "bob") for n in range(8)]
    for number in range(rounds):
        for n, session in enumerate(sessions):
            if n in (2, 5):
                await session.append_message(canary_message(chance, number))
            else:
                await session.append_message(user(f"{ballast(chance)} session{n}", id=f"{n}-{number}"))
        if number % 3 == 2:
            await change(sessions[number % 2 * 3 + 2], number, chance)
            await sessions[number % 8 // 2 * 2].get_history()
    for n in (2, 5):
        await plant_context(store, sessions[n])


async def change(session: Session, number: int, chance: random.Random) -> None:
    """Update and delete messages; what they said before is a canary, too."""
    for at, kind in ((number, "old text"), (number - 1, "deleted")):
        known = f"{CANARIES['id']}-{at}"
        await session.update_message(user(f"{ballast(chance)} {CANARIES[kind]}", id=known))
        if kind == "deleted":
            await session.delete_messages([known])
        else:
            await session.update_message(user(f"{ballast(chance)} {CANARIES['text']}", id=known))


async def plant_context(store: SqliteStore, session: Session) -> None:
    scope = Scope.of(session.session_id, user_id=session.user_id)
    canaries, first, last = CANARIES, f"{CANARIES['id']}-0", f"{CANARIES['id']}-3"
    await session.label(first, canaries["label"])
    summary = NewOverlay("overlay-1", f"so far: {canaries['summary']}", 9, 0, first, last)
    assert await store.messages.add_overlay(scope, summary) is not None
    await store.entries.edit(Shelf(scope, "memory"), "", lambda _: f"knows {canaries['block']}")
    for number in range(30):
        content = f"{canaries['entry']} number{number}"
        await store.entries.edit(
            Shelf(scope, "notes"), f"{ENTRY_KEY}-{number}", lambda _, content=content: content, searchable=True
        )
    await store.entries.keep_prompt(scope, Prompt(f"You are {canaries['prompt']}.", 5, "f"), replace=True)
    await store.registry.rename(scope, canaries["name"])
    await plant_states(store, session, scope)


async def plant_states(store: SqliteStore, session: Session, scope: Scope) -> None:
    """Attach states at many steps, some of messages that are deleted, and replace each."""
    canaries = CANARIES
    for number in range(20):
        id, usage = f"step-{number}", Usage(1, 1, 0.5, canaries["model"], f"{canaries['usage id']}-{number}")
        old = {"is": canaries["old state"], "text": "lorem " * (number * 11 % 40)}
        await session.append_message(user("step", id=id), state={"plan": old, canaries["state name"]: old})
        await store.registry.add_usage(scope, usage)
        kind = "state of the deleted" if number % 3 else "state"
        await session.set_state("plan", {"is": canaries[kind], "text": "ipsum " * (number * 7 % 50)})
        if number % 3:
            await session.delete_messages([id])


async def others(store: SqliteStore) -> list[object]:
    """All that the sessions without canaries show."""
    found: list[object] = []
    for n in (0, 1, 3, 4, 6, 7):
        session = Session(store, f"chat-{n}", user_id="ann" if n % 2 else "bob")
        found += [await session.get_history(), await session.search(f"session{n}", limit=1000)]
    return found


def soil(path: Path) -> None:
    """Write a canary into the unused part of every page, as if SQLite had left it there."""
    canary, data = CANARIES["text"].encode(), bytearray(path.read_bytes())
    for at in range(4096, len(data), 4096):
        kind, _, cells, content = struct.unpack_from(">BHHH", data, at)
        low, high = 12 + 2 * cells, content - len(canary)
        if kind in (2, 5, 10, 13) and low < high:
            middle = at + (low + high) // 2
            data[middle : middle + len(canary)] = canary
    path.write_bytes(data)


async def touch_all(store: SqliteStore) -> None:
    """Write every message of the others again, as long as it was, so that its page changes and nothing moves."""
    for n in (0, 1, 3, 4, 6, 7):
        session = Session(store, f"chat-{n}", user_id="ann" if n % 2 else "bob")
        for message in await session.get_history():
            await session.update_message(user(message.text.swapcase(), id=message.id))


VICTIMS = (Scope.of("chat-2", user_id="bob"), Scope.of("chat-5", user_id="ann"))


def check_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.execute("INSERT INTO leafward_search (leafward_search) VALUES ('integrity-check')")
        assert database.execute("SELECT name FROM leafward_meta WHERE name = 'erasing'").fetchall() == []


IMPORTS = """
import asyncio, sys
from leafward import *
from leafward.stores.sqlite import scrub
from tests.stores.canaries import *
"""


def run_child(program: str, path: Path) -> subprocess.Popen[str]:
    """Start a program of another process on the store at `path`."""
    lines = f"{IMPORTS}\npath = {str(path)!r}\n{program}"
    return subprocess.Popen(
        [sys.executable, "-c", lines], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
