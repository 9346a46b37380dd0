"""Skills in a bucket, on a real S3 server."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from leafward.core.errors import ConfigurationError, ContextError, LeafwardError, StoreError
from leafward.sessions import ContextEntry
from leafward.sessions.skills import BucketSkillProvider
from leafward.sessions.skills.objects import Objects
from tests.sessions.skills.conftest import Bucket

SKILL = "---\nname: pdf\ndescription: Read PDFs\n---\n\nUse a tool.\n"


class TestTheList:
    async def test_each_object_has_a_line_with_its_key_and_description_in_order(self, bucket: Bucket) -> None:
        bucket.put("skills/api-ref", "the text", description="API Reference")
        bucket.put("skills/guides/deploy.md", "the text")
        bucket.put("skills/Zip", "the text", description="Pack files")
        bucket.put("skills-of-others/x", "not ours")
        bucket.put("other", "not ours")

        for prefix in ["skills/", "skills", "/skills/"]:
            listed = await bucket.provider(prefix).get()
            assert listed == "- Zip: Pack files\n- api-ref: API Reference\n- guides/deploy.md"

    async def test_a_folder_without_objects_has_no_list(self, bucket: Bucket) -> None:
        bucket.put("other", "not ours")
        bucket.put("skills/", "")
        bucket.put("skills/empty/", "")

        assert await bucket.provider("skills/").get() is None
        assert await bucket.provider("nothing/").get() is None

    async def test_without_a_prefix_the_whole_bucket_is_listed(self, bucket: Bucket) -> None:
        bucket.put("a", "text", description="A")
        bucket.put("b/c", "text")

        assert await bucket.provider().get() == "- a: A\n- b/c"

    async def test_a_path_in_the_url_comes_before_the_prefix(self, bucket: Bucket) -> None:
        bucket.put("team/skills/a", "text", description="A")

        provider = BucketSkillProvider(f"s3://{bucket.name}/team", "skills/", **bucket.options)

        assert await provider.get() == "- a: A"
        assert await provider.load("a") == "text"

    async def test_skills_beyond_the_first_page_are_listed(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The server's pages; it would send a thousand.
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
        for number in range(25):
            bucket.put(f"skills/{number:02}", "")
        assert len(bucket.keys()) == 10

        assert await bucket.provider("skills/").get() == "\n".join(f"- {number:02}" for number in range(25))

    async def test_a_long_list_does_not_ask_for_everything_at_once(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(40):
            bucket.put(f"{number:02}", "")
        asking, most, ask = 0, 0, Objects.description

        async def count(objects: Objects, path: str) -> tuple[bool, str | None]:
            nonlocal asking, most
            asking += 1
            most = max(most, asking)
            try:
                return await ask(objects, path)
            finally:
                asking -= 1

        monkeypatch.setattr(Objects, "description", count)

        assert len(str(await bucket.provider().get()).splitlines()) == 40
        assert most == 16

    async def test_a_folder_with_a_skill_file_is_one_skill(self, bucket: Bucket) -> None:
        bucket.put("skills/pdf/", "")
        bucket.put("skills/pdf/SKILL.md", SKILL)
        bucket.put("skills/pdf/reference.md", "Reference")
        bucket.put("skills/pdf/.env", "hidden")
        bucket.put("skills/note.md", "A note")
        provider = bucket.provider("skills/")

        assert await provider.get() == "- note.md\n- pdf: Read PDFs"
        assert await provider.load("pdf/reference.md") == "Reference"
        assert await provider.load("pdf") == (
            "Use a tool.\n\nResources of this skill, each loaded by its key:\n- pdf/reference.md\n"
        )

    async def test_bad_front_matter_is_told_and_hides_no_other_skill(self, bucket: Bucket) -> None:
        bucket.put("bad/SKILL.md", "---\nname: [\n---\nHello\n")
        bucket.put("good", "text", description="Works")
        provider = bucket.provider()

        assert await provider.get() == (
            "- bad: [cannot be loaded: bad/SKILL.md has front matter that is not YAML at line 3]\n- good: Works"
        )
        with pytest.raises(ContextError, match=r"bad/SKILL\.md has front matter"):
            await provider.load("bad")

    async def test_an_object_whose_name_cannot_be_a_key_is_told(self, bucket: Bucket) -> None:
        bucket.put("a\\b", "text")
        bucket.put("c", "text")

        listed = str(await bucket.provider().get())

        assert listed.startswith("- a\\b: [cannot be loaded: the name of its object cannot be a key")
        assert listed.endswith("\n- c")

    async def test_an_object_the_driver_cannot_name_is_told(self, bucket: Bucket) -> None:
        bucket.put("skills//x", "text")

        with pytest.raises(StoreError, match="two slashes in a row"):
            await bucket.provider("skills/").get()


class TestLoading:
    async def test_an_object_gives_its_text_and_an_unknown_key_nothing(self, bucket: Bucket) -> None:
        bucket.put("skills/guides/über.md", "Text with ümläuts\n")
        provider = bucket.provider("skills/")

        assert await provider.load("guides/über.md") == "Text with ümläuts\n"
        assert await provider.load("guides") is None
        assert await provider.load("nope") is None

    @pytest.mark.parametrize("key", ["../other", "/other", "a/../../other", "", "a//b", "a\0", "\ud800", ".env"])
    async def test_a_key_that_is_a_path_is_refused(self, bucket: Bucket, key: str) -> None:
        bucket.put("other", "not ours")
        provider = bucket.provider("skills/")

        with pytest.raises(ContextError, match="is refused: "):
            await provider.load(key)
        with pytest.raises(ContextError, match="is refused: "):
            await provider.set(key, "text")

        assert bucket.keys() == ["other"]

    async def test_what_is_not_text_or_too_large_is_refused(self, bucket: Bucket) -> None:
        bucket.put("logo.png", b"\x89PNG\xff")
        bucket.put("large", "x" * 11)

        with pytest.raises(ContextError, match=r"logo\.png is not UTF-8 text"):
            await bucket.provider().load("logo.png")
        with pytest.raises(ContextError, match="large is larger than 10 bytes"):
            await bucket.provider(max_bytes=10).load("large")

    async def test_keys_limit_what_is_listed_and_loaded(self, bucket: Bucket) -> None:
        for key in ["a", "b", "pdf/reference.md", "pdfs"]:
            bucket.put(key, "text")
        bucket.put("pdf/SKILL.md", SKILL)
        provider = bucket.provider(keys=["a", "pdf"])

        assert await provider.get() == "- a\n- pdf: Read PDFs"
        assert await provider.load("a") == "text"
        assert await provider.load("pdf/reference.md") == "text"
        assert await provider.load("b") is None
        assert await provider.load("pdfs") is None
        assert await bucket.provider(keys=[]).get() is None

    async def test_keys_do_not_limit_what_is_written(self, bucket: Bucket) -> None:
        await bucket.provider(keys=["a"]).set("b", "text")

        assert bucket.keys() == ["b"]


class TestWriting:
    async def test_a_new_skill_is_listed_and_loaded(self, bucket: Bucket) -> None:
        provider = bucket.provider("skills/")

        await provider.set("deploy", "Push the button.\n", "How we deploy")

        assert bucket.keys() == ["skills/deploy"]
        assert bucket.metadata("skills/deploy") == {"description": "How we deploy"}
        assert await provider.get() == "- deploy: How we deploy"
        assert await provider.load("deploy") == "Push the button.\n"

    async def test_writing_again_keeps_the_description_until_there_is_another(self, bucket: Bucket) -> None:
        provider = bucket.provider()
        await provider.set("a", "one", "First")

        await provider.set("a", "two")
        assert await provider.get() == "- a: First"
        await provider.set("a", "three", "Second")

        assert await provider.get() == "- a: Second"
        assert await provider.load("a") == "three"

    @pytest.mark.parametrize("description", ["Über 漢字 – 🎉", "two\nlines", "=?utf-8?q?not_encoded?=", "d\ud800"])
    async def test_a_description_may_hold_any_text(self, bucket: Bucket, description: str) -> None:
        provider = bucket.provider()

        await provider.set("a", "text", description)

        assert await provider.get() == "- a: " + description.replace("\n", " ").replace("\ud800", "\ufffd")

    async def test_a_skill_over_the_limit_is_not_written(self, bucket: Bucket) -> None:
        with pytest.raises(ContextError, match="at most 10 are taken"):
            await bucket.provider(max_bytes=10).set("a", "x" * 11)
        with pytest.raises(ContextError, match="description is too long"):
            await bucket.provider().set("a", "x", "漢" * 1000)

        assert bucket.keys() == []

    def test_a_provider_that_is_not_writable_has_no_set(self, bucket: Bucket) -> None:
        assert hasattr(bucket.provider(), "set")
        assert not hasattr(bucket.provider(writable=False), "set")

    async def test_many_skills_are_written_and_listed_at_once(self, bucket: Bucket) -> None:
        provider = bucket.provider()

        await asyncio.gather(*(provider.set(f"{number:02}", "text", f"d{number}") for number in range(40)))

        assert await provider.get() == "\n".join(f"- {number:02}: d{number}" for number in range(40))


class _Echo(BaseHTTPRequestHandler):
    """Refuses every request, and quotes all of it, as some servers do."""

    def _refuse(self) -> None:
        body = f"<Error><Code>SignatureDoesNotMatch</Code><Request>{self.headers}</Request></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = _refuse  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output to itself."""


