"""Skills in a directory, as the Agent Skills format lays them out."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from leafward.core.errors import ContextError, LeafwardError
from leafward.core.prompt import ContextEntry
from leafward.sessions.skills.folder import SkillFolder
from leafward.sessions.skills.frontmatter import parse_skill, render_skill, yaml_module
from leafward.sessions.skills.keys import refusal, shown, split_key
from leafward.sessions.skills.listing import DEFAULT_MAX_BYTES, SKILL_FILE, Listed, document, listing, with_resources

MAX_NAME_BYTES = 200


class DirectorySkillProvider:
    """Offers the skills in a directory: `<path>/<skill>/SKILL.md`, and the files beside it.

    A skill's key is the name of its folder; a file beside its document has the key `skill/reference.md`. Keys are never
    taken as paths: links are not followed, hidden files are not there, and a file that is no text or larger than
    `max_bytes` is refused. With `writable=True` there are also `set` and `delete_entry`, so that the model can write
    skills, and delete those it wrote.

    Raises:
        ConfigurationError: PyYAML is not installed; later, that `path` is not a directory.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, writable: bool = False, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        yaml_module()
        self._folder = SkillFolder(Path(path).expanduser().absolute(), max_bytes=max_bytes, create=writable)
        self._writing = threading.Lock()
        # A provider is writable if it has `set`, so one that is not must not have it.
        if writable:
            self.set = self._set
            self.delete_entry = self._delete

    async def get(self) -> str | None:
        """Return a line for each skill, `- key: description`, in the order of the keys, or None when there are none.

        A skill that cannot be read is listed with the reason, and does not hide the others.
        """
        return listing(await asyncio.to_thread(self._list))

    async def list_entries(self) -> list[ContextEntry]:
        """Return the key and the description of each skill."""
        return [skill.entry for skill in await asyncio.to_thread(self._list)]

    async def load(self, key: str) -> str | None:
        """Return a skill's document and the keys of its resources, or one resource; None when there is no such key.

        Raises:
            ContextError: the key is a path, or what it names is a link, no text, too large, or has bad front matter.
        """
        return await asyncio.to_thread(self._load, split_key(key))

    async def _set(self, key: str, content: str, description: str | None = None) -> None:
        """Write a skill's document, whole or not at all.

        Without a `description` the one it has stays, as do the other fields of its front matter.

        Raises:
            ContextError: the key is a path or too long, or the document is too large.
        """
        names = split_key(key)
        if len(names) > 1 or len(key.encode()) > MAX_NAME_BYTES:
            raise ContextError(
                f"skill key {shown(key)} is refused: a new skill has one name of at most {MAX_NAME_BYTES} bytes"
            )
        await asyncio.to_thread(self._write, key, document(content), description)

    async def _delete(self, key: str) -> bool:
        """Remove a skill's document and its folder; False when there is no such skill.

        Raises:
            ContextError: the key is a path or a resource, or there are files in the folder that `set` did not write.
        """
        if len(split_key(key)) > 1:
            raise ContextError(f"skill key {shown(key)} is refused: a skill is deleted as a whole")
        return await asyncio.to_thread(self._remove, key)

    def _list(self) -> list[Listed]:
        return [self._listed(name) for name in self._folder.names()]

    def _listed(self, name: str) -> Listed:
        reason = refusal(name)
        if reason is not None:
            return Listed(name, problem=f"the name of its folder cannot be a key: {reason}")
        try:
            text = self._folder.read([name, SKILL_FILE])
            if text is None:
                return Listed(name, problem=f"its {SKILL_FILE} is not a file")
            description = parse_skill(text, f"{name}/{SKILL_FILE}").description
        except LeafwardError as error:
            return Listed(name, problem=str(error))
        return Listed(name, description)

    def _load(self, names: list[str]) -> str | None:
        if len(names) > 1:
            return self._folder.read(names)
        file = [*names, SKILL_FILE]
        text = self._folder.read(file)
        if text is None:
            return None
        keys, more = self._folder.resources(names[0])
        return with_resources(parse_skill(text, "/".join(file)).body, keys, more=more)

    def _remove(self, key: str) -> bool:
        with self._writing:
            return self._folder.delete(key)

    def _write(self, key: str, content: str, description: str | None) -> None:
        # One at a time: what a write keeps of the front matter is what the write before it left.
        with self._writing:
            self._folder.write(
                key,
                lambda former: render_skill(key, content, description, former=former, file=f"{key}/{SKILL_FILE}"),
            )
