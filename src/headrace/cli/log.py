"""``headrace log``: look at a journal and mend it, without a server. One subcommand is one file."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.log_dump import dump_command
from headrace.cli.log_repair import repair_command
from headrace.cli.log_verify import verify_command

app = App(
    name="log", help="Check, print and repair the journal of a data folder or a database; no server is asked."
)

app.command(verify_command, name="verify")
app.command(dump_command, name="dump")
app.command(repair_command, name="repair")
