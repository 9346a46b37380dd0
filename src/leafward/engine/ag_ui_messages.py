"""The messages that a page of AG-UI has in a run: those of its request, and those that the run has shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any


class AgUiMessages:
    """Follows what a page makes of the events of a run, so that a part of it can be taken back."""

    def __init__(self, given: Sequence[Mapping[str, Any]]) -> None:
        self._messages: list[dict[str, Any]] = [deepcopy(dict(message)) for message in given]
        self._by_id = {str(message.get("id")): message for message in self._messages}
        self._calls: dict[str, dict[str, Any]] = {
            call["id"]: call["function"] for message in self._messages for call in message.get("toolCalls") or ()
        }

        self._pieces: dict[int, tuple[dict[str, Any], str, list[str]]] = {}
        """Pieces of texts that are not joined yet, by the object that holds the text."""

    def __contains__(self, id: str) -> bool:
        """Tell whether the page has a message."""
        return id in self._by_id

    def has_call(self, id: str) -> bool:
        """Tell whether the page has a call."""
        return id in self._calls

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take an event that the page gets."""
        kind = event["type"]
        if kind == "TEXT_MESSAGE_START":
            self._message(event["messageId"], event["role"])
        elif kind == "TEXT_MESSAGE_CONTENT":
            self._append(self._by_id[event["messageId"]], "content", event["delta"])
        elif kind == "TOOL_CALL_START":
            call = {"name": event["toolCallName"], "arguments": ""}
            self._calls[event["toolCallId"]] = call
            made = {"id": event["toolCallId"], "type": "function", "function": call}
            self._message(event["parentMessageId"], "assistant").setdefault("toolCalls", []).append(made)
        elif kind == "TOOL_CALL_ARGS":
            self._append(self._calls[event["toolCallId"]], "arguments", event["delta"])
        elif kind == "TOOL_CALL_RESULT":
            result = self._message(event["messageId"], "tool")
            result |= {"toolCallId": event["toolCallId"], "content": event["content"]}

    def discard(self, reply_id: str) -> bool:
        """Take back the messages of a reply, and tell whether there were any."""
        left = [one for one in self._messages if one.get("id") != reply_id and not _is_below(one, reply_id)]
        is_changed = len(left) < len(self._messages)
        for gone in (one for one in self._messages if one not in left):
            for call in gone.get("toolCalls") or ():
                self._calls.pop(call["id"], None)
        self._messages = left
        self._by_id = {str(message.get("id")): message for message in left}
        return is_changed

    def listed(self) -> list[dict[str, Any]]:
        """Return the messages as they are now."""
        for holder, key, pieces in self._pieces.values():
            holder[key] = holder.get(key, "") + "".join(pieces)
        self._pieces.clear()
        return deepcopy(self._messages)

    def _append(self, holder: dict[str, Any], key: str, piece: str) -> None:
        """Add a piece to a text; all of them are joined when they are needed."""
        self._pieces.setdefault(id(holder), (holder, key, []))[2].append(piece)

    def _message(self, id: str, role: str) -> dict[str, Any]:
        if id not in self._by_id:
            made: dict[str, Any] = {"id": id, "role": role}
            if role in ("user", "tool"):
                made["content"] = ""
            self._messages.append(made)
            self._by_id[id] = made
        return self._by_id[id]


def _is_below(message: Mapping[str, Any], reply_id: str) -> bool:
    return str(message.get("id", "")).startswith(f"{reply_id}:")
