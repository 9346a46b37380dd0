"""What middleware and hooks that do nothing add to a call of an agent, and to a piece of a stream."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from itertools import pairwise
from statistics import median
from typing import Any

from leafward import ReActAgent, RuntimeContext, open_store
from leafward.engine import CallNext, ChatModel, Hook, HookEvent, Middleware
from leafward.stores import Store
from turns.loop import QUESTION

MIDDLEWARES = 5
HOOKS = 3


class Empty(Middleware):
    """Overrides every point, and passes on what comes."""

    async def _pass(self, ctx: Any, request: Any, call_next: CallNext[Any, Any]) -> AsyncGenerator[Any]:
        async for event in call_next(request):
            yield event

    on_agent = on_reasoning = on_model_call = on_acting = _pass

    async def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> str:
        return prompt


class EmptyHook(Hook):
    """Is called for every event, and does nothing."""

    async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> None:
        return None


def layers(*, middlewares: int = MIDDLEWARES, hooks: int = HOOKS) -> dict[str, Any]:
    """Return options of an agent."""
    return {"middlewares": [Empty() for _ in range(middlewares)], "hooks": [EmptyHook() for _ in range(hooks)]}


async def added_to_a_call(store: Store, make: Callable[..., ReActAgent], times: int) -> dict[str, float]:
    """Return the seconds of a call of an agent alone and of one with all layers, which take turns."""
    agents = {"alone": make(store), "layers": make(store, **layers())}
    spent: dict[str, list[float]] = {name: [] for name in agents}
    for number in range(times):
        for name in sorted(agents, reverse=bool(number % 2)):
            # Conversations stay short, so that the call is measured and not its history.
            ctx = RuntimeContext("layers", f"{name}{number // 8}")
            begin = time.perf_counter()
            await agents[name].call(QUESTION, ctx)
            spent[name].append(time.perf_counter() - begin)
    return {name: median(found) for name, found in spent.items()}


async def added_to_a_piece(make: Callable[[int], ChatModel], pieces: int) -> dict[str, float]:
    """Return the nanoseconds of a piece of a stream, for an agent alone, with all layers, and what one layer adds."""
    kinds = {
        "alone": layers(middlewares=0, hooks=0),
        "middlewares": layers(hooks=0),
        "hooks": layers(middlewares=0),
        "layers": layers(),
    }
    found: dict[str, float] = {}
    async with open_store("memory://") as store:
        for name, options in kinds.items():
            agent = ReActAgent("speaker", make(pieces), store=store, **options)
            gc.collect()
            found[name] = await _per_piece(agent.stream(QUESTION, RuntimeContext("layers", name)), pieces)
    return {
        **found,
        "middleware": (found["middlewares"] - found["alone"]) / MIDDLEWARES,
        "hook": (found["hooks"] - found["alone"]) / HOOKS,
    }


async def _per_piece(events: AsyncIterator[Any], pieces: int) -> float:
    marks: list[int] = []
    count = 0
    async for _ in events:
        count += 1
        if count in (pieces // 10, pieces):
            marks.append(time.perf_counter_ns())
    ((begin, end),) = pairwise(marks)
    return (end - begin) / (pieces - pieces // 10)
