"""Where a history may be cut: never between a tool call and its result, never across a call that is still running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import cast

from leafward.core.message import Message
from leafward.core.parts import Part, answered_ids, called_ids, is_ui_tool

_SETTLED = frozenset({"output-available", "output-error", "output-denied"})


def is_settled(part: Part) -> bool:
    """Tell whether an AI SDK tool part has come to its end: a result, an error or a refusal."""
    return part.get("state") in _SETTLED or "output" in part or "result" in part


def is_running(part: Part) -> bool:
    """Tell a `tool_result` that only stands in for the one to come (AgentScope's external execution)."""
    return part.get("state") == "running"


@dataclass(frozen=True, slots=True)
class Cuts:
    """The places where a history may be cut; place `n` is just before message `n`."""

    _free: Sequence[bool]
    pending: int
    """Where the messages begin that the next step of the conversation needs; its length when there are none."""

    @classmethod
    def of(cls, messages: Sequence[Message], joined: Iterable[tuple[int, int]] = ()) -> Cuts:
        """Find the cuts of a history; `joined` names more messages that belong together."""
        tools = _Tools()
        for message in messages:
            tools.read(message)
        # How many pairs each place would part: one more behind a call, one less behind its result.
        steps = [0] * (len(messages) + 2)
        for first, last in (*tools.pairs, *joined):
            steps[first + 1] += 1
            steps[last + 1] -= 1
        return cls([parted == 0 for parted in accumulate(steps[:-1])], tools.pending())

    def at_or_before(self, place: int) -> int:
        """Return the last cut that is not behind `place`; a history may always be cut before its first message."""
        return next(cut for cut in range(place, -1, -1) if self._free[cut])

    def at_or_after(self, place: int) -> int:
        """Return the first cut that is not before `place`; a history may always be cut behind its last message."""
        return next(cut for cut in range(place, len(self._free)) if self._free[cut])


@dataclass(slots=True)
class _Tools:
    """Pairs calls with results while a history is read.

    Some models use an id again and again, so a result belongs to the nearest earlier call of its id that has none; a
    second result of a call belongs to it too.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _open: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _latest: dict[str, int] = field(default_factory=dict[str, int])
    _read: int = 0
    _step: int = -1
    """The last message that is more than results."""

    def read(self, message: Message) -> None:
        for part in message.parts:
            if not self._answers(part):
                self._step = self._read
        self._read += 1

    def pending(self) -> int:
        """Return where the last step begins if it waits for a result, else the number of messages.

        A call that the conversation went on without, as after a crash, is waited for by nobody.
        """
        waits = any(self._step in calls for calls in self._open.values())
        return self._step if waits else self._read

    def _answers(self, part: Part) -> bool:
        """Take in a part; tell whether it is nothing but the result of a call in some message."""
        if is_ui_tool(part):
            return self._ui_answers(part)
        for called in called_ids([part]):
            self._call(called)
        for answered in answered_ids([part]):
            self._result(answered, final=not is_running(part))
        return part["type"] == "tool_result"

    def _ui_answers(self, part: Part) -> bool:
        # Such a part is call and result in one, unless an earlier part has the same call without its result.
        call_id = cast(object, part["toolCallId"])
        if not isinstance(call_id, str):
            return False
        if self._open.get(call_id):
            self._result(call_id, final=is_settled(part))
            return True
        if not is_settled(part):
            self._call(call_id)
        return False

    def _call(self, call_id: str) -> None:
        self._open.setdefault(call_id, []).append(self._read)
        self._latest[call_id] = self._read

    def _result(self, call_id: str, *, final: bool) -> None:
        waiting = self._open.get(call_id)
        call = waiting[-1] if waiting else self._latest.get(call_id)
        if call is None:
            return
        self.pairs.append((call, self._read))
        if waiting and final:
            waiting.pop()
