"""A directory of skills that the model may write to."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward.core.errors import ContextError, StoreError
from leafward.sessions import ContextEntry
from leafward.sessions.skills import DirectorySkillProvider
from leafward.sessions.skills.listing import one_line

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.mark.parametrize("method", ["set", "delete_entry"])
def test_only_a_writable_provider_writes_and_deletes(tmp_path: Path, method: str) -> None:
    assert not hasattr(DirectorySkillProvider(tmp_path), method)
    assert hasattr(DirectorySkillProvider(tmp_path, writable=True), method)


async def test_a_new_skill_is_listed_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet"
    provider = DirectorySkillProvider(path, writable=True)
    assert await provider.get() is None
    assert await provider.load("deploy") is None

    await provider.set("deploy", "Push the button.\n", "How we deploy: carefully")

    assert await provider.get() == "- deploy: How we deploy: carefully"
    assert await DirectorySkillProvider(path).load("deploy") == "Push the button.\n"
    assert files(path) == ["deploy", "deploy/SKILL.md"]


async def test_writing_again_keeps_the_description_and_what_else_the_front_matter_says(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text(
        "---\nname: a\ndescription: Old\nlicense: MIT\nmetadata:\n  version: '1.0'\n  when: 2024-02-30\n---\nOld body\n"
    )
    provider = DirectorySkillProvider(tmp_path, writable=True)

    await provider.set("a", "New body\n")
    assert await provider.get() == "- a: Old"
    await provider.set("a", "Newer body\n", "New")

    assert await provider.get() == "- a: New"
    assert await provider.load("a") == "Newer body\n"
    stored = (tmp_path / "a" / "SKILL.md").read_text()
    assert "license: MIT\nmetadata:\n  version: '1.0'\n  when: 2024-02-30\n" in stored


async def test_writing_again_keeps_texts_with_colons(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "SKILL.md"
    file.write_text("---\nname: a\ndescription: Use when: asked\nnote: It's: odd\nlicense: MIT\n---\nOld body\n")
    provider = DirectorySkillProvider(tmp_path, writable=True)

    await provider.set("a", "New body\n")

    assert await provider.get() == "- a: Use when: asked"
    assert await provider.load("a") == "New body\n"
    # Now any reader of YAML takes it.
    fields = yaml.safe_load(file.read_text().split("---\n")[1])
    assert fields == {"name": "a", "description": "Use when: asked", "note": "It's: odd", "license": "MIT"}
    await provider.set("a", "Newer body\n", "Use if: asked")
    assert await provider.get() == "- a: Use if: asked"


async def test_front_matter_that_cannot_be_read_is_not_lost_by_writing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text("---\nname: [\n---\nBody\n")

    with pytest.raises(ContextError, match=r"a/SKILL\.md has front matter that is not YAML"):
        await DirectorySkillProvider(tmp_path, writable=True).set("a", "New")

    assert (tmp_path / "a" / "SKILL.md").read_text() == "---\nname: [\n---\nBody\n"


@given(content=TEXT, description=TEXT)
@settings(max_examples=60)
def test_what_was_written_is_what_is_read(content: str, description: str) -> None:
    async def write_and_read(path: str) -> tuple[str | None, str | None]:
        provider = DirectorySkillProvider(path, writable=True)
        await provider.set("a", "first", "first")
        await provider.set("a", content, description)
        return await provider.load("a"), await provider.get()

    with TemporaryDirectory() as path:
        loaded, listed = asyncio.run(write_and_read(path))

    line = one_line(description)
    assert loaded == content
    assert listed == (f"- a: {line}" if line else "- a")


async def test_text_that_utf8_cannot_hold_is_mended(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)

    await provider.set("a", "x\ud800y", "d\udfff")

    assert await provider.load("a") == "x\ufffdy"
    assert await provider.get() == "- a: d\ufffd"


@pytest.mark.parametrize("key", ["../a", "/a", "a/b", "", ".a", "a\0", "a\\b", "ü" * 150])
async def test_a_key_that_is_no_single_name_is_refused_and_nothing_written(tmp_path: Path, key: str) -> None:
    path = tmp_path / "skills"

    with pytest.raises(ContextError, match="is refused: "):
        await DirectorySkillProvider(path, writable=True).set(key, "text")

    assert files(tmp_path) == []


async def test_content_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="is text, not dict"):
        await DirectorySkillProvider(tmp_path, writable=True).set("a", {})  # pyright: ignore[reportArgumentType]


async def test_a_document_over_the_limit_leaves_nothing_behind(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True, max_bytes=200)

    with pytest.raises(ContextError, match="at most 200 are taken"):
        await provider.set("a", "x" * 200)

    assert files(tmp_path) == []


async def test_a_link_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.md").write_text("mine")
    path = tmp_path / "skills"
    (path / "b").mkdir(parents=True)
    (path / "a").symlink_to(outside)
    (path / "b" / "SKILL.md").symlink_to(outside / "file.md")
    provider = DirectorySkillProvider(path, writable=True)

    for key in ["a", "b"]:
        with pytest.raises(ContextError, match="is a link"):
            await provider.set(key, "text")

    assert files(outside) == ["file.md"]
    assert (outside / "file.md").read_text() == "mine"


async def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")

    with pytest.raises(ContextError, match="'a' is taken by a file"):
        await DirectorySkillProvider(tmp_path, writable=True).set("a", "text")


async def test_a_write_that_fails_leaves_the_former_document_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    await provider.set("a", "former")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(StoreError, match=r"a/SKILL\.md cannot be read or written: Input/output error"):
            await provider.set("a", "new")

    assert await provider.load("a") == "former"
    assert files(tmp_path) == ["a", "a/SKILL.md"]


async def test_many_writers_never_mix_their_texts(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    texts = [str(number) * 20_000 for number in range(10)]
    await provider.set("a", texts[0], "About")

    async def read() -> str | None:
        return await DirectorySkillProvider(tmp_path).load("a")

    *_, seen = await asyncio.gather(
        *(provider.set("a", text) for text in texts), asyncio.gather(*(read() for _ in texts))
    )

    assert seen is not None
    assert set(seen) <= set(texts)
    assert await provider.get() == "- a: About"
    assert files(tmp_path) == ["a", "a/SKILL.md"]


async def test_a_description_is_not_lost_to_a_writer_that_gives_none(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    for turn in range(5):
        writes = [provider.set("a", f"text {number}") for number in range(6)]

        await asyncio.gather(*writes[:3], provider.set("a", "described", f"About {turn}"), *writes[3:])

        assert await provider.get() == f"- a: About {turn}"


# ── deleting ─────────────────────────────────────────────────────────────────


async def test_a_deleted_skill_is_gone_with_its_folder(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    for key in ("a", "b"):
        await provider.set(key, "text", f"About {key}")

    assert await provider.delete_entry("a") is True

    assert await provider.delete_entry("a") is False
    assert await provider.load("a") is None
    assert await provider.list_entries() == [ContextEntry("b", "About b")]
    assert files(tmp_path) == ["b", "b/SKILL.md"]


async def test_a_skill_that_cannot_be_loaded_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text("---\n{broken\n---\n")
    provider = DirectorySkillProvider(tmp_path, writable=True)
    (entry,) = await provider.list_entries()
    assert (entry.description or "").startswith("[cannot be loaded: ")

    assert await provider.delete_entry("a") is True

    assert files(tmp_path) == []


@pytest.mark.parametrize(("other", "named"), [("notes.md", "notes.md"), ("scripts/run.sh", "scripts")])
async def test_a_folder_with_more_than_the_document_is_not_deleted(tmp_path: Path, other: str, named: str) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    await provider.set("a", "text")
    (tmp_path / "a" / other).parent.mkdir(exist_ok=True)
    (tmp_path / "a" / other).write_text("by hand")

    with pytest.raises(ContextError, match=f"'a' has more in it.*'{named}'.*nothing was deleted"):
        await provider.delete_entry("a")

    assert await provider.load("a") is not None
    assert (tmp_path / "a" / other).read_text() == "by hand"


async def test_what_is_hidden_in_a_folder_outlives_the_skill(tmp_path: Path) -> None:
    provider = DirectorySkillProvider(tmp_path, writable=True)
    await provider.set("a", "text")
    (tmp_path / "a" / ".keep").write_text("by hand")

    assert await provider.delete_entry("a") is True

    assert await provider.get() is None
    assert files(tmp_path) == ["a", "a/.keep"]


async def test_deleting_follows_no_link(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside / "b"):
        folder.mkdir(parents=True)
    (outside / "SKILL.md").write_text("mine")
    (inside / "a").symlink_to(outside)
    (inside / "b" / "SKILL.md").symlink_to(outside / "SKILL.md")
    provider = DirectorySkillProvider(inside, writable=True)

    for key in ("a", "b"):
        with pytest.raises(ContextError, match=r"is a link|not a regular file"):
            await provider.delete_entry(key)

    assert (outside / "SKILL.md").read_text() == "mine"
    assert files(inside) == ["a", "b", "b/SKILL.md"]


@pytest.mark.parametrize("key", ["../a", "/a", "a/b", "", ".", "..", ".a", "a\0", "a\\b"])
async def test_a_key_that_is_a_path_deletes_nothing(tmp_path: Path, key: str) -> None:
    provider = DirectorySkillProvider(tmp_path / "skills", writable=True)
    await provider.set("a", "text")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text("not in the directory")

    with pytest.raises(ContextError, match="is refused"):
        await provider.delete_entry(key)

    assert files(tmp_path) == ["a", "a/SKILL.md", "skills", "skills/a", "skills/a/SKILL.md"]


async def test_a_folder_without_a_document_is_not_a_skill_to_delete(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("a file")
    provider = DirectorySkillProvider(tmp_path, writable=True)

    for key in ("a", "b", "c"):
        assert await provider.delete_entry(key) is False

    assert files(tmp_path) == ["a", "b"]
    assert await DirectorySkillProvider(tmp_path / "none", writable=True).delete_entry("a") is False
