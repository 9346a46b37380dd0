"""What is done with the calls of a reply, before any of them runs: they run, are denied, or are asked about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from leafward.core.agent_contexts import PermissionContext
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call
from leafward.engine.permissions import NO_OPINION, Opinion, Verdict, decide
from leafward.engine.plan_mode import PlanMode
from leafward.engine.questions import ALLOWED, is_confirmed
from leafward.tools.answers import STORAGE_FAILURES
from leafward.tools.definition import Tool
from leafward.tools.runner import ask_check, mistake_in
from leafward.tools.runtime_context import RuntimeContext

_log = logging.getLogger("leafward.engine")

_FAILED = Opinion("deny", "its check failed")


async def judge_calls(
    calls: Sequence[Call], tools: Mapping[str, Tool], ctx: RuntimeContext, plan: PlanMode | None = None
) -> list[tuple[Call, Verdict]]:
    """Return what is done with each call; `tools` are those that the session has, and `plan` how its agent plans.

    A call of a tool that is not there is allowed: it is answered when it is run. One that the user has confirmed, or
    that was allowed beside one, may only be denied.

    Raises:
        StoreError, LeaseLost: the check of a tool met a store that failed.
    """
    asked = [asyncio.ensure_future(_opinion(tools.get(call.name), call, ctx)) for call in calls]
    try:
        opinions = await asyncio.gather(*asked)
    finally:
        # Where one of them met a store that failed, the others go no further.
        for one in asked:
            one.cancel()
    return [
        (call, _verdict(ctx.agent_state, plan, tools.get(call.name), call, opinion))
        for call, opinion in zip(calls, opinions, strict=True)
    ]


def refused_again(
    calls: Sequence[Call], tools: Mapping[str, Tool], ctx: RuntimeContext, plan: PlanMode | None
) -> list[tuple[Call, str]]:
    """Return those of some calls that were to run which are denied by now, each with the reason.

    Plan mode and deny rules deny any call, the mode only one that the user has not confirmed. What a tool's own check
    has said holds, and nothing is asked again.
    """
    found = [(call, tool) for call in calls if (tool := tools.get(call.name)) is not None]
    verdicts = [(call, _verdict_again(ctx.agent_state, plan, tool, call)) for call, tool in found]
    return [(call, verdict.reason) for call, verdict in verdicts if verdict.decision == "deny"]


def waits_for_user(call: Call, tools: Mapping[str, Tool]) -> bool:
    """Tell whether the user sends the result of a call; `tools` are those that the session has now.

    A call of an external tool that the session has not activated, or whose arguments do not fit, is answered as any
    other of such a tool.
    """
    tool = tools.get(call.name)
    return tool is not None and tool.external and mistake_in(tool, call.written) is None


def _verdict(state: AgentState, plan: PlanMode | None, tool: Tool | None, call: Call, opinion: Opinion) -> Verdict:
    if tool is None:
        return Verdict("allow")
    if is_confirmed(call) or call.part.get("state") == ALLOWED:
        # An answer may have edited the call, which the check has not seen so.
        verdict = Verdict("deny", opinion.reason) if opinion.decision == "deny" else None
        verdict = verdict or _verdict_again(state, plan, tool, call)
        return verdict if verdict.decision == "deny" else Verdict("allow")
    refusal = None if plan is None else plan.refusal(tool, state)
    if refusal is not None:
        return Verdict("deny", refusal)
    return decide(
        state.permission_context,
        tool.name,
        call.object_input,
        read_only=tool.read_only,
        opinion=opinion,
        always_asks=plan is not None and plan.always_asks(tool.name),
    )


def _verdict_again(state: AgentState, plan: PlanMode | None, tool: Tool, call: Call) -> Verdict:
    refusal = None if plan is None else plan.refusal(tool, state)
    if refusal is not None:
        return Verdict("deny", refusal)
    rules = state.permission_context
    if is_confirmed(call):
        rules = PermissionContext(mode="bypass", deny_rules=rules.deny_rules)
    return decide(rules, tool.name, call.object_input, read_only=tool.read_only, opinion=Opinion("allow"))


async def _opinion(tool: Tool | None, call: Call, ctx: RuntimeContext) -> Opinion:
    """Return what a tool's own check says; one that fails denies the call."""
    if tool is None or tool.check is None:
        return NO_OPINION
    try:
        said = await ask_check(tool, call.written, ctx)
    except STORAGE_FAILURES:
        raise
    except Exception:  # noqa: BLE001  (logged, and the call is denied)
        _log.warning("the check of tool %r failed: the call is denied", tool.name, exc_info=True)
        return _FAILED
    if said is None or isinstance(said, Opinion):
        return said or NO_OPINION
    if said in ("allow", "deny", "ask"):
        return Opinion(said)
    _log.warning("the check of tool %r returned %r, not allow, deny, ask or None: the call is denied", tool.name, said)
    return _FAILED
