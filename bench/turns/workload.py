"""The turns workload: an agent's call beside those of other libraries, and what it costs store, memory and stream."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from backends.arena import SERVERS, need_servers, place
from contenders import LEAFWARD, Contender, ContenderFailed, Peer, install, local
from measure import Measured, Series, Team
from setting import Setting
from tables import NOTHING, Section, duration, times

from turns.costs import KINDS, LENGTHS, TABLE, Costs, bytes_of_a_call, count
from turns.layer_costs import HOOKS, MIDDLEWARES
from turns.tool_costs import SLOWEST_S

ROUNDS = (0, 10)
OURS = local(LEAFWARD, "turns.ours")
OPENAI = Peer(
    "openai-agents, SQLiteSession",
    "peers.openai_agents_loop",
    ("openai-agents==0.24.0",),
    "from agents import Runner, SQLiteSession",
)
PYDANTIC = Peer(
    "pydantic-ai",
    "peers.pydantic_ai_loop",
    ("pydantic-ai-slim==2.62.0", "pydantic-ai-harness==0.62.0"),
    "from pydantic_ai import Agent",
)
VARIANTS = {"rows": "pydantic-ai, one row per run", "steps": "pydantic-ai, StepPersistence"}


def run(setting: Setting) -> None:
    """Measure turns and add the sections."""
    _loops(setting, [OURS, *_installed(setting)])
    _costs(setting)


def _installed(setting: Setting) -> list[Contender]:
    """Return the loops of other libraries, unless this run leaves out peers."""
    found: list[Contender] = []
    for peer in (OPENAI, PYDANTIC) if setting.with_peers else ():
        setting.log(f"environment of {peer.title}")
        try:
            contender = install(peer)
        except ContenderFailed as failure:
            setting.log(f"  not available: {failure.text}")
            setting.absent.append(peer.title)
            continue
        if peer is PYDANTIC:
            found += [
                replace(contender, title=title, command=(*contender.command, variant))
                for variant, title in VARIANTS.items()
            ]
        else:
            found.append(contender)
    return found


def _loops(setting: Setting, contenders: list[Contender]) -> None:
    profile = setting.profile
    setting.log("turns: calls")
    measured: dict[int, Measured] = {}
    with setting.team_of("turns", contenders) as team:
        for rounds in ROUNDS:
            team.interleave(1, "call", tool_rounds=rounds, times=8)
            measured[rounds] = team.interleave(
                profile.turn_rounds, "call", tool_rounds=rounds, times=profile.turns // (4 if rounds else 1)
            )
        _tell_loops(setting, measured, {one.title: one.version for one in contenders})
        setting.log("turns: streams, crowds, idle sessions")
        _tell_alone(setting, team)


def _tell_loops(setting: Setting, measured: dict[int, Measured], versions: dict[str, str]) -> None:
    section = Section(
        "Turns: what an agent adds to its model and tools",
        "One agent with one async tool on SQLite, and a model that answers at once, in conversations of at most eight "
        "calls. A round is a tenth of what ten rounds of tools add to a call. leafward stores each step before the "
        "next begins, under a lease; the others write when a run has ended, StepPersistence after each round.",
        ["", "a call", "95 of 100 within", "times leafward's", "a round of tools", "times leafward's"],
    )
    alone, many = (measured[rounds] for rounds in ROUNDS)
    for title, series in alone.items():
        name = f"{title} ({versions[title]})" if versions[title] else title
        section.rows.append(
            [
                name,
                duration(series.median),
                duration(series.late),
                times(series.ratio(alone[LEAFWARD])),
                duration(_per_round(series, many[title])) if title in many else NOTHING,
                times(_per_round(series, many[title]) / _per_round(alone[LEAFWARD], many[LEAFWARD]))
                if title in many
                else NOTHING,
            ]
        )
        if title != LEAFWARD and title in many:
            rounds = _per_round(alone[LEAFWARD], many[LEAFWARD]) / _per_round(series, many[title])
            for fact, ratio in (("call", alone[LEAFWARD].ratio(series)), ("round", rounds)):
                key = f"turns {fact} over peers"
                setting.facts[key] = max(setting.facts.get(key, 0.0), ratio)
    setting.sections.append(section)


def _per_round(alone: Series, many: Series) -> float:
    return (many.median - alone.median) / ROUNDS[1]


def _tell_alone(setting: Setting, team: Team) -> None:
    profile = setting.profile

    def ask(what: str, **arguments: Any) -> Any:
        reply = team.ask(LEAFWARD, "measure", what=what, arguments=arguments)
        assert reply is not None
        return reply["found"]

    chunks = [ask("chunks", pieces=20_000) for _ in range(profile.turn_rounds)]
    ratio = statistics.median(one["agent"] / one["bare"] for one in chunks)
    agent, bare, once = (statistics.median(one[name] for one in chunks) for name in ("agent", "bare", "once"))
    read = [ask("sdk_chunks", pieces=5_000) for _ in range(profile.turn_rounds)]
    sdk, model = (statistics.median(one[name] for one in read) for name in ("sdk", "model"))
    sdk_ratio = statistics.median(one["model"] / one["sdk"] for one in read)
    layered = [ask("layer_chunks", pieces=20_000) for _ in range(profile.turn_rounds)]
    one_middleware, one_hook = (statistics.median(one[name] for one in layered) for name in ("middleware", "hook"))
    calls = {rounds: ask("layers", rounds=rounds, times=profile.turns * profile.turn_rounds) for rounds in ROUNDS}
    queue = statistics.median(ask("queue", turns=20_000) for _ in range(profile.turn_rounds))
    ten = ask("tools_at_once", calls=profile.turn_rounds)
    ten_ratio = ten["call"] / (SLOWEST_S + ten["commits"])
    large = ask("large_result", megabytes=100)
    schemas = statistics.median(ask("schemas", functions=100) for _ in range(profile.turn_rounds))
    rules = statistics.median(ask("permissions", rules=1_000) for _ in range(profile.turn_rounds))
    crowd = ask("crowd", sessions=profile.crowd)
    idle = ask("idle", sessions=profile.idle)
    section = Section(
        "Turns: streams, crowds, idle sessions",
        "The bare chain is the same model read through three async generators that pass its events on, as an agent, "
        "its turn and its call of the model usually are; one is the least that an agent can be. OpenAI's SDK reads "
        "its stream from memory, not from a network. The crowd has one round of tools in each session, all at once "
        "on one agent; its memory is the most that Python's objects took. "
        "The local queue is a turn that nobody waits for, without a lease. Idle sessions were served, and the agent's "
        "cache is full.",
        ["", "measured"],
    )
    section.rows += [
        ["one piece of a stream, through one generator", f"{once:,.0f} ns"],
        ["one piece of a stream, through the bare chain", f"{bare:,.0f} ns"],
        ["one piece of a stream, through an agent", f"{agent:,.0f} ns ({times(ratio)})"],
        ["one piece of a stream of OpenAI's SDK", f"{sdk / 1_000:,.1f} µs"],
        ["the same through OpenAIChatModel", f"{model / 1_000:,.1f} µs ({times(sdk_ratio)})"],
        ["what one middleware that passes pieces on adds to a piece", f"{one_middleware:,.0f} ns"],
        ["what one hook that is called for pieces adds to a piece", f"{one_hook:,.0f} ns"],
        *(
            [
                f"a call with {rounds} rounds of tools, {MIDDLEWARES} middlewares at all points and {HOOKS} hooks",
                f"{duration(one['layers'] * 1e9)} ({times(one['layers'] / one['alone'])} that of the agent alone)",
            ]
            for rounds, one in calls.items()
        ),
        ["a turn of the local queue", f"{queue / 1_000:.1f} µs"],
        ["a call with ten tools at once, the slowest of 100 ms", f"{ten['call'] * 1_000:,.1f} ms"],
        ["the slowest, and as many commits one after the other", f"{(SLOWEST_S + ten['commits']) * 1_000:,.1f} ms"],
        ["memory at the most for a result of 100 MB, the result included", f"{large:.2f} times the result"],
        ["100 functions become tools", f"{schemas:.1f} ms"],
        ["a call is decided by 1,000 rules for its tool", f"{rules:.1f} µs"],
        ["calls per second, one after the other", f"{crowd['alone']:,.0f}"],
        [f"calls per second, {profile.crowd:,} sessions at once", f"{crowd['at once']:,.0f}"],
        ["memory of each of them at the most", f"{crowd['most'] / 1_000:,.1f} KB"],
        ["memory of an idle session", f"{idle:,.0f} bytes"],
    ]
    setting.sections.append(section)
    setting.facts["turns chunk ratio"] = ratio
    setting.facts["turns SDK chunk ratio"] = sdk_ratio
    setting.facts["turns middleware us"] = one_middleware / 1_000
    setting.facts["turns hook us"] = one_hook / 1_000
    setting.facts["turns call with layers"] = max(one["layers"] / one["alone"] for one in calls.values())
    setting.facts["turns queue us"] = queue / 1_000
    setting.facts["turns ten tools"] = ten_ratio
    setting.facts["turns large result"] = large
    setting.facts["turns schemas ms"] = schemas
    setting.facts["turns rules us"] = rules
    setting.facts["turns crowd over alone"] = crowd["at once"] / crowd["alone"]
    setting.facts["turns idle MB"] = idle * 10_000 / 1e6


def _costs(setting: Setting) -> None:
    need_servers()
    section = Section(
        "Turns: what a call costs its store",
        "On a server round trips before the reply, questions beside each other being one; on a disk flushes: commits "
        "that wait for it, and files and directories that are synced. In brackets what the design sets. Bytes are what "
        f"a call with a round of tools adds to the journal in sessions of {LENGTHS[0]:,} and {LENGTHS[1]:,} "
        "messages, without the slot, which is written once per call.",
        ["", "a call", "a session's first call", "a round of tools", *(f"bytes, N = {length:,}" for length in LENGTHS)],
    )
    for kind in KINDS:
        setting.log(f"turns: costs on {kind}")
        with ExitStack() as stack:
            if kind in SERVERS:
                path = stack.enter_context(place(setting, kind))
            else:
                directory = setting.work / "turn-costs" / kind
                directory.mkdir(parents=True)
                path = str(directory)
            found = count(kind, path)
            sizes = bytes_of_a_call(path) if kind == "file" else {}
        _note(setting, kind, found, sizes)
        cells = [f"{one} ({wanted})" for one, wanted in zip(found, TABLE[kind], strict=True)]
        section.rows.append([kind, *cells, *(f"{sizes[length]:,}" if sizes else NOTHING for length in LENGTHS)])
    setting.sections.append(section)


def _note(setting: Setting, kind: str, found: Costs, sizes: dict[int, int]) -> None:
    for name, one in found._asdict().items():
        setting.facts[f"turns {kind} {name}"] = one
    if sizes:
        setting.facts[f"turns {kind} bytes"] = sizes[LENGTHS[1]] - sizes[LENGTHS[0]]
