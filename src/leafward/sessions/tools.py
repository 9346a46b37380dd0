"""The tools a session offers a model: write, load, unload and search its context, and look under a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from leafward.core.errors import ContextError, MessageNotFound, NotFound
from leafward.core.message import Message
from leafward.core.overlays import is_summary_id, summary_id
from leafward.core.prompt import ContextBlock, usage_percent
from leafward.core.skills import LOAD, UNLOAD, UNLOADED
from leafward.core.transcript import Transcriber, shortened
from leafward.sessions.context import Blocks
from leafward.sessions.setup import Block
from leafward.sessions.toolset import (
    ANSWER_CHARACTERS,
    SEPARATOR,
    Tool,
    ToolSet,
    count_fitting,
    make_tool,
    object_schema,
)

PAGE_MESSAGES = 20
"""How many of the messages that a summary covers one call gives back, at most."""
NAME_CHARACTERS = 1000
"""How much of a label or key an answer repeats."""


class Conversing(Protocol):
    """What the tools need of a session."""

    async def append_context_block(self, label: str, content: str) -> ContextBlock: ...
    async def replace_context_block(self, label: str, content: str) -> ContextBlock: ...
    async def load_skill(self, label: str, key: str) -> str: ...
    async def unload_skill(self, label: str, key: str) -> bool: ...
    async def get_loaded_skill_keys(self) -> list[str]: ...
    async def get_summary_ids(self) -> list[str]: ...
    async def get_covered(self, compaction_id: str, *, offset: int = 0, limit: int = 20) -> list[Message]: ...


async def context_tools(session: Conversing, blocks: Blocks) -> ToolSet:
    """Return the tools that the blocks and the history allow."""
    found: list[Tool] = []
    writable, skills, searchable = _writable(blocks), _skills(blocks), _searchable(blocks)
    if writable:
        found.append(_set_context(session, blocks, writable))
    if skills:
        found.append(_load_context(session, blocks, skills))
        # A storage of the user's own cannot keep which skills are loaded, and so unloads none.
        if blocks.stored:
            found.append(_unload_context(session, blocks, skills, await session.get_loaded_skill_keys()))
    if searchable:
        found.append(_search_context(blocks, searchable))
    summaries = await session.get_summary_ids()
    if summaries:
        found.append(_expand_summary(session, summaries))
    return ToolSet(found)


def _writable(blocks: Blocks) -> list[Block]:
    return [block for block in blocks.all() if block.source.writable]


def _skills(blocks: Blocks) -> list[Block]:
    return [block for block in blocks.all() if block.source.is_skill]


def _searchable(blocks: Blocks) -> list[Block]:
    return [block for block in blocks.all() if block.source.is_searchable]


def _find(label: str, among: Sequence[Block]) -> Block | None:
    return next((block for block in among if block.config.label == label), None)


def _names(blocks: Sequence[Block]) -> str:
    return ", ".join(block.config.label for block in blocks) or "none"


def _cut(name: str) -> str:
    """Return a name that a model made up, which may be of any length."""
    return shortened(name, NAME_CHARACTERS)


def _labels(blocks: Sequence[Block]) -> dict[str, Any]:
    return {"type": "string", "enum": [block.config.label for block in blocks], "description": "The block's label."}


def _listed(blocks: Sequence[Block]) -> str:
    return "\n".join(
        f'- "{block.config.label}" ({_described(block)}): {block.config.description or "no description"}'
        for block in blocks
    )


def _described(block: Block) -> str:
    if block.source.is_skill:
        return "skill collection, keyed entries"
    return "searchable, keyed entries" if block.source.is_searchable else "writable"


def _set_context(session: Conversing, blocks: Blocks, writable: Sequence[Block]) -> Tool:
    keyed = any(block.source.is_keyed for block in writable)
    description = (
        "Write to a context block. What you write is kept after this conversation turn and outlives restarts; the "
        f"system prompt shows it from its next refresh on. Blocks you can write:\n{_listed(writable)}"
    )
    properties: dict[str, Any] = {
        "label": _labels(writable),
        "content": {"type": "string", "description": "The text to write."},
        "action": {
            "type": "string",
            "enum": ["replace", "append"],
            "description": "Replace the block's content (the default), or append to it. Ignored for keyed entries.",
        },
    }
    if keyed:
        description += (
            "\nFor a block with keyed entries give metadata with a title, and a description if it helps: "
            "the same title again replaces its entry, another title makes another one."
        )
        properties["metadata"] = {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "Names the entry."},
                "description": {"type": "string", "description": "One line on what the entry is about."},
            },
        }

    async def write(arguments: dict[str, Any]) -> str:
        label, content = arguments["label"], arguments["content"]
        if _find_writable(blocks, label).source.is_keyed:
            metadata: dict[str, Any] = arguments.get("metadata") or {}
            key = await blocks.put(label, content, metadata.get("title"), metadata.get("description"))
            return f'Indexed "{key}" in {label}.'
        appending = arguments.get("action") == "append"
        change = session.append_context_block if appending else session.replace_context_block
        return f"Written to {label}. Usage: {_usage(await change(label, content))}"

    schema = object_schema(properties, ("label", "content"))
    return make_tool("set_context", description, schema, write, chosen=["label"])


def _find_writable(blocks: Blocks, label: str) -> Block:
    writable = _writable(blocks)
    block = _find(label, writable)
    if block is None:
        wrong = "not found" if _find(label, blocks.all()) is None else "is readonly"
        raise ContextError(f'block "{_cut(label)}" {wrong}. Blocks you can write: {_names(writable)}.')
    return block


def _usage(block: ContextBlock) -> str:
    if not block.max_tokens:
        return f"{block.tokens} tokens"
    return f"{usage_percent(block.tokens, block.max_tokens)}% ({block.tokens}/{block.max_tokens} tokens)"


def _key_schema(skills: Sequence[Block]) -> dict[str, Any]:
    key = {"type": "string", "description": "The document's key, as listed in the system prompt."}
    return object_schema({"label": _labels(skills), "key": key}, ("label", "key"))


def _check_is_skill(blocks: Blocks, label: str) -> None:
    skills = _skills(blocks)
    if _find(label, skills) is None:
        raise ContextError(f'"{_cut(label)}" is not a skill block. Skill blocks: {_names(skills)}')


def _load_context(session: Conversing, blocks: Blocks, skills: Sequence[Block]) -> Tool:
    async def load(arguments: dict[str, Any]) -> str:
        label, key = arguments["label"], arguments["key"]
        _check_is_skill(blocks, label)
        try:
            return await session.load_skill(label, key)
        except NotFound:
            return f"Not found: {_cut(key)}"

    labels = ", ".join(f'"{block.config.label}"' for block in skills)
    description = (
        f"Load a document from a skill block ({labels}) into this conversation. The keys are listed under the block in "
        "the system prompt."
    )
    return make_tool(LOAD, description, _key_schema(skills), load, chosen=["label"])


def _unload_context(session: Conversing, blocks: Blocks, skills: Sequence[Block], loaded: Sequence[str]) -> Tool:
    async def unload(arguments: dict[str, Any]) -> str:
        label, key = arguments["label"], arguments["key"]
        _check_is_skill(blocks, label)
        if await session.unload_skill(label, key):
            return f'{UNLOADED}"{key}" from {label}. Context reclaimed.'
        return f'Skill "{_cut(key)}" is not currently loaded in "{label}".'

    now = f"Currently loaded: {', '.join(loaded)}." if loaded else "No documents are currently loaded."
    description = (
        f"Unload a document you no longer need, to free its space in this conversation; it can be loaded again. {now}"
    )
    return make_tool(UNLOAD, description, _key_schema(skills), unload, chosen=["label"])


def _search_context(blocks: Blocks, searchable: Sequence[Block]) -> Tool:
    async def search(arguments: dict[str, Any]) -> str:
        label, now = arguments["label"], _searchable(blocks)
        if _find(label, now) is None:
            raise ContextError(f'"{_cut(label)}" is not searchable. Searchable blocks: {_names(now)}')
        found = await blocks.search(label, arguments["query"])
        return shortened(found, ANSWER_CHARACTERS) if found else "No results found."

    description = f"Search a context block by words. Only these blocks can be searched:\n{_listed(searchable)}"
    query = {"type": "string", "description": "Words that must all occur; put a phrase in double quotes."}
    schema = object_schema({"label": _labels(searchable), "query": query}, ("label", "query"))
    return make_tool("search_context", description, schema, search, chosen=["label"])


def _expand_summary(session: Conversing, summaries: Sequence[str]) -> Tool:
    async def expand(arguments: dict[str, Any]) -> str:
        given, offset = arguments["summary_id"], arguments.get("offset", 0)
        named = given if is_summary_id(given) else summary_id(given)
        try:
            messages = await session.get_covered(named, offset=offset, limit=PAGE_MESSAGES + 1)
        except MessageNotFound:
            known = ", ".join(await session.get_summary_ids())
            raise ContextError(f"there is no summary {given!r}. Use one of: {known}") from None
        return _page(named, messages, offset)

    # Most payloads carry no message ids: here alone a model learns them.
    description = (
        "Read back the original messages that a summary in this conversation stands for, a page at a time. The "
        f"summaries in this conversation, in order: {', '.join(summaries)}."
    )
    properties = {
        "summary_id": {"type": "string", "description": "The id of the summary message."},
        "offset": {"type": "integer", "minimum": 0, "description": "How many messages to skip; 0 by default."},
    }
    return make_tool("expand_summary", description, object_schema(properties, ("summary_id",)), expand)


def _page(named: str, messages: Sequence[Message], offset: int) -> str:
    if not messages:
        return f"{named} covers no message at offset {offset}."
    writer = Transcriber(messages, shown=None)
    turns = [writer.turn(message) for message in messages[:PAGE_MESSAGES]]
    # What does not fit begins the next page; only a message larger than a page is cut.
    count = max(1, count_fitting(turns))
    shown = SEPARATOR.join([shortened(turns[0], ANSWER_CHARACTERS), *turns[1:count]])
    if count == len(messages):
        return f"{shown}\n\n[End of {named}.]"
    return f"{shown}\n\n[More: call expand_summary with offset {offset + count}.]"
