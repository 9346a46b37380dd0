"""What a migration found and did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What was found, and what became of it; of a dry run, what would become of it."""

    target: str
    """Where the sessions went: a directory, a URL without secrets, or the class of a store that was given."""
    sessions: int
    """How many were found, also those that failed."""
    values: int
    lists: int
    messages: int
    """How many items the lists of messages have."""
    superseded: int
    """Documents of before 1.0.5 that were left, because their sessions went on in 1.x."""
    written: int
    """How many values and lists were written."""
    already_there: int
    kept: list[str]
    """What the target has too, but not with the same content; it stays as the target has it."""
    failed: list[tuple[str, str]]
    """What could not be read, and why; nothing of it was written."""
    left_out: list[tuple[str, str]]
    """What may be a session and was not looked at any further, and why."""
    unclear: list[tuple[str, str]]
    """Whose id is not certain, and what it was taken for."""
    renamed: str | None
    """The name under which an old table is kept now, if one was in the way of the new one."""
    of_2x: int
    """Sessions that are in the layout of 2.x already, and were not touched."""
    dry_run: bool

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        found = [_count(self.values, "value"), _count(self.lists, "list"), _count(self.messages, "message")]
        done = [
            f"{_count(self.written, 'state')} {would}written",
            f"{self.already_there:,} already there",
            f"{len(self.kept):,} kept as the target has them",
            f"{len(self.failed):,} failed",
        ]
        lines = [
            f"Target: {_on_one_line(self.target)}",
            f"{_count(self.sessions, 'session')} found: {', '.join(found)}.",
            f"{', '.join(done)}.",
        ]
        if self.of_2x:
            lines.append(f"{_count(self.of_2x, 'session')} of 2.x left alone: a 2.x store reads them where they are.")
        if self.superseded:
            lines.append(f"{_count(self.superseded, 'old document')} left: their sessions went on in 1.x.")
        if self.renamed is not None:
            lines.append(f"The old table {would or 'is '}kept as {self.renamed}.")
        lines += [f"Kept: {what}" for what in self.kept]
        for heading, remarks in (("Unclear", self.unclear), ("Left out", self.left_out), ("Failed", self.failed)):
            lines += [f"{heading}: {_on_one_line(what)}: {_on_one_line(text)}" for what, text in remarks]
        if self.unclear:
            lines.append("Unclear names: look at each; names 'literal' or 'encoded' decides for all of them.")
        if self.left_out:
            lines.append("What was left out stays where it is: a store of its layout reads it there.")
        return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """Return a text, such as a file's name, so that nothing in it begins a line or commands a terminal."""
    return text if text.isprintable() else repr(text)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
