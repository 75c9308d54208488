"""``headrace feeds``: look at the feeds of a running server and change what they are. One subcommand is one file."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.feeds_release import release_command
from headrace.cli.feeds_retention import app as retention_app
from headrace.cli.feeds_settings import settings_command

app = App(name="feeds", help="See and change a running server's feeds.")

app.command(release_command, name="release")
app.command(settings_command, name="settings")
app.command(retention_app, name="retention")
