"""Measures leafward beside the raw limit and beside its peers, and writes bench/RESULTS.md.

python bench/run.py                  everything, some twenty-five minutes
python bench/run.py --quick          a look in two to four minutes, printed
python bench/run.py --only W1,W5     some workloads, printed
python bench/run.py --only backends  every backend beside its driver, printed
python bench/run.py --only turns     an agent beside those of other libraries, in three minutes, printed
python bench/run.py --million        a store of 1,000,000 messages, written to bench/MILLION.md
python bench/run.py --against main   this tree and that commit in turns, three times, some fifteen minutes, printed;
                                     ends with 1 when a target row is more than 1.05x slower in each of the three
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import agent_states
import blocks
import compacting
import copying
import erasing
import footprint
import ladder
import million
import plot
import report
import searching
import writers
from against.runs import compare
from against.versions import NoSuchCommit, resolve
from backends import workload as backends
from backends.arena import KINDS, SERVERS, need_servers
from contenders import HERE, PEERS, ContenderFailed, install
from profiles import FULL, PAIRED, PAIRED_QUICK, QUICK
from setting import Setting
from turns import workload as turns

LADDER = frozenset({"W1", "W2", "W3"})
BACKENDS = {kind.upper(): kind for kind in KINDS}
ALL_BACKENDS = "BACKENDS"
OTHERS: dict[str, Callable[[Setting], None]] = {
    "W1C": compacting.appends,
    "W2C": compacting.histories,
    "W4": writers.run,
    "W5": searching.run,
    "W6": footprint.branch,
    "W6F": copying.run,
    "W7": footprint.imports,
    "W8": footprint.disk,
    "W9": blocks.run,
    "W10": erasing.run,
    "W11": agent_states.run,
    "TURNS": turns.run,
}
PLOT = "plot.svg"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--only", metavar="W1,W3", default="", help="only these workloads")
    parser.add_argument("--no-peers", action="store_true", help="only leafward and the raw limits")
    parser.add_argument("--million", action="store_true", help="only the store of 1,000,000 messages")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare this tree with a commit; takes --only, --quick, --out"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the report here")
    arguments = parser.parse_args()
    arguments.only = frozenset(arguments.only.upper().split(",")) - {""}
    if ALL_BACKENDS in arguments.only:
        arguments.only = arguments.only - {ALL_BACKENDS} | BACKENDS.keys()
    unknown = arguments.only - LADDER - OTHERS.keys() - BACKENDS.keys()
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    if arguments.out is not None and not arguments.out.parent.is_dir():
        parser.error(f"no such directory: {arguments.out.parent}")
    if arguments.against is not None:
        if arguments.million:
            parser.error("--against compares no store of a million messages: leave out --million")
        try:
            arguments.against = resolve(arguments.against)
        except NoSuchCommit as error:
            parser.error(str(error))
    return arguments


def _peers(setting: Setting) -> None:
    """Install the peers and note their versions, or that they are missing."""
    for peer in PEERS:
        setting.log(f"environment of {peer.title}")
        try:
            contender = install(peer)
        except ContenderFailed as failure:
            setting.log(f"  not available: {failure.text}")
            setting.absent.append(peer.title)
        else:
            setting.peers.append(contender)


def _measure(setting: Setting, only: frozenset[str]) -> None:
    wanted = only or LADDER | OTHERS.keys() | BACKENDS.keys()
    kinds = [kind for name, kind in BACKENDS.items() if name in wanted]
    if not SERVERS.isdisjoint(kinds):
        need_servers()
    if wanted & LADDER:
        ladder.run(setting, wanted & LADDER)
    for name, workload in OTHERS.items():
        if name in wanted:
            workload(setting)
    if kinds:
        backends.run(setting, kinds)


def _write(setting: Setting, out: Path, title: str) -> None:
    picture = None
    if setting.curves:
        picture = PLOT
        (out.parent / PLOT).write_text(plot.draw(setting.curves, setting.order), encoding="utf-8")
    out.write_text(report.write(setting, title=title, plot=picture), encoding="utf-8")
    setting.log(f"wrote {out.name}")


def main() -> int:
    """Run what was asked for; return 1 when another version was quicker at something."""
    arguments = _arguments()
    begin = time.monotonic()

    def log(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    # Not the system's temporary directory: that may be memory, where fsync costs nothing.
    home = HERE / ".work"
    home.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=home))
    setting = Setting(QUICK if arguments.quick else FULL, [], work, log, with_peers=not arguments.no_peers)
    try:
        if arguments.against is not None:
            return _compare(arguments, work, log)
        if arguments.million:
            million.run(setting, sessions=_million_sessions(arguments))
        else:
            if setting.with_peers and arguments.only != {"TURNS"}:
                _peers(setting)
            _measure(setting, arguments.only)
        _finish(setting, arguments)
    except ContenderFailed:
        for line in (work / "stderr.log").read_text(errors="replace").splitlines()[-20:]:
            log(f"  {line}")
        raise
    finally:
        shutil.rmtree(work)
    return 0


def _compare(arguments: argparse.Namespace, work: Path, log: Callable[[str], None]) -> int:
    """Compare this tree with a commit and print or write the report."""
    profile = PAIRED_QUICK if arguments.quick else PAIRED
    outcome = compare(arguments.against, arguments.only, profile=profile, work=work, log=log)
    if arguments.out is None:
        print(outcome.text)
    else:
        arguments.out.write_text(outcome.text, encoding="utf-8")
        log(f"wrote {arguments.out.name}")
    for row in outcome.slower:
        log(f"slower in each run: {row}")
    return 1 if outcome.slower else 0


def _million_sessions(arguments: argparse.Namespace) -> int:
    return 100 if arguments.quick else 1_000


def _finish(setting: Setting, arguments: argparse.Namespace) -> None:
    """Write the report of a whole run to its place, print that of a partial one."""
    title = "Benchmark results"
    if arguments.million:
        title = f"A store of {_million_sessions(arguments) * million.EACH:,} messages"
    out: Path | None = arguments.out
    if out is None and arguments.million and not arguments.quick:
        out = HERE / "MILLION.md"
    if out is None and not (arguments.quick or arguments.only or arguments.no_peers or arguments.million):
        out = HERE / "RESULTS.md"
    if out is None:
        print(report.write(setting, title=title, plot=None))
    else:
        _write(setting, out, title)


if __name__ == "__main__":
    sys.exit(main())
