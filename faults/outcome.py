"""What a scenario found: figures, broken promises, and what its controls did."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

PROMISES: Mapping[str, str] = {
    "kill": "After SIGKILL of the writer every acknowledged message is there, exact, in its place and found by "
    "search; a retry with the same ids stores nothing twice.",
    "server kill": "After SIGKILL of the server and its restart the same holds; the writer lives on, goes on by "
    "itself, or settles by repeating the call that failed.",
    "lost replies": "A call whose request or reply is lost on the way has one effect and returns what is stored, or "
    "raises `OutcomeUnknown` or another `StoreError`, and the same call settles it.",
    "contention": "Several writers append to one session: one unbroken chain, each writer's order kept, no errors, "
    "nobody's share below a quarter of the fair one; a listener hears each change once, in order.",
    "fencing": "Holders of a lease are stopped beyond its end or killed: no write of a smaller token is stored after "
    "one of a larger token, and each write of a stale holder is refused with `LeaseLost`.",
    "cancel": "A cancelled append is stored or absent, and that is settled when the error arrives; one that returned "
    "is stored; the next call works.",
    "states": "After SIGKILL of who saves a list of states there is the acknowledged list, or the one that was being "
    "saved, and never a mixture; so is a value saved beside it.",
    "steps": "After SIGKILL of the writer of an agent's steps (messages, attached states and usage in one commit) each "
    "step is stored as a whole or not at all; one done again with the same ids changes nothing.",
    "turns": "After SIGKILL of a process in an agent's turn the next one goes on: no model is asked with calls without "
    "results, no tool runs twice unless it allows that, no acknowledged message is lost, and the conversation ends "
    "as if undisturbed, but for results reported as unknown; a holder that slept too long stores nothing.",
    "disk full": "A full disk is reported as `StorageFull`, nothing acknowledged is lost, nothing refused is stored, "
    "and the same store goes on once there is room.",
}
"""What each scenario holds a backend to."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """A run with something broken on purpose; `must_fail` says whether the judge has to catch it."""

    name: str
    caught: bool
    detail: str
    must_fail: bool = True

    @property
    def passed(self) -> bool:
        """Whether the control did what it must."""
        return self.caught or not self.must_fail


@dataclass
class Outcome:
    """The result of one scenario on one backend."""

    name: str
    backend: str
    figures: dict[str, str] = field(default_factory=dict[str, str])
    violations: list[str] = field(default_factory=list[str])
    controls: list[Control] = field(default_factory=list[Control])
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no promise was broken and every control was caught that must be."""
        return not self.violations and all(control.passed for control in self.controls)

    @classmethod
    @contextmanager
    def of(cls, name: str, backend: str) -> Iterator[Outcome]:
        """Give an outcome to be filled in, and note how long that took."""
        outcome = cls(name, backend)
        started = time.monotonic()
        yield outcome
        outcome.seconds = time.monotonic() - started


def caught(name: str, findings: Sequence[object]) -> Control:
    """Return the control that must have been caught, by what the judge found."""
    return Control(
        name=name,
        caught=bool(findings),
        detail=f"caught: {findings[0]}"[:160] if findings else "not caught",
    )