@pytest.fixture
def refusing_endpoint() -> Generator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def failures(provider: BucketSkillProvider) -> list[LeafwardError]:
    """Return the error of each thing a provider can be asked for."""
    found: list[LeafwardError] = []
    for asked in [provider.get(), provider.load("a"), provider.set("a", "text"), provider.set("a", "text", "d")]:
        with pytest.raises(StoreError) as failed:
            await asked
        found.append(failed.value)
    return found


class TestDeleting:
    async def test_a_deleted_skill_is_gone_and_no_other_object(self, bucket: Bucket) -> None:
        provider = bucket.provider("skills/")
        await provider.set("deploy", "Push the button.", "How we deploy")
        for path in ("deploy", "skills/deploy-2", "skills/deploy/more", "other/deploy"):
            bucket.put(path, "not it")
        assert ContextEntry("deploy", "How we deploy") in await provider.list_entries()

        assert await provider.delete_entry("deploy") is True

        assert await provider.delete_entry("deploy") is False
        assert await provider.load("deploy") is None
        assert bucket.keys() == ["deploy", "other/deploy", "skills/deploy-2", "skills/deploy/more"]

    async def test_a_folder_is_not_deleted(self, bucket: Bucket) -> None:
        bucket.put("pdf/SKILL.md", SKILL)
        bucket.put("pdf/more.md", "more")

        with pytest.raises(ContextError, match="'pdf' is a folder: nothing was deleted"):
            await bucket.provider().delete_entry("pdf")

        assert bucket.keys() == ["pdf/SKILL.md", "pdf/more.md"]

    async def test_only_the_given_keys_are_deleted_and_only_where_it_may_write(self, bucket: Bucket) -> None:
        bucket.put("a", "text")

        assert await bucket.provider(keys=["b"]).delete_entry("a") is False
        assert not hasattr(bucket.provider(writable=False), "delete_entry")
        for key in ("../a", "/a", "", "a/../b"):
            with pytest.raises(ContextError, match="is refused"):
                await bucket.provider("skills/").delete_entry(key)

        assert bucket.keys() == ["a"]


