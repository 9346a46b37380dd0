"""An agent that does to its session whatever a number tells it to, and what its session keeps of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from leafward import Message, Session, assistant, tool_result, user
from leafward.core.calls import Call, pair

CALL_IDS = ("call_0", "call_1", "call_2")
"""So few that ids are used again and again."""
LONG = 4_000
TEXT = {"type": "text", "text": "wind from the west, 天気"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


class RandomAgent:
    """Takes steps in a session; `number` chooses ids, sizes and places."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stored: dict[str, Message] = {}
        self.growing: str | None = None
        """The reply that is being written piece by piece."""
        self._named = 0
        self.steps: dict[str, Callable[[int], Awaitable[None]]] = {
            "say": self._say,
            "reply": self._reply,
            "paste": self._paste,
            "think aloud": self._think_aloud,
            "call": self._call,
            "call badly": self._call_badly,
            "answer what waits": self._answer_what_waits,
            "answer": self._answer,
            "answer at length": self._answer_at_length,
            "answer as Anthropic does": self._answer_as_anthropic_does,
            "answer no call": self._answer_no_call,
            "use a UI tool": self._use_a_ui_tool,
            "ask a UI tool": self._ask_a_ui_tool,
            "call as OpenAI does": self._call_as_openai_does,
            "turn": self._turn,
            "stream": self._stream,
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

    async def _append(self, *messages: Message | dict[str, Any], **where: Any) -> None:
        for message in await self.session.append_messages(messages, **where):
            self.stored[message.id] = message

    async def _say(self, number: int) -> None:
        await self._append(user("word " * (number % 40), id=self._id()))

    async def _reply(self, number: int) -> None:
        await self._append(assistant("well " * (number % 40), id=self._id()))

    async def _paste(self, number: int) -> None:
        await self._append(user("pasted text " * (number * 20), id=self._id()))

    async def _think_aloud(self, number: int) -> None:
        thought = {"type": "thinking", "thinking": "hm " * number, "signature": f"sig{number}=="}
        await self._append(assistant([thought, *[TEXT][: number % 2]], id=self._id()))

    def _calls(self, number: int) -> list[dict[str, Any]]:
        ids = CALL_IDS[: number % 3 + 1]
        return [{"type": "tool_use", "id": one, "name": "look", "input": {"at": "x" * (number % 50)}} for one in ids]

    async def _call(self, number: int) -> None:
        await self._append(assistant(self._calls(number), id=self._id()))

    async def _call_badly(self, number: int) -> None:
        """Call with what models write at times: no id, an odd one, a name with spaces, arguments that are cut off."""
        inputs: list[Any] = [{"q": "x"}, '{"cut', "", "[1]", None, {}]
        ids = ["", f"call {number}/x", f"call_{number}"]
        calls = [
            {"type": kind, "id": ids[place], "name": ("look", "look it up!", "")[place], "input": inputs[number % 6]}
            for place, kind in enumerate(("tool_use", "tool_call", "tool_use")[: number % 3 + 1])
        ]
        await self._append(assistant([*([TEXT] if number % 2 else []), *calls], id=self._id()))

    async def _answer_what_waits(self, number: int) -> None:
        """Answer some of the calls on the path that have no result, in any order, with any state."""
        history = await self.session.get_raw_history()
        pairs = pair(history)
        waiting = [one.id for row in pairs.items for one in row if isinstance(one, Call) and pairs.is_waiting(one)]
        for place, call_id in enumerate(waiting[:: -1 if number % 2 else 1][: number % 4]):
            state = ("success", "error", "running")[(number + place) % 3]
            output = [[TEXT, IMAGE], "seen"][number % 2]
            await self._append(tool_result(call_id, output, name="look", state=state, id=self._id()))

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

    async def _call_as_openai_does(self, number: int) -> None:
        function = {"name": "look", "arguments": ('{"q": 1}', '{"q": ')[number % 2]}
        calls = [{"id": f"openai_{number}", "type": "function", "function": function}]
        chart = {"type": "data-chart", "data": {"points": "7 " * number}}
        await self._append({"role": "assistant", "content": None, "tool_calls": calls, "id": self._id()})
        if number % 3:
            result = {"role": "tool", "tool_call_id": f"openai_{number}", "content": "seen", "id": self._id()}
            await self._append(result, assistant([{"type": "step-start"}, chart], id=self._id()))

    async def _stream(self, number: int) -> None:
        self.growing = self._id()
        for length in range(1, number, 7):
            reply = assistant("and so on " * length, id=self.growing)
            self.stored[reply.id] = await self.session.upsert_message(reply)
        self.growing = None

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
