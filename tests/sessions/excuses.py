"""Why a session may stay above its threshold, worked out without asking the planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leafward import Message, Session
from leafward.core.tokens import count_tokens
from leafward.sessions import estimate_tokens

SHORT_SUMMARY = 30
"""Tokens that the shortest summary takes, at most."""


async def excuse(session: Session, threshold: int, growing: str | None) -> str | None:
    """Return what keeps a session above its threshold, or keeps a summary from ending where it should."""
    history = await session.get_history()
    prompt = estimate_tokens(await session.freeze_system_prompt())
    if prompt > threshold // 2:
        return "the prompt is too large"
    if sum(map(count_tokens, waiting_part(history))) > (threshold - prompt) // 2 - SHORT_SUMMARY:
        return "what waits for a result is too large"
    if history[-1].id == growing and count_tokens(history[-1]) > (threshold - prompt) // 2 - SHORT_SUMMARY:
        return "the reply that is being written is too large"
    question = count_tokens(history[-1]) if history[-1].role == "user" else 0
    if 0 < question <= (threshold - prompt) * 3 // 4 and sum(map(count_tokens, history[:-1])) <= SHORT_SUMMARY:
        return "what stands beside the question is no longer than a summary"
    path = {message.id for message in await session.get_raw_history()}
    if any(made.from_message_id in path and made.to_message_id not in path for made in await session.get_compactions()):
        return "an earlier summary ends on another branch"
    return None


def waiting_part(history: Sequence[Message]) -> Sequence[Message]:
    """Return the last step and its results so far, if a call of it has none yet."""
    answered: set[Any] = set()
    for place in range(len(history) - 1, -1, -1):
        parts = history[place].parts
        results = [part for part in parts if part.get("type") == "tool_result"]
        answered |= {part.get("tool_use_id", part.get("id")) for part in results}
        if len(results) < len(parts) or not parts:
            waits = any(_waits(part, answered) for part in parts)
            return history[place:] if waits else []
    return []


def _waits(part: Any, answered: set[Any]) -> bool:
    if part.get("type") in ("tool_use", "tool_call"):
        return part["id"] not in answered
    return part.get("state") in ("input-available", "approval-requested")
