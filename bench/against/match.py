"""One run of both versions: the teams they are in, and how their figures reach the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from measure import Measured, Series, Team
from setting import Setting

from against.judging import Figure, Ledger, Row, ratio_of
from against.versions import NEW, OLD, Versions

ENOUGH = 40
"""Of fewer calls a percentile says nothing."""


@dataclass(frozen=True)
class Match:
    """What every workload is given."""

    setting: Setting
    versions: Versions
    ledger: Ledger

    def team(self, name: str, module: str, *arguments: str) -> Team:
        """Return both versions with fresh stores."""
        return self.setting.team_of(name, self.versions.contenders(module, *arguments))

    def log(self, text: str) -> None:
        """Report progress."""
        self.setting.log(text)

    def timed(self, workload: str, name: str, measured: Measured, *, judged: bool = True) -> None:
        """Add a row of times: the median over the rounds of new over old."""
        new, old = measured[NEW], measured.get(OLD)
        row = Row(workload, name, judged=judged)
        self.ledger.add(row, Figure(new.median, None, None) if old is None else _figure(new, old))

    def counted(
        self, workload: str, name: str, found: Mapping[str, float], *, unit: str = "", judged: bool = True
    ) -> None:
        """Add a row of one number for each version."""
        new, old = found[NEW], found.get(OLD)
        ratio = None if old is None else ratio_of(new, old)
        self.ledger.add(Row(workload, name, unit, judged), Figure(new, old, ratio))


def _figure(new: Series, old: Series) -> Figure:
    ratio = new.ratio(old)
    if min(new.count, old.count) < ENOUGH:
        return Figure(new.median, old.median, ratio)
    return Figure(new.median, old.median, ratio, (new.late, old.late), (new.longest, old.longest))
