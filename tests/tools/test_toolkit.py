"""Tools in groups: what belongs where, and what a session is offered."""

from __future__ import annotations

import pytest

from leafward import ConfigurationError, Toolkit, ToolSet, tool


def search(query: str) -> str:
    """Search the web."""
    return query


@tool(group="files")
def read(path: str) -> str:
    """Read a file."""
    return path


def ask(question: str) -> str:
    """Ask the user."""
    return question


def kit() -> Toolkit:
    made = Toolkit().create_group("web", "Pages.").create_group("files", active=True)
    return made.register(search, group="web").register(read).register(ask)


def test_a_tool_is_offered_while_its_group_is_active_and_always_without_one() -> None:
    assert list(kit().offered([])) == ["ask"]
    assert list(kit().offered(["files"])) == ["read", "ask"]
    assert list(kit().offered(["web", "unknown"])) == ["search", "ask"]


def test_groups_are_listed_in_order_with_those_a_new_session_begins_with() -> None:
    assert [(group.name, group.description) for group in kit().groups] == [("web", "Pages."), ("files", "")]
    assert kit().initial_groups == ["files"]


def test_a_group_named_at_registration_beats_that_of_the_tool() -> None:
    moved = Toolkit().create_group("web").register(read, group="web")["read"]

    assert moved.group == "web"
    assert read.group == "files", "the tool itself is unchanged"


def test_a_toolkit_is_a_set_of_all_its_tools() -> None:
    assert [shape["name"] for shape in kit().to_anthropic()] == ["search", "read", "ask"]


def test_a_copy_does_not_follow_the_toolkit_it_was_made_of() -> None:
    made = kit()
    copy = Toolkit(made)
    made.create_group("late").register(tool(name="later")(ask), group="late")

    assert [group.name for group in copy.groups] == ["web", "files"]
    assert list(copy) == ["search", "read", "ask"]


def test_merging_keeps_the_groups_of_both() -> None:
    other = Toolkit().create_group("mail", active=True).register(tool(name="send")(ask), group="mail")

    merged = kit() | other

    assert isinstance(merged, Toolkit)
    assert [group.name for group in merged.groups] == ["web", "files", "mail"]
    assert merged.initial_groups == ["files", "mail"]
    assert list(merged) == ["search", "read", "ask", "send"]
    assert list((kit() | [tool(name="read")(ask)]).offered([])) == ["read", "ask"], "the right one's tools win"


def test_a_set_of_tools_makes_a_toolkit_without_groups() -> None:
    assert list(Toolkit(ToolSet([search, ask])).offered([])) == ["search", "ask"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: kit().create_group("web"), "the tool group 'web' exists already"),
        (lambda: kit().create_group(""), "the name of a tool group is a text, not ''"),
        (lambda: kit().register(search), "two tools are named 'search': give one of them another name"),
        (lambda: Toolkit([read]), r"create it first, with Toolkit\(\).create_group\('files'\)"),
        (lambda: Toolkit().register(ask, group="nope"), "the tool 'ask' is in the group 'nope', which does not exist"),
    ],
)
def test_what_cannot_be_is_refused(wrong: object, text: str) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigurationError, match=text):
        wrong()


def test_two_tools_of_one_name_are_refused_and_merged_sets_take_the_right_one() -> None:
    def one() -> str:
        """Say one."""
        return "1"

    other = tool(name="one", description="Say one, too.")(one)

    with pytest.raises(ConfigurationError, match="two tools are named 'one'"):
        ToolSet([one, other])
    assert (ToolSet([one]) | [other])["one"].description == "Say one, too."
    assert [*(ToolSet([one, search]) | [other])] == ["one", "search"]