class TestAServerThatFails:
    async def test_an_error_says_what_the_server_answered_and_no_credential(self, refusing_endpoint: str) -> None:
        secrets: dict[str, Any] = {
            "access_key_id": "AKIAPLANTED",
            "secret_access_key": "planted1",
            "session_token": "planted2",
        }
        provider = BucketSkillProvider("s3://bucket", "skills/", endpoint=refusing_endpoint, region="auto", **secrets)

        errors = await failures(provider)

        assert "s3://bucket/skills/" in str(errors[0])
        assert "the server answered SignatureDoesNotMatch" in str(errors[1])
        for error in errors:
            assert error.__cause__ is None
            assert not any(secret in f"{error!r}{error}" for secret in secrets.values())
        assert not any(secret in repr(provider) for secret in secrets.values())

    async def test_a_bucket_that_is_not_there_is_told(self, bucket: Bucket) -> None:
        provider = BucketSkillProvider("s3://no-such-bucket", **bucket.options)

        assert all("NoSuchBucket" in str(error) for error in await failures(provider))

    async def test_a_server_that_cannot_be_reached_is_told(self, bucket: Bucket) -> None:
        options = {**bucket.options, "endpoint": "http://127.0.0.1:9", "retry_config": {"max_retries": 0}}

        errors = await failures(BucketSkillProvider("s3://bucket", **options))

        assert all("the server could not be reached" in str(error) for error in errors)


class TestSetUp:
    @pytest.mark.parametrize(
        ("url", "options"),
        [
            ("bucket", {}),
            ("file:///skills", {}),
            ("memory:///", {}),
            ("https://example.com/bucket", {}),
            ("s3://", {}),
            (7, {}),
            ("s3://AKIA:planted@bucket", {}),
            ("s3:/AKIA:planted@bucket", {}),
            ("s3://bucket", {"colour": "planted"}),
            ("s3://bucket", {"region": 5}),
            ("s3://bucket", {"virtual_hosted_style_request": "planted"}),
            ("s3://bucket", {"client_options": {"colour": "planted"}}),
            ("s3://bucket", {"prefix": "../x"}),
            ("s3://bucket", {"prefix": "a//b"}),
            ("s3://bucket", {"keys": "one-string"}),
        ],
    )
    def test_a_wrong_url_or_option_is_refused_without_quoting_a_value(self, url: Any, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError) as refused:
            BucketSkillProvider(url, **options)

        assert "planted" not in str(refused.value)

    async def test_options_may_have_their_aws_names(self, bucket: Bucket) -> None:
        bucket.put("a", "text")
        options = {f"aws_{name}": value for name, value in bucket.options.items()}

        assert await BucketSkillProvider(f"s3://{bucket.name}", **options, allow_http=True).load("a") == "text"

    def test_without_obstore_the_extra_to_install_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "obstore.store", None)

        with pytest.raises(ConfigurationError, match=r"leafward\[s3\]"):
            BucketSkillProvider("s3://bucket")
