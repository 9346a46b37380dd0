"""The tools a model is offered: their schemas, and an answer to everything it may send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.types.responses import FunctionToolParam

from leafward import (
    Session,
    SessionManager,
    StoredSearchProvider,
    Tool,
    ToolSet,
    assistant,
    open_store,
    user,
)
from leafward.sessions.entry_keys import fnv, slug, wanted_key
from leafward.stores import Store
from leafward.testing.keyed import content_of
from leafward.testing.loading import TEXT
from leafward.testing.prompts import Shelf, with_everything

GOLDEN = Path(__file__).parents[1] / "golden" / "tools.json"


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


class Writable(Shelf):
    def set(self, key: str, content: str, description: str | None = None) -> None:
        self.documents[key] = content


async def _every_tool(store: Store) -> ToolSet:
    """Return all tools there are, as a model sees them in a session with a block of each kind and a summary."""
    session = with_everything(store)
    await session.add_context("recipes", description="How to cook", provider=Writable({"soup": "Boil water."}))
    await session.load_skill("skills", "api-ref")
    await session.append_messages([user("a", id="a"), assistant("b", id="b"), user("c")])
    await session.add_compaction("They met.", "a", "b")
    return await session.tools() | await SessionManager(store).tools()


# ── schemas ──────────────────────────────────────────────────────────────────


async def test_all_tools_are_the_golden_ones(store: Store) -> None:
    tools = json.dumps((await _every_tool(store)).to_anthropic(), indent=2, ensure_ascii=False)
    (summary_id,) = await with_everything(store).get_summary_ids()

    assert tools.replace(summary_id, "compaction_1") + "\n" == GOLDEN.read_text("utf-8")


async def test_schemas_are_json_schemas(store: Store) -> None:
    for tool in (await _every_tool(store)).values():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert json.loads(json.dumps(tool.input_schema)) == tool.input_schema


async def test_tools_have_the_shape_each_provider_takes(store: Store) -> None:
    tools = await _every_tool(store)

    assert list(tools) == [
        "set_context",
        "load_context",
        "unload_context",
        "search_context",
        "list_context",
        "delete_context",
        "expand_summary",
        "session_search",
        "session_list",
        "session_history",
    ]
    for name, openai, anthropic in zip(tools, tools.to_openai(), tools.to_anthropic(), strict=True):
        tool = tools[name]
        assert (tool.name, len(tools)) == (name, 10)
        assert openai == {
            "type": "function",
            "function": {"name": name, "description": tool.description, "parameters": tool.input_schema},
        }
        assert anthropic == {"name": name, "description": tool.description, "input_schema": tool.input_schema}
    for name, responses in zip(tools, tools.to_openai_responses(), strict=True):
        description, schema = tools[name].description, tools[name].input_schema
        assert responses == {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": schema,
            "strict": False,
        }
        assert responses.keys() <= FunctionToolParam.__annotations__.keys()


async def test_tools_come_as_the_blocks_allow(store: Store) -> None:
    assert list(await Session(store, "s").tools()) == []
    assert list(await Session(store, "s").with_context("soul", provider="You.").tools()) == []
    session = Session(store, "s").with_context("memory")
    assert list(await session.tools()) == ["set_context"]
    await session.add_context("facts", provider=StoredSearchProvider())
    assert list(await session.tools()) == ["set_context", "search_context", "list_context", "delete_context"]
    await session.remove_context("memory")
    await session.remove_context("facts")
    await session.add_context("skills", provider=Shelf())

    assert list(await session.tools()) == ["load_context", "unload_context"]


async def test_only_blocks_a_tool_works_on_are_offered(store: Store) -> None:
    tools = await with_everything(store).tools()

    offered = {name: tool.input_schema["properties"]["label"]["enum"] for name, tool in tools.items()}

    assert offered == {
        "set_context": ["memory", "knowledge"],
        "load_context": ["skills"],
        "unload_context": ["skills"],
        "search_context": ["knowledge"],
        "list_context": ["knowledge"],
        "delete_context": ["knowledge"],
    }
    assert '- "memory" (writable): Learned facts' in tools["set_context"].description
    assert '- "knowledge" (searchable, keyed entries): Docs' in tools["set_context"].description
    assert "soul" not in tools["set_context"].description


async def test_metadata_is_asked_for_only_where_there_are_keys(store: Store) -> None:
    plain = (await Session(store, "s").with_context("memory").tools())["set_context"]
    keyed = (await with_everything(store).tools())["set_context"]

    assert "metadata" not in plain.input_schema["properties"]
    assert "metadata" not in plain.description
    assert '"memory" (writable): no description' in plain.description
    assert set(keyed.input_schema["properties"]["metadata"]["properties"]) == {"title", "description"}


async def test_unloading_tells_what_is_loaded(store: Store) -> None:
    session = with_everything(store)
    assert "No documents are currently loaded." in (await session.tools())["unload_context"].description

    await session.load_skill("skills", "api-ref")

    assert "Currently loaded: skills:api-ref." in (await session.tools())["unload_context"].description


# ── answers ──────────────────────────────────────────────────────────────────


async def test_writing_answers_with_the_usage(store: Store) -> None:
    session = Session(store, "s").with_context("memory", max_tokens=1100).with_context("notes")
    call = (await session.tools()).call

    answer = await call("set_context", {"label": "memory", "content": "x" * 1980})
    assert answer == "Written to memory. Usage: 45% (495/1100 tokens)"
    answer = await call("set_context", {"label": "memory", "content": "y", "action": "append"})
    assert answer == "Written to memory. Usage: 45% (496/1100 tokens)"
    assert await call("set_context", {"label": "notes", "content": "x" * 1980}) == "Written to notes. Usage: 495 tokens"
    answer = await call("set_context", {"label": "memory", "content": "z", "action": "replace"})
    assert answer == "Written to memory. Usage: 0% (2/1100 tokens)"

    assert await content_of(session) == "z"
    answer = await call("set_context", {"label": "memory", "content": "x" * 4401})
    assert answer.startswith("Error: ")
    assert "1101 of 1100 tokens" in answer
    assert await content_of(session) == "z"


async def test_loading_and_unloading_answer_as_documented(store: Store) -> None:
    session = Session(store, "s").with_context("skills", provider=Shelf({"api-ref": TEXT}))
    call = (await session.tools()).call
    api_ref = {"label": "skills", "key": "api-ref"}

    assert await call("unload_context", api_ref) == 'Skill "api-ref" is not currently loaded in "skills".'
    assert await call("load_context", api_ref) == TEXT
    assert await session.get_loaded_skill_keys() == ["skills:api-ref"]
    assert await call("unload_context", api_ref) == 'Unloaded "api-ref" from skills. Context reclaimed.'
    assert await call("unload_context", api_ref) == 'Skill "api-ref" is not currently loaded in "skills".'
    assert await call("load_context", {"label": "skills", "key": "none"}) == "Not found: none"
    assert (await call("load_context", {"label": "skills", "key": "\ud800"})).startswith(
        r"Error: the arguments hold \ud800"
    )


async def test_arguments_may_be_the_json_a_model_wrote(store: Store) -> None:
    session = Session(store, "s").with_context("memory")
    tools = await session.tools()

    for arguments in ('{"label": "memory", "content": "caf\\u00e9"}', b'{"label": "memory", "content": "x"}'):
        assert (await tools.call("set_context", arguments)).startswith("Written to memory.")  # type: ignore[arg-type]
    assert (
        await tools["set_context"].execute({"label": "memory", "content": "y"}) == "Written to memory. Usage: 2 tokens"
    )

    assert await content_of(session) == "y"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("set_contxt", {}, ["'set_contxt'", "set_context", "search_context"]),
        ("", {}, ["set_context"]),
        ("set_context", None, ["'label'", "missing"]),
        ("set_context", {}, ["'label'", "missing"]),
        ("set_context", "", ["'label'", "missing"]),
        ("set_context", {"label": "memory"}, ["'content'", "missing"]),
        ("set_context", {"label": "memory", "content": 7}, ["'content'", "an integer", "a string"]),
        ("set_context", {"label": "memory", "content": True}, ["'content'", "a boolean"]),
        ("set_context", {"label": "memory", "content": None}, ["'content'", "null"]),
        ("set_context", {"label": "memory", "content": {"a": 1}}, ["'content'", "an object"]),
        ("set_context", {"label": ["memory"], "content": "x"}, ["'label'", "an array"]),
        ("set_context", {"label": "memory", "content": "x", "action": "prepend"}, ["'prepend'", "replace, append"]),
        ("set_context", {"label": "memory", "content": "x", "user_id": "bob"}, ["'user_id'", "'content'"]),
        ("set_context", {"label": "knowledge", "content": "x", "metadata": "t"}, ["'metadata'", "an object"]),
        ("set_context", {"label": "knowledge", "content": "x", "metadata": {"title": 7}}, ["'metadata'", "'title'"]),
        ("set_context", "{not json", ["JSON"]),
        ("set_context", "[1]", ["an array", "object"]),
        ("set_context", "null", ["null", "object"]),
        ("set_context", ["memory"], ["an array", "object"]),
        ("unload_context", {"label": "skills"}, ["'key'"]),
        ("search_context", {"label": "knowledge"}, ["'query'"]),
        ("list_context", {}, ["'label'", "missing"]),
        ("list_context", {"label": "knowledge", "offset": -1}, ["'offset'", "-1"]),
        ("delete_context", {"label": "knowledge"}, ["'key'", "missing"]),
        ("delete_context", {"label": "knowledge", "key": 7}, ["'key'", "an integer"]),
        ("expand_summary", {"summary_id": "nope"}, ["'nope'", "compaction_"]),
        ("expand_summary", {"summary_id": "nope", "offset": -1}, ["'offset'", "-1"]),
        ("expand_summary", {"summary_id": "nope", "offset": "0"}, ["'offset'", "an integer"]),
        ("session_search", {}, ["'query'"]),
        ("session_search", {"query": "x", "agent_id": "other"}, ["'agent_id'"]),
        ("session_list", {"limit": 0}, ["'limit'"]),
        ("session_list", {"user_id": "bob"}, ["'user_id'"]),
        ("session_history", {"session_id": "nope"}, ["'nope'", "session_list"]),
        ("session_history", {"session_id": "nope", "last_n": 1.5}, ["'last_n'", "a number"]),
    ],
)
async def test_a_mistake_is_answered_with_what_to_do(store: Store, name: str, arguments: Any, says: list[str]) -> None:
    tools = await _every_tool(store)
    before = await with_everything(store).get_context_blocks()

    answer = await tools.call(name, arguments)

    assert answer.startswith("Error: ")
    for words in says:
        assert words in answer
    assert await with_everything(store).get_context_blocks() == before


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(
    ["label", "content", "action", "metadata", "key", "query", "summary_id", "offset", "limit", "session_id", "last_n"]
)
_labels = st.sampled_from(["memory", "skills", "knowledge", "recipes", "soul"])


def _as_json(arguments: Any, schema: dict[str, Any]) -> Any:
    """Return what a model sent, without the null it wrote for what it left out."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            return None
    if not isinstance(arguments, dict):
        return arguments
    left_out = set(schema.get("properties", ())) - set(schema.get("required", ()))
    kept = {name: value for name, value in arguments.items() if value is not None or name not in left_out}
    if isinstance(kept.get("metadata"), dict) and "metadata" in left_out:
        kept["metadata"] = _as_json(kept["metadata"], schema["properties"]["metadata"])
    return kept


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.dictionaries(_names, _values | _labels, max_size=5) | st.text(max_size=30)),
        min_size=5,
        max_size=15,
    )
)
def test_whatever_a_model_sends_is_answered_in_words(calls: list[tuple[int, Any]]) -> None:
    async def send() -> None:
        async with open_store("memory://") as store:
            tools = await _every_tool(store)
            for number, arguments in calls:
                name = list(tools)[number]
                answer = await tools.call(name, arguments, raise_errors=True)
                assert isinstance(answer, str)
                assert answer
                # Arguments that do not fit the schema are never acted on.
                schema = tools[name].input_schema
                fits = Draft202012Validator(schema).is_valid(_as_json(arguments, schema))
                assert fits or answer.startswith("Error: ")

    asyncio.run(send())


