"""An agent that does to its session whatever a number tells it to, and what its session keeps of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from leafward import Message, Session, assistant, tool_result, user

CALL_IDS = ("call_0", "call_1", "call_2")
"""So few that ids are used again and again."""
LONG = 4_000


class RandomAgent:
    """Takes steps in a session; `number` chooses ids, sizes and places."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stored: dict[str, Message] = {}
        self._named = 0
        self.steps: dict[str, Callable[[int], Awaitable[None]]] = {
            "say": self._say,
            "reply": self._reply,
            "paste": self._paste,
            "think aloud": self._think_aloud,
            "call": self._call,
            "answer": self._answer,
            "answer at length": self._answer_at_length,
            "answer as Anthropic does": self._answer_as_anthropic_does,
            "answer no call": self._answer_no_call,
            "use a UI tool": self._use_a_ui_tool,
            "ask a UI tool": self._ask_a_ui_tool,
            "turn": self._turn,
            "edit": self._edit,
            "delete": self._delete,
            "check out": self._check_out,
            "branch": self._branch,
            "summarise by hand": self._summarise_by_hand,
        }

    async def step(self, what: str, number: int) -> bool:
        """Take one step; tell whether it appended something."""
        before = self._named
        await self.steps[what](number)
        return self._named > before and what != "edit"

    def _id(self) -> str:
        self._named += 1
        return f"m{self._named}"

    def _known(self, number: int) -> str | None:
        names = list(self.stored)
        return names[number % len(names)] if names else None

    async def _append(self, *messages: Message, **where: Any) -> None:
        for message in await self.session.append_messages(messages, **where):
            self.stored[message.id] = message

    async def _say(self, number: int) -> None:
        await self._append(user("word " * (number % 40), id=self._id()))

    async def _reply(self, number: int) -> None:
        await self._append(assistant("well " * (number % 40), id=self._id()))

    async def _paste(self, number: int) -> None:
        await self._append(user("pasted text " * (number * 20), id=self._id()))

    async def _think_aloud(self, number: int) -> None:
        await self._append(assistant([{"type": "thinking", "thinking": "hm " * number}], id=self._id()))

    def _calls(self, number: int) -> list[dict[str, Any]]:
        ids = CALL_IDS[: number % 3 + 1]
        return [{"type": "tool_use", "id": one, "name": "look", "input": {"at": "x" * (number % 50)}} for one in ids]

    async def _call(self, number: int) -> None:
        await self._append(assistant(self._calls(number), id=self._id()))

    async def _answer(self, number: int) -> None:
        await self._append(tool_result(CALL_IDS[number % 3], "seen " * (number % 30), name="look", id=self._id()))

    async def _answer_at_length(self, number: int) -> None:
        await self._append(tool_result(CALL_IDS[number % 3], "line\n" * (LONG + number), name="look", id=self._id()))

    async def _answer_as_anthropic_does(self, number: int) -> None:
        content: Any = "z" * (number * 300) if number % 2 else [{"type": "text", "text": "y" * (number * 300)}]
        parts = [{"type": "tool_result", "tool_use_id": part["id"], "content": content} for part in self._calls(number)]
        await self._append(Message("user", parts, id=self._id()))

    async def _answer_no_call(self, number: int) -> None:
        await self._append(tool_result(f"gone {number}", "seen", name="look", id=self._id()))

    async def _use_a_ui_tool(self, number: int) -> None:
        part = {"type": "tool-look", "toolCallId": f"ui{number}", "state": "output-available", "input": {}}
        await self._append(assistant([{**part, "output": {"rows": ["row"] * number * 50}}], id=self._id()))

    async def _ask_a_ui_tool(self, number: int) -> None:
        part = {"type": "dynamic-tool", "toolName": "ask", "toolCallId": f"ui{number}", "state": "input-available"}
        await self._append(assistant([{**part, "input": {"text": "q" * number}}], id=self._id()))

    async def _turn(self, number: int) -> None:
        await self._say(number)
        await self._call(number)
        for place in range(number % 3 + 1):
            await (self._answer_at_length if number % 5 == place else self._answer)(place)
        await self._reply(number)

    async def _edit(self, number: int) -> None:
        known = self._known(number)
        if known is not None:
            changed = user("changed " * (number % 60), id=known)
            self.stored[known] = await self.session.update_message(changed)

    async def _delete(self, number: int) -> None:
        known = self._known(number)
        if known is not None:
            await self.session.delete_messages([known])
            del self.stored[known]

    async def _check_out(self, number: int) -> None:
        await self.session.checkout(self._known(number))

    async def _branch(self, number: int) -> None:
        await self._append(user("instead " * (number % 20), id=self._id()), parent_id=self._known(number))

    async def _summarise_by_hand(self, number: int) -> None:
        history = await self.session.get_history()
        if len(history) > 3:
            first = number % (len(history) - 2)
            with suppress(ValueError):  # it would cross another
                await self.session.add_compaction("by hand", history[first].id, history[first + 1].id)
