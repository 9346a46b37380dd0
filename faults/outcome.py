"""What a scenario found: figures, broken promises, and what its controls did."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """The result of one scenario."""

    name: str
    promise: str
    figures: dict[str, str] = field(default_factory=dict[str, str])
    violations: list[str] = field(default_factory=list[str])
    controls: list[Control] = field(default_factory=list[Control])
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no promise was broken and every control was caught that must be."""
        return not self.violations and all(control.passed for control in self.controls)
