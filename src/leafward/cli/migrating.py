"""`leafward migrate`: a bar while it goes on, and a summary at its end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from leafward import LeafwardError
from leafward.cli.screen import Screen
from leafward.importers.agentscope import MigrationReport, migrate
from leafward.importers.sources import check_reading, directory_of


class Interrupted(click.ClickException):
    """Ctrl-C, and what it means."""

    exit_code = 1


def run_migration(source: str, target: str | None, *, dry_run: bool, layout: str, names: str, as_json: bool) -> None:
    """Migrate, and print what became of it.

    Raises:
        LeafwardError: it could not be done, or not for all sessions; what is wrong with those is printed.
    """
    try:
        target = target or directory_of(source) or source
        report = _migrate(source, target, dry_run=dry_run, layout=layout, names=names)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: what was moved so far is there; run the same command again to go on") from None
    if as_json:
        lists = {"failed": report.failed, "left_out": report.left_out, "unclear": report.unclear}
        told = {key: [{"what": what, "reason": reason} for what, reason in some] for key, some in lists.items()}
        click.echo(json.dumps({**asdict(report), **told}, indent=2))
    else:
        screen = Screen()
        for line in str(report).splitlines():
            screen.say(line)
    if report.failed:
        raise LeafwardError("what is listed as failed could not be read: fix or delete it, then run this again")


def _migrate(source: str, target: str, *, dry_run: bool, layout: str, names: str) -> MigrationReport:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Moving sessions", total=None)

        def show(done: int, total: int | None, _: str) -> None:
            bar.update(task, completed=done, total=total)

        return asyncio.run(
            migrate(source, target, dry_run=dry_run, layout=layout, names=check_reading(names), progress=show)
        )
