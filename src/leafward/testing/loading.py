"""What loaded skills promise: who is loaded is stored, and unloading takes the text out of what the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    BlockNotFound,
    ContextError,
    Message,
    NotFound,
    Session,
    SessionManager,
    assistant,
    tool_result,
    user,
)
from leafward.testing.changes import changes_until
from leafward.testing.prompts import Shelf

if TYPE_CHECKING:
    from leafward.stores import Store

TEXT = "GET /users lists users. " * 50
NOTICE = "[skill unloaded: api-ref]"
ARGUMENTS = {"label": "skills", "key": "api-ref"}


def with_skills(store: Store, session_id: str = "s", documents: dict[str, str] | None = None) -> Session:
    """Return a session with a block `skills` that holds `api-ref`."""
    return Session(store, session_id).with_context("skills", provider=Shelf(documents or {"api-ref": TEXT}))


def one_part(tool: str, call_id: str, output: str) -> dict[str, Any]:
    """Return AI SDK's part for a call and its result."""
    return {
        "type": f"tool-{tool}",
        "toolCallId": call_id,
        "state": "output-available",
        "input": ARGUMENTS,
        "output": output,
    }


def one_message(tool: str, call_id: str, output: str) -> list[Message]:
    return [assistant([one_part(tool, call_id, output)], id=call_id)]


def two_messages(tool: str, call_id: str, output: str) -> list[Message]:
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": ARGUMENTS}
    return [assistant([call], id=call_id), tool_result(call_id, output, name=tool, id=f"{call_id}-result")]


def anthropic_messages(tool: str, call_id: str, output: str) -> list[Message]:
    call = {"type": "tool_use", "id": call_id, "name": tool, "input": ARGUMENTS}
    answer = {"type": "tool_result", "tool_use_id": call_id, "content": output}
    return [assistant([call], id=call_id), user([answer], id=f"{call_id}-result")]


def dynamic_message(tool: str, call_id: str, output: str) -> list[Message]:
    return [assistant([{**one_part(tool, call_id, output), "type": "dynamic-tool", "toolName": tool}], id=call_id)]


SHAPES = [one_message, two_messages, anthropic_messages, dynamic_message]


async def use(session: Session, tool: str) -> str:
    """Call a tool on `api-ref` as a model does."""
    return await (await session.tools()).call(tool, ARGUMENTS)


def shown(messages: list[Message]) -> str:
    return "\n".join(str(message.parts) for message in messages)


async def _views(session: Session) -> list[str]:
    """Return what each way to read the visible history shows."""
    return [
        shown(await session.get_history()),
        shown([message async for message in session.iter_history()]),
        shown([message async for message in session.iter_history(newest_first=True)]),
        shown(list((await session.get_recent_history(max_messages=50)).messages)),
    ]


