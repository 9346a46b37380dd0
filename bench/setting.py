"""What every workload is given: who takes part, how much to do, where, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contenders import COPY, FILE, FTS, FTS_BLOCK, HOP, LEAFWARD, RAW, Contender, local
from measure import Measured, Team
from profiles import Profile
from tables import Section

OURS = local(LEAFWARD, "ours")
LIMIT = local(RAW, "raw")
FILE_LIMIT = local(FILE, "file_log")
HOP_LIMIT = local(HOP, "threaded")
FTS_LIMIT = local(FTS, "fts")
COPY_LIMIT = local(COPY, "raw_copy")
OUR_BLOCK = local(LEAFWARD, "ours_block")
BLOCK_LIMIT = local(FTS_BLOCK, "fts_block")


@dataclass
class Setting:
    """One run of the bench."""

    profile: Profile
    peers: list[Contender]
    work: Path
    log: Callable[[str], None]
    with_peers: bool = True
    sections: list[Section] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)
    curves: dict[int, Measured] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def order(self) -> list[str]:
        """The order of rows in every table."""
        return [RAW, FILE, HOP, LEAFWARD, *(peer.title for peer in self.peers)]

    def team(self, name: str, *, file: bool = False) -> Team:
        """Return everybody: the limits, leafward and the peers."""
        limits = [LIMIT, FILE_LIMIT, HOP_LIMIT] if file else [LIMIT]
        return self.team_of(name, [*limits, OURS, *self.peers])

    def team_of(self, name: str, contenders: list[Contender], *, opened: bool = True) -> Team:
        """Return some contenders with fresh stores under a name of their own."""
        return Team(contenders, self.work / name, log=self.log, opened=opened)
