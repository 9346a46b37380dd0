"""Find what a page of documentation shows, and run it.

    python tools/doc_steps.py page.md < steps.json

runs the steps in order: Python blocks share one namespace, commands share
the working directory and the environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, TypedDict

FENCE = re.compile(
    r"(?:<!--[ ]*not[ ]run:(?P<reason>[^\n]*?)-->\s*\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"(?:\w+=\S* )*leafward(?: |$)|export \w+=")


class Step(TypedDict):
    """One thing a reader would do: run a Python block, or a command."""

    kind: str
    line: int
    text: str


class UnexplainedSkip(ValueError):
    """A block is marked as not run, but nobody says why."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}: write the reason in <!-- not run: reason -->")


def steps_of(page: str) -> list[Step]:
    """Return what a page tells its reader to run, in order."""
    return [step for block in FENCE.finditer(page) for step in steps_of_block(page, block)]


def steps_of_block(page: str, block: re.Match[str]) -> Iterator[Step]:
    """Yield the steps of one fenced block; a block that is excused for a reason has none."""
    line = page.count("\n", 0, block.start("body")) + 1
    if block["reason"] is not None:
        if not block["reason"].strip():
            raise UnexplainedSkip(line)
        return
    body = re.sub(f"^{block['indent']}", "", block["body"], flags=re.MULTILINE)
    if block["language"] == "python":
        yield Step(kind="python", line=line, text=body)
    elif block["language"] in ("console", "bash", "sh", "shell"):
        yield from commands_of(body, line, prompted=block["language"] == "console")


def commands_of(body: str, first_line: int, *, prompted: bool) -> Iterator[Step]:
    """Yield our own commands; in a console block they follow a prompt, and other lines are output."""
    offset = 0
    for line in body.replace("\\\n", " \x00").splitlines():
        shown = line.replace("\x00", "")
        command = shown.removeprefix("$ ")
        if COMMAND.match(command) and not (prompted and command == shown):
            yield Step(kind="command", line=first_line + offset, text=command)
        offset += 1 + line.count("\x00")


def export(command: str) -> None:
    """Set what an `export` line sets, for the steps after it."""
    for word in shlex.split(command)[1:]:
        name, _, value = word.partition("=")
        os.environ[name] = value


def run(steps: list[Step], page: str) -> None:
    """Do what the page says; the first step that fails ends it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for step in steps:
        if step["kind"] == "python":
            # The leading newlines make a traceback name the page's own line.
            text = "\n" * (step["line"] - 1) + step["text"]
            exec(compile(text, page, "exec", dont_inherit=True), namespace)
        elif step["text"].startswith("export "):
            export(step["text"])
        else:
            done = subprocess.run(step["text"], shell=True, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                sys.exit(f"{page}, line {step['line']}: `{step['text']}` ended with {done.returncode}")


if __name__ == "__main__":
    run(json.load(sys.stdin), sys.argv[1])
