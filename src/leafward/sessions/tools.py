"""The tools a session offers a model: write, read, search and delete its context, and look under a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from leafward.core.errors import ContextError, MessageNotFound, NotFound
from leafward.core.message import Message
from leafward.core.overlays import is_summary_id, summary_id
from leafward.core.prompt import ContextBlock, ContextEntry, usage_percent
from leafward.core.skills import LOAD as LOAD_TOOL
from leafward.core.skills import UNLOAD as UNLOAD_TOOL
from leafward.core.skills import UNLOADED
from leafward.core.transcript import Transcriber, shortened
from leafward.sessions.context import DELETE, LIST, LOAD, NAME_CHARACTERS, SEARCH, WRITE
from leafward.sessions.model_context import ModelContext, NotShown
from leafward.sessions.setup import Block
from leafward.tools.answers import ANSWER_CHARACTERS, SEPARATOR, count_fitting, make_tool
from leafward.tools.arguments import object_schema
from leafward.tools.definition import Tool
from leafward.tools.tool_set import ToolSet

PAGE_MESSAGES = 20
"""How many of the messages that a summary covers one call gives back, at most."""
ABOUT_CHARACTERS = 200
"""How much a list of entries says about each."""
OFFSET = {"type": "integer", "minimum": 0}


class Summarised(Protocol):
    """What is needed of a session to look under its summaries."""

    async def get_summary_ids(self) -> list[str]: ...
    async def get_covered(self, compaction_id: str, *, offset: int = 0, limit: int = 20) -> list[Message]: ...


async def context_tools(session: Summarised, context: ModelContext) -> ToolSet:
    """Return the tools that the blocks and the history allow."""
    found: list[Tool] = []
    if blocks := context.able(WRITE):
        found.append(_set_context(context, blocks))
    if blocks := context.able(LOAD):
        found.append(_load_context(context, blocks))
        if context.keeps_loaded_skills:
            found.append(_unload_context(context, blocks, await context.loaded()))
    if blocks := context.able(SEARCH):
        found.append(_search_context(context, blocks))
    if blocks := context.able(LIST):
        found.append(_list_context(context, blocks))
    if blocks := context.able(DELETE):
        found.append(_delete_context(context, blocks))
    if summaries := await session.get_summary_ids():
        found.append(_expand_summary(session, summaries))
    return ToolSet(found)


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


def _set_context(context: ModelContext, blocks: Sequence[Block]) -> Tool:
    description = (
        "Write to a context block. What you write is kept after this conversation turn and outlives restarts; the "
        "system prompt shows it from its next refresh on. Text that you have not been shown is not overwritten; you "
        f"are then shown it, to merge it with yours. Blocks you can write:\n{_listed(blocks)}"
    )
    properties: dict[str, Any] = {
        "label": _labels(blocks),
        "content": {"type": "string", "description": "The text to write."},
        "action": {
            "type": "string",
            "enum": ["replace", "append"],
            "description": "Replace the block's content (the default), or append to it. Ignored for keyed entries.",
        },
    }
    if any(block.source.is_keyed for block in blocks):
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
        metadata: dict[str, Any] = arguments.get("metadata") or {}
        block = context.find(label, WRITE)
        try:
            if block.source.is_keyed:
                key = await context.put(block, content, metadata.get("title"), metadata.get("description"))
                return f'Indexed "{key}" in {label}.'
            change = context.append if arguments.get("action") == "append" else context.replace
            return f"Written to {label}. Usage: {_usage(await change(block, content))}"
        except NotShown as unseen:
            what = f'entry "{unseen.key}" of {label}' if unseen.key else f'block "{label}"'
            other = "take another title" if unseen.key else "append instead"
            return _refused(
                f"nothing was written, because {what} holds text that you have not been shown. "
                f"Merge it with yours and call set_context with the whole text, or {other}",
                unseen,
            )

    async def find(arguments: dict[str, Any], _: str) -> str | None:
        """Find out whether an append took effect; any other write may be made again."""
        label, content = arguments.get("label"), arguments.get("content")
        block = next((one for one in blocks if one.config.label == label), None)
        if block is None or block.source.is_keyed or arguments.get("action") != "append":
            return None
        present = await context.read(block)
        is_there = isinstance(content, str) and content.strip("\n") in present.content
        return f"Written to {label}. Usage: {_usage(present)}" if is_there else None

    schema = object_schema(properties, ("label", "content"))
    return make_tool("set_context", description, schema, write, chosen=["label"], probe=find)


def _refused(what: str, unseen: NotShown) -> str:
    # Whole, however long it is: what is cut off would not have been shown.
    return f"Error: {what}. It holds now:\n\n{unseen.content}"


def _usage(block: ContextBlock) -> str:
    if not block.max_tokens:
        return f"{block.tokens} tokens"
    return f"{usage_percent(block.tokens, block.max_tokens)}% ({block.tokens}/{block.max_tokens} tokens)"


def _key_schema(blocks: Sequence[Block], described: str) -> dict[str, Any]:
    key = {"type": "string", "description": described}
    return object_schema({"label": _labels(blocks), "key": key}, ("label", "key"))


def _load_context(context: ModelContext, blocks: Sequence[Block]) -> Tool:
    async def load(arguments: dict[str, Any]) -> str:
        key = arguments["key"]
        try:
            return await context.load(context.find(arguments["label"], LOAD), key)
        except NotFound:
            return f"Not found: {_cut(key)}"

    labels = ", ".join(f'"{block.config.label}"' for block in blocks)
    description = (
        f"Load a document from a skill block ({labels}) into this conversation. The keys are listed under the block in "
        "the system prompt."
    )
    return make_tool(LOAD_TOOL, description, _key_schema(blocks, _SKILL_KEY), load, chosen=["label"], read_only=True)


_SKILL_KEY = "The document's key, as listed in the system prompt."


def _unload_context(context: ModelContext, blocks: Sequence[Block], loaded: Sequence[str]) -> Tool:
    async def unload(arguments: dict[str, Any]) -> str:
        label, key = arguments["label"], arguments["key"]
        if await context.unload(context.find(label, LOAD), key):
            return f'{UNLOADED}"{key}" from {label}. Context reclaimed.'
        return f'Skill "{_cut(key)}" is not currently loaded in "{label}".'

    now = f"Currently loaded: {', '.join(loaded)}." if loaded else "No documents are currently loaded."
    description = (
        f"Unload a document you no longer need, to free its space in this conversation; it can be loaded again. {now}"
    )
    return make_tool(
        UNLOAD_TOOL, description, _key_schema(blocks, _SKILL_KEY), unload, chosen=["label"], retry_safe=True
    )


def _search_context(context: ModelContext, blocks: Sequence[Block]) -> Tool:
    async def search(arguments: dict[str, Any]) -> str:
        block = context.find(arguments["label"], SEARCH)
        return await context.search(block, arguments["query"]) or "No results found."

    description = f"Search a context block by words. Only these blocks can be searched:\n{_listed(blocks)}"
    query = {"type": "string", "description": "Words that must all occur; put a phrase in double quotes."}
    schema = object_schema({"label": _labels(blocks), "query": query}, ("label", "query"))
    return make_tool("search_context", description, schema, search, chosen=["label"], read_only=True)


def _list_context(context: ModelContext, blocks: Sequence[Block]) -> Tool:
    async def list_entries(arguments: dict[str, Any]) -> str:
        label, offset = arguments["label"], arguments.get("offset", 0)
        lines = [_line(entry) for entry in await context.list_entries(context.find(label, LIST))]
        if not lines[offset:]:
            return f"{label} has no entries." if not lines else f"{label} has no entry at offset {offset}."
        shown = lines[offset:][: count_fitting(lines[offset:])]
        after = offset + len(shown)
        more = [f"[More: call list_context with offset {after}.]"] if after < len(lines) else []
        return "\n".join([*shown, *more])

    description = (
        "List the entries that a context block holds now: the key of each and what it is about. "
        f"Only these blocks can be listed:\n{_listed(blocks)}"
    )
    offset = {**OFFSET, "description": "How many entries to skip; 0 by default."}
    schema = object_schema({"label": _labels(blocks), "offset": offset}, ("label",))
    return make_tool("list_context", description, schema, list_entries, chosen=["label"], read_only=True)


def _line(entry: ContextEntry) -> str:
    about = " ".join((entry.description or entry.content or "").split())
    key = " ".join(entry.key.split())
    return f"- {key}: {shortened(about, ABOUT_CHARACTERS)}" if about else f"- {key}"


def _delete_context(context: ModelContext, blocks: Sequence[Block]) -> Tool:
    async def delete(arguments: dict[str, Any]) -> str:
        label, key = arguments["label"], arguments["key"]
        try:
            deleted = await context.delete(context.find(label, DELETE), key)
        except NotShown as unseen:
            return _refused(
                f'nothing was deleted, because you have not been shown entry "{key}" of {label}. '
                "If it can go, call delete_context again",
                unseen,
            )
        return f'Deleted "{key}" from {label}.' if deleted else f"Not found: {_cut(key)}"

    description = (
        "Delete an entry of a context block, by its key. It cannot be brought back, so you must have seen it. "
        f"Only entries of these blocks can be deleted:\n{_listed(blocks)}"
    )
    schema = _key_schema(blocks, "The entry's key.")
    return make_tool("delete_context", description, schema, delete, chosen=["label"], retry_safe=True)


def _expand_summary(session: Summarised, summaries: Sequence[str]) -> Tool:
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
        "offset": {**OFFSET, "description": "How many messages to skip; 0 by default."},
    }
    return make_tool("expand_summary", description, object_schema(properties, ("summary_id",)), expand, read_only=True)


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
