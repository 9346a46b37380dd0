"""Front matter that cannot be read is refused, with the reason and in reasonable time."""

from __future__ import annotations

import pytest

from leafward import ContextError
from leafward.sessions.skills import frontmatter

DEEP = "[" * 500


@pytest.mark.parametrize(
    "fields", [f"k: {DEEP}", f"k: a\u2028b: {DEEP}", f"k: a\rb: {DEEP}", f"m:\n  k: a\x85  b: {DEEP}"]
)
def test_front_matter_that_nests_too_deeply_is_refused_at_the_first_try(
    fields: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    read = frontmatter._node

    def counted(text: str) -> object:
        tries.append(text)
        return read(text)

    monkeypatch.setattr(frontmatter, "_node", counted)

    with pytest.raises(ContextError, match=r"a/SKILL\.md has front matter that nests values too deeply"):
        frontmatter.parse_skill(f"---\n{fields}\n---\nbody", "a/SKILL.md")

    assert len(tries) == 1


def test_a_field_that_nests_too_deeply_behind_one_that_needs_quotes_is_refused() -> None:
    with pytest.raises(ContextError, match=r"nests values too deeply"):
        frontmatter.parse_skill(f"---\ndescription: a: b\nk: {DEEP}\n---\nbody", "a/SKILL.md")


def test_the_line_that_is_named_is_that_of_the_file() -> None:
    with pytest.raises(ContextError, match="is not YAML at line 3"):
        frontmatter.parse_skill("---\nname: x\ndescription: [a: b: c\n---\nbody", "a/SKILL.md")
