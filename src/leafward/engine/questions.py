"""Questions to the user about calls, and the answers: plain data that survives any hop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from leafward.core.agent_contexts import PermissionRule
from leafward.core.agent_records import write_record
from leafward.core.calls import Call, Result, pair
from leafward.core.json import Plain, encode_text
from leafward.core.message import Message, body_to_read, message_sharing
from leafward.core.parts import CALLS, Part
from leafward.core.times import to_micros, to_wire
from leafward.engine.call_results import is_declined
from leafward.engine.permissions import checked_rule, suggested_rules
from leafward.engine.plan_mode import PlanMode

ASKING, ALLOWED = "asking", "allowed"
"""States of a call that the user is asked about, and of one that may run."""
CONFIRM_RESULTS = "agentscope_confirm_results"
"""The metadata key of a message that brings answers."""
_CONFIRMED = "leafward_confirmed"
"""The metadata key of a call that the user has confirmed."""
_REQUEST = "agentscope_confirm_request_reply_id"
"""The metadata key of a reply with calls that the user is asked about."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for the user's answer, and rules that an answer may bring."""

    call: Part
    """The call as it is stored: its `id`, its `name`, and its arguments as `input`."""
    reply_id: str
    asked_at: datetime
    suggested_rules: list[PermissionRule] = field(default_factory=list[PermissionRule])

    def to_dict(self) -> dict[str, Any]:
        """Return the question as JSON values, under the names that an answer to it has."""
        return {
            "toolCall": Plain().copy(self.call),
            "replyId": self.reply_id,
            "askedAt": to_wire(to_micros(self.asked_at)),
            "rules": [write_record(rule) for rule in self.suggested_rules],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user says about one call."""

    call_id: str
    confirmed: bool
    part: Part
    """The call as it was sent back, with what was edited; it may hold less than the stored one."""
    rules: tuple[PermissionRule, ...] = ()
    reply_id: str | None = None
    """The reply of the call, if the answer names it: models may use the id of a call again."""

    def is_about(self, call: Call) -> bool:
        """Tell whether the answer may be meant for a call."""
        return call.id == self.call_id and self.reply_id in (None, call.message.id)


# ── asking ───────────────────────────────────────────────────────────────────


def is_asked(call: Call) -> bool:
    """Tell whether the user is asked about a call."""
    return call.part.get("state") == ASKING


def is_confirmed(call: Call) -> bool:
    """Tell whether the user has confirmed a call."""
    return _CONFIRMED in (call.part.get("metadata") or {})


def is_expired(call: Call, ask_timeout: float | None) -> bool:
    """Tell whether the time to answer is over."""
    return ask_timeout is not None and datetime.now(UTC) - call.message.created_at > timedelta(seconds=ask_timeout)


def open_questions(calls: Sequence[Call], ask_timeout: float | None, plan: PlanMode | None = None) -> list[Question]:
    """Return the questions about calls without results that the user can still answer."""
    return [_question(call, plan) for call in calls if is_asked(call) and not is_expired(call, ask_timeout)]


def _question(call: Call, plan: PlanMode | None) -> Question:
    part: Part = Plain().copy(call.part)
    # No rule keeps it from being asked again.
    is_always = plan is not None and plan.always_asks(call.name)
    rules = [] if is_always else suggested_rules(call.name)
    return Question(part, call.message.id, call.message.created_at, rules)


def without_verdicts(reply: Message) -> Message:
    """Return a new reply whose calls say nothing of whether they may run, whatever made it."""
    parts: list[Part] = body_to_read(reply)["parts"]
    plain = [_without_verdict(part) if part["type"] in CALLS else part for part in parts]
    if all(new is old for new, old in zip(plain, parts, strict=True)):
        return reply
    return message_sharing(reply.id, reply.role, reply.at, {**body_to_read(reply), "parts": plain}).sealed()[0]


def _without_verdict(part: Part) -> Part:
    metadata: object = part.get("metadata")
    if part.get("state") not in (ASKING, ALLOWED) and not (isinstance(metadata, dict) and _CONFIRMED in metadata):
        return part
    found: Part = {key: value for key, value in part.items() if key != "state"}
    if isinstance(metadata, dict):
        given = cast(dict[str, Any], metadata)
        found["metadata"] = {key: value for key, value in given.items() if key != _CONFIRMED}
    return found


def with_states(reply: Message, states: Mapping[str, str]) -> Message:
    """Return a reply some of whose calls, by their ids, have another state; it says if one is asked about."""
    body = body_to_read(reply)
    parts = [
        {**part, "state": states[part["id"]]} if part["type"] in CALLS and part.get("id") in states else part
        for part in cast(list[Part], body["parts"])
    ]
    return _changed(reply, {**body, "parts": parts}, asks=ASKING in states.values())


def _changed(reply: Message, body: dict[str, Any], *, asks: bool) -> Message:
    if asks:
        body = {**body, "metadata": {**(body.get("metadata") or {}), _REQUEST: reply.id}}
    return message_sharing(reply.id, reply.role, reply.at, body).sealed()[0]


# ── answering ────────────────────────────────────────────────────────────────


def answering(answers: object) -> Message:
    """Return the message that brings answers: a list of them, or a dict with True or False for each call's id."""
    if isinstance(answers, Mapping):
        items = cast(Mapping[str, object], answers).items()
        answers = [{"confirmed": confirmed, "toolCall": {"id": call_id}} for call_id, confirmed in items]
    elif isinstance(answers, Sequence):
        answers = [_as_data(answer) for answer in cast(Sequence[object], answers)]
    if answers is None:
        raise ValueError("answers are a list of them, or a dict with True or False for each call's id, not None")
    return Message("user", [], metadata={CONFIRM_RESULTS: answers})


def _as_data(answer: object) -> object:
    """Return an answer with its rules as plain data; a question suggests them as objects."""
    if not isinstance(answer, Mapping):
        return answer
    given = dict(cast(Mapping[str, object], answer))
    rules = given.get("rules")
    if isinstance(rules, list):
        listed = cast(list[object], rules)
        given["rules"] = [write_record(rule) if isinstance(rule, PermissionRule) else rule for rule in listed]
    return given


def read_answers(messages: Sequence[Message]) -> list[Answer]:
    """Return the answers that an input brings, each once; empty if it brings none.

    Raises:
        ValueError: an answer cannot be read, two for one call differ, or something else is sent with them.
    """
    found = [(message.metadata or {}).get(CONFIRM_RESULTS) for message in messages]
    if all(one is None for one in found):
        return []
    if len(messages) > 1 or body_to_read(messages[0])["parts"]:
        raise ValueError("an answer to a question is sent alone: send words in the next call")
    listed = found[0]
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{CONFIRM_RESULTS} is a list of answers, not {listed!r}")
    answers: dict[str, Answer] = {}
    for item in cast(list[object], listed):
        answer = _read_answer(item)
        if answers.setdefault(answer.call_id, answer) != answer:
            raise ValueError(f"there are two answers about the call {answer.call_id!r}: send one")
    return list(answers.values())


def _read_answer(item: object) -> Answer:
    given = cast(dict[str, object], item) if isinstance(item, dict) else {}
    part = given.get("toolCall")
    call: Part = cast(Part, part) if isinstance(part, dict) else {}
    confirmed, call_id = given.get("confirmed"), call.get("id")
    if not isinstance(confirmed, bool) or not isinstance(call_id, str) or not call_id:
        raise ValueError(
            'an answer is {"confirmed": true or false, "toolCall": {"id": …}}, with "rules" if there are any, '
            f"not {item!r}"
        )
    rules: object = given.get("rules", [])
    if not isinstance(rules, list):
        raise ValueError(f"the rules of an answer are a list, not {rules!r}")
    reply_id = given.get("replyId")
    if reply_id is not None and not isinstance(reply_id, str):
        raise ValueError(f"the replyId of an answer is that of a question, not {reply_id!r}")
    found = tuple(_read_rule(rule, confirmed) for rule in cast(list[object], rules))
    return Answer(call_id, confirmed, call, found, reply_id)


def _read_rule(rule: object, confirmed: bool) -> PermissionRule:
    found = checked_rule(rule)
    wanted = "allow" if confirmed else "deny"
    if found.behavior != wanted:
        raise ValueError(f"a rule of this answer has to {wanted} calls, and not to {found.behavior} them")
    return found


def check_answer(answer: Answer, call: Call) -> None:
    """Look whether an answer is about a call.

    Raises:
        ValueError: it names another tool, has arguments that are no object, or rules for another tool.
    """
    name = answer.part.get("name", call.name)
    if name != call.name:
        raise ValueError(f"the call {call.id!r} is one of {call.name!r}: an answer cannot make it one of {name!r}")
    if not isinstance(answer.part.get("input", {}), dict):
        raise ValueError(f"the arguments of the call {call.id!r} are an object, not {answer.part['input']!r}")
    for rule in answer.rules:
        if rule.tool_name != call.name:
            raise ValueError(
                f"a rule of the answer about {call.name!r} is for {rule.tool_name!r}: call add_rule() for it"
            )


def with_answers(reply: Message, answers: Mapping[str, Answer]) -> Message:
    """Return a reply whose confirmed calls may run, with the arguments that the answers bring."""
    body = body_to_read(reply)
    parts = [_answered(part, answers) for part in cast(list[Part], body["parts"])]
    return _changed(reply, {**body, "parts": parts}, asks=False)


def _answered(part: Part, answers: Mapping[str, Answer]) -> Part:
    answer = answers.get(part["id"]) if part["type"] in CALLS and part.get("state") == ASKING else None
    if answer is None or not answer.confirmed:
        return part
    metadata: dict[str, Any] = {**(part.get("metadata") or {}), _CONFIRMED: True}
    allowed: Part = {**part, "state": ALLOWED, "metadata": metadata}
    edited = answer.part.get("input")
    if edited is None or edited == part.get("input"):
        return allowed
    arguments = Plain().copy(edited)
    return {**allowed, "input": arguments, "content": encode_text(arguments)}


def is_repeat(answer: Answer, context: Sequence[Message], *, besides: Call | None = None) -> bool:
    """Tell whether the same was answered before, about another call than the one `besides`."""
    for call, result in _calls_of(answer.call_id, context):
        if not answer.is_about(call) or (besides is not None and call.message.id == besides.message.id):
            continue
        if not answer.confirmed and result is not None and is_declined(result):
            return True
        if answer.confirmed and is_confirmed(call) and answer.part.get("input", call.input) == call.input:
            return True
    return False


def was_answered(call_id: str, context: Sequence[Message]) -> bool:
    """Tell whether the user has confirmed or declined the newest call of this id."""
    calls = _calls_of(call_id, context)
    call, result = calls[-1] if calls else (None, None)
    return call is not None and (is_confirmed(call) or (result is not None and is_declined(result)))


def _calls_of(call_id: str, context: Sequence[Message]) -> list[tuple[Call, Result | None]]:
    pairs = pair(context)
    calls = [item for row in pairs.items for item in row if isinstance(item, Call) and item.id == call_id]
    return [(call, pairs.answers.get(call)) for call in calls]
