"""Every public call of a session, a manager and a lease, as a tenant makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from leafward import LeafwardError, LeaseLost, SessionExists, assistant, tool_result, user
from tests.isolation.tenants import Tenant
from tests.isolation.witness import Watched, text_of

Step = Callable[[Tenant], Awaitable[None]]


async def begin(t: Tenant) -> None:
    info = await t.manager.create(f"{t.own} chat", session_id=t.session_id, model=f"{t.own} m", source=f"{t.own} s")
    assert info.id == t.session_id
    with suppress(SessionExists):
        await t.manager.create(f"{t.own} again", session_id=t.session_id)
        raise AssertionError("a session was made twice")
    await t.manager.rename(t.session_id, f"{t.own} renamed")
    await t.manager.add_usage(t.session_id, t.number, 2 * t.number, 0.5)
    for _ in range(2):
        await t.manager.add_usage(t.session_id, 1, 1, 0.0, model=f"{t.own} m", usage_id="call 1")
    info = await t.manager.get(t.session_id)
    assert (info.input_tokens, info.output_tokens) == (t.number + 1, 2 * t.number + 1)
    assert (t.manager.user_id, t.manager.agent_id) == t.owner
    assert (t.session.user_id, t.session.agent_id, t.session.session_id) == (*t.owner, t.session_id)


async def write(t: Tenant) -> None:
    s = t.session
    await s.set_state("plan", {"of": f"{t.own} root"})
    await s.append_message(user(f"{t.own} walnut one", id="m1"), state={"plan": {"of": f"{t.own} first"}, "mood": {}})
    await s.append_messages([assistant(f"{t.own} walnut two", id="m2"), user(f"{t.own} three", id="m3")])
    call = {"type": "tool_use", "id": "c1", "name": "load_context", "input": {"label": "skills", "key": "tea"}}
    await s.append_message({"id": "m4", "role": "assistant", "parts": [call], "metadata": {"note": t.own}})
    await s.append_message(tool_result("c1", f"{t.own} steeps tea", name="load_context", id="m5"))
    await s.append_message(user(f"{t.own} walnut aside", id=t.unique_id), parent_id="m2")
    await s.update_message(user(f"{t.own} walnut changed", id="m3"))
    await s.upsert_message(user(f"{t.own} walnut put", id="m6"), parent_id="m5")
    await t.manager.append(t.session_id, user(f"{t.own} walnut", id="m7"))
    await t.manager.upsert(t.session_id, user(f"{t.own} walnut again", id="m7"))
    await t.manager.append_all(t.session_id, [user(f"{t.own} gone", id="m8"), user(f"{t.own} last", id="m9")])
    assert await s.delete_messages(["m8"]) == 1
    await s.label("m2", f"{t.own} label")
    await s.checkout("m9")
    await s.set_state("plan", {"of": f"{t.own} last"})
    await s.set_state("mood", None)


async def remember(t: Tenant) -> None:
    s = t.session
    await s.replace_context_block("memory", f"{t.own} likes walnuts")
    await s.append_context_block("memory", f"{t.own} and maple")
    await s.append_context_block("house", f"{t.shared} is quiet")
    tools = await s.tools()
    for start in ("Error: ", "Written"):
        answer = await t.call(tools, "set_context", label="memory", content=f"{t.own} likes walnuts and maple")
        assert answer.startswith(start)
    fact: dict[str, object] = {"label": "facts", "content": f"{t.own} walnut tree"}
    for title in ("Gone", "Gone too", "Tree"):
        fact["metadata"] = {"title": title}
        assert (await t.call(tools, "set_context", **fact)).startswith("Indexed")
    await t.call(tools, "list_context", label="facts")
    assert len(await s.list_context_entries("facts")) == 3
    assert (await t.call(tools, "delete_context", label="facts", key="gone")).startswith("Deleted")
    assert await s.delete_context_entry("facts", "gone-too")
    await t.call(tools, "load_context", label="skills", key="tea")
    await s.load_skill("skills", "tea")
    await t.call(await s.tools(), "unload_context", label="skills", key="tea")
    await s.load_skill("skills", "tea")
    await s.unload_skill("skills", "tea")
    await s.load_skill("skills", "tea")
    await s.add_context("later", provider=f"{t.own} later")
    await s.remove_context("later")


async def compact(t: Tenant) -> None:
    s = t.session
    made = await s.compact()
    assert made is not None
    t.compaction_id = made.id
    await s.add_compaction(f"{t.own} outer", "m1", "m3")
    assert len(s.compaction_log) == 1
    tools = await s.tools()
    for summary_id in await s.get_summary_ids():
        await t.call(tools, "expand_summary", summary_id=summary_id)
    await s.get_covered(t.compaction_id)
    await s.refresh_system_prompt()
    assert await s.is_prompt_stale() is False


async def read(t: Tenant) -> None:
    s = t.session
    [one async for one in s.iter_history()]
    await s.get_recent_history(max_messages=9)
    await s.get_message(t.unique_id)
    await s.get_parent(t.unique_id)
    await s.get_latest_leaf()
    assert await s.get_state("plan") == {"of": f"{t.own} last"}
    assert await s.get_states("m1") == {"plan": {"of": f"{t.own} first"}, "mood": {}}
    await s.get_branches(None)
    await s.get_tip("m1")
    await s.get_raw_history(limit=2, before="m3")
    await s.get_path_length()
    await s.get_leaves()
    await s.get_compactions()
    await s.get_context_block("house")
    built = t.built()
    await built.get_raw_history()
    await built.freeze_system_prompt()


async def keep(t: Tenant) -> None:
    """Save states; agents that share a slot each take names of their own."""
    value, items = f"value {t.number}", f"list {t.number}"
    await t.states.save(t.key, value, {"of": t.own})
    assert await t.states.save_if_version(t.key, value, {"of": t.own, "again": True}, 1) == 2
    await t.states.save_list(t.key, items, [{"of": t.own}])
    await t.states.save_list(t.key, items, [{"of": t.own}, {"of": t.own}])
    assert (await t.states.get_versioned(t.key, value)).version == 2
    assert await t.states.get(t.key, value) == {"of": t.own, "again": True}
    assert await t.states.get_list(t.key, items) == [{"of": t.own}] * 2
    await t.states.save(t.key, f"gone {t.number}", {"of": t.own})
    await t.states.delete(t.key, f"gone {t.number}")
    assert await t.states.exists(t.key)
    assert t.key in await t.states.list_session_keys(t.user_id)
    assert all(key.user_id == t.user_id for key in await t.states.list_session_keys(t.user_id))


async def look_around(t: Tenant) -> None:
    m = t.manager
    # Sessions of one owner are seen together, each for what it is.
    assert [one.id for one in await m.list() if t.own in one.name] == [t.session_id]
    assert {one.session_id for one in await m.search("walnut", limit=100) if t.own in one.content} == {t.session_id}
    await m.get_history(t.session_id)
    await m.get_message_count(t.session_id)
    tools = await m.tools()
    await t.call(tools, "session_search", query="walnut")
    await t.call(tools, "session_list", limit=100)
    await t.call(tools, "session_history", session_id=t.session_id)
    await t.call(await t.session.tools(), "search_context", label="past", query="walnut")


async def copy(t: Tenant) -> None:
    m = t.manager
    fork = await m.fork(t.session_id, "m7", f"{t.own} fork")
    await m.delete_messages(fork.id, ["m1"])
    continued = await m.compact_and_split(fork.id, f"{t.own} so far", f"{t.own} continued")
    await m.clear_messages(fork.id)
    imported = await m.import_session(await m.export_session(t.session_id), session_id=f"{t.number} imported")
    for made in (fork, continued, imported):
        assert await m.delete(made.id)


async def lease(t: Tenant, holders: dict[tuple[str | None, str], Tenant]) -> Watched | None:
    """Hold one's session unless a tenant of the same user and session does, whatever its agent."""
    if t.slot in holders:
        with suppress(LeafwardError):
            await t.leases.acquire(t.session_id, user_id=t.user_id, wait=0)
            raise AssertionError("two hold one session")
        return None
    holders[t.slot] = t
    held = t.watch(await t.leases.acquire(t.session_id, user_id=t.user_id, wait=0, label=t.own))
    assert (held.session_id, held.user_id, held.fence.slot) == (t.session_id, t.user_id, t.slot)
    assert held.held
    assert held.token > 0
    assert not held.is_over
    assert not held.has_texts
    holder = await t.leases.holder(t.session_id, t.user_id)
    assert (holder.token, holder.label) == (held.token, t.own)
    assert await held.is_still_held()
    assert await t.leases.send(t.session_id, t.user_id, f"{t.own} text", label=t.own)
    assert await t.leases.waiting([held.fence.slot]) == {t.slot}
    await t.session.with_lease(held.target).append_message(user(f"{t.own} leased", id="leased"))
    await t.watch(t.states.with_lease(held.target)).save(t.key, f"leased {t.number}", {"of": t.own})
    return held


