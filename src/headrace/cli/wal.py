"""``headrace wal``: the streams over all feeds (RFC-010). One subcommand is one file."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.wal_rotate import rotate_command

app = App(name="wal", help="Work with the streams over all feeds, and with what is written from them.")

app.command(rotate_command, name="rotate")
