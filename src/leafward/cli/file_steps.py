"""Steps of the demo that show what a file keeps: each opens it, does one thing, and closes it again."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

from leafward import Message, Session, StoreError, open_store, user
from leafward.cli import story
from leafward.cli.screen import Screen
from leafward.cli.stage import AGENT, Demo, Facts
from leafward.cli.tree import TreeLine, draw_tree

KILL_AFTER = 150
PATIENCE_S = 50.0
MOST_EARLIER = 3
"""So many earlier runs are looked at, the newest ones."""

QUERIES = ("bicycles", '"green tea"', "龙井", "西湖 茶")

OPEN_AGAIN = """
import asyncio
from leafward import Session, open_store

async def main():
    async with open_store({url!r}) as store:
        session = Session(store, {session_id!r}, agent_id={agent_id!r})
        for message in await session.get_history():
            print(message.role, message.text)

asyncio.run(main())
"""


async def remember(demo: Demo, screen: Screen) -> Facts:
    """Open the file, note this run in it, and look at the runs before."""
    async with open_store(demo.url) as store:
        runs = Session(store, "demo-runs", agent_id=AGENT)
        mark = await runs.append_message(user("leafward demo"))
        # The place of our mark is ours alone, also when two demos share a file.
        demo.number = 1 + [one.id for one in await runs.get_history()].index(mark.id)
        earlier = [
            await _look_back(Session(store, f"demo-{number}", agent_id=AGENT))
            for number in range(max(1, demo.number - MOST_EARLIER), demo.number)
        ]
        durability = store.durability()
    screen.say(f"{demo.path} is open; a finished write survives {_SURVIVES[durability]}.")
    for run in earlier:
        about = f": {run['messages']} messages on its branch, the last: {run['last']}"
        screen.say("It remembers ", (run["session_id"], "bold"), about)
    if not earlier:
        screen.say("Nothing is in it yet. Run the demo again, and it remembers this run.")
    return {"durability": durability, "run": demo.number, "earlier": earlier}


_SURVIVES = {
    "power": "kill -9 and a power cut",
    "process": "kill -9, but not a power cut: this file is in memory",
    "none": "nothing",
}


async def _look_back(session: Session) -> Facts:
    last = await session.get_latest_leaf()
    return {
        "session_id": session.session_id,
        "messages": await session.get_path_length(),
        "last": last and last.text,
    }


async def crash(demo: Demo, screen: Screen) -> Facts:
    """Kill a process that is storing a conversation."""
    with screen.working("a child process is writing …"):
        writer = await asyncio.create_subprocess_exec(
            # -P: what lies in the current directory is not imported.
            *(sys.executable, "-P", "-m", "leafward.cli.writer", demo.url, demo.session_id, AGENT),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            demo.acknowledged = await asyncio.wait_for(_kill_while_writing(writer), PATIENCE_S)
        except TimeoutError as error:
            raise StoreError(
                f"writing {KILL_AFTER} messages to {demo.path} took over {PATIENCE_S:.0f} s: try a faster disk"
            ) from error
        finally:
            if writer.returncode is None:
                writer.kill()
                await writer.wait()
    screen.say(
        f"Process {writer.pid} was storing one message after the other when it got ",
        ("SIGKILL", "bold red"),
        ".",
    )
    screen.say("It was told of ", (f"{len(demo.acknowledged)} messages", "bold"), " that they are stored.")
    return {"exit_code": writer.returncode, "acknowledged": len(demo.acknowledged)}


async def _kill_while_writing(writer: Process) -> list[str]:
    """Return all that was acknowledged before the writer died."""
    assert writer.stdout is not None
    assert writer.stderr is not None
    acknowledged: list[str] = []
    while line := await writer.stdout.readline():
        acknowledged.append(line.decode().strip())
        if len(acknowledged) == KILL_AFTER:
            writer.kill()
    # What it said between the signal and its death counts as well.
    reason = (await writer.stderr.read()).decode(errors="replace").strip()
    await writer.wait()
    if len(acknowledged) < KILL_AFTER:
        raise StoreError(f"the writer ended before it was killed: {reason.rpartition(chr(10))[2]}")
    return acknowledged


async def reopen(demo: Demo, screen: Screen) -> Facts:
    """Compare what the file holds with what was acknowledged, then send the message that was under way again."""
    acknowledged = demo.acknowledged
    async with demo.session() as session:
        history = await session.get_history()
        lost = _missing(acknowledged, history)
        following = story.message(len(acknowledged) + 1)
        await session.append_message(following)
        after = await session.get_history()
    unheard = len(history) - len(acknowledged)
    copies = [one.id for one in after].count(following.id)
    if lost or unheard not in (0, 1) or copies != 1 or len(after) != len(acknowledged) + 1:
        raise StoreError(
            f"{demo.path}: {len(acknowledged)} acknowledged, {len(history)} found, {len(lost)} lost, "
            f"{copies} copies after a retry: please report this"
        )
    screen.say(
        f"Acknowledged {len(acknowledged)}, found {len(history)}, ",
        ("lost 0", "bold green"),
        "; every text is exact and in its place.",
    )
    if unheard:
        screen.say("One more was stored, but the writer died before it heard of it.")
    screen.say(f"The message that was under way ({following.id}) is sent again: it is there once.")
    return {"acknowledged": len(acknowledged), "found": len(history), "lost": 0, "copies_after_retry": copies}


def _missing(acknowledged: list[str], history: list[Message]) -> list[str]:
    """Return the acknowledged messages that are not where they belong, exactly as they were sent."""
    stored = [(one.id, one.role, one.parts) for one in history]
    sent = [story.message(number) for number in range(1, len(acknowledged) + 1)]
    expected = [(id, one.role, one.parts) for id, one in zip(acknowledged, sent, strict=True)]
    return [wanted[0] for index, wanted in enumerate(expected) if stored[index : index + 1] != [wanted]]


async def branch(demo: Demo, screen: Screen) -> Facts:
    """Say something else below an early message."""
    async with demo.session() as session:
        by_train = await session.get_latest_leaf()
        assert by_train is not None
        by_bike = (await session.append_messages(story.other_way(), parent_id=story.FORK))[-1]
        await session.label(by_train.id, "by train")
        await session.label(by_bike.id, "by bike")
        branches = await session.get_branches(story.FORK)
        nodes = await session.get_tree()
    for line in draw_tree(nodes):
        _show_tree_line(screen, line)
    return {"messages": len(nodes), "below": story.FORK, "branches": [one.id for one in branches]}


def _show_tree_line(screen: Screen, line: TreeLine) -> None:
    if line.hidden:
        screen.say((f"{line.rails}  … {line.hidden} more", "dim"))
        return
    node = line.node
    mark = "●" if node.on_path else "○"
    text = node.preview if len(node.preview) <= 56 else node.preview[:55] + "…"
    label = f"  ({node.label})" if node.label else ""
    look = "" if node.on_path else "dim"
    screen.say(line.rails, (f"{mark} {node.role:<10}", look), (text, look), (label, "bold magenta"))


async def checkout(demo: Demo, screen: Screen) -> Facts:
    """Go to the first branch, come back to the second, and go on there."""
    async with demo.session() as session:
        by_name = {name: id for id, name in (await session.get_labels()).items()}
        await session.checkout(by_name["by train"])
        train = await session.get_history()
        await session.checkout(by_name["by bike"])
        await session.append_message(story.decision())
        bike = await session.get_history()
    screen.say("checkout ", ("by train", "bold magenta"), f": {len(train)} messages, the last: {train[-1].text}")
    screen.say("checkout ", ("by bike", "bold magenta"), f":  {len(bike)} messages, the last: {bike[-1].text}")
    return {"by_train": len(train), "by_bike": len(bike), "leaf": bike[-1].id}


async def search(demo: Demo, screen: Screen) -> Facts:
    """Find words on every branch."""
    async with demo.session() as session:
        found = {query: await session.search(query, limit=3) for query in QUERIES}
    for query, results in found.items():
        if not results:
            raise StoreError(f"{demo.path}: a search for {query} finds nothing: please report this")
        screen.say(("search ", "dim"), (query, "bold"))
        for result in results:
            screen.match(result)
    return {
        "found": {
            query: [
                {"id": one.id, "role": one.role, "snippet": one.snippet, "highlights": one.highlights}
                for one in results
            ]
            for query, results in found.items()
        }
    }


async def keep(demo: Demo, screen: Screen) -> Facts:
    """Leave the file, and tell how to open it."""
    async with demo.session() as session:
        length = await session.get_path_length()
    size = demo.path.stat().st_size
    lines = OPEN_AGAIN.format(url=demo.url, session_id=demo.session_id, agent_id=AGENT).strip().splitlines()
    screen.say(f"{demo.where} ({size:,} bytes) is yours. Its {length} messages again, in Python:")
    screen.say("")
    screen.code(lines)
    return {"bytes": size, "messages_on_branch": length, "python": "\n".join(lines)}
