"""A session that has one of everything, to see what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leafward import Session, SessionManager, StoredSearchProvider, assistant, user

if TYPE_CHECKING:
    from leafward.stores import Store


class Recipes:
    """A collection of one skill."""

    text = "Steep for three minutes. " * 40

    def get(self) -> str:
        return "- tea: how to make tea"

    def load(self, key: str) -> str | None:
        return self.text if key == "tea" else None


def manage(store: Store, *, user_id: str | None = None, agent_id: str = "default") -> SessionManager:
    """Return a manager whose sessions have a block of each kind and a stored prompt."""
    return (
        SessionManager(store, user_id=user_id, agent_id=agent_id)
        .with_context("memory")
        .with_context("house", shared=True)
        .with_context("facts", provider=StoredSearchProvider())
        .with_context("recipes", provider=Recipes())
        .with_cached_prompt()
    )


async def put_fact(session: Session, title: str, content: str) -> str:
    """Write an entry of the searchable block, as a model does."""
    arguments = {"label": "facts", "content": content, "metadata": {"title": title}}
    return await (await session.tools()).call("set_context", arguments)


async def find_fact(session: Session, query: str) -> str:
    """Search the searchable block, as a model does."""
    return await (await session.tools()).call("search_context", {"label": "facts", "query": query})


async def fill(session: Session) -> None:
    """Give a session one of everything: branches, labels, states, nested summaries, context, skills, a prompt."""
    called = {"toolCallId": "c1", "state": "output-available", "input": {"label": "recipes", "key": "tea"}}
    loading = {"type": "tool-load_context", **called, "output": Recipes.text}
    await session.set_state("walnuts", {"cracked": 0})
    await session.append_messages(
        [user(f"walnut {n}", id=f"m{n}") for n in range(6)], state={"walnuts": {"cracked": 6}}
    )
    await session.append_message({"id": "loading", "role": "assistant", "parts": [loading]})
    await session.append_messages([user("walnut 6", id="m6"), assistant("walnut 7", id="m7", metadata={"k": [1]})])
    aside = [assistant("aside", id="x0"), user("aside too", id="x1")]
    await session.append_messages(aside, parent_id="m3", state={"walnuts": None, "aside": {"deep": ["🦊", None]}})
    await session.append_message(user("elsewhere", id="root 2"), parent_id=None)
    await session.label("m2", "the second")
    await session.label("x1", "an aside")
    await session.add_compaction("inner summary", "m1", "m2")
    await session.add_compaction("outer summary", "m0", "m3")
    await session.replace_context_block("memory", "Likes walnuts.")
    await session.append_context_block("house", "Quiet after ten.")
    await put_fact(session, "Tree", "The walnut tree is old.")
    await session.checkout("m7")
    await session.load_skill("recipes", "tea")
    await session.unload_skill("recipes", "tea")
    await session.load_skill("recipes", "tea")
    await session.freeze_system_prompt()


async def picture(session: Session) -> dict[str, Any]:
    """Return all that can be read of a session, but what tells the time of its changes."""
    leaves = await session.get_leaves()
    return {
        "history": await session.get_history(),
        "paths": [await session.get_history(leaf.id) for leaf in leaves],
        "raw": [await session.get_raw_history(leaf.id) for leaf in leaves],
        "tree": await session.get_tree(),
        "labels": await session.get_labels(),
        "states": {node.id: await session.get_states(node.id) for node in await session.get_tree()},
        "in force": await session.get_states(),
        "compactions": await session.get_compactions(),
        "blocks": await session.get_context_blocks(),
        "fact": await find_fact(session, "walnut"),
        "skills": await session.get_loaded_skill_keys(),
        "tokens": await session.estimate_tokens(),
        "found": {found.id for found in await session.search("walnut", limit=50)},
    }
