"""The commands: each parses its words, calls one function, and prints."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from leafward import LeafwardError, __version__
from leafward.cli.screen import Screen, printable


class Refused(click.ClickException):
    """An error of ours as a person meets it: one sentence, and exit code 2."""

    exit_code = 2

    def __init__(self, error: LeafwardError) -> None:
        super().__init__(printable(str(error)))


class Commands(click.Group):
    """A group whose commands may raise the library's errors."""

    def invoke(self, ctx: click.Context) -> Any:
        # A terminal that cannot show a character gets a stand-in for it, not a traceback.
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except LeafwardError as error:
            raise Refused(error) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="leafward")
def main() -> None:
    """Conversations of LLM agents that survive: branching, searchable, in one file.

    \b
    $ leafward demo            see it work; no key, no server
    $ leafward demo --help     what a command does, with an example
    """


@main.command()
@click.option(
    "--path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("leafward-demo.db"),
    show_default=True,
    help="The SQLite file to write; it is made when missing, and kept.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as one JSON object.")
def demo(path: Path, as_json: bool) -> None:
    """See a conversation survive kill -9, branch, be searched, compacted and forked.

    A child process stores a conversation and is killed with SIGKILL while it writes. The file is opened again and
    compared with what the child was told is stored; then the conversation is branched, checked out and searched in
    English and Chinese. A scripted model takes a note, a long branch is compacted and looked under, and a fork goes its
    own way. The file stays, and a second run finds what the first one stored.

    \b
    $ leafward demo
    $ leafward demo --path chat.db --json
    """
    from leafward.cli.demo import run_demo

    found = asyncio.run(run_demo(path, Screen(quiet=as_json)))
    if as_json:
        click.echo(json.dumps(found, indent=2))


@main.command()
@click.argument("source")
@click.argument("target", required=False, envvar="LEAFWARD_STORE")
@click.option("--dry-run", is_flag=True, help="Tell what would be done; write nothing.")
@click.option(
    "--layout",
    type=click.Choice(["2.x", "1.x"]),
    default="2.x",
    show_default=True,
    help="The version of AgentScope whose layout the target has.",
)
@click.option(
    "--names",
    type=click.Choice(["guess", "literal", "encoded"]),
    default="guess",
    show_default=True,
    help="What the name of a directory is taken for that may be an id, or the encoding of another.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def migrate(source: str, target: str | None, dry_run: bool, layout: str, names: str, as_json: bool) -> None:
    """Move sessions that AgentScope for Java left, up to 1.0.4 and in 1.x.

    SOURCE is a directory, a mysql:// URL or a redis:// URL. TARGET is a directory of JSON files, or the URL of a store;
    without it, it is LEAFWARD_STORE, or else the source itself, where the sessions are then in the new layout as well.

    Nothing is taken from the source. Only a MySQL table of 1.0.4 or earlier, which has the name of the new one, is
    renamed: agentscope_sessions_backup. What is written is read back and compared. What the target has already stays as
    it is, so the command can be run again at any time, also after it was interrupted. A session that cannot be read is
    listed, and the others are moved. What may be a session but is left out, and what has a name that may mean two ids,
    is listed as well.

    \b
    $ leafward migrate ~/.agentscope/sessions --dry-run
    $ leafward migrate ~/.agentscope/sessions sqlite:///chat.db
    $ leafward migrate mysql://app@db.example/agentscope
    $ leafward migrate redis://cache.example postgresql://app@db.example/chat
    """
    from leafward.cli.migrating import run_migration

    run_migration(source, target, dry_run=dry_run, layout=layout, names=names, as_json=as_json)
