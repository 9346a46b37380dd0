"""Summaries as AgentScope shows them in a context: one user message, whose id is made of the summary's text."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from uuid import UUID

from leafward.core.message import Message

SUMMARY_NAME = "__compaction_summary__"
"""The name of such a message; its id begins so, too."""

_INTRODUCTION = "Here is a summary of the conversation to date:\n\n"
_LONG_INTRODUCTION = "You are in the middle of a conversation that has been summarized."
_OPENS, _CLOSES = "<summary>\n", "\n</summary>"


def shown_id(summary: str) -> str:
    """Return the id that AgentScope gives to the message of a summary."""
    # An id and no secret: Java makes the same one with UUID.nameUUIDFromBytes.
    digest = md5(summary.encode(), usedforsecurity=False).digest()
    return f"{SUMMARY_NAME}:{UUID(bytes=digest, version=3)}"


def shown_summary(summary: Message) -> Message:
    """Return a summary, given as a history has it, as a context has it."""
    text = summary.text
    parts = [{"type": "text", "text": _INTRODUCTION + text}]
    return Message.stored(shown_id(text), "user", summary.at, {"parts": parts, "name": SUMMARY_NAME})


def summary_text(message: Message) -> str | None:
    """Return the summary that a message of a context shows, whoever made it; `None` if it is another message."""
    if message.role != "user" or message.name != SUMMARY_NAME:
        return None
    text = message.text
    if text.startswith(_INTRODUCTION):
        return text[len(_INTRODUCTION) :]
    if text.startswith(_LONG_INTRODUCTION) and _OPENS in text and text.endswith(_CLOSES):
        return text[text.index(_OPENS) + len(_OPENS) : -len(_CLOSES)]
    return text


def shown_text(context: Sequence[Message]) -> str | None:
    """Return the last summary that a context shows; `None` if it shows none."""
    texts = (summary_text(message) for message in reversed(context))
    return next((text for text in texts if text is not None), None)
