"""Skills in a bucket of S3-compatible object storage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from leafward.core.errors import ConfigurationError, ContextError
from leafward.core.prompt import ContextEntry
from leafward.sessions.skills.frontmatter import parse_skill
from leafward.sessions.skills.keys import is_hidden, refusal, shown, split_key
from leafward.sessions.skills.listing import (
    DEFAULT_MAX_BYTES,
    MAX_RESOURCES,
    SKILL_FILE,
    Listed,
    document,
    listing,
    with_resources,
)
from leafward.sessions.skills.objects import Objects

_AT_ONCE = 16


class BucketSkillProvider:
    """Offers the objects of a bucket as skills: `BucketSkillProvider("s3://bucket", prefix="skills/")`.

    A skill's key is the path of its object below the folder `prefix`, its description the metadata `description` of
    that object. A folder with a `SKILL.md` is one skill, as in a directory: its key is the folder, and the objects
    beside its document are its resources. Listing asks for the metadata of each skill, a few at a time.

    Options say where the bucket is and who asks: `endpoint` (R2, MinIO and others), `region`, `access_key_id`,
    `secret_access_key`, `session_token`; what is not given comes from the `AWS_…` environment variables. `keys` limits
    what is listed, loaded and deleted; a folder in it stands for what is below it. `writable=False` leaves out `set`
    and `delete_entry`.

    Raises:
        ConfigurationError: obstore is not installed, or the URL, the prefix or an option is wrong.
    """

    def __init__(
        self,
        url: str,
        prefix: str = "",
        *,
        keys: Iterable[str] | None = None,
        writable: bool = True,
        max_bytes: int = DEFAULT_MAX_BYTES,
        **options: Any,
    ) -> None:
        if isinstance(keys, str):
            raise ConfigurationError("keys is a list of keys, not one string")
        self._objects = Objects(url, options)
        self._prefix = _folder(prefix)
        self._keys = None if keys is None else frozenset(keys)
        self._max_bytes = max_bytes
        # A provider is writable if it has `set`, so one that is not must not have it.
        if writable:
            self.set = self._set
            self.delete_entry = self._delete

    async def get(self) -> str | None:
        """Return a line for each skill, `- key: description`, in the order of the keys, or None when there are none.

        Raises:
            StoreError: the bucket cannot be read.
        """
        return listing(await self._list())

    async def list_entries(self) -> list[ContextEntry]:
        """Return the key and the description of each skill.

        Raises:
            StoreError: the bucket cannot be read.
        """
        return [skill.entry for skill in await self._list()]

    async def _list(self) -> list[Listed]:
        found = await self._objects.list(self._prefix)
        skills = _skills(path.removeprefix(self._prefix) for path in found)
        allowed = {key: paths for key, paths in skills.items() if self._allows(key)}
        turns = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._listed(key, paths, turns)) for key, paths in allowed.items()]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [skill for task in tasks if (skill := task.result()) is not None]

    async def load(self, key: str) -> str | None:
        """Return the text of a skill or of one of its resources, or None when there is no such key.

        Raises:
            ContextError: the key is a path, or what it names is no text, too large, or has bad front matter.
            StoreError: the bucket cannot be read.
        """
        split_key(key)
        if not self._allows(key):
            return None
        found = await self._objects.read(self._prefix + key, key, self._max_bytes)
        if found is not None:
            return found.text
        file = f"{key}/{SKILL_FILE}"
        skill = await self._objects.read(self._prefix + file, file, self._max_bytes)
        if skill is None:
            return None
        body = (await asyncio.to_thread(parse_skill, skill.text, file)).body
        resources = await self._resources(key)
        return with_resources(body, resources[:MAX_RESOURCES], more=len(resources) > MAX_RESOURCES)

    async def _set(self, key: str, content: str, description: str | None = None) -> None:
        """Write an object; without a `description` the one it has stays.

        Raises:
            ContextError: the key is a path, or the text or its description is too large.
            StoreError: the bucket cannot be written.
        """
        split_key(key)
        data = document(content).encode()
        if len(data) > self._max_bytes:
            raise ContextError(f"the skill would be {len(data):,} bytes, at most {self._max_bytes:,} are taken")
        path = self._prefix + key
        if description is None:
            _, description = await self._objects.description(path)
        await self._objects.write(path, data, description)

    async def _delete(self, key: str) -> bool:
        """Remove the object of a skill; False when there is none.

        Raises:
            ContextError: the key is a path, or it is that of a folder, which `set` does not write.
            StoreError: the bucket cannot be read or written.
        """
        split_key(key)
        path = self._prefix + key
        if not self._allows(key):
            return False
        if not (await self._objects.description(path))[0]:
            if (await self._objects.description(f"{path}/{SKILL_FILE}"))[0]:
                raise ContextError(f"skill {shown(key)} is a folder: nothing was deleted; delete its objects by hand")
            return False
        await self._objects.delete(path)
        return True

    def _allows(self, key: str) -> bool:
        if self._keys is None:
            return True
        names = key.split("/")
        return any("/".join(names[:end]) in self._keys for end in range(1, len(names) + 1))

    async def _listed(self, key: str, paths: list[str], turns: asyncio.Semaphore) -> Listed | None:
        reason = refusal(key)
        if reason is not None:
            return Listed(key, problem=f"the name of its object cannot be a key: {reason}")
        async with turns:
            for path in paths:
                try:
                    exists, description = await self._described(key, path)
                except ContextError as error:
                    return Listed(key, problem=str(error))
                if exists:
                    return Listed(key, description)
        # Gone since it was listed, or an empty object by which some tools mark a folder.
        return None

    async def _described(self, key: str, path: str) -> tuple[bool, str | None]:
        if path == key:
            return await self._objects.description(self._prefix + path)
        skill = await self._objects.read(self._prefix + path, path, self._max_bytes)
        if skill is None:
            return False, None
        return True, skill.description or (await asyncio.to_thread(parse_skill, skill.text, path)).description

    async def _resources(self, key: str) -> list[str]:
        found = await self._objects.list(f"{self._prefix}{key}/")
        paths = sorted(path.removeprefix(self._prefix) for path in found)
        return [
            path
            for path in paths
            if path != f"{key}/{SKILL_FILE}" and refusal(path) is None and not is_hidden(path.split("/"))
        ]


def _folder(prefix: str) -> str:
    """Return a prefix with one slash at its end, or nothing for the whole bucket."""
    name = prefix.strip("/")
    reason = refusal(name) if name else None
    if reason is not None:
        raise ConfigurationError(f"prefix {shown(prefix)} is refused: {reason}")
    return f"{name}/" if name else ""


def _skills(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return each key with the objects it may stand for; what lies beside a `SKILL.md` is no skill of its own."""
    seen = [path for path in paths if path and not is_hidden(path.split("/"))]
    folders = {path.removesuffix(f"/{SKILL_FILE}") for path in seen if path.endswith(f"/{SKILL_FILE}")}
    skills: dict[str, list[str]] = {}
    for path in sorted(seen, key=lambda path: (path.count("/"), path)):
        names = path.split("/")
        inside = [above for end in range(1, len(names)) if (above := "/".join(names[:end])) in folders]
        if not inside:
            skills.setdefault(path, []).append(path)
        elif path == f"{inside[0]}/{SKILL_FILE}":
            skills.setdefault(inside[0], []).append(path)
    return skills
