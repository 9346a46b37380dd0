"""A whole session as one batch of lines, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from leafward.core.archive import (
    Archive,
    ArchivedEntry,
    ArchivedMessage,
    ArchivedOverlay,
    ArchivedPrompt,
    ArchivedState,
    ArchivedUsage,
    Notice,
)
from leafward.core.info import SessionInfo
from leafward.core.json import decode_body, encode, encode_text
from leafward.core.message import body_to_read
from leafward.core.notices import Reclaimed
from leafward.core.times import from_micros, to_micros
from leafward.stores.drafts import Draft
from leafward.stores.journal import entry as kinds
from leafward.stores.journal.entry import Entry, Payload, read_timestamp
from leafward.stores.journal.telling import Line, fact, message_lines, summary_lines
from leafward.stores.journal.transcript import first_id, last_id


def archive_lines(archive: Archive, at: int, ends: str | None = None) -> list[Line]:
    """Return everything a session consists of, to be read as one `Restore`; `ends` is the session it continues."""
    return [
        fact(_restored(archive, ends), at),
        *_messages(archive.messages),
        *(fact(kinds.Labelled(message=id, name=name), at) for id, name in archive.labels.items()),
        *_summaries(archive),
        *_context(archive, at),
        *(fact(_attached(one), at) for one in archive.states),
        *(fact(_usage(one), at) for one in archive.usages),
    ]


def _attached(one: ArchivedState) -> kinds.StateAttached:
    return kinds.StateAttached.of(one.message_id, one.name, None if one.value is None else encode_text(one.value))


def _usage(one: ArchivedUsage) -> kinds.Used:
    return kinds.Used(
        input=one.input_tokens,
        output=one.output_tokens,
        cost=one.cost,
        model=one.model,
        id=one.usage_id,
        created=one.at,
    )


def _restored(archive: Archive, ends: str | None) -> kinds.Restored:
    info = archive.info
    return kinds.Restored(
        name=info.name,
        parent=info.parent_session_id,
        model=info.model,
        source=info.source,
        input=info.input_tokens,
        output=info.output_tokens,
        cost=info.estimated_cost,
        end=info.end_reason,
        created=to_micros(info.created_at),
        leaf=archive.leaf_id,
        ends=ends,
    )


def _messages(messages: Sequence[ArchivedMessage]) -> Iterable[Line]:
    last_line: dict[str, str] = {}
    for message, parent_id, tokens in messages:
        last_line[message.id] = last_id(message)
        above = None if parent_id is None else last_line[parent_id]
        told = kinds.Told(tokens=tokens, parent=parent_id)
        yield from message_lines(message, encode(body_to_read(message)), told, above)


def _summaries(archive: Archive) -> Iterable[Line]:
    messages = {one.message.id: one for one in archive.messages}
    after: dict[str | None, str] = {}
    place = archive.leaf_id
    while place is not None:
        one = messages[place]
        after[one.parent_id] = first_id(one.message)
        place = one.parent_id
    for one in archive.overlays:
        payload = kinds.Summarised(start=one.from_id, end=one.to_id, tokens=one.tokens)
        yield from summary_lines(one.id, one.summary, one.at, payload, one.to_id, after.get(one.to_id))


def _context(archive: Archive, at: int) -> Iterable[Line]:
    for label, key, content, description, searchable in archive.entries:
        text = kinds.ContextWritten(
            label=label, key=key, content=content, description=description, searchable=searchable
        )
        yield fact(text, at)
    for label, key in archive.skills:
        yield fact(kinds.SkillLoaded(label=label, key=key), at)
    if archive.notices:
        yield fact(kinds.ReclaimedResults(results=[Reclaimed(*one, 0) for one in archive.notices]), at)
    if archive.prompt is not None:
        text, tokens, fingerprint = archive.prompt
        yield fact(kinds.Prompted(text=text, tokens=tokens, fingerprint=fingerprint), at)


def read_archive(
    restored: kinds.Restored, session_id: str, lines: Iterable[tuple[Entry, Payload, Draft | None]]
) -> Archive:
    """Return the archive that a batch tells; `lines` are those after the first, messages with their drafts."""
    created = from_micros(restored.created)
    info = SessionInfo(
        session_id,
        restored.name,
        restored.parent,
        restored.model,
        restored.source,
        restored.input,
        restored.output,
        restored.cost,
        restored.end,
        created,
        created,
    )
    archive = Archive(info, leaf_id=restored.leaf)
    prompt: ArchivedPrompt | None = None
    for entry, payload, draft in lines:
        match payload:
            case kinds.Told() if draft is not None:
                parent = payload.parent if isinstance(payload.parent, str) else None
                archive.messages.append(ArchivedMessage(draft.message, parent, draft.tokens))
            case kinds.Labelled(message=id, name=str(name)):
                archive.labels[id] = name
            case kinds.Summarised():
                overlay = entry.id, entry.summary or "", payload.start, payload.end, payload.tokens
                archive.overlays.append(ArchivedOverlay(*overlay, read_timestamp(entry.timestamp)))
            case kinds.ContextWritten(content=str(content)):
                text = payload.label, payload.key, content, payload.description, payload.searchable
                archive.entries.append(ArchivedEntry(*text))
            case kinds.SkillLoaded():
                archive.skills.append((payload.label, payload.key))
            case kinds.ReclaimedResults():
                archive.notices.extend(Notice(*one[:3]) for one in payload.results)
            case kinds.StateAttached(text=text):
                value = None if text is None else decode_body(text)
                archive.states.append(ArchivedState(payload.message, payload.name, value))
            case kinds.Used(id=str(id)):
                used = payload.model, payload.input, payload.output, payload.cost, payload.created or 0
                archive.usages.append(ArchivedUsage(id, *used))
            case kinds.Prompted():
                prompt = ArchivedPrompt(payload.text, payload.tokens, payload.fingerprint)
            case _:
                continue
    return replace(archive, prompt=prompt)
