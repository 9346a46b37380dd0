"""What is done with a call, compared with a second implementation, written as a table of the rules one reads."""

from __future__ import annotations

from collections.abc import Set
from itertools import combinations, product
from typing import Any

import pytest

from leafward.core.agent_contexts import PermissionContext, PermissionRule, WorkingDirectory
from leafward.engine.permissions import MODES, Decision, Opinion, Verdict, accepted, add_rule, decide

OPINIONS = {
    "none": Opinion(),
    "allow": Opinion("allow"),
    "deny": Opinion("deny"),
    "ask": Opinion("ask"),
    "ask for safety": Opinion("ask", "Safety first"),
}
RULES = ("deny", "ask", "allow", "accepted allow", "accepted deny")
HERE, ELSEWHERE = "/tmp/a", "/etc/b"


def rule(kind: str, content: str | None) -> PermissionRule:
    behavior: Any = kind.rpartition(" ")[2]
    made = PermissionRule("tool", behavior, "userSettings", content)
    return accepted(made) if kind.startswith("accepted") else made


def expected(mode: str, rules: Set[str], opinion: str, read_only: bool, has_directory: bool) -> Decision:
    """Say what AgentScope's order, with the rules about accepted rules and `dont_ask`, makes of a call."""
    ask: Decision = "deny" if mode == "dont_ask" else "ask"
    said = OPINIONS[opinion].decision
    is_plain = mode == "default" and not has_directory and not rules & {"deny", "ask", "allow"}
    steps: list[tuple[bool, Decision]] = [
        (bool(rules & {"deny", "accepted deny"}), "deny"),
        ("accepted allow" in rules, "allow"),
        (is_plain and said is not None, said or ask),
        (is_plain, "allow"),
        ("ask" in rules, ask),
        (said == "deny", "deny"),
        (mode == "explore" and not read_only, "deny"),
        (opinion == "ask for safety", ask),
        (mode == "explore", "allow"),
        (mode == "accept_edits" and read_only, "allow"),
        (said == "allow", "allow"),
        ("allow" in rules, "allow"),
        (mode == "bypass", "allow"),
    ]
    return next(step for step in [*steps, (True, ask)] if step[0])[1]


SETS = [set(chosen) for count in range(len(RULES) + 1) for chosen in combinations(RULES, count)]


@pytest.mark.parametrize("content", [None, "", "/tmp/*"])
@pytest.mark.parametrize("mode", MODES)
def test_every_row_of_the_table_of_decisions(mode: Any, content: str | None) -> None:
    rows = list(product(SETS, OPINIONS, (False, True), (False, True)))
    for rules, opinion, read_only, has_directory in rows:
        context = PermissionContext(mode=mode)
        if has_directory:
            context.working_directories["w"] = WorkingDirectory("/tmp")
        for kind in sorted(rules):
            add_rule(context, rule(kind, content))
        found = decide(context, "tool", {"path": HERE}, read_only=read_only, opinion=OPINIONS[opinion])
        row = (mode, sorted(rules), opinion, read_only, has_directory)
        assert found.decision == expected(mode, rules, opinion, read_only, has_directory), row
    assert len(rows) == 640


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_allows_what_the_check_of_a_tool_denies(mode: Any) -> None:
    context = PermissionContext(mode=mode)
    for read_only in (False, True):
        assert decide(context, "tool", {}, read_only=read_only, opinion=Opinion("deny", "outside")).decision == "deny"


@pytest.mark.parametrize(
    ("arguments", "denied", "allowed"),
    [
        ({"path": HERE}, True, True),
        ({"path": ELSEWHERE}, False, False),
        ({"from": HERE, "to": ELSEWHERE}, True, False),
        ({"from": HERE, "to": "/tmp/c"}, True, True),
        ({"paths": [{"path": HERE}], "n": 3}, True, True),
        ({"n": 3}, False, False),
        ({}, False, False),
    ],
)
def test_a_pattern_denies_what_has_such_a_text_and_allows_what_has_only_such(
    arguments: Any, denied: bool, allowed: bool
) -> None:
    denying, allowing = PermissionContext(mode="bypass"), PermissionContext(mode="dont_ask")
    add_rule(denying, rule("deny", "/tmp/*"))
    add_rule(allowing, rule("allow", "/tmp/*"))

    assert (decide(denying, "tool", arguments).decision == "deny") is denied
    assert (decide(allowing, "tool", arguments).decision == "allow") is allowed


def test_rules_of_other_tools_have_no_say() -> None:
    context = PermissionContext(mode="bypass")
    add_rule(context, rule("deny", None))

    assert decide(context, "other", {}) == Verdict("allow")


def test_a_rule_is_added_once_and_has_to_do_something() -> None:
    context = PermissionContext()
    for _ in range(2):
        add_rule(context, rule("allow", None))

    assert len(context.allow_rules["tool"]) == 1
    with pytest.raises(ValueError, match="'passthrough' does none of it"):
        add_rule(context, PermissionRule("tool", "passthrough", "x"))
