"""``headrace pipeline``: fetch what Spark needs, and keep a feed's Delta tables up to date."""

from __future__ import annotations

import json as json_codec
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from headrace.entries.feed import check_feed_id
from headrace.errors import SetupMissing

if TYPE_CHECKING:
    from headrace.pipeline.session import SessionSettings
    from headrace.pipeline.tables.job import Progress, Summary

SHORT_ENTRIES_MAX: Final = 200_000
"""Up to so many entries a run with --once ends before settings for throughput would pay."""

app = App(name="pipeline", help="Keep Spark tables of a feed up to date.")


@app.command
def setup(*, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Find a Java and fetch the jars that Spark needs, once; jobs never fetch anything.

    The jars (20 MB) go to HEADRACE_JARS, else ~/.cache/headrace/jars, and are checked by their SHA-256. For a machine
    without network: copy that folder there and set HEADRACE_JARS to it.

    Parameters
    ----------
    json
        Print one JSON document instead of lines.
    """
    _check_installed()
    from headrace.pipeline import jars
    from headrace.pipeline.java import find_java

    def say(line: str) -> None:
        print(f"pipeline: {line}", file=sys.stderr if json else sys.stdout, flush=True)

    java = find_java()
    say(f"Java {java.major} from {java.origin}: {java.home}")
    folder = jars.jars_folder()
    fetched = jars.fetch(folder, java, say=say)
    if json:
        document = {
            "java": {"home": str(java.home), "major": java.major, "origin": java.origin},
            "jars": str(folder),
            "fetched": [jar.file for jar in fetched],
            "files": [{"file": jar.file, "size": jar.size, "sha256": jar.sha256} for jar in jars.ALL],
        }
        print(json_codec.dumps(document))
        return
    say(f"{len(jars.ALL)} jars are in {folder}" + ("" if fetched else ", checksums fit: nothing to fetch"))
    say("for a machine without network: copy that folder there and set HEADRACE_JARS to it")


@app.command
def tables(
    *,
    feed: str,
    to: str,
    once: Annotated[bool, Parameter(negative=())] = False,
    master: str = "local[*]",
    checkpoint: str | None = None,
    max_entries: int = 1_000_000,
    memory: str = "2g",
    log_file: Path | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Keep one Delta table per source table of a feed: the latest row of each key. Until told to stop, or --once.

    Parameters
    ----------
    feed
        The change-feed-id.
    to
        Folder of the tables, one feed's alone; Spark's workers must reach it by the same path.
    once
        Stop at the entry that is the newest now.
    master
        Spark's master: local[2], or spark://HOST:PORT of a cluster.
    checkpoint
        Folder of Spark's record of how far the job is. Default: inside the tables' folder.
    max_entries
        Entries of one batch, about.
    memory
        Memory of Spark's driver.
    log_file
        Where Spark's own output goes. Default: TO/_headrace/spark.log.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document at the end.
    """
    check_feed_id(feed)
    _check_installed()
    from headrace.pipeline.session import SessionSettings
    from headrace.pipeline.tables.job import entries_waiting
    from headrace.pipeline.tables.ledger import FOLDER, local_folder

    token, ca = ("" if file is None else str(file) for file in (token_file, ca_file))
    waiting = entries_waiting(server, feed, to, token, ca)
    log = log_file if log_file is not None else local_folder(to) / FOLDER / "spark.log"
    _tell(f"starting Spark; its own output goes to {log}")
    short = once and waiting <= SHORT_ENTRIES_MAX
    name = f"headrace tables of {feed}"
    settings = SessionSettings(log_file=log, name=name, master=master, memory=memory, short_lived=short)
    place = {"feed": feed, "to": to, "server": server, "checkpoint": checkpoint}
    files = {"token_file": token, "ca_file": ca}
    summary = _run(settings, **place, **files, once=once, entries_max=max_entries)
    _print_summary(summary, as_json=json)


def _run(settings: SessionSettings, **job: Any) -> Summary:
    """Run the tables job in a session of its own, until it ends or a signal comes."""
    from headrace.pipeline.session import open_session
    from headrace.pipeline.tables.job import run_tables

    spark = open_session(settings)
    try:
        with stopping() as stop:
            return run_tables(spark, **job, progress=_teller(), stop=stop)
    finally:
        spark.stop()


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
    lines.append(f"published: {summary.feed} at sequence id {summary.published.sequence_id}")
    lines += [
        f"  {'.'.join(table.table) or '(entries without a table)'}: {summary.to}/{table.path}, version {table.version}"
        for table in summary.published.tables
    ]
    return lines


def _check_installed() -> None:
    for package in ("pyspark", "delta", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise SetupMissing(f"the package {package} is not installed")


def _teller() -> Callable[[Progress], None]:
    """Return what shows progress: one line rewritten on a terminal, nothing where nobody watches."""
    if not sys.stderr.isatty():
        return lambda now: None

    def tell(now: Progress) -> None:
        lag = "server away" if now.lag is None else f"{now.lag} behind"
        line = f"batch {now.batches}, entry {now.sequence_id}, {lag}, {now.entries_per_second:.0f} entries/s"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return tell


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that SIGINT or SIGTERM sets; the job then stops at a place from which it goes on."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if sys.stderr.isatty():
            print(file=sys.stderr)