async def give_back(t: Tenant, held: Watched) -> None:
    """Let go of one's session, and be refused afterwards, while others still hold theirs."""
    writer = t.watch(t.session.with_lease(held.target))
    await writer.append_message(user(f"{t.own} still leased", id="still leased"))
    assert await held.receive() == [f"{t.own} text"]
    assert await t.leases.send(t.session_id, t.user_id, f"{t.own} second text")
    (text,) = await held.peek()
    assert text.text == f"{t.own} second text"
    await held.acknowledge(text.number)
    assert await held.receive() == []
    assert await t.leases.send(t.session_id, t.user_id, f"{t.own} another text")
    await held.release()
    assert not await t.leases.release(t.session_id, t.user_id, token=held.token)
    with suppress(LeaseLost):
        await writer.append_message(user(f"{t.own} too late", id="too late"))
        raise AssertionError("a lease that was given back still lets write")
    async with t.session.lease(wait=0) as leased:
        await t.watch(leased).append_message(user(f"{t.own} leased again", id="leased again"))


async def intrude(t: Tenant, other: Tenant) -> None:
    """Use every call that takes an id with what only another tenant has."""
    s, theirs = t.session, other.unique_id
    tools = await s.tools()
    for call in (s.get_history, s.get_raw_history, s.get_parent, s.get_branches, s.get_path_length, s.checkout):
        await _refused(call(theirs))
    await _refused(s.get_state("plan", theirs))
    await _refused(s.get_states(theirs))
    await _refused(s.append_message(user("mine", id="below yours"), theirs, state={"plan": {}}))
    await _refused(s.get_raw_history(limit=1, before=theirs))
    await _refused(s.checkout(theirs, tip=True))
    await _refused(s.get_tip(theirs))
    for call in (s.append_message, s.upsert_message):
        await _refused(call(user("mine", id="under yours"), parent_id=theirs))
    await _refused(s.update_message(user("mine", id=theirs)))
    await _refused(s.label(theirs, "mine"))
    await _refused(s.compact(theirs))
    await _refused(s.get_covered(other.compaction_id))
    await _refused(s.add_compaction("mine", theirs, theirs))
    await _refused(t.manager.fork(t.session_id, theirs, "mine"))
    assert await s.get_message(theirs) is None
    assert await s.delete_messages([theirs]) == 0
    await t.call(tools, "expand_summary", summary_id=other.compaction_id)
    for query in (other.own, other.shared):
        assert await s.search(query) == []
        await t.call(tools, "search_context", label="facts", query=query)
    if other.owner != t.owner:
        for query in (other.own, other.shared):
            assert await t.manager.search(query) == []
            await t.call(tools, "search_context", label="past", query=query)
    if other.owner != t.owner and other.session_id != t.session_id:
        await _meet_nothing(t, other.session_id)
    if other.slot != t.slot:
        assert await t.states.get(t.key, f"value {other.number}") is None
        assert await t.states.get_list(t.key, f"list {other.number}") == []
        await t.states.delete(t.key, f"value {other.number}")


