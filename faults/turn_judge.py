"""The judge of an agent's turns: what is stored of a conversation, compared with what was done and acknowledged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.kitchen import AGENT, MOST_RUNS, PROBED, STOPPED, TIMED, UNDECLARED, unpaired
from leafward import Message, Session, SessionKey
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, Result, pair
from leafward.core.ids import Scope
from leafward.engine.call_results import OUTCOME
from leafward.engine.context_view import render
from leafward.engine.summary_messages import SUMMARY_NAME
from leafward.stores import Store

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stored:
    """What a store holds of one conversation."""

    history: list[Message]
    """The path, with all that summaries cover, results in the order of their calls."""
    view: list[Message]
    """What a model would be sent."""
    slot: list[Message] | None
    mark: Mapping[str, Any]
    leaves: int
    version: int

    @classmethod
    async def read(cls, store: Store, user_id: str | None, session_id: str) -> Stored:
        """Look at a conversation of the kitchen's agent, past the agent."""
        session = Session(store, session_id, user_id=user_id, agent_id=AGENT)
        scope = Scope.of(session_id, user_id=user_id, agent_id=AGENT)
        state = await store.states.get(SessionKey(session_id, user_id), "agent_state", AgentState)
        return cls(
            history=render(await session.get_raw_history()),
            view=render(await session.get_history()),
            slot=None if state is None else list(state.context),
            mark={} if state is None else state.extra.get("leafward", {}),
            leaves=len(await store.messages.leaves(scope)),
            version=(await store.messages.revision(scope)).version,
        )


@dataclass
class Ledger:
    """What was done and acknowledged, kept outside the store."""

    lines: list[str] = field(default_factory=list[str])
    """What tools and models wrote down."""
    acked: list[str] = field(default_factory=list[str])
    """Ids of messages that the user was told are stored."""

    def entries(self, kind: str) -> list[list[Any]]:
        return [entry[1:] for entry in map(json.loads, self.lines) if entry[0] == kind]

    def ran(self) -> Iterable[tuple[str, str]]:
        """Yield the tool and the dish of each run.

        The shop that takes orders compares fencing tokens: a run of a holder that slept, after that of the next one,
        has no effect.
        """
        newest: dict[str, int] = {}
        for name, dish, key, token in self.entries("ran"):
            held = token or 0
            if name != PROBED or held >= newest.get(key, 0):
                newest[key] = held
                yield name, dish


def judge_stop(stored: Stored) -> list[str]:
    """Return what is wrong where a process was lost: the slot may be behind the tree, never ahead of it."""
    known = {message.id for message in (*stored.history, *stored.view)}
    # A summary may be covered by another one since.
    shown = [message.id for message in stored.slot or () if not message.id.startswith(SUMMARY_NAME)]
    ahead = [id for id in shown if id not in known]
    found = [f"the slot shows what the tree has not: {ahead}"] if ahead else []
    leaf = stored.mark.get("leaf")
    return found + ([f"the slot shows the unknown leaf {leaf!r}"] if leaf is not None and leaf not in known else [])


def judge(stored: Stored, ledger: Ledger, *, deaths: int = 1) -> list[str]:
    """Return what is wrong with a conversation in which no turn is open, after so many processes were lost."""
    found = [f"the model was asked with an unpaired conversation: {text}" for (text,) in ledger.entries("unpaired")]
    fault = unpaired(stored.view)
    if fault is not None:
        found.append(f"the conversation is unpaired: {fault}")
    ids = [message.id for message in stored.history]
    due = {*ledger.acked, *(message_id for (message_id,) in ledger.entries("sent"))}
    found += [f"{id!r} was acknowledged and is lost" for id in sorted(due.difference(ids))]
    if stored.leaves > 1 or len(set(ids)) < len(ids):
        found.append(f"the conversation is not one chain: {stored.leaves} leaves, {len(ids)} messages")
    return [*found, *_slot_faults(stored), *_run_faults(stored.history, ledger, deaths)]


def _slot_faults(stored: Stored) -> list[str]:
    shown = [(message.id, message.parts) for message in stored.slot or ()]
    if shown != [(message.id, message.parts) for message in stored.view]:
        return [f"the slot is not the view: {[id for id, _ in shown]}, not {[one.id for one in stored.view]}"]
    leaf = stored.history[-1].id if stored.history else None
    # The leaf of the tree may be another result of the last reply.
    return [] if leaf is None or stored.mark.get("leaf") else ["the slot does not say which leaf it shows"]


def _run_faults(history: Sequence[Message], ledger: Ledger, deaths: int) -> list[str]:
    """Compare how often tools ran with what is stored of their calls."""
    ran = Counter(ledger.ran())
    keys: dict[tuple[str, str], set[str]] = {}
    for name, dish, key, _ in ledger.entries("ran"):
        keys.setdefault((name, dish), set()).add(key)
    found = [f"{name} {dish!r} had several keys" for (name, dish), known in keys.items() if len(known) > 1]
    for (name, dish), times in ran.items():
        if times > (1 if name in (UNDECLARED, PROBED) else MOST_RUNS):
            found.append(f"{name} {dish!r} ran {times} times")
    for name, dish, result in _results(history):
        times = ran[name, dish]
        if name == "taste":
            continue
        if result == UNKNOWN and name != UNDECLARED and deaths < MOST_RUNS:
            found.append(f"{name} {dish!r} may run again, and was reported as unknown")
        elif result == "success" and not times:
            found.append(f"{name} {dish!r} has a result and never ran")
        elif name == TIMED and result == "success":
            found.append(f"{name} {dish!r} cannot have ended in time")
        elif result not in ("success", UNKNOWN) and times and name != TIMED:
            found.append(f"{name} {dish!r} ran, and its result says {result!r}")
    return found


def _results(history: Sequence[Message]) -> Iterable[tuple[str, str, str]]:
    """Yield for each answered call its tool, its dish, and what became of it."""
    for call, result in pair(history).answers.items():
        unknown = (result.message.metadata or {}).get(OUTCOME) == "unknown"
        text = "".join(str(block.get("text", "")) for block in result.blocks)
        state = result.state if result.state == "success" else f"{result.state}: {text}"
        yield call.name, str(call.object_input["dish"]), UNKNOWN if unknown else state


def told(history: Sequence[Message]) -> list[str]:
    """Return a conversation as lines that are the same whenever the same was said."""
    items = pair(history).items
    return [
        f"{message.role}: {'; '.join(_told(item) for item in row)}" for message, row in zip(history, items, strict=True)
    ]


def _told(item: object) -> str:
    if isinstance(item, Call):
        return f"{item.name} {item.arguments}"
    if isinstance(item, Result):
        unknown = (item.message.metadata or {}).get(OUTCOME) == "unknown"
        return f"{item.name} {UNKNOWN if unknown else item.blocks}"
    return str(item)


def differences(said: Sequence[str], reference: Sequence[str]) -> list[str]:
    """Return where a conversation, `told`, differs from the undisturbed one, but for results reported as unknown.

    An interrupt whose process was lost has stopped nothing: then the model has answered its message.
    """
    lines = list(said)
    answer = next((row for row, line in enumerate(lines) if STOPPED in line), None)
    if answer is not None:
        del lines[answer]
    for here, there in zip(lines, reference, strict=False):
        if here != there and not here.endswith(f" {UNKNOWN}"):
            return [f"the conversation says {here!r}, not {there!r}"]
    longer = lines[len(reference) :] or list(reference[len(lines) :])
    return [f"the conversation has {len(lines)} messages, not {len(reference)}: {longer[0]}"] if longer else []
