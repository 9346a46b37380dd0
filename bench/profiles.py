"""How much is measured: a quick look, the whole, or two versions beside each other."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Backends:
    """Sizes and repetitions on each backend."""

    sizes: tuple[int, ...] = (100, 10_000)
    reads: tuple[int, ...] = (1_000, 10_000)
    rounds: int = 6
    calls: int = 30
    read_rounds: int = 5
    resume_rounds: int = 7
    tasks: int = 32
    each: int = 20
    search_rounds: int = 5
    owned: int = 20
    owned_each: int = 1_000
    handovers: int = 9
    lists: tuple[int, ...] = (10, 10_000)
    states: int = 10_000
    """States that are attached to messages of one session."""


@dataclass(frozen=True)
class Profile:
    """Sizes and repetitions of every workload; times are seconds."""

    name: str
    sizes: tuple[int, ...]
    append_rounds: int
    appends: int
    read_rounds: int
    resume_rounds: int
    peer_resume_rounds: int
    fill_cap: float
    batch_budget: float
    warm_budget: float
    sessions: int
    spread_rounds: int
    spread_budget: float
    search_sessions: int
    search_each: int
    search_rounds: int
    import_size: int
    wait_budget: float
    branch_sizes: tuple[int, ...]
    branch_rounds: int
    import_rounds: int
    disk_sizes: tuple[int, ...]
    disk_cap: float
    compacted_size: int
    overlays: tuple[int, ...]
    block_sizes: tuple[int, int]
    erased_size: int
    erasures: int
    state_size: int
    state_rounds: int
    state_calls: int
    turn_rounds: int
    turns: int
    crowd: int
    idle: int
    backends: Backends


FULL = Profile(
    name="full",
    sizes=(10, 100, 1_000, 10_000, 100_000),
    append_rounds=15,
    appends=20,
    read_rounds=7,
    resume_rounds=11,
    peer_resume_rounds=3,
    fill_cap=30,
    batch_budget=0.5,
    warm_budget=1.0,
    sessions=1_000,
    spread_rounds=3,
    spread_budget=10,
    search_sessions=100,
    search_each=1_000,
    search_rounds=9,
    import_size=30_000,
    wait_budget=5,
    branch_sizes=(1_000, 10_000),
    branch_rounds=7,
    import_rounds=3,
    disk_sizes=(1_000, 10_000),
    disk_cap=25,
    compacted_size=100_000,
    overlays=(1, 10, 250, 1_000),
    block_sizes=(1_000, 10_000),
    erased_size=30_000,
    erasures=3,
    state_size=1_000,
    state_rounds=11,
    state_calls=20,
    turn_rounds=5,
    turns=40,
    crowd=1_000,
    idle=1_000,
    backends=Backends(),
)

QUICK = Profile(
    name="quick",
    sizes=(10, 100, 1_000, 10_000),
    append_rounds=6,
    appends=12,
    read_rounds=3,
    resume_rounds=5,
    peer_resume_rounds=1,
    fill_cap=3,
    batch_budget=0.2,
    warm_budget=0.5,
    sessions=100,
    spread_rounds=1,
    spread_budget=1,
    search_sessions=20,
    search_each=500,
    search_rounds=5,
    import_size=2_000,
    wait_budget=2,
    branch_sizes=(1_000,),
    branch_rounds=3,
    import_rounds=3,
    disk_sizes=(1_000,),
    disk_cap=5,
    compacted_size=10_000,
    overlays=(1, 10, 250),
    block_sizes=(1_000, 2_000),
    erased_size=3_000,
    erasures=2,
    state_size=1_000,
    state_rounds=5,
    state_calls=8,
    turn_rounds=3,
    turns=16,
    crowd=200,
    idle=200,
    backends=Backends(
        sizes=(100, 1_000),
        reads=(1_000,),
        rounds=3,
        calls=10,
        read_rounds=3,
        resume_rounds=3,
        each=5,
        search_rounds=3,
        owned=4,
        owned_each=250,
        handovers=3,
        lists=(10, 1_000),
        states=500,
    ),
)

# Two versions differ by little: many short rounds, and nothing that only a slow contender needs.
PAIRED = replace(
    FULL,
    name="paired",
    sizes=(100, 1_000, 10_000),
    append_rounds=50,
    appends=5,
    read_rounds=15,
    resume_rounds=41,
    sessions=40,
    spread_rounds=5,
    search_sessions=10,
    search_rounds=15,
    import_size=3_000,
    wait_budget=1,
    branch_sizes=(1_000, 3_000),
    branch_rounds=11,
    import_rounds=21,
    disk_sizes=(1_000, 3_000),
    compacted_size=3_000,
    overlays=(1, 100),
    block_sizes=(1_000, 2_000),
    erased_size=1_000,
    erasures=2,
    backends=replace(
        FULL.backends,
        sizes=(100, 2_000),
        reads=(1_000,),
        rounds=15,
        calls=5,
        read_rounds=15,
        each=3,
        lists=(10, 1_000),
        states=500,
    ),
)

PAIRED_QUICK = replace(
    PAIRED,
    name="paired, quick",
    sizes=(100, 1_000),
    append_rounds=25,
    read_rounds=11,
    resume_rounds=5,
    spread_rounds=3,
    search_sessions=4,
    search_rounds=11,
    import_size=1_000,
    branch_sizes=(1_000,),
    branch_rounds=9,
    import_rounds=11,
    disk_sizes=(1_000,),
    compacted_size=2_000,
    overlays=(1, 20),
    block_sizes=(1_000, 1_000),
    backends=replace(PAIRED.backends, sizes=(100, 1_000), rounds=9, read_rounds=7),
)
