"""An append below the leaf of a session that is not in memory: the server knows the head, and writes the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leafward.core.attached_state import AttachedState, digest
from leafward.core.json import encode
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.times import from_micros
from leafward.stores.contracts import Appended, Usage, Weight
from leafward.stores.journal import records
from leafward.stores.journal.entry import StateAttached
from leafward.stores.journal.open_lines import Gap, OpenLine, open_line
from leafward.stores.journal.telling import fact
from leafward.stores.sql.commands import Append

MOST_MESSAGES = 1000
"""More are appended by one who has the session in memory: a server should not be busy for long."""


class StepState(NamedTuple):
    """A state to be attached, unless one of the same digest is in force."""

    state: AttachedState
    digest: str | None
    line: OpenLine


class Step(NamedTuple):
    """Messages, states and usage on their way to the leaf of a session."""

    at: int
    updated_at: bytes
    """The same time as JSON, as the list of sessions has it."""
    parent: ParentId
    """Where the leaf must be; `LATEST_LEAF` when it may be anywhere."""
    expected_version: int | None
    needs_window: bool
    """Whether the tokens of the history have to be known."""
    ids: Sequence[str]
    """New messages: none of them may be there."""
    tokens: int
    lines: Sequence[OpenLine]
    last_line_id: str | None
    states: Sequence[StepState]
    usage: Usage | None
    usage_line: OpenLine | None


class Stepped(NamedTuple):
    """What a server did of a step: all, or what was not needed is left out."""

    version: int
    window: int | None
    prompt: int | None
    leaf_id: str | None
    written: Sequence[int]
    """Which of the states were attached, by their numbers."""
    counted: bool


class NotStepped(NamedTuple):
    """A step that was not done: the head is not known, or it does not end where the step expects it."""

    is_new: bool = False
    """There is no such session."""
    another: bool = False
    """Another writer has the next turn: ask again."""


def can_be_step(command: Append) -> bool:
    """Whether a server may do it: known messages, and usage by itself, are left to one who reads the session."""
    ids = [draft.message.id for draft in command.drafts]
    if len(set(ids)) < len(ids) or len(ids) > MOST_MESSAGES or command.parent is None:
        return False
    return bool(ids) or (bool(command.state) and command.usage is None)


def make_step(command: Append, at: int) -> Step:
    """Return an append as a server takes it."""
    told = records.append_lines(command.drafts)
    last_line_id = told[-1][0].id if told else None
    lines = [open_line(line, Gap.NOTHING if number else Gap.PARENT) for number, line in enumerate(told)]
    attached_to = command.drafts[-1].message.id if command.drafts else None
    gap = Gap.NOTHING if command.drafts else Gap.MESSAGE
    states = [
        StepState(one, digest(one.text), open_line(fact(StateAttached.of(attached_to, *one), at), gap))
        for one in command.attached
    ]
    usage = command.usage
    return Step(
        at=at,
        updated_at=encode(from_micros(at)),
        parent=command.parent,
        expected_version=command.expected_version,
        needs_window=command.weigh and bool(command.drafts),
        ids=[draft.message.id for draft in command.drafts],
        tokens=command.tokens,
        lines=lines,
        last_line_id=last_line_id,
        states=states,
        usage=usage,
        usage_line=None if usage is None else open_line(records.usage_line(usage, at)),
    )


def result_of(command: Append, done: Stepped) -> Appended:
    """Return what the caller of an append gets."""
    messages = [draft.message for draft in command.drafts]
    weight = None
    if command.weigh and messages and done.window is not None:
        weight = Weight(done.window, done.prompt)
    states = [command.attached[number] for number in done.written] if command.state else ()
    return Appended(
        messages,
        len(messages),
        weight,
        version=done.version,
        states=states,
        attached_to=messages[-1].id if messages else done.leaf_id,
        counted=done.counted,
    )


def is_below(parent: ParentId, leaf_id: str | None) -> bool:
    """Whether what goes below `parent` goes below the leaf."""
    return parent is LATEST_LEAF or parent == leaf_id
