"""``headrace pipeline``: what runs on Spark. One module a command."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.pipeline_setup import setup_command
from headrace.cli.pipeline_tables import tables_command

app = App(name="pipeline", help="Tables and more of a feed, on Spark.")

app.command(setup_command, name="setup")
app.command(tables_command, name="tables")
