"""Steps of the demo that show what an agent is given: notes, summaries, forks and skills.

No model is asked. What a model would say is in `story`; what becomes of it is leafward's doing.
"""

from __future__ import annotations

from leafward import Message, Session, SessionManager, StoreError, create_compact_function, open_store
from leafward.cli import story
from leafward.cli.screen import Screen
from leafward.cli.stage import AGENT, Demo, Facts, check
from leafward.stores import Store

TAIL_TOKENS = 200
"""So much of the long branch stays beside its summary."""

_PAGE = 100


def manage(store: Store) -> SessionManager:
    """Return the manager of the demo's sessions; what it is set up with, each of them has."""
    return (
        SessionManager(store, agent_id=AGENT)
        .with_context("soul", provider=story.SOUL)
        .with_context("traveller", description="What you know about the traveller", max_tokens=200)
        .with_context("guides", provider={"get": story.list_guides, "load": story.load_guide})
        .with_cached_prompt()
        .on_compaction(create_compact_function(summarize=story.summarize, tail_token_budget=TAIL_TOKENS))
    )


async def note(demo: Demo, screen: Screen) -> Facts:
    """Have the scripted model write to a block, and look at the prompt before, after, and after a restart."""
    async with open_store(demo.url) as store:
        session = manage(store).get_session(demo.session_id)
        before = await session.freeze_system_prompt()
        tools = await session.tools()
        answer = await tools.call("set_context", story.NOTE)
        refusal = await tools.call("set_context", story.LONG_NOTE)
        frozen = await session.freeze_system_prompt()
        refreshed = await session.refresh_system_prompt()
    async with open_store(demo.url) as store:
        reopened = await manage(store).get_session(demo.session_id).freeze_system_prompt()
    held = frozen == before != refreshed == reopened and story.NOTE["content"] in reopened
    check(demo, held and refusal.startswith("Error:"), "the prompt is not what was frozen")
    screen.say(("No model is asked here: its words are scripted. What becomes of them is not.", "dim"))
    screen.say(("set_context", "bold"), f" {story.NOTE['content']}")
    screen.say(("        → ", "dim"), answer)
    screen.say(("set_context", "bold"), f" {len(story.LONG_NOTE['content']):,} characters more")
    screen.say(("        → ", "dim"), refusal)
    screen.say(f"The frozen prompt is still the same {len(before.encode()):,} bytes, so a prompt cache stays warm.")
    screen.say("Refreshed, and read again after a restart, it says:")
    for line in _section(reopened, "TRAVELLER"):
        screen.say((f"  {line}", "green"))
    return {"answer": answer, "refusal": refusal, "prompt": reopened, "prompt_before": before}


def _section(prompt: str, label: str) -> list[str]:
    """Return a block of a prompt without the rules around its header."""
    lines = prompt.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(label))
    return [lines[start], lines[start + 2]]


async def compact(demo: Demo, screen: Screen) -> Facts:
    """Summarise the middle of the branch by train, look under the summary, and go back to the other branch."""
    async with open_store(demo.url) as store:
        session = manage(store).get_session(demo.session_id)
        by_name = {name: id for id, name in (await session.get_labels()).items()}
        by_bike = await session.get_latest_leaf()
        assert by_bike is not None
        await session.checkout(by_name["by train"])
        tokens = await session.estimate_tokens()
        made = await session.compact()
        if made is None:
            raise StoreError(f"{demo.path}: {session.compaction_log[-1].reason}: please report this")
        left, seen = await session.estimate_tokens(), await session.get_history()
        covered, raw = await _read_covered(session, made.id), await session.get_raw_history()
        tools = await session.tools()
        page = await tools.call("expand_summary", {"summary_id": made.id, "offset": 4})
        await session.checkout(by_bike.id)
        untouched = await session.get_summary_ids() == []
    ends = [one.id for one in raw].index(made.from_message_id), [one.id for one in raw].index(made.to_message_id)
    held = covered == raw[ends[0] : ends[1] + 1] and len(seen) == len(raw) - len(covered) + 1 and untouched
    check(demo, held and left < tokens, "a summary lost what it covers")
    screen.say(f"by train: {len(raw)} messages, {tokens:,} tokens. Its middle gets a summary (a scripted one):")
    screen.say(f"the model now sees {len(seen)} messages, ", (f"{left:,} tokens", "bold green"), ".")
    screen.say(("expand_summary", "bold"), f" {made.id}, from the fifth message on")
    for line in [line for line in page.splitlines() if line.startswith("Train")][:2]:
        screen.say(("        → ", "dim"), line)
    screen.say(f"All {len(covered)} messages under it are read back exactly. The branch by bike has no summary.")
    return {
        "messages": len(raw),
        "seen": len(seen),
        "covered": len(covered),
        "tokens_before": tokens,
        "tokens_after": left,
        "compaction_id": made.id,
    }