class LoadedSkills:
    """Loading, unloading, and the space that gives back."""

    async def test_a_loaded_skill_is_known_to_every_handle(self, store: Store) -> None:
        session = with_skills(store, documents={"api-ref": TEXT, "a": "A", "b/c": "C"})
        assert await session.get_loaded_skill_keys() == []

        assert await session.load_skill("skills", "b/c") == "C"
        assert await session.load_skill("skills", "a") == "A"
        assert await session.load_skill("skills", "a") == "A"

        assert await with_skills(store).get_loaded_skill_keys() == ["skills:a", "skills:b/c"]
        assert await with_skills(store, "t").get_loaded_skill_keys() == []
        assert await with_skills(store).unload_skill("skills", "a") is True
        assert await session.unload_skill("skills", "a") is False
        assert await session.get_loaded_skill_keys() == ["skills:b/c"]

    async def test_a_skill_that_is_not_there_does_not_count_as_loaded(self, store: Store) -> None:
        session = with_skills(store).with_context("memory")

        with pytest.raises(NotFound, match="missing"):
            await session.load_skill("skills", "missing")
        with pytest.raises(BlockNotFound):
            await session.load_skill("nowhere", "api-ref")
        with pytest.raises(ContextError, match="memory"):
            await session.load_skill("memory", "api-ref")
        answer = await (await session.tools()).call("load_context", {"label": "skills", "key": "missing"})

        assert answer == "Not found: missing"
        assert await session.get_loaded_skill_keys() == []
        assert await session.unload_skill("skills", "missing") is False

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_unloading_takes_the_text_out_of_what_the_model_sees(self, store: Store, shape: Any) -> None:
        session = with_skills(store)
        await session.append_message(user("how do I list users?"))
        before = await session.estimate_tokens()
        await session.append_messages(shape("load_context", "c1", await use(session, "load_context")))
        loaded = await session.estimate_tokens()
        raw = await session.get_raw_history()
        assert loaded > before + 250

        assert await session.unload_skill("skills", "api-ref") is True

        for view in await _views(session):
            assert TEXT not in view
            assert view.count(NOTICE) == 1
        assert await session.get_raw_history() == raw
        assert [await session.get_message(message.id) for message in raw] == raw
        assert await session.estimate_tokens() < before + 60

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_an_unloading_that_is_stored_after_it_ran_counts(self, store: Store, shape: Any) -> None:
        session = with_skills(store)
        load, unload = await use(session, "load_context"), await use(session, "unload_context")
        assert (load, unload) == (TEXT, 'Unloaded "api-ref" from skills. Context reclaimed.')

        turn = [user("q"), *shape("load_context", "c1", load), *shape("unload_context", "c2", unload)]
        await session.append_messages(turn)

        for view in await _views(session):
            assert TEXT not in view
            assert NOTICE in view
        assert shown(await session.get_raw_history()) == shown(turn)
        assert shown(await session.get_raw_history(limit=len(turn))) == shown(turn)
        assert await session.estimate_tokens() < 200

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_a_turn_stored_message_by_message_after_it_ran_counts(self, store: Store, shape: Any) -> None:
        session = with_skills(store)
        load, unload = await use(session, "load_context"), await use(session, "unload_context")

        for message in (*shape("load_context", "c1", load), *shape("unload_context", "c2", unload)):
            await session.append_message(message)

        assert TEXT not in shown(await session.get_history())

    async def test_another_call_of_the_same_id_keeps_its_result(self, store: Store) -> None:
        session = with_skills(store)
        load = two_messages("load_context", "call_0", await use(session, "load_context"))
        weather = [assistant([{"type": "tool_use", "id": "call_0", "name": "weather", "input": {}}], id="w")]
        weather.append(tool_result("call_0", "It is sunny.", name="weather", id="w-result"))
        await session.append_messages([*load, *weather])

        await session.unload_skill("skills", "api-ref")

        seen = shown(await session.get_history())
        assert "It is sunny." in seen
        assert TEXT not in seen

    async def test_a_counter_of_ones_own_counts_what_is_left(self, store: Store) -> None:
        def count(message: Message) -> int:
            return 1000 + len(str(message.parts))

        session = Session(store, "s", token_counter=count).with_context("skills", provider=Shelf({"api-ref": TEXT}))
        prompt = await session.estimate_tokens()
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))

        await session.unload_skill("skills", "api-ref")

        (message,) = await session.get_history()
        assert await session.estimate_tokens() == prompt + count(message)

    async def test_a_message_that_grows_by_updates_gives_its_text_back(self, store: Store) -> None:
        session = with_skills(store)
        load, unload = await use(session, "load_context"), await use(session, "unload_context")
        await session.append_message(assistant("", id="m"))
        grown = assistant([one_part("load_context", "c1", load), one_part("unload_context", "c2", unload)], id="m")

        for write in (session.update_message, session.upsert_message):
            await write(grown)

            assert TEXT not in shown(await session.get_history())
            assert await session.estimate_tokens() < 200

    async def test_updating_a_message_does_not_bring_an_unloaded_text_back(self, store: Store) -> None:
        session = with_skills(store)
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))
        unload = await use(session, "unload_context")
        small = await session.estimate_tokens()

        await session.update_message(
            assistant([one_part("load_context", "c1", TEXT), one_part("unload_context", "c2", unload)], id="c1")
        )

        assert TEXT not in shown(await session.get_history())
        assert await session.estimate_tokens() < small + 60

    async def test_loading_again_shows_the_new_text_only(self, store: Store) -> None:
        documents = {"api-ref": TEXT}
        session = with_skills(store, documents=documents)
        await session.append_messages(two_messages("load_context", "c1", await use(session, "load_context")))
        await session.append_messages(two_messages("unload_context", "c2", await use(session, "unload_context")))
        documents["api-ref"] = "the new text"
        await session.append_messages(two_messages("load_context", "c3", await use(session, "load_context")))

        seen = shown(await session.get_history())

        assert TEXT not in seen
        assert seen.count("the new text") == 1
        assert await session.get_loaded_skill_keys() == ["skills:api-ref"]
        assert await session.unload_skill("skills", "api-ref") is True
        assert "the new text" not in shown(await session.get_history())

    async def test_answers_that_loaded_nothing_stay_visible(self, store: Store) -> None:
        session = with_skills(store)
        for number, answer in enumerate(("Not found: api-ref", "Error: the provider failed")):
            await session.append_messages(one_message("load_context", f"c{number}", answer))
        assert await session.get_loaded_skill_keys() == []
        await session.load_skill("skills", "api-ref")
        await session.unload_skill("skills", "api-ref")

        assert NOTICE not in shown(await session.get_history())

    async def test_only_the_skill_that_was_unloaded_goes(self, store: Store) -> None:
        session = with_skills(store, documents={"api-ref": TEXT, "other": "other text"})
        other = {**one_part("load_context", "c2", "other text"), "input": {"label": "skills", "key": "other"}}
        await session.load_skill("skills", "other")
        part = one_part("load_context", "c1", await use(session, "load_context"))
        await session.append_message(assistant([part, other], id="both"))

        await session.unload_skill("skills", "api-ref")

        (message,) = await session.get_history()
        assert message.parts == [{**part, "output": NOTICE}, other]
        assert await session.get_loaded_skill_keys() == ["skills:other"]

    async def test_unloading_holds_on_every_branch(self, store: Store) -> None:
        session = with_skills(store)
        await session.append_message(user("q", id="q"))
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))
        await session.append_message(user("another try", id="other"), parent_id="q")

        assert await session.unload_skill("skills", "api-ref") is True

        assert TEXT not in shown(await session.get_history("c1"))

    async def test_loading_and_unloading_are_changes_of_context(self, store: Store) -> None:
        session = with_skills(store)
        await session.load_skill("skills", "api-ref")
        await session.unload_skill("skills", "api-ref")

        changes = await changes_until(session, await session.get_version())

        assert [change.kind for change in changes] == ["context", "context"]

    async def test_a_clear_unloads_everything(self, store: Store) -> None:
        session = with_skills(store)
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))

        await session.clear_messages()

        assert await with_skills(store).get_loaded_skill_keys() == []
        await session.append_messages(one_message("load_context", "c1", "again"))
        assert "again" in shown(await session.get_history())

    async def test_removing_a_block_forgets_its_loaded_skills(self, store: Store) -> None:
        session = with_skills(store).with_context("more", provider=Shelf({"m": "M"}))
        await session.load_skill("more", "m")
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))

        assert await session.remove_context("skills") is True

        assert await session.get_loaded_skill_keys() == ["more:m"]
        assert TEXT in shown(await session.get_history())

    async def test_a_fork_keeps_what_is_loaded_and_what_is_hidden(self, store: Store) -> None:
        session = with_skills(store, documents={"api-ref": TEXT, "other": "O"})
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))
        await session.unload_skill("skills", "api-ref")
        await session.load_skill("skills", "other")

        fork = await SessionManager(store).fork("s", "c1", "copy")

        copy = with_skills(store, fork.id, {"api-ref": TEXT, "other": "O"})
        assert await copy.get_loaded_skill_keys() == ["skills:other"]
        assert shown(await copy.get_history()) == shown(await session.get_history())
        assert shown(await copy.get_raw_history()) == shown(await session.get_raw_history())
        assert await copy.estimate_tokens() == await session.estimate_tokens()
