"""``headrace pipeline``: what runs on Spark. One module a command."""

from __future__ import annotations

from cyclopts import App

from headrace.cli.pipeline_audit import audit_command
from headrace.cli.pipeline_checkpoint import app as checkpoint_app
from headrace.cli.pipeline_kafka import kafka_command
from headrace.cli.pipeline_setup import setup_command
from headrace.cli.pipeline_status import status_command
from headrace.cli.pipeline_tables import app as tables_app

app = App(name="pipeline", help="Tables and more of a feed, on Spark.")

app.command(audit_command, name="audit")
app.command(checkpoint_app, name="checkpoint")
app.command(kafka_command, name="kafka")
app.command(setup_command, name="setup")
app.command(status_command, name="status")
app.command(tables_app, name="tables")