async def _read_covered(session: Session, compaction_id: str) -> list[Message]:
    found: list[Message] = []
    while page := await session.get_covered(compaction_id, offset=len(found), limit=_PAGE):
        found += page
    return found


async def fork(demo: Demo, screen: Screen) -> Facts:
    """Copy the conversation up to an early message, and go on in the copy."""
    async with open_store(demo.url) as store:
        manager = manage(store)
        before = await manager.get_history(demo.session_id)
        made = await manager.fork(demo.session_id, story.FORK, f"{demo.session_id}, by boat")
        copy = manager.get_session(made.id)
        await copy.append_message(story.by_boat())
        path = [one.id for one in await copy.get_history()]
        notes = await copy.get_context_block("traveller")
        listed = await manager.list(limit=2)
        held = await manager.get_history(demo.session_id) == before and path[-2:] == [story.FORK, story.by_boat().id]
    assert notes is not None
    check(demo, held and notes.content == story.NOTE["content"], "a fork is not a copy")
    demo.fork_id = made.id
    screen.say("A new session, ", (made.name, "bold magenta"), f", has the path to {story.FORK} and goes on by itself:")
    screen.say(f"  {len(path)} messages, the last: {story.by_boat().text}")
    screen.say(f"  its notes: {notes.content}")
    screen.say(
        f"{demo.session_id} still has its {len(before)}. Listed, last changed first: ",
        " · ".join(one.name for one in listed),
    )
    return {"session_id": made.id, "parent_session_id": made.parent_session_id, "path": path, "notes": notes.content}


async def skill(demo: Demo, screen: Screen) -> Facts:
    """Have the scripted model load a guide into the fork, and unload it."""
    arguments = {"label": "guides", "key": story.GUIDE}
    async with open_store(demo.url) as store:
        session = manage(store).get_session(demo.fork_id)
        tools = await session.tools()
        text = await tools.call("load_context", arguments)
        await session.append_messages(story.tool_call("load-1", "load_context", arguments, text))
        loaded, keys = await session.estimate_tokens(), await session.get_loaded_skill_keys()
        answer = await tools.call("unload_context", arguments)
        unloaded = await session.estimate_tokens()
        seen = (await session.get_history())[-1]
        await session.append_messages(story.tool_call("unload-1", "unload_context", arguments, answer))
        stored = await session.get_message(seen.id)
    notice = seen.parts[0]["output"][0]["text"]
    kept = stored is not None and stored.parts[0]["output"][0]["text"] == text
    check(demo, kept and unloaded < loaded and keys == [f"guides:{story.GUIDE}"], "a skill was not put away")
    screen.say(("load_context", "bold"), f" {story.GUIDE}: {len(text)} characters; the window holds {loaded} tokens.")
    screen.say(("unload_context", "bold"), f" → {answer}")
    screen.say("The model now sees ", (notice, "green"), f": {unloaded} tokens. The stored message is as it was.")
    return {"loaded": keys, "tokens_loaded": loaded, "tokens_unloaded": unloaded, "notice": notice}
