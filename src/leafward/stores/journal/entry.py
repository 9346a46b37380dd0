"""One line of a journal: an entry of AgentScope's session tree, and under `leafward` what we must add to it.

Each type of line has its payload. What is unset is not written, so that a line holds nothing but facts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, json

from leafward.core.errors import StoreError
from leafward.core.notices import Reclaimed

FORMAT = 1
"""The number of this format; a journal says in its first line which one it is in."""

NOTHING = Raw()
"""Stands where a line has no such key."""


class Entry(Struct, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """A line as a value, with the keys of AgentScope in its order."""

    type: str
    id: str = ""
    parent_id: str | None = None
    timestamp: Raw
    role: str | None = None
    content: str | None = None
    tool_call_id: str | None = None
    block_types: list[str] | None = None
    name: str | None = None
    input: Raw = NOTHING
    output: str | None = None
    output_block_types: list[str] | None = None
    truncated: bool | None = None
    original_size: int | None = None
    first_kept_entry_id: str | None = None
    summary_entry_id: str | None = None
    summary: str | None = None
    format: str | None = None
    leafward: Raw = NOTHING


class Payload(Struct, omit_defaults=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What every line may say: when its batch happened, if it is the first, and how many lines of it follow."""

    kind: ClassVar[str] = ""
    at: int | None = None
    more: int = 0


class Mark(Struct, gc=False):
    """What tells how lines belong together, read from any payload."""

    at: int | None = None
    more: int = 0


class Header(Payload):
    """Whose journal it is; a journal that was made anew under the same name has another incarnation."""

    kind = "session"
    format: int
    agent: str
    user: str | None
    incarnation: str


class SharedHeader(Header):
    """The same of the journal that all sessions of an owner share."""

    kind = "shared"


class Told(Payload):
    """The first line of a message: what its AgentScope entries do not hold."""

    kind = "message"
    tokens: int
    message: str | None = None
    """Its id, where the entry has another."""
    role: str | None = None
    """Its role, where the entry's cannot be turned back into it."""
    parent: str | UnsetType | None = UNSET
    """Unset: below what was the leaf, or below the message before it in the batch."""
    below: str | None = None
    """A message that was stored before, and below which this one goes on."""
    body: Raw = NOTHING
    """The body byte for byte, unless it is one text part that the entry's content tells."""


class Derived(Payload):
    """A further line of a message, which repeats in AgentScope's way what the first one holds."""

    kind = "derived"


class Updated(Payload):
    kind = "update"
    message: str
    role: str
    tokens: int
    body: Raw


class Deleted(Payload):
    kind = "delete"
    messages: list[str]


class Cleared(Payload):
    kind = "clear"


class CheckedOut(Payload):
    kind = "checkout"
    message: str | None


class Labelled(Payload):
    kind = "label"
    message: str
    name: str | None


class StateAttached(Payload):
    """A state attached to a message, or to the root; `null` in place of a value: it was removed there."""

    kind = "state"
    message: str | None
    name: str
    value: Raw

    @classmethod
    def of(cls, message_id: str | None, name: str, text: str | None) -> StateAttached:
        return cls(message=message_id, name=name, value=Raw("null" if text is None else text))

    @property
    def text(self) -> str | None:
        text = str(self.value, "utf-8")
        return None if text == "null" else text


class Summarised(Payload, rename={"start": "from", "end": "to"}):
    """Beside a `summary`: between which messages it stands."""

    kind = "summary"
    start: str
    end: str
    tokens: int


class ReclaimedResults(Payload):
    kind = "reclaim"
    results: list[Reclaimed]


class ContextWritten(Payload):
    """A text of the session's own; without content it was removed."""

    kind = "context"
    label: str
    key: str
    content: str | None = None
    description: str | None = None
    searchable: bool = False


class SharedWritten(Payload):
    """A text that all sessions share, and the change of the session that wrote it."""

    kind = "shared_context"
    session: str
    version: int
    label: str
    key: str
    content: str | None = None
    description: str | None = None
    searchable: bool = False


