"""``headrace pipeline tables``: keep a feed's Delta tables up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from headrace.cli.health_options import HealthOptions
from headrace.cli.pipeline_requests import forget_command, rebuild_command, resume_command
from headrace.cli.spark_jobs import (
    SparkOptions,
    check_installed,
    lag_text,
    progress_teller,
    stopping,
    tell,
)
from headrace.cli.streaming_jobs import observed_job
from headrace.entries.feed import check_feed_id
from headrace.errors import ConfigInvalid, Usage

if TYPE_CHECKING:
    from headrace.pipeline.session import SessionSettings
    from headrace.pipeline.tables.job import Progress, Summary

_STARTS: Final = {
    "feed": "feed's first entry",
    "archive": "archive",
    "snapshot": "publisher's snapshot",
    "middle": "oldest entry that the feed had: those from before wait for a copy",
}

SHORT_ENTRIES_MAX: Final = 200_000
"""Up to so many entries a run with --once ends before settings for throughput would pay."""


app = App(
    name="tables", help="Keep a feed's Delta tables up to date; bring stopped ones back, or let them go."
)

app.command(resume_command, name="resume")
app.command(rebuild_command, name="rebuild")
app.command(forget_command, name="forget")


@app.default
def tables_command(
    *,
    feed: str,
    to: str,
    once: Annotated[bool, Parameter(negative=())] = False,
    checkpoint: str | None = None,
    max_entries: int = 1_000_000,
    archive: str = "",
    schema: str = "",
    schema_file: Path | None = None,
    log_file: Path | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    spark: SparkOptions | None = None,
    health: HealthOptions | None = None,
) -> int:
    """Keep one Delta table per source table of a feed: the latest row of each key. Until told to stop, or --once.

    A captured table that can't be followed is stopped, and the others go on; the exit code is 1 then.

    Parameters
    ----------
    feed
        The change-feed-id.
    to
        Folder of the tables, one feed's alone; Spark's workers must reach it by the same path.
    once
        Stop at the entry that is the newest now.
    checkpoint
        Folder of Spark's record of how far the job is. Default: inside the tables' folder.
    max_entries
        Entries of one batch, about.
    archive
        URL of a folder of KWAL segments, for entries that the server has dropped.
    schema
        Columns of entries that name no table, as Spark DDL: "id BIGINT NOT NULL, name STRING". Kept from the first run on.
    schema_file
        File that holds it.
    log_file
        Where Spark's own output goes. Default: TO/_headrace/spark.log.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document at the end, and JSON lines of progress on stderr.
    """
    check_feed_id(feed)
    given = _schema_text(schema, schema_file)
    check_installed()
    from headrace.pipeline.tables.job import entries_waiting
    from headrace.pipeline.tables.ledger import FOLDER, local_folder

    token, ca = ("" if file is None else str(file) for file in (token_file, ca_file))
    waiting = entries_waiting(server, feed, to, token, ca)
    log = log_file if log_file is not None else local_folder(to) / FOLDER / "spark.log"
    tell(f"starting Spark; its own output goes to {log}")
    short = once and waiting <= SHORT_ENTRIES_MAX
    name, kept = f"headrace tables of {feed}", checkpoint or to
    settings = (spark or SparkOptions()).session(name, log, checkpoint=kept, short_lived=short)
    place = {"feed": feed, "to": to, "server": server, "token_file": token, "ca_file": ca}
    terms = {"checkpoint": checkpoint, "once": once, "entries_max": max_entries, "archive": archive}
    progress = progress_teller(_line, as_json=json)
    summary = _run(settings, health, **place, **terms, schema=given, progress=progress)
    _print_summary(summary, as_json=json)
    return int(bool(summary.stopped))


def _schema_text(schema: str, file: Path | None) -> str:
    if schema and file is not None:
        raise Usage("--schema and --schema-file say the same: give one of them")
    if file is None:
        return schema
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"--schema-file {file}: {error}") from None


def _run(settings: SessionSettings, health: HealthOptions | None, **job: Any) -> Summary:
    """Run the tables job in a session of its own, until it ends or a signal comes."""
    from headrace.pipeline.session import open_session, stop_session
    from headrace.pipeline.tables.job import run_tables

    with observed_job("tables", health, job["to"], job) as seen:
        seen.spark = spark = open_session(settings)
        job["progress"] = seen.telling(job["progress"])
        try:
            with stopping() as stop:
                return run_tables(spark, **job, restarting=seen.restarting, stop=stop, anew=seen.anew)
        finally:
            stop_session(spark)


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(summary).decode())
        return
    for line in report(summary):
        print(line)


def report(summary: Summary) -> list[str]:
    """Return what a job did, in lines for a person."""
    lines = [f"{summary.entries} entries in {summary.batches} batches, {summary.seconds:.1f} s"]
    if summary.published is None:
        return [*lines, f"nothing to publish: the feed {summary.feed} has no entry yet"]
    if summary.started_from is not None:
        lines.append(f"the tables begin with the {_STARTS[summary.started_from]}")
    lines.append(f"published: {summary.feed} at sequence id {summary.published.sequence_id}")
    lines += [
        f"  {'.'.join(table.table) or '(entries without a table)'}: {summary.to}/{table.path}, version {table.version}"
        for table in summary.published.tables
    ]
    lines += [
        f"  {'.'.join(table.table)}: STOPPED after sequence id {table.after} ({table.code}): {table.reason}"
        for table in summary.stopped
    ]
    return lines


def _line(now: Progress) -> str:
    speed = f"{now.entries_per_second:.0f} entries/s"
    return f"batch {now.batches}, entry {now.sequence_id}, {lag_text(now)}, {speed}"
