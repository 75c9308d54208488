"""``headrace wal``: the streams over all feeds (RFC-010). One subcommand is one file."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.wal_backup import backup_command
from headrace.cli.wal_drill import drill_command
from headrace.cli.wal_gap import app as gap_app
from headrace.cli.wal_list import list_command
from headrace.cli.wal_plan import plan_command
from headrace.cli.wal_prune import prune_command
from headrace.cli.wal_restore import restore_command
from headrace.cli.wal_rotate import rotate_command
from headrace.cli.wal_verify import verify_command

app = App(name="wal", help="Work with the streams over all feeds, and with what is written from them.")

app.command(backup_command, name="backup")
app.command(rotate_command, name="rotate")
app.command(verify_command, name="verify")
app.command(prune_command, name="prune")
app.command(restore_command, name="restore")
app.command(drill_command, name="drill")
app.command(gap_app)
app.command(list_command, name="list")
app.command(plan_command, name="plan")
