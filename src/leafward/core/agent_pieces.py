"""What AgentScope for Java reads in place of a message that it cannot hold: calls as calls, results as results.

Its roles may not hold every block, and results belong into messages of role TOOL. So one message may become several
pieces, each a role and its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from leafward.core.agent_blocks import CallState, ResultState, by_the_rules, fits
from leafward.core.agent_messages import CARRIED, CONTINUES, NAME, ROLES
from leafward.core.calls import Call, Item, Result
from leafward.core.fallback_text import as_text, output_as_text
from leafward.core.ids import derived_id
from leafward.core.json import try_parse
from leafward.core.media import Media, read_media
from leafward.core.message import Message
from leafward.core.parts import Part, is_settled, is_thinking, is_ui_tool, plain_text, thinking_text
from leafward.core.provider_extras import raw_of, without_origin
from leafward.core.times import to_local

Piece = tuple[str, list[Part]]


def pieces(message: Message, items: Sequence[Item], *, of_1x: bool = False, opaque: bool = False) -> list[Piece]:
    """Return the blocks of a message by the role that may hold them, in order; `items` is what `pair` says it holds.

    With `of_1x`, only blocks that AgentScope 1.x knows. With `opaque`, blocks of unknown types that came from
    AgentScope are given back to it.
    """
    return _Cutter(of_1x, opaque).cut(message, items)


def in_pieces(message: Message, head: dict[str, Any], parts: Sequence[Piece]) -> list[dict[str, Any]]:
    """Return the `Msg` objects that show a message: `head`, which is made of the first piece, carries it whole."""
    made = [{**head, CARRIED: message.to_dict()}]
    for number, (role, content) in enumerate(parts[1:], 2):
        envelope: dict[str, Any] = {"metadata": {}, "timestamp": head["timestamp"], "usage": None}
        id = derived_id("msg", message.id, number)
        made.append(
            {"id": id, "name": message.name, "role": role, "content": content, **envelope, CONTINUES: message.id}
        )
    return made


def written_time(message: Message) -> str | None:
    """Return the time of a message as AgentScope writes it: as it was, where it came from there."""
    given = message.body.get("timestamp", message)
    return given if given is None or isinstance(given, str) else to_local(message.at)


class _Cutter:
    def __init__(self, of_1x: bool, opaque: bool) -> None:
        self._of_1x = of_1x
        self._opaque = opaque

    def cut(self, message: Message, items: Sequence[Item]) -> list[Piece]:
        usual = {"developer": "SYSTEM"}.get(message.role, ROLES.get(message.role.lower(), "USER"))
        found: list[Piece] = []
        for item in items:
            role, block = self._placed(item, usual)
            if not found or found[-1][0] != role:
                found.append((role, []))
            found[-1][1].append(block)
        return found or [(usual, [])]

    def _placed(self, item: Item, usual: str) -> tuple[str, Part]:
        if isinstance(item, Call):
            return "ASSISTANT", self._call(item)
        if isinstance(item, Result):
            # A result in the message of its call is tolerated, but not one that AI SDK keeps in the call's part.
            stays = usual in ("ASSISTANT", "TOOL") and not is_ui_tool(item.part)
            return usual if stays else "TOOL", self._result(item)
        return usual, self._block(item, usual)

    def _block(self, part: Part, role: str) -> Part:
        raw = raw_of(part, NAME)
        if raw is not None and (self._opaque or fits(raw, role, of_1x=self._of_1x)):
            return raw
        if raw_of(part) is None:
            for made in (by_the_rules(without_origin(part)), self._media(part)):
                if made is not None and fits(made, role, of_1x=self._of_1x):
                    return made
        if role in ("ASSISTANT", "TOOL") and is_thinking(part) and thinking_text(part):
            return {"type": "thinking", "thinking": thinking_text(part), "metadata": None}
        return {"type": "text", "text": _words(part)}

    def _media(self, part: Part) -> Part | None:
        media = read_media(part)
        if media is None or (media.any_url is None and media.text is None):
            return None
        if media.text is not None:
            return {"type": "text", "text": media.text}
        source = _source(media)
        if media.kind != "file":
            return {"type": media.kind, "source": source}
        return {"type": "data", "source": source, **({"name": media.name} if media.name else {})}

    def _call(self, call: Call) -> Part:
        own = without_origin(call.part) | {"id": call.id, "name": call.name}
        if not isinstance(own.get("input"), dict):
            # Its reader wants an object, and finds what the model wrote in "content".
            broken = isinstance(call.input, str) and try_parse(call.input) is None
            own |= {"input": {} if broken else call.object_input, "content": call.written}
        if fits(own, "ASSISTANT", of_1x=self._of_1x):
            return own
        return {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.object_input,
            "content": call.written,
            "metadata": {},
            "state": _call_state(call.part),
        }

    def _result(self, result: Result) -> Part:
        output = [self._output(block) for block in result.blocks]
        own = without_origin(result.part) | {"output": output}
        if "id" in own and fits(own, "TOOL", of_1x=self._of_1x):
            return own
        return {
            "type": "tool_result",
            "id": result.call_id,
            "name": result.name,
            "output": output,
            "metadata": {},
            "state": result.state if result.state in get_args(ResultState) else "success",
        }

    def _output(self, block: Part) -> Part:
        made = self._block(block, "TOOL")
        return made if made.get("text") != "" else {**made, "text": output_as_text(block)}


def _source(media: Media) -> dict[str, Any]:
    if media.data is None:
        return {"type": "url", "url": media.url, **({"mime_type": media.media_type} if media.media_type else {})}
    return {"type": "base64", "media_type": media.media_type or "application/octet-stream", "data": media.data}


def _call_state(part: Part) -> str:
    state = part.get("state")
    if isinstance(state, str) and state in get_args(CallState):
        return state
    if is_ui_tool(part):
        return "finished" if is_settled(part) else "asking" if state == "approval-requested" else "pending"
    return "pending"


def _words(part: Part) -> str:
    """Return a part as text; what only its provider reads is not said."""
    if raw_of(part) is not None or is_thinking(part):
        return as_text(part)
    return as_text(part) or plain_text(without_origin(part))
