"""Whether a call may run: one pure function of the session's rules and mode, and of what the tool's own check says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

from leafward.core.agent_contexts import Mode, PermissionContext, PermissionRule, Rules
from leafward.core.agent_records import copy_record, read_record
from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.engine.rule_patterns import Patterns
from leafward.engine.small_state import ACCEPTED

Decision = Literal["allow", "deny", "ask"]
MODES: tuple[Mode, ...] = ("default", "accept_edits", "explore", "bypass", "dont_ask")
SUGGESTED = "suggested"
"""The source of a rule that a question suggests."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the check of a tool says of one call; one without a decision leaves it to rules and mode.

    A reason with the word `safety` has the user asked also where an allow rule or the mode would allow the call.

    Raises:
        ConfigurationError: there is no such decision.
    """

    decision: Decision | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.decision not in (None, "allow", "deny", "ask"):
            raise ConfigurationError(f"an opinion is allow, deny, ask or None, not {self.decision!r}")

    @property
    def is_about_safety(self) -> bool:
        return "safety" in self.reason.lower()


NO_OPINION = Opinion()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with a call, and why."""

    decision: Decision
    reason: str = ""


_ALLOWED = Verdict("allow")


def decide(
    context: PermissionContext,
    tool_name: str,
    arguments: Mapping[str, Any],
    *,
    read_only: bool = False,
    opinion: Opinion = NO_OPINION,
    always_asks: bool = False,
) -> Verdict:
    """Return what is done with a call.

    The first of these that says something decides: deny rules, rules that the user accepted, ask rules, the tool's own
    check where it denies, the mode `explore` where it denies, the check where it asks for safety, the check or the mode
    where it allows, allow rules, the mode `bypass`. Else the user is asked, or nobody in the mode `dont_ask`: then
    the call is denied. A session that has only accepted rules and the mode `default` runs all that no check objects to.
    With `always_asks`, only a deny rule comes before the question.
    """
    texts = list(_texts(arguments))
    allowing = context.allow_rules.get(tool_name, [])
    if _is_meant(context.deny_rules.get(tool_name, []), texts):
        return Verdict("deny", "a rule")
    if always_asks:
        return _asked(context.mode, opinion.reason)
    if _is_meant([rule for rule in allowing if ACCEPTED in rule.extra], texts, wholly=True):
        return _ALLOWED
    if _is_plain(context):
        return _ALLOWED if opinion.decision in (None, "allow") else Verdict(opinion.decision, opinion.reason)
    if _is_meant(context.ask_rules.get(tool_name, []), texts):
        return _asked(context.mode, "a rule")
    if opinion.decision == "deny":
        return Verdict("deny", opinion.reason)
    if context.mode == "explore" and not read_only:
        return Verdict("deny", "only tools that change nothing run now")
    if opinion.decision == "ask" and opinion.is_about_safety:
        return _asked(context.mode, opinion.reason)
    if opinion.decision == "allow" or (read_only and context.mode in ("explore", "accept_edits")):
        return _ALLOWED
    if context.mode == "bypass" or _is_meant(allowing, texts, wholly=True):
        return _ALLOWED
    return _asked(context.mode, opinion.reason)


def _asked(mode: Mode, reason: str) -> Verdict:
    return Verdict("deny", "nobody can be asked") if mode == "dont_ask" else Verdict("ask", reason)


def _is_plain(context: PermissionContext) -> bool:
    """Tell whether nothing was set that decides about all calls."""
    if context.mode != "default" or context.working_directories:
        return False
    tables = (context.deny_rules, context.ask_rules, context.allow_rules)
    return not any(ACCEPTED not in rule.extra for rules in tables for listed in rules.values() for rule in listed)


# ── rules ────────────────────────────────────────────────────────────────────


def _is_meant(rules: Sequence[PermissionRule], texts: Sequence[str], *, wholly: bool = False) -> bool:
    """Tell whether one of some rules is meant for a call with these texts among its arguments.

    A rule with content is a pattern, such as `/etc/*`. It is meant for a call that has such a text. What allows a call
    must not overlook anything: there, `wholly`, each of its texts has to fit one of the rules.
    """
    if not rules:
        return False
    patterns = _patterns(tuple([rule.rule_content for rule in rules]))
    if patterns is None:
        return True
    found = map(patterns.fit, texts)
    return bool(texts) and all(found) if wholly else any(found)


@lru_cache(maxsize=1_024)
def _patterns(contents: tuple[str | None, ...]) -> Patterns | None:
    """Return the patterns that rules hold; `None` if one of them is meant for every call."""
    filled = [content for content in contents if content]
    return Patterns(filled) if len(filled) == len(contents) else None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast(Mapping[str, object], value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from _texts(item)


def suggested_rules(tool_name: str) -> list[PermissionRule]:
    """Return the rules that an answer may bring, so that the same is not asked again."""
    return [PermissionRule(tool_name, "allow", SUGGESTED)]


def add_rule(context: PermissionContext, rule: PermissionRule) -> None:
    """Add a rule to those of a session, once.

    Raises:
        ValueError: its behaviour is not `allow`, `deny` or `ask`.
    """
    tables: dict[str, Rules] = {"allow": context.allow_rules, "deny": context.deny_rules, "ask": context.ask_rules}
    rules = tables.get(rule.behavior)
    if rules is None:
        raise ValueError(f"a rule allows, denies or asks; {rule.behavior!r} does none of it")
    listed = rules.setdefault(rule.tool_name, [])
    if rule not in listed:
        listed.append(rule)


def accepted(rule: PermissionRule) -> PermissionRule:
    """Return a rule that came with an answer, marked as such."""
    return replace(rule, extra={**rule.extra, ACCEPTED: True})


# ── what an agent is given ───────────────────────────────────────────────────


def read_permissions(given: object) -> PermissionContext:
    """Return the permissions of new sessions that an agent was given: as a mode, or as a whole context.

    Raises:
        ConfigurationError: it is something else.
    """
    if given is None:
        return PermissionContext()
    return copy_record(given) if isinstance(given, PermissionContext) else PermissionContext(mode=checked_mode(given))


def checked_rule(rule: object) -> PermissionRule:
    """Return a rule that was given as an object, or as a dict with its fields.

    Raises:
        ValueError: it is something else, or neither allows, denies nor asks.
    """
    try:
        found = rule if isinstance(rule, PermissionRule) else read_record(PermissionRule, rule)
    except StateDecodeError as error:
        raise ValueError(
            'a rule is {"tool_name": …, "behavior": "allow", "deny" or "ask", "source": …}, perhaps with'
            f' "rule_content", not {rule!r}'
        ) from error
    add_rule(PermissionContext(), found)
    return found


def checked_mode(mode: object) -> Mode:
    """Return a mode that exists.

    Raises:
        ConfigurationError: it does not.
    """
    if mode not in MODES:
        raise ConfigurationError(f"{mode!r} is not a permission mode: give one of {', '.join(MODES)}")
    return mode