class Noted(Payload):
    """The session wrote to a shared text, which only moves its version."""

    kind = "shared_change"
    label: str


class SkillLoaded(Payload):
    kind = "skill"
    label: str
    key: str


class SkillUnloaded(Payload):
    kind = "skill_unloaded"
    label: str
    key: str
    results: list[Reclaimed] = []


class Prompted(Payload):
    kind = "prompt"
    text: str
    tokens: int
    fingerprint: str


class Created(Payload):
    """The session came into being; without a name it did so by a write that held nothing."""

    kind = "create"
    name: str | None = None
    parent: str | None = None
    model: str | None = None
    source: str | None = None


class Renamed(Payload):
    kind = "rename"
    name: str


class Used(Payload):
    kind = "usage"
    input: int
    output: int
    cost: float
    model: str | None = None
    id: str | None = None
    """The name by which it is counted once."""
    created: int | None = None
    """When it was counted, in a session that was restored: there the totals stand in its first line."""
    beside: bool = False
    """Counted in one step with other lines of its batch, where a version that does not know the key would skip it."""


class Ended(Payload):
    kind = "end"
    reason: str


class Restored(Payload):
    """The first line of a session that was brought into being whole: forked, split off or imported."""

    kind = "restore"
    name: str
    created: int
    parent: str | None = None
    model: str | None = None
    source: str | None = None
    input: int = 0
    output: int = 0
    cost: float = 0.0
    end: str | None = None
    leaf: str | None = None
    ends: str | None = None
    """The session that ended when this one, its continuation, began."""


PAYLOADS: dict[str, type[Payload]] = {
    one.kind: one
    for one in (
        *(Header, SharedHeader, Told, Updated, Deleted, Cleared, CheckedOut, Labelled, Summarised, ReclaimedResults),
        *(StateAttached, ContextWritten, SharedWritten, Noted, SkillLoaded, SkillUnloaded, Prompted),
        *(Created, Renamed, Used, Ended, Restored),
    )
}
DERIVED = frozenset({"message", "tool_use", "tool_result", "compaction"})
"""The types of lines that may repeat what an earlier line of their batch holds."""


def payload_of(entry: Entry) -> Payload:
    """Return what a line says beside its AgentScope entry.

    Raises:
        StoreError: a newer leafward wrote it.
    """
    kind = Told if entry.type in ("tool_use", "tool_result") else PAYLOADS.get(entry.type)
    if entry.type in DERIVED and _repeats(entry):
        kind = Derived
    if kind is None:
        raise newer(f"it has a line of type {entry.type!r}")
    try:
        payload = json.decode(bytes(entry.leafward) or b"{}", type=kind)
    except (DecodeError, TypeError) as error:
        raise newer(f"a line of type {entry.type!r} says more than is known: {error}") from error
    if isinstance(payload, Header) and payload.format > FORMAT:
        raise newer(f"its format is {payload.format}, this one knows {FORMAT}")
    return payload


def _repeats(entry: Entry) -> bool:
    return not bytes(entry.leafward) or json.decode(entry.leafward, type=dict[str, Raw]).keys() <= {"more"}


def newer(why: str) -> StoreError:
    """Say that a journal tells more than this version can read."""
    return StoreError(f"the journal was written by a newer leafward ({why}): upgrade leafward; it was not touched")


@lru_cache(maxsize=64)
def timestamp(at: int) -> Raw:
    """Return a time as AgentScope writes it: seconds since 1970 with nine decimals."""
    seconds, micros = divmod(abs(at), 1_000_000)
    return Raw(f"{'-' if at < 0 else ''}{seconds}.{micros:06d}000".encode())


def read_timestamp(written: Raw) -> int:
    """Return the microseconds of a time that `timestamp` wrote."""
    seconds, _, decimals = bytes(written).partition(b".")
    return int(seconds + decimals[:6])
