"""``headrace snapshot``: base snapshots of an archive. One subcommand is one file."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.snapshot_create import create_command

app = App(name="snapshot", help="Base snapshots of an archive, from which restores begin.")

app.command(create_command, name="create")