async def _meet_nothing(t: Tenant, session_id: str) -> None:
    """Use every call that takes a session's id with one that only another owner has."""
    m = t.manager
    assert await m.get(session_id) is None
    for call in (m.export_session, m.get_history, m.get_message_count, m.clear_messages):
        await _refused(call(session_id))
    await _refused(m.append(session_id, user("mine")))
    await _refused(m.compact_and_split(session_id, "mine"))
    await _refused(m.rename(session_id, "mine"))
    assert await m.delete(session_id) is False
    assert (await m.erase(session_id)).erased is False
    await t.call(await m.tools(), "session_history", session_id=session_id)


async def _refused(call: Awaitable[Any]) -> None:
    try:
        given = await call
    except LeafwardError:
        return
    raise AssertionError(f"another's id was taken: {given!r}")


async def dump(t: Tenant, *, alone: bool) -> str:
    """Return all that can be read of a tenant's session, and of its owner's if that has no other sessions."""
    s = t.session
    # First: what a model is shown counts as shown from then on, which an export tells.
    found = await t.call(await s.tools(), "search_context", label="facts", query="walnut")
    version = await s.get_version()
    picture: list[Any] = [
        await t.manager.get(t.session_id),
        await t.manager.export_session(t.session_id),
        await s.get_history(),
        await s.get_tree(),
        await s.get_labels(),
        await s.get_states(),
        [block for block in await s.get_context_blocks() if block.label != "past"],
        await s.freeze_system_prompt(),
        await s.get_loaded_skill_keys(),
        await s.search("walnut", limit=100),
        await s.estimate_tokens(),
        found,
        await _changes(s, version),
        await t.states.get(t.key, f"value {t.number}"),
        await t.states.get_list(t.key, f"list {t.number}"),
    ]
    if alone:
        picture += [await t.manager.list(limit=None), await t.manager.search("walnut", limit=100)]
    return text_of(picture)


async def _changes(session: Watched, version: int) -> list[Any]:
    changes: list[Any] = []
    async with asyncio.timeout(30), aclosing(session.subscribe(since=0)) as following:
        async for change in following:
            changes.append(change)
            if change.version == version:
                return changes
    raise AssertionError("the last change was not told")


STEPS: list[Step] = [begin, write, remember, keep, compact, read, look_around, copy]
