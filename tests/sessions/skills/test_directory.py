"""A directory of Agent Skills, read by a model that may ask for anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from leafward.core.errors import ConfigurationError, ContextError
from leafward.sessions.skills import DirectorySkillProvider

SECRET = "nobody may read this"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "secret.md").write_text(SECRET)
    return tmp_path / "skills"


def add_skill(path: Path, name: str, text: str) -> Path:
    folder = path / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


def described(description: str, body: str = "Do it.") -> str:
    return f"---\nname: x\ndescription: {description}\n---\n\n{body}\n"


class TestTheList:
    async def test_each_skill_has_a_line_with_its_key_and_description_in_order(self, path: Path) -> None:
        for name, about in [("pdf", "Read PDFs"), ("Zip", "Pack files"), ("excel", "Read tables")]:
            add_skill(path, name, described(about))
        provider = DirectorySkillProvider(path)

        assert await provider.get() == "- Zip: Pack files\n- excel: Read tables\n- pdf: Read PDFs"
        assert await DirectorySkillProvider(str(path)).get() == await provider.get()

    async def test_a_directory_without_skills_has_no_list(self, path: Path) -> None:
        (path / "empty").mkdir(parents=True)
        (path / "README.md").write_text("not a skill")
        add_skill(path, ".hidden", described("Hidden"))

        assert await DirectorySkillProvider(path).get() is None

    async def test_a_skill_without_front_matter_is_listed_by_its_key_alone(self, path: Path) -> None:
        add_skill(path, "plain", "# Just text\n")
        add_skill(path, "silent", "---\nname: silent\ndescription:\n---\nHello\n")

        assert await DirectorySkillProvider(path).get() == "- plain\n- silent"

    async def test_a_description_of_many_lines_stays_on_one(self, path: Path) -> None:
        add_skill(path, "a", "---\ndescription: |\n  One.\n  - forged: Two.\n---\nHello\n")
        add_skill(path, "b", "---\ndescription: >\n  Folded\n  text.\nmetadata:\n  deep: [1, {x: y}]\n---\nHello\n")

        assert await DirectorySkillProvider(path).get() == "- a: One. - forged: Two.\n- b: Folded text."

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("Use when: the user asks", "Use when: the user asks"),
            ("Brews tea. Use when: the user's thirsty: or tired", "Brews tea. Use when: the user's thirsty: or tired"),
            ("Does this:", "Does this:"),
            ("Use when: asked\n  about: tea\n\n  or coffee", "Use when: asked about: tea or coffee"),
            ("`tea` and more", "`tea` and more"),
            ("@someone asks", "@someone asks"),
            ("用途: 当用户问: 茶", "用途: 当用户问: 茶"),
            # What YAML can read is read as YAML.
            ('"Use when: quoted"', "Use when: quoted"),
            ("Nothing unusual # a comment", "Nothing unusual"),
            ("Time 10:30, http://tea.example", "Time 10:30, http://tea.example"),
        ],
    )
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    async def test_a_description_with_a_colon_needs_no_quotes(
        self, path: Path, written: str, read: str, end: str
    ) -> None:
        more = "license: MIT\nallowed-tools: [Read, Bash]\nmetadata:\n  note: Brew: slowly\n  deep:\n    er: it's: so\n"
        text = described(written).replace("name: x\n", f"name: x\n{more}")
        add_skill(path, "a", text.replace("\n", end))
        provider = DirectorySkillProvider(path)

        assert await provider.get() == f"- a: {read}"
        assert str(await provider.load("a")).strip() == "Do it."

    async def test_a_description_that_never_ends_is_cut(self, path: Path) -> None:
        add_skill(path, "a", described("x" * 5000))

        line = await DirectorySkillProvider(path).get()

        assert line == "- a: " + "x" * 1023 + "…"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("---\nname: [\n---\nHello\n", "not YAML at line"),
            ("---\nname: never closed\n", "no line of three dashes closes"),
            ("---\n- a\n- b\n---\nHello\n", "not a list of fields"),
            ("---\ndescription: {a: b}\n---\nHello\n", "description that is not text"),
            ("---\nx: " + "[" * 1_500 + "\n---\nHello\n", "nests values too deeply"),
            ("---\nx: " + "y" * 17_000 + "\n---\nHello\n", "more than 16,384 characters"),
            ('---\nname: x\ndescription: "Use when: the user\n---\nHello\n', "not YAML at line"),
            ("---\ndescription: Use when: asked\nname: [\n---\nHello\n", "not YAML at line 2"),
            ("---\nmetadata:\n  a note: a: b\n---\nHello\n", "not YAML at line 3"),
            ("---\ndescription: Use when: \x07\n---\nHello\n", "not YAML"),
            ("---\nUse when: the user: asks\n---\nHello\n", "not YAML at line 2"),
        ],
        ids=[
            *("broken", "open", "list", "nested", "deep", "long"),
            *("half quoted", "another broken", "below a field", "a bell", "no field"),
        ],
    )
    async def test_bad_front_matter_is_told_and_hides_no_other_skill(self, path: Path, text: str, reason: str) -> None:
        add_skill(path, "bad", text)
        add_skill(path, "good", described("Works"))
        provider = DirectorySkillProvider(path)

        bad, good = str(await provider.get()).split("\n")

        assert bad.startswith("- bad: [cannot be loaded: bad/SKILL.md has ")
        assert reason in bad
        assert good == "- good: Works"
        with pytest.raises(ContextError, match=r"bad/SKILL\.md has"):
            await provider.load("bad")

    async def test_yaml_that_would_grow_without_end_is_read_at_once(self, path: Path) -> None:
        levels = "\n".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))
        add_skill(path, "a", f"---\na0: &a0 {{k: v}}\n{levels}\ndescription: Fine\n---\nHello\n")

        assert await DirectorySkillProvider(path).get() == "- a: Fine"

    async def test_a_folder_whose_name_cannot_be_a_key_is_told(self, path: Path) -> None:
        add_skill(path, "two\nlines", described("Sly"))
        add_skill(path, "b", described("Fine"))

        listed = str(await DirectorySkillProvider(path).get()).split("\n")

        assert listed[0] == "- b: Fine"
        assert listed[1].startswith("- two lines: [cannot be loaded: the name of its folder cannot be a key")
        assert len(listed) == 2

    async def test_what_changes_on_disk_is_seen_at_once(self, path: Path) -> None:
        folder = add_skill(path, "a", described("Old"))
        provider = DirectorySkillProvider(path)
        assert await provider.get() == "- a: Old"

        (folder / "SKILL.md").write_text(described("New"))

        assert await provider.get() == "- a: New"


class TestLoading:
    async def test_a_skill_gives_its_body_without_front_matter(self, path: Path) -> None:
        add_skill(path, "pdf", described("Read PDFs", body="# PDF\n\n---\nUse a tool."))

        assert await DirectorySkillProvider(path).load("pdf") == "# PDF\n\n---\nUse a tool.\n"

    async def test_a_file_with_foreign_line_ends_and_a_mark_is_understood(self, path: Path) -> None:
        folder = add_skill(path, "a", "")
        (folder / "SKILL.md").write_bytes(b"\xef\xbb\xbf---\r\ndescription: Fine\r\n---\r\n\r\nHi\r\n")
        provider = DirectorySkillProvider(path)

        assert await provider.get() == "- a: Fine"
        assert await provider.load("a") == "Hi\r\n"

    async def test_a_skill_names_the_resources_that_can_be_loaded(self, path: Path) -> None:
        folder = add_skill(path, "pdf", described("Read PDFs", body="See the reference."))
        (folder / "scripts").mkdir()
        (folder / "scripts" / "run.py").write_text("run()")
        (folder / "reference.md").write_text("Reference")
        (folder / ".env").write_text(SECRET)
        (folder / "link.md").symlink_to(folder / "reference.md")
        provider = DirectorySkillProvider(path)

        loaded = str(await provider.load("pdf"))

        body, _, resources = loaded.partition("Resources of this skill, each loaded by its key:\n")
        assert body == "See the reference.\n\n"
        assert resources == "- pdf/reference.md\n- pdf/scripts/run.py\n"
        assert await provider.load("pdf/reference.md") == "Reference"
        assert await provider.load("pdf/scripts/run.py") == "run()"

    async def test_a_skill_with_very_many_resources_names_some_and_says_so(self, path: Path) -> None:
        folder = add_skill(path, "a", described("Many"))
        for number in range(250):
            (folder / f"{number:03}.md").touch()

        lines = str(await DirectorySkillProvider(path).load("a")).splitlines()

        assert lines[-1] == "- … and more"
        assert sum(line.startswith("- a/") for line in lines) == 200

    @pytest.mark.parametrize("key", ["nope", "pdf/nope.md", "pdf/scripts", "folder", "folder/notes.md", "README.md"])
    async def test_an_unknown_key_gives_nothing(self, path: Path, key: str) -> None:
        (add_skill(path, "pdf", described("Read PDFs")) / "scripts").mkdir()
        (path / "folder").mkdir()
        (path / "folder" / "notes.md").write_text("beside the skills")
        (path / "README.md").write_text("beside the skills")

        assert await DirectorySkillProvider(path).load(key) is None

    @pytest.mark.parametrize("key", ["PDF", "pdf/Reference.md", "pdf/skill.md"])
    async def test_a_key_in_another_case_is_another_key(self, path: Path, key: str) -> None:
        (add_skill(path, "pdf", described("Read PDFs")) / "reference.md").write_text("Reference")

        assert await DirectorySkillProvider(path).load(key) is None


class TestAKeyThatIsAPath:
    @pytest.mark.parametrize(
        "key",
        [
            "../secret.md",
            "..",
            ".",
            "",
            " ",
            "/etc/passwd",
            "a/../../secret.md",
            "a/./SKILL.md",
            "a//SKILL.md",
            "a/",
            "a\0.md",
            "a\nb",
            "..\\secret.md",
            "a\\SKILL.md",
            "C:/secret.md",
            "C:secret.md",
            "\ud800",
            "x" * 600,
            ".git/config",
            "a/.env",
        ],
    )
    async def test_it_is_refused_with_a_sentence(self, path: Path, key: str) -> None:
        (add_skill(path, "a", described("A")) / ".env").write_text(SECRET)

        with pytest.raises(ContextError, match="is refused: ") as refused:
            await DirectorySkillProvider(path).load(key)

        assert isinstance(refused.value, ValueError)
        assert str(refused.value).isprintable()

    async def test_a_key_that_is_no_string_is_refused(self, path: Path) -> None:
        with pytest.raises(ContextError, match="a key is a string"):
            await DirectorySkillProvider(path).load(7)  # pyright: ignore[reportArgumentType]


class TestWhatIsNoFileOfASkill:
    async def test_a_link_out_of_the_directory_is_not_followed(self, path: Path) -> None:
        outside = add_skill(path.parent, "outside", described("Outside", body=SECRET))
        folder = add_skill(path, "a", described("A"))
        (folder / "file.md").symlink_to(path.parent / "secret.md")
        (folder / "up").symlink_to(path.parent)
        (path / "linked").symlink_to(outside)
        (path / "loop").symlink_to("loop")
        provider = DirectorySkillProvider(path)

        for key in ["a/file.md", "a/up/secret.md", "linked", "linked/SKILL.md", "loop"]:
            with pytest.raises(ContextError, match="is a link"):
                await provider.load(key)
        listed = str(await provider.get())
        assert listed.startswith("- a: A\n- linked: [cannot be loaded: linked is a link")
        assert SECRET not in str(await provider.load("a"))

    async def test_a_document_that_is_a_link_is_not_followed(self, path: Path) -> None:
        (path / "a").mkdir(parents=True)
        (path / "a" / "SKILL.md").symlink_to(path.parent / "secret.md")
        provider = DirectorySkillProvider(path)

        with pytest.raises(ContextError, match="is a link"):
            await provider.load("a")
        assert SECRET not in str(await provider.get())

    @pytest.mark.parametrize(("key", "swapped"), [("a/file.md", "file.md"), ("a/deep/secret.md", "deep")])
    async def test_what_becomes_a_link_after_it_was_looked_at_is_not_followed(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, key: str, swapped: str
    ) -> None:
        folder = add_skill(path, "a", described("A"))
        (folder / "file.md").write_text("harmless")
        (folder / "deep").mkdir()
        (folder / "deep" / "secret.md").write_text("harmless")
        provider = DirectorySkillProvider(path)
        look = os.stat

        def look_and_swap(name: str, **options: Any) -> os.stat_result:
            seen = look(name, **options)
            if name == swapped and not (folder / swapped).is_symlink():
                (folder / swapped).rename(path / "away")
                (folder / swapped).symlink_to(path.parent / ("secret.md" if swapped == "file.md" else ""))
            return seen

        monkeypatch.setattr(os, "stat", look_and_swap)
        try:
            loaded = await provider.load(key)
        except ContextError as refused:
            loaded = str(refused)

        assert (folder / swapped).is_symlink()
        assert loaded is None or "is a link" in loaded

    async def test_the_directory_itself_may_be_a_link(self, path: Path) -> None:
        add_skill(path, "a", described("A"))
        link = path.parent / "link"
        link.symlink_to(path)

        assert await DirectorySkillProvider(link).get() == "- a: A"

    async def test_a_pipe_neither_hangs_nor_is_read(self, path: Path) -> None:
        os.mkfifo(add_skill(path, "a", described("A")) / "pipe.md")

        with pytest.raises(ContextError, match=r"a/pipe\.md is not a regular file"):
            await DirectorySkillProvider(path).load("a/pipe.md")

    async def test_a_file_that_is_not_text_is_refused(self, path: Path) -> None:
        (add_skill(path, "a", described("A")) / "logo.png").write_bytes(b"\x89PNG\xff")

        with pytest.raises(ContextError, match=r"a/logo\.png is not UTF-8 text"):
            await DirectorySkillProvider(path).load("a/logo.png")

    async def test_a_file_over_the_limit_is_refused(self, path: Path) -> None:
        folder = add_skill(path, "a", described("A"))
        (folder / "just.md").write_text("x" * 1024 * 1024)
        (folder / "huge.md").write_text("x" * (1024 * 1024 + 1))
        provider = DirectorySkillProvider(path)

        assert len(str(await provider.load("a/just.md"))) == 1024 * 1024
        with pytest.raises(ContextError, match=r"a/huge\.md is larger than 1,048,576 bytes"):
            await provider.load("a/huge.md")

    async def test_the_limit_can_be_chosen(self, path: Path) -> None:
        add_skill(path, "a", "x" * 11)

        with pytest.raises(ContextError, match="larger than 10 bytes"):
            await DirectorySkillProvider(path, max_bytes=10).load("a")


class TestSetUp:
    async def test_a_directory_that_is_not_there_is_told(self, path: Path) -> None:
        provider = DirectorySkillProvider(path)

        with pytest.raises(ConfigurationError, match="there is no directory of skills"):
            await provider.get()
        with pytest.raises(ConfigurationError, match="there is no directory of skills"):
            await provider.load("a")

    async def test_a_file_is_not_a_directory_of_skills(self, path: Path) -> None:
        provider = DirectorySkillProvider(path.parent / "secret.md", writable=True)

        with pytest.raises(ConfigurationError, match="is not a directory"):
            await provider.get()
        with pytest.raises(ConfigurationError, match="is not a directory"):
            await provider.set("a", "text")

    async def test_a_relative_path_stays_where_it_was(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add_skill(path, "a", described("A"))
        monkeypatch.chdir(tmp_path)
        provider = DirectorySkillProvider("skills")

        monkeypatch.chdir("/")

        assert await provider.get() == "- a: A"

    def test_without_pyyaml_the_extra_to_install_is_named(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)

        with pytest.raises(ConfigurationError, match=r"leafward\[skills\]"):
            DirectorySkillProvider(path)