# ── sets of tools ────────────────────────────────────────────────────────────


def _tool(name: str, answer: str = "done") -> Tool:
    async def execute(arguments: dict[str, Any]) -> str:
        return f"{answer} {arguments}"

    return Tool(name, "A tool.", {"type": "object", "properties": {"n": {"type": "integer"}}}, execute)


async def test_sets_merge_and_the_right_one_wins() -> None:
    merged = ToolSet([_tool("a", "left"), _tool("b")]) | ToolSet([_tool("a", "right"), _tool("c")])

    assert list(merged) == ["a", "b", "c"]
    assert await merged.call("a", {"n": 1}) == "right {'n': 1}"
    assert list(merged | {"d": _tool("d")}) == ["a", "b", "c", "d"]
    assert list(merged | [_tool("d")]) == ["a", "b", "c", "d"]
    assert (len(merged), "a" in merged, "z" in merged) == (3, True, False)


async def test_a_tool_of_ones_own_is_called_like_ours() -> None:
    tools = ToolSet([_tool("mine")])

    assert await tools.call("mine", '{"n": 1, "more": 2}') == "done {'n': 1, 'more': 2}"
    assert (await tools.call("mine", {"n": "one"})).startswith("Error: the argument 'n' is a string, not an integer.")
    assert (await ToolSet().call("mine", {})) == "Error: there is no tool 'mine'. Call one of: none."


