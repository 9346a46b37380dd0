"""What copies of a session promise: a fork, a continuation, and an export that is brought in again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    Message,
    MessageNotFound,
    Session,
    SessionExists,
    SessionManager,
    assistant,
    create_compact_function,
    user,
)
from leafward.testing.filled import fill, find_fact, manage, picture, put_fact
from leafward.testing.ids import HOSTILE_IDS
from leafward.testing.settling import Settling

if TYPE_CHECKING:
    from leafward.stores import Store


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


async def grow(session: Session) -> None:
    """Make a tree whose paths run through several lanes, with gaps where they branch."""
    await session.append_messages([user(f"walnut {n}", id=f"a{n}") for n in range(6)])
    await session.append_messages([user(f"walnut {n}", id=f"b{n}") for n in range(4)], parent_id="a3")
    await session.append_messages([user(f"walnut {n}", id=f"c{n}") for n in range(4)], parent_id="b1")
    await session.append_messages([user(f"walnut {n}", id=f"d{n}") for n in range(2)], parent_id="c3")
    await session.append_messages([user("elsewhere", id="e0"), user("there", id="e1")], parent_id=None)
    await session.delete_messages(["a0", "a3", "b1", "c2", "a5"])
    await session.update_message(user("changed walnut", id="c1"))


@pytest.mark.asyncio
class CopyContract(Settling):
    """A copy has all that the copied session had, and then a life of its own.

    Subclasses define an async `store` fixture that yields an empty, open store, and override `settle` when their
    index follows writes in the background.
    """

    # Forks.

    async def test_a_fork_is_the_history_up_to_its_message(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await grow(session)

        for node in await session.get_tree():
            copy = manager.get_session((await manager.fork("s", node.id, "copy")).id)
            path = await session.get_history(node.id)
            assert await copy.get_history() == path
            assert [await copy.get_history(message.id) for message in path] == [
                await session.get_history(message.id) for message in path
            ]
            assert await copy.get_latest_leaf() == await session.get_message(node.id)
            assert ids(await copy.get_leaves()) == [node.id]
            assert len(await copy.get_tree()) == len(path)
            assert await copy.get_path_length() == len(path)

    async def test_a_fork_grows_on_by_itself(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await grow(session)
        before = await picture(manage(store).get_session("s"))
        path = ids(await session.get_history("d1"))

        copy = manager.get_session((await manager.fork("s", "d1", "copy")).id)
        await copy.append_message(user("on", id="on"))
        await copy.append_messages([user("aside", id="aside")], parent_id="c0")
        await copy.update_message(user("other words", id="a1"))
        await copy.delete_messages(["b0", "on"])

        assert ids(await copy.get_history("d1")) == [one for one in path if one != "b0"]
        assert ids(await copy.get_history("aside")) == ["a1", "a2", "c0", "aside"]
        assert await picture(manage(store).get_session("s")) == before
        kept = await picture(manage(store).get_session(copy.session_id))
        await session.delete_messages(path)
        await session.append_message(user("x"), parent_id="e0")
        assert await picture(manage(store).get_session(copy.session_id)) == kept

    async def test_a_fork_keeps_labels_summaries_context_and_skills(self, store: Store) -> None:
        manager = manage(store)
        await manager.create("chat", session_id="s", model="a-model", source="web")
        session = manager.get_session("s")
        await fill(session)
        await session.add_compaction("the rest", "m4", "m7")
        await manager.add_usage("s", 5, 5, 5.0)

        made = await manager.fork("s", "m6", "copy")

        copy = manager.get_session(made.id)
        assert (made.name, made.parent_session_id, made.model, made.source) == ("copy", "s", None, None)
        assert (made.input_tokens, made.output_tokens, made.estimated_cost, made.end_reason) == (0, 0, 0.0, None)
        assert await manager.get(made.id) == made
        assert await copy.get_labels() == {"m2": "the second"}
        assert await copy.get_compactions() == (await session.get_compactions())[:2]
        assert await copy.get_history() == await session.get_history("m6")
        assert await copy.get_raw_history() == await session.get_raw_history("m6")
        assert await copy.get_context_blocks() == await session.get_context_blocks()
        assert await copy.get_loaded_skill_keys() == ["recipes:tea"]
        assert await find_fact(copy, "tree") == await find_fact(session, "tree")
        shown = await copy.get_message("loading")
        assert shown == await session.get_message("loading")
        assert "[skill unloaded: tea]" in str((await copy.get_history())[-2].to_dict())

    async def test_a_fork_renders_a_prompt_of_its_own(self, store: Store) -> None:
        manager = manage(store)
        session = manager.get_session("s")
        await session.append_message(user("walnut", id="m"))
        frozen = await session.freeze_system_prompt()
        await session.replace_context_block("memory", "Likes walnuts.")

        copy = manager.get_session((await manager.fork("s", "m", "copy")).id)

        assert "Likes walnuts." in await copy.freeze_system_prompt()
        assert await session.freeze_system_prompt() == frozen

    async def test_context_of_a_fork_is_its_own(self, store: Store) -> None:
        manager = manage(store)
        session = manager.get_session("s")
        await fill(session)
        before = await picture(session)

        copy = manager.get_session((await manager.fork("s", "m7", "copy")).id)
        await copy.replace_context_block("memory", "Likes maples.")
        for _ in range(2):
            # The first time it is shown what the fork copied and its model has not seen.
            await put_fact(copy, "Tree", "The maple tree is young.")
        await copy.unload_skill("recipes", "tea")
        await copy.label("m2", None)

        assert await picture(session) == before
        assert "young" in await find_fact(copy, "maple")
        assert await find_fact(copy, "walnut") == "No results found."
        await copy.append_context_block("house", "Both.")
        block = await session.get_context_block("house")
        assert block is not None
        assert block.content == "Quiet after ten.\nBoth."

    async def test_a_fork_inside_a_summary_shows_the_messages(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await session.append_messages([user(f"walnut {n}", id=f"m{n}") for n in range(8)])
        inner = await session.add_compaction("inner", "m1", "m2")
        await session.add_compaction("outer", "m1", "m5")

        copy = manager.get_session((await manager.fork("s", "m4", "copy")).id)

        assert ids(await copy.get_history()) == ["m0", f"compaction_{inner.id}", "m3", "m4"]
        assert await copy.get_history() == await session.get_history("m4")
        await copy.add_compaction("mine", f"compaction_{inner.id}", "m4")
        assert [message.text for message in await copy.get_history()] == ["walnut 0", "mine"]
        covered = await copy.get_covered((await copy.get_compactions())[-1].id)
        assert covered == (await session.get_raw_history("m4"))[1:]

    async def test_the_messages_of_a_fork_are_found(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await grow(session)
        await self.settle(store)

        copy = manager.get_session((await manager.fork("s", "c1", "copy")).id)

        assert await self.found(store, copy, "walnut") == {"a1", "a2", "b0", "c0", "c1"}
        assert await self.found(store, copy, "changed") == {"c1"}
        await copy.delete_messages(["c1"])
        assert await self.found(store, copy, "changed") == set()
        assert await self.found(store, session, "changed") == {"c1"}

    async def test_a_fork_at_an_unknown_message_is_none(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.get_session("s").append_messages([user("walnut", id="m"), user("gone", id="gone")])
        summary = await manager.get_session("s").add_compaction("x", "m", "gone")
        await manager.delete_messages("s", ["gone"])
        await manager.get_session("t").append_message(user("walnut", id="elsewhere"))

        for unknown in ("gone", "elsewhere", "never", "", "\x00", f"compaction_{summary.id}", None):
            with pytest.raises(MessageNotFound):
                await manager.fork("s", unknown, "copy")  # pyright: ignore[reportArgumentType]

        assert len(await manager.list()) == 2

    async def test_forking_asks_no_model_and_a_fork_compacts_by_itself(self, store: Store) -> None:
        asked: list[str] = []

        def summarize(prompt: str) -> str:
            asked.append(prompt)
            return "a summary"

        plain = SessionManager(store)
        await plain.get_session("s").append_messages([user("walnut " * 40, id=f"m{n}") for n in range(12)])
        compact = create_compact_function(summarize=summarize, protect_head=1, tail_token_budget=100)
        manager = SessionManager(store).on_compaction(compact).compact_after(200)

        made = await manager.fork("s", "m11", "copy")
        assert asked == []
        await manager.append(made.id, user("one more"))

        assert asked
        assert len(await manager.get_session(made.id).get_compactions()) == 1
        assert await manager.get_session("s").get_compactions() == []

    async def test_a_fork_while_others_write_is_one_moment(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await session.append_message(user("0", id="0"))

        async def write() -> None:
            for n in range(1, 30):
                await session.append_message(user(f"{n}", id=f"{n}"))

        copies, _ = await asyncio.gather(
            asyncio.gather(*(manager.fork("s", "0", f"copy {n}") for n in range(10))), write()
        )

        assert [ids(await manager.get_history(copy.id)) for copy in copies] == [["0"]] * 10
        assert len(await session.get_history()) == 30

    # Continuations.

    async def test_a_session_goes_on_in_another_that_begins_with_its_summary(self, store: Store) -> None:
        manager = manage(store)
        await manager.create("chat", session_id="s", model="a-model", source="web")
        session = manager.get_session("s")
        await fill(session)
        before = await picture(session)

        made = await manager.compact_and_split("s", "They talked about walnuts.")

        old = await manager.get("s")
        copy = manager.get_session(made.id)
        (first,) = await copy.get_history()
        assert old is not None
        assert old.end_reason == "compaction"
        assert (made.name, made.parent_session_id, made.model, made.source) == ("chat", "s", "a-model", "web")
        assert (made.end_reason, made.input_tokens) == (None, 0)
        assert (first.role, first.text) == (
            "assistant",
            "[Context from previous session]\n\nThey talked about walnuts.",
        )
        assert await picture(session) == before
        assert await copy.get_context_blocks() == await session.get_context_blocks()
        assert await copy.get_loaded_skill_keys() == []
        assert {found.session_id for found in await manager.search("talked")} == {made.id}
        assert (await manager.compact_and_split("s", "x", "another name")).name == "another name"
        for blank in ("", " \n", None):
            with pytest.raises(ValueError, match="summary"):
                await manager.compact_and_split("s", blank)  # pyright: ignore[reportArgumentType]

    # Exports.

    async def test_an_imported_session_is_the_exported_one(self, store: Store) -> None:
        manager = manage(store)
        await manager.create("chat", session_id="s", parent_session_id="before", model="a-model", source="web")
        await fill(manager.get_session("s"))
        await manager.add_usage("s", 10, 20, 0.125)
        await self.settle(store)

        exported = json.loads(json.dumps(await manager.export_session("s")))
        made = await manager.import_session(exported, session_id="copy")

        old = await manager.get("s")
        assert old is not None
        assert made == await manager.get("copy")
        again = await manager.export_session("copy")
        assert await picture(manager.get_session("copy")) == await picture(manager.get_session("s"))
        for data in (exported, again):
            del data["session"]["id"], data["session"]["updatedAt"]
        assert again == exported
        assert made.updated_at > old.updated_at
        for name in ("s", "copy"):
            frozen = await manager.get_session(name).freeze_system_prompt()
            assert "Likes walnuts." in frozen
        await manager.get_session("copy").append_message(user("on", id="on"))
        assert ids(await manager.get_history("copy"))[-2:] == ["m7", "on"]

    async def test_an_import_takes_the_exported_id_unless_told_otherwise(self, store: Store) -> None:
        manager = manage(store)
        await fill(manager.get_session("s"))
        exported = await manager.export_session("s")
        before = await picture(manager.get_session("s"))

        with pytest.raises(SessionExists):
            await manager.import_session(exported)
        await manager.create("taken", session_id="taken")
        with pytest.raises(SessionExists):
            await manager.import_session(exported, session_id="taken")

        assert await manager.get_history("taken") == []
        assert len(await manager.list()) == 2
        await manager.delete("s")
        assert (await manager.import_session(exported)).id == "s"
        assert await picture(manager.get_session("s")) == before

    async def test_an_export_of_another_user_becomes_the_importers_own(self, store: Store) -> None:
        theirs, mine = manage(store, user_id="alice"), manage(store, user_id="bob")
        await fill(theirs.get_session("s"))

        await mine.import_session(await theirs.export_session("s"))
        await mine.append("s", user("maple", id="mine"))

        assert "mine" in ids(await mine.get_history("s"))
        assert "mine" not in ids(await theirs.get_history("s"))
        assert [found.session_id for found in await theirs.search("maple")] == []
        # What all sessions of a user share belongs to no session.
        block = await mine.get_session("s").get_context_block("house")
        assert block is not None
        assert block.content == ""

    async def test_odd_sessions_survive_an_export(self, store: Store) -> None:
        manager = manage(store)
        odd: list[dict[str, Any]] = [
            {"id": name, "role": "user", "parts": [{"type": "text", "text": f"\x00 {name}"}, {"type": "own", "n": 1}]}
            for name in HOSTILE_IDS
        ]
        await manager.create("empty", session_id="empty")
        await manager.get_session("odd").append_messages(
            [*odd, assistant("x", id="x", name="n", extra={"deep": [None]})]
        )
        await manager.get_session("before the first").append_message(user("walnut"))
        await manager.get_session("before the first").checkout(None)
        await manager.get_session("gaps").append_message(user("walnut"))
        await grow(manager.get_session("gaps"))
        await manager.get_session("only context").replace_context_block("memory", "Likes walnuts.")

        for name in ("empty", "odd", "before the first", "gaps", "only context"):
            exported = json.loads(json.dumps(await manager.export_session(name)))
            made = await manager.import_session(exported, session_id=f"copy of {name}")
            assert await picture(manager.get_session(made.id)) == await picture(manager.get_session(name))