# ── keys ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("title", "content", "key"),
    [
        ("API Reference", "x", "api-reference"),
        ("  --Foo__Bar!! ", "x", "foo-bar"),
        ("C++", "x", "c"),
        ("x" * 70, "y", "x" * 60),
        ("a" * 59 + " b", "y", "a" * 59),
        ("🙂" * 29 + "ab" + "cd", "y", "ab"),
        ("用户喜欢咖啡", "x", "entry-2mzjev"),
        (None, "no key", "no-key-1nprufp"),
        ("", "no key", "no-key-1nprufp"),
        (None, "用户喜欢咖啡", "entry-2mzjev"),
        (None, "", f"entry-{fnv('')}"),
    ],
)
def test_a_key_is_made_as_upstream_makes_it(title: str | None, content: str, key: str) -> None:
    assert wanted_key(title, content) == key


def test_hashes_are_the_verified_ones() -> None:
    assert fnv("no key") == "1nprufp"
    assert fnv("用户喜欢咖啡") == "2mzjev"
    # The published 32-bit FNV-1a of nothing and of "a".
    assert int(fnv(""), 36) == 0x811C9DC5
    assert int(fnv("a"), 36) == 0xE40C292C


@given(st.text())
def test_a_slug_is_small_letters_digits_and_single_dashes(text: str) -> None:
    made = slug(text)

    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert "--" not in made
    assert made == made.strip("-")
    assert slug(made) == made


async def test_what_is_changed_in_an_offer_leaves_the_tools_as_they_were(store: Store) -> None:
    tools = await _every_tool(store)
    offered = (tools.to_openai(), tools.to_openai_responses(), tools.to_anthropic())
    before = json.dumps(offered)
    for offer in offered:
        for one in offer:
            one.get("function", one).get("parameters", one.get("input_schema", {}))["properties"].clear()

    assert json.dumps((tools.to_openai(), tools.to_openai_responses(), tools.to_anthropic())) == before
